"""Constants whose numbers come after compilation: no pass reads them, and a network that gets them later computes what one that knew them would."""

import numpy as np
import pytest

import tec
from tec.errors import ArgumentError, InternalError
from tec.graph import Graph, run_graph
from tec.graph import optimize as optimizing
from tec.graph.compiler import compile_graph
from tec.graph.deferred import Deferred
from tec.graph.optimize import Pass, optimize
from tests import seeds
from tests.unit.graph.random_graphs import feed, random_graph

TARGETS = [tec.Target(t) for t in ("llvm", "rocm -mcpu=gfx942", "cuda -arch=sm_90a")]
rng = np.random.default_rng(3)


def deferred(g):
    """The numbers of a graph's constants, by name; the graph has them no more."""
    numbers = {v.name: v.data for v in g.constants()}
    for v in g.constants():
        v.data = Deferred.of(v.dtype, v.shape)
    return numbers


def last_rows():
    """The last row of each text, scaled and multiplied: the scale meets a reshape that moves behind the product."""
    g = Graph()
    x = g.input("x", "float32", (6, 8))
    (x,) = g.add("reshape", [x], {"shape": (2, 3, 8)})
    (x,) = g.add("slice", [x], {"starts": (0, 2, 0), "steps": (1, 1, 1), "sizes": (2, 1, 8)})
    (x,) = g.add("reshape", [x], {"shape": (2, 8)})
    (x,) = g.add("multiply", [x, g.constant(rng.standard_normal(8).astype("f"), "scale")])
    (y,) = g.add("matmul", [x, g.constant(rng.standard_normal((5, 8)).astype("f"), "head")], {"transpose_b": True})
    g.set_outputs([y])
    return g


def one_number_each():
    """Two equal nodes but for their constants, of one number each, which code would hold."""
    g = Graph()
    x = g.input("x", "float32", (4, 6))
    parts = [g.add("multiply", [x, g.constant(np.float32([k]), "factor")])[0] for k in (2, 3)]
    g.set_outputs(g.add("subtract", parts))
    return g


@pytest.mark.parametrize("make", [last_rows, one_number_each])
def test_numbers_that_come_later_are_those_that_are_computed_with(make):
    g = make()
    feeds = feed(g)
    expected = run_graph(g, feeds)
    numbers = deferred(g)
    net = compile_graph(g, TARGETS[0])
    assert {n for n, v in net.params.items() if isinstance(v, Deferred)} == set(numbers)
    net.provide(numbers)
    got = net.run(feeds)
    np.testing.assert_allclose(np.asarray(got[0]), expected[0], rtol=1e-5, atol=1e-5)


def test_a_network_whose_numbers_have_not_come_is_refused(tmp_path):
    """It would compute with zeros, and say nothing; so would a package or a library of it, and what a cache keeps."""
    g = last_rows()
    feeds = feed(g)
    expected = run_graph(g, feeds)
    numbers = deferred(g)
    net = tec.compile(g, TARGETS[0])
    for use in (
        lambda: net.run(feeds),
        net.executor,
        lambda: net.bind(feeds),
        lambda: net.save(tmp_path / "n.tec"),
        lambda: net.export_library(tmp_path / "n.so"),
    ):
        with pytest.raises(
            ArgumentError, match=rf"(?s)of {len(net.params)} weights have no numbers yet: .*net.provide\("
        ):
            use()
    net.provide(numbers)
    np.testing.assert_allclose(np.asarray(net.run(feeds)[0]), expected[0], rtol=1e-5, atol=1e-5)
    with pytest.raises(ArgumentError, match="no numbers yet"):
        tec.compile(g, TARGETS[0]).run(feeds)


def test_a_reshape_that_only_adds_dimensions_is_not_copied_to():
    g = last_rows()
    deferred(g)
    after = optimize(g, TARGETS[2])
    assert not [n for n in after.nodes if n.inputs[0].is_const]


@pytest.mark.parametrize("seed", seeds.some(24))
def test_passes_read_no_deferred_constant(seed):
    g = random_graph(seed, 20)
    feeds = feed(g)
    expected = run_graph(g, feeds)
    numbers = deferred(g)
    optimize(g, TARGETS[seed % 3], "float16")  # raises where a pass reads one
    after = optimize(g, TARGETS[seed % 3])
    for v in after.constants():
        if isinstance(v.data, Deferred):
            v.data = numbers[v.name]
    for a, b in zip(run_graph(after, feeds), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_pass_that_reads_one_is_told(monkeypatch):
    def reads(graph, target, dtype):
        node = next(n for n in graph.nodes if n.op == "multiply")
        node.inputs[1] = Graph().constant(np.asarray(node.inputs[1].data) * 2, node.inputs[1].name)
        return graph

    monkeypatch.setattr(optimizing, "passes", lambda: (Pass("doubles", reads),))
    g = last_rows()
    deferred(g)
    with pytest.raises(InternalError, match="doubles has read constants whose numbers come later: scale"):
        optimize(g, TARGETS[0])
