"""Scalar loads: s_load of every width, and gfx12's narrow ones; scalar stores and atomics of gfx9 (hipBLASLt counts its work-groups by s_atomic_dec).

Source: AMD ISA manuals, chapter "Scalar memory operations".
"""

from __future__ import annotations

from ..context import CTX
from ..decode.inst import Inst, Operand
from ..support.atomics import TWO_DATA
from ..translate.wave import Wave
from .buffer import scalar_extent
from .memory import ATOMICS, access, atomic_call, buffer_slot, take_policy
from .table import custom


def _s_load(dwords: int):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        take_policy(inst)
        s = w.s
        ops = inst.operands
        base = w.sgpr64(ops[1].index)
        address = base
        if len(ops) > 2:
            offset = ops[2]
            if offset.kind == "int":
                address = s.add(base, str(int(offset.value)), "i64")
            elif not (offset.kind == "special" and offset.text in ("null", "off")):
                address = s.add(base, _scaled(w, inst, offset, 4 * dwords), "i64")
        extra = inst.take_int("offset")
        if extra:
            address = s.add(address, str(extra), "i64")
        _scalar_read(w, ops[0], address, dwords)

    return handler


def _scaled(w: Wave, inst: Inst, offset: Operand, nbytes: int) -> str:
    """The scalar offset, which gfx1250 multiplies by the size of the load where it is told to."""
    value = w.s.zext("i32", "i64", w.scalar(offset))
    return w.s.mul(value, str(nbytes), "i64") if inst.take("scale_offset") is not None else value


def _scalar_read(w: Wave, dst: Operand, address: str, dwords: int, narrow: tuple[str, int] | None = None) -> None:
    """Dwords into SGPRs. `narrow`: address and bytes of what is wanted of them, where that is less."""
    if dst.kind != "s" or dst.count != dwords:
        raise w.fail(f"{dst.text} as {dwords} dwords")
    name = f"@tec_scalar_{dwords}"
    w.out.declares.add(f"declare i32 {name}(i64, ptr, i32)")
    rc = w.out.emit(f"call i32 {name}(i64 {address}, ptr %ctx, i32 {w.site()})")  # type: ignore[attr-defined]
    touched = narrow or (address, 4 * dwords)
    if not w.full:
        rc, address = _passed_over(w, rc, address)
    w.leave_on_fault(rc)  # type: ignore[attr-defined]
    w.scalar_load(*touched)  # type: ignore[attr-defined]
    pointer = w.out.emit(f"inttoptr i64 {address} to ptr")
    for k in range(dwords):
        at = w.out.emit(f"getelementptr i8, ptr {pointer}, i64 {4 * k}")
        w.set_reg("s", dst.index + k, w.out.emit(f"load i32, ptr {at}, align 4"))


def _buffer_read(w: Wave, dst: Operand, base: str, offset: str, size: str, dwords: int) -> None:
    """Dwords of a buffer into SGPRs, zeros for those beyond its `size`; base, offset and size are 64 bits wide."""
    if dst.kind != "s" or dst.count != dwords:
        raise w.fail(f"{dst.text} as {dwords} dwords")
    s = w.s
    some = s.icmp("ult", "i64", offset, size)
    spare = w.out.emit(f"load i64, ptr {w.ctx_load('allocs', 'ptr')}")  # type: ignore[attr-defined]
    address = s.select(some, "i64", s.add(base, offset, "i64"), spare)
    left = s.lshr(s.sub(s.sub(size, offset, "i64"), "1", "i64"), "2", "i64")
    last = s.select(some, "i64", s.call("umin", "i64", left, str(dwords - 1)), "0")
    end = s.add(address, s.shl(last, "2", "i64"), "i64")
    w.out.declares.add("declare i32 @tec_scalar_1(i64, ptr, i32)")
    ends = [address, end] if dwords > 1 else [address]
    for k, where in enumerate(ends):
        rc = w.out.emit(f"call i32 @tec_scalar_1(i64 {where}, ptr %ctx, i32 {w.site()})")  # type: ignore[attr-defined]
        if not w.full:
            rc, ends[k] = _passed_over(w, rc, where)
        w.leave_on_fault(rc)  # type: ignore[attr-defined]
    w.scalar_load(ends[0], s.add(s.shl(last, "2", "i64"), "4", "i64"), some)  # type: ignore[attr-defined]
    for k in range(dwords):
        inside = s.and_(some, s.icmp("ule", "i64", str(k), last), "i1")
        # One of no interest reads the first.
        at = s.add(ends[0], s.select(inside, "i64", str(4 * k), "0"), "i64") if k else ends[0]
        pointer = w.out.emit(f"inttoptr i64 {at} to ptr")
        value = w.out.emit(f"load i32, ptr {pointer}, align 4")
        w.set_reg("s", dst.index + k, s.select(inside, "i32", value, "0"))


def _passed_over(w: Wave, rc: str, address: str) -> tuple[str, str]:
    """A scalar load where no lane is on: LLVM lets waves run into code that none of their lanes takes, where an address may lie past its array.

    Nothing uses such a value, so it is no fault: the load reads the first allocation instead.
    """
    s = w.s
    idle = s.icmp("eq", w.mask_type, w.exec_bits(), "0")
    passed = s.and_(s.icmp("ne", "i32", rc, "0"), idle, "i1")
    table = w.ctx_load("allocs", "ptr")  # type: ignore[attr-defined]
    status = w.out.emit(f"getelementptr i8, ptr %ctx, i64 {CTX['status']}")
    w.out.put(f"store i64 {s.select(passed, 'i64', '0', w.out.emit(f'load i64, ptr {status}'))}, ptr {status}")
    spare = w.out.emit(f"load i64, ptr {table}")
    return s.select(passed, "i32", "0", rc), s.select(passed, "i64", spare, address)


