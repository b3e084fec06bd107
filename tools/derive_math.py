"""Derive the polynomial coefficients of `tec.ir.passes.math_tables`.

    python tools/derive_math.py > tec/ir/passes/math_tables.py

Each table is a minimax fit (Remez exchange in 60-digit arithmetic, mpmath) of the function named beside it. After the
exchange the coefficients are rounded to the format one by one, the lowest first, and the rest is fitted again to what
the rounding left over. Needs mpmath, which tec itself does not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import mpmath as mp
import numpy as np

mp.mp.dps = 60
Fn = Callable[[mp.mpf], mp.mpf]


def solve_levelled(f: Fn, w: Fn, points: list[mp.mpf], count: int) -> tuple[list[mp.mpf], mp.mpf]:
    """The polynomial of `count` coefficients whose weighted error alternates on `points`, and the error's size."""
    n = count + 1
    a = mp.matrix(n, n)
    b = mp.matrix(n, 1)
    for i, x in enumerate(points):
        for k in range(count):
            a[i, k] = x**k
        a[i, count] = (-1) ** i / w(x)
        b[i] = f(x)
    s = mp.lu_solve(a, b)
    return [s[k] for k in range(count)], s[count]


def remez(f: Fn, lo: float, hi: float, count: int, w: Fn) -> tuple[list[mp.mpf], mp.mpf]:
    """Coefficients of the minimax polynomial for the error weighted by `w`, and that error."""
    lo, hi = mp.mpf(lo), mp.mpf(hi)
    n = count + 1
    points = [(lo + hi) / 2 - (hi - lo) / 2 * mp.cos(mp.pi * (i + mp.mpf(1) / 2) / n) for i in range(n)]
    grid = [(lo + hi) / 2 - (hi - lo) / 2 * mp.cos(mp.pi * (i + mp.mpf(1) / 2) / (24 * n)) for i in range(24 * n)]
    values = [(f(x), w(x)) for x in grid]
    coeffs: list[mp.mpf] = []
    worst = mp.mpf(0)
    for _ in range(8):
        coeffs, level = solve_levelled(f, w, points, count)
        errors = [(fx - mp.polyval(coeffs[::-1], x)) * wx for x, (fx, wx) in zip(grid, values)]
        worst = max(abs(e) for e in errors)
        # The extremum of each run of one sign.
        picks: list[int] = []
        for i, e in enumerate(errors):
            if picks and mp.sign(errors[picks[-1]]) == mp.sign(e):
                if abs(e) > abs(errors[picks[-1]]):
                    picks[-1] = i
            else:
                picks.append(i)
        while len(picks) > n:
            picks.pop(0 if abs(errors[picks[0]]) < abs(errors[picks[-1]]) else -1)
        if len(picks) < n or worst < abs(level) * mp.mpf("1.02"):
            break
        points = [grid[i] for i in picks]
    return coeffs, worst


def rounded(x: mp.mpf, bits: int) -> mp.mpf:
    """`x` with a significand of `bits` bits."""
    if x == 0:
        return x
    e = mp.floor(mp.log(abs(x), 2)) - (bits - 1)
    return mp.nint(x / mp.mpf(2) ** e) * mp.mpf(2) ** e


def fit(f: Fn, lo: float, hi: float, count: int, w: Fn, bits: int) -> tuple[list[mp.mpf], mp.mpf]:
    """Coefficients rounded to `bits`, and the error that is left. The argument is divided out after each rounding, so
    intervals that hold zero are fitted from a point next to it."""
    fixed: list[mp.mpf] = []
    rest, rest_w = f, w
    for k in range(count):
        coeffs, _ = remez(rest, lo, hi, count - k, rest_w)
        c = rounded(coeffs[0], bits)
        fixed.append(c)
        rest = (lambda g, c0: lambda x: (g(x) - c0) / x)(rest, c)
        rest_w = (lambda v: lambda x: v(x) * x)(rest_w)
        if k >= 3 and bits > 30:  # later roundings are below the fit's own error
            fixed += [rounded(x, bits) for x in coeffs[1:]]
            break
    worst = mp.mpf(0)
    for i in range(400):
        x = mp.mpf(lo) + (mp.mpf(hi) - lo) * (i + mp.mpf(1) / 2) / 400
        worst = max(worst, abs((f(x) - mp.polyval(fixed[::-1], x)) * w(x)))
    return fixed, worst


def split(x: mp.mpf, bits: int, parts: int, short: int) -> list[mp.mpf]:
    """`x` as a sum of `parts` numbers, all but the last of `short` bits."""
    out = []
    for k in range(parts):
        c = rounded(x, short if k < parts - 1 else bits)
        out.append(c)
        x -= c
    return out


