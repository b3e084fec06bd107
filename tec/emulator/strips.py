"""Strip-mining: a run of vector instructions becomes a loop over strips of 16 lanes, so that values stay in host registers.

64 lanes of one register fill four of the host's widest vectors, and a kernel with 60 live registers would spill nearly all.
Instructions that work lane by lane do not care in which order the lanes go: a *region* of them is written as one loop body over
16 lanes. Scalar instructions between them are written before the loop. What looks across lanes (memory through the
support library, lane exchanges, matrix instructions, branches, barriers) ends the region.

Lane masks that a region's compares make are gathered bit by bit and reach their SGPRs when it ends. LDS loads are read in the
loop too: the loads of a region cannot see its stores, as a store ends it. Their results are read only where they are first used,
which is what keeps them in registers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .asmparse import Inst, Operand
from .context import CTX

if TYPE_CHECKING:
    from .ops import Out
    from .registers import Registers
    from .table import Row


STRIP = 16
EXEC = 126
_SCALAR_KINDS = frozenset(("salu", "smem", "wait"))
_VECTOR_KINDS = frozenset(("valu", "trans", "packed"))
LDS_READS = {
    "ds_read_b32": 1, "ds_read_b64": 2, "ds_read_b96": 3, "ds_read_b128": 4,
    "ds_load_b32": 1, "ds_load_b64": 2, "ds_load_b96": 3, "ds_load_b128": 4,
}  # fmt: skip
# Two-address forms: dwords of each half, bytes that an offset counts.
LDS_READS2 = {
    "ds_read2_b32": (1, 4), "ds_read2_b64": (2, 8), "ds_read2st64_b32": (1, 256), "ds_read2st64_b64": (2, 512),
    "ds_load_2addr_b32": (1, 4), "ds_load_2addr_b64": (2, 8),
    "ds_load_2addr_stride64_b32": (1, 256), "ds_load_2addr_stride64_b64": (2, 512),
}  # fmt: skip


@dataclass(slots=True)
class LdsRead:
    """A load that is issued and not yet read: address (a vector in the body), offset, registers, where it may fault."""

    address: str
    offset: int
    dwords: int
    kind: str
    index: int
    site: int


@dataclass(slots=True)
class Region:
    """The open region: its number, its pending lane masks by SGPR (i16 values of the body), its pending loads."""

    number: int
    masks: dict[int, str] = field(default_factory=dict)
    loads: dict[tuple[str, int], LdsRead] = field(default_factory=dict)
    patterns: dict[tuple[str, int], tuple[str, str, str]] = field(default_factory=dict)
    resident: dict[tuple[str, int], str] = field(default_factory=dict)  # of a loop: where its registers are kept


def takes_strips(w: Registers, inst: Inst, row: Row) -> bool:
    """Whether an instruction works lane by lane, and may stand in a region."""
    if inst.op in LDS_READS or inst.op in LDS_READS2:
        return w.plain_lds
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


def may_stay(inst: Inst, row: Row) -> bool:
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
        wide = body.emit(f"zext i16 {bits} to i64")
        moved = body.emit(f"shl i64 {wide}, %r{n}.ls")
        old = body.emit(f"load i64, ptr %mk{k}")
        body.put(f"store i64 {body.emit(f'or i64 {old}, {moved}')}, ptr %mk{k}")
        out.put(f"store i64 0, ptr %mk{k}")
        del index
    w.mask_slots = max(w.mask_slots, len(region.masks))
    w.region = None
    w.v = w.whole_ops
    w.forget_vectors()
    if body.lines:
        open_loop(out, n)
        out.lines += body.lines
        close_loop(out, n, w.lanes)
    w.new_segment(True)
    for k, index in enumerate(region.masks):
        bits = out.emit(f"load i64, ptr %mk{k}")
        w.set_mask_bits(index, bits if w.lanes == 64 else w.s.trunc("i64", "i32", bits))
    body.lines = []


def open_loop(out: Out, n: int) -> None:
    """Begin region n's loop over strips: `.so` and `.sp` lead to a strip's registers, `.ls` is its shift in a lane mask."""
    out.put("store i64 0, ptr %strip")
    out.put(f"br label %r{n}")
    out.label(f"r{n}")
    out.put(f"%r{n}.i = load i64, ptr %strip")
    out.put(f"%r{n}.so = shl i64 %r{n}.i, 6")
    out.put(f"%r{n}.ls = shl i64 %r{n}.i, 4")
    out.put(f"%r{n}.sp = getelementptr i8, ptr %st, i64 %r{n}.so")


def close_loop(out: Out, n: int, lanes: int) -> None:
    """End of region n's loop over the strips of `lanes` lanes."""
    out.put(f"%r{n}.n = add i64 %r{n}.i, 1")
    out.put(f"store i64 %r{n}.n, ptr %strip")
    out.put(f"%r{n}.m = icmp ult i64 %r{n}.n, {lanes // STRIP}")
    out.put(f"br i1 %r{n}.m, label %r{n}, label %r{n}x")
    out.label(f"r{n}x")


