"""Memory opcodes: global_, flat_, scratch_ and buffer_ loads, stores and atomics.

Source: AMD ISA manuals, chapters "Scalar memory", "Vector memory (buffer)", "Flat memory". gfx11 renamed the widths (dwordx2
became b64, ubyte u8); both spellings are rows. Cache-policy modifiers (glc, sc0, nt, scope:...) change no value here.
"""

from __future__ import annotations

import re

from ..checks.order import READS, RELEASES
from ..context import CTX, PEEK
from ..decode.inst import Inst, Operand
from ..support.atomics import TWO_DATA
from ..translate.wave import M0, Wave
from .table import custom

ACCESS_BYTES = {"b32": 4, "b64": 8, "b96": 12, "b128": 16, "u8": 1, "i8": 1, "u16": 2, "i16": 2}
POLICY = ("glc", "slc", "dlc", "sc0", "sc1", "nt", "scope", "th", "nv", "scc")
# suffix -> (access of the support library, dwords, half-register placement: "", "lo", "hi")
LOADS = {
    "dword": ("b32", 1, ""), "dwordx2": ("b64", 2, ""), "dwordx3": ("b96", 3, ""), "dwordx4": ("b128", 4, ""),
    "ubyte": ("u8", 1, ""), "sbyte": ("i8", 1, ""), "ushort": ("u16", 1, ""), "sshort": ("i16", 1, ""),
    "ubyte_d16": ("u8", 1, "lo"), "ubyte_d16_hi": ("u8", 1, "hi"), "sbyte_d16": ("i8", 1, "lo"),
    "sbyte_d16_hi": ("i8", 1, "hi"), "short_d16": ("u16", 1, "lo"), "short_d16_hi": ("u16", 1, "hi"),
    "b32": ("b32", 1, ""), "b64": ("b64", 2, ""), "b96": ("b96", 3, ""), "b128": ("b128", 4, ""),
    "u8": ("u8", 1, ""), "i8": ("i8", 1, ""), "u16": ("u16", 1, ""), "i16": ("i16", 1, ""),
    "d16_u8": ("u8", 1, "lo"), "d16_hi_u8": ("u8", 1, "hi"), "d16_i8": ("i8", 1, "lo"), "d16_hi_i8": ("i8", 1, "hi"),
    "d16_b16": ("u16", 1, "lo"), "d16_hi_b16": ("u16", 1, "hi"),
}  # fmt: skip
STORES = {
    "dword": ("b32", 1, ""), "dwordx2": ("b64", 2, ""), "dwordx3": ("b96", 3, ""), "dwordx4": ("b128", 4, ""),
    "byte": ("u8", 1, ""), "short": ("u16", 1, ""), "byte_d16_hi": ("u8", 1, "hi"), "short_d16_hi": ("u16", 1, "hi"),
    "b32": ("b32", 1, ""), "b64": ("b64", 2, ""), "b96": ("b96", 3, ""), "b128": ("b128", 4, ""),
    "b8": ("u8", 1, ""), "b16": ("u16", 1, ""), "d16_hi_b8": ("u8", 1, "hi"), "d16_hi_b16": ("u16", 1, "hi"),
}  # fmt: skip
# opcode stem -> (operation of the support library, bits)
ATOMICS = {
    "add": ("add", 32), "sub": ("sub", 32), "smin": ("smin", 32), "smax": ("smax", 32), "umin": ("umin", 32),
    "umax": ("umax", 32), "and": ("and", 32), "or": ("or", 32), "xor": ("xor", 32), "swap": ("swap", 32),
    "inc": ("inc", 32), "dec": ("dec", 32), "cmpswap": ("cmpswap", 32), "add_f32": ("fadd", 32),
    "add_f64": ("fadd", 64), "min_f64": ("fmin", 64), "max_f64": ("fmax", 64),
    "pk_add_f16": ("pk_add_f16", 32), "pk_add_bf16": ("pk_add_bf16", 32),
    "add_u32": ("add", 32), "sub_u32": ("sub", 32), "min_i32": ("smin", 32), "max_i32": ("smax", 32),
    "min_u32": ("umin", 32), "max_u32": ("umax", 32), "and_b32": ("and", 32), "or_b32": ("or", 32),
    "xor_b32": ("xor", 32), "swap_b32": ("swap", 32), "inc_u32": ("inc", 32), "dec_u32": ("dec", 32),
    "cmpswap_b32": ("cmpswap", 32), "min_f32": ("fmin", 32), "max_f32": ("fmax", 32),
    "min_num_f32": ("fmin", 32), "max_num_f32": ("fmax", 32), "min_num_f64": ("fmin", 64), "max_num_f64": ("fmax", 64),
    "add_u64": ("add", 64), "sub_u64": ("sub", 64), "min_i64": ("smin", 64), "max_i64": ("smax", 64),
    "min_u64": ("umin", 64), "max_u64": ("umax", 64), "and_b64": ("and", 64), "or_b64": ("or", 64),
    "xor_b64": ("xor", 64), "swap_b64": ("swap", 64), "inc_u64": ("inc", 64), "dec_u64": ("dec", 64),
    "cmpswap_b64": ("cmpswap", 64), "cmpswap_f32": ("fcmpswap", 32), "csub": ("usub_sat", 32), "csub_u32": ("usub_sat", 32),
    "sub_clamp_u32": ("usub_sat", 32), "cond_sub_u32": ("usub_cond", 32),
    "fcmpswap": ("fcmpswap", 32), "fmin": ("fmin", 32), "fmax": ("fmax", 32),
}  # fmt: skip
for _n in (
    "add",
    "sub",
    "smin",
    "smax",
    "umin",
    "umax",
    "and",
    "or",
    "xor",
    "swap",
    "inc",
    "dec",
    "cmpswap",
    "fcmpswap",
    "fmin",
    "fmax",
):
    ATOMICS[_n + "_x2"] = (_n, 64)


