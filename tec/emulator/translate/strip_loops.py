"""Loops that one strip of lanes can run alone: their registers stay in the host's from one iteration to the next.

Such a loop is straight code of vector instructions that work lane by lane, LDS loads and scalar instructions, closed by a
branch on SCC: no lane mask in it, nothing that looks across lanes, no memory but reads of LDS. Which lanes go first does not
matter to it, so the loop over strips is put outside: a strip runs all iterations, then the scalars it counted with are set
back for the next one. The budget is paid in parts, one a strip.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..decode.inst import Inst
from ..isa.table import ROWS
from .ops import Ops
from .strip_reads import both_versions, has_expected, is_read, read_pending
from .strips import Region, close_loop, open_loop

if TYPE_CHECKING:
    from .kernel import Translator

VCC, EXEC = 106, 126
_BRANCHES = frozenset(("s_cbranch_scc0", "s_cbranch_scc1"))


def loop_end(t: Translator, start: int, labelled: dict[int, list[str]]) -> int | None:
    """The index of the branch that closes the loop at `start`, where it is such a loop."""
    if not t.full or not t.plain_lds or t.options.profile:
        return None
    names, vectors = labelled[start], 0
    for index in range(start, len(t.text.insts)):
        inst = t.text.insts[index]
        if index > start and index in labelled:
            return None
        if inst.op in _BRANCHES:
            return index if inst.operands[0].text in names and vectors else None
        if not _fits(inst) or (is_read(inst) and not t.reads_in_line):
            return None
        vectors += inst.op.startswith(("v_", "ds_"))
    return None


def _fits(inst: Inst) -> bool:
    """Whether an instruction may stand in a loop over strips: no control flow, and nothing that looks at other lanes."""
    if is_read(inst):
        return True
    if not inst.op.startswith(("v_", "s_")) or inst.op in ("s_getpc_b64", "s_endpgm", "s_trap", "s_branch"):
        return False
    if inst.op.startswith(("s_barrier", "s_cbranch", "v_cmp")):
        return False
    for part in (inst, inst.dual):
        if part is None:
            continue
        row = ROWS.get(part.op)
        if row is None:
            return False
        if row.kind == "wait":
            return True
        vector = row.kind in ("valu", "trans", "packed")
        if not vector and row.kind != "salu":
            return False
        if vector and ("mask" in row.signature or "div_fmas" in part.op or "cndmask" in part.op):
            return False
        if part.encoding in ("dpp", "dpp8", "e64_dpp"):
            return False
        for i, op in enumerate(part.operands):
            if op.kind == "special" and op.text not in ("null", "scc", "src_scc"):
                return False
            if op.kind == "s" and (VCC <= op.index <= VCC + 1 or op.index >= 124 or (vector and i == 0)):
                return False
            if op.kind not in ("v", "a", "s", "int", "float", "special"):
                return False
    return True


def run_loop(t: Translator, start: int, end: int) -> None:
    """Write the loop from its label (already placed) to past its branch."""
    insts = t.text.insts[start : end + 1]
    vectors, scalars = _named(insts)
    t.regions += 1
    n, out = t.regions, t.out
    region = Region(n, resident={key: f"%lv{m}" for m, key in enumerate(vectors)})
    t.resident_slots, t.saved_slots = max(t.resident_slots, len(vectors)), max(t.saved_slots, len(scalars))
    keys = {*vectors, *(("s", index) for index in scalars)}
    t.regs |= keys
    t.segment.loads |= keys - t.segment.stores

    def copy(ty: str, source: str, goal: str) -> None:
        out.put(f"store {ty} {out.emit(f'load {ty}, ptr {source}')}, ptr {goal}")

    for m, index in enumerate(scalars):
        copy("i32", f"%s{index}", f"%sv{m}")
    copy("i1", "%scc", "%svc")
    open_loop(out, n, t.options.strip)
    for m, index in enumerate(scalars):
        copy("i32", f"%sv{m}", f"%s{index}")
    copy("i1", "%svc", "%scc")
    strip, align = f"<{t.options.strip} x i32>", f"align {4 * t.options.strip}"
    for key, slot in region.resident.items():
        at = out.emit(f"getelementptr i8, ptr %r{n}.sp, i64 {t.reg_offset(*key)}")
        out.put(f"store {strip} {out.emit(f'load volatile {strip}, ptr {at}, {align}')}, ptr {slot}")
    out.put(f"br label %r{n}in")
    out.label(f"r{n}in")
    t.new_block()
    body, ops = t.body, t.strip_ops
    t.region, t.body, t.strip_ops = region, out, Ops(out, t.options.strip, t.rounding)
    t.v = t.strip_ops
    begin = len(out.lines)
    for index, inst in enumerate(insts[:-1], start):
        t.position = index
        t.instruction(inst)
    read_pending(t)
    written = set(t.segment.stores)
    t.flush()
    _write_iteration(t, begin, scalars)
    t.position, t.inst = end, insts[-1]
    t.classes["branch"] = t.classes.get("branch", 0) + 1
    again = t.conditional(insts[-1])
    out.put(f"br i1 {again}, label %r{n}pay, label %r{n}out")
    out.label(f"r{n}pay")
    t.pay(max(1, (end - start + 1) * t.options.strip // t.lanes), f"r{n}in")
    out.label(f"r{n}out")
    place = len(t.segments) - 1
    for (kind, index), slot in region.resident.items():
        if (kind, index) in written:
            value = out.emit(f"load {strip}, ptr {slot}")
            at = out.emit(f"getelementptr i8, ptr %r{n}.sp, i64 {t.reg_offset(kind, index)}")
            out.lines.append(f"\0put {kind} {index} {place} store {strip} {value}, ptr {at}, {align}")
    close_loop(out, n, t.lanes // t.options.strip)
    t.region, t.body, t.strip_ops = None, body, ops
    t.v = t.whole_ops
    t.new_segment(True)
    t.new_block()


def _named(insts: list[Inst]) -> tuple[list[tuple[str, int]], list[int]]:
    """The vector registers that a loop names, and the scalar registers that it may change."""
    vectors = {
        (op.kind, op.index + k)
        for inst in insts for part in (inst, inst.dual) if part is not None
        for op in part.operands if op.kind in ("v", "a") for k in range(max(1, op.count))
    }  # fmt: skip
    firsts = [inst.operands[0] for inst in insts if inst.op.startswith("s_") and inst.operands]
    scalars = {op.index + k for op in firsts if op.kind == "s" for k in range(max(1, op.count))}
    return sorted(vectors), sorted(scalars)


def _write_iteration(t: Translator, begin: int, scalars: list[int]) -> None:
    """An iteration's lines, from `begin` on, in one or two versions; a second one starts from the scalars that the first began with."""
    assert t.region is not None
    out = t.out
    iteration, out.lines[begin:] = out.lines[begin:], []
    kept = [("i32", f"%s{index}", f"%sw{m}") for m, index in enumerate(scalars)] + [("i1", "%scc", "%swc")]

    def copy(back: bool) -> None:
        for ty, scalar, place in kept:
            source, goal = (place, scalar) if back else (scalar, place)
            out.put(f"store {ty} {out.emit(f'load {ty}, ptr {source}')}, ptr {goal}")

    if has_expected(t.region.reads):
        copy(False)
    both_versions(t, iteration, lambda: copy(True))