def read_pending(w: Registers) -> None:
    """Read the loads that nothing used so far."""
    assert w.region is not None
    while w.region.loads:
        read_lds(w, next(iter(w.region.loads.values())))


def strip_address(w: Registers, kind: str, index: int) -> str:
    """Pointer to this strip of a register: in the wave's state, or where a loop keeps it."""
    assert w.region is not None
    if w.region.resident:
        return w.region.resident[kind, index]
    return w.body.emit(f"getelementptr i8, ptr %r{w.region.number}.sp, i64 {w.reg_offset(kind, index)}")


def mask_strip(w: Registers, index: int) -> str:
    """The strip's 16 bits of the lane mask in SGPR `index`, as an i16."""
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
    return w.body.emit(f"trunc {w.mask_type} {moved} to i16")


def _constant_strip(w: Registers, bits: str) -> str:
    assert w.region is not None
    moved = w.body.emit(f"lshr i64 {int(bits) & (2**w.lanes - 1)}, %r{w.region.number}.ls")
    return w.body.emit(f"trunc i64 {moved} to i16")


def set_mask_strip(w: Registers, op: Operand, mask: str) -> None:
    """A compare's result within the region."""
    region = w.region
    assert region is not None
    if op.kind == "special" and op.text == "null":
        return
    if op.kind != "s":
        raise w.fail(f"lane mask written to {op.text}")
    bits = w.body.emit(f"bitcast {w.v.type('i1')} {mask} to i16")
    if not w.full:
        bits = w.body.emit(f"and i16 {bits}, {mask_strip(w, EXEC)}")
        mask = w.body.emit(f"bitcast i16 {bits} to {w.v.type('i1')}")
    region.masks.pop(op.index, None)
    region.masks[op.index] = bits
    w.drop_scalar(op.index, 2 if w.lanes == 64 else 1)
    w.state.masks[op.index] = mask


# LDS loads.


def lds_read(w: Registers, inst: Inst) -> None:
    """Issue a load of LDS; it is read at the first use of its registers."""
    assert w.region is not None
    dst, addr = inst.operands
    two = LDS_READS2.get(inst.op)
    if two is None:
        dwords = LDS_READS[inst.op]
        parts = [(dwords, inst.take_int("offset"))]
    else:
        dwords, unit = two
        parts = [(dwords, unit * inst.take_int(f"offset{i}")) for i in (0, 1)]
    if addr.kind != "v" or addr.count != 1:
        raise w.fail(f"LDS address {addr.text}")
    if inst.take("gds") is not None:
        raise w.fail("GDS")
    if dst.kind not in ("v", "a") or dst.half or dst.count != dwords * len(parts):
        raise w.fail(f"{dst.text} as the destination of {dwords * len(parts)} dwords")
    address = w.reg("v", addr.index)
    at = dst.index
    reads = []
    for n, offset in parts:
        reads.append(LdsRead(address, offset, n, dst.kind, at, w.site()))  # type: ignore[attr-defined]
        at += n
    for read in reads:
        for k in range(read.dwords):
            w.region.loads[(read.kind, read.index + k)] = read
            if w.full:
                w.state.typed.pop((read.kind, read.index + k), None)
                w.dirty.pop((read.kind, read.index + k), None)
    if not w.full:  # the old values count, and so does EXEC as it stands here
        for read in reads:
            read_lds(w, read)


