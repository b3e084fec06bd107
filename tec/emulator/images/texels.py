"""Elements of images and typed buffers: fetched or stored lane by lane through the checked memory functions, and converted by their format.

The format is a number in a descriptor, so it is known at run time alone: `Format` reads its row of the table (`images.formats`), and the conversions, functions
beside the kernel's, take place, size and kind of a component as arguments. Conversions: the ISA manuals' data formats (normalized numbers as in OpenGL and D3D,
to nearest even, clamped; integers clamped on their way to memory; NaN to 0 where the format has none).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ..isa.memory import access, buffer_slot, get_data
from ..support.memory import ACCESSES
from ..translate.ops import LLVM_TYPE, Ops, Out
from ..translate.wave import Wave
from .formats import KINDS, table

NO_FORMAT = 43  # of `context.FAULTS`
_WIDTHS = {"u8": 1, "u16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16}
Body = Callable[..., str]


def helper(
    w: Wave, name: str, arguments: Sequence[tuple[str, bool]], result: str, body: Body, values: Sequence[str]
) -> str:
    """A call of a function beside the kernel's, which has no side effects. `arguments`: (type, whether it is one for all lanes); `body(ops, *values)` writes it once."""
    w_types = [LLVM_TYPE[t] if one else w.v.type(t) for t, one in arguments]
    full = f"tec_{name}_{w.lanes}"

    def make() -> str:
        out = Out("f")
        o = Ops(out, w.lanes)
        given = [o.splat(t, f"%a{i}") if one else f"%a{i}" for i, (t, one) in enumerate(arguments)]
        value = body(o, *given)
        head = f"define internal {o.type(result)} @{full}({', '.join(f'{t} %a{i}' for i, t in enumerate(w_types))}) {{"
        return "\n".join([*sorted(out.declares), head, *out.lines, f"  ret {o.type(result)} {value}", "}"])

    w.library(full, make)  # type: ignore[attr-defined]
    return w.out.emit(f"call {w.v.type(result)} @{full}({', '.join(f'{t} {v}' for t, v in zip(w_types, values))})")


class Format:
    """One format as a kernel sees it: scalars of its row."""

    def __init__(self, w: Wave, number: str, gfx: int | None = None):
        gfx = min(w.gfx if gfx is None else gfx, 11)
        rows = table(gfx)
        name = f"tec_formats_{gfx}"
        flat = ", ".join(f"i32 {x}" for row in rows for x in row)
        w.library(name, lambda: f"@{name} = internal constant [{6 * len(rows)} x i32] [{flat}]")  # type: ignore[attr-defined]
        known = w.s.icmp("ult", "i32", number, str(len(rows)))
        at = w.s.mul(w.s.select(known, "i32", number, "0"), "6")
        loaded = []
        for k in range(6):
            index = w.s.zext("i32", "i64", w.s.add(at, str(k)))
            loaded.append(w.out.emit(f"load i32, ptr {w.out.emit(f'getelementptr i32, ptr @{name}, i64 {index}')}"))
        self.bytes, integer, *self.fields = loaded
        self.integer = w.s.icmp("ne", "i32", integer, "0")
        w.fault_if(w.s.icmp("eq", "i32", self.bytes, "0"), NO_FORMAT)  # type: ignore[attr-defined]


def _by_width(w: Wave, nbytes: str, do: Callable[[str], None]) -> None:
    """`do(access)` for the access of so many bytes, a scalar."""
    done = w.out.fresh_label("moved")
    for what, n in _WIDTHS.items():
        yes, no = w.out.fresh_label("width"), w.out.fresh_label("other")
        w.out.put(f"br i1 {w.s.icmp('eq', 'i32', nbytes, str(n))}, label %{yes}, label %{no}")
        w.out.label(yes)
        do(what)
        w.out.put(f"br label %{done}")
        w.out.label(no)
    w.out.put(f"br label %{done}")
    w.out.label(done)


def fetch(w: Wave, form: Format, address: str, mask: str) -> list[str]:
    """The four components (i32: floats by their bits) of the elements at `address` in the lanes of `mask` (bits); 0 in others."""
    o, ty = w.v, w.v.type("i32")
    for k in range(4):
        w.out.put(f"store {ty} zeroinitializer, ptr {buffer_slot(w, k)}, align 64")
    _by_width(w, form.bytes, lambda what: access(w, "global", "ld", what, address, mask))
    on = w.from_bits(mask)
    words = [o.select(on, "i32", get_data(w, k), o.const("i32", 0)) for k in range(4)]
    signature = [("i32", False)] * 4 + [("i32", True)]
    return [helper(w, "unpack", signature, "i32", _unpack, [*words, field]) for field in form.fields]


