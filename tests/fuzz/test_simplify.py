"""Random expressions: simplify keeps their value, is idempotent, and makes no new node where nothing changes.

Index expressions are evaluated with Python integers here, apart from the interpreter; expressions on data (which may wrap)
by the interpreter. Seeds are fixed; TEC_FUZZ_CASES raises the number of cases.
"""

import os
import random

import numpy as np
import pytest

from tec.ir import build
from tec.ir import expr as E
from tec.ir.arith import Analyzer
from tec.ir.buffer import Buffer
from tec.ir.interp import eval_expr
from tec.ir.structural import structural_equal
from tests import seeds

CASES = int(os.environ.get("TEC_FUZZ_CASES", "50"))
CONSTS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
_PY = {
    E.Add: lambda a, b: a + b,
    E.Sub: lambda a, b: a - b,
    E.Mul: lambda a, b: a * b,
    E.FloorDiv: lambda a, b: a // b,
    E.FloorMod: lambda a, b: a % b,
    E.Div: build.trunc_div,
    E.Mod: build.trunc_mod,
    E.Min: min,
    E.Max: max,
    E.LT: lambda a, b: int(a < b),
    E.LE: lambda a, b: int(a <= b),
    E.GT: lambda a, b: int(a > b),
    E.GE: lambda a, b: int(a >= b),
    E.EQ: lambda a, b: int(a == b),
    E.NE: lambda a, b: int(a != b),
    E.And: lambda a, b: a & b,
    E.Or: lambda a, b: a | b,
}


def value(e, env):
    """The exact value of an index expression."""
    t = type(e)
    if t is E.Var:
        return env[e]
    if t is E.IntImm:
        return e.value
    if t in _PY:
        return _PY[t](value(e.a, env), value(e.b, env))
    if t is E.Not:
        return 1 - value(e.a, env)
    if t is E.Select:
        return value(e.a, env) if value(e.cond, env) else value(e.b, env)
    if t is E.Cast:
        return value(e.value, env)
    if t is E.Let:
        return value(e.body, {**env, e.var: value(e.value, env)})
    if t is E.Call and e.op == "if_then_else":
        return value(e.args[1] if value(e.args[0], env) else e.args[2], env)
    if t is E.Call and e.op == "likely":
        return value(e.args[0], env)
    raise AssertionError(t)


class Maker:
    """Random index expressions over variables of small ranges."""

    def __init__(self, rng, variables):
        self.rng, self.vars = rng, variables

    def imm(self):
        return E.IntImm(self.rng.choice(CONSTS) * self.rng.choice((1, 1, 1, -1)))

    def index(self, depth):
        r = self.rng
        if depth == 0 or r.random() < 0.1:
            return r.choice(self.vars) if r.random() < 0.75 else self.imm()
        pick = r.random()
        if pick < 0.35:
            return r.choice((E.Add, E.Add, E.Sub))(self.index(depth - 1), self.index(depth - 1))
        if pick < 0.5:
            return E.Mul(self.index(depth - 1), self.imm())
        if pick < 0.75:
            cls = r.choice((E.FloorDiv, E.FloorMod, E.FloorDiv, E.FloorMod, E.Div, E.Mod))
            return cls(self.index(depth - 1), E.IntImm(r.choice(CONSTS)))
        if pick < 0.87:
            return r.choice((E.Min, E.Max))(self.index(depth - 1), self.index(depth - 1))
        if pick < 0.9:
            v = E.Var("v")
            inner = Maker(r, [*self.vars, v])
            return E.Let(v, self.index(depth - 1), inner.index(depth - 1))
        if pick < 0.95:
            return E.Select(self.cond(depth - 1), self.index(depth - 1), self.index(depth - 1))
        c = self.cond(depth - 1)
        return E.Call("if_then_else", (c, self.index(depth - 1), self.index(depth - 1)), "int32")

    def cond(self, depth):
        r = self.rng
        if depth > 0 and r.random() < 0.35:
            if r.random() < 0.25:
                return E.Not(self.cond(depth - 1))
            return r.choice((E.And, E.Or))(self.cond(depth - 1), self.cond(depth - 1))
        cls = r.choice((E.LT, E.LE, E.GT, E.GE, E.EQ, E.NE))
        return cls(self.index(max(depth - 1, 0)), self.index(max(depth - 1, 0)))


def scope(rng):
    """Variables with their ranges, and an Analyzer that knows them."""
    names = [E.Var(n) for n in "ijk"]
    ranges = {}
    for v in names:
        low = rng.choice((0, 0, 0, 0, -3, 2))
        ranges[v] = (low, rng.choice((2, 3, 4, 8, 12, 16)))
    return names, ranges


def analyzer(ranges):
    ana = Analyzer()
    for v, (low, extent) in ranges.items():
        ana.bind(v, E.Range(E.IntImm(low), E.IntImm(extent)))
    return ana


