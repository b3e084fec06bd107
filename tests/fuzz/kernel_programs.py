"""Random te programs over many dtypes, with inputs for which every backend must find the same numbers.

Values are multiples of 2^-q below a bound, and both are followed through the expression: while bound * 2^q fits the
significand, arithmetic is exact in any order, fused or not. Operations that jump (floor, comparisons, conversions to
integers) are applied to exact values alone, and integers stay in range; functions such as exp end the exactness, and the
result is then held to a tolerance of its dtype.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from tec import te

FLOATS = ("float32", "float16", "bfloat16", "float64")
INTS = ("int32", "int8", "int64", "uint8", "int16")
_BITS = {"float32": 24, "float16": 11, "bfloat16": 8, "float64": 53, "int32": 31, "int8": 7, "int64": 62, "uint8": 8, "int16": 15}  # fmt: skip
TOLERANCE = {"float32": 2e-4, "float16": 4e-2, "bfloat16": 2e-1, "float64": 1e-5}


@dataclass
class Program:
    """A program: `args` are the function's parameters: the sizes that no input's shape gives, inputs, outputs."""

    args: list[Any]
    inputs: list[Any]
    outputs: list[Any]
    sizes: dict[str, int]
    scalars: dict[Any, int]
    data: dict[str, np.ndarray]
    shapes: list[tuple[int, ...]]
    exact: bool
    kind: str
    work: int  # steps of all loops, unscheduled


@dataclass
class Value:
    """An expression with what is known of it: |value| <= bound, a multiple of 2^-frac while `exact`."""

    e: Any
    bound: float
    frac: int
    exact: bool

    @property
    def dtype(self) -> str:
        return str(self.e.dtype)

    def fits(self) -> bool:
        return self.bound * 2**self.frac < 2 ** _BITS[self.dtype] and self.bound < 30000


def np_dtype(dtype: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)


class Maker:
    """The state of one program's making."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.noise = np.random.default_rng(seed)
        self.inputs: list[Any] = []
        self.data: dict[str, np.ndarray] = {}
        self.sizes: dict[str, int] = {}
        self.free: dict[str, Any] = {}
        self.count = 0

    def dim(self, lo: int = 1, hi: int = 37) -> tuple[Any, int]:
        value = self.rng.randint(lo, hi)
        if self.rng.random() < 0.2:
            name = f"n{len(self.sizes)}"
            self.sizes[name] = value
            self.free[name] = te.size_var(name)
            return self.free[name], value
        return value, value

    def name(self, prefix: str = "T") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def placeholder(self, dims: list[tuple[Any, int]], dtype: str, top: int = 3, low: int | None = None) -> Any:
        """Integers of [low, top], in quarters for the wider floats."""
        t = te.placeholder(tuple(d for d, _ in dims), dtype=dtype, name=self.name("A"))
        shape = tuple(v for _, v in dims)
        least = (0 if dtype.startswith("u") else -top) if low is None else low
        x = self.noise.integers(least, top + 1, shape)
        self.data[t.op.name] = (x / 4 if dtype in ("float32", "float64") and low is None else x).astype(np_dtype(dtype))
        self.inputs.append(t)
        for d, _ in dims:
            if not isinstance(d, int):
                self.free.pop(d.name, None)
        return t

    def dtype(self, floats: float = 0.7) -> str:
        return self.rng.choice(FLOATS[:3] * 3 + FLOATS[3:] if self.rng.random() < floats else INTS)

    # ---- expressions

    def unary(self, x: Value) -> Value:
        if x.dtype in FLOATS:
            kind = self.rng.choice(["neg", "abs", "scale", "floor", "exp", "tanh", "sigmoid", "sqrt", "relu", "cast"])
        else:
            kind = self.rng.choice(["abs", "scale", "mod", "div", "shift", "cast", "relu", "and"])
        if kind == "neg":
            return replace(x, e=-x.e)
        if kind == "abs":
            return x if x.dtype.startswith("u") else replace(x, e=te.abs(x.e))
        if kind == "relu":
            return replace(x, e=te.max(x.e, te.const(0, x.dtype)))
        if kind == "scale":
            return replace(x, e=x.e * te.const(2, x.dtype) + te.const(1, x.dtype), bound=2 * x.bound + 1)
        if kind == "floor":
            return replace(x, e=te.floor(x.e), bound=x.bound + 1, frac=0) if x.exact else x
        if kind == "exp":
            return Value(te.exp(te.min(x.e, te.const(2, x.dtype))), 8, 0, False)
        if kind in ("tanh", "sigmoid"):
            return Value(getattr(te, kind)(x.e), 1, 0, False)
        if kind == "sqrt":
            return Value(te.sqrt(te.abs(x.e) + te.const(1, x.dtype)), x.bound + 2, 0, False)
        if kind == "mod":
            return replace(x, e=te.floormod(x.e, te.const(self.rng.choice([2, 3, 7]), x.dtype)), bound=6)
        if kind == "div":
            return replace(x, e=te.floordiv(x.e, te.const(self.rng.choice([2, 3, 5]), x.dtype)))
        if kind == "shift":
            by = te.const(1, x.dtype)
            return replace(x, e=x.e << by, bound=2 * x.bound) if self.rng.random() < 0.5 else replace(x, e=x.e >> by)
        if kind == "and":
            return replace(x, e=x.e & te.const(5, x.dtype), bound=max(x.bound, 5))
        return self.cast(x, self.dtype())

    def cast(self, x: Value, dtype: str) -> Value:
        if x.dtype == dtype or (dtype in INTS and x.dtype in FLOATS and not x.exact):
            return x
        if dtype.startswith("u") and not x.dtype.startswith("u"):
            x = replace(x, e=te.max(x.e, te.const(0, x.dtype)))  # a negative float has no unsigned value
        narrow = replace(x, e=x.e.astype(dtype), frac=0 if dtype in INTS else x.frac)
        return narrow if narrow.fits() else x

    def binary(self, x: Value, y: Value) -> Value:
        y = self.cast(y, x.dtype)
        if y.dtype != x.dtype:
            return x
        exact = x.exact and y.exact
        kind = self.rng.choice(["add", "sub", "mul", "min", "max", "select"])
        frac = max(x.frac, y.frac)
        if kind == "mul":
            return Value(x.e * y.e, x.bound * y.bound, x.frac + y.frac, exact)
        if kind == "add" or (kind == "sub" and x.dtype.startswith("u")):
            return Value(x.e + y.e, x.bound + y.bound, frac, exact)
        if kind == "sub":
            return Value(x.e - y.e, x.bound + y.bound, frac, exact)
        bound = max(x.bound, y.bound)
        if kind == "select" and exact:
            return Value(te.select(x.e < y.e, y.e, x.e + te.const(1, x.dtype)), bound + 1, frac, exact)
        return Value((te.min if kind != "max" else te.max)(x.e, y.e), bound, frac, exact)

    def chain(self, leaves: list[Value], steps: int) -> Value:
        """A random expression over the leaves; a step that would leave the exact range is not taken."""
        x = leaves[0]
        rest = leaves[1:]
        for _ in range(steps):
            if rest and self.rng.random() < 0.6:
                new = self.binary(x, rest.pop(0))
            else:
                new = self.unary(x)
            if new.fits():
                x = new
        for y in rest:
            new = self.binary(x, y)
            x = new if new.fits() else x
        return x


