"""The last step of a division: a quotient scaled back into the denormals."""

from __future__ import annotations

from ..translate.ops import Ops


def rounded_once(o: Ops, a: str, b: str, c: str, scaled: str) -> str:
    """`scaled`, fma(a, b, c) / 2**128 in f64, as one rounding gives it where it is denormal.

    Two roundings differ from one where the first lands halfway between two denormals and was not exact: the sign of its error
    then says to which side. The error is that of Boldo and Muller, "Exact and approximated error of the FMA" (IEEE TC, 2011), worked out
    2**512 higher up, where no part of it is lost.
    """

    def f(op: str, x: str, y: str) -> str:
        return o.bin(op, "f64", x, y)

    def two_sum(x: str, y: str) -> tuple[str, str]:
        s = f("fadd", x, y)
        v = f("fsub", s, x)
        return s, f("fadd", f("fsub", x, f("fsub", s, v)), f("fsub", y, v))

    zero, lift = o.const("f64", 0.0), o.const("f64", 2.0**512)
    a, c = f("fmul", a, lift), f("fmul", c, lift)
    value = o.fma("f64", a, b, c)
    high = f("fmul", a, b)
    low = o.fma("f64", a, b, o.fneg("f64", high))
    first, rest = two_sum(c, low)
    second, middle = two_sum(high, first)
    error = f("fadd", f("fadd", f("fsub", second, value), middle), rest)
    gap = f("fsub", value, f("fmul", scaled, o.const("f64", 2.0**640)))  # what the second rounding left out
    tie = o.fcmp("oeq", "f64", o.call("fabs", "f64", gap), o.const("f64", 2.0 ** (640 - 1075)))
    onward = o.or_(
        o.and_(o.fcmp("ogt", "f64", gap, zero), o.fcmp("ogt", "f64", error, zero), "i1"),
        o.and_(o.fcmp("olt", "f64", gap, zero), o.fcmp("olt", "f64", error, zero), "i1"),
        "i1",
    )
    least = o.call("copysign", "f64", o.const("f64", 2.0**-1074), gap)
    return o.select(o.and_(tie, onward, "i1"), "f64", f("fadd", scaled, least), scaled)
