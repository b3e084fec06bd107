"""Random graphs with symbolic dimensions: compiled once, run at several sizes, against the graphs of numbers."""

import numpy as np
import pytest

import tec
from tec.errors import ArgumentError, ImportModelError
from tec.graph import Graph, run_graph
from tec.graph.graph import bind_sizes
from tec.ops.dims import Dim, UndecidedSize, evaluate
from tests import seeds
from tests.thinned import thinned_rows
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


@thinned_rows(1, "names", ["n", "nhw"])
def test_on_the_cpu(names):
    # Of three open sizes each takes seconds: a night draws more.
    count = 6 if seeds.number() else 4 if names == "n" else 2
    sizes = SIZES if seeds.number() or names == "n" else SIZES[1:]
    ran = [compare(seed, names, "llvm", sizes=sizes) for seed in seeds.some(count)]
    assert sum(map(bool, ran)) >= (1 if seeds.number() else count - 1)  # some draws ask for a number


def test_on_the_software_gpu():
    assert (
        sum(bool(compare(seed, "n", "rocm -mcpu=gfx942", tec.rocm_emu("gfx942"), SIZES[:2])) for seed in range(2)) == 2
    )


def test_a_new_size_on_a_gpu_asks_no_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its launches are rows of one table: no array is made or checked for a value between two calls, and no call is planned."""
    from tec.runtime.modules.function import Function
    from tec.runtime.modules.program import HostProgram

    g = Graph()
    y = g.input("x", "float32", (Dim("n"), 8))
    for _ in range(5):
        (y,) = g.add("matmul", [y, g.constant(np.eye(8, dtype=np.float32) * 2, "w", "float32")], {})
        (y,) = g.add("softmax", [y], {"axes": (1,)})
    g.set_outputs([y])
    executor = tec.compile(g, target="rocm -mcpu=gfx942", cache=False).executor(tec.rocm_emu("gfx942"))
    monkeypatch.setattr(HostProgram, "specialise", lambda *_: pytest.fail("a call was planned"))
    monkeypatch.setattr(Function, "_gpu_prepare", lambda *_: pytest.fail("a call's arguments were checked one by one"))
    for n in (3, 130, 3, 3):
        value = want = np.random.default_rng(n).standard_normal((n, 8)).astype(np.float32)
        for _ in range(5):
            want = np.exp(2 * want) / np.exp(2 * want).sum(1, keepdims=True)
        np.testing.assert_allclose(executor.run({"x": value})[0].numpy(), want, rtol=1e-5, atol=1e-6)
    launches = executor._engine._table.launches
    assert launches.sections == [(0, len(launches.rows))] and len(launches.rows) >= 10
