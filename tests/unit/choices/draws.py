"""Networks of one layer or a few, drawn at random, as ONNX models: what templates meet in small and odd sizes.

`draw(rng)` gives a case: the kind of layer, what was drawn for it in words, and the model. Sizes are small (1 to 40), odd (primes, 96, 160, one more or less than
a tile), and now and then large enough for the largest tiles; nothing is ever run, so that large ones cost no more than small ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}
ODD = (1, 2, 3, 5, 7, 11, 13, 17, 31, 37, 41, 49, 63, 65, 67, 72, 80, 96, 97, 104, 112, 120, 127, 129, 136, 144, 160, 168, 173, 184, 192, 196, 197, 200, 257, 288, 296, 369, 491, 504)  # fmt: skip
LARGE = (256, 384, 512, 577, 768, 1000, 1024, 2056, 3072, 4096, 8192, 12544, 25088)
_MOST_HELD = 1 << 28  # elements of a weight: 1 GB in float32


@dataclass(frozen=True)
class Case:
    """A drawn model: `words` say what would draw it again by hand."""

    kind: str
    words: str
    model: onnx.ModelProto


class Net:
    """A model in the making; its methods give names of values. Weights are constants of zeros: nothing is computed with them."""

    def __init__(self, rng: random.Random, dtype: str):
        self.rng, self.dtype = rng, dtype
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.weights: list[Any] = []
        self.words: list[str] = [dtype]

    def name(self) -> str:
        return f"v{len(self.nodes) + len(self.inputs) + len(self.weights)}"

    def say(self, **drawn: Any) -> None:
        self.words += [f"{k}={v}" for k, v in drawn.items()]

    def input(self, *shape: Any, kind: int | None = None) -> str:
        name = self.name()
        self.inputs.append(helper.make_tensor_value_info(name, kind or TYPES[self.dtype], shape))
        return name

    def weight(self, *shape: int) -> str:
        """Normal numbers, so that no pass finds zeros or ones to leave out; an input where a model's file, of 2 GB at most, has no room for them."""
        if math.prod(shape) >= _MOST_HELD:
            return self.input(*shape)
        name = self.name()
        value = np.random.default_rng(len(self.weights)).standard_normal(shape, dtype="f4") if np.prod(shape) < 1 << 16 else np.full(shape, 0.37, "f4")  # fmt: skip
        if self.dtype == "bfloat16":
            bits = (value.view("u4") >> 16).astype("u2")
            self.weights.append(helper.make_tensor(name, TYPES[self.dtype], shape, bits.tobytes(), raw=True))
        else:
            self.weights.append(numpy_helper.from_array(value.astype(self.dtype), name))
        return name

    def const(self, value: Any, dtype: str = "int64") -> str:
        name = self.name()
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, domain: str = "", **attrs: Any) -> Any:
        name = self.name()
        made = [f"{name}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), made, domain=domain, **attrs))
        return made[0] if outputs == 1 else made

    def activation(self, x: str) -> str:
        how = self.rng.choice(("", "", "Relu", "Sigmoid", "Tanh", "Gelu", "HardSwish", "SiLU"))
        self.say(act=how or "none")
        if how == "SiLU":
            return str(self.op("Mul", x, self.op("Sigmoid", x)))
        return str(self.op(how, x)) if how else x

    def model(self, *outputs: str) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "case", self.inputs, [helper.make_empty_tensor_value_info(o) for o in outputs], self.weights)  # fmt: skip
        sets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=sets, ir_version=9)


def size(rng: random.Random, most: int = 1 << 20) -> int:
    """Small or odd."""
    return min(most, rng.choice(ODD) if rng.random() < 0.35 else rng.randint(1, 40))


def wide(rng: random.Random) -> int:
    """Small, odd, multiples of 8 up to 520, or large."""
    how = rng.random()
    return size(rng) if how < 0.5 else 8 * rng.randint(1, 65) if how < 0.8 else rng.choice(LARGE)


