"""Strip-mining: a run of vector instructions becomes a loop over strips of 16 or 8 lanes, so that values stay in host registers.

64 lanes of one register fill four of the host's widest vectors, and a kernel with 60 live registers would spill nearly all.
Instructions that work lane by lane do not care in which order the lanes go: a *region* of them is written as one loop body over
a strip's lanes. Scalar instructions between them are written before the loop. What looks across lanes (memory through the
support library, lane exchanges, matrix instructions, branches, barriers) ends the region.

Lane masks that a region's compares make are gathered bit by bit and reach their SGPRs when it ends. LDS loads are read in the
loop too (`strip_reads`): the loads of a region cannot see its stores, as a store ends it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..analyses.lane_patterns import STRIP
from ..context import CTX
from ..decode.inst import Inst, Operand
from .strip_reads import LdsRead, both_versions, is_read, read_pending

if TYPE_CHECKING:
    from ..isa.table import Row
    from .ops import Out
    from .registers import Registers


EXEC = 126
_SCALAR_KINDS = frozenset(("salu", "smem", "wait"))
_VECTOR_KINDS = frozenset(("valu", "trans", "packed"))


@dataclass(slots=True)
class Region:
    """The open region: its number, its pending lane masks by SGPR (values of the body, a bit a lane), its pending loads."""

    number: int
    masks: dict[int, str] = field(default_factory=dict)
    loads: dict[tuple[str, int], LdsRead] = field(default_factory=dict)
    reads: list[LdsRead] = field(default_factory=list)  # those that the body has, in order
    resident: dict[tuple[str, int], str] = field(default_factory=dict)  # of a loop: where its registers are kept


def takes_strips(w: Registers, inst: Inst, row: Row) -> bool:
    """Whether an instruction works lane by lane, and may stand in a region."""
    if is_read(inst):
        return w.reads_in_line
    if row.kind not in _VECTOR_KINDS:
        return False
    for part in (inst, inst.dual):
        if part is None:
            continue
        if part.encoding in ("dpp", "dpp8", "e64_dpp") or part.op.startswith("v_cmpx"):
            return False
        dst = part.operands[0] if part.operands else None
        if dst is not None and dst.kind == "s" and dst.index <= EXEC + 1 and dst.index + dst.count > EXEC:
            return False
    return True


def touches_masks(w: Registers, inst: Inst, row: Row) -> bool:
    """Whether an instruction reads or writes as a number an SGPR whose lane mask is still in the loop."""
    region = w.region
    if region is None or not region.masks:
        return False
    lanes = 2 if w.lanes == 64 else 1
    left, _, right = row.signature.partition("=")
    tokens = left.split() + [t for t in right.split() if t[0] != "+"]
    for part in (inst, inst.dual):
        if part is None:
            continue
        for i, op in enumerate(part.operands):
            if op.kind == "special":
                return True
            if op.kind != "s":
                continue
            if row.kind in _VECTOR_KINDS and op.index in region.masks and i < len(tokens) and tokens[i] == "mask":
                continue
            if any(op.index < m + lanes and m < op.index + op.count for m in region.masks):
                return True
    return False


def may_stay(row: Row) -> bool:
    """Whether a scalar instruction may be written before the loop of the open region."""
    return row.kind in _SCALAR_KINDS


def open_region(w: Registers) -> None:
    w.settle()
    w.forget_vectors()
    w.new_segment(True)
    w.regions += 1
    w.region = Region(w.regions)
    w.v = w.strip_ops
    w.body.lines = []


def close_region(w: Registers) -> None:
    """Write the loop; pending lane masks reach their SGPRs."""
    region = w.region
    assert region is not None
    read_pending(w)
    w.flush()
    body, out, n = w.body, w.out, region.number
    for k, (index, bits) in enumerate(region.masks.items()):
        wide = body.emit(f"zext {w.strip_bits} {bits} to i64")
        moved = body.emit(f"shl i64 {wide}, %r{n}.ls")
        old = body.emit(f"load i64, ptr %mk{k}")
        body.put(f"store i64 {body.emit(f'or i64 {old}, {moved}')}, ptr %mk{k}")
        out.put(f"store i64 0, ptr %mk{k}")
        del index
    w.mask_slots = max(w.mask_slots, len(region.masks))
    w.v = w.whole_ops
    w.forget_vectors()
    if body.lines:
        open_loop(out, n, w.options.strip)
        both_versions(w, body.lines)
        close_loop(out, n, w.lanes // w.options.strip)
    w.region = None
    w.new_segment(True)
    for k, index in enumerate(region.masks):
        bits = out.emit(f"load i64, ptr %mk{k}")
        w.set_mask_bits(index, bits if w.lanes == 64 else w.s.trunc("i64", "i32", bits))
    body.lines = []


def open_loop(out: Out, n: int, strip: int) -> None:
    """Begin region n's loop over strips: `.so` and `.sp` lead to a strip's registers, `.ls` is its shift in a lane mask."""
    out.put("store i64 0, ptr %strip")
    out.put(f"br label %r{n}")
    out.label(f"r{n}")
    out.put(f"%r{n}.i = load i64, ptr %strip")
    out.put(f"%r{n}.so = shl i64 %r{n}.i, {(4 * strip).bit_length() - 1}")
    out.put(f"%r{n}.ls = shl i64 %r{n}.i, {strip.bit_length() - 1}")
    out.put(f"%r{n}.sp = getelementptr i8, ptr %st, i64 %r{n}.so")


def close_loop(out: Out, n: int, strips: int) -> None:
    """End of region n's loop over so many strips."""
    out.put(f"%r{n}.n = add i64 %r{n}.i, 1")
    out.put(f"store i64 %r{n}.n, ptr %strip")
    out.put(f"%r{n}.m = icmp ult i64 %r{n}.n, {strips}")
    out.put(f"br i1 %r{n}.m, label %r{n}, label %r{n}x")
    out.label(f"r{n}x")