def take_policy(inst: Inst) -> None:
    for name in POLICY:
        inst.mods.pop(name, None)


def buffer_slot(w: Wave, k: int) -> str:
    """Pointer to dword k of the transfer buffer."""
    return w.out.emit(f"getelementptr i8, ptr %mbuf, i64 {4 * w.lanes * k}") if k else "%mbuf"


def put_data(w: Wave, op: Operand, dwords: int, hi: str = "", first: int = 0) -> None:
    """Registers of operand `op` to the transfer buffer."""
    if op.kind not in ("v", "a") or (op.count != dwords and not (op.count == 1 and dwords == 1)):
        raise w.fail(f"{op.text} as {dwords} dwords of data")
    for k in range(dwords):
        value = w.reg(op.kind, op.index + k)
        if hi == "hi" or op.half == "h":
            value = w.v.lshr(value, w.v.const("i32", 16))
        w.out.put(f"store {w.v.type('i32')} {value}, ptr {buffer_slot(w, first + k)}, align 64")


def data_at(w: Wave, op: Operand, dwords: int, hi: str = "") -> str:
    """Pointer to the data of operand `op`: its registers where they lie, or the transfer buffer with the halves moved there."""
    if hi == "hi" or op.half == "h" or op.kind not in ("v", "a") or op.count != dwords:
        put_data(w, op, dwords, hi)
        return "%mbuf"
    return w.in_memory(op.kind, op.index, dwords)


def load_to(w: Wave, space: str, what: str, op: Operand, dwords: int, place: str, address: str) -> None:
    """A load of all active lanes to the registers of operand `op`: straight into them, but for halves."""
    if not place and not op.half and op.kind in ("v", "a") and op.count == dwords:
        access(w, space, "ld", what, address, w.exec_bits(), goal(w, op, dwords))
        return
    access(w, space, "ld", what, address, w.exec_bits())
    write_loaded(w, op, dwords, place)


