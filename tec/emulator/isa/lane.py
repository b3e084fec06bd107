"""Opcodes that move data between lanes: readlane, writelane, mbcnt, swizzle, permute, permlane.

Source: AMD ISA manuals, "Data share operations" (ds_swizzle, ds_permute, ds_bpermute) and the VOP3 descriptions of permlane.
A lane that EXEC leaves out gives 0 to those who read it, but for v_readlane, v_writelane and v_permlane with fetch-inactive.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ..analyses.roles import roles
from ..decode.inst import Inst, Operand
from ..translate.wave import M0, Wave
from .table import custom


def _index(w: Wave, inst: Inst, position: int) -> str:
    op = inst.operands[position]
    lane = w.scalar(op)
    return w.s.and_(lane, str(w.lanes - 1)) if lane[0] == "%" else str(int(lane) & (w.lanes - 1))


@custom("v_readlane_b32", "lane")
def _readlane(w: Wave, inst: Inst) -> None:
    source = w.reg(inst.operands[1].kind, inst.operands[1].index)
    lane = _index(w, inst, 2)
    w.write_scalar(inst.operands[0], w.out.emit(f"extractelement {w.v.type('i32')} {source}, i32 {lane}"))


@custom("v_readfirstlane_b32", "lane")
def _readfirstlane(w: Wave, inst: Inst) -> None:
    op = inst.operands[1]
    if op.kind not in ("v", "a"):
        w.write_scalar(inst.operands[0], w.scalar(op))
        return
    source = w.reg(op.kind, op.index)
    if w.full:
        lane = "0"
    else:
        bits = w.exec_bits()
        first = (
            w.s.trunc("i64", "i32", w.s.call("cttz", "i64", bits)) if w.lanes == 64 else w.s.call("cttz", "i32", bits)
        )
        lane = w.s.and_(first, str(w.lanes - 1))  # EXEC = 0 reads lane 0
    w.write_scalar(inst.operands[0], w.out.emit(f"extractelement {w.v.type('i32')} {source}, i32 {lane}"))


@custom("v_writelane_b32", "lane")
def _writelane(w: Wave, inst: Inst) -> None:
    dst = inst.operands[0]
    value, lane = w.scalar(inst.operands[1]), _index(w, inst, 2)
    old = w.reg(dst.kind, dst.index)
    new = w.out.emit(f"insertelement {w.v.type('i32')} {old}, i32 {value}, i32 {lane}")
    w.set_reg(dst.kind, dst.index, new)


def _indexed(w: Wave, op: Operand, k: int = 0, shift: int | None = None) -> str:
    """Pointer to the register of number `k` of VGPR `op` + M0 in the state, where all are stored; out of range is VGPR 0 (the manuals' rule). `shift`: of ten
    bits of M0, not all."""
    if op.kind != "v":
        raise w.fail(f"{op.text} as an indexed register")
    w.in_memory("v", 0, w.agpr_base)
    offset = w.reg("s", M0) if w.gfx != 9 else w.s.and_(w.reg("s", M0), "255")
    if shift is not None:
        offset = w.s.and_(w.s.lshr(w.reg("s", M0), str(shift)), "1023")
    at = w.s.add(offset, str(op.index + k))
    inside = w.s.icmp("ult", "i32", at, str(w.agpr_base))
    wide = w.s.zext("i32", "i64", w.s.mul(w.s.select(inside, "i32", at, "0"), str(4 * w.lanes)))
    return w.out.emit(f"getelementptr i8, ptr %v0, i64 {wide}")


@custom("v_movrels_b32", "lane")
def _movrels(w: Wave, inst: Inst) -> None:
    """D = VGPR[src + M0]."""
    source = _indexed(w, inst.operands[1])
    w.write(0, w.out.emit(f"load {w.v.type('i32')}, ptr {source}, align 64"), "i32")


@custom("v_movreld_b32 v_movrelsd_b32", "lane")
def _movreld(w: Wave, inst: Inst) -> None:
    """VGPR[dst + M0] = S; movrelsd reads VGPR[src + M0]."""
    ty = w.v.type("i32")
    if inst.op == "v_movrelsd_b32":
        value = w.out.emit(f"load {ty}, ptr {_indexed(w, inst.operands[1])}, align 64")
    else:
        value = w.source(1, "i32")
    goal = _indexed(w, inst.operands[0])
    if not w.full:
        value = w.v.select(w.exec_mask(), "i32", value, w.out.emit(f"load {ty}, ptr {goal}, align 64"))
    w.out.put(f"store {ty} {value}, ptr {goal}, align 64")
    w.forget_registers()


@custom("v_movrelsd_2_b32 v_swaprel_b32", "lane", (10, 11, 12))
def _two_indices(w: Wave, inst: Inst) -> None:
    """VGPR[dst + M0[25:16]] = VGPR[src + M0[9:0]]; or the two change places."""
    ty = w.v.type("i32")
    goal, source = _indexed(w, inst.operands[0], shift=16), _indexed(w, inst.operands[1], shift=0)
    new, old = (w.out.emit(f"load {ty}, ptr {p}, align 64") for p in (source, goal))
    pairs = [(goal, new, old)] + [(source, old, new)] * (inst.op == "v_swaprel_b32")
    for place, value, kept in pairs:
        chosen = value if w.full else w.v.select(w.exec_mask(), "i32", value, kept)
        w.out.put(f"store {ty} {chosen}, ptr {place}, align 64")
    w.forget_registers()


_SCALARS = 106  # SGPRs that an index reaches


def _sgpr(w: Wave, index: str, first: int, wide: bool) -> str:
    """SGPR `first` + index (a scalar), or the pair that begins there."""
    s, step, t = w.s, 1 + wide, "i64" if wide else "i32"
    at = s.add(index, str(first))
    value = w.sgpr64(0) if wide else w.reg("s", 0)
    for k in range(step, _SCALARS - wide, step):
        value = s.select(s.icmp("eq", "i32", at, str(k)), t, w.sgpr64(k) if wide else w.reg("s", k), value)
    return value


def _set_sgpr(w: Wave, index: str, first: int, value: str, wide: bool) -> None:
    s = w.s
    at = s.add(index, str(first))
    for k in range(0, _SCALARS - wide, 1 + wide):
        here = s.icmp("eq", "i32", at, str(k))
        if wide:
            w.set_sgpr64(k, s.select(here, "i64", value, w.sgpr64(k)))
        else:
            w.set_reg("s", k, s.select(here, "i32", value, w.reg("s", k)))


@custom("s_movrels_b32 s_movrels_b64 s_movreld_b32 s_movreld_b64 s_movrelsd_2_b32", "other")
def _scalar_by_index(w: Wave, inst: Inst) -> None:
    """D = SGPR[src + M0], SGPR[dst + M0] = S, or both with M0's ten-bit fields (source 9:0, destination 25:16). Out of range nothing is written, s0 read."""
    dst, source = inst.operands
    wide = inst.op.endswith("64")
    m0, t = w.reg("s", M0), "i64" if wide else "i32"
    from_, to = m0, m0
    if inst.op == "s_movrelsd_2_b32":
        from_, to = w.s.and_(m0, "1023"), w.s.and_(w.s.lshr(m0, "16"), "1023")
    value = w.scalar(source, t) if "movreld_" in inst.op else _sgpr(w, from_, source.index, wide)
    if "movrels_" in inst.op:
        w.write_scalar(dst, value, t)
    else:
        _set_sgpr(w, to, dst.index, value, wide)


INDEXED_ROOM = 3  # registers behind a kernel's own: for a source of 64 bits by index, and for a result of 32
_INDEXED = ("SRC0", "SRC1", "SRC2", "DST")  # bits 12 to 15 of M0


@custom("s_set_gpr_idx_on s_set_gpr_idx_mode s_set_gpr_idx_idx s_set_gpr_idx_off", "other", (9,))
def _index_mode(w: Wave, inst: Inst) -> None:
    """Vector operands that M0[7:0] is added to, until the mode is off; which ones, M0[15:12] says."""
    name = inst.op.removeprefix("s_set_gpr_idx_")
    if name == "off":
        w.gpr_index = frozenset()
        return
    m0 = w.reg("s", M0)
    if name in ("on", "idx"):
        value = w.scalar(inst.operands[0])
        m0 = w.s.or_(w.s.and_(m0, w.s.const("i32", 0xFFFFFF00)), w.s.and_(value, "255"))
    if name in ("on", "mode"):
        found = re.fullmatch(r"gpr_idx\(([\w,\s]*)\)", inst.operands[-1].text)
        which = frozenset(found[1].replace(",", " ").split()) if found else None
        if which is None or not which <= {"SRC0", "DST"}:
            raise w.fail(f"index mode {inst.operands[-1].text}")
        bits = sum(1 << 12 + k for k, n in enumerate(_INDEXED) if n in which)
        m0 = w.s.or_(w.s.and_(m0, w.s.const("i32", 0xFFFF0FFF)), str(bits))
        if name == "on" or w.gpr_index:
            w.gpr_index = which
    w.set_reg("s", M0, m0)


def indexed(w: Wave, inst: Inst) -> tuple[Inst, str]:
    """An instruction under the index mode: a move is one of registers by index, which is all that LLVM writes there. Of others (assembly by hand) a first source by index is read into
    registers behind the kernel's own, and a result by index is made in one: then "" is not what comes second, but where `put_indexed` puts it."""
    if inst.op.startswith("s_"):
        if inst.operands and inst.operands[0].text == "m0" and not inst.op.startswith("s_set_gpr_idx"):
            raise w.fail("M0 written under the index mode")
        return inst, ""
    if inst.op == "v_mov_b32" and inst.encoding in ("", "e32", "e64"):
        source = "SRC0" in w.gpr_index and inst.operands[1].kind == "v"
        op = {(True, False): "v_movrels_b32", (False, True): "v_movreld_b32", (True, True): "v_movrelsd_b32"}
        return replace(inst, op=op.get((source, "DST" in w.gpr_index), inst.op)), ""
    if not inst.op.startswith("v_") or "_co_" in inst.op:
        raise w.fail("an opcode other than v_mov_b32 under this index mode")
    results, sources = roles(inst)
    operands, first = list(inst.operands), w.agpr_base - INDEXED_ROOM
    place = max(len(operands) - len(sources), len(results))  # of SRC0: an accumulator is a result and a source
    if "SRC0" in w.gpr_index and place < len(operands) and operands[place].kind == "v":
        source_ = operands[place]
        if source_.count > INDEXED_ROOM - 1:
            raise w.fail(f"{source_.text} as an indexed register")
        for k in range(source_.count):
            at = _indexed(w, source_, k)
            w.set_reg("v", first + k, w.out.emit(f"load {w.v.type('i32')}, ptr {at}, align 64"))
        operands[place] = replace(source_, index=first)
    goal = ""
    if "DST" in w.gpr_index and results and results[0].kind == "v":
        if len(results) > 1 or results[0].count > 1:
            raise w.fail(f"{results[0].text} as an indexed register")
        goal = _indexed(w, results[0])
        spare = first + INDEXED_ROOM - 1
        w.set_reg("v", spare, w.out.emit(f"load {w.v.type('i32')}, ptr {goal}, align 64"))  # what a mask leaves stays
        operands = [replace(operands[0], index=spare), *operands[1:]]
    return replace(inst, operands=operands), goal


def put_indexed(w: Wave, goal: str) -> None:
    """Put the result of an instruction that `indexed` changed into the register that M0 names."""
    value = w.reg("v", w.agpr_base - 1)
    w.out.put(f"store {w.v.type('i32')} {value}, ptr {goal}, align 64")
    w.forget_registers()


def _mbcnt(w: Wave, high: bool) -> None:
    """How many bits of the mask stand below this lane, within its half of the wave; plus src1."""
    lanes = range(w.lanes)
    below = [((1 << max(0, min(32, l - (32 if high else 0)))) - 1) & 0xFFFFFFFF for l in lanes]
    below = [b - (1 << 32) if b >> 31 else b for b in below]
    mask = w.source(1, "i32")
    count = w.v.call("ctpop", "i32", w.v.and_(mask, w.v.vector_const("i32", below)))
    w.write(0, w.v.add(count, w.source(2, "i32")), "i32")


custom("v_mbcnt_lo_u32_b32", "lane")(lambda w, inst: _mbcnt(w, False))
custom("v_mbcnt_hi_u32_b32", "lane")(lambda w, inst: _mbcnt(w, True))


def _visible(w: Wave, value: str) -> str:
    """Inactive lanes show 0."""
    return value if w.full else w.v.select(w.exec_mask(), "i32", value, w.v.const("i32", 0))


def swizzle_offset(w: Wave, text: str) -> int:
    """The offset field that the assembler's `swizzle(...)` macros stand for (LLVM's AMDGPU operand syntax)."""
    if not text.startswith("swizzle("):
        return int(text, 0)
    kind, *words = [x.strip().strip('"') for x in text[len("swizzle(") :].rstrip(")").split(",")]
    if kind == "QUAD_PERM" and len(words) == 4:
        return 0x8000 | sum(int(x) << (2 * k) for k, x in enumerate(words))
    if kind == "SWAP" and len(words) == 1:
        return int(words[0]) << 10 | 0x1F
    if kind == "REVERSE" and len(words) == 1:
        return (int(words[0]) - 1) << 10 | 0x1F
    if kind == "BROADCAST" and len(words) == 2:
        return int(words[1]) << 5 | (32 - int(words[0]))
    if kind == "BITMASK_PERM" and len(words) == 1 and len(words[0]) == 5 and set(words[0]) <= set("01pi"):
        bits = {"0": (0, 0, 0), "1": (0, 1, 0), "p": (1, 0, 0), "i": (1, 0, 1)}
        fields = [sum(bits[c][f] << (4 - k) for k, c in enumerate(words[0])) for f in range(3)]
        return fields[2] << 10 | fields[1] << 5 | fields[0]
    raise w.fail(f"{text} is not modelled")


@custom("ds_swizzle_b32", "lane")
def _swizzle(w: Wave, inst: Inst) -> None:
    offset = swizzle_offset(w, inst.mods.pop("offset", "0") or "0")
    source = _visible(w, w.reg("v", inst.operands[1].index))
    if offset >= 0xC000:
        raise w.fail("swizzle in rotate or FFT mode")
    if offset & 0x8000:
        lanes = [(l & ~3) | ((offset >> (2 * (l & 3))) & 3) for l in range(w.lanes)]
    else:
        keep, set_, flip = offset & 31, (offset >> 5) & 31, (offset >> 10) & 31
        lanes = [(l & ~31) | ((((l & 31) & keep) | set_) ^ flip) for l in range(w.lanes)]
    w.write(0, shuffle(w, source, lanes), "i32")


def shuffle(w: Wave, value: str, lanes: list[int]) -> str:
    ty = w.v.type("i32")
    order = f"<{w.lanes} x i32> <" + ", ".join(f"i32 {l}" for l in lanes) + ">"
    return w.out.emit(f"shufflevector {ty} {value}, {ty} poison, {order}")


def dynamic_gather(w: Wave, value: str, lanes: str) -> str:
    """value[lanes[i]] in lane i; the indices must be in range."""
    ty = w.v.type("i32")
    w.out.put(f"store {ty} {value}, ptr %mbuf, align 64")
    wide = w.v.zext("i32", "i64", lanes)
    pointers = w.out.emit(f"getelementptr i32, ptr %mbuf, {w.v.type('i64')} {wide}")
    name = f"@llvm.masked.gather.v{w.lanes}i32.v{w.lanes}p0"
    w.out.declares.add(f"declare {ty} {name}({w.v.type('ptr')}, {w.v.type('i1')}, {ty})")
    return w.out.emit(
        f"call {ty} {name}({w.v.type('ptr')} align 4 {pointers}, {w.v.type('i1')} {w.v.const('i1', 1)}, {ty} poison)"
    )


def _lane_of_bytes(w: Wave, inst: Inst, position: int) -> str:
    address = w.reg("v", inst.operands[position].index)
    offset = inst.take_int("offset")
    if offset:
        address = w.v.add(address, w.v.const("i32", offset))
    return w.v.and_(w.v.lshr(address, w.v.const("i32", 2)), w.v.const("i32", w.lanes - 1))


@custom("ds_bpermute_b32 ds_bpermute_fi_b32", "lane")
def _bpermute(w: Wave, inst: Inst) -> None:
    """gfx12's "fi" reads lanes that are off too."""
    data = inst.operands[2]
    source = w.reg(data.kind, data.index)
    if inst.op == "ds_bpermute_b32":
        source = _visible(w, source)
    w.write(0, dynamic_gather(w, source, _lane_of_bytes(w, inst, 1)), "i32")


@custom("ds_permute_b32", "lane")
def _permute(w: Wave, inst: Inst) -> None:
    """Each lane sends; the highest sender wins, a lane that nobody sends to gets 0."""
    ty = w.v.type("i32")
    data = inst.operands[2]
    source = w.reg(data.kind, data.index)
    wide = w.v.zext("i32", "i64", _lane_of_bytes(w, inst, 1))
    w.out.put(f"store {ty} zeroinitializer, ptr %mbuf, align 64")
    pointers = w.out.emit(f"getelementptr i32, ptr %mbuf, {w.v.type('i64')} {wide}")
    name = f"@llvm.masked.scatter.v{w.lanes}i32.v{w.lanes}p0"
    w.out.declares.add(f"declare void {name}({ty}, {w.v.type('ptr')}, {w.v.type('i1')})")
    w.out.put(
        f"call void {name}({ty} {source}, {w.v.type('ptr')} align 4 {pointers}, {w.v.type('i1')} {w.exec_mask()})"
    )
    w.write(0, w.out.emit(f"load {ty}, ptr %mbuf, align 64"), "i32")


def _permlane16(w: Wave, inst: Inst, cross: bool) -> None:
    """Within a row (or from the other row of the pair): 16 selectors of 4 bits in two scalars, or each lane's own (gfx12's "var"). op_sel: [fetch inactive,
    bound control]."""
    sel = inst.take_list("op_sel") or [0, 0]
    fetch_inactive, bound_control = bool(sel[0]), bool(sel[1])
    o = w.v
    lanes = range(w.lanes)
    if "_var" in inst.op:
        pick = o.and_(w.reg("v", inst.operands[2].index), o.const("i32", 15))
    else:
        lo, hi = w.scalar(inst.operands[2]), w.scalar(inst.operands[3])
        word = o.select(
            o.vector_const("i1", [int(l & 8 == 0) for l in lanes]), "i32", o.splat("i32", lo), o.splat("i32", hi)
        )
        pick = o.and_(o.lshr(word, o.vector_const("i32", [4 * (l & 7) for l in lanes])), o.const("i32", 15))
    source_lane = o.or_(pick, o.vector_const("i32", [(l & ~15) ^ (16 if cross else 0) for l in lanes]))
    value = w.reg("v", inst.operands[1].index)
    result = dynamic_gather(w, value, source_lane)
    if not w.full and not fetch_inactive:
        active = o.zext("i1", "i32", w.exec_mask())
        valid = o.icmp("ne", "i32", dynamic_gather(w, active, source_lane), o.const("i32", 0))
        old = o.const("i32", 0) if bound_control else w.reg("v", inst.operands[0].index)
        result = o.select(valid, "i32", result, old)
    w.write(0, result, "i32")


custom("v_permlane16_b32 v_permlane16_var_b32", "lane")(lambda w, inst: _permlane16(w, inst, False))
custom("v_permlanex16_b32 v_permlanex16_var_b32", "lane")(lambda w, inst: _permlane16(w, inst, True))


@custom("v_permlane64_b32", "lane")
def _permlane64(w: Wave, inst: Inst) -> None:
    value = w.reg("v", inst.operands[1].index)
    w.write(0, shuffle(w, value, [l ^ 32 for l in range(64)]) if w.lanes == 64 else value, "i32")


def _swap_rows(w: Wave, inst: Inst, row: int) -> None:
    """gfx950: the odd rows (of `row` lanes) of the first register trade places with the even rows of the second."""
    first, second = inst.operands[0], inst.operands[1]
    if "fi" in inst.mods or "bound_ctrl" in inst.mods:
        raise w.fail("permlane swap with fi or bound_ctrl")
    a, b = w.reg("v", first.index), w.reg("v", second.index)
    ty = w.v.type("i32")

    def mix(order: list[int]) -> str:
        text = f"<{w.lanes} x i32> <" + ", ".join(f"i32 {x}" for x in order) + ">"
        return w.out.emit(f"shufflevector {ty} {a}, {ty} {b}, {text}")

    n = w.lanes
    new_a = mix([l if not (l // row) & 1 else n + l - row for l in range(n)])
    new_b = mix([n + l if (l // row) & 1 else l + row for l in range(n)])
    w.write_reg("v", first.index, new_a)
    w.write_reg("v", second.index, new_b)


custom("v_permlane16_swap_b32", "lane")(lambda w, inst: _swap_rows(w, inst, 16))
custom("v_permlane32_swap_b32", "lane")(lambda w, inst: _swap_rows(w, inst, 32))


@custom("v_swap_b32", "valu")
def _swap(w: Wave, inst: Inst) -> None:
    first, second = inst.operands
    a, b = w.reg(first.kind, first.index), w.reg(second.kind, second.index)
    w.write_reg(first.kind, first.index, b)
    w.write_reg(second.kind, second.index, a)
