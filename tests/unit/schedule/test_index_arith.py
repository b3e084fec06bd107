"""Index arithmetic of bound inference: simplification keeps values, bounds hold, proofs are true."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

import tec
from tec import te
from tec.ir import IntImm, Range, Var, build
from tec.ir.arith import Analyzer
from tec.ir.arith.int_set import IntSet
from tec.ir.dtype import int_range
from tec.ir.interp import eval_expr
from tec.schedule.index_arith import IndexArith
from tec.schedule.intervals import Evaluator
from tests import seeds

RANGES = {"a": (0, 3), "b": (0, 7), "c": (-5, 4), "d": (0, 0), "e": (2, 17)}


def random_expr(rng, variables, depth):
    if depth == 0 or rng.random() < 0.15:
        return rng.choice([*variables, IntImm(rng.randint(-6, 20))])
    a = random_expr(rng, variables, depth - 1)
    op = rng.choice(
        ["add", "sub", "mul", "floordiv", "floormod", "truncdiv", "truncmod", "minimum", "maximum", "select"]
    )
    if op in ("mul", "floordiv", "floormod", "truncdiv", "truncmod") and rng.random() < 0.9:
        return getattr(build, op)(a, IntImm(rng.choice([2, 3, 4, 6, 8, 12, 16])))
    b = random_expr(rng, variables, depth - 1)
    if op == "select":
        return build.select(build.compare("lt", a, b), a, b)
    if op.startswith(("floor", "trunc")):
        b = build.add(build.absolute(b) if isinstance(b, IntImm) else IntImm(5), 1)
    return getattr(build, op)(a, b)


def sample(rng, variables):
    return {v: IntImm(rng.randint(*RANGES[v.name])) for v in variables}


def number(e, env):
    return int(eval_expr(e, {v: x.value for v, x in env.items()}))


def facts_for(variables):
    arith = IndexArith()
    for v in variables:
        arith.bind(v, *RANGES[v.name])
    return arith


@pytest.mark.parametrize("seed", seeds.some(6))
def test_simplify_and_bounds(seed):
    rng = random.Random(seed)
    for _ in range(150):
        variables = [Var(n) for n in RANGES]
        e = random_expr(rng, variables, 4)
        arith = facts_for(variables)
        s = arith.simplify(e)
        assert str(arith.simplify(s)) == str(s)
        lo, hi = arith.bounds(e)
        for _ in range(12):
            env = sample(rng, variables)
            want = number(e, env)
            assert number(s, env) == want, f"{e}\n{s}\n{env}"
            assert (lo is None or lo <= want) and (hi is None or want <= hi), f"{e}: {lo}..{hi}, {want}"


@pytest.mark.parametrize("seed", seeds.some(6))
def test_proofs_are_true(seed):
    rng = random.Random(100 + seed)
    for _ in range(150):
        variables = [Var(n) for n in RANGES]
        a, b = random_expr(rng, variables, 3), random_expr(rng, variables, 3)
        arith = facts_for(variables)
        claims = [(arith.le(a, b), int.__le__), (arith.lt(a, b), int.__lt__), (arith.equal(a, b), int.__eq__)]
        for _ in range(12):
            env = sample(rng, variables)
            for claimed, holds in claims:
                assert not claimed or holds(number(a, env), number(b, env)), f"{a} against {b}"


@pytest.mark.parametrize("seed", seeds.some(6))
def test_intervals_cover(seed):
    """Some variables run; the ends are expressions of the others and hold every value."""
    rng = random.Random(200 + seed)
    for _ in range(150):
        variables = [Var(n) for n in RANGES]
        running = variables[:3]
        e = random_expr(rng, variables, 4)
        arith = facts_for(variables)
        env = {v: IntSet(IntImm(RANGES[v.name][0]), IntImm(RANGES[v.name][1])) for v in running}
        found = Evaluator(env, arith)(arith.simplify(e))
        for _ in range(12):
            values = sample(rng, variables)
            v = number(e, values)
            assert found.min is None or number(found.min, values) <= v, f"{e}: {found}"
            assert found.max is None or v <= number(found.max, values), f"{e}: {found}"


def test_split_and_fused_indices_come_back():
    i, j = Var("i"), Var("j")
    arith = IndexArith()
    arith.bind(i, 0, 15)
    arith.bind(j, 0, 31)
    fused = i * 32 + j
    assert arith.simplify(fused // 32) is i
    assert arith.simplify(fused % 32) is j
    assert str(arith.simplify(fused // 4)) == "i * 8 + j // 4"
    assert str(arith.simplify(fused % 64 // 32)) == "i % 2"
    assert str(arith.simplify((i * 4 + j % 4) // 8)) == "i // 2"
    assert str(arith.simplify(fused // 8 * 8 + fused % 8)) == "i * 32 + j"


def test_difference_of_quotients_is_bounded():
    """floor((x + 10) / 4) - floor(x / 4) is 2 or 3 whatever x is: a region of constant size."""
    x = Var("x")
    arith = IndexArith()
    assert arith.bounds((x + 10) // 4 - x // 4) == (2, 3)


def test_point_stays_a_point():
    x = Var("x")
    assert Evaluator({x: IntSet.point(IntImm(3))}, IndexArith())(x + 4).is_point


@pytest.mark.parametrize("seed", seeds.some(4))
def test_digits_of_fused_indices_make_the_number_again(seed):
    """The flat place of an element from its digits, of a loop over pieces of `lanes`: no quotient by an odd size is left, whatever remainders had their
    coefficients reduced."""
    rng = random.Random(300 + seed)
    for _ in range(40):
        sizes, lanes = [rng.choice([2, 3, 5, 7, 9, 16, 149]) for _ in range(rng.randint(1, 3))], rng.choice([2, 4, 8])
        sizes.insert(0, 2000)  # pieces enough, so that their numbers are no remainders themselves
        while math.prod(sizes) > int_range("int32")[1]:  # places are numbers of 32 bits
            sizes.pop()
        scale, outer = math.prod(sizes), Var("o", "int32")
        analyzer = Analyzer()
        analyzer.bind(outer, Range(IntImm(0), IntImm(scale // lanes)))
        i, place = build.add(build.mul(outer, lanes), rng.randrange(lanes)), IntImm(0)
        for n in sizes:
            scale //= n
            place = build.add(place, build.mul(build.floormod(build.floordiv(i, scale), n), scale))
        found = analyzer.simplify(place)
        assert "//" not in str(found) and "%" not in str(found), f"{sizes} by {lanes}: {found}"
        for at in (0, 1, math.prod(sizes) // lanes - 1):
            assert eval_expr(found, {outer: at}) == eval_expr(place, {outer: at})


@pytest.mark.parametrize("axis", [0, 1])
def test_joined_arrays_of_odd_sizes_are_copied_by_vectors(axis):
    """Pieces that lie in one of two arrays: one question a piece, loads and stores of neighbours."""
    shape = (6, 16, 3 * 7)
    a, b = (te.placeholder(shape, "float32", name=n) for n in "ab")
    whole = tuple(2 * n if k == axis else n for k, n in enumerate(shape))

    def joined(*i):
        n = shape[axis]
        return te.if_then_else(i[axis] < n, a(*i), b(*(v - n if k == axis else v for k, v in enumerate(i))))

    c = te.compute(whole, joined, name="c")
    s = te.create_schedule(c.op)
    pieces, lanes = s[c].split(s[c].fuse(*c.op.axis), factor=8)
    s[c].vectorize(lanes)
    text = str(tec.lower(s, [a, b, c]))
    assert "// broadcast" not in text and "% broadcast" not in text
    assert "select(broadcast" not in text and "select(ramp" not in text
    f, values = tec.build(s, [a, b, c], "llvm"), [np.random.rand(*shape).astype("f") for _ in range(2)]
    out = tec.nd.empty(whole, "float32")
    f(*map(tec.nd.array, values), out)
    np.testing.assert_array_equal(out.numpy(), np.concatenate(values, axis))
