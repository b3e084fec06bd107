"""Buffer opcodes: buffer_ loads, stores and atomics, raw and structured. A resource (V#) lies in four SGPRs.

Sources: the ISA manuals, "Buffer addressing" and "Range checking"; of what NUM_RECORDS counts on gfx9, Mesa's `ac_descriptors.c`.
"""

from __future__ import annotations

from functools import partial

from ..decode.inst import Inst, Operand
from ..support.atomics import TWO_DATA
from ..translate.wave import Wave
from .memory import (
    ACCESS_BYTES,
    ATOMICS,
    LOADS,
    STORES,
    access,
    atomic_call,
    buffer_slot,
    data_at,
    get_data,
    goal,
    into_lds,
    places,
    put_data,
    take_policy,
    write_loaded,
)
from .table import custom

# Raw ones (stride 0), the swizzled one that scratch uses on gfx9, and with `idxen` structured ones.


def _structured(w: Wave, inst: Inst, vaddr: Operand, rsrc: Operand, soffset: Operand, nbytes: str) -> tuple[str, str]:
    """(addresses, lanes in range) of an access by index. `nbytes`: of an element, a scalar."""
    o, s = w.v, w.s
    offen = inst.take("offen") is not None
    if w.chip == "gfx1250":
        raise w.fail("a buffer access by index")
    if vaddr.kind != "v" or vaddr.count != 1 + offen or rsrc.kind != "s" or rsrc.count != 4:
        raise w.fail(f"buffer address {vaddr.text}, {rsrc.text}")
    take_policy(inst)
    word1, records, word3 = (w.reg("s", rsrc.index + k) for k in (1, 2, 3))
    index, offset = w.reg("v", vaddr.index), o.const("i32", inst.take_int("offset"))
    if offen:
        offset = o.add(w.reg("v", vaddr.index + 1), offset)
    by_lane = s.icmp("ne", "i32", s.and_(word3, str(1 << 23)), "0")  # ADD_TID_ENABLE
    lanes = o.vector_const("i32", list(range(w.lanes)))
    index = o.add(index, o.select(o.splat("i1", by_lane), "i32", lanes, o.const("i32", 0)))
    stride = s.and_(s.lshr(word1, "16"), str(0x3FFF))
    wide = partial(o.zext, "i32", "i64")

    def each(value: str) -> str:
        return o.splat("i64", s.zext("i32", "i64", value))

    plain = o.add(o.mul(wide(index), each(stride), "i64"), wide(offset), "i64")
    if w.gfx >= 11:
        kind = s.lshr(word1, "30")  # elements of 4, 8 or 16 bytes are swizzled
        swizzled, element = s.icmp("ne", "i32", kind, "0"), s.add(kind, "1")
    else:
        swizzled, element = s.icmp("slt", "i32", word1, "0"), "2"
    together = s.add(s.and_(s.lshr(word3, "21"), "3"), "3")  # INDEX_STRIDE: 8 to 64, as a power of two
    low, inner = (s.sub(s.shl("1", x), "1") for x in (together, element))
    at = o.mul(wide(o.lshr(index, o.splat("i32", together))), each(stride), "i64")
    at = o.add(at, wide(o.and_(offset, o.splat("i32", s.not_(inner)))), "i64")
    at = o.shl(at, each(together), "i64")
    at = o.add(at, wide(o.shl(o.and_(index, o.splat("i32", low)), o.splat("i32", element))), "i64")
    at = o.add(at, wide(o.and_(offset, o.splat("i32", inner))), "i64")
    where = o.select(o.splat("i1", swizzled), "i64", at, plain)
    has_stride = s.icmp("ne", "i32", stride, "0")
    by_index = o.icmp("ult", "i32", index, o.splat("i32", records))
    end = o.add(wide(offset), each(nbytes), "i64")
    by_bytes = o.icmp("ule", "i64", o.add(plain, each(nbytes), "i64"), each(records))
    if w.gfx == 9:
        structured = has_stride
    else:
        mode = s.and_(s.lshr(word3, "28"), "3")
        structured = s.and_(has_stride, s.icmp("ult", "i32", mode, "2"), "i1")
        in_element = o.or_(o.icmp("ule", "i64", end, each(stride)), o.splat("i1", s.icmp("ne", "i32", mode, "0")), "i1")
        by_index = o.and_(by_index, in_element, "i1")
        some = s.and_(s.icmp("eq", "i32", mode, "2"), s.icmp("ne", "i32", records, "0"), "i1")
        by_bytes = o.or_(by_bytes, o.splat("i1", some), "i1")
    inside = o.select(o.splat("i1", structured), "i1", by_index, by_bytes)
    mask = s.and_(w.to_bits(inside), w.exec_bits(), w.mask_type)
    base = s.add(
        s.and_(w.sgpr64(rsrc.index), str((1 << 48) - 1), "i64"), s.zext("i32", "i64", w.scalar(soffset)), "i64"
    )
    return o.add(where, o.splat("i64", base), "i64"), mask