def read_lds(w: Registers, read: LdsRead) -> None:
    """Write the load: 16 lanes at one address, contiguous lanes, or lanes apart."""
    region, b, n = w.region, w.body, read.dwords
    assert region is not None
    keys = [(read.kind, read.index + k) for k in range(n)]
    wanted = [region.loads.get(key) is read for key in keys]
    for key, mine in zip(keys, wanted):
        if mine:
            del region.loads[key]
    if not any(wanted):
        return
    w.lds_dwords.add(n)
    mask = "splat (i1 true)" if w.full else w.mask(EXEC)  # here, where all the paths below see it
    first, same, apart = _pattern(w, read.address, n)
    tag = b.fresh_label("l")
    vec = "<16 x i32>"
    start = b.emit(f"add i32 {first}, {read.offset}") if read.offset else first
    at = b.emit(f"zext i32 {start} to i64")
    pointer = b.emit(f"getelementptr i8, ptr %lds, i64 {at}")
    one = b.emit(f"and i1 {same}, {b.emit(f'icmp sle i64 {at}, %lds_last{n}')}")
    b.put(f"br i1 {one}, label %{tag}o, label %{tag}n")
    b.label(f"{tag}o")
    ones = []
    for k in range(n):
        word = b.emit(f"load i32, ptr {b.emit(f'getelementptr i8, ptr {pointer}, i64 {4 * k}')}, align 1")
        ones.append(w.v.splat("i32", word))
    b.put(f"br label %{tag}j")
    b.label(f"{tag}n")
    run = b.emit(f"and i1 {apart}, {b.emit(f'icmp sle i64 {at}, %lds_run{n}')}")
    b.put(f"br i1 {run}, label %{tag}c, label %{tag}g")
    b.label(f"{tag}c")
    big = b.emit(f"load <{16 * n} x i32>, ptr {pointer}, align 1")
    runs = [big]
    if n > 1:
        runs = [
            b.emit(f"shufflevector <{16 * n} x i32> {big}, <{16 * n} x i32> poison, <16 x i32> {_every(k, n)}")
            for k in range(n)
        ]
    b.put(f"br label %{tag}j")
    b.label(f"{tag}g")
    gathered = _gather(w, read, mask, tag)
    b.put(f"br label %{tag}j")
    b.label(f"{tag}j")
    values = [
        b.emit(f"phi {vec} [ {ones[k]}, %{tag}o ], [ {runs[k]}, %{tag}c ], [ {gathered[k]}, %{tag}h ]")
        for k in range(n)
    ]
    held, w.deferred = w.deferred, None  # both halves of a VOPD instruction read before either writes: this is a read
    for key, value, mine in zip(keys, values, wanted):
        if mine:
            w.write_reg(*key, value)
    w.deferred = held


def _every(k: int, n: int) -> str:
    return "<" + ", ".join(f"i32 {k + n * i}" for i in range(STRIP)) + ">"


