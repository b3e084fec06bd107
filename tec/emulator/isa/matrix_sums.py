"""How matrix instructions sum: the rules of AMD's chips to the bit, as LLVM IR that computes 16 (or 64) results at a time.

Source: P. Xie, Y. Wang, F. Yang, M. Yang, "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores" (arXiv 2511.10909), found on the
hardware by probes and held against it by random products. Of the chips here it covers gfx90a and gfx942:

- f32 and f64: one fma a k, in order of k.
- gfx90a, f16 and bf16: denormals are zero everywhere. Products are exact, added pairwise in groups of four (bf16 without _1k: two), and the
  group's sum to the accumulator; each sum is rounded to nearest.
- gfx942, f16, bf16 (groups of 8 k) and xf32 (4): a group's products are aligned to the largest exponent among them (the sum of the factors'
  exponents, not the product's own) and cut toward zero to 24 bits behind the point; their sum and the accumulator are aligned to the larger
  exponent, the accumulator cut downward (floor) to 24 bits behind the point; the total is cut downward to 32 bits and rounded to nearest
  even. Denormals count with the least normal exponent. A product of 2**128 or more is infinite.
- gfx942, 8-bit floats (groups of 16): the even and the odd k as above, each by itself; both sums are aligned downward to the larger exponent. An accumulator
  more than 25 places below vanishes.

No one has published gfx950's and RDNA's rules: there it is one fma a k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..translate.ops import Ops

POINT = 24  # bits behind the point of aligned terms
_TOTAL = 31  # and of the total, behind its leading one
_FINE = 28  # further bits that a sum of products keeps when it is shifted: 52 behind the point, a double's
_ROOM = 5  # powers of two by which an accumulator may exceed the products' exponent and is counted in their units
_FURTHEST = 22  # of further ones beyond that (an infinity's are more, with factors of safe size)
_SAFE = 42  # exponents of factors up to which products and their scales stay within f32, and sums of two within a byte, above those with that of a zero
_ZERO = -128  # the exponent of a zero, as a byte


@dataclass(frozen=True, slots=True)
class Rule:
    """`kind`: "fma", "pairs", "aligned" or "bytes"; `group`: how many k are summed before the accumulator takes part."""

    kind: str
    group: int = 1


FMA = Rule("fma")


def rule_of(chip: str, out: str, source: str, one_k: bool, numerics: str = "chip") -> Rule:
    """The rule of an instruction with results of type `out` and elements of type `source` ("f16", "fp8_bf8", ...). `one_k`: bf16 in its _1k form."""
    first = source.partition("_")[0]
    if numerics == "fma" or out != "f32" or first == "f32":
        return FMA
    if chip == "gfx90a" and first in ("f16", "bf16"):
        return Rule("pairs", 4 if first == "f16" or one_k else 2)
    if chip == "gfx942":
        if first in ("fp8", "bf8"):
            return Rule("bytes", 16)
        return Rule("aligned", 4 if first == "xf32" else 8)
    return FMA


@dataclass(frozen=True, slots=True)
class Group:
    """The factors of the k that are summed at once, f32, and words of their exponents as bytes, four k each (`exponents`)."""

    factors: list[tuple[str, str]]
    exponents: list[tuple[str, str]]


def exponent(o: Ops, value: str, least: int) -> str:
    """The exponent of an f32 that is not 0, at least `least`."""
    bits = o.and_(o.bitcast("f32", "i32", value), o.const("i32", 0x7F800000))
    raised = o.call("umax", "i32", bits, o.const("i32", (127 + least) << 23))
    return o.sub(o.lshr(raised, o.const("i32", 23)), o.const("i32", 127))


def exponents(o: Ops, values: list[str], least: int) -> list[str]:
    """Words of the exponents of four values each, the first in the lowest byte; two values twice in one word."""
    words = []
    for first in range(0, len(values), 4):
        word = ""
        for i, value in enumerate((values[first : first + 4] * 4)[:4]):
            zero = o.fcmp("oeq", "f32", value, o.const("f32", 0.0))
            own = o.select(zero, "i32", o.const("i32", _ZERO), exponent(o, value, least))
            byte = o.shl(o.and_(own, o.const("i32", 255)), o.const("i32", 8 * i))
            word = o.or_(word, byte) if word else byte
        words.append(word)
    return words


LEAST = {"f16": -14, "bf16": -126, "xf32": -126, "fp8": -7, "bf8": -15}  # of normal numbers; FNUZ, which gfx942 has


def unsafe(o: Ops, value: str) -> str:
    """Lanes whose factor is not finite, or so large or small that f32 arithmetic on products may leave its range."""
    bits = o.and_(o.bitcast("f32", "i32", value), o.const("i32", 0x7FFFFFFF))
    low = o.sub(bits, o.const("i32", (127 - _SAFE) << 23))
    out = o.icmp("ugt", "i32", low, o.const("i32", 2 * _SAFE << 23))
    return o.and_(out, o.icmp("ne", "i32", bits, o.const("i32", 0)), "i1")


def sums(o: Ops, rule: Rule, acc: str, groups: list[Group], careful: int | None) -> str:
    """acc + the groups' products under the rule. `careful`: the least exponent of the factors' normal numbers, for factors of any size and kind (`unsafe`)."""
    for group in groups:
        if rule.kind == "pairs":
            products = [_flush(o, o.bin("fmul", "f32", a, b)) for a, b in group.factors]
            acc = _flush(o, o.bin("fadd", "f32", acc, _pairwise(o, products)))
            continue
        if rule.kind == "bytes":
            new = _bytes(o, acc, group)
        else:
            new = _aligned(o, acc, group) if careful is None else _aligned_wide(o, acc, group, careful)
        if careful is not None:  # what is not finite goes its own way
            values = [acc, *(o.bin("fmul", "f32", a, b) for a, b in group.factors)]
            extremes = [o.select(_finite(o, x), "f32", o.const("f32", 0.0), x) for x in values]
            plain, ordinary = extremes[0], _finite(o, acc)
            for x, extreme in zip(values[1:], extremes[1:]):
                plain = o.bin("fadd", "f32", plain, extreme)
                ordinary = o.and_(ordinary, _finite(o, x), "i1")
            new = o.select(ordinary, "f32", new, plain)
        acc = new
    return acc


def _finite(o: Ops, value: str) -> str:
    return o.fcmp("olt", "f32", o.call("fabs", "f32", value), o.const("f32", float("inf")))


def flush_positive(o: Ops, value: str) -> str:
    """f32 with denormals as +0."""
    bits = o.bitcast("f32", "i32", value)
    small = o.icmp("eq", "i32", o.and_(bits, o.const("i32", 0x7F800000)), o.const("i32", 0))
    return o.select(small, "f32", o.const("f32", 0.0), value)


def _flush(o: Ops, value: str) -> str:
    """f32 with denormals as zeros of their sign."""
    bits = o.bitcast("f32", "i32", value)
    small = o.icmp("eq", "i32", o.and_(bits, o.const("i32", 0x7F800000)), o.const("i32", 0))
    zero = o.bitcast("i32", "f32", o.and_(bits, o.const("i32", -(2**31))))
    return o.select(small, "f32", zero, value)


def _pairwise(o: Ops, values: list[str]) -> str:
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return _flush(o, o.bin("fadd", "f32", _pairwise(o, values[:half]), _pairwise(o, values[half:])))


def _on_bytes(o: Ops, name: str, a: str, b: str) -> str:
    """Two words, by an operation on each of their four bytes."""
    wide, full = f"<{4 * o.lanes} x i8>", f"@llvm.{name}.v{4 * o.lanes}i8"
    o.out.declares.add(f"declare {wide} {full}({wide}, {wide})")
    first, second = (o.out.emit(f"bitcast {o.type('i32')} {x} to {wide}") for x in (a, b))
    return o.out.emit(
        f"bitcast {wide} {o.out.emit(f'call {wide} {full}({wide} {first}, {wide} {second})')} to {o.type('i32')}"
    )


def _highest(o: Ops, group: Group, halves: bool = False) -> list[str]:
    """The largest exponent of the products, by their factors' exponents, in the highest byte of a word whose others are 0; below twice -`_SAFE` where all are zeros.
    `halves`: that of the even k and that of the odd ones."""
    found = [_on_bytes(o, "sadd.sat", a, b) for a, b in group.exponents]
    most = _in_pairs(found, lambda x, y: _on_bytes(o, "smax", x, y))
    most = _on_bytes(o, "smax", most, o.shl(most, o.const("i32", 16)))
    lower = o.shl(most, o.const("i32", 8))
    words = [lower, most] if halves else [_on_bytes(o, "smax", most, lower)]
    return [o.and_(word, o.const("i32", 255 << 24)) for word in words]


def _as_power(o: Ops, highest: str) -> str:
    """The bits of two to an exponent of `_highest`, as f32."""
    return o.add(o.ashr(highest, o.const("i32", 1)), o.const("i32", 127 << 23))


def _no_product(o: Ops, highest: str) -> str:
    return o.icmp("slt", "i32", highest, o.const("i32", -2 * _SAFE << 24))


def _in_pairs(values: list[str], join: Callable[[str, str], str]) -> str:
    """A reduction whose order does not matter, in the shortest chain."""
    while len(values) > 1:
        joined = [join(x, y) for x, y in zip(values[::2], values[1::2])]
        values = joined + values[2 * len(joined) :]
    return values[0]


def _scaled(o: Ops, factors: list[tuple[str, str]], scale: str) -> str:
    """The sum of the products times `scale`, each cut to an i32."""
    cuts = [o.cast("fptosi", "f32", "i32", o.bin("fmul", "f32", o.bin("fmul", "f32", a, b), scale)) for a, b in factors]
    return _in_pairs(cuts, o.add)


def _cut(o: Ops, factors: list[tuple[str, str]], highest: str) -> tuple[str, str]:
    """(sum of the products cut to `POINT` bits behind the point, as i32; the exponent they are aligned to, biased; 0 where all are 0)."""
    # of no product but zeros anything finite does
    bits = o.select(_no_product(o, highest), "i32", o.const("i32", 127 << 23), _as_power(o, highest))
    scale = o.bitcast("i32", "f32", o.sub(o.const("i32", (254 + POINT) << 23), bits))
    exponent = o.select(_no_product(o, highest), "i32", o.const("i32", 0), o.lshr(bits, o.const("i32", 23)))
    return _scaled(o, factors, scale), exponent


def _aligned(o: Ops, acc: str, group: Group) -> str:
    """One group under "aligned", in 32-bit integers.

    In units of 2**(exponent - POINT), where the exponent is the products' largest, the products are integers below 2**26 and their sum is below 2**29. An accumulator
    of up to 2**30 units is cut downward to one. Of a larger one, which is a multiple of more units, all is counted in units that many times as large, 2**shift, so
    that it is below 2**30 again: the sum of the products is cut downward to those, and what is lost (as 32 bits behind the point) counts as far
    as the rule keeps it: 31 bits behind the leading one of the total. There it is behind all that the rounding to f32 keeps, so that it only matters whether it is 0. Larger
    accumulators, infinities among them, go by `_with_accumulator`. Where all products are zeros the accumulator stays, but for -0, as no integer is one.
    """
    out = o.out
    highest = _highest(o, group)[0]
    bits = _as_power(o, highest)
    scale = o.bitcast("i32", "f32", o.sub(o.const("i32", (254 + POINT) << 23), bits))
    total = _scaled(o, group.factors, scale)
    field = o.and_(o.bitcast("f32", "i32", acc), o.const("i32", 0x7F800000))
    none = _no_product(o, highest)
    bits = o.select(none, "i32", o.const("i32", 0), bits)
    top = o.call("smax", "i32", bits, o.sub(field, o.const("i32", _ROOM << 23)))
    shift = o.lshr(o.sub(top, bits), o.const("i32", 23))
    over = o.select(none, "i1", o.const("i1", 0), o.icmp("ugt", "i32", shift, o.const("i32", _FURTHEST)))
    near, wide, end = (out.fresh_label(x) for x in ("near", "wide", "end"))
    word = out.emit(f"bitcast {o.type('i1')} {over} to i{o.lanes}")
    out.put(f"br i1 {out.emit(f'icmp eq i{o.lanes} {word}, 0')}, label %{near}, label %{wide}, !prof !1")
    out.label(near)
    counted = o.bitcast("i32", "f32", o.sub(o.const("i32", (254 + POINT) << 23), top))
    own = o.call("floor", "f32", o.bin("fmul", "f32", acc, counted))
    # a negative one whose product with the scale is no f32 is cut to -1 as well
    least = o.select(o.fcmp("olt", "f32", own, o.const("f32", -1.0)), "f32", own, o.const("f32", -1.0))
    own = o.select(o.fcmp("olt", "f32", acc, o.const("f32", 0.0)), "f32", least, own)
    both = o.add(o.cast("fptosi", "f32", "i32", own), o.ashr(total, shift))
    lost = o.call("fshr", "i32", total, o.const("i32", 0), shift)
    size = o.call("abs", "i32", both)
    # whether the highest bit of what is lost is above that of the total; where the total is a power of two, no rounding is near
    kept = o.icmp("ugt", "i32", o.and_(lost, o.not_(size)), size)
    both = o.select(kept, "i32", o.or_(both, o.const("i32", 1)), both)
    unit = o.bitcast("i32", "f32", o.sub(top, o.const("i32", POINT << 23)))
    rounded = o.bin("fmul", "f32", o.cast("sitofp", "i32", "f32", both), unit)
    first = o.select(none, "f32", o.bin("fadd", "f32", acc, o.const("f32", 0.0)), rounded)
    out.put(f"br label %{end}")
    out.label(wide)
    exponent = o.lshr(bits, o.const("i32", 23))
    second = _with_accumulator(o, acc, o.cast("sitofp", "i32", "f64", total), exponent)
    out.put(f"br label %{end}")
    out.label(end)
    return out.emit(f"phi {o.type('f32')} [ {first}, %{near} ], [ {second}, %{wide} ]")


def _bytes(o: Ops, acc: str, group: Group) -> str:
    (even, low), (odd, high) = (_cut(o, group.factors[i::2], x) for i, x in enumerate(_highest(o, group, halves=True)))
    exponent = o.call("umax", "i32", low, high)
    limit = o.const("i32", 31)

    def moved(total: str, own: str) -> str:
        return o.ashr(total, o.call("umin", "i32", o.sub(exponent, own), limit))

    total = o.add(moved(even, low), moved(odd, high))
    field = _field(o, acc)
    far = o.icmp("slt", "i32", field, o.sub(o.call("umax", "i32", exponent, field), o.const("i32", POINT + 1)))
    kept = o.select(far, "f32", o.const("f32", 0.0), acc)
    # the exponent of what vanished still aligns nothing: it is the smaller one
    return _with_accumulator(o, kept, o.cast("sitofp", "i32", "f64", total), exponent)


def _field(o: Ops, value: str) -> str:
    """The biased exponent of an f32; a denormal's, and 0's, is the least normal one's."""
    bits = o.and_(o.bitcast("f32", "i32", value), o.const("i32", 0x7F800000))
    return o.call("umax", "i32", o.lshr(bits, o.const("i32", 23)), o.const("i32", 1))


