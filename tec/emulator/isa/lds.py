"""LDS opcodes: ds_ loads, stores, atomics; and the lane exchanges that share the unit's path.

Source: AMD ISA manuals, "Data share operations". gfx11 renamed read/write to load/store and write2 to store_2addr.
"""

from __future__ import annotations

from ..decode.inst import Inst, Operand
from ..translate.wave import M0, Wave
from .direct import transposed
from .memory import access, atomic_call, buffer_slot, data_at, get_data, load_to, put_data, write_loaded
from .table import custom

_LOADS = {
    "b32": ("b32", 1, ""), "b64": ("b64", 2, ""), "b96": ("b96", 3, ""), "b128": ("b128", 4, ""),
    "u8": ("u8", 1, ""), "i8": ("i8", 1, ""), "u16": ("u16", 1, ""), "i16": ("i16", 1, ""),
    "u8_d16": ("u8", 1, "lo"), "u8_d16_hi": ("u8", 1, "hi"), "i8_d16": ("i8", 1, "lo"), "i8_d16_hi": ("i8", 1, "hi"),
    "u16_d16": ("u16", 1, "lo"), "u16_d16_hi": ("u16", 1, "hi"),
}  # fmt: skip
_STORES = {
    "b32": ("b32", 1, ""), "b64": ("b64", 2, ""), "b96": ("b96", 3, ""), "b128": ("b128", 4, ""),
    "b8": ("u8", 1, ""), "b16": ("u16", 1, ""), "b8_d16_hi": ("u8", 1, "hi"), "b16_d16_hi": ("u16", 1, "hi"),
}  # fmt: skip
_ATOMICS = {
    "add_u32": ("add", 32), "sub_u32": ("sub", 32), "min_i32": ("smin", 32), "max_i32": ("smax", 32),
    "min_u32": ("umin", 32), "max_u32": ("umax", 32), "and_b32": ("and", 32), "or_b32": ("or", 32),
    "xor_b32": ("xor", 32), "inc_u32": ("inc", 32), "dec_u32": ("dec", 32), "add_f32": ("fadd", 32),
    "min_f32": ("fmin", 32), "max_f32": ("fmax", 32), "min_num_f32": ("fmin", 32), "max_num_f32": ("fmax", 32),
    "add_u64": ("add", 64), "sub_u64": ("sub", 64), "min_i64": ("smin", 64), "max_i64": ("smax", 64),
    "min_u64": ("umin", 64), "max_u64": ("umax", 64), "and_b64": ("and", 64), "or_b64": ("or", 64),
    "xor_b64": ("xor", 64), "inc_u64": ("inc", 64), "dec_u64": ("dec", 64), "add_f64": ("fadd", 64),
    "min_num_f64": ("fmin", 64), "max_num_f64": ("fmax", 64), "min_f64": ("fmin", 64), "max_f64": ("fmax", 64), "pk_add_f16": ("pk_add_f16", 32),
    "pk_add_bf16": ("pk_add_bf16", 32),
}  # fmt: skip


def _address(w: Wave, inst: Inst, op: Operand, extra: int = 0) -> str:
    if op.kind != "v" or op.count != 1:
        raise w.fail(f"LDS address {op.text}")
    if inst.take("gds") is not None:
        raise w.fail("GDS")
    base = w.reg("v", op.index)
    return w.v.add(base, w.v.const("i32", extra)) if extra else base


def _load(what: str, dwords: int, place: str):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        dst, addr = inst.operands
        load_to(w, "lds", what, dst, dwords, place, _address(w, inst, addr, inst.take_int("offset")))

    return handler


def _store(what: str, dwords: int, place: str):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        addr, data = inst.operands
        where = _address(w, inst, addr, inst.take_int("offset"))
        access(w, "lds", "st", what, where, w.exec_bits(), data_at(w, data, dwords, place))

    return handler


def _load2(what: str, dwords: int, stride: int):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        dst, addr = inst.operands
        if dst.count != 2 * dwords:
            raise w.fail(f"{dst.text} as {2 * dwords} dwords")
        for i in (0, 1):
            where = _address(w, inst, addr, stride * inst.take_int(f"offset{i}"))
            access(w, "lds", "ld", what, where, w.exec_bits(), buffer_slot(w, i * dwords))
        write_loaded(w, dst, 2 * dwords, "")

    return handler


def _store2(what: str, dwords: int, stride: int):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        addr, first, second = inst.operands
        for i, data in enumerate((first, second)):
            where = _address(w, inst, addr, stride * inst.take_int(f"offset{i}"))
            access(w, "lds", "st", what, where, w.exec_bits(), data_at(w, data, dwords))

    return handler


