"""Image opcodes with a sampler (S#): image_sample and image_gather4.

Sources: the ISA manuals' "Image sampler definition", "Image opcodes with a sampler" (addressing modes, order of addresses and of gather4's results).
Coordinates have eight fraction bits, as have a filter's weights: RADV gives subTexelPrecisionBits = 8 for these chips. What no source says: the order and
precision of a filter's sum (here f32, fused, in the order of the elements), and the element at a cube's corner (here the edge's; hardware averages three).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..decode.inst import Inst, Operand
from ..isa.table import custom
from ..translate.ops import Ops
from ..translate.wave import Wave
from .descriptors import SAMPLER
from .operands import (
    DIMENSIONS,
    SAMPLING,
    Image,
    Parts,
    addresses,
    halves,
    image_parts,
    place,
    read_field,
    read_image,
    write_results,
)
from .texels import choose, fetch, helper


@dataclass
class Sampler:
    """A sampler in SGPRs, as scalars."""

    clamps: list[str]
    unnormalized: str
    truncate: str
    magnify: str
    minify: str
    z_filter: str
    border: str
    compare: str
    seams: str


def _sampler(w: Wave, op: Operand | None) -> Sampler:
    if op is None or op.kind != "s" or op.count != 4:
        raise w.fail("a sample without a sampler")

    def read(name: str) -> str:
        return read_field(w, op.index, SAMPLER, name)

    aniso = w.s.and_(w.s.icmp("ne", "i32", read("aniso"), "0"), w.s.icmp("ugt", "i32", read("minify"), "1"), "i1")
    bad = w.s.or_(aniso, w.s.icmp("eq", "i32", read("border"), "3"), "i1")
    w.fault_if(bad, SAMPLING)  # type: ignore[attr-defined]
    return Sampler([read(f"clamp_{c}") for c in "xyz"], read("unnormalized"), read("truncate"), w.s.and_(read("magnify"), "1"),
                   w.s.and_(read("minify"), "1"), read("z_filter"), read("border"), read("compare"), w.s.icmp("eq", "i32", read("no_cube_wrap"), "0"))  # fmt: skip


def _fixed(o: Ops, x: str, size: str, mode: str, normal: str, truncate: str) -> str:
    """A coordinate in 256ths of an element, near the image: what wraps or mirrors is brought there first."""
    c = partial(o.const, "f64")
    wide = o.fpext("f32", "f64", x)
    wide = o.select(o.fcmp("uno", "f64", wide, wide), "f64", c(0.0), wide)
    extent = o.cast("uitofp", "i32", "f64", size)
    turn = o.select(normal, "f64", c(1.0), extent)
    period = o.select(o.icmp("eq", "i32", mode, o.const("i32", 1)), "f64", o.bin("fmul", "f64", turn, c(2.0)), turn)
    turns = o.call("floor", "f64", o.bin("fdiv", "f64", wide, period))
    repeated = o.bin("fsub", "f64", wide, o.bin("fmul", "f64", turns, period))
    wide = o.select(o.icmp("ult", "i32", mode, o.const("i32", 2)), "f64", repeated, wide)
    scaled = o.bin("fmul", "f64", wide, o.select(normal, "f64", o.bin("fmul", "f64", extent, c(256.0)), c(256.0)))
    rounded = o.select(truncate, "f64", o.call("floor", "f64", scaled), o.call("roundeven", "f64", scaled))
    rounded = o.select(o.fcmp("olt", "f64", rounded, c(-(2.0**30))), "f64", c(-(2.0**30)), rounded)
    rounded = o.select(o.fcmp("ogt", "f64", rounded, c(2.0**30)), "f64", c(2.0**30), rounded)
    # Half a border: elements beyond the edge come in by half at most.
    most = o.shl(size, o.const("i32", 8))
    whole = o.cast("fptosi", "f64", "i32", rounded)
    folded = o.select(o.icmp("eq", "i32", mode, o.const("i32", 5)), "i32", o.call("abs", "i32", whole), whole)
    held = o.call("smax", "i32", o.call("smin", "i32", folded, most), o.const("i32", 0))
    half = o.or_(o.icmp("eq", "i32", mode, o.const("i32", 4)), o.icmp("eq", "i32", mode, o.const("i32", 5)), "i1")
    return o.select(half, "i32", held, whole)


def _wrapped(o: Ops, i: str, size: str, mode: str) -> str:
    """An element's index by the addressing mode; -1 is the border."""
    c = partial(o.const, "i32")

    def is_(v: int) -> str:
        return o.icmp("eq", "i32", mode, c(v))

    period = o.select(is_(1), "i32", o.shl(size, c(1)), size)
    turns = o.cast("fptosi", "f64", "i32", o.call("floor", "f64", o.bin("fdiv", "f64", o.cast("sitofp", "i32", "f64", i), o.cast("sitofp", "i32", "f64", period))))  # fmt: skip
    rest = o.sub(i, o.mul(turns, period))  # exact: both are below 2**53
    mirrored = o.select(o.icmp("sge", "i32", rest, size), "i32", o.sub(o.sub(period, c(1)), rest), rest)
    once = o.or_(is_(3), is_(7), "i1")
    start = o.select(o.and_(once, o.icmp("slt", "i32", i, c(0)), "i1"), "i32", o.sub(c(-1), i), i)
    last = o.sub(size, c(1))
    held = o.call("smax", "i32", o.call("smin", "i32", start, last), c(0))
    outside = o.or_(o.icmp("slt", "i32", start, c(0)), o.icmp("sgt", "i32", start, last), "i1")
    bordered = o.select(outside, "i32", c(-1), start)
    value = o.select(is_(1), "i32", mirrored, rest)
    value = o.select(o.icmp("uge", "i32", mode, c(2)), "i32", held, value)
    return o.select(o.icmp("uge", "i32", mode, c(4)), "i32", bordered, value)