def _product(n: Net, open_rows: bool = False) -> str:
    r = n.rng
    rows, columns, terms = (wide(r) for _ in range(3))
    lead = [] if r.random() < 0.7 else [size(r, 8)]
    fixed, turned = r.random() < 0.7, r.random() < 0.4
    n.say(rows=rows, columns=columns, terms=terms, lead=lead, fixed=fixed, turned=turned)
    x = n.input(*lead, "rows" if open_rows else rows, terms)
    if fixed and turned:
        y = n.op("MatMul", x, n.op("Transpose", n.weight(columns, terms), perm=[1, 0]))
    elif fixed:
        y = n.op("MatMul", x, n.weight(terms, columns))
    elif turned:
        y = n.op("MatMul", x, n.op("Transpose", n.input(columns, terms), perm=[1, 0]))
    else:
        y = n.op("MatMul", x, n.input(terms, columns))
    if r.random() < 0.6:
        n.say(bias=1)
        y = n.op("Add", y, n.weight(columns))
    y = n.activation(y)
    if r.random() < 0.2 and not open_rows:
        n.say(residual=1)
        y = n.op("Add", y, n.input(*lead, rows, columns))
    return str(y)


def matmul(n: Net) -> str:
    return _product(n)


def open_matmul(n: Net) -> str:
    return _product(n, open_rows=True)


def batched(n: Net) -> str:
    r = n.rng
    b, rows, columns, terms = wide(r), size(r), size(r), size(r)
    if r.random() < 0.3:
        b, rows, columns, terms = size(r, 300), wide(r), wide(r), size(r)
    turned, heads = r.random() < 0.4, r.choice((0, 0, 2, 3))
    n.say(batch=b, rows=rows, columns=columns, terms=terms, turned=turned, heads=heads)
    lead = (b, heads) if heads else (b,)
    x, y = n.input(*lead, rows, terms), n.input(*lead, *((columns, terms) if turned else (terms, columns)))
    if turned:
        perm = list(range(len(lead) + 2))
        y = n.op("Transpose", y, perm=[*perm[:-2], perm[-1], perm[-2]])
    y = n.op("MatMul", x, y)
    return n.activation(y) if r.random() < 0.5 else y