def put(w: Wave, form: Format, values: Sequence[str], address: str, mask: str) -> None:
    """Store elements of four components."""
    o, ty = w.v, w.v.type("i32")
    for k in range(4):
        word = o.const("i32", 0)
        for value, field in zip(values, form.fields):
            part = helper(
                w,
                f"pack{k}",
                [("i32", False), ("i32", True)],
                "i32",
                lambda o, x, f, k=k: _pack(o, x, f, k),
                [value, field],
            )
            word = o.or_(word, part)
        w.out.put(f"store {ty} {word}, ptr {buffer_slot(w, k)}, align 64")
    _by_width(w, form.bytes, lambda what: access(w, "global", "st", what, address, mask))


def _parts(o: Ops, field: str) -> tuple[str, str, str]:
    """Place, size and kind out of a component's field."""
    c = o.const("i32", 255)
    return o.and_(field, c), o.and_(o.lshr(field, o.const("i32", 8)), c), o.lshr(field, o.const("i32", 16))


def _is(o: Ops, kind: str, name: str) -> str:
    return o.icmp("eq", "i32", kind, o.const("i32", KINDS[name]))


def _unpack(o: Ops, d0: str, d1: str, d2: str, d3: str, field: str) -> str:
    """A component of a texel as 32 bits, from the texel's four words and where `field` says it lies."""
    c = partial(o.const, "i32")
    place, size, kind = _parts(o, field)
    which = o.lshr(place, c(5))
    word = d0
    for k, d in ((1, d1), (2, d2), (3, d3)):
        word = o.select(o.icmp("eq", "i32", which, c(k)), "i32", d, word)
    none = o.icmp("eq", "i32", size, c(0))
    up = o.and_(o.sub(c(32), size), c(31))
    moved = o.shl(o.lshr(word, o.and_(place, c(31))), up)
    raw, whole = o.lshr(moved, up), o.ashr(moved, up)
    most = o.lshr(c(-1), up)
    unsigned, signed = o.cast("uitofp", "i32", "f32", raw), o.cast("sitofp", "i32", "f32", whole)
    bits = partial(o.bitcast, "f32", "i32")
    unorm = o.bin("fdiv", "f32", unsigned, o.cast("uitofp", "i32", "f32", most))
    snorm = o.bin("fdiv", "f32", signed, o.cast("uitofp", "i32", "f32", o.lshr(most, c(1))))
    snorm = o.select(o.fcmp("olt", "f32", snorm, o.const("f32", -1.0)), "f32", o.const("f32", -1.0), snorm)
    half = o.select(o.icmp("eq", "i32", size, c(11)), "i32", o.shl(raw, c(4)), raw)
    half = o.select(o.icmp("eq", "i32", size, c(10)), "i32", o.shl(raw, c(5)), half)
    small = o.fpext("f16", "f32", o.bitcast("i16", "f16", o.trunc("i32", "i16", half)))
    # The shared exponent of 5_9_9_9 lies in the top five bits, biased by 15, over mantissas of nine bits.
    scale = o.bitcast("i32", "f32", o.shl(o.add(o.lshr(d0, c(27)), c(127 - 24)), c(23)))
    value = raw
    for name, found in (("SINT", whole), ("UNORM", bits(unorm)), ("SNORM", bits(snorm)), ("USCALED", bits(unsigned)), ("SSCALED", bits(signed)),
                        ("SRGB", bits(_from_srgb(o, unorm))), ("SHARED", bits(o.bin("fmul", "f32", unsigned, scale)))):  # fmt: skip
        value = o.select(_is(o, kind, name), "i32", found, value)
    narrow = o.and_(_is(o, kind, "FLOAT"), o.icmp("ult", "i32", size, c(32)), "i1")
    value = o.select(narrow, "i32", bits(small), value)
    return o.select(none, "i32", c(0), value)


def _from_srgb(o: Ops, x: str) -> str:
    """IEC 61966-2-1: x / 12.92 up to 0.04045, then ((x + 0.055) / 1.055) ** 2.4, by the opcodes' 2**x and log2."""
    c = partial(o.const, "f32")
    low = o.bin("fdiv", "f32", x, c(12.92))
    base = o.bin("fdiv", "f32", o.bin("fadd", "f32", x, c(0.055)), c(1.055))
    power = o.helper("exp2", "f32", ("f32", o.bin("fmul", "f32", c(2.4), o.helper("log2", "f32", ("f32", base)))))
    return o.select(o.fcmp("ole", "f32", x, c(0.04045)), "f32", low, power)


