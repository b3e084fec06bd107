"""Intervals of indices hold every value, and the corners of sums and products are met."""

from __future__ import annotations

import itertools
import operator
import random

import pytest

from tec.ir import expr as E
from tec.ir.arith.intervals import interval_of
from tests import seeds

OPS = {
    E.Add: operator.add, E.Sub: operator.sub, E.Mul: operator.mul, E.Min: min, E.Max: max, E.FloorDiv: operator.floordiv,
    E.FloorMod: operator.mod,
}  # fmt: skip
X, Y = E.Var("x", "int32"), E.Var("y", "int32")


def value(e: E.Expr, at: dict[int, int]) -> int:
    if isinstance(e, E.IntImm):
        return e.value
    if isinstance(e, E.Var):
        return at[id(e)]
    if isinstance(e, E.Cast):
        return value(e.value, at)
    if isinstance(e, E.Call):
        a, b = (value(x, at) for x in e.args)
        return a ^ b if e.op == "bitxor" else a | b
    return OPS[type(e)](value(e.a, at), value(e.b, at))


def some(rng: random.Random, depth: int) -> E.Expr:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice([X, Y, E.IntImm(rng.randint(-5, 9))])
    if rng.random() < 0.15:
        return E.Call(rng.choice(["bitxor", "bitor"]), [some(rng, depth - 1), some(rng, depth - 1)], "int32")
    op = rng.choice(list(OPS))
    b = E.IntImm(rng.randint(1, 7)) if op in (E.FloorDiv, E.FloorMod) else some(rng, depth - 1)
    return op(some(rng, depth - 1), b)


def test_every_value_is_inside():
    rng, known, proved = random.Random(seeds.first(5)), {id(X): (-3, 4), id(Y): (0, 6)}, 0
    for _ in range(2000):
        e = some(rng, 3)
        found = interval_of(e, known)
        if found is not None:
            proved += 1
            values = [value(e, {id(X): x, id(Y): y}) for x, y in itertools.product(range(-3, 5), range(7))]
            assert found[0] <= min(values) and max(values) <= found[1], str(e)
    assert proved > 1000


@pytest.mark.parametrize(
    ("e", "found"),
    [
        (X * 4 + Y, (-12, 22)), (Y - X, (-4, 9)), (E.FloorMod(Y, E.IntImm(9)), (0, 6)), (E.FloorMod(X, E.IntImm(9)), (0, 8)),
        (E.Var("z", "int32") + 1, None), (E.FloorMod(E.Var("z", "int32"), E.IntImm(4)), (0, 3)), (E.Cast("int64", X), (-3, 4)),
        (E.Cast("uint32", X), None), (E.Cast("uint32", Y), (0, 6)), (E.Cast("int8", Y), None), (E.Cast("float32", Y), None),
    ],
)  # fmt: skip
def test_what_is_known(e, found):
    assert interval_of(e, {id(X): (-3, 4), id(Y): (0, 6)}) == found