def _over_edge(pick: str) -> Callable[..., str]:
    """Column, row or face of an element one beyond the edge of a cube's face, where it lies on the next."""

    def body(o: Ops, i: str, j: str, face: str, n: str) -> str:
        c = partial(o.const, "i32")

        def neg(x: str) -> str:
            return o.sub(c(0), x)

        def absolute(x: str) -> str:
            return o.call("smax", "i32", x, neg(x))

        def centre(k: str) -> str:  # in half elements from the middle
            return o.sub(o.add(o.shl(k, c(1)), c(1)), n)

        inner = o.sub(n, c(1))
        s, t = centre(i), centre(j)
        over_s = o.icmp("sgt", "i32", absolute(s), n)
        t = o.select(over_s, "i32", o.call("smax", "i32", o.call("smin", "i32", t, inner), neg(inner)), t)
        over = o.or_(over_s, o.icmp("sgt", "i32", absolute(t), n), "i1")
        s, t = (o.call("smax", "i32", o.call("smin", "i32", v, n), neg(n)) for v in (s, t))
        m = o.select(over, "i32", inner, n)
        rows = [
            (m, neg(t), neg(s)),
            (neg(m), neg(t), s),
            (s, m, t),
            (s, neg(m), neg(t)),
            (s, neg(t), m),
            (neg(s), neg(t), neg(m)),
        ]
        x, y, z = rows[0]
        for k, row in enumerate(rows[1:], 1):
            here = o.icmp("eq", "i32", face, c(k))
            x, y, z = (o.select(here, "i32", a, b) for a, b in zip(row, (x, y, z)))
        ax, ay, az = (absolute(v) for v in (x, y, z))
        by_z = o.and_(o.icmp("sge", "i32", az, ax), o.icmp("sge", "i32", az, ay), "i1")
        by_y = o.icmp("sge", "i32", ay, ax)

        def sign(v: str, minus: str, plus: str) -> str:
            return o.select(o.icmp("slt", "i32", v, c(0)), "i32", minus, plus)

        on = {
            "face": (sign(z, c(5), c(4)), sign(y, c(3), c(2)), sign(x, c(1), c(0))),
            "column": (sign(z, neg(x), x), x, sign(x, z, neg(z))),
            "row": (neg(y), sign(y, neg(z), z), neg(y)),
        }[pick]
        found = o.select(by_z, "i32", on[0], o.select(by_y, "i32", on[1], on[2]))
        if pick != "face":
            found = o.ashr(o.add(found, inner), c(1))
        return o.select(over, "i32", found, {"face": face, "column": i, "row": j}[pick])

    return body