def leaf(e: Any, top: int = 3) -> Value:
    quarters = str(e.dtype) in ("float32", "float64")
    return Value(e, top, 2 if quarters else 0, True)


# ---- programs: each returns the output tensors and whether they are exact


def elementwise(m: Maker) -> tuple[list[Any], bool]:
    rank = m.rng.randint(1, 3)
    dims = [m.dim(1, (90, 37, 13)[rank - 1]) for _ in range(rank)]
    reads: list[Callable[..., Any]] = []
    for _ in range(m.rng.randint(1, 3)):
        keep = [k for k in range(rank) if m.rng.random() < 0.7] or [rank - 1]
        if m.rng.random() < 0.2:
            keep.reverse()
        t = m.placeholder([dims[k] for k in keep], m.dtype())
        reads.append(lambda ix, t=t, keep=tuple(keep): t[tuple(ix[k] for k in keep)])
    flags = []

    def body(*ix: Any) -> Any:
        m.rng.seed(deep)
        x = m.chain([leaf(r(ix)) for r in reads], m.rng.randint(1, 6))
        flags.append(x.exact)
        return x.e

    deep = m.rng.random()
    shape = tuple(d for d, _ in dims)
    first = te.compute(shape, body, name=m.name())
    if m.rng.random() < 0.5:
        return [first], flags[-1]
    top = te.compute(
        shape, lambda *ix: te.max(first[tuple(ix)], te.const(1, first.dtype)) + te.const(1, first.dtype), name=m.name()
    )
    # Two stages; now and then both are outputs.
    return ([top] if m.rng.random() < 0.7 else [first, top]), flags[-1]