def _resource(w: Wave, at: int) -> tuple[str, str, str, str]:
    """(base, num_records; whether a stride counts without an index, whether it is swizzled) of the resource in SGPRs `at` and on.

    Without an index a stride counts where the lane's number is one (ADD_TID_ENABLE), and since gfx10 in what is out of range."""
    s = w.s
    pair, word1, word2, word3 = w.sgpr64(at), *(w.reg("s", at + k) for k in (1, 2, 3))
    if w.chip != "gfx1250":
        swizzled = s.icmp("slt", "i32", word1, "0")
        stride = s.icmp("ne", "i32", s.and_(word1, str(0x3FFF0000)), "0")
        if w.gfx == 9:
            stride = s.and_(stride, s.icmp("ne", "i32", s.and_(word3, str(1 << 23)), "0"), "i1")
        return s.and_(pair, str((1 << 48) - 1), "i64"), s.zext("i32", "i64", word2), stride, swizzled
    # 57 bits of base and 45 of num_records (rocjitsu, `decode_buffer_resource`; LLVM, lowerPointerAsRsrcIntrin).
    high = s.or_(s.zext("i32", "i64", word2), s.shl(s.zext("i32", "i64", s.and_(word3, "63")), "32", "i64"), "i64")
    records = s.or_(s.shl(high, "7", "i64"), s.zext("i32", "i64", s.lshr(word1, "25")), "i64")
    stride = s.icmp("ne", "i32", s.and_(word3, str(0x3FFF << 12)), "0")
    swizzled = s.icmp("ne", "i32", s.and_(word3, str(1 << 28)), "0")
    return s.and_(pair, str((1 << 57) - 1), "i64"), records, stride, swizzled


def scalar_extent(w: Wave, at: int) -> tuple[str, str]:
    """(base, bytes) of the resource in SGPRs `at` and on, as scalar loads see it: a stride counts in its size alone."""
    s = w.s
    base, records, _, _ = _resource(w, at)
    if w.chip == "gfx1250":
        stride = s.and_(s.lshr(w.reg("s", at + 3), "12"), str(0x3FFF))
    else:
        stride = s.and_(s.lshr(w.reg("s", at + 1), "16"), str(0x3FFF))
    size = s.mul(records, s.zext("i32", "i64", s.call("umax", "i32", stride, "1")), "i64")
    return base, size