def points(rng, ranges, count=24):
    for _ in range(count):
        yield {v: low + rng.choice((0, extent - 1, rng.randrange(extent))) for v, (low, extent) in ranges.items()}


@pytest.mark.parametrize("kind", ["index", "cond"])
@pytest.mark.parametrize("block", range(4))
def test_value_idempotence_identity(kind, block):
    for seed in range(block * CASES, (block + 1) * CASES):
        rng = random.Random(seeds.stream(f"{kind}{seed}"))
        names, ranges = scope(rng)
        maker = Maker(rng, names)
        e = maker.index(4) if kind == "index" else maker.cond(4)
        ana = analyzer(ranges)
        s = ana.simplify(e)
        low, high = ana.const_int_bound(e)
        coeff, base = ana.modular(e)
        for env in points(rng, ranges):
            v = value(e, env)
            shown = f"seed {kind}{seed}: {e}\n -> {s}\n at {env}, ranges {ranges}"
            assert value(s, env) == v, shown
            assert (low is None or low <= v) and (high is None or v <= high), f"bounds {low}, {high}: {shown}"
            assert v == base if coeff == 0 else v % coeff == base % coeff, f"modulus {coeff}, {base}: {shown}"
        assert ana.simplify(s) is s, (
            f"not idempotent in one analyzer, seed {kind}{seed}: {e}\n -> {s} -> {ana.simplify(s)}"
        )
        again = analyzer(ranges).simplify(s)
        assert again is s, f"not idempotent, seed {kind}{seed}: {e}\n -> {s}\n -> {again}"
        if structural_equal(s, e):
            assert s is e, f"a new node for the same expression, seed {kind}{seed}: {e}"


@pytest.mark.parametrize("block", range(2))
def test_constraints(block):
    """What a condition implies is used, and only where it holds."""
    for seed in range(block * CASES, (block + 1) * CASES):
        rng = random.Random(seeds.stream(f"constraint{seed}"))
        names, ranges = scope(rng)
        maker = Maker(rng, names)
        cond, e, c = maker.cond(2), maker.index(3), maker.cond(3)
        ana = analyzer(ranges)
        with ana.constraint(cond):
            se, sc = ana.simplify(e), ana.simplify(c)
            low, high = ana.const_int_bound(e)
        for env in points(rng, ranges, 60):
            if value(cond, env):
                assert value(se, env) == value(e, env), f"seed {seed}: under {cond}: {e} -> {se} at {env}, {ranges}"
                assert value(sc, env) == value(c, env), f"seed {seed}: under {cond}: {c} -> {sc} at {env}, {ranges}"
                assert (low is None or low <= value(e, env)) and (high is None or value(e, env) <= high)
        after = ana.simplify(e)
        for env in points(rng, ranges):
            assert value(after, env) == value(e, env), f"seed {seed}: a constraint outlives its block: {cond}, {e}"


@pytest.mark.parametrize("block", range(2))
def test_symbolic_ranges(block):
    """Loops of symbolic extent: 0 <= i < n, 0 <= j < m."""
    for seed in range(block * CASES, (block + 1) * CASES):
        rng = random.Random(seeds.stream(f"symbol{seed}"))
        i, j = E.Var("i"), E.Var("j")
        n, m = E.Var("n", is_size=True), E.Var("m", is_size=True)
        ana = Analyzer()
        ana.bind(i, E.Range(E.IntImm(0), n))
        ana.bind(j, E.Range(E.IntImm(0), m))
        maker = Maker(rng, [i, j, n, m, E.Mul(i, m), E.Mul(n, m), E.Add(E.Mul(i, m), j)])
        e = maker.index(3)
        if rng.random() < 0.3:
            e = rng.choice((E.FloorDiv, E.FloorMod))(e, m)
        c = rng.choice((E.LT, E.LE, E.EQ))(maker.index(2), maker.index(2))
        se, sc = ana.simplify(e), ana.simplify(c)
        for _ in range(24):
            env = {n: rng.choice((1, 2, 5, 16)), m: rng.choice((1, 3, 4, 7))}
            env[i], env[j] = rng.randrange(env[n]), rng.randrange(env[m])
            assert value(se, env) == value(e, env), f"seed {seed}: {e} -> {se} at {env}"
            assert value(sc, env) == value(c, env), f"seed {seed}: {c} -> {sc} at {env}"
        assert ana.simplify(se) is se


@pytest.mark.parametrize("block", range(2))
def test_int_sets_hold_every_value(block):
    for seed in range(block * CASES, (block + 1) * CASES):
        rng = random.Random(seeds.stream(f"set{seed}"))
        names, ranges = scope(rng)
        inner = {names[0], names[1]} if rng.random() < 0.5 else {names[0]}
        outer = {v: r for v, r in ranges.items() if v not in inner}
        ana = analyzer(ranges if rng.random() < 0.5 else outer)
        e = Maker(rng, names).index(3)
        s = ana.int_set(e, {v: E.Range(E.IntImm(ranges[v][0]), E.IntImm(ranges[v][1])) for v in inner})
        for env in points(rng, ranges):
            v = value(e, env)
            assert s.min is None or value(s.min, env) <= v, f"seed {seed}: {e} in {s} at {env}"
            assert s.max is None or v <= value(s.max, env), f"seed {seed}: {e} in {s} at {env}"