def reduction(m: Maker) -> tuple[list[Any], bool]:
    dims = [m.dim(1, 24) for _ in range(m.rng.randint(2, 3))]
    dtype = m.rng.choice(["float32", "float32", "float16", "bfloat16", "int32", "int64", "int8"])
    wide = {"float16": "float32", "bfloat16": "float32", "int8": "int32"}.get(dtype, dtype)
    a = m.placeholder(dims, dtype)
    over = sorted(m.rng.sample(range(len(dims)), m.rng.randint(1, len(dims) - 1)))
    rs = {k: te.reduce_axis((0, dims[k][0]), f"r{k}") for k in over}
    kept = [k for k in range(len(dims)) if k not in rs]
    kind = m.rng.choice(["sum", "max", "min", "sumsq", "where"])

    def read(ix: Any) -> Any:
        where = dict(zip(kept, ix))
        return a[tuple(rs[k] if k in rs else where[k] for k in range(len(dims)))].astype(wide)

    axes = list(rs.values())

    def body(*ix: Any) -> Any:
        x = read(ix)
        if kind == "sumsq":
            return te.sum(x * x, axis=axes)
        if kind == "where":
            return te.sum(x, axis=axes, where=axes[0].var % 2 == 0)
        return getattr(te, kind)(x, axis=axes)

    out = te.compute(tuple(dims[k][0] for k in kept), body, name=m.name())
    if m.rng.random() < 0.5:
        return [out], True
    t = out
    after = te.compute(t.shape, lambda *ix: t[tuple(ix)] * te.const(2, t.dtype) + te.const(1, t.dtype), name=m.name())
    return [after], True


def matmul(m: Maker) -> tuple[list[Any], bool]:
    n, k, w = m.dim(1, 40), m.dim(1, 40), m.dim(1, 40)
    dtype = m.rng.choice(["float32", "float32", "float16", "bfloat16", "int8", "int32", "float64"])
    wide = {"float16": "float32", "bfloat16": "float32", "int8": "int32"}.get(dtype, dtype)
    flip = m.rng.random() < 0.4
    a, b = m.placeholder([n, k], dtype), m.placeholder([w, k] if flip else [k, w], dtype)
    r = te.reduce_axis((0, k[0]), "r")
    c = te.compute(
        (n[0], w[0]),
        lambda i, j: te.sum(a[i, r].astype(wide) * (b[j, r] if flip else b[r, j]).astype(wide), axis=r),
        name=m.name(),
    )
    if m.rng.random() < 0.6:
        return [c], True
    bias = m.placeholder([w], wide)
    out = te.compute((n[0], w[0]), lambda i, j: te.max(c[i, j] + bias[j], te.const(0, wide)), name=m.name())
    return [out], True


def stencil(m: Maker) -> tuple[list[Any], bool]:
    n, w = m.dim(2, 30), m.dim(2, 30)
    dtype = m.dtype()
    a = m.placeholder([n, w], dtype)
    dy, dx = m.rng.randint(0, 2), m.rng.randint(1, 2)
    zero = te.const(0, dtype)
    padded = te.compute(
        (n[0] + 2 * dy, w[0] + 2 * dx),
        lambda i, j: te.if_then_else(
            te.all(i >= dy, i < n[0] + dy, j >= dx, j < w[0] + dx), a[i - dy, j - dx], zero
        ),
        name=m.name(),
    )  # fmt: skip
    if m.rng.random() < 0.5:
        ry, rx = te.reduce_axis((0, 2 * dy + 1), "ry"), te.reduce_axis((0, 2 * dx + 1), "rx")
        return [
            te.compute((n[0], w[0]), lambda i, j: te.max(padded[i + ry, j + rx], axis=[ry, rx]), name=m.name())
        ], True
    return [
        te.compute(
            (n[0], w[0]),
            lambda i, j: padded[i, j] + padded[i + 2 * dy, j + dx] + padded[i + dy, j + 2 * dx],
            name=m.name(),
        )
    ], True