def _buffer_parts(w: Wave, inst: Inst, vaddr: Operand, rsrc: Operand, soffset: Operand, nbytes: int) -> list[tuple[str, str, str]]:  # fmt: skip
    """What a buffer access reaches: (space, addresses, lanes in range), for global memory and where the resource may be of scratch."""
    o, s = w.v, w.s
    if inst.take("idxen") is not None:
        return [("global", *_structured(w, inst, vaddr, rsrc, soffset, str(nbytes)))]
    offen = inst.take("offen") is not None
    if rsrc.kind != "s" or rsrc.count != 4:
        raise w.fail(f"buffer resource {rsrc.text}")
    take_policy(inst)
    more = inst.take_int("offset")
    offset = o.const("i32", more)
    if offen:
        offset = o.add(w.reg("v", vaddr.index), offset)
    elif not (vaddr.kind == "special" and vaddr.text == "off"):
        raise w.fail(f"buffer address {vaddr.text}")
    scalar = w.scalar(soffset)
    base, records, stride, swizzled = _resource(w, rsrc.index)
    bad = s.and_(stride, s.not_(swizzled, "i1"), "i1")
    w.fault_if(bad, 12)  # type: ignore[attr-defined]
    execs = w.exec_bits()
    scratch_mask = s.select(swizzled, w.mask_type, execs, "0")
    # A raw access outside num_records reads 0 and is not written: the hardware's rule, no fault. The scalar offset takes
    # no part in that check on gfx9; gfx10 and later include it. Checked with it here, in 64 bits.
    wide = s.zext("i32", "i64", scalar)
    if w.options.fast or "init" in w.options.checks:  # which follows each value
        address, inside = _raw(w, offset, wide, o.const("i64", nbytes), records, base)
    else:
        name, own = f"@tec_ranged_{w.lanes}", w.in_memory("v", vaddr.index, 1) if offen else "null"
        w.out.declares.add(f"declare {w.mask_type} {name}(ptr, ptr, i32, i64, i64, i64, i64)")
        inside = w.out.emit(
            f"call {w.mask_type} {name}(ptr %places, ptr {own}, i32 {more}, i64 {wide}, i64 {records}, i64 {nbytes}, i64 {base})"
        )
        address = places(w)
    raw = s.select(swizzled, w.mask_type, "0", s.and_(inside, execs, w.mask_type))
    # A scalar offset is not swizzled: it counts the bytes of all lanes.
    own = s.lshr(scalar, str(w.lanes.bit_length() - 1))
    return [("global", address, raw), ("scratch", o.add(offset, o.splat("i32", own)), scratch_mask)]


def buffer_address(
    w: Wave, inst: Inst, vaddr: Operand, rsrc: Operand, soffset: Operand, nbytes: str
) -> tuple[str, str]:
    """(addresses in global memory, lanes in range) of an element of `nbytes`, a scalar, in a raw or structured buffer."""
    if inst.take("idxen") is not None:
        return _structured(w, inst, vaddr, rsrc, soffset, nbytes)
    o, s = w.v, w.s
    offset = o.const("i32", inst.take_int("offset"))
    if inst.take("offen") is not None:
        offset = o.add(w.reg("v", vaddr.index), offset)
    take_policy(inst)
    base, records, _, swizzled = _resource(w, rsrc.index)
    w.fault_if(swizzled, 12)  # type: ignore[attr-defined]
    scalar = s.zext("i32", "i64", w.scalar(soffset))
    address, inside = _raw(w, offset, scalar, o.splat("i64", s.zext("i32", "i64", nbytes)), records, base)
    return address, s.and_(inside, w.exec_bits(), w.mask_type)


def _raw(w: Wave, offset: str, scalar: str, size: str, records: str, base: str) -> tuple[str, str]:
    """(addresses, lanes in range, whatever EXEC is) of lanes' offsets and a scalar one in a raw buffer, for elements of `size` bytes; `support.places` has the same as a function."""
    o = w.v
    whole = o.add(o.zext("i32", "i64", offset), o.splat("i64", scalar), "i64")
    inside = o.icmp("ule", "i64", o.add(whole, size, "i64"), o.splat("i64", records))
    return o.add(whole, o.splat("i64", base), "i64"), w.to_bits(inside)


