"""Image instructions as the opcodes' rules see them: operands, the resource (T#) in SGPRs, addresses of elements, results.

Sources: RDNA 2, RDNA3 and RDNA4 ISA manuals, "Vector memory image instructions"; Vega's for gfx90a, whose instructions name no dimension. Linear images of one
level are modelled: a tiled one is laid out by tables that no manual has.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..decode.inst import Inst, Operand
from ..isa.memory import take_policy
from ..translate.wave import Wave
from .descriptors import IMAGE, PITCH_BYTES, TYPES
from .texels import Format

TILED, LEVELS, SAMPLING, KIND = 40, 41, 42, 44  # of `context.FAULTS`
DIMENSIONS = {"1D": 1, "2D": 2, "3D": 3, "CUBE": 3, "1D_ARRAY": 2, "2D_ARRAY": 3}
_CUBE = TYPES["CUBE"]


def read_field(w: Wave, first: int, layout: dict[str, tuple[tuple[int, int], ...]], name: str) -> str:
    """A descriptor's field, which begins at SGPR `first`, as a scalar i32 (its low 32 bits)."""
    s, value, done = w.s, "", 0
    for at, bits in layout[name]:
        word, shift = w.reg("s", first + at // 32), at % 32
        assert shift + bits <= 32 or at == 0
        part = s.lshr(word, str(shift)) if shift else word
        if shift + bits < 32:
            part = s.and_(part, str((1 << bits) - 1))
        value = part if not value else s.or_(value, s.shl(part, str(done)))
        done += bits
    return value


@dataclass
class Shape:
    """Where an instruction names no dimension (gfx9): what its resource says, as scalar i1s."""

    rows: str  # has a second coordinate
    deep: str  # 3D
    strips: str  # 1D, in layers
    layered: str  # 2D, in layers, and cubes


@dataclass
class Image:
    """An image resource in SGPRs, as scalars. `last`: of the layers or slices that can be asked for."""

    form: Format
    width: str
    height: str
    last: str
    first: str
    pitch: str
    base: str
    cube: str  # i1: sampled as a cube
    select: list[str]
    shape: Shape | None = None


def read_image(w: Wave, inst: Inst, op: Operand, kind: str) -> Image:
    """The fields of an image resource in scalar registers."""
    if op.kind != "s" or op.count != 8:
        raise w.fail(f"image resource {op.text}")
    s, layout = w.s, IMAGE[min(w.gfx, 12)]

    def read(name: str) -> str:
        return read_field(w, op.index, layout, name)

    form = Format(w, read("format"))
    width, height = s.add(read("width"), "1"), s.add(read("height"), "1")
    w.fault_if(s.icmp("ne", "i32", read("swizzle"), "0"), TILED)  # type: ignore[attr-defined]
    w.fault_if(s.icmp("ne", "i32", read("base_level"), read("last_level")), LEVELS)  # type: ignore[attr-defined]
    w.fault_if(s.icmp("ult", "i32", read("type"), "8"), KIND)  # type: ignore[attr-defined]
    layered = kind not in ("1D", "2D", "3D")
    if w.gfx == 9 or kind in ("1D", "2D"):
        pitch = s.add(read("pitch"), "1")
        if w.gfx != 9:  # 0: rows follow each other as in arrays
            pitch = s.select(s.icmp("eq", "i32", pitch, "1"), "i32", row_elements(w, form, width), pitch)
    else:
        pitch = row_elements(w, form, width)
    depth, first = read("depth"), read("first") if layered else "0"
    base = s.shl(s.and_(w.sgpr64(op.index), str((1 << 40) - 1), "i64"), "8", "i64")
    cube = s.icmp("eq", "i32", read("type"), str(_CUBE)) if kind in ("CUBE", "ANY") else "false"
    last = s.sub(depth, first) if kind not in ("1D", "2D") else "0"
    select = [read(f"select_{c}") for c in "xyzw"]
    height = "1" if kind.startswith("1D") else height
    image = Image(form, width, height, last, first, pitch, base, cube, select)
    if kind == "ANY":
        shape = image.shape = _shape(w, read("type"))
        alone = s.or_(s.icmp("eq", "i32", read("type"), "8"), s.icmp("eq", "i32", read("type"), "9"), "i1")
        image.height = s.select(shape.rows, "i32", height, "1")
        image.first = s.select(shape.deep, "i32", "0", first)
        image.last = s.select(alone, "i32", "0", s.sub(depth, image.first))
    return image


def _shape(w: Wave, kind: str) -> Shape:
    s = w.s
    strips, deep = (s.icmp("eq", "i32", kind, str(TYPES[k])) for k in ("1D_ARRAY", "3D"))
    flat = s.or_(strips, s.icmp("eq", "i32", kind, str(TYPES["1D"])), "i1")
    layered = s.or_(s.icmp("eq", "i32", kind, str(TYPES["2D_ARRAY"])), s.icmp("eq", "i32", kind, str(_CUBE)), "i1")
    return Shape(s.not_(flat, "i1"), deep, strips, layered)


def row_elements(w: Wave, form: Format, width: str) -> str:
    """Elements from row to row where a descriptor has no field for it."""
    s = w.s
    padded = s.and_(s.add(s.mul(width, form.bytes), str(PITCH_BYTES - 1)), str(-PITCH_BYTES))
    return w.out.emit(f"udiv i32 {padded}, {form.bytes}")


def addresses(w: Wave, image: Image, x: str, y: str, z: str) -> str:
    """Of elements; each coordinate a vector of i32."""
    o, s = w.v, w.s
    rows = s.mul(s.zext("i32", "i64", image.height), s.zext("i32", "i64", image.pitch), "i64")
    z = o.add(z, o.splat("i32", image.first))
    at = o.mul(o.sext("i32", "i64", z), o.splat("i64", rows), "i64")
    at = o.add(at, o.mul(o.sext("i32", "i64", y), o.splat("i64", s.zext("i32", "i64", image.pitch)), "i64"), "i64")
    at = o.add(at, o.sext("i32", "i64", x), "i64")
    at = o.mul(at, o.splat("i64", s.zext("i32", "i64", image.form.bytes)), "i64")
    return o.add(at, o.splat("i64", image.base), "i64")


@dataclass
class Parts:
    """An instruction's operands and modifiers."""

    kind: str
    data: Operand
    address: list[tuple[str, int]]  # registers
    resource: Operand
    sampler: Operand | None
    mask: int
    a16: bool
    d16: bool
    unnormalized: bool
    array: bool = False  # gfx9: layers are addressed


def image_parts(w: Wave, inst: Inst) -> Parts:
    ops = inst.operands
    take_policy(inst)
    inst.take("r128") if w.gfx == 9 else None
    first = next((k for k, op in enumerate(ops) if k and op.kind == "s"), len(ops) - 1)
    address = [("v", op.index + k) for op in ops[1:first] for k in range(op.count) if op.kind == "v"]
    a16, d16 = inst.take("a16") is not None, inst.take("d16") is not None
    array, unnormalized = inst.take("da") is not None, inst.take("unorm") is not None
    dimension = inst.take("dim")
    mask = int(inst.take("dmask") or "0", 0)
    if dimension is not None:
        kind = dimension.removeprefix("SQ_RSRC_IMG_")
    else:  # the resource says how many registers the address fills
        kind = "ANY" if w.gfx == 9 else ""
        address = [("v", address[0][1] + k) for k in range(min(4, 256 - address[0][1]))] if address else []
    if kind not in (*DIMENSIONS, "ANY") or not mask or not address or len(ops) <= first:
        raise w.fail(f"image dimension {kind or dimension}")
    sampler = ops[first + 1] if len(ops) > first + 1 else None
    return Parts(kind, ops[0], address, ops[first], sampler, mask, a16, d16, unnormalized, array)


def halves(w: Wave, registers: list[tuple[str, int]]) -> list[str]:
    o = w.v
    out = []
    for kind, index in registers:
        word = w.reg(kind, index)
        out += [o.and_(word, o.const("i32", 0xFFFF)), o.lshr(word, o.const("i32", 16))]
    return out


def integers(w: Wave, parts: Parts, more: int = 0) -> list[str]:
    """Integer coordinates and `more` numbers behind them."""
    n = DIMENSIONS.get(parts.kind, len(parts.address) - more) + more
    values = halves(w, parts.address) if parts.a16 else [w.reg(*r) for r in parts.address]
    if len(values) < n:
        raise w.fail(f"{len(values)} coordinates for {parts.kind}")
    return values[:n]


def place(w: Wave, parts: Parts, image: Image, values: list[str], t: str = "i32") -> tuple[str, str, str]:
    """x, y and slice (or layer) of coordinates; zeros for those that an image of its kind has not."""
    zero = w.v.const(t, 0)
    x, *rest = values[: DIMENSIONS.get(parts.kind, len(values))]
    if image.shape is not None:
        o, shape = w.v, image.shape
        second, third = (o.splat("i1", c) for c in (shape.strips, w.s.or_(shape.deep, shape.layered, "i1")))
        last = o.select(third, t, rest[1], zero)
        if parts.array:
            last = o.select(second, t, rest[0], last)
        else:  # layers that are not addressed are the first
            last = o.select(o.splat("i1", shape.deep), t, rest[1], zero)
        return x, o.select(o.splat("i1", shape.rows), t, rest[0], zero), last
    if parts.kind in ("1D", "1D_ARRAY"):
        return x, zero, rest[0] if rest else zero
    return x, rest[0], rest[1] if len(rest) > 1 else zero


def inside(w: Wave, image: Image, x: str, y: str, z: str) -> str:
    """The lanes (bits) that are on, and whose element is in the image."""
    o = w.v
    most = [image.width, image.height, w.s.add(image.last, "1") if image.last != "0" else "1"]
    inside = o.const("i1", 1)
    for value, size in zip((x, y, z), most):
        inside = o.and_(inside, o.icmp("ult", "i32", value, o.splat("i32", size)), "i1")
    return w.s.and_(w.to_bits(inside), w.exec_bits(), w.mask_type)


def write_results(w: Wave, parts: Parts, image: Image, values: list[str]) -> None:
    """Results to their registers; 16-bit ones two a register."""
    o = w.v
    if not parts.d16:
        if parts.data.count != len(values):
            raise w.fail(f"{parts.data.text} as {len(values)} dwords")
        for k, value in enumerate(values):
            w.write_reg(parts.data.kind, parts.data.index + k, value)
        return
    integer = o.splat("i1", image.form.integer)
    low = o.const("i32", 0xFFFF)
    halves = []
    for value in values:
        half = o.zext("i16", "i32", o.bitcast("f16", "i16", o.fptrunc("f32", "f16", o.bitcast("i32", "f32", value))))
        halves.append(o.select(integer, "i32", o.and_(value, low), half))
    for k in range(0, len(halves), 2):
        word = halves[k] if k + 1 == len(halves) else o.or_(halves[k], o.shl(halves[k + 1], o.const("i32", 16)))
        w.write_reg(parts.data.kind, parts.data.index + k // 2, word)
