"""Random programs: compiled code and the reference interpreter must give the same bits.

Expressions share nodes, bind lets, guard accesses, mix types and lanes; statements nest loops, branches and storage.
Float operations are held exact by switching contraction off.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from tec.ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    Alloc,
    And,
    Broadcast,
    Buffer,
    BufferLoad,
    BufferStore,
    Cast,
    Div,
    Expr,
    FloorDiv,
    FloorMod,
    For,
    Func,
    IfThenElse,
    IntImm,
    Let,
    LetStmt,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    Ramp,
    Select,
    Seq,
    Stmt,
    Sub,
    Var,
    dtype_info,
    with_lanes,
)  # fmt: skip
from tec.ir import build as B
from tec.ir.interp import run
from tests import seeds

from .harness import buffer, compile_func, numpy_dtype

N = 64
DTYPES = ["int32", "int8", "uint8", "int64", "uint32", "float32", "float64", "float16", "bool"]


class Maker:
    """One random program."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.inputs = {d: buffer(f"in_{d}", d, N) for d in DTYPES}
        self.outputs = {d: buffer(f"out_{d}", d, N) for d in DTYPES}
        self.locals: list[Buffer] = []
        self.scope: list[Var] = []  # loop variables in [0, 8)
        self.values: list[Var] = []  # let variables of any type
        self.names = 0

    def fresh(self, dtype: str) -> Var:
        self.names += 1
        return Var(f"v{self.names}", dtype)

    # ---- indices in [0, N)

    def scalar_index(self) -> Expr:
        r = self.rng
        terms: list[Expr] = [IntImm(r.randrange(4))]
        for v in r.sample(self.scope, min(len(self.scope), r.randrange(3))):
            terms.append(Mul(v, IntImm(r.randrange(1, 4))))
        e = terms[0]
        for t in terms[1:]:
            e = Add(e, t)
        how = r.randrange(4)
        if how == 0:
            return FloorMod(Sub(e, IntImm(r.randrange(60))), IntImm(r.choice((5, 8, 32))))
        if how == 1:
            return FloorDiv(e, IntImm(r.choice((2, 3, 4))))
        if how == 2:
            return Add(Mod(e, IntImm(7)), IntImm(r.randrange(20)))
        return e

    def index(self, lanes: int) -> Expr:
        r = self.rng
        base = self.scalar_index()
        if lanes == 1:
            return base
        how = r.randrange(5)
        if how == 0:
            return Ramp(Add(base, IntImm(7)), IntImm(-1), lanes) if lanes <= 8 else Ramp(base, IntImm(1), lanes)
        if how == 1:
            return Broadcast(base, lanes)
        if how == 2:
            return Ramp(FloorMod(base, IntImm(4)), IntImm(r.choice((2, 3))), lanes)
        if how == 3:
            return FloorMod(
                Cast(f"int32x{lanes}", BufferLoad(self.inputs["uint8"], (Ramp(IntImm(0), IntImm(1), lanes),))),
                Broadcast(IntImm(N), lanes),
            )
        return Add(Broadcast(base, lanes), Ramp(IntImm(0), IntImm(1), lanes))

    # ---- expressions

    def expr(self, dtype: str, depth: int, lanes: int = 1, pool: list[Expr] | None = None) -> Expr:
        pool = [] if pool is None else pool
        same = [e for e in pool if e.dtype == with_lanes(dtype, lanes)]
        if same and self.rng.random() < 0.25:
            return self.rng.choice(same)
        e = self._expr(dtype, depth, lanes, pool)
        pool.append(e)
        return e

    def _expr(self, dtype: str, depth: int, lanes: int, pool: list[Expr]) -> Expr:
        r, info = self.rng, dtype_info(dtype)
        vec = with_lanes(dtype, lanes)
        sub = lambda d=dtype: self.expr(d, depth - 1, lanes, pool)  # noqa: E731
        if depth <= 0 or r.random() < 0.1:
            bound = [v for v in self.values if v.dtype == vec]
            if bound and r.random() < 0.4:
                return r.choice(bound)
            if r.random() < 0.2 and dtype != "bool":
                return B.const(r.randrange(0, 9), vec)
            return BufferLoad(self.inputs[dtype], (self.index(lanes),))
        if dtype == "bool":
            how = r.randrange(4)
            if how == 0:
                return r.choice((And, Or))(sub(), sub())
            if how == 1:
                return Not(sub())
            other = r.choice([d for d in DTYPES if d != "bool"])
            return r.choice((EQ, NE, LT, LE, GT, GE))(sub(other), sub(other))
        how = r.randrange(10)
        if how == 0:
            return Select(sub("bool"), sub(), sub())
        if how == 1:
            other = r.choice([d for d in DTYPES if d != dtype])
            return Cast(vec, sub(other))
        if how == 2:
            kind = r.choice(DTYPES)
            v, value = self.fresh(with_lanes(kind, lanes)), sub(kind)
            self.values.append(v)
            body = self.expr(dtype, depth - 1, lanes, [])
            self.values.pop()
            return Let(v, value, body)
        if how == 3 and lanes == 1:
            bound = list(self.scope)
            cond: Expr = LT(r.choice(bound), IntImm(r.randrange(8))) if bound else sub("bool")
            far = BufferLoad(self.inputs[dtype], (Select(cond, self.scalar_index(), IntImm(1 << 30)),))
            return B.call("if_then_else", cond, far, sub(), dtype=dtype)
        if how == 4:
            mask = self.expr("bool", 1, lanes, [])
            return BufferLoad(self.inputs[dtype], (self.index(lanes),), mask)
        if info.is_float:
            if how == 5:
                return B.call(r.choice(("floor", "abs", "sqrt", "trunc", "nearbyint")), sub())
            return r.choice((Add, Sub, Mul, Div))(sub(), sub())  # min(0.0, -0.0) may be either: not here
        if how == 5:
            return B.call(r.choice(("bitand", "bitor", "bitxor")), sub(), sub())
        if how == 6:
            return B.call(r.choice(("bitnot", "popcount", "clz")), sub())
        return r.choice((Add, Sub, Mul, Min, Max, FloorDiv, FloorMod, Div, Mod))(sub(), sub())

    # ---- statements

    def stmt(self, depth: int) -> Stmt:
        r = self.rng
        how = r.randrange(7) if depth > 0 else 0
        if how in (1, 2):
            v = self.fresh(r.choice(("int32", "int32")))
            self.scope.append(v)
            low = r.randrange(3)
            body = self.stmt(depth - 1)
            self.scope.pop()
            return For(v, IntImm(low), IntImm(r.randrange(0, 9 - low)), body, r.choice(("serial", "unrolled")))
        if how == 3:
            return IfThenElse(
                self.expr("bool", 2), self.stmt(depth - 1), self.stmt(depth - 1) if r.random() < 0.5 else None
            )
        if how == 4:
            return Seq(tuple(self.stmt(depth - 1) for _ in range(r.randrange(2, 4))))
        if how == 5:
            dtype = r.choice(DTYPES)
            v, value = self.fresh(dtype), self.expr(dtype, 2)
            self.values.append(v)
            body = self.stmt(depth - 1)
            self.values.pop()
            return LetStmt(v, value, body)
        if how == 6:
            tmp = Buffer(f"tmp{self.names}", "float32", (IntImm(N),), scope="local")
            self.names += 1
            k = self.fresh("int32")
            fill = For(k, IntImm(0), IntImm(N), BufferStore(tmp, BufferLoad(self.inputs["float32"], (k,)), (k,)))
            use = BufferStore(self.outputs["float32"], BufferLoad(tmp, (self.scalar_index(),)), (self.scalar_index(),))
            return Alloc(tmp, Seq((fill, use, self.stmt(depth - 1))))
        dtype, lanes = r.choice(DTYPES), r.choice((1, 1, 4, 8, 16))
        index = self.index(lanes)
        while type(index) in (Broadcast, FloorMod) and lanes > 1:  # lanes that meet in one element have no order
            index = self.index(lanes)
        mask = self.expr("bool", 1, lanes) if r.random() < 0.2 else None
        return BufferStore(self.outputs[dtype], self.expr(dtype, 4, lanes), (index,), mask)

    def func(self) -> Func:
        body = Seq(tuple(self.stmt(4) for _ in range(3)))
        return Func("main", (*self.inputs.values(), *self.outputs.values()), body, {"fast_math": ()})


