"""Small networks for the tests of native libraries."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import tec
from tec.graph import Graph
from tec.graph.builders import Builder
from tec.ops.dim_bounds import Empty
from tec.ops.dims import Dim


def cnn_graph(seed: int = 0) -> Graph:
    """A convolution, a pooling and a product over an open batch."""
    rng = np.random.default_rng(seed)
    g = Graph("cnn")
    x = g.input("x", "float32", (Dim("n"), 3, 12, 12))
    b = Builder(g, "l")
    w = b.const(rng.standard_normal((8, 3, 3, 3)).astype(np.float32))
    y = b.op("conv", x, w, strides=(1, 1), dilations=(1, 1), before=(1, 1), after=(1, 1), groups=1)
    y = b.op("reduce_mean", b.op("relu", y), axes=(2, 3), keepdims=False)
    y = b.op("matmul", y, b.const(rng.standard_normal((8, 10)).astype(np.float32)))
    g.set_outputs([b.op("softmax", y, axes=(1,))], ["y"])
    return g


@functools.cache
def cnn(target: str = "llvm", seed: int = 0) -> Any:
    return tec.compile(cnn_graph(seed), target)


@functools.cache
def cached_sum(target: str = "llvm") -> Any:
    """A cache that grows by rows of a table, and the sum of its rows; an index outside of the table is refused."""
    g = Graph("g")
    p, n = Dim(Empty("p")), Dim("n")
    past, ids = g.input("past", "float32", (2, p, 4)), g.input("ids", "int64", (2, n))
    b = Builder(g, "l")
    table = b.const(np.arange(20, dtype=np.float32).reshape(5, 4))
    present = b.op("concat", past, b.op("gather", table, ids, axis=0), axis=1)
    g.set_outputs([b.op("reduce_sum", present, axes=(1,), keepdims=False), present], ["y", "next"])
    return tec.compile(g, target, state={"past": "next"})
