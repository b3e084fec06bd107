"""Image opcodes that use no sampler: loads, stores, atomics, sizes. Sources as in `images`."""

from __future__ import annotations

from ..decode.inst import Inst, Operand
from ..isa.memory import ATOMICS, atomic_call, put_data, write_loaded
from ..isa.table import custom
from ..support.atomics import TWO_DATA
from ..translate.wave import Wave
from .descriptors import IMAGE, TYPES
from .operands import (
    KIND,
    LEVELS,
    Image,
    Parts,
    addresses,
    halves,
    image_parts,
    inside,
    integers,
    place,
    read_field,
    read_image,
    write_results,
)
from .texels import choose, fetch, put


def _level_of(inst: Inst) -> int:
    return int("_mip" in inst.op)


def _check_level(w: Wave, image: Image, values: list[str], more: int) -> None:
    """A level that is asked for and not there."""
    if more:
        o, level = w.v, values[-1]
        if image.shape is not None:  # behind the coordinates, of which there are one to three
            shape, s = image.shape, w.s
            three = s.or_(shape.deep, shape.layered, "i1")
            two = s.or_(shape.rows, shape.strips, "i1")
            level = o.select(o.splat("i1", two), "i32", values[2], values[1])
            level = o.select(o.splat("i1", three), "i32", values[3], level)
        bad = w.s.and_(w.to_bits(o.icmp("ne", "i32", level, o.const("i32", 0))), w.exec_bits(), w.mask_type)
        w.fault_if(w.s.icmp("ne", w.mask_type, bad, "0"), LEVELS)  # type: ignore[attr-defined]


@custom("image_load image_load_mip", "vmem")
def _load(w: Wave, inst: Inst) -> None:
    more = _level_of(inst)
    parts = image_parts(w, inst)
    image = read_image(w, inst, parts.resource, parts.kind)
    numbers = integers(w, parts, more)
    _check_level(w, image, numbers, more)
    x, y, z = place(w, parts, image, numbers)
    mask = inside(w, image, x, y, z)
    components = fetch(w, image.form, addresses(w, image, x, y, z), mask)
    # Outside of the image all results are 0, those that are 1 by the descriptor too.
    here = w.from_bits(mask)
    found = [choose(w, image.form, components, image.select[c]) for c in range(4) if parts.mask >> c & 1]
    write_results(w, parts, image, [w.v.select(here, "i32", v, w.v.const("i32", 0)) for v in found])


@custom("image_store image_store_mip", "vmem")
def _store(w: Wave, inst: Inst) -> None:
    o, more = w.v, _level_of(inst)
    parts = image_parts(w, inst)
    image = read_image(w, inst, parts.resource, parts.kind)
    numbers = integers(w, parts, more)
    _check_level(w, image, numbers, more)
    x, y, z = place(w, parts, image, numbers)
    values = iter(_stored(w, parts, image))
    given = [next(values) if parts.mask >> c & 1 else o.const("i32", 0) for c in range(4)]
    # DST_SEL the other way round: a component takes the result that shows it.
    components = []
    for k in range(4):
        value = o.const("i32", 0)
        for c in reversed(range(4)):
            here = w.s.icmp("eq", "i32", image.select[c], str(4 + k))
            value = o.select(o.splat("i1", here), "i32", given[c], value)
        components.append(value)
    put(w, image.form, components, addresses(w, image, x, y, z), inside(w, image, x, y, z))


def _stored(w: Wave, parts: Parts, image: Image) -> list[str]:
    o, n = w.v, parts.mask.bit_count()
    registers = [(parts.data.kind, parts.data.index + k) for k in range(parts.data.count)]
    if not parts.d16:
        return [w.reg(*r) for r in registers][:n]
    integer, out = o.splat("i1", image.form.integer), []
    for half in halves(w, registers)[:n]:
        wide = o.bitcast("f32", "i32", o.fpext("f16", "f32", o.bitcast("i16", "f16", o.trunc("i32", "i16", half))))
        out.append(o.select(integer, "i32", half, wide))
    return out


def _atomic(operation: str):  # type: ignore[no-untyped-def]
    def handler(w: Wave, inst: Inst) -> None:
        returns = any(m in inst.mods for m in ("glc", "sc0")) or "RETURN" in inst.mods.get("th", "")
        parts = image_parts(w, inst)
        data = parts.data
        dwords = data.count // (2 if operation in TWO_DATA else 1)
        if parts.mask != (1 << data.count) - 1 or dwords not in (1, 2):
            raise w.fail(f"dmask {parts.mask:#x} of {data.text}")
        image = read_image(w, inst, parts.resource, parts.kind)
        w.fault_if(w.s.icmp("ne", "i32", image.form.bytes, str(4 * dwords)), KIND)  # type: ignore[attr-defined]
        x, y, z = place(w, parts, image, integers(w, parts))
        put_data(w, data, data.count)
        mask = inside(w, image, x, y, z)
        atomic_call(w, "global", operation, 32 * dwords, addresses(w, image, x, y, z), mask)
        if returns:
            write_loaded(w, Operand(data.kind, data.text, data.index, dwords), dwords, "")

    return handler


_ATOMIC_NAMES = {
    **{n: n for n in ("swap", "cmpswap", "add", "sub", "smin", "umin", "smax", "umax", "and", "or", "xor", "inc", "dec", "fcmpswap", "fmin", "fmax")},
    "add_uint": "add", "sub_uint": "sub", "min_int": "smin", "min_uint": "umin", "max_int": "smax", "max_uint": "umax", "inc_uint": "inc",
    "dec_uint": "dec", "add_flt": "add_f32", "min_flt": "fmin", "max_flt": "fmax", "pk_add_f16": "pk_add_f16", "pk_add_bf16": "pk_add_bf16",
}  # fmt: skip
for _name, _stem in _ATOMIC_NAMES.items():
    custom(f"image_atomic_{_name}", "vmem")(_atomic(ATOMICS[_stem][0]))


@custom("image_get_resinfo", "vmem")
def _resinfo(w: Wave, inst: Inst) -> None:
    """Width, height, depth or layers, levels; the address is a level."""
    o, s = w.v, w.s
    parts = image_parts(w, inst)
    image = read_image(w, inst, parts.resource, parts.kind)
    kind = read_field(w, parts.resource.index, IMAGE[min(w.gfx, 12)], "type")
    depth = s.add(read_field(w, parts.resource.index, IMAGE[min(w.gfx, 12)], "depth"), "1")
    height = s.add(read_field(w, parts.resource.index, IMAGE[min(w.gfx, 12)], "height"), "1")
    plain, flat = s.icmp("eq", "i32", kind, str(TYPES["1D"])), s.icmp("eq", "i32", kind, str(TYPES["2D"]))
    layers = s.icmp("eq", "i32", kind, str(TYPES["1D_ARRAY"]))
    depth = s.select(s.or_(plain, flat, "i1"), "i32", "1", depth)
    height = s.select(plain, "i32", "1", s.select(layers, "i32", depth, height))
    values = [image.width, height, depth, "1"]
    write_results(w, parts, image, [o.splat("i32", v) for c, v in enumerate(values) if parts.mask >> c & 1])