def _atomic(operation: str, bits: int, returns: bool, swapped: bool = False):  # type: ignore[no-untyped-def]
    dwords = bits // 32

    def handler(w: Wave, inst: Inst) -> None:
        ops = list(inst.operands)
        dst = ops.pop(0) if returns else None
        addr, *data = ops
        if swapped:  # ds_cmpst: the compare value comes first
            data.reverse()
        for i, op in enumerate(data):
            put_data(w, op, dwords, first=i * dwords)
        where = _address(w, inst, addr, inst.take_int("offset"))
        atomic_call(w, "lds", operation, bits, where, w.exec_bits())
        if dst is not None:
            write_loaded(w, dst, dwords, "")

    return handler


for _n, _spec in _LOADS.items():
    custom(f"ds_read_{_n} ds_load_{_n}", "lds")(_load(*_spec))
for _n, _spec in _STORES.items():
    custom(f"ds_write_{_n} ds_store_{_n}", "lds")(_store(*_spec))
for _n, _dw in (("b32", 1), ("b64", 2)):
    custom(f"ds_read2_{_n} ds_load_2addr_{_n}", "lds")(_load2(_n, _dw, 4 * _dw))
    custom(f"ds_read2st64_{_n} ds_load_2addr_stride64_{_n}", "lds")(_load2(_n, _dw, 256 * _dw))
    custom(f"ds_write2_{_n} ds_store_2addr_{_n}", "lds")(_store2(_n, _dw, 4 * _dw))
    custom(f"ds_write2st64_{_n} ds_store_2addr_stride64_{_n}", "lds")(_store2(_n, _dw, 256 * _dw))
for _n, (_op, _bits) in _ATOMICS.items():
    custom(f"ds_{_n}", "lds")(_atomic(_op, _bits, False))
    _stem, _ty = _n.rsplit("_", 1)
    custom(f"ds_{_stem}_rtn_{_ty}", "lds")(_atomic(_op, _bits, True))
for _bits in (32, 64):
    custom(f"ds_wrxchg_rtn_b{_bits} ds_storexchg_rtn_b{_bits}", "lds")(_atomic("swap", _bits, True))
    custom(f"ds_cmpst_b{_bits}", "lds")(_atomic("cmpswap", _bits, False, True))
    custom(f"ds_cmpst_rtn_b{_bits}", "lds")(_atomic("cmpswap", _bits, True, True))
    custom(f"ds_cmpstore_b{_bits}", "lds")(_atomic("cmpswap", _bits, False))
    custom(f"ds_cmpstore_rtn_b{_bits}", "lds")(_atomic("cmpswap", _bits, True))


@custom("ds_nop", "lds")
def _nop(w: Wave, inst: Inst) -> None:
    pass


def _transposed(dwords: int, bits: int):  # type: ignore[no-untyped-def]
    """Each 16 lanes read as many rows of 16 elements as a lane has elements, and lane i gets column i (gfx950).

    Source: CDNA4 ISA manual 11.4, which tells what k each reads; the places follow from that and from what Triton's and HipKittens' products need of it.
    """

    def handler(w: Wave, inst: Inst) -> None:
        dst, addr = inst.operands
        if dst.count != dwords:
            raise w.fail(f"{dst.text} as {dwords} dwords")
        access(w, "lds", "ld", f"b{32 * dwords}", _address(w, inst, addr, inst.take_int("offset")), w.exec_bits())
        for k, value in enumerate(transposed(w, [get_data(w, k) for k in range(dwords)], bits, 16)):
            w.write_reg(dst.kind, dst.index + k, value)

    return handler


for _bits in (16, 8, 4):
    custom(f"ds_read_b64_tr_b{_bits}", "lds")(_transposed(2, _bits))
custom("ds_read_b96_tr_b6", "lds")(_transposed(3, 6))

# What few kernels ask for.


def _exchange2(dwords: int, stride: int):  # type: ignore[no-untyped-def]
    """Two words exchanged at two offsets, one after the other."""

    def handler(w: Wave, inst: Inst) -> None:
        dst, addr, *data = inst.operands
        if dst.count != 2 * dwords:
            raise w.fail(f"{dst.text} as {2 * dwords} dwords")
        held = [w.reg(op.kind, op.index + k) for op in data for k in range(dwords)]
        for i in (0, 1):
            for k in range(dwords):
                w.out.put(f"store {w.v.type('i32')} {held[i * dwords + k]}, ptr {buffer_slot(w, k)}, align 64")
            where = _address(w, inst, addr, stride * inst.take_int(f"offset{i}"))
            atomic_call(w, "lds", "swap", 32 * dwords, where, w.exec_bits())
            got = [get_data(w, k) for k in range(dwords)]
            for k, value in enumerate(got):
                w.write_reg(dst.kind, dst.index + i * dwords + k, value)

    return handler


for _n, _dw in (("b32", 1), ("b64", 2)):
    custom(f"ds_wrxchg2_rtn_{_n} ds_storexchg_2addr_rtn_{_n}", "lds")(_exchange2(_dw, 4 * _dw))
    custom(f"ds_wrxchg2st64_rtn_{_n} ds_storexchg_2addr_stride64_rtn_{_n}", "lds")(_exchange2(_dw, 256 * _dw))