def _pattern(w: Registers, address: str, n: int) -> tuple[str, str, str]:
    """(lane 0's address, whether all lanes have it, whether lanes follow each other by n dwords), once an address."""
    region, b = w.region, w.body
    assert region is not None
    known = region.patterns.get((address, n))
    if known is not None:
        return known
    vec = "<16 x i32>"
    first = b.emit(f"extractelement {vec} {address}, i64 0")
    delta = b.emit(f"sub {vec} {address}, {w.v.splat('i32', first)}")
    out = []
    for want in ("zeroinitializer", "<" + ", ".join(f"i32 {4 * n * i}" for i in range(STRIP)) + ">"):
        differs = b.emit(f"icmp ne {vec} {delta}, {want}")
        bits = b.emit(f"bitcast <16 x i1> {differs} to i16")
        if not w.full:
            bits = b.emit(f"or i16 {bits}, {b.emit(f'xor i16 {mask_strip(w, EXEC)}, -1')}")
        out.append(b.emit(f"icmp eq i16 {bits}, 0"))
    found = (first, out[0], out[1])
    if w.full:
        region.patterns[(address, n)] = found
    return found


def _gather(w: Registers, read: LdsRead, mask: str, tag: str) -> list[str]:
    """Lanes apart: each address checked, then a gather for each dword. Ends in block `<tag>h`."""
    b, vec = w.body, "<16 x i32>"
    where = b.emit(f"add {vec} {read.address}, splat (i32 {read.offset})") if read.offset else read.address
    wide = b.emit(f"zext {vec} {where} to <16 x i64>")
    limit = w.v.splat("i64", f"%lds_last{read.dwords}")
    over = b.emit(f"and <16 x i1> {b.emit(f'icmp sgt <16 x i64> {wide}, {limit}')}, {mask}")
    bad = b.emit(f"bitcast <16 x i1> {over} to i16")
    b.put(f"br i1 {b.emit(f'icmp ne i16 {bad}, 0')}, label %{tag}b, label %{tag}h, !prof !0")
    b.label(f"{tag}b")
    b.declares.add("declare void @tec_lds_fault(ptr, i32, i16, <16 x i32>, i64)")
    assert w.region is not None
    b.put(f"call void @tec_lds_fault(ptr %ctx, i32 {read.site}, i16 {bad}, {vec} {where}, i64 %r{w.region.number}.ls)")
    b.put("br label %fault")
    b.label(f"{tag}h")
    name = "@llvm.masked.gather.v16i32.v16p0"
    b.declares.add(f"declare {vec} {name}(<16 x ptr>, <16 x i1>, {vec})")
    out = []
    for k in range(read.dwords):
        index = b.emit(f"add {vec} {where}, splat (i32 {4 * k})") if k else where
        pointers = b.emit(f"getelementptr i8, ptr %lds, {vec} {index}")
        out.append(b.emit(f"call {vec} {name}(<16 x ptr> align 1 {pointers}, <16 x i1> {mask}, {vec} zeroinitializer)"))
    return out


def entry_lines(w: Registers) -> list[str]:
    """What regions need at the function's entry; `%ctx` is the context block."""
    lines = ["  %strip = alloca i64", *(f"  %mk{k} = alloca i64" for k in range(w.mask_slots))]
    if w.resident_slots:
        lines += [f"  %lv{m} = alloca <16 x i32>" for m in range(w.resident_slots)]
        lines += [*(f"  %sv{m} = alloca i32" for m in range(w.saved_slots)), "  %svc = alloca i1"]
    if w.lds_dwords:
        lines += [
            f"  %lds_at = getelementptr i8, ptr %ctx, i64 {CTX['lds']}",
            "  %lds = load ptr, ptr %lds_at",
            f"  %lds_size_at = getelementptr i8, ptr %ctx, i64 {CTX['lds_bytes']}",
            "  %lds_size = load i64, ptr %lds_size_at",
        ]
    for n in sorted(w.lds_dwords):
        lines.append(f"  %lds_last{n} = sub i64 %lds_size, {4 * n}")
        lines.append(f"  %lds_run{n} = sub i64 %lds_size, {4 * n * STRIP}")
    return lines
