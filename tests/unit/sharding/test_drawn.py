"""Drawn graphs with drawn rules over drawn meshes equal one device's result, or are refused by a word that names the mesh axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tec.errors import ArgumentError
from tec.graph import Graph, Value
from tec.graph.builders import Builder
from tec.graph.graph import run_graph
from tec.sharding import Mesh, PartitionSpec
from tests.seeds import some
from tests.unit.sharding.ranks import run_ranks

SIZES = (1, 2, 4, 4, 8, 8, 6)


class Drawn:
    """A graph of drawn operators on small tensors of float32."""

    def __init__(self, rng: np.random.Generator):
        self.rng, self.graph = rng, Graph("drawn")
        self.b = Builder(self.graph)
        self.values: list[Value] = []
        self.feeds: dict[str, Any] = {}
        for k in range(int(rng.integers(1, 3))):
            self.values.append(self.input(f"x{k}", self.shape(int(rng.integers(1, 4)))))
        for _ in range(int(rng.integers(3, 9))):
            self.add()
        last = self.values[-1]
        others = [v for v in self.values[:-1] if v.node is not None and rng.random() < 0.3]
        self.graph.set_outputs([last, *others], ["y", *(f"y{k}" for k in range(len(others)))])

    def shape(self, ndim: int) -> tuple[int, ...]:
        return tuple(int(n) for n in self.rng.choice(SIZES, ndim))

    def array(self, shape: Any) -> Any:
        return self.rng.integers(-2, 3, tuple(shape)).astype("float32") / np.float32(2)

    def input(self, name: str, shape: Any) -> Value:
        self.feeds[name] = self.array(shape)
        return self.graph.input(name, "float32", shape)

    def const(self, shape: Any) -> Value:
        return self.graph.constant(self.array(shape), "w")

    def pick(self) -> Value:
        return self.values[int(self.rng.integers(len(self.values)))] if self.rng.random() < 0.5 else self.values[-1]

    def add(self) -> None:
        x = self.pick()
        made = getattr(self, str(self.rng.choice(KINDS)))(x)
        if made is not None and made.type.size <= 4096 and not made.is_const:
            self.values.append(made)

    # ---- operators

    def unary(self, x: Value) -> Value:
        return self.b.op(str(self.rng.choice(["relu", "neg", "tanh", "identity", "square"])), x)

    def binary(self, x: Value) -> Value:
        same = [v for v in self.values if v.shape == x.shape]
        y = (
            same[int(self.rng.integers(len(same)))]
            if self.rng.random() < 0.5
            else self.const([n if self.rng.random() < 0.7 else 1 for n in x.shape])
        )
        return self.b.op(str(self.rng.choice(["add", "multiply", "subtract", "maximum"])), x, y)

    def scaled(self, x: Value) -> Value:
        return self.b.op("multiply", x, self.b.like(0.5, x))

    def product(self, x: Value) -> Value | None:
        if x.ndim < 2:
            return None
        turned, n = bool(self.rng.random() < 0.5), int(self.rng.choice(SIZES))
        lead = [m if self.rng.random() < 0.3 else 1 for m in x.shape[:-2]] if self.rng.random() < 0.5 else []
        k = x.shape[-1]
        return self.b.op("matmul", x, self.const([*lead, *((n, k) if turned else (k, n))]), transpose_b=turned)

    def square(self, x: Value) -> Value | None:
        return self.b.op("matmul", x, x, transpose_b=True) if x.ndim >= 2 else None

    def einsum(self, x: Value) -> Value | None:
        if x.ndim != 3:
            return None
        w = self.const((x.shape[0], x.shape[2], 4))
        return self.b.op("einsum", x, w, equation=str(self.rng.choice(["abc,acd->abd", "abc,acd->bd", "abc,acd->dab"])))

    def reduce(self, x: Value) -> Value | None:
        if x.ndim < 1:
            return None
        axes = tuple(int(a) for a in np.flatnonzero(self.rng.random(x.ndim) < 0.5)) or (x.ndim - 1,)
        name = str(self.rng.choice(["reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_sum_square"]))
        return self.b.op(name, x, axes=axes, keepdims=bool(self.rng.random() < 0.5))

    def softmax(self, x: Value) -> Value | None:
        return self.b.op("softmax", x, axes=(int(self.rng.integers(x.ndim)),)) if x.ndim else None

    def norm(self, x: Value) -> Value | None:
        return self.b.op("layer_norm", x, axis=x.ndim - 1, epsilon=0.5) if x.ndim else None

    def reshape(self, x: Value) -> Value:
        sizes, left = [], x.type.size
        while left > 1 and len(sizes) < 3:
            divisors = [d for d in (2, 3, 4, 6, 8, left) if left % d == 0]
            sizes.append(int(self.rng.choice(divisors)))
            left //= sizes[-1]
        return self.b.reshape(x, [*sizes, left] if self.rng.random() < 0.5 or left > 1 else sizes)

    def transpose(self, x: Value) -> Value:
        return self.b.transpose(x, [int(k) for k in self.rng.permutation(x.ndim)])

    def slice(self, x: Value) -> Value | None:
        wide = [k for k, n in enumerate(x.shape) if n > 1]
        return self.b.slice(x, int(self.rng.choice(wide)), 1, 1) if wide else None

    def halves(self, x: Value) -> Value | None:
        even = [k for k, n in enumerate(x.shape) if n % 2 == 0]
        if not even:
            return None
        axis = int(self.rng.choice(even))
        a, c = self.b.split(x, axis, [x.shape[axis] // 2] * 2)
        return self.b.op("multiply", a, c) if self.rng.random() < 0.5 else self.b.concat([c, a], axis)

    def broadcast(self, x: Value) -> Value:
        return self.b.broadcast(x, (int(self.rng.choice(SIZES)), *x.shape))

    def looked_up(self, x: Value) -> Value | None:
        if not x.ndim:
            return None
        axis = int(self.rng.integers(x.ndim))
        n = x.shape[axis]
        index = self.graph.constant(self.rng.integers(-n, n, self.shape(1)).astype("int64"), "index")
        return self.b.op("gather", x, index, axis=axis)

    def table(self, x: Value) -> Value | None:
        rows = int(self.rng.choice([4, 8]))
        name = f"ids{len(self.feeds)}"
        self.feeds[name] = self.rng.integers(-rows, rows, self.shape(1))
        index = self.graph.input(name, "int64", self.feeds[name].shape)
        return self.b.op("gather", self.const((rows, 4)), index, axis=0)

    def conv(self, x: Value) -> Value | None:
        if x.ndim != 3:
            return None
        w = self.const((4, x.shape[1], 1))
        return self.b.op("conv", x, w, strides=(1,), dilations=(1,), before=(0,), after=(0,), groups=1)


KINDS = [
    "unary", "binary", "binary", "scaled", "product", "product", "square", "einsum", "reduce", "softmax", "norm", "reshape", "reshape", "transpose", "slice",
    "halves", "broadcast", "looked_up", "table", "conv",
]  # fmt: skip
MESHES = ({"t": 2}, {"t": 4}, {"d": 2, "t": 2}, {"t": 1}, {"t": 3})


def drawn_rules(rng: np.random.Generator, graph: Graph, mesh: Mesh) -> dict[str, PartitionSpec]:
    ends = [*graph.inputs, *graph.constants()] + [n.outputs[0] for n in graph.nodes if rng.random() < 0.2]
    rules = {}
    for v in ends:
        if not v.ndim or rng.random() < 0.4:
            continue
        dims: list[Any] = [None] * v.ndim
        for axis in mesh.axes:
            if rng.random() < 0.6:
                k = int(rng.integers(v.ndim))
                dims[k] = axis if dims[k] is None else (dims[k], axis)
        rules[v.name] = PartitionSpec(*dims)
    return rules


@pytest.mark.parametrize("seed", some(40))
def test_drawn_graphs_equal_one_device(seed: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = Drawn(rng)
    graph, feeds = drawn.graph, drawn.feeds
    want = run_graph(graph, feeds)
    mesh = Mesh(MESHES[int(rng.integers(len(MESHES)))])
    # Rules that no rank can follow are left out one by one, as their words say.
    rules = drawn_rules(rng, graph, mesh)
    for name in list(rules):
        try:
            run_ranks(graph, mesh, {name: rules[name]}, feeds)
        except ArgumentError as error:
            assert "mesh axis" in str(error), error
            del rules[name]
    got, _, _ = run_ranks(graph, mesh, rules, feeds)
    for g, w in zip(got, want):
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-4)
