"""Random graphs with symbolic dimensions: compiled once, run at several sizes, against the graphs of numbers."""

import numpy as np
import pytest

import tec
from tec.errors import ArgumentError, ImportModelError
from tec.graph import run_graph
from tec.graph.graph import bind_sizes
from tec.ops.dims import UndecidedSize, evaluate
from tests.unit.graph.random_graphs import random_graph

SIZES = [{"n": 1, "h": 7, "w": 6}, {"n": 3, "h": 8, "w": 17}, {"n": 2, "h": 15, "w": 9}]


def compare(seed, names, target, device=None, sizes=SIZES):
    """How many sizes the network ran at; None where it cannot be compiled without numbers, and says so."""
    graph = random_graph(seed, names=names)
    try:
        net = tec.compile(graph, target=target, cache=False)
    except UndecidedSize as e:
        assert "shapes={" in e.hint
        return None
    rng, ran = np.random.default_rng(seed), 0
    for env in sizes:
        env = {k: v for k, v in env.items() if k in names}
        x = rng.normal(size=evaluate(graph.inputs[0].shape, env)).astype("f")
        try:
            got = net.run({"x": x}, device)
        except ArgumentError as e:
            assert "compiled for sizes with" in e.message
            with pytest.raises(ImportModelError):
                bind_sizes(graph, env) if any("windows" in g.what for g in graph.guards) else run_graph(graph, {"x": x})
            continue
        for g, w in zip(got, run_graph(graph, {"x": x}), strict=True):
            assert g.shape == w.shape
            np.testing.assert_allclose(
                g, w, 1e-3, 1e-4 * max(1.0, float(np.abs(w).max(initial=0))), err_msg=f"{seed} {env}"
            )
        ran += 1
    return ran


@pytest.mark.parametrize("names", ["n", "nhw"])
def test_on_the_cpu(names):
    ran = [compare(seed, names, "llvm") for seed in range(6)]
    assert sum(map(bool, ran)) >= 5


def test_on_the_software_gpu():
    assert (
        sum(bool(compare(seed, "n", "rocm -mcpu=gfx942", tec.rocm_emu("gfx942"), SIZES[:2])) for seed in range(2)) == 2
    )