_SAMPLE = re.compile(r"image_(?:sample|gather4)(_c)?(_cd|_d|_l|_b|_lz)?(_cl)?(_o)?(_g16)?$")


@dataclass
class Where:
    """A sample's address: coordinates as f32, in the order of the instruction."""

    body: list[str]
    offsets: str = ""
    reference: str = ""
    level: str = ""


def _where(w: Wave, kind: str, parts: Parts, form: re.Match[str]) -> Where:
    """Offsets, bias, reference, derivatives, coordinates, level or clamp: in this order."""
    o, rest = w.v, list(parts.address)
    n = DIMENSIONS.get(kind, 3)
    found = Where([])
    if form[4]:
        found.offsets = w.reg(*rest.pop(0))
    if form[2] == "_b":
        rest.pop(0)
    if form[1]:
        found.reference = w._typed(*rest.pop(0), "f32")
    if form[2] in ("_d", "_cd"):
        axes = {"1D": 1, "1D_ARRAY": 1, "3D": 3}.get(kind, 2)
        small = bool(form[5]) or (parts.a16 and w.gfx == 9)
        del rest[: 2 * ((axes + 1) // 2 if small else axes)]
    if parts.a16:
        values = [o.fpext("f16", "f32", o.bitcast("i16", "f16", o.trunc("i32", "i16", h))) for h in halves(w, rest)]
    else:
        values = [w._typed(*r, "f32") for r in rest]
    if len(values) < n + (form[2] == "_l"):
        raise w.fail(f"{len(values)} coordinates for {kind}")
    found.body = values[:n]
    if form[2] == "_l":
        found.level = values[n]
    return found


def _linear(w: Wave, sampler: Sampler, form: re.Match[str], where: Where) -> str:
    """The lanes (i1) whose filter is linear. Whether an image is made larger or smaller is known where the level is given alone."""
    o, s = w.v, w.s
    if form[2] == "_lz":
        return o.splat("i1", s.icmp("ne", "i32", sampler.magnify, "0"))
    if where.level:
        smaller = o.fcmp("ogt", "f32", where.level, o.const("f32", 0.0))
        chosen = o.select(smaller, "i32", o.splat("i32", sampler.minify), o.splat("i32", sampler.magnify))
        return o.icmp("ne", "i32", chosen, o.const("i32", 0))
    w.fault_if(s.icmp("ne", "i32", sampler.magnify, sampler.minify), SAMPLING)  # type: ignore[attr-defined]
    return o.splat("i1", s.icmp("ne", "i32", sampler.magnify, "0"))


def _axis(
    w: Wave, x: str, size: str, mode: str, sampler: Sampler, normal: str, linear: str, offset: str
) -> tuple[list[str], str]:
    """(the indices of the two elements next to a coordinate, the weight of the second in 256ths)."""
    o = w.v
    one = [("f32", False), *[("i32", True)] * 2, *[("i1", True)] * 2]
    truncate = w.s.icmp("ne", "i32", sampler.truncate, "0")
    fixed = helper(w, "fixed", one, "i32", _fixed, [x, size, mode, normal, truncate])
    fixed = o.select(linear, "i32", o.sub(fixed, o.const("i32", 128)), fixed)
    weight = o.select(linear, "i32", o.and_(fixed, o.const("i32", 255)), o.const("i32", 0))
    first = o.ashr(fixed, o.const("i32", 8))
    if offset:
        first = o.add(first, offset)
    second = o.add(first, o.const("i32", 1))
    signature = [("i32", False), ("i32", True), ("i32", True)]
    return [helper(w, "wrapped", signature, "i32", _wrapped, [i, size, mode]) for i in (first, second)], weight


def _layer(w: Wave, value: str, last: str) -> str:
    """A layer's number: to nearest even, held within the image."""
    o = w.v
    near = o.call("roundeven", "f32", o.select(o.fcmp("uno", "f32", value, value), "f32", o.const("f32", 0.0), value))
    near = o.call("maxnum", "f32", o.call("minnum", "f32", near, o.const("f32", 16384.0)), o.const("f32", 0.0))
    return o.call("smin", "i32", o.cast("fptosi", "f32", "i32", near), o.splat("i32", last))


@dataclass
class Taps:
    """The elements next to a sample: two columns, rows and slices each, the weights of the second ones in 256ths ("": there is one alone), and of a cube (an
    i1 for all lanes) the face and the indices beyond its edges."""

    columns: list[str]
    rows: list[str]
    slices: list[str]
    weights: tuple[str, str, str]
    cube: str = ""
    face: str = ""
    beyond: tuple[list[str], list[str]] = ([], [])


def _slices(w: Wave, image: Image, kind: str, z: str, cube: str) -> tuple[str, str]:
    """(layer, face) of a layered image's last coordinate; a cube's counts eight a cube."""
    o = w.v
    layer = face = o.const("i32", 0)
    if not z or kind == "3D":
        return layer, face
    layer = _layer(w, z, image.last)
    if cube:
        number = _layer(w, z, "16384")
        face = o.and_(number, o.const("i32", 7))
        before = o.mul(o.lshr(number, o.const("i32", 3)), o.const("i32", 6))
        layer = o.select(cube, "i32", before, layer)
    return layer, face


def _taps(w: Wave, parts: Parts, image: Image, sampler: Sampler, where: Where, linear: str) -> Taps:
    """Which texels a sample reads, with their weights: by the coordinates, how they wrap, and whether neighbours are mixed (`linear`)."""
    o, s, kind = w.v, w.s, parts.kind
    normal = "false" if parts.unnormalized else s.icmp("eq", "i32", sampler.unnormalized, "0")
    x, *rest = where.body
    y = rest[0] if rest and kind != "1D_ARRAY" else ""
    z = rest[-1] if kind in ("3D", "CUBE", "1D_ARRAY", "2D_ARRAY") else ""
    if kind == "ANY":
        x, y, z = place(w, parts, image, where.body, "f32")
    modes, cube = list(sampler.clamps), o.splat("i1", image.cube) if image.cube != "false" else ""
    if cube:  # faces hold coordinates from 1 to 2, and beyond their edges their neighbours'
        modes[:2] = [s.select(image.cube, "i32", "2", m) for m in modes[:2]]
        x, y = (o.select(cube, "f32", o.bin("fsub", "f32", v, o.const("f32", 1.0)), v) for v in (x, y))
    layer, face = _slices(w, image, kind, z, cube)

    def offset(k: int) -> str:
        if not where.offsets:
            return ""
        return o.ashr(o.shl(where.offsets, o.const("i32", 26 - 8 * k)), o.const("i32", 26))

    columns, a = _axis(w, x, image.width, modes[0], sampler, normal, linear, offset(0))
    rows, b = [o.const("i32", 0)] * 2, ""
    if y:
        rows, b = _axis(w, y, image.height, modes[1], sampler, normal, linear, offset(1))
    slices, c = [layer] * 2, ""
    if kind in ("3D", "ANY"):
        deep = o.and_(linear, o.splat("i1", s.icmp("ne", "i32", sampler.z_filter, "1")), "i1")
        deep = o.or_(deep, o.splat("i1", s.icmp("eq", "i32", sampler.z_filter, "2")), "i1")
        slices, c = _axis(w, z, s.add(image.last, "1"), modes[2], sampler, normal, deep, offset(2))
    if image.shape is not None:
        none = o.const("i32", 0)
        has_rows, is_deep = (o.splat("i1", f) for f in (image.shape.rows, image.shape.deep))
        rows, b = [o.select(has_rows, "i32", r, none) for r in rows], o.select(has_rows, "i32", b, none)
        slices, c = [o.select(is_deep, "i32", k, layer) for k in slices], o.select(is_deep, "i32", c, none)
    taps = Taps(columns, rows, slices, (a, b, c), cube, face)
    if cube:
        first, second = (_unheld(w, v, image.width, sampler, normal, linear, offset(k)) for k, v in enumerate((x, y)))
        taps.beyond = first, second
    return taps


def _corner(w: Wave, image: Image, sampler: Sampler, taps: Taps, i: int, j: int, d: int) -> tuple[str, str, str]:
    """Column, row and slice of one element; of a cube's, over its edges."""
    o = w.v
    column, row, layer = taps.columns[i], taps.rows[j], taps.slices[d]
    if not taps.cube:
        return column, row, layer
    args = [taps.beyond[0][i], taps.beyond[1][j], taps.face, o.splat("i32", image.width)]
    onto = [helper(w, f"edge_{p}", [("i32", False)] * 4, "i32", _over_edge(p), args) for p in ("column", "row", "face")]
    wraps = o.and_(taps.cube, o.splat("i1", sampler.seams), "i1")
    column, row = o.select(wraps, "i32", onto[0], column), o.select(wraps, "i32", onto[1], row)
    layer = o.select(taps.cube, "i32", o.add(layer, o.select(wraps, "i32", onto[2], taps.face)), layer)
    return column, row, o.call("smin", "i32", layer, o.splat("i32", image.last))


def _weight(w: Wave, taps: Taps, corner: tuple[int, int, int]) -> str:
    o = w.v
    weight = o.const("f32", 1.0)
    for bit, share in zip(corner, taps.weights):
        if share:
            part = share if bit else o.sub(o.const("i32", 256), share)
            scaled = o.bin("fmul", "f32", o.cast("uitofp", "i32", "f32", part), o.const("f32", 1 / 256))
            weight = o.bin("fmul", "f32", weight, scaled)
    return weight


def _sample(w: Wave, inst: Inst) -> None:
    """A sample, or four texels of one channel (gather4): where it reads, its taps, and their sum."""
    form = _SAMPLE.match(inst.op)
    assert form is not None
    o, gather = w.v, "gather4" in inst.op
    parts = image_parts(w, inst)
    if parts.kind == "ANY" and form[0] != "image_sample":
        raise w.fail(f"{form[0]} that names no dimension")
    image, sampler = read_image(w, inst, parts.resource, parts.kind), _sampler(w, parts.sampler)
    where = _where(w, parts.kind, parts, form)
    if gather:
        linear = o.const("i1", 1)
    else:
        floats = o.splat("i1", w.s.not_(image.form.integer, "i1"))
        linear = o.and_(_linear(w, sampler, form, where), floats, "i1")
    taps = _taps(w, parts, image, sampler, where, linear)
    border = [_border(w, image, sampler, k) for k in range(4)]
    sums = [o.const("f32", 0.0)] * 4
    found: list[list[str]] = []
    for k in range(8 if taps.weights[2] else 4 if taps.weights[1] else 2):
        corner = k & 1, k >> 1 & 1, k >> 2
        weight = _weight(w, taps, corner)
        needed = o.const("i1", 1) if gather else o.fcmp("one", "f32", weight, o.const("f32", 0.0))
        found.append(_texel(w, image, border, needed, *_corner(w, image, sampler, taps, *corner), where, sampler))
        terms = [o.select(needed, "f32", o.bitcast("i32", "f32", t), o.const("f32", 0.0)) for t in found[-1]]
        sums = [o.fma("f32", weight, t, acc) for t, acc in zip(terms, sums)]
    if gather:
        which = (parts.mask & -parts.mask).bit_length() - 1
        values = [choose(w, image.form, found[k], image.select[which]) for k in (2, 3, 1, 0)]
    else:  # one element alone, of whatever kind, comes as it is
        components = [o.select(linear, "i32", o.bitcast("f32", "i32", v), t) for v, t in zip(sums, found[0])]
        values = [choose(w, image.form, components, image.select[k]) for k in range(4) if parts.mask >> k & 1]
    write_results(w, parts, image, values)


def _unheld(w: Wave, x: str, size: str, sampler: Sampler, normal: str, linear: str, offset: str) -> list[str]:
    """Indices on a cube's face, one beyond its edges at most."""
    o = w.v
    truncate = w.s.icmp("ne", "i32", sampler.truncate, "0")
    one = [("f32", False), *[("i32", True)] * 2, *[("i1", True)] * 2]
    fixed = helper(w, "fixed", one, "i32", _fixed, [x, size, "2", normal, truncate])
    most = o.sub(o.shl(o.splat("i32", size), o.const("i32", 8)), o.const("i32", 1))
    fixed = o.call("smax", "i32", o.call("smin", "i32", fixed, most), o.const("i32", 0))
    fixed = o.select(linear, "i32", o.sub(fixed, o.const("i32", 128)), fixed)
    first = o.ashr(fixed, o.const("i32", 8))
    first = o.add(first, offset) if offset else first
    return [first, o.add(first, o.const("i32", 1))]


def _border(w: Wave, image: Image, sampler: Sampler, k: int) -> str:
    """A component of the border's colour."""
    s = w.s
    one = s.select(image.form.integer, "i32", "1", str(0x3F800000))
    shown = s.icmp("uge", "i32", sampler.border, "1" if k == 3 else "2")
    return w.v.splat("i32", s.select(shown, "i32", one, "0"))


def _texel(
    w: Wave, image: Image, border: list[str], needed: str, x: str, y: str, z: str, where: Where, sampler: Sampler
) -> list[str]:
    o = w.v
    c0 = o.const("i32", 0)
    inside = o.icmp("sge", "i32", o.or_(o.or_(x, y), z), c0)
    mask = w.s.and_(w.to_bits(o.and_(inside, needed, "i1")), w.exec_bits(), w.mask_type)
    found = fetch(w, image.form, addresses(w, image, x, y, z), mask)
    texel = [o.select(inside, "i32", f, e) for f, e in zip(found, border)]
    if where.reference:
        passed = helper(w, "compared", [("f32", False), ("f32", False), ("i32", True)], "i32", _compared,
                        [where.reference, o.bitcast("i32", "f32", texel[0]), sampler.compare])  # fmt: skip
        texel = [passed, *texel[1:]]
    return texel


def _compared(o: Ops, reference: str, depth: str, which: str) -> str:
    """1.0 where the reference stands to the depth as the sampler's function asks."""
    passed = o.icmp("eq", "i32", which, o.const("i32", 7))
    for k, predicate in enumerate(("olt", "oeq", "ole", "ogt", "one", "oge"), 1):
        here = o.and_(o.icmp("eq", "i32", which, o.const("i32", k)), o.fcmp(predicate, "f32", reference, depth), "i1")
        passed = o.or_(passed, here, "i1")
    return o.select(passed, "i32", o.const("i32", 0x3F800000), o.const("i32", 0))


_LEVELS = ("", "_d", "_l", "_b", "_lz", "_cd")
SAMPLES = [
    f"image_{what}{c}{level}{clamp}{offset}{g16}"
    for what in ("sample", "gather4") for c in ("", "_c") for level in _LEVELS for clamp in ("", "_cl") for offset in ("", "_o") for g16 in ("", "_g16")
    if not (clamp and level in ("_l", "_lz")) and not (g16 and level not in ("_d", "_cd")) and not (what == "gather4" and level in ("_d", "_cd"))
]  # fmt: skip
for _name in SAMPLES:
    custom(_name, "vmem")(_sample)
