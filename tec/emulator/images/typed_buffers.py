"""Typed buffers: buffer_load_format and buffer_store_format by the format in the resource, tbuffer_ by the instruction's.

Source: ISA manuals, "Vector memory (buffer) instructions"; formats as in `images.formats`.
"""

from __future__ import annotations

from ..decode.inst import Inst, Operand
from ..isa.buffer import buffer_address
from ..isa.memory import half_insert
from ..isa.table import custom
from ..translate.wave import Wave
from .formats import GFX9_DATA, GFX9_NUMBER, number
from .texels import Format, choose, fetch, put


def _format(w: Wave, inst: Inst, rsrc: Operand) -> tuple[Format, list[str]]:
    """The format, and what each result selects."""
    s = w.s
    word3 = w.reg("s", rsrc.index + 3)
    if inst.op.startswith("tbuffer"):
        return Format(w, _named(w, inst.take("format"))), [str(4 + k) for k in range(4)]
    select = [s.and_(s.lshr(word3, str(3 * k)), "7") for k in range(4)]
    if w.gfx == 9:
        data = s.and_(s.lshr(word3, "15"), "15")
        return Format(w, s.or_(s.shl(s.and_(s.lshr(word3, "12"), "7"), "6"), data)), select
    return Format(w, s.and_(s.lshr(word3, "12"), "127" if w.gfx == 10 else "63")), select


def _named(w: Wave, text: str | None) -> str:
    """The number of `[BUF_FMT_32_FLOAT]`, or of gfx9's `[BUF_DATA_FORMAT_32,BUF_NUM_FORMAT_FLOAT]`; where one of gfx9's is left out it is 8 bits, or unorm."""
    words = (text or "").strip("[]").split(",")
    if w.gfx == 9:
        if words[0].isdigit():
            value = int(words[0])
            return str(value >> 4 << 6 | value & 15)
        data, kind = "8", "UNORM"
        for word in words:
            if word.startswith("BUF_DATA_FORMAT_"):
                data = word.removeprefix("BUF_DATA_FORMAT_")
            elif word:
                kind = word.removeprefix("BUF_NUM_FORMAT_")
        if data in GFX9_DATA and kind in GFX9_NUMBER:
            return str(GFX9_NUMBER.index(kind) << 6 | GFX9_DATA.index(data))
    elif words[0].isdigit():
        return words[0]
    else:
        found = number(min(w.gfx, 11), words[0].removeprefix("BUF_FMT_") or "8_UNORM")
        if found is not None:
            return str(found)
    raise w.fail(f"format {text}")


def _load(n: int, place: str):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        o, ops = w.v, inst.operands
        if inst.mods.get("lds") is not None:
            raise w.fail("a typed load into LDS")
        form, select = _format(w, inst, ops[2])
        address, mask = buffer_address(w, inst, ops[1], ops[2], ops[3], form.bytes)
        components = fetch(w, form, address, mask)
        on, zero = w.from_bits(mask), o.const("i32", 0)
        values = [o.select(on, "i32", choose(w, form, components, select[k]), zero) for k in range(n)]
        dst = ops[0]
        if place:
            values = [_narrow(w, form, v) for v in values]
            if place == "hi" or (n == 1 and place == "lo"):
                w.write_reg(dst.kind, dst.index, half_insert(w, dst, values[0], place))
                return
            pairs = [*values, zero][: n + n % 2]
            values = [o.or_(a, o.shl(b, o.const("i32", 16))) for a, b in zip(pairs[::2], pairs[1::2])]
        if dst.count != len(values):
            raise w.fail(f"{dst.text} as {len(values)} dwords")
        for k, value in enumerate(values):
            w.write_reg(dst.kind, dst.index + k, value)

    return handler


def _narrow(w: Wave, form: Format, value: str) -> str:
    o = w.v
    half = o.zext("i16", "i32", o.bitcast("f16", "i16", o.fptrunc("f32", "f16", o.bitcast("i32", "f32", value))))
    return o.select(o.splat("i1", form.integer), "i32", o.and_(value, o.const("i32", 0xFFFF)), half)


def _store(n: int, place: str):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        o, ops = w.v, inst.operands
        form, select = _format(w, inst, ops[2])
        address, mask = buffer_address(w, inst, ops[1], ops[2], ops[3], form.bytes)
        data, zero = ops[0], o.const("i32", 0)
        given = [w.reg(data.kind, data.index + k) for k in range(data.count)]
        if place:
            low = o.const("i32", 0xFFFF)
            halves = [h for word in given for h in (o.and_(word, low), o.lshr(word, o.const("i32", 16)))]
            given = [_wide(w, form, h) for h in (halves[1:2] if place == "hi" else halves[:n])]
        components = []
        for k in range(4):  # a component takes the value that shows it
            value = zero
            for c in reversed(range(n)):
                here = w.s.icmp("eq", "i32", select[c], str(4 + k))
                value = o.select(o.splat("i1", here), "i32", given[c], value)
            components.append(value)
        put(w, form, components, address, mask)

    return handler


def _wide(w: Wave, form: Format, half: str) -> str:
    o = w.v
    wide = o.bitcast("f32", "i32", o.fpext("f16", "f32", o.bitcast("i16", "f16", o.trunc("i32", "i16", half))))
    return o.select(o.splat("i1", form.integer), "i32", half, wide)


for _n, _letters in enumerate(("x", "xy", "xyz", "xyzw"), 1):
    for _kind in ("buffer", "tbuffer"):
        custom(f"{_kind}_load_format_{_letters}", "vmem")(_load(_n, ""))
        custom(f"{_kind}_store_format_{_letters}", "vmem")(_store(_n, ""))
        custom(f"{_kind}_load_format_d16_{_letters} {_kind}_load_d16_format_{_letters}", "vmem")(_load(_n, "lo"))
        custom(f"{_kind}_store_format_d16_{_letters} {_kind}_store_d16_format_{_letters}", "vmem")(_store(_n, "lo"))
custom("buffer_load_format_d16_hi_x buffer_load_d16_hi_format_x", "vmem")(_load(1, "hi"))
custom("buffer_store_format_d16_hi_x buffer_store_d16_hi_format_x", "vmem")(_store(1, "hi"))
