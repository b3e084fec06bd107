"""Products of one matrix by several constants on a GPU: what is joined, what is left alone, and that it computes the same."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import Target
from tec.graph import Graph, Value
from tec.graph.builders import Builder
from tec.graph.builders.matmul import matmul
from tec.graph.graph import run_graph
from tec.graph.optimize import optimize
from tec.graph.passes.fuse import fuse

GPU = "rocm -mcpu=gfx942"
RNG = np.random.default_rng(3)


def weights(b: Builder, k: int, n: int) -> Value:
    return b.const(RNG.standard_normal((k, n)).astype(np.float32) / 8)


def heads() -> Graph:
    """Queries, keys and values of 32 places with a bias on two of them, their scores, and what is weighted by them."""
    g = Graph()
    b = Builder(g)
    x = g.input("x", "float32", (32, 48))
    q, k, v = (matmul(b, x, weights(b, 48, 64)) for _ in range(3))
    q = b.op("add", q, b.const(RNG.standard_normal(64).astype(np.float32)))
    v = b.op("add", v, b.const(RNG.standard_normal((1, 64)).astype(np.float32)))
    g.set_outputs([matmul(b, matmul(b, q, b.transpose(k, (1, 0))), v)], ["y"])
    return g


def apart(what: str) -> Graph:
    """Two products of one matrix, each read by a product or by what would run in its kernel."""
    g = Graph()
    b = Builder(g)
    x = g.input("x", "float32", (8 if what == "few rows" else 32, 48))
    q, k = (matmul(b, x, weights(b, 48, n)) for n in (64, 32 if what == "another width" else 64))
    if what == "a gate behind":
        k = b.op("multiply", q, k)
    g.set_outputs([matmul(b, y, weights(b, y.shape[1], 32)) for y in (q, k)] + [q] * (what == "an output"), None)
    return g


def test_products_of_one_matrix_are_one() -> None:
    g = heads()
    made = optimize(g, Target(GPU))
    products = [n for n in made.nodes if n.op == "matmul"]
    assert [n.outputs[0].shape for n in products] == [(3, 32, 64), (32, 32), (32, 64)]
    groups = fuse(made)
    assert sum(group.view_at is not None for group in groups) >= 3, "the parts are places in memory"
    assert [len(group.nodes) for group in groups if products[0] in group.nodes] == [2], (
        "biases are added in the product's kernel"
    )
    x = {"x": RNG.standard_normal((32, 48)).astype(np.float32)}
    (want,), (got,) = run_graph(g, x), run_graph(made, x)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    (ran,) = tec.compile(g, target=GPU, cache=False).run(x, device=tec.rocm_emu("gfx942"))
    np.testing.assert_allclose(ran, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("what", ["a gate behind", "another width", "few rows", "an output", "a CPU", "nothing"])
def test_what_stays_apart(what: str) -> None:
    made = optimize(apart(what), Target("llvm" if what == "a CPU" else GPU))
    assert any(n.outputs[0].ndim == 3 for n in made.nodes if n.op == "matmul") == (what == "nothing")