for _bits in (32, 64):
    for _rtn in ("", "_rtn"):
        custom(f"ds_rsub{_rtn}_u{_bits}", "lds")(_atomic("rsub", _bits, bool(_rtn)))
        custom(f"ds_mskor{_rtn}_b{_bits}", "lds")(_atomic("mskor", _bits, bool(_rtn)))
        custom(f"ds_cmpst{_rtn}_f{_bits}", "lds")(_atomic("fcmpswap", _bits, bool(_rtn), True))
        custom(f"ds_cmpstore{_rtn}_f{_bits}", "lds")(_atomic("fcmpswap", _bits, bool(_rtn)))
for _rtn in ("", "_rtn"):
    custom(f"ds_sub_clamp{_rtn}_u32", "lds")(_atomic("usub_sat", 32, bool(_rtn)))
    custom(f"ds_cond_sub{_rtn}_u32", "lds")(_atomic("usub_cond", 32, bool(_rtn)))
custom("ds_wrap_rtn_b32", "lds")(_atomic("wrap", 32, True))


def _by_thread(w: Wave, inst: Inst) -> str:
    """M0 + offset, and a dword a lane."""
    base = w.s.add(w.s.and_(w.reg("s", M0), "65535"), str(inst.take_int("offset")))
    return w.v.add(w.v.splat("i32", base), w.v.vector_const("i32", [4 * l for l in range(w.lanes)]))


@custom("ds_read_addtid_b32 ds_load_addtid_b32", "lds")
def _load_by_thread(w: Wave, inst: Inst) -> None:
    load_to(w, "lds", "b32", inst.operands[0], 1, "", _by_thread(w, inst))


@custom("ds_write_addtid_b32 ds_store_addtid_b32", "lds")
def _store_by_thread(w: Wave, inst: Inst) -> None:
    held = data_at(w, inst.operands[0], 1)
    access(w, "lds", "st", "b32", _by_thread(w, inst), w.exec_bits(), held)


@custom("ds_append ds_consume", "lds")
def _append(w: Wave, inst: Inst) -> None:
    """The counter at M0[15:0] + offset goes up, or down, by the lanes that are on, which all get what it was (LLVM's `ds.append`; CDNA3 ISA manual, 12.16)."""
    if inst.take("gds") is not None:
        raise w.fail("global data share")
    o, s = w.v, w.s
    mask = w.exec_bits()
    mask = s.const(w.mask_type, -1) if mask == "-1" else mask
    where = s.add(s.and_(w.reg("s", M0), str(0xFFFF)), str(inst.take_int("offset")))
    count = s.call("ctpop", w.mask_type, mask)
    lane = s.call("cttz", w.mask_type, mask)
    if w.lanes == 64:
        count, lane = s.trunc("i64", "i32", count), s.trunc("i64", "i32", lane)
    amount = count if inst.op == "ds_append" else s.sub("0", count)
    w.out.put(f"store {o.type('i32')} {o.splat('i32', amount)}, ptr {buffer_slot(w, 0)}, align 64")
    first = s.and_(mask, s.sub("0", mask, w.mask_type), w.mask_type)
    atomic_call(w, "lds", "add", 32, o.splat("i32", where), first)
    lane = s.and_(lane, str(w.lanes - 1))
    before = w.out.emit(f"extractelement {o.type('i32')} {get_data(w, 0)}, i32 {lane}")
    w.write(0, o.splat("i32", before), "i32")


@custom("ds_condxchg32_rtn_b64", "lds")
def _conditional_exchange(w: Wave, inst: Inst) -> None:
    """Each dword whose data has bit 31 is replaced by the other 31; both come back as they were (Vega ISA manual, LDS opcodes)."""
    o = w.v
    dst, address, data = inst.operands
    where = o.and_(o.add(w.reg("v", address.index), o.const("i32", inst.take_int("offset"))), o.const("i32", 0xFFF8))
    words = [w.reg("v", data.index + k) for k in range(2)]
    access(w, "lds", "ld", "b64", where, w.exec_bits())
    before = [get_data(w, k) for k in range(2)]
    for k, word in enumerate(words):
        asked = w.to_bits(o.icmp("slt", "i32", word, o.const("i32", 0)))
        new = o.and_(word, o.const("i32", 0x7FFFFFFF))
        w.out.put(f"store {o.type('i32')} {new}, ptr {buffer_slot(w, 0)}, align 64")
        access(w, "lds", "st", "b32", o.add(where, o.const("i32", 4 * k)), w.s.and_(asked, w.exec_bits(), w.mask_type))
    for k, value in enumerate(before):
        w.write_reg(dst.kind, dst.index + k, value)