def gather(m: Maker) -> tuple[list[Any], bool]:
    rows, n, w = m.dim(1, 20), m.dim(1, 40), m.dim(1, 20)
    t = m.placeholder([rows, w], m.dtype())
    index = m.placeholder([n], m.rng.choice(["int32", "int64", "uint8"]), top=rows[1] - 1, low=0)
    kind = m.rng.choice(["rows", "reversed", "strided", "masked"])
    if kind == "rows":
        return [te.compute((n[0], w[0]), lambda i, j: t[index[i], j], name=m.name())], True
    if kind == "reversed":
        return [te.compute((n[0], w[0]), lambda i, j: t[index[n[0] - 1 - i], w[0] - 1 - j], name=m.name())], True
    if kind == "strided":
        return [te.compute((n[0], w[0]), lambda i, j: t[index[i], j // 2] + t[0, j % w[0]], name=m.name())], True
    one = te.const(1, t.dtype)
    return [
        te.compute(
            (w[0], n[0]), lambda j, i: te.if_then_else(index[i] > 0, t[te.max(index[i].astype("int32") - 1, 0), j], one), name=m.name()
        )
    ], True  # fmt: skip


def softmax(m: Maker) -> tuple[list[Any], bool]:
    n, w = m.dim(1, 12), m.dim(1, 40)
    a = m.placeholder([n, w], "float32")
    r, q = te.reduce_axis((0, w[0]), "r"), te.reduce_axis((0, w[0]), "q")
    top = te.compute((n[0],), lambda i: te.max(a[i, r], axis=r), name=m.name())
    e = te.compute((n[0], w[0]), lambda i, j: te.exp(a[i, j] - top[i]), name=m.name())
    total = te.compute((n[0],), lambda i: te.sum(e[i, q], axis=q), name=m.name())
    return [te.compute((n[0], w[0]), lambda i, j: e[i, j] / total[i], name=m.name())], False


def argmax(m: Maker) -> tuple[list[Any], bool]:
    n, w = m.dim(1, 12), m.dim(1, 40)
    dtype = m.rng.choice(["float32", "int32", "float16"])
    a = m.placeholder([n, w], dtype)
    k = te.reduce_axis((0, w[0]), "k")
    best = te.comm_reducer(
        lambda u, v: tuple(
            te.select(te.any(u[1] > v[1], te.all(u[1] == v[1], u[0] < v[0])), p, q) for p, q in zip(u, v)
        ),
        lambda t0, t1: (te.max_value(t0), te.min_value(t1)),
        name="best",
    )
    where, value = te.compute((n[0],), lambda i: best((k.var, a[i, k]), axis=k), name=m.name())
    return [where, value], True


KINDS = [elementwise, elementwise, elementwise, reduction, reduction, matmul, matmul, stencil, gather, softmax, argmax]


def program(seed: int) -> Program:
    m = Maker(seed)
    kind = m.rng.choice(KINDS)
    outputs, exact = kind(m)
    shapes = [tuple(_size(d, m.sizes) for d in t.shape) for t in outputs]
    ops = [op for op in te.topo_order(outputs) if not isinstance(op, te.PlaceholderOp)]
    work = sum(math.prod(_size(x.dom.extent, m.sizes) for x in (*op.axis, *op.reduce_axis)) for op in ops)
    scalars = {v: m.sizes[name] for name, v in m.free.items()}
    args = [*scalars, *m.inputs, *outputs]
    return Program(args, m.inputs, outputs, m.sizes, scalars, m.data, shapes, exact, kind.__name__, work)


def _size(d: Any, sizes: dict[str, int]) -> int:
    from tec.ir.interp import eval_expr
    from tec.ir.visit import free_vars

    return d if isinstance(d, int) else int(eval_expr(d, {v: sizes[v.name] for v in free_vars(d)}))


def reference(p: Program) -> list[np.ndarray]:
    """What the program means, by te.evaluate: no schedule, no code."""
    return list(te.evaluate(p.outputs, {t: p.data[t.op.name] for t in p.inputs}, p.scalars))