def tables(bits: int) -> dict[str, list[mp.mpf]]:
    """All tables for a format with `bits` bits of significand."""
    f32 = bits == 24
    eps = mp.mpf(2) ** -60
    out: dict[str, list[mp.mpf]] = {}

    def table(name: str, f: Fn, lo: float, hi: float, count: int, w: Fn) -> None:
        out[name], worst = fit(f, lo, hi, count, w, bits)
        print(f"{bits} {name}: {count} coefficients, error 2^{float(mp.log(worst, 2)):.1f}", file=sys.stderr)

    ln2 = mp.log(2)
    h = float(ln2 / 2) * 1.002

    def nz(x: mp.mpf) -> mp.mpf:
        return x if x != 0 else eps

    table("EXP", lambda x: (mp.expm1(nz(x)) - nz(x)) / nz(x) ** 2, -h, h + 1e-9, 5 if f32 else 11, lambda x: nz(x) ** 2)
    z1 = float((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2 * 1.002

    def log_r(z: mp.mpf) -> mp.mpf:
        s = mp.sqrt(z)
        return (mp.log((1 + s) / (1 - s)) / s - 2) / z

    if f32:  # around zero, where an error counts for nothing: of coefficients that are fitted one after another the later ones would have to be exact there

        def log_direct(f: mp.mpf) -> mp.mpf:
            return (mp.log1p(nz(f)) - nz(f)) / nz(f) ** 2

        def weight(f: mp.mpf) -> mp.mpf:
            return abs(nz(f) ** 2 / mp.log1p(nz(f)))

        found, _ = remez(log_direct, -1.0001 / 3, 1.0001 / 3 + 1e-3, 9, weight)
        out["LOG_DIRECT"] = [rounded(c, bits) for c in found]
    table("LOG", log_r, 1e-12, z1, 4 if f32 else 8, lambda z: z / 2)
    q = (float(mp.pi) / 4 * 1.001) ** 2
    table("SIN", lambda z: (mp.sin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, 1e-12, q, 3 if f32 else 6, lambda z: z)
    table("COS", lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2, 1e-9, q, 3 if f32 else 6, lambda z: z**2)
    table("ASIN", lambda z: (mp.asin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, 1e-12, 0.2502, 5 if f32 else 13, lambda z: z)
    t = float((mp.sqrt(2) - 1) ** 2) * 1.002
    table("ATAN", lambda z: (mp.atan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, 1e-12, t, 5 if f32 else 12, lambda z: z)
    table("SINH", lambda z: (mp.sinh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, 1e-12, 1.002, 4 if f32 else 8, lambda z: z)
    table("TANH", lambda z: (mp.tanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, 1e-12, 0.3613, 5 if f32 else 11, lambda z: z)
    edge = 0.92 if f32 else 1.0
    table(
        "ERF",
        lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1,
        1e-12,
        edge**2 * 1.002,
        7 if f32 else 15,
        lambda z: mp.mpf(1),
    )
    out["ERF_EDGE"] = [mp.mpf(edge)]
    # Tail: erf(a) = 1 - exp(-(a**2 + q(u))), q smooth in u = (a - 2)/(a + 2) for the doubles, in a itself for the floats.
    if f32:
        table("ERF_TAIL", lambda a: -mp.log(mp.erfc(a)), edge * 0.999, 4.0, 8, lambda a: mp.erfc(a))
        # The same down to 0, where erf is beside a number: what counts is the error itself, not as a part of erf.
        table("ERF_BESIDE", lambda a: -mp.log(mp.erfc(a)), 1e-6, 4.0, 9, lambda a: mp.erfc(a))
    else:

        def q_of_u(u: mp.mpf) -> mp.mpf:
            a = 2 * (1 + u) / (1 - u)
            return -mp.log(mp.erfc(a)) - a**2

        table(
            "ERF_TAIL",
            q_of_u,
            (edge * 0.999 - 2) / (edge * 0.999 + 2),
            4.0 / 8.0,
            18,
            lambda u: mp.erfc(2 * (1 + u) / (1 - u)),
        )
    # n * LN2[0] is exact: n has at most 8 (11) bits.
    out["LN2"] = split(ln2, bits, 2, bits - (9 if f32 else 12))
    out["LN2_FULL"] = [rounded(ln2, bits)]
    out["LOG2E"] = split(1 / ln2, bits, 2, bits)
    out["LOG10E"] = split(1 / mp.log(10), bits, 2, bits)
    out["LN10"] = split(mp.log(10), bits, 2, bits)
    out["LOG10_2"] = split(mp.log10(2), bits, 2, bits - (9 if f32 else 12))
    out["LOG2_10"] = [rounded(mp.log(10, 2), bits)]
    out["PIO2"] = split(mp.pi / 2, bits, 4, bits - 1)
    out["PIO2_SPLIT"] = split(mp.pi / 2, bits, 2, bits)
    out["TWO_OVER_PI"] = [rounded(2 / mp.pi, bits)]
    out["PIO4"] = split(mp.pi / 4, bits, 2, bits)
    out["PI"] = split(mp.pi, bits, 2, bits)
    # 2/ln2 and 2/(3 ln2), for pow: log2(m) = 2/ln2 (s + s^3/3 + ...)
    out["TWO_LOG2E"] = split(2 / ln2, bits, 2, bits)
    out["POW_C3"] = split(2 / (3 * ln2), bits, 2, bits)
    z2 = z1

    def pow_r(z: mp.mpf) -> mp.mpf:
        s = mp.sqrt(z)
        return (mp.log((1 + s) / (1 - s)) / ln2 / s - 2 / ln2 - 2 * z / (3 * ln2)) / z**2

    table("POW", pow_r, 1e-9, z2, 3 if f32 else 7, lambda z: z**2)
    return out


def main() -> None:
    print('"""Coefficients of the math expansions, made by tools/derive_math.py. Lowest power first; do not edit."""\n')
    print("from __future__ import annotations\n")
    for name, bits in (("F32", 24), ("F64", 53)):
        print(f"{name}: dict[str, tuple[float, ...]] = {{")
        for key, values in tables(bits).items():
            words = [repr(float(np.float32(float(v)))) if bits == 24 else repr(float(v)) for v in values]
            print(f'    "{key}": ({", ".join(words)},),')
        print("}\n")
    mp.mp.prec = 1700
    bits_of = int(mp.floor(2 / mp.pi * mp.mpf(2) ** 1344))
    print("# 2/pi as a fixed-point fraction, 32 bits a word, most significant first.")
    print("TWO_OVER_PI_WORDS: tuple[int, ...] = (")
    for k in range(42):
        print(f"    {(bits_of >> (1344 - 32 * (k + 1))) & 0xFFFFFFFF:#010x},")
    print(")")


if __name__ == "__main__":
    main()