def goal(w: Wave, op: Operand, dwords: int) -> str:
    """Pointer to the registers of operand `op`, which a function fills in the lanes that are on."""
    if not w.full:
        w.in_memory(op.kind, op.index, dwords)
    return w.in_memory(op.kind, op.index, dwords, write=True)


def get_data(w: Wave, k: int) -> str:
    return w.out.emit(f"load volatile {w.v.type('i32')}, ptr {buffer_slot(w, k)}, align 64")


def write_loaded(w: Wave, op: Operand, dwords: int, place: str, first: int = 0) -> None:
    """The transfer buffer to the registers of operand `op`."""
    if op.kind not in ("v", "a") or op.count != dwords:
        raise w.fail(f"{op.text} as the destination of {dwords} dwords")
    values = [get_data(w, first + k) for k in range(dwords)]
    for k, value in enumerate(values):
        if place or op.half:
            value = half_insert(w, op, value, "hi" if place == "hi" or op.half == "h" else "lo")
        w.write_reg(op.kind, op.index + k, value)


def half_insert(w: Wave, op: Operand, value: str, place: str) -> str:
    """16 bits into one half of the register, the other half kept."""
    o = w.v
    old = w.reg(op.kind, op.index)
    low = o.const("i32", 0xFFFF)
    if place == "hi":
        return o.or_(o.shl(value, o.const("i32", 16)), o.and_(old, low))
    return o.or_(o.and_(value, low), o.and_(old, o.const("i32", 0xFFFF0000)))


def access(w: Wave, space: str, verb: str, what: str, address: str, mask: str, buffer: str = "%mbuf") -> None:
    """Call the support library for all lanes of `mask` (bits) and leave on a fault."""
    at = "i64" if space == "global" else "i32"
    if w.leaves_out(space, verb == "st"):  # type: ignore[attr-defined]
        w.track(space, int(verb == "st"), ACCESS_BYTES[what], address, mask)  # type: ignore[attr-defined]
        return
    vector = w.v.type(at)

    def run(verb: str, buffer: str, note: str = "") -> None:
        name = f"@tec_{verb}_{space}_{what}_{w.lanes}"
        w.out.declares.add(f"declare i32 {name}(ptr, {vector}, {w.mask_type}, ptr, i32)")
        rc = w.out.emit(
            f"call i32 {name}(ptr {buffer}, {vector} {address}, {w.mask_type} {mask}, ptr %ctx, i32 {w.site()}){note}"  # type: ignore[attr-defined]
        )
        w.leave_on_fault(rc)  # type: ignore[attr-defined]

    def changed() -> str:
        run("ld", buffer_slot(w, _BEFORE), PEEK)
        return _changed(w, what, buffer)

    if verb == "st":
        if space == "global":
            w.tell_order(address, mask, RELEASES)  # type: ignore[attr-defined]
        w.before_store(space, ACCESS_BYTES[what], address, mask, buffer, changed)  # type: ignore[attr-defined]
    run(verb, buffer)
    kind = 2 if w.synchronizes() else int(verb == "st")  # type: ignore[attr-defined]
    w.track(space, kind if verb == "ld" else 1, ACCESS_BYTES[what], address, mask)  # type: ignore[attr-defined]
    if verb == "ld" and space == "global":
        w.tell_order(address, mask, READS)  # type: ignore[attr-defined]


_BEFORE = 8  # the dwords of the transfer buffer that hold what a store overwrites


