"""Few rows through constant matrices on a GPU: what is found, what is left alone, and that it computes the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec import Target
from tec.graph import Graph, Value
from tec.graph.builders import Builder
from tec.graph.builders.matmul import matmul
from tec.graph.builders.norm import rms_norm
from tec.graph.builders.packed import packed_constant
from tec.graph.graph import run_graph
from tec.graph.optimize import optimize
from tests.thinned import thinned_rows

GPU = "rocm -mcpu=gfx942"
RNG = np.random.default_rng(0)


def matrix(b: Builder, k: int, n: int, packed: bool) -> Value:
    if not packed:
        return b.const(RNG.standard_normal((k, n)).astype(np.float32) / 8)
    scale, zero = (
        (0.02 + RNG.random((n, k // 32)) / 50).astype(np.float32),
        RNG.integers(0, 16, (n, k // 32)).astype(np.uint8),
    )
    w = packed_constant(b, RNG.integers(0, 16, (n, k)), 4, scale, zero, 1, 32, "float32", "float32")
    return b.transpose(w, (1, 0))


def layer(packed: bool, norm: bool = True, rows: int = 1) -> Graph:
    """Three products of a normed row, and a gate of two others, with a sum behind."""
    g = Graph()
    b = Builder(g)
    x = g.input("x", "float32", (1, rows, 64))
    h = rms_norm(b, x, b.const((1 + RNG.random(64)).astype(np.float32)), 2, 1e-5)[0] if norm else x
    outs = [matmul(b, h, matrix(b, 64, n, packed)) for n in (64, 32, 32)]
    h = rms_norm(b, outs[0], b.const((1 + RNG.random(64)).astype(np.float32)), 2, 1e-5)[0]
    gate, up = (matmul(b, h, matrix(b, 64, 96, packed)) for _ in range(2))
    y = b.op("multiply", b.op("multiply", gate, b.op("sigmoid", gate)), up)
    y = b.op("add", matmul(b, y, matrix(b, 96, 64, packed)), x)
    g.set_outputs([*outs[1:], y], ["k", "v", "y"])
    return g


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("norm", [False, True])
def test_a_layer_is_two_projections_and_a_product(packed: bool, norm: bool) -> None:
    g = layer(packed, norm)
    made = optimize(g, Target(GPU))
    assert [n.op for n in made.nodes if n.op not in ("slice", "reshape", "add")] == [
        "projection",
        "projection",
        "packed_matmul" if packed else "matmul",
    ]
    x = {"x": RNG.standard_normal((1, 1, 64)).astype(np.float32)}
    for want, got, ran in zip(
        run_graph(g, x),
        run_graph(made, x),
        tec.compile(g, target=GPU, cache=False).run(x, device=tec.rocm_emu("gfx942")),
    ):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(ran, want, rtol=2e-5, atol=2e-5)


def test_half_precision() -> None:
    g = layer(True)
    x = {"x": RNG.standard_normal((1, 1, 64)).astype(np.float32)}
    ran = tec.compile(g, target=GPU, dtype="float16", cache=False).run(x, device=tec.rocm_emu("gfx942"))
    for want, got in zip(run_graph(g, x), ran):
        np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(("target", "rows"), [("llvm", 1), (GPU, 2)])
def test_elsewhere_products_stay(target: str, rows: int) -> None:
    assert not any(n.op == "projection" for n in optimize(layer(False, rows=rows), Target(target)).nodes)


def test_a_norm_that_others_read_stays() -> None:
    g = Graph()
    b = Builder(g)
    x = g.input("x", "float32", (1, 64))
    h = rms_norm(b, x, b.const(np.ones(64, np.float32)), 1, 1e-5)[0]
    g.set_outputs([matmul(b, h, matrix(b, 64, 32, False)), matmul(b, h, matrix(b, 64, 32, False)), h])
    made = optimize(g, Target(GPU))
    (node,) = (n for n in made.nodes if n.op == "projection")
    assert "eps" not in node.attrs
    feeds: dict[str, Any] = {"x": RNG.standard_normal((1, 64)).astype(np.float32)}
    for a, c in zip(run_graph(g, feeds), run_graph(made, feeds)):
        np.testing.assert_allclose(a, c, rtol=1e-5, atol=1e-5)


def decoder_block(rows: int, dtype: str, later: bool) -> tuple[Graph, dict[str, Any]]:
    """A norm in float32, gate and up as halves of one product, down with the rows behind: as `tec.lm` builds them. later: numbers come after compilation."""
    rng = np.random.default_rng(rows)
    g = Graph()
    b = Builder(g)
    x = g.input("x", dtype, (rows, 256))
    shapes = {"norm": (256,), "both": (512, 256), "down": (256, 256)}
    arrays = {n: (rng.standard_normal(s) / 16).astype(np.float32 if n == "norm" else dtype) for n, s in shapes.items()}
    arrays["norm"] += 1
    w = {n: g.deferred(n, str(a.dtype), a.shape) if later else g.constant(a, n) for n, a in arrays.items()}
    h = rms_norm(b, x, w["norm"], -1, 1e-5)[0]
    both = g.add("matmul", [h, w["both"]], {"transpose_b": True})[0]
    gate, up = b.split(both, 1, [256, 256])
    y = b.op("multiply", b.op("silu", gate), up)
    y = b.op("add", g.add("matmul", [y, w["down"]], {"transpose_b": True})[0], x)
    g.set_outputs([y], ["y"])
    return g, arrays


@thinned_rows(
    2,
    ("rows", "dtype", "later"),
    [(1, "float16", True), (3, "float16", False), (8, "float32", True), (11, "float16", True)],
)
def test_a_gate_of_halves(rows: int, dtype: str, later: bool) -> None:
    """Also where no pass may read the weights: two launches, right with every check."""
    g, arrays = decoder_block(rows, dtype, later)
    x = {"x": np.random.default_rng(1).standard_normal((rows, 256)).astype(dtype)}
    known, _ = decoder_block(rows, dtype, False)
    (want,) = run_graph(known, x)
    net = tec.compile(g, target=GPU, cache=False)
    assert [s.function.partition("_")[2] for s in net.plan.steps] == ["projection", "matmul_add"]
    if later:
        net.provide({n: arrays[n] for n in net.params if n in arrays})
    (got,) = net.run(x, device=tec.rocm_emu("gfx942", check="all"))
    np.testing.assert_allclose(got, want, rtol=0, atol=(4e-3 if dtype == "float16" else 1e-5) * np.abs(want).max())


@pytest.mark.parametrize("target", [GPU, "cuda -arch=sm_90a"])
def test_operators_beside_products_may_have_any_rank(target: str) -> None:
    """What looks for products of few rows meets four rows that become one number."""
    g = Graph()
    x = g.input("x", "float32", (4, 64))
    g.set_outputs([Builder(g).op("reduce_sum", x, axes=(0, 1), keepdims=False)], ["y"])
    assert optimize(g, Target(target)).outputs[0].shape == ()