def _window(n: Net, rank: int) -> tuple[list[int], dict[str, Any]]:
    r = n.rng
    kernel = [r.choice((1, 1, 2, 3, 3, 5, 7)) for _ in range(rank)] if r.random() < 0.3 else [r.choice((1, 3, 3, 5, 7))] * rank  # fmt: skip
    strides, dilations = [r.choice((1, 1, 2, 3))] * rank, [r.choice((1, 1, 1, 2))] * rank
    pads = [d * (k // 2) for k, d in zip(kernel, dilations)] if r.random() < 0.8 else [0] * rank
    return kernel, {"strides": strides, "dilations": dilations, "pads": pads * 2}


def _conv(n: Net, x: str, channels: int, made: int, groups: int, rank: int, **window: Any) -> str:
    kernel, attrs = _window(n, rank)
    if window:
        kernel, attrs = window["kernel"], {k: v for k, v in window.items() if k != "kernel"}
    n.say(C=channels, O=made, groups=groups, kernel=kernel, **attrs)
    inputs = [x, n.weight(made, channels // groups, *kernel)] + [n.weight(made)] * (n.rng.random() < 0.7)
    return str(n.op("Conv", *inputs, group=groups, **attrs))


def convolution(n: Net) -> str:
    r = n.rng
    rank = r.choice((1, 2, 2, 2, 2, 3))
    how, batch = r.choice(("plain", "plain", "depthwise", "grouped", "few", "pointwise")), r.choice((1, 1, 1, 2, 3, 8))
    channels, made, groups = size(r), size(r), 1
    if how == "depthwise":
        groups, made = channels, channels * r.choice((1, 1, 1, 2))
    elif how == "grouped":
        groups = r.choice((2, 3, 4, 4, 8))
        channels, made = groups * r.randint(1, 96), groups * r.randint(1, 96)
    elif how == "few":
        channels, made = r.choice((1, 2, 3, 4)), size(r)
    elif r.random() < 0.25:
        channels, made = 8 * r.randint(1, 64), 8 * r.randint(1, 64)
    spatial = [r.choice((7, 8, 14, 16, 28, 32, 56)) if r.random() < 0.4 else size(r, 200) for _ in range(rank)]
    if rank == 1:
        spatial = [wide(r)]
    window = {}
    if how == "pointwise":
        window = {
            "kernel": [1] * rank,
            "strides": [r.choice((1, 2))] * rank,
            "dilations": [1] * rank,
            "pads": [0] * 2 * rank,
        }
    n.say(batch=batch, spatial=spatial)
    spatial = [max(s, 13) for s in spatial]  # as far as the widest window reaches
    y = n.activation(_conv(n, n.input(batch, channels, *spatial), channels, made, groups, rank, **window))
    if r.random() < 0.3:  # another behind it: layouts meet
        more = 8 * r.randint(1, 16)
        y = n.activation(_conv(n, y, made, more, 1, rank, kernel=[1] * rank, strides=[1] * rank))
    return y


def transposed(n: Net) -> str:
    r = n.rng
    rank, groups = r.choice((1, 2, 2)), r.choice((1, 1, 2, 3))
    channels, made = groups * r.randint(1, 24), groups * r.randint(1, 24)
    kernel, strides = [r.choice((1, 2, 3, 4, 5))] * rank, [r.choice((1, 2, 2, 3))] * rank
    spatial = [size(r, 60) for _ in range(rank)]
    n.say(C=channels, O=made, groups=groups, kernel=kernel, strides=strides, spatial=spatial)
    inputs = [n.input(1, channels, *spatial), n.weight(channels, made // groups, *kernel)]
    y = n.op(
        "ConvTranspose",
        *inputs,
        *[n.weight(made)] * (r.random() < 0.5),
        group=groups,
        strides=strides,
        kernel_shape=kernel,
    )
    return n.activation(y)


def excitation(n: Net) -> str:
    """A layer of small networks (EfficientViT, GhostNet): pointwise, depthwise, squeeze and excitation, a pointwise one with a residual."""
    r = n.rng
    channels, inner, s = (
        r.randint(1, 12) * r.choice((1, 4, 8)),
        r.randint(2, 40) * r.choice((1, 4)),
        r.choice((4, 7, 8, 13, 14, 16, 28)),
    )
    flat = {"kernel": [1, 1], "strides": [1, 1]}
    x = n.input(1, channels, s, s)
    n.say(channels=channels, inner=inner, side=s)
    y = n.activation(_conv(n, x, channels, inner, 1, 2, **flat))
    y = n.activation(_conv(n, y, inner, inner, inner, 2, kernel=[3, 3], strides=[1, 1], pads=[1] * 4))
    less = max(1, inner // 4)
    g = n.op("Relu", _conv(n, n.op("GlobalAveragePool", y), inner, less, 1, 2, **flat))
    y = n.op("Mul", y, n.op("HardSigmoid", _conv(n, g, less, inner, 1, 2, **flat)))
    return str(n.op("Add", _conv(n, y, inner, channels, 1, 2, **flat), x))


def recurrence(n: Net) -> str:
    r = n.rng
    cell = r.choice(("LSTM", "GRU", "RNN"))
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[cell]
    steps, batch, inputs, hidden = r.randint(1, 12), r.randint(1, 9), size(r), size(r)
    both = r.random() < 0.4
    d = 2 if both else 1
    n.say(cell=cell, steps=steps, batch=batch, inputs=inputs, hidden=hidden, both=both)
    args = [n.input(steps, batch, inputs), n.weight(d, gates * hidden, inputs), n.weight(d, gates * hidden, hidden)]
    args += [n.weight(d, 2 * gates * hidden)] * (r.random() < 0.7)
    more = {"linear_before_reset": r.choice((0, 1))} if cell == "GRU" else {}
    outputs = n.op(cell, *args, outputs=2, hidden_size=hidden, direction="bidirectional" if both else "forward", **more)
    return str(outputs[0])


def _shape(n: Net, least: int = 1, most: int = 4) -> list[int]:
    r = n.rng
    shape = [size(r, 200) for _ in range(r.randint(least, most))]
    if r.random() < 0.3:
        shape[r.randrange(len(shape))] = r.choice(LARGE)
    while np.prod(shape) > 1 << 24:
        shape[shape.index(max(shape))] = r.randint(1, 8)
    n.say(shape=shape)
    return shape


def reduction(n: Net) -> str:
    r, shape = n.rng, _shape(n)
    axes = sorted(r.sample(range(len(shape)), r.randint(1, len(shape))))
    how = r.choice(("Sum", "Mean", "Max", "Min", "L1", "L2", "LogSumExp", "SumSquare", "Prod", "LogSum"))
    n.say(how=how, axes=axes)
    x = n.input(*shape)
    y = n.op("Reduce" + how, x, n.const(axes), keepdims=r.choice((0, 1)))
    return n.activation(y) if r.random() < 0.4 else str(y)


def arg(n: Net) -> str:
    shape = _shape(n)
    axis, how = n.rng.randrange(len(shape)), n.rng.choice(("ArgMax", "ArgMin"))
    n.say(axis=axis, how=how)
    return str(n.op(how, n.input(*shape), axis=axis, keepdims=n.rng.choice((0, 1))))


def norm(n: Net) -> str:
    r = n.rng
    how = r.choice(
        (
            "Softmax",
            "LogSoftmax",
            "LayerNormalization",
            "InstanceNormalization",
            "GroupNorm",
            "RMS",
            "LpNormalization",
            "BatchNorm",
        )
    )
    n.say(how=how)
    if how in ("InstanceNormalization", "GroupNorm", "BatchNorm"):
        groups, batch = r.choice((1, 2, 4)), r.choice((1, 2))
        channels, spatial = groups * r.randint(1, 40), [size(r, 60), size(r, 60)]
        n.say(channels=channels, groups=groups, spatial=spatial, batch=batch)
        x = n.input(batch, channels, *spatial)
        if how == "BatchNorm":
            return n.activation(n.op("BatchNormalization", x, *(n.weight(channels) for _ in range(4))))
        if how == "InstanceNormalization":
            return str(n.op(how, x, n.weight(channels), n.weight(channels)))
        y = n.op(
            "InstanceNormalization",
            n.op("Reshape", x, n.const([batch, groups, -1])),
            n.weight(groups),
            n.weight(groups),
        )
        y = n.op("Reshape", y, n.const([batch, channels, *spatial]))
        return n.activation(n.op("Mul", y, n.weight(channels, 1, 1)))
    shape = _shape(n, 2)
    x, last = n.input(*shape), shape[-1]
    if r.random() < 0.4:
        x = n.op("Add", x, n.input(*shape))
    if how in ("Softmax", "LogSoftmax"):
        axis = r.randrange(len(shape))
        n.say(axis=axis)
        return str(n.op(how, x, axis=axis))
    if how == "LpNormalization":
        return str(n.op(how, x, axis=-1))
    if how == "LayerNormalization":
        return str(n.op(how, x, n.weight(last), n.weight(last), axis=-1))
    mean = n.op("ReduceMean", n.op("Mul", x, x), n.const([-1]), keepdims=1)
    return str(n.op("Mul", n.op("Mul", x, n.op("Reciprocal", n.op("Sqrt", mean))), n.weight(last)))


def attention(n: Net) -> str:
    r = n.rng
    b, heads, d = (
        r.choice((1, 1, 2, 8)),
        r.choice((1, 2, 3, 4, 8)),
        r.choice((4, 6, 8, 10, 16, 24, 32, 40, 48, 64, 72, 80, 96, 128)),
    )
    queries = wide(r)
    keys = queries if r.random() < 0.6 else wide(r)
    n.say(batch=b, heads=heads, queries=queries, keys=keys, head=d)
    q, k, v = n.input(b, heads, queries, d), n.input(b, heads, keys, d), n.input(b, heads, keys, d)
    s = n.op("Mul", n.op("MatMul", q, n.op("Transpose", k, perm=[0, 1, 3, 2])), n.weight(1))
    if r.random() < 0.4:
        n.say(mask=1)
        s = n.op("Add", s, n.input(*r.choice(((1, 1, queries, keys), (b, 1, 1, keys), (1, heads, queries, keys)))))
    y = n.op("MatMul", n.op("Softmax", s, axis=-1), v)
    if r.random() < 0.5:
        y = n.op("Reshape", n.op("Transpose", y, perm=[0, 2, 1, 3]), n.const([b, queries, heads * d]))
    return str(y)


def encoder(n: Net) -> str:
    """A layer of a small transformer (TNT's inner one, CoaT, LiLT): projections, heads, attention, a norm."""
    r = n.rng
    b, heads, d, places = (
        r.choice((1, 2, 49, 196)),
        r.choice((1, 2, 4)),
        r.choice((4, 6, 10, 12, 16, 24, 32)),
        r.choice((4, 9, 16, 17, 49, 64, 197)),
    )
    width = heads * d
    n.say(batch=b, heads=heads, head=d, places=places)
    x = n.input(b, places, width)
    y = n.op("LayerNormalization", x, n.weight(width), n.weight(width), axis=-1)
    three = n.op("Add", n.op("MatMul", y, n.weight(width, 3 * width)), n.weight(3 * width))
    q, k, v = n.op("Split", three, outputs=3, axis=-1, num_outputs=3)
    q, k, v = (
        n.op("Transpose", n.op("Reshape", t, n.const([b, places, heads, d])), perm=[0, 2, 1, 3]) for t in (q, k, v)
    )
    s = n.op("Mul", n.op("MatMul", q, n.op("Transpose", k, perm=[0, 1, 3, 2])), n.weight(1))
    y = n.op("Transpose", n.op("MatMul", n.op("Softmax", s, axis=-1), v), perm=[0, 2, 1, 3])
    y = n.op("MatMul", n.op("Reshape", y, n.const([b, places, width])), n.weight(width, width))
    return str(n.op("Add", x, n.op("Add", y, n.weight(width))))


def transpose(n: Net) -> str:
    r, shape = n.rng, _shape(n, 2, 5)
    perm = r.sample(range(len(shape)), len(shape))
    n.say(perm=perm)
    y = n.op("Transpose", n.input(*shape), perm=perm)
    return n.activation(y) if r.random() < 0.4 else str(y)


def gather(n: Net) -> str:
    r = n.rng
    how, shape = r.choice(("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND")), _shape(n, 2, 3)
    axis, some = r.randrange(len(shape)), size(r)
    n.say(how=how, axis=axis, some=some)
    x, whole = n.input(*shape), TensorProto.INT64
    if how == "Gather":
        return str(n.op(how, x, n.input(some, kind=whole), axis=axis))
    if how == "GatherElements":
        return str(
            n.op(how, x, n.input(*[some if k == axis else s for k, s in enumerate(shape)], kind=whole), axis=axis)
        )
    if how == "GatherND":
        return str(n.op(how, x, n.input(some, r.randint(1, len(shape)), kind=whole)))
    if how == "ScatterND":
        return str(n.op(how, x, n.input(some, 1, kind=whole), n.input(some, *shape[1:])))
    updates = [some if k == axis else s for k, s in enumerate(shape)]
    reduction = r.choice(("none", "add")) if n.dtype != "bfloat16" else "none"
    return str(n.op(how, x, n.input(*updates, kind=whole), n.input(*updates), axis=axis, reduction=reduction))


def moved(n: Net) -> str:
    r, shape = n.rng, _shape(n, 1, 4)
    how = r.choice(
        ("Pad", "Concat", "Slice", "Tile", "Expand", "Flip", "Split", "Where", "Trilu", "DepthToSpace", "Resize")
    )
    n.say(how=how)
    axis = r.randrange(len(shape))
    if how == "Pad":
        pads, mode = [r.randint(0, 5) for _ in shape * 2], r.choice(("constant", "edge", "constant"))
        n.say(pads=pads, mode=mode)
        return str(n.op(how, n.input(*shape), n.const(pads), mode=mode))
    if how == "Concat":
        other = [size(r, 40) if k == axis else s for k, s in enumerate(shape)]
        n.say(axis=axis, other=other)
        return n.activation(n.op(how, n.input(*shape), n.input(*other), axis=axis))
    if how == "Slice":
        step = r.choice((1, 2, 3))
        return n.activation(
            n.op(
                how,
                n.input(*shape),
                n.const([shape[axis] // 3]),
                n.const([shape[axis]]),
                n.const([axis]),
                n.const([step]),
            )
        )
    if how == "Flip":
        return str(n.op("Slice", n.input(*shape), n.const([-1]), n.const([-(1 << 40)]), n.const([axis]), n.const([-1])))
    if how == "Tile":
        return str(n.op(how, n.input(*shape), n.const([r.randint(1, 3) for _ in shape])))
    if how == "Expand":
        return n.activation(n.op(how, n.input(*[1 if r.random() < 0.5 else s for s in shape]), n.const(shape)))
    if how == "Split":
        parts = n.op(
            how, n.input(*shape[:axis], 2 * shape[axis], *shape[axis + 1 :]), outputs=2, axis=axis, num_outputs=2
        )
        return str(n.op("Mul", parts[0], n.op("Sigmoid", parts[1])))
    if how == "Where":
        return str(n.op(how, n.input(*shape, kind=TensorProto.BOOL), n.input(*shape), n.input(shape[-1])))
    if how == "Trilu":
        return str(n.op(how, n.input(*shape[:1], size(r), size(r)), upper=r.choice((0, 1))))
    if how == "DepthToSpace":
        return str(
            n.op(how, n.input(1, 4 * r.randint(1, 9), size(r), size(r)), blocksize=2, mode=r.choice(("DCR", "CRD")))
        )
    scales, mode = [1.0, 1.0, *[r.choice((0.5, 1.5, 2.0, 3.0))] * 2], r.choice(("nearest", "linear", "cubic"))
    n.say(scales=scales, mode=mode)
    return str(
        n.op(how, n.input(1, size(r), r.randint(4, 40), r.randint(4, 40)), "", n.const(scales, "float32"), mode=mode)
    )


def running(n: Net) -> str:
    r, shape = n.rng, _shape(n, 1, 3)
    axis, how = r.randrange(len(shape)), r.choice(("CumSum", "TopK", "TopK", "Sort"))
    n.say(how=how, axis=axis)
    x = n.input(*shape)
    if how == "CumSum":
        return str(n.op(how, x, n.const(axis), exclusive=r.choice((0, 1)), reverse=r.choice((0, 1))))
    k = shape[axis] if how == "Sort" else min(shape[axis], r.choice((1, 2, 5, 8, 50)))
    n.say(k=k)
    return str(n.op("TopK", x, n.const([k]), outputs=2, axis=axis, largest=r.choice((0, 1)))[0])


def elementwise(n: Net) -> str:
    r, shape = n.rng, _shape(n)
    other = [s if r.random() < 0.6 else 1 for s in shape]
    n.say(other=other)
    y = n.op("Mul", n.input(*shape), n.input(*other))
    return n.activation(n.op("Add", y, n.input(*shape[-1:])))


def pool(n: Net) -> str:
    r = n.rng
    how, channels, side = (
        r.choice(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool")),
        size(r),
        r.choice((4, 7, 13, 16, 33)),
    )
    n.say(how=how, channels=channels, side=side)
    x = n.input(r.choice((1, 2)), channels, side, side)
    if how.startswith("Global"):
        return n.activation(n.op(how, x))
    k, stride = r.choice((2, 3)), r.choice((1, 2))
    return str(n.op(how, x, kernel_shape=[k, k], strides=[stride, stride], pads=[k // 2] * 4))


def bytes_product(n: Net) -> str:
    r = n.rng
    rows, columns, terms = wide(r), wide(r), wide(r)
    signed, how = r.random() < 0.5, r.choice(("MatMulInteger", "MatMulNBits", "ConvInteger"))
    n.say(rows=rows, columns=columns, terms=terms, signed=signed, how=how)
    kind = TensorProto.INT8 if signed else TensorProto.UINT8
    if how == "MatMulInteger":
        y = n.op(how, n.input(rows, terms, kind=kind), n.const(np.ones((terms, columns)), "int8"))
        return str(n.op("Cast", y, to=TensorProto.FLOAT))
    if how == "ConvInteger":
        c, o, side = size(r), size(r), r.choice((7, 8, 14))
        return str(
            n.op(
                how,
                n.input(1, c, side, side, kind=TensorProto.UINT8),
                n.const(np.ones((o, c, 3, 3)), "int8"),
                pads=[1] * 4,
            )
        )
    block = r.choice((16, 32, 64))
    parts = -(-terms // block)
    if n.dtype == "bfloat16":
        n.dtype = "float32"
    packed, scales = n.const(np.ones((columns, parts, block // 2)), "uint8"), n.weight(columns * parts)
    return str(
        n.op(
            how,
            n.input(rows, terms),
            packed,
            scales,
            domain="com.microsoft",
            K=terms,
            N=columns,
            bits=4,
            block_size=block,
        )
    )


KINDS: dict[str, Callable[[Net], str]] = {
    f.__name__: f
    for f in (
        matmul, open_matmul, batched, convolution, transposed, excitation, recurrence, reduction, arg, norm, attention, encoder, transpose, gather,
        moved, running, elementwise, pool, bytes_product,
    )
}  # fmt: skip
WEIGHTS = {"matmul": 4, "batched": 3, "convolution": 4, "transposed": 2, "excitation": 2, "attention": 2}


def draw(rng: random.Random, kind: str | None = None) -> Case:
    """A case of a kind, of any by default: products and convolutions more often, which have most templates."""
    kind = kind or rng.choices(list(KINDS), [WEIGHTS.get(k, 1) for k in KINDS])[0]
    net = Net(rng, rng.choice(("float32", "float32", "float16", "bfloat16")))
    out = KINDS[kind](net)
    return Case(kind, " ".join(net.words), net.model(out))