def _changed(w: Wave, what: str, buffer: str) -> str:
    """The lanes whose store changes what is in memory (bits): several waves that hold the same values store them all in Triton's reductions, rightly."""
    o, ty = w.v, w.v.type("i32")
    differs = o.const("i32", 0)
    for k in range(max(1, ACCESS_BYTES[what] // 4)):
        at = w.out.emit(f"getelementptr i8, ptr {buffer}, i64 {4 * w.lanes * k}")
        new = w.out.emit(f"load volatile {ty}, ptr {at}, align 4")
        differs = o.or_(differs, o.bin("xor", "i32", new, get_data(w, _BEFORE + k)))
    narrow = {1: 0xFF, 2: 0xFFFF}.get(ACCESS_BYTES[what])
    if narrow:
        differs = o.and_(differs, o.const("i32", narrow))
    return w.to_bits(o.icmp("ne", "i32", differs, o.const("i32", 0)))


# Addresses.


def access_bytes(op: str) -> int:
    """Bytes that an access takes or gives in a lane, by its name: what `scale_offset` multiplies by (LLVM, `performScaleOffset`)."""
    name = op.split("_", 1)[1]
    what = name.split("_", 1)[1]
    if name.startswith("atomic_"):
        return ATOMICS[what][1] // 8
    for table in (LOADS, STORES):
        if what in table:
            return ACCESS_BYTES[table[what][0]]
    return int(re.findall(r"_[bui](\d+)$", op)[0]) // 8


def global_address(w: Wave, inst: Inst, vaddr: Operand, saddr: Operand | None) -> str:
    """vaddr pair, or SGPR pair plus a 32-bit vaddr, plus the signed offset; as vectors of i64."""
    o = w.v
    offset = inst.take_int("offset")
    scaled = inst.take("scale_offset") is not None
    if saddr is None or (saddr.kind == "special" and saddr.text in ("off", "null")):
        if vaddr.kind != "v" or vaddr.count != 2:
            raise w.fail(f"address {vaddr.text}")
        if not w.options.fast:
            return lane_places(w, vaddr.index, True, str(offset))
        base = w.vgpr64("v", vaddr.index)
    else:
        if vaddr.kind != "v" or vaddr.count != 1 or saddr.kind != "s" or saddr.count != 2:
            raise w.fail(f"address {vaddr.text}, {saddr.text}")
        scalar = w.sgpr64(saddr.index)
        if offset:
            scalar = w.s.add(scalar, str(offset), "i64")
            offset = 0
        if not w.options.fast and w.chip != "gfx1250":
            return lane_places(w, vaddr.index, False, scalar)
        # gfx1250 takes the lanes' part with its sign, times the size of the access where it is told to (LLVM, hasSignedGVSOffset, hasScaleOffset).
        lanes = (o.sext if w.chip == "gfx1250" else o.zext)("i32", "i64", w.reg("v", vaddr.index))
        if scaled:
            lanes = o.mul(lanes, o.const("i64", access_bytes(inst.op)), "i64")
        base = o.add(lanes, o.splat("i64", scalar), "i64")
    return o.add(base, o.const("i64", offset), "i64") if offset else base


def lane_places(w: Wave, index: int, wide: bool, base: str) -> str:
    """A base and 32 or 64 bits of each lane, from register `index` on: the sums by a function (`support.places`)."""
    low = w.in_memory("v", index, 1 + wide)
    name = f"@tec_places_{w.lanes}"
    w.out.declares.add(f"declare void {name}(ptr, ptr, ptr, i64)")
    high = f"%v{index + 1}" if wide else "null"
    w.out.put(f"call void {name}(ptr %places, ptr {low}, ptr {high}, i64 {base})")
    return places(w)


def places(w: Wave) -> str:
    """The addresses that a function left in their buffer."""
    w.places = True
    return w.out.emit(f"load {w.v.type('i64')}, ptr %places, align 64")


def scratch_address(w: Wave, inst: Inst, vaddr: Operand, saddr: Operand) -> str:
    """Byte offset within the lane's scratch, as vectors of i32."""
    o = w.v
    total = o.const("i32", inst.take_int("offset"))
    scaled = inst.take("scale_offset") is not None
    if vaddr.kind == "v":
        own = w.reg("v", vaddr.index)
        total = o.add(o.mul(own, o.const("i32", access_bytes(inst.op))) if scaled else own, total)
    elif not (vaddr.kind == "special" and vaddr.text == "off"):
        raise w.fail(f"scratch address {vaddr.text}")
    if saddr.kind == "s":
        total = o.add(total, o.splat("i32", w.reg("s", saddr.index)))
    elif not (saddr.kind == "special" and saddr.text in ("off", "null")):
        raise w.fail(f"scratch address {saddr.text}")
    return total


def _flat_split(w: Wave, address: str) -> list[tuple[str, str, str]]:
    """(space, address, mask bits) three times: a flat address lies in LDS or scratch by its upper half."""
    o = w.v
    high = o.trunc("i64", "i32", o.lshr(address, o.const("i64", 32), "i64"))
    low = o.trunc("i64", "i32", address)
    execs = w.exec_bits()
    in_lds = w.to_bits(o.icmp("eq", "i32", high, o.const("i32", 1)))
    in_scratch = w.to_bits(o.icmp("eq", "i32", high, o.const("i32", 2)))
    lds, scratch = w.s.and_(in_lds, execs, w.mask_type), w.s.and_(in_scratch, execs, w.mask_type)
    rest = w.s.and_(execs, w.s.not_(w.s.or_(lds, scratch, w.mask_type), w.mask_type), w.mask_type)
    return [("global", address, rest), ("lds", low, lds), ("scratch", low, scratch)]


def _merge(w: Wave, parts: list[tuple[str, str, str]], what: str, dwords: int) -> None:
    """Loads from several spaces, joined in the transfer buffer."""
    values: list[str] = []
    for i, (space, address, mask) in enumerate(parts):
        access(w, space, "ld", what, address, mask)
        loaded = [get_data(w, k) for k in range(dwords)]
        if i:
            chosen = w.from_bits(mask)
            loaded = [w.v.select(chosen, "i32", new, old) for new, old in zip(loaded, values)]
        values = loaded
    for k, value in enumerate(values):
        w.out.put(f"store {w.v.type('i32')} {value}, ptr {buffer_slot(w, k)}, align 64")


# Loads and stores.


def _load(space: str, what: str, dwords: int, place: str):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        take_policy(inst)
        ops = inst.operands
        if space == "flat":
            base = ops[2] if len(ops) > 2 else None
            _merge(w, _flat_split(w, global_address(w, inst, ops[1], base)), what, dwords)
            write_loaded(w, ops[0], dwords, place)
        elif space == "global":
            load_to(w, "global", what, ops[0], dwords, place, global_address(w, inst, ops[1], ops[2]))
        else:
            load_to(w, "scratch", what, ops[0], dwords, place, scratch_address(w, inst, ops[1], ops[2]))

    return handler


def _store(space: str, what: str, dwords: int, place: str):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        take_policy(inst)
        ops = inst.operands
        data = data_at(w, ops[1], dwords, place)
        if space == "flat":
            base = ops[2] if len(ops) > 2 else None
            for part, address, mask in _flat_split(w, global_address(w, inst, ops[0], base)):
                access(w, part, "st", what, address, mask, data)
        elif space == "global":
            access(w, "global", "st", what, global_address(w, inst, ops[0], ops[2]), w.exec_bits(), data)
        else:
            access(w, "scratch", "st", what, scratch_address(w, inst, ops[0], ops[2]), w.exec_bits(), data)

    return handler


def _atomic(space: str, operation: str, bits: int):  # type: ignore[no-untyped-def]
    dwords = bits // 32

    def handler(w: Wave, inst: Inst) -> None:
        ops = list(inst.operands)
        # Besides address and data there is a base, of flat ones on gfx1250 alone.
        returns = "RETURN" in inst.mods.get("th", "") if w.gfx >= 12 else len(ops) == (4 if space == "global" else 3)
        take_policy(inst)
        dst = ops.pop(0) if returns else None
        total = dwords * (2 if operation in TWO_DATA else 1)
        put_data(w, ops[1], total)
        address = global_address(w, inst, ops[0], ops[2] if len(ops) > 2 else None)
        if space == "global":
            atomic_call(w, "global", operation, bits, address, w.exec_bits())  # fmt: skip
        else:
            # An atomic on scratch is left to the global check, which refuses the address.
            (_, whole, rest), (_, low, lds), (_, _, scratch) = _flat_split(w, address)
            atomic_call(w, "global", operation, bits, whole, w.s.or_(rest, scratch, w.mask_type))
            atomic_call(w, "lds", operation, bits, low, lds)
        if dst is not None:
            write_loaded(w, dst, dwords, "")

    return handler


def atomic_call(w: Wave, space: str, operation: str, bits: int, address: str, mask: str) -> None:
    at = "i64" if space == "global" else "i32"
    if w.leaves_out(space, True):  # type: ignore[attr-defined]
        w.track(space, 2, bits // 8, address, mask)  # type: ignore[attr-defined]
        return
    if space == "global":  # before it: whoever reads what it writes is to find the release
        w.tell_order(address, mask, RELEASES)  # type: ignore[attr-defined]
    name = f"@tec_atomic_{space}_{operation}_{bits}_{w.lanes}"
    vector = w.v.type(at)
    w.out.declares.add(f"declare i32 {name}(ptr, {vector}, {w.mask_type}, ptr, i32)")
    rc = w.out.emit(
        f"call i32 {name}(ptr %mbuf, {vector} {address}, {w.mask_type} {mask}, ptr %ctx, i32 {w.site()})"  # type: ignore[attr-defined]
    )
    w.leave_on_fault(rc)  # type: ignore[attr-defined]
    w.track(space, 2, bits // 8, address, mask)  # type: ignore[attr-defined]
    if space == "global":
        w.tell_order(address, mask, READS)  # type: ignore[attr-defined]


for _suffix, _spec in LOADS.items():
    custom(f"global_load_{_suffix}", "vmem")(_load("global", *_spec))
    custom(f"flat_load_{_suffix}", "vmem")(_load("flat", *_spec))
    custom(f"scratch_load_{_suffix}", "vmem")(_load("scratch", *_spec))
for _suffix, _spec in STORES.items():
    custom(f"global_store_{_suffix}", "vmem")(_store("global", *_spec))
    custom(f"flat_store_{_suffix}", "vmem")(_store("flat", *_spec))
    custom(f"scratch_store_{_suffix}", "vmem")(_store("scratch", *_spec))
for _suffix, (_operation, _bits) in ATOMICS.items():
    custom(f"global_atomic_{_suffix}", "vmem")(_atomic("global", _operation, _bits))
    custom(f"flat_atomic_{_suffix}", "vmem")(_atomic("flat", _operation, _bits))


def into_lds(w: Wave, dwords: int, offset: int) -> None:
    """What a load left in the transfer buffer to LDS: lane l's dwords to M0 + offset + l times their size (ISA manuals, "LDS direct loads"). Bytes and
    halves fill a dword. Dwords are asked to be aligned, and no more: AMD's causal attention of gfx950 loads 16 bytes a lane to multiples of 8."""
    o = w.v
    room = 0x3FFFF if w.chip == "gfx950" else 0xFFFF  # 160 KB want more than the 16 bits of M0 that 64 KB do
    base = w.s.add(w.s.and_(w.reg("s", M0), str(room)), str(offset))
    where = o.add(o.splat("i32", base), o.vector_const("i32", [4 * dwords * l for l in range(w.lanes)]))
    if dwords == 1 or "align" not in w.options.checks:
        access(w, "lds", "st", f"b{32 * dwords}", where, w.exec_bits())
    else:
        asked = w.out.emit(f"getelementptr i8, ptr %ctx, i64 {CTX['align']}")
        w.out.put(f"store i64 3, ptr {asked}")
        access(w, "lds", "st", f"b{32 * dwords}", where, w.exec_bits())
        w.out.put(f"store i64 15, ptr {asked}")
    w.fill(dwords, where, w.exec_bits())  # type: ignore[attr-defined]