def arrays(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    out = []
    for d in DTYPES:
        info = dtype_info(d)
        if d == "bool":
            out.append(rng.integers(0, 2, N).astype(np.bool_))
        elif info.is_int:
            t = np.iinfo(d)
            wide = rng.integers(t.min, t.max, N, dtype=d, endpoint=True)
            out.append(np.where(rng.random(N) < 0.7, rng.integers(0, 10, N).astype(d), wide))
        else:
            out.append(rng.choice(np.array([0.0, -0.0, 1.5, -2.25, 3.0, 100.0, -7.5, 0.125], d), N))
    return out


def check(seed: int) -> None:
    f = Maker(seed).func()
    inputs = arrays(seed)
    got = [np.zeros(N, numpy_dtype(d)) for d in DTYPES]
    want = [np.zeros(N, numpy_dtype(d)) for d in DTYPES]
    assert compile_func(f)(*inputs, *got) == 0
    with np.errstate(all="ignore"):
        run(f, [*inputs, *want])
    for d, a, b in zip(DTYPES, got, want):
        np.testing.assert_array_equal(a, b, err_msg=f"seed {seed}, {d}\n{f}")


@pytest.mark.parametrize("block", range(4))
def test_random_programs(block):
    for seed in seeds.some(25 if seeds.number() else 7, 25 * block):
        check(seed)


@pytest.mark.slow
def test_many_random_programs():
    for seed in seeds.some(1000, 1000):
        check(seed)