for _names, _dwords in (("dword b32", 1), ("dwordx2 b64", 2), ("dwordx3 b96", 3), ("dwordx4 b128", 4), ("dwordx8 b256", 8),
                        ("dwordx16 b512", 16)):  # fmt: skip
    for _n2 in _names.split():
        custom(f"s_load_{_n2}", "smem")(_s_load(_dwords))


def _s_load_narrow(bits: int, signed: bool, buffer: bool = False):  # type: ignore[no-untyped-def]
    """gfx12: bytes and 16-bit words; the dword that holds them is what is checked."""

    def handler(w: Wave, inst: Inst) -> None:
        take_policy(inst)
        s = w.s
        ops = inst.operands
        address = w.sgpr64(ops[1].index)
        if buffer:
            address = s.and_(address, str((1 << 48) - 1), "i64")
        offset = ops[2]
        if offset.kind == "int":
            address = s.add(address, str(int(offset.value)), "i64")
        elif offset.kind == "s":
            address = s.add(address, _scaled(w, inst, offset, bits // 8), "i64")
        address = s.add(address, str(inst.take_int("offset")), "i64")
        aligned = s.and_(address, "-4", "i64")
        spot = Operand("s", ops[0].text, ops[0].index, 1)
        _scalar_read(w, spot, aligned, 1, (address, bits // 8))
        shift = s.shl(s.trunc("i64", "i32", s.and_(address, "3", "i64")), "3")
        value = s.lshr(w.reg("s", spot.index), shift)
        up = s.shl(value, str(32 - bits))
        w.set_reg("s", spot.index, s.bin("ashr" if signed else "lshr", "i32", up, str(32 - bits)))

    return handler


for _n3, _b3, _s3 in (("u8", 8, False), ("i8", 8, True), ("u16", 16, False), ("i16", 16, True)):
    custom(f"s_load_{_n3}", "smem")(_s_load_narrow(_b3, _s3))
    custom(f"s_buffer_load_{_n3}", "smem")(_s_load_narrow(_b3, _s3, True))


def _buffer_scalar(dwords: int):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        take_policy(inst)
        s = w.s
        ops = inst.operands
        base, size = scalar_extent(w, ops[1].index)
        offset = w.scalar(ops[2]) if ops[2].kind != "special" else "0"
        offset = s.add(offset, str(inst.take_int("offset")))
        _buffer_read(w, ops[0], base, s.zext("i32", "i64", offset), size, dwords)

    return handler


for _names, _dwords in (("dword b32", 1), ("dwordx2 b64", 2), ("b96", 3), ("dwordx4 b128", 4), ("dwordx8 b256", 8),
                        ("dwordx16 b512", 16)):  # fmt: skip
    for _n2 in _names.split():
        custom(f"s_buffer_load_{_n2}", "smem")(_buffer_scalar(_dwords))


def _where(w: Wave, inst: Inst, buffer: bool) -> str:
    """The address of a scalar store or atomic, in all lanes; one lane of it is used."""
    s, ops = w.s, inst.operands
    address = w.sgpr64(ops[1].index)
    if buffer:
        address = s.and_(address, str((1 << 48) - 1), "i64")
    if ops[2].kind == "int":
        address = s.add(address, str(int(ops[2].value)), "i64")
    else:
        address = s.add(address, s.zext("i32", "i64", w.scalar(ops[2])), "i64")
    address = s.add(address, str(inst.take_int("offset")), "i64")
    return w.v.splat("i64", s.and_(address, "-4", "i64"))


def _put(w: Wave, op: Operand, dwords: int) -> None:
    if op.kind != "s" or op.count != dwords:
        raise w.fail(f"{op.text} as {dwords} dwords of data")
    for k in range(dwords):
        w.out.put(f"store i32 {w.reg('s', op.index + k)}, ptr {buffer_slot(w, k)}, align 64")


def _scalar_store(dwords: int, buffer: bool):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        take_policy(inst)
        _put(w, inst.operands[0], dwords)
        access(w, "global", "st", f"b{32 * dwords}", _where(w, inst, buffer), "1")

    return handler


def _scalar_atomic(operation: str, bits: int, buffer: bool):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        returns = "glc" in inst.mods or "sc0" in inst.mods
        take_policy(inst)
        data = inst.operands[0]
        _put(w, data, bits // 32 * (2 if operation in TWO_DATA else 1))
        atomic_call(w, "global", operation, bits, _where(w, inst, buffer), "1")
        for k in range(bits // 32 if returns else 0):
            w.set_reg("s", data.index + k, w.out.emit(f"load i32, ptr {buffer_slot(w, k)}, align 64"))

    return handler


# One access a wave, whatever EXEC holds; of class "vmem", as no strip of waves may hold one.
for _prefix, _of_buffer in (("s_", False), ("s_buffer_", True)):
    for _n2, _dwords in (("dword", 1), ("dwordx2", 2), ("dwordx4", 4)):
        custom(f"{_prefix}store_{_n2}", "vmem")(_scalar_store(_dwords, _of_buffer))
    for _n2 in "add sub smin smax umin umax and or xor swap inc dec cmpswap".split():
        for _n4 in (_n2, _n2 + "_x2"):
            custom(f"{_prefix}atomic_{_n4}", "vmem")(_scalar_atomic(*ATOMICS[_n4], _of_buffer))


# Caches: nothing to do, as all waves see one memory.
@custom("buffer_wbl2 buffer_inv buffer_gl0_inv buffer_gl1_inv buffer_wbinvl1 buffer_wbinvl1_vol buffer_invl2 "
        "global_inv global_wb global_wbinv", "wait")  # fmt: skip
def _cache(w: Wave, inst: Inst) -> None:
    take_policy(inst)