def _buffer_load(what: str, dwords: int, place: str):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        ops = inst.operands
        if inst.take("lds") is not None or "_lds_" in inst.op:
            offset = int(inst.mods.get("offset") or "0", 0)
            if place or (dwords > 1 and w.chip != "gfx950"):
                raise w.fail("this load into LDS")
            _merge_zero(w, _buffer_parts(w, inst, ops[0], ops[1], ops[2], ACCESS_BYTES[what]), what, dwords)
            into_lds(w, dwords, offset)
            return
        dst = ops[0]
        parts = _buffer_parts(w, inst, ops[1], ops[2], ops[3], ACCESS_BYTES[what])
        if place or dst.half or dst.kind not in ("v", "a") or dst.count != dwords:
            _merge_zero(w, parts, what, dwords)
            write_loaded(w, dst, dwords, place)
            return
        at, name = goal(w, dst, dwords), f"@tec_zero_{w.lanes}"
        out = w.exec_bits()
        for _, _, mask in parts:
            out = w.s.and_(out, w.s.not_(mask, w.mask_type), w.mask_type)
        w.out.declares.add(f"declare void {name}(ptr, {w.mask_type}, i64)")
        w.out.put(f"call void {name}(ptr {at}, {w.mask_type} {out}, i64 {dwords})")
        for space, address, mask in parts:
            _access_some(w, space, "ld", what, address, mask, at)

    return handler


def _access_some(w: Wave, space: str, verb: str, what: str, address: str, mask: str, buffer: str = "%mbuf") -> None:
    """`access`, left out where it is one of scratch and no lane is in the mask: few resources are swizzled, and scratch is what no check counts."""
    if space == "global":
        access(w, space, verb, what, address, mask, buffer)
        return
    some, on = w.out.fresh_label("some"), w.out.fresh_label("on")
    w.out.put(f"br i1 {w.s.icmp('ne', w.mask_type, mask, '0')}, label %{some}, label %{on}, !prof !0")
    w.out.label(some)
    access(w, space, verb, what, address, mask, buffer)
    w.out.put(f"br label %{on}")
    w.out.label(on)


def _merge_zero(w: Wave, parts: list[tuple[str, str, str]], what: str, dwords: int) -> None:
    """As `_merge`, and 0 in the lanes of neither mask."""
    values: list[str] = []
    for i, (space, address, mask) in enumerate(parts):
        _access_some(w, space, "ld", what, address, mask)
        chosen = w.from_bits(mask)
        old = values if i else [w.v.const("i32", 0)] * dwords
        values = [w.v.select(chosen, "i32", get_data(w, k), old[k]) for k in range(dwords)]
    for k, value in enumerate(values):
        w.out.put(f"store {w.v.type('i32')} {value}, ptr {buffer_slot(w, k)}, align 64")


def _buffer_store(what: str, dwords: int, place: str):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        ops = inst.operands
        data = data_at(w, ops[0], dwords, place)
        for space, address, mask in _buffer_parts(w, inst, ops[1], ops[2], ops[3], ACCESS_BYTES[what]):
            _access_some(w, space, "st", what, address, mask, data)

    return handler


def _buffer_atomic(operation: str, bits: int):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        ops = inst.operands
        returns = any(m in inst.mods for m in ("glc", "sc0")) or "RETURN" in inst.mods.get("th", "")
        put_data(w, ops[0], bits // 32 * (2 if operation in TWO_DATA else 1))
        parts = _buffer_parts(w, inst, ops[1], ops[2], ops[3], bits // 8)
        space, address, mask = parts[0]
        atomic_call(w, space, operation, bits, address, mask)
        if returns:
            op = ops[0]
            width = Operand(op.kind, op.text, op.index, bits // 32)
            write_loaded(w, width, bits // 32, "")

    return handler


for _suffix, _spec in LOADS.items():
    custom(f"buffer_load_{_suffix}", "vmem")(_buffer_load(*_spec))
    if _suffix in ("b32", "u8", "i8", "u16", "i16"):  # by AMD's ISA file of RDNA 3
        custom(f"buffer_load_lds_{_suffix}", "vmem")(_buffer_load(*_spec))
for _suffix, _spec in STORES.items():
    custom(f"buffer_store_{_suffix}", "vmem")(_buffer_store(*_spec))
for _suffix, (_operation, _bits) in ATOMICS.items():
    custom(f"buffer_atomic_{_suffix}", "vmem")(_buffer_atomic(_operation, _bits))