def strip_address(w: Registers, kind: str, index: int) -> str:
    """Pointer to this strip of a register: in the wave's state, or where a loop keeps it."""
    assert w.region is not None
    if w.region.resident:
        return w.region.resident[kind, index]
    return w.body.emit(f"getelementptr i8, ptr %r{w.region.number}.sp, i64 {w.reg_offset(kind, index)}")


def mask_strip(w: Registers, index: int) -> str:
    """The strip's bits of the lane mask in SGPR `index`, as a number of as many bits."""
    assert w.region is not None
    pending = w.region.masks.get(index)
    if pending is not None:
        return pending
    bits = w.mask_bits(index)
    if bits[0] != "%":
        return str((int(bits) & 1) * -1) if bits in ("0", "-1") else _constant_strip(w, bits)
    ls = f"%r{w.region.number}.ls"
    if w.lanes == 32:
        ls = w.body.emit(f"trunc i64 {ls} to i32")
    moved = w.body.emit(f"lshr {w.mask_type} {bits}, {ls}")
    return w.body.emit(f"trunc {w.mask_type} {moved} to {w.strip_bits}")


def _constant_strip(w: Registers, bits: str) -> str:
    assert w.region is not None
    moved = w.body.emit(f"lshr i64 {int(bits) & (2**w.lanes - 1)}, %r{w.region.number}.ls")
    return w.body.emit(f"trunc i64 {moved} to {w.strip_bits}")


def set_mask_strip(w: Registers, op: Operand, mask: str) -> None:
    """A compare's result within the region."""
    region = w.region
    assert region is not None
    if op.kind == "special" and op.text == "null":
        return
    if op.kind != "s":
        raise w.fail(f"lane mask written to {op.text}")
    bits = w.body.emit(f"bitcast {w.v.type('i1')} {mask} to {w.strip_bits}")
    if not w.full:
        bits = w.body.emit(f"and {w.strip_bits} {bits}, {mask_strip(w, EXEC)}")
        mask = w.body.emit(f"bitcast {w.strip_bits} {bits} to {w.v.type('i1')}")
    region.masks.pop(op.index, None)
    region.masks[op.index] = bits
    w.drop_scalar(op.index, 2 if w.lanes == 64 else 1)
    w.state.masks[op.index] = mask


def entry_lines(w: Registers) -> list[str]:
    """What regions need at the function's entry; `%ctx` is the context block."""
    lines = ["  %strip = alloca i64", *(f"  %mk{k} = alloca i64" for k in range(w.mask_slots))]
    if w.resident_slots:
        lines += [f"  %lv{m} = alloca <{w.options.strip} x i32>" for m in range(w.resident_slots)]
        for kept in ("sv", "sw"):  # scalars before a loop, and before an iteration
            lines += [*(f"  %{kept}{m} = alloca i32" for m in range(w.saved_slots)), f"  %{kept}c = alloca i1"]
    if w.lds_dwords:
        lines += [
            f"  %lds_at = getelementptr i8, ptr %ctx, i64 {CTX['lds']}",
            "  %lds = load ptr, ptr %lds_at",
            f"  %lds_size_at = getelementptr i8, ptr %ctx, i64 {CTX['lds_bytes']}",
            "  %lds_size = load i64, ptr %lds_size_at",
        ]
        if "screen" in w.options.checks:
            for name in ("screen_lds", "screen_own"):
                lines.append(f"  %{name}_at = getelementptr i8, ptr %ctx, i64 {CTX[name]}")
                lines.append(f"  %{name} = load ptr, ptr %{name}_at")
    for n in sorted(w.lds_dwords):
        lines.append(f"  %lds_last{n} = sub i64 %lds_size, {4 * n}")
        lines.append(f"  %lds_run{n} = sub i64 %lds_size, {4 * n * STRIP}")
    return lines