def _two_to(o: Ops, exponent: str) -> str:
    """2**(an i32), as f64."""
    biased = o.zext("i32", "i64", o.add(exponent, o.const("i32", 1023)))
    return o.bitcast("i64", "f64", o.shl(biased, o.const("i64", 52), "i64"))


def _with_accumulator(o: Ops, acc: str, total: str, exponent: str) -> str:
    """The accumulator and a group's sum (f64, counted in 2**-POINT of its exponent's power), cut and rounded."""
    field = _field(o, acc)
    top = o.call("smax", "i32", exponent, field)
    fine = o.add(o.sub(exponent, top), o.const("i32", _FINE))
    products = o.call("floor", "f64", o.bin("fmul", "f64", total, _two_to(o, fine)))
    own = _two_to(o, o.sub(o.const("i32", 127 + POINT), top))
    kept = o.call("floor", "f64", o.bin("fmul", "f64", o.fpext("f32", "f64", acc), own))
    both = o.call("fma", "f64", kept, o.const("f64", float(1 << _FINE)), products)
    scale = _two_to(o, o.sub(top, o.const("i32", 127 + POINT + _FINE)))
    return o.cast("fptrunc", "f64", "f32", o.bin("fmul", "f64", _cut_down(o, both), scale))


def _cut_down(o: Ops, value: str) -> str:
    """An f64 down to `_TOTAL` bits behind its leading one: of a negative number the magnitude goes up."""
    bits = o.bitcast("f64", "i64", value)
    mask = o.const("i64", (1 << (52 - _TOTAL)) - 1)
    up = o.and_(o.ashr(bits, o.const("i64", 63), "i64"), mask, "i64")
    floor = o.and_(o.add(bits, up, "i64"), o.const("i64", -1 << (52 - _TOTAL)), "i64")
    return o.bitcast("i64", "f64", floor)


def _aligned_wide(o: Ops, acc: str, group: Group, least: int) -> str:
    """`_aligned` in f64, for factors of any size: exponents below what f32 has, and products that overflow it."""
    wide: list[str] = []
    top = o.const("i32", -(1 << 20))
    for a, b in group.factors:
        product = o.bin("fmul", "f64", o.fpext("f32", "f64", a), o.fpext("f32", "f64", b))
        wide.append(product)
        both = o.add(o.add(exponent(o, a, least), exponent(o, b, least)), o.const("i32", 127))
        zero = o.fcmp("oeq", "f64", product, o.const("f64", 0.0))
        top = o.call("smax", "i32", top, o.select(zero, "i32", o.const("i32", 1), both))
    scale = _two_to(o, o.sub(o.const("i32", 127 + POINT), top))
    total = o.const("f64", 0.0)  # so that zeros of both signs, the accumulator's among them, sum to +0
    for product in wide:
        total = o.bin("fadd", "f64", total, o.call("trunc", "f64", o.bin("fmul", "f64", product, scale)))
    return _with_accumulator(o, acc, total, top)