DATA = ("int8", "uint8", "int16", "uint32", "int32", "int64", "float32", "float16", "bool")


class DataMaker:
    """Random expressions on loaded values, which may wrap, be NaN, or be any bits."""

    def __init__(self, rng, buffers, i):
        self.rng, self.buffers, self.i = rng, buffers, i

    def leaf(self, dtype):
        if self.rng.random() < 0.7:
            return E.BufferLoad(self.buffers[dtype], (self.rng.choice((self.i, E.IntImm(0), E.IntImm(3))),))
        if dtype.startswith("float"):
            return build.const(self.rng.choice((0.0, -0.0, 1.0, 2.0, -1.5, 0.5, 3.0)), dtype)
        if dtype == "bool":
            return build.const(self.rng.random() < 0.5, "bool")
        return build.const(self.rng.choice((0, 1, 2, 3, 5, 100, 127)), dtype)

    def make(self, dtype, depth):
        r = self.rng
        if depth == 0:
            return self.leaf(dtype)
        pick = r.random()
        if dtype == "bool":
            if pick < 0.4:
                return r.choice((E.And, E.Or))(self.make("bool", depth - 1), self.make("bool", depth - 1))
            if pick < 0.5:
                return E.Not(self.make("bool", depth - 1))
            t = r.choice(DATA[:-1])
            cls = r.choice((E.LT, E.LE, E.GT, E.GE, E.EQ, E.NE))
            return cls(self.make(t, depth - 1), self.make(t, depth - 1))
        if pick < 0.1:
            return self.leaf(dtype)
        if pick < 0.25:
            return E.Cast(dtype, self.make(r.choice(DATA[:6] if not dtype.startswith("float") else DATA), depth - 1))
        if pick < 0.35:
            return E.Select(self.make("bool", depth - 1), self.make(dtype, depth - 1), self.make(dtype, depth - 1))
        if dtype.startswith("float"):
            cls = r.choice((E.Add, E.Sub, E.Mul, E.Div, E.Min, E.Max))
            return cls(self.make(dtype, depth - 1), self.make(dtype, depth - 1))
        if pick < 0.45:
            op = r.choice(("bitand", "bitor", "bitxor", "shr"))
            right = (
                build.const(r.choice((1, 3, 7)), dtype)
                if op == "shr" or r.random() < 0.5
                else self.make(dtype, depth - 1)
            )
            return E.Call(op, (self.make(dtype, depth - 1), right), dtype)
        if pick < 0.6:
            cls = r.choice((E.FloorDiv, E.FloorMod, E.Div, E.Mod))
            return cls(self.make(dtype, depth - 1), build.const(r.choice((1, 2, 3, 4, 8, 100)), dtype))
        cls = r.choice((E.Add, E.Sub, E.Mul, E.Min, E.Max))
        return cls(self.make(dtype, depth - 1), self.make(dtype, depth - 1))


@pytest.mark.parametrize("block", range(2))
def test_data_wraps(block):
    """Arithmetic on loaded values wraps and has NaNs: only what is true then may be used."""
    size = 4
    gen = np.random.default_rng(7)
    arrays = {}
    for t in DATA:
        b = Buffer(t, t, (E.IntImm(size),))
        if t.startswith("float"):
            a = np.array([np.nan, -0.0, np.inf, 1.5], t)
        elif t == "bool":
            a = np.array([True, False, True, False])
        else:
            info = np.iinfo(t)
            a = np.array([info.min, info.max, gen.integers(info.min, info.max), 3]).astype(t)
        arrays[b] = a
    buffers = {b.dtype: b for b in arrays}
    for seed in range(block * CASES, (block + 1) * CASES):
        rng = random.Random(seeds.stream(f"data{seed}"))
        i = E.Var("i")
        e = DataMaker(rng, buffers, i).make(rng.choice(DATA), 4)
        ana = Analyzer()
        ana.bind(i, E.Range(E.IntImm(0), E.IntImm(size)))
        s = ana.simplify(e)
        assert s.dtype == e.dtype
        for k in range(size):
            want, got = eval_expr(e, {i: k}, arrays), eval_expr(s, {i: k}, arrays)
            same = np.array_equal(want, got, equal_nan=True) if e.dtype.startswith("float") else want == got
            if same and e.dtype.startswith("float") and not np.isnan(want):
                same = np.signbit(want) == np.signbit(got)
            assert same, f"seed {seed}: {e}\n -> {s}\n at {k}: {want} became {got}"
        assert ana.simplify(s) is s
