"""Random single operators, with what exporters usually put behind them, as ONNX models: in sizes, types and layouts where a compiler's speed may fall off.

`draw(kind, rng, bounds)` gives a `Case`; the same generator state gives the same case. Sizes are even on a logarithmic scale, and most large ones are
multiples of 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


@dataclass(frozen=True)
class Bounds:
    """What a case may have at most: multiply-adds and elements of an array; and the types that are drawn."""

    macs: int
    elements: int
    dtypes: tuple[str, ...] = ("float32",)


@dataclass
class Case:
    """A model in the making. macs: its multiply-adds; spec: its sizes, for its name."""

    kind: str
    dtype: str
    spec: dict[str, Any] = field(default_factory=dict)
    macs: int = 0
    unread_bytes: int = 0  # of inputs and weights, that the result does not depend on or that need not be read
    inputs: dict[str, Any] = field(default_factory=dict)  # name -> array
    has_sizes_alone: bool = False  # arrays are not drawn: to bring a generator on
    open_shapes: dict[str, list[Any]] = field(default_factory=dict)
    peer: Callable[[Any, list[Any], list[Any]], Callable[[], Any]] | None = (
        None  # of (torch, inputs, weights), where it is not `cliff_torch`'s
    )
    _nodes: list[Any] = field(default_factory=list)
    _weights: list[Any] = field(default_factory=list)
    _outputs: list[str] = field(default_factory=list)
    _rng: Any = field(default_factory=lambda: np.random.default_rng(0))

    @property
    def name(self) -> str:
        return f"{self.kind} {self.dtype} " + " ".join(f"{k}={v}".replace(" ", "") for k, v in self.spec.items())

    def _normal(self, shape: tuple[int, ...]) -> Any:
        if self.has_sizes_alone:
            return np.zeros((), np.float32)
        return self._rng.standard_normal(shape, dtype=np.float32)

    def input(self, name: str, *shape: int, open_shape: list[Any] | None = None) -> str:
        self.inputs[name] = self._normal(shape).astype(self.dtype)
        if open_shape:
            self.open_shapes[name] = open_shape
        return name

    def indices(self, name: str, count: int, below: int) -> str:
        return self.given(name, lambda r: r.integers(0, below, count))

    def given(self, name: str, draw: Callable[[np.random.Generator], Any]) -> str:
        """An input whose array `draw` makes."""
        self.inputs[name] = np.zeros(()) if self.has_sizes_alone else draw(self._rng)
        return name

    def integers(self, name: str, *shape: int) -> str:
        """An input of small whole numbers of the case's type."""
        low, high = (0 if self.dtype in ("uint8", "bool") else -9), 2 if self.dtype == "bool" else 10
        return self.given(name, lambda r: r.integers(low, high, shape).astype(self.dtype))

    @staticmethod
    def onnx_type(dtype: str) -> int:
        return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def weight(self, *shape: int) -> str:
        values = self._normal(shape) / max(1.0, float(np.prod(shape[1:]))) ** 0.5
        return self.const(values.astype(self.dtype))

    def drawn(self, draw: Callable[[np.random.Generator], Any]) -> str:
        """A weight whose array `draw` makes."""
        return self.const(np.zeros(()) if self.has_sizes_alone else draw(self._rng))

    def const(self, value: Any) -> str:
        self._weights.append(numpy_helper.from_array(np.asarray(value), f"c{len(self._weights)}"))
        return str(self._weights[-1].name)

    def scalar(self, value: float) -> str:
        return self.const(np.array(value, self.dtype))

    def op(self, kind: str, *inputs: str, **attrs: Any) -> str:
        return self.ops(kind, 1, *inputs, **attrs)[0]

    def ops(self, kind: str, outputs: int, *inputs: str, **attrs: Any) -> list[str]:
        names = [f"v{len(self._nodes)}_{i}" for i in range(outputs)]
        self._nodes.append(helper.make_node(kind, list(inputs), names, **attrs))
        return names

    def finish(self, *outputs: str) -> None:
        self._outputs = list(outputs)

    def model(self) -> onnx.ModelProto:
        ins = [
            helper.make_tensor_value_info(n, self.onnx_type(str(x.dtype)), self.open_shapes.get(n, x.shape))
            for n, x in self.inputs.items()
        ]
        outs = [helper.make_empty_tensor_value_info(o) for o in self._outputs]
        graph = helper.make_graph(self._nodes, "case", ins, outs, self._weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        return onnx.shape_inference.infer_shapes(model)

    def read_bytes(self) -> int:
        """Of inputs and weights, once each, what must be read."""
        held = sum(x.nbytes for x in self.inputs.values()) + sum(len(w.raw_data) for w in self._weights)
        return held - self.unread_bytes


def size(rng: Random, low: int, high: int, multiple: float = 0.7) -> int:
    x = round(math.exp(rng.uniform(math.log(low), math.log(high))))
    return max(8, x // 8 * 8) if x > 16 and rng.random() < multiple else max(low, x)


def until(draw: Callable[[], tuple[Any, ...]], fits: Callable[..., bool]) -> tuple[Any, ...]:
    """The first draw that fits."""
    while True:
        found = draw()
        if fits(*found):
            return found


def _tail(c: Case, y: str, channels: int, how: str, shape: tuple[int, ...] = ()) -> str:
    """A bias over the last axis (or in `shape`) and an activation."""
    if "bias" in how:
        y = c.op("Add", y, c.weight(*(shape or (channels,))))
    if "relu" in how:
        y = c.op("Relu", y)
    if "gelu" in how:
        y = c.op("Gelu", y)
    if "silu" in how:
        y = c.op("Mul", y, c.op("Sigmoid", y))
    return y


_HOW = ("", "bias", "bias relu", "bias gelu", "bias silu", "silu")


def _matmul(c: Case, rng: Random, b: Bounds) -> None:
    m, n, k = until(
        lambda: (size(rng, 1, 16384), size(rng, 16, 16384), size(rng, 16, 16384)),
        lambda m, n, k: m * n * k <= b.macs and max(m * k, k * n, m * n) <= b.elements,
    )
    how, weights = rng.choice(_HOW), rng.choice(("kn", "nk", "input"))
    c.spec, c.macs = {"m": m, "n": n, "k": k, "weights": weights, "tail": how.replace(" ", "+") or "none"}, m * n * k
    c.input("x", m, k, open_shape=["rows", k] if c.kind == "open matmul" else None)
    if weights == "input":
        w = c.input("w", k, n)
    else:
        w = c.weight(k, n) if weights == "kn" else c.op("Transpose", c.weight(n, k), perm=[1, 0])
    c.finish(_tail(c, c.op("MatMul", "x", w), n, how))


def _batched(c: Case, rng: Random, b: Bounds) -> None:
    batch, m, n, k = until(
        lambda: (size(rng, 2, 512), size(rng, 1, 2048), size(rng, 8, 2048), size(rng, 8, 1024)),
        lambda z, m, n, k: z * m * n * k <= b.macs and z * max(m * k, k * n, m * n) <= b.elements,
    )
    c.spec, c.macs = {"batch": batch, "m": m, "n": n, "k": k}, batch * m * n * k
    c.finish(c.op("MatMul", c.input("x", batch, m, k), c.input("y", batch, k, n)))


def _conv(c: Case, rng: Random, b: Bounds) -> None:
    dims = 1 if c.kind == "conv 1d" else 2

    def one() -> tuple[Any, ...]:
        ci, co = size(rng, 3, 1024), size(rng, 8, 1024)
        groups = rng.choice((1, 1, 1, 1, 4, ci))
        if groups == ci:
            co = ci
        elif ci % groups or co % groups:
            groups = 1
        side = size(rng, 7, 256) if dims == 2 else size(rng, 32, 8192)
        return (
            rng.choice((1, 1, 2, 8, 32)),
            ci,
            co,
            side,
            rng.choice((1, 1, 3, 3, 3, 5, 7)),
            rng.choice((1, 1, 1, 2)),
            rng.choice((1, 1, 1, 1, 2)),
            groups,
        )

    def out(side: int, k: int, stride: int, dilation: int) -> int:
        return (side + 2 * (dilation * (k // 2)) - dilation * (k - 1) - 1) // stride + 1

    def fits(n: int, ci: int, co: int, side: int, k: int, stride: int, dilation: int, groups: int) -> bool:
        o, per = out(side, k, stride, dilation), ci // groups * k**dims
        return (
            o >= 1
            and n * co * o**dims * per <= b.macs
            and max(n * ci * side**dims, n * co * o**dims, co * per) <= b.elements
        )

    n, ci, co, side, k, stride, dilation, groups = until(one, fits)
    how = rng.choice(("", "relu", "silu"))
    c.spec = {
        "n": n,
        "in": ci,
        "out": co,
        "side": side,
        "kernel": k,
        "stride": stride,
        "dilation": dilation,
        "groups": groups,
        "tail": how or "none",
    }
    c.macs = n * co * out(side, k, stride, dilation) ** dims * (ci // groups) * k**dims
    c.input("x", n, ci, *[side] * dims)
    y = c.op(
        "Conv", "x", c.weight(co, ci // groups, *[k] * dims), c.weight(co),
        strides=[stride] * dims, dilations=[dilation] * dims, group=groups, pads=[dilation * (k // 2)] * 2 * dims,
    )  # fmt: skip
    c.finish(_tail(c, y, co, how))


def _rows_of(c: Case, rng: Random, b: Bounds) -> tuple[int, int]:
    m, n = until(lambda: (size(rng, 1, 65536), size(rng, 16, 65536)), lambda m, n: 2**14 <= m * n <= b.elements)
    c.spec = {"rows": m, "columns": n}
    c.input("x", m, n)
    return m, n


def _rows(c: Case, rng: Random, b: Bounds) -> None:
    n = _rows_of(c, rng, b)[1]
    what = rng.choice(("Softmax", "LayerNormalization", "rms norm", "ReduceLogSumExp", "ArgMax"))
    c.spec["what"] = what
    last = c.const(np.array([-1]))
    if what == "LayerNormalization":
        y = c.op(what, "x", c.weight(n), c.weight(n), axis=-1)
    elif what == "rms norm":
        mean = c.op("ReduceMean", c.op("Mul", "x", "x"), last, keepdims=1)
        y = c.op("Mul", "x", c.op("Reciprocal", c.op("Sqrt", c.op("Add", mean, c.scalar(1e-3)))))
    elif what == "ReduceLogSumExp":
        y = c.op(what, "x", last, keepdims=0)
    else:
        y = c.op(what, "x", axis=-1, **({"keepdims": 0} if what == "ArgMax" else {}))
    c.finish(y)


def _top_k(c: Case, rng: Random, b: Bounds) -> None:
    n = _rows_of(c, rng, b)[1]
    k = c.spec["k"] = min(n, rng.choice((1, 5, 8, 50, 64)))
    c.finish(*c.ops("TopK", 2, "x", c.const(np.array([k])), axis=-1))


def _cumsum(c: Case, rng: Random, b: Bounds) -> None:
    _rows_of(c, rng, b)
    axis = c.spec["axis"] = rng.choice((-1, -1, 0))
    c.finish(c.op("CumSum", "x", c.const(np.array(axis))))


def drawn_shape(rng: Random, elements: int) -> tuple[int, ...]:
    return until(
        lambda: tuple(size(rng, 1, 4096, 0.5) for _ in range(rng.choice((2, 3, 4)))),
        lambda *s: 2**14 <= math.prod(s) <= elements,
    )


def _reduce(c: Case, rng: Random, b: Bounds) -> None:
    shape = drawn_shape(rng, b.elements)
    axes, what = sorted(rng.sample(range(len(shape)), rng.randint(1, len(shape)))), rng.choice(("Sum", "Max", "Mean"))
    c.spec = {"shape": shape, "axes": axes, "what": what}
    c.finish(c.op(f"Reduce{what}", c.input("x", *shape), c.const(np.array(axes)), keepdims=0))


def _transpose(c: Case, rng: Random, b: Bounds) -> None:
    shape = drawn_shape(rng, b.elements)
    perm = rng.sample(range(len(shape)), len(shape))
    c.spec = {"shape": shape, "perm": perm}
    c.finish(c.op("Transpose", c.input("x", *shape), perm=perm))


def _elementwise(c: Case, rng: Random, b: Bounds) -> None:
    shape = drawn_shape(rng, b.elements // 2)
    other = tuple(s if rng.random() < 0.6 else 1 for s in shape)
    c.spec = {"shape": shape, "other": other}
    x, y = c.input("x", *shape), c.input("y", *other)
    c.finish(c.op("Tanh", c.op("Add", c.op("Mul", x, y), x)))


def _pad(c: Case, rng: Random, b: Bounds) -> None:
    shape = drawn_shape(rng, b.elements // 2)
    pads = [rng.randint(0, 5) for _ in shape * 2]
    c.spec = {"shape": shape, "pads": pads}
    c.finish(c.op("Pad", c.input("x", *shape), c.const(np.array(pads))))


def _concat(c: Case, rng: Random, b: Bounds) -> None:
    shape = drawn_shape(rng, b.elements // 2)
    axis = rng.randrange(len(shape))
    c.spec = {"shape": shape, "axis": axis}
    c.finish(c.op("Concat", c.input("x", *shape), c.input("y", *shape), axis=axis))


def _gather(c: Case, rng: Random, b: Bounds) -> None:
    rows, n, picked = until(
        lambda: (size(rng, 8, 200_000), size(rng, 1, 4096), size(rng, 1, 65536)),
        lambda rows, n, m: rows * n <= b.elements and 2**12 <= m * n <= b.elements,
    )
    c.spec = {"rows": rows, "columns": n, "picked": picked}
    c.finish(c.op("Gather", c.input("x", rows, n), c.indices("i", picked, rows), axis=0))
    c.unread_bytes = max(0, rows - picked) * n * np.dtype(c.dtype).itemsize


def _resize(c: Case, rng: Random, b: Bounds) -> None:
    n, channels, side, scale = until(
        lambda: (rng.choice((1, 4)), size(rng, 3, 256), size(rng, 8, 256), rng.choice((2, 3, 4))),
        lambda n, ch, side, scale: 2**14 <= n * ch * (side * scale) ** 2 <= b.elements,
    )
    mode = rng.choice(("nearest", "linear"))
    c.spec = {"n": n, "channels": channels, "side": side, "scale": scale, "mode": mode}
    how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"} if mode == "nearest" else {}
    scales = c.const(np.array([1, 1, scale, scale], np.float32))
    c.finish(c.op("Resize", c.input("x", n, channels, side, side), "", scales, mode=mode, **how))


def _attention(c: Case, rng: Random, b: Bounds) -> None:
    def one() -> tuple[Any, ...]:
        q = size(rng, 1, 8192)
        k = q if rng.random() < 0.6 else size(rng, max(q, 16), 16384)
        return (
            rng.choice((1, 1, 2, 8)),
            rng.choice((4, 8, 12, 32)),
            q,
            k,
            rng.choice((32, 64, 64, 80, 96, 128, 128, 256)),
            q == k and rng.random() < 0.5,
        )

    batch, heads, q, k, d, causal = until(
        one,
        lambda z, h, q, k, d, _: (
            z * h * q * k * d * 2 <= b.macs
            and z * h * k * d <= b.elements
            and z * h * q * k <= 4 * b.elements
            and q * k <= b.elements
        ),
    )
    c.spec = {"batch": batch, "heads": heads, "queries": q, "keys": k, "size": d, "causal": causal}
    c.macs = batch * heads * q * k * d * 2 // (2 if causal else 1)
    x, y, z = c.input("q", batch, heads, q, d), c.input("k", batch, heads, k, d), c.input("v", batch, heads, k, d)
    s = c.op("Mul", c.op("MatMul", x, c.op("Transpose", y, perm=[0, 1, 3, 2])), c.scalar(d**-0.5))
    if causal:
        s = c.op("Add", s, c.const(np.triu(np.full((q, k), -1e4, c.dtype), 1)))
        c.unread_bytes = q * k * np.dtype(c.dtype).itemsize  # the mask is known
    c.finish(c.op("MatMul", c.op("Softmax", s, axis=-1), z))


KINDS: dict[str, Callable[[Case, Random, Bounds], None]] = {
    "matmul": _matmul, "open matmul": _matmul, "batched matmul": _batched, "conv": _conv, "conv 1d": _conv, "rows": _rows, "reduce": _reduce,
    "elementwise": _elementwise, "transpose": _transpose, "gather": _gather, "top k": _top_k, "cumsum": _cumsum, "pad": _pad, "concat": _concat,
    "resize": _resize, "attention": _attention,
}  # fmt: skip


def draw(kind: str, rng: Random, bounds: Bounds, sizes_alone: bool = False) -> Case:
    """A case of a kind; with `sizes_alone` without its arrays. Raises KeyError for a kind that is none of `KINDS` and of `cliff_wide.WIDE`."""
    from benchmarks.cliff_wide import WIDE

    dtype, arrays = rng.choice(bounds.dtypes), np.random.default_rng(rng.randrange(2**31))
    case = Case(kind, dtype, has_sizes_alone=sizes_alone, _rng=arrays)
    (KINDS.get(kind) or WIDE[kind])(case, rng, bounds)
    return case