def _clamped(o: Ops, x: str, low: str, high: str) -> str:
    x = o.select(o.fcmp("ogt", "f32", x, low), "f32", x, low)  # a NaN becomes the lower bound
    return o.select(o.fcmp("olt", "f32", x, high), "f32", x, high)


def _pack(o: Ops, value: str, field: str, dword: int) -> str:
    """A component's bits in their place, where that is in this dword; else 0."""
    c = partial(o.const, "i32")
    place, size, kind = _parts(o, field)
    up = o.and_(o.sub(c(32), size), c(31))
    most = o.lshr(c(-1), up)
    half_most = o.lshr(most, c(1))
    x = o.bitcast("i32", "f32", value)
    number = o.select(o.fcmp("uno", "f32", x, x), "f32", o.const("f32", 0.0), x)
    zero, one, minus = (o.const("f32", v) for v in (0.0, 1.0, -1.0))

    def whole(scaled: str, signed: bool) -> str:
        return o.cast("fptosi" if signed else "fptoui", "f32", "i32", o.call("roundeven", "f32", scaled))

    top, half_top = o.cast("uitofp", "i32", "f32", most), o.cast("uitofp", "i32", "f32", half_most)
    unorm = whole(o.bin("fmul", "f32", _clamped(o, number, zero, one), top), False)
    snorm = whole(o.bin("fmul", "f32", _clamped(o, number, minus, one), half_top), True)
    # 2**32 - 1 is no f32; sizes of scaled components end at 16 bits, so larger ones cannot come here.

    def sixteen(v: str) -> str:
        return o.select(o.icmp("ugt", "i32", size, c(16)), "f32", o.const("f32", 65535.0), v)

    uscaled = whole(_clamped(o, number, zero, sixteen(top)), False)
    sscaled = whole(
        _clamped(o, number, o.bin("fsub", "f32", o.fneg("f32", sixteen(half_top)), one), sixteen(half_top)), True
    )
    uint = o.call("umin", "i32", value, most)
    sint = o.call("smax", "i32", o.call("smin", "i32", value, half_most), o.sub(c(-1), half_most))
    half = o.zext("i16", "i32", o.bitcast("f16", "i16", o.fptrunc("f32", "f16", x)))
    # Floats of 11 and 10 bits have no sign: what is negative becomes 0, a NaN stays one.
    positive = o.fcmp("uge", "f32", x, zero)
    small = o.select(positive, "i32", half, c(0))
    half = o.select(o.icmp("eq", "i32", size, c(11)), "i32", o.lshr(small, c(4)), half)
    half = o.select(o.icmp("eq", "i32", size, c(10)), "i32", o.lshr(small, c(5)), half)
    packed = value
    for name, found in (
        ("UINT", uint),
        ("SINT", sint),
        ("UNORM", unorm),
        ("SNORM", snorm),
        ("USCALED", uscaled),
        ("SSCALED", sscaled),
    ):
        packed = o.select(_is(o, kind, name), "i32", found, packed)
    narrow = o.and_(_is(o, kind, "FLOAT"), o.icmp("ult", "i32", size, c(32)), "i1")
    packed = o.and_(o.select(narrow, "i32", half, packed), most)
    here = o.and_(o.icmp("eq", "i32", o.lshr(place, c(5)), c(dword)), o.icmp("ne", "i32", size, c(0)), "i1")
    return o.select(here, "i32", o.shl(packed, o.and_(place, c(31))), c(0))


def choose(w: Wave, form: Format, components: Sequence[str], select: str) -> str:
    """A result by a descriptor's DST_SEL: 0, 1, or a component (4 to 7)."""
    o, s = w.v, w.s
    one = o.splat("i32", s.select(form.integer, "i32", "1", str(0x3F800000)))
    value = o.select(o.splat("i1", s.icmp("eq", "i32", select, "1")), "i32", one, o.const("i32", 0))
    for k, component in enumerate(components):
        value = o.select(o.splat("i1", s.icmp("eq", "i32", select, str(4 + k))), "i32", component, value)
    return value


assert all(n == ACCESSES[what][0] for what, n in _WIDTHS.items())
