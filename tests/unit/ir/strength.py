"""How much the Analyzer finds out about drawn expressions, as numbers of which less is better. `python -m tests.unit.ir.strength` writes strength.json.

Tests of values notice an Analyzer that claims too much. One that proves less is still right, and schedules get guards, divisions and larger buffers that
nothing asks for. So each drawn case has a number: nodes of what was simplified, values by which a bound is too wide, claims that hold and were not proved.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tec.ir import expr as E
from tec.ir.arith import Analyzer, IntSet
from tec.ir.buffer import Buffer
from tec.ir.interp import eval_expr
from tests.fuzz.test_simplify import DATA, DataMaker, Maker, analyzer, value

FILE = Path(__file__).with_name("strength.json")
FAR = 99  # for a bound that was not found
_TURNED = {E.LE: E.GE, E.LT: E.GT, E.GE: E.LE, E.GT: E.LT, E.EQ: E.EQ}


def _ranges(r: random.Random) -> dict[E.Var, tuple[int, int]]:
    return {E.Var(n): (r.choice((0, 0, -2, 1, 3)), r.choice((2, 3, 4, 7))) for n in "ijk"}


def _everywhere(ranges: dict[E.Var, tuple[int, int]]) -> Iterator[dict[E.Var, int]]:
    (i, (a, p)), (j, (b, q)), (k, (c, s)) = ranges.items()
    for x in range(p):
        for y in range(q):
            for z in range(s):
                yield {i: a + x, j: b + y, k: c + z}


def _nodes(ana: Analyzer, e: Any) -> int:
    return ana.count_nodes(ana.simplify(e))


def _hull(low: Any, high: Any, least: int, most: int) -> int:
    """By how many values an interval is wider than it need be. AssertionError where it does not hold all of them."""
    assert (low is None or low <= least) and (high is None or high >= most), (low, least, most, high)
    return (FAR if low is None else min(FAR, least - low)) + (FAR if high is None else min(FAR, high - most))


def index(r: random.Random) -> list[int]:
    """An index expression: its nodes, how wide its bounds and its modulus are, and whether its ends are proved; one past them must not be."""
    ranges = _ranges(r)
    ana, e = analyzer(ranges), Maker(r, list(ranges)).index(r.choice((1, 2, 3)))
    positive = [v for v, (low, _) in ranges.items() if low > 0]
    if positive and r.random() < 0.6:
        e = r.choice((E.FloorDiv, E.FloorMod))(e, r.choice(positive))
    values = {value(e, at) for at in _everywhere(ranges)}
    least, most = min(values), max(values)
    assert not ana.can_prove(E.LT(e, E.IntImm(most))) and not ana.can_prove(E.GT(e, E.IntImm(least)))
    coeff, base = ana.modular(e)
    assert all((v - base) % coeff == 0 if coeff else v == base for v in values)
    unproved = sum(not ana.can_prove(c) for c in (E.LE(e, E.IntImm(most)), E.GE(e, E.IntImm(least))))
    known = 1 if coeff == 0 else coeff
    loose = (
        sum(all((v - least) % (known * p) == 0 for v in values) for p in (2, 3, 5))
        if len(values) > 1
        else int(coeff != 0)
    )
    return [_nodes(ana, e), _hull(*ana.const_int_bound(e), least, most), unproved, loose]


def condition(r: random.Random) -> list[int]:
    """A condition under another: the nodes that are left of it, by itself and where the other holds."""
    ranges = _ranges(r)
    maker, ana = Maker(r, list(ranges)), analyzer(ranges)
    given, asked = maker.cond(r.choice((0, 1, 2))), maker.cond(r.choice((2, 3)))
    alone = _nodes(ana, asked)
    with ana.constraint(given):
        return [alone, _nodes(ana, asked), _nodes(ana, maker.index(2))]


def _symbols() -> tuple[Analyzer, list[E.Var]]:
    n, m = E.Var("n", is_size=True), E.Var("m", is_size=True)
    i, j = E.Var("i"), E.Var("j")
    ana = Analyzer()
    for v, extent in ((i, n), (j, m)):
        ana.bind(v, E.Range(E.IntImm(0), extent))
    return ana, [i, j, n, m]


def claim(r: random.Random) -> list[int]:
    """A claim on loops of open extents that holds by algebra, written in another way: whether it is proved, and not the one that is off by one."""
    ana, (i, j, n, m) = _symbols()
    c, d = r.choice((2, 3, 4, 8, 16)), r.choice((1, 2, 5))
    k = E.IntImm(c)
    blocks = E.FloorDiv(E.Add(n, E.IntImm(c - 1)), k)
    rows = E.Add(E.Mul(i, m), j)
    false: Any = None
    pick = r.randrange(12)
    if pick == 0:
        a, b, op = E.FloorDiv(rows, m), i, E.EQ
    elif pick == 1:
        a, b, op = E.FloorMod(rows, m), j, E.EQ
    elif pick == 2:
        a, b, op, false = rows, E.Mul(n, m), E.LT, (E.Add(rows, E.IntImm(1)), E.Mul(n, m), E.LT)
    elif pick == 3:
        a, b, op, false = n, E.Mul(blocks, k), E.LE, (E.Add(n, E.IntImm(1)), E.Mul(blocks, k), E.LE)
    elif pick == 4:
        a, b, op = E.Mul(blocks, k), E.Add(n, E.IntImm(c - 1)), E.LE
    elif pick == 5:
        a, b, op = E.Sub(E.Min(n, E.Add(E.Mul(i, k), k)), E.Mul(i, k)), k, E.LE
    elif pick == 6:
        a, b, op = E.FloorDiv(i, k), E.FloorDiv(E.Sub(n, E.IntImm(1)), k), E.LE
    elif pick == 7:
        a, b, op, false = E.FloorMod(rows, m), m, E.LT, (E.FloorMod(rows, m), E.Sub(m, E.IntImm(1)), E.LT)
    elif pick == 8:
        a, b, op = E.Mul(E.Add(i, E.IntImm(1)), m), E.Mul(n, m), E.LE
    elif pick == 9:
        whole = r.choice((E.Add(n, m), E.Mul(n, m)))
        a, b, op = E.FloorDiv(i, whole) if r.random() < 0.5 else E.FloorDiv(rows, E.Mul(n, m)), E.IntImm(0), E.EQ
    elif pick == 10:
        a, b, op = E.FloorMod(i, E.Add(n, m)), i, E.EQ
    else:
        a, b, op = E.Max(i, E.Sub(j, j)), E.Sub(n, E.IntImm(1)), E.LE
    if r.random() < 0.5:  # the same on both sides
        more = r.choice((E.Mul(j, E.IntImm(d)), E.IntImm(d), E.FloorDiv(i, E.IntImm(c + 1)), E.Mul(n, m)))
        a, b = E.Add(a, more), E.Add(more, b)
    if r.random() < 0.3:
        a, b = E.Mul(a, E.IntImm(d + 1)), E.Mul(b, E.IntImm(d + 1))
    if r.random() < 0.3:
        a, b, op = b, a, _TURNED[op]
    assert false is None or not ana.can_prove(false[2](*false[:2])), false
    return [int(not ana.can_prove(op(a, b)))]


def symbolic(r: random.Random) -> list[int]:
    """An expression in loops of open extents: its nodes, and those of its ends over one of the loops."""
    ana, (i, j, n, m) = _symbols()
    maker = Maker(r, [i, j, n, m, E.Mul(i, m), E.Add(E.Mul(i, m), j)])
    e = maker.index(2)
    if r.random() < 0.4:
        e = r.choice((E.FloorDiv, E.FloorMod))(e, r.choice((m, E.Mul(m, E.IntImm(2)))))
    inner, w = Analyzer(), E.Var("w")
    inner.bind(i, E.Range(E.IntImm(0), n) if r.random() < 0.7 else IntSet(m, None))
    inner.bind(w, E.Range(E.IntImm(-6), E.IntImm(5)))
    if r.random() < 0.25:  # a factor that is negative, whatever it is
        e = E.Add(E.Mul(*r.sample([w, r.choice((j, E.Mul(j, n), E.Add(j, i)))], 2)), e)
    s = inner.int_set(e, {j: E.Range(E.IntImm(0), m)})
    ends = [FAR if x is None else inner.count_nodes(x) for x in (s.min, s.max)]
    free = inner.can_prove(E.GE(i, E.IntImm(0)))
    return [_nodes(ana, e), *ends, int(not s.is_point), int(not free)]


def lanes(r: random.Random) -> list[int]:
    """Ramps and broadcasts: nodes of what becomes of them."""
    ranges = _ranges(r)
    names, n = list(ranges), r.choice((1, 2, 4, 8))

    def some(depth: int) -> E.Expr:
        if depth == 0:
            if r.random() < 0.5:
                return E.Broadcast(r.choice([*names, E.IntImm(r.choice((1, 2, 3, 8)))]), n)
            v, c = r.choice(names), E.IntImm(r.choice((1, 4, 8, 16)))
            return E.Ramp(E.Mul(v, c), E.IntImm(r.choice((0, 1, 1, 2))), n)
        if r.random() < 0.4:
            return r.choice((E.FloorDiv, E.FloorMod))(
                some(depth - 1), E.Broadcast(E.IntImm(r.choice((2, 4, 8, 16))), n)
            )
        return r.choice((E.Add, E.Sub, E.Mul, E.Min, E.Max))(some(depth - 1), some(depth - 1))

    e = some(r.choice((0, 1, 2, 3)))
    if r.random() < 0.3:  # a digit of a ramp
        start = E.Mul(r.choice(names), E.IntImm(r.choice((8, 16))))
        c, m, k = (E.Broadcast(E.IntImm(x), n) for x in (r.choice((2, 4, 8)), r.choice((2, 3, 4)), r.choice((1, 2, 3))))
        digit = E.FloorMod(E.FloorDiv(E.Ramp(start, E.IntImm(1), n), c), m) if n > 1 else e
        compared = r.choice((E.LT, E.LE, E.GT, E.GE))(digit, k)
    else:
        compared = r.choice((E.LT, E.LE, E.EQ, E.GE))(e, some(1))
    return [_nodes(analyzer(ranges), e), _nodes(analyzer(ranges), compared)]


def shape(r: random.Random) -> list[int]:
    """Coefficients of a linear form, and the interval that a conjunction leaves to a loop: found, and right."""
    ranges = _ranges(r)
    (i, j, k), ana = ranges, analyzer(ranges)
    a, b, c = (r.choice((-3, -1, 1, 2, 5)) for _ in range(3))
    part = r.choice((E.FloorMod(k, E.IntImm(2)), k, E.FloorDiv(k, E.IntImm(3))))
    e = E.Add(E.Mul(E.Add(i, j), E.IntImm(a)), E.Sub(E.Mul(j, E.IntImm(b)), E.Mul(part, E.IntImm(c))))
    found = ana.detect_linear(e, [i, j])
    for at in _everywhere(ranges) if found else ():
        assert value(found[0], at) * at[i] + value(found[1], at) * at[j] + value(found[2], at) == value(e, at)
    low, high = r.randrange(-6, 2), r.randrange(2, 9)
    cond = E.And(
        E.LE(E.IntImm(low), E.Add(E.Mul(i, E.IntImm(a)), j)), E.LT(E.Sub(E.Mul(i, E.IntImm(a)), k), E.IntImm(high))
    )
    free = Analyzer()
    sets = free.detect_clip_bound(cond, [i])
    for at in _everywhere(ranges) if sets else ():
        s = sets[0]
        inside = (s.min is None or value(s.min, at) <= at[i]) and (s.max is None or at[i] <= value(s.max, at))
        assert inside == bool(value(cond, at)), (cond, s, at)
    return [int(found is None), int(sets is None)]


def digits(r: random.Random) -> list[int]:
    """Digits of a number, taken apart by divisors that divide each other or not and put together again: nodes that are left."""
    ranges = {E.Var(n): (0, r.choice((7, 16, 100))) for n in "fjk"}
    f, j, k = ranges
    c, m, far = r.choice((2, 3, 4, 5, 8)), r.choice((2, 3, 4)), r.choice((1, 2, 7, 16))
    x: E.Expr = E.Add(E.Mul(f, E.IntImm(far * r.choice((1, c)))), r.choice((j, k, E.IntImm(1), E.IntImm(c))))
    y: E.Expr = x if r.random() < 0.6 else E.Sub(x, E.Mul(k, E.IntImm(c * r.choice((1, 2)))))
    high: E.Expr = E.FloorDiv(y, E.IntImm(c))
    if r.random() < 0.5:
        high = E.FloorMod(high, E.IntImm(m))
    whole = E.Add(E.Mul(high, E.IntImm(c * r.choice((1, 1, 2)))), E.FloorMod(x, E.IntImm(c)))
    return [
        _nodes(
            analyzer(ranges),
            r.choice((whole, E.FloorDiv(whole, E.IntImm(r.choice((2, c)))), E.FloorMod(whole, E.IntImm(c)))),
        )
    ]


def bounds(r: random.Random) -> list[int]:
    """Shifts, bits, casts, divisions either way and products: how wide the bound and the interval over all loops are, and nodes."""
    ranges = {E.Var(n): (r.choice((0, 0, 1, -2, -5)), r.choice((2, 3, 4))) for n in "ijk"}
    names = list(ranges)

    def some(depth: int) -> E.Expr:
        if depth == 0:
            return r.choice((*names, *names, E.IntImm(r.choice((0, 1, 3, 7, -1, -4)))))
        a, pick = some(depth - 1), r.randrange(9)
        if pick < 2:
            return E.Call(r.choice(("shl", "shr")), (a, E.IntImm(r.choice((0, 1, 2, 5)))), "int32")
        if pick < 4:
            return E.Call(r.choice(("bitand", "bitor", "bitxor")), (a, some(depth - 1)), "int32")
        if pick == 4:
            return E.Cast("int32", E.Cast(r.choice(("int8", "uint8", "int64")), a))
        if pick == 5:
            by = [v for v, (low, _) in ranges.items() if low > 0] or [E.IntImm(r.choice((1, 3, -2)))]
            return r.choice((E.Div, E.Mod, E.FloorDiv, E.FloorMod))(a, r.choice((*by, E.IntImm(r.choice((2, 4))))))
        if pick == 6:
            return E.Select(E.LT(a, some(depth - 1)), a, some(depth - 1))
        return r.choice((E.Mul, E.Mul, E.Add, E.Sub, E.Min, E.Max))(a, some(depth - 1))

    e, ana = some(r.choice((1, 2, 2))), analyzer(ranges)
    values = [int(eval_expr(e, at, {})) for at in _everywhere(ranges)]
    s = Analyzer().int_set(e, {v: E.Range(E.IntImm(low), E.IntImm(n)) for v, (low, n) in ranges.items()})
    ends = [x.value if type(x) is E.IntImm else None for x in (s.min, s.max)]
    return [_hull(*f(), min(values), max(values)) for f in (lambda: ana.const_int_bound(e), lambda: ends)] + [
        _nodes(ana, e)
    ]


_BUFFERS = {t: Buffer(t, t, (E.IntImm(4),)) for t in DATA}


def data(r: random.Random) -> list[int]:
    """What is loaded, where arithmetic wraps: nodes, and bits of what its values can be."""
    i = E.Var("i")
    ana, e = analyzer({i: (0, 4)}), DataMaker(r, _BUFFERS, i).make(r.choice(DATA), r.choice((1, 2, 3)))
    low, high = ana.const_int_bound(E.Cast("int64", e)) if not e.dtype.startswith("float") else (0, 0)
    return [_nodes(ana, e), FAR if low is None or high is None else (high - low).bit_length()]


KINDS: dict[str, tuple[Callable[[random.Random], list[int]], int]] = {
    "index": (index, 250), "condition": (condition, 200), "claim": (claim, 240), "symbolic": (symbolic, 200), "lanes": (lanes, 200), "shape": (shape, 80), "digits": (digits, 200), "data": (data, 200), "bounds": (bounds, 300),
}  # fmt: skip


def measured(kind: str) -> list[list[int]]:
    draw, count = KINDS[kind]
    return [draw(random.Random(f"strength {kind} {n}")) for n in range(count)]


def main() -> None:
    rows = [f'"{kind}": {json.dumps(measured(kind), separators=(",", ":"))}' for kind in KINDS]
    FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main()
