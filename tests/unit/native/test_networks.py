"""Networks as shared objects: their results are those of tec's own executors, sizes open, states growing, loops and branches included."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tec
from tec.errors import TecError
from tec.graph import Graph
from tec.graph.builders import Builder
from tec.graph.builders.control import choose, loop
from tests import seeds
from tests.unit.graph.random_graphs import random_graph
from tests.unit.graph.test_region_states import CASES, cached
from tests.unit.native.harness import Failed, Net
from tests.unit.native.networks import cached_sum, cnn


@pytest.fixture
def made(tmp_path):
    """Writes a network's library; a net of it."""
    nets = []

    def make(network, name="net.so", **given):
        network.export_library(tmp_path / name, **{k: given.pop(k) for k in ("weights", "linker") if k in given})
        nets.append(Net(tmp_path / name, **given))
        return nets[-1]

    yield make
    for n in nets:
        n.close()


def test_open_sizes(made):
    net = made(cnn())
    assert net.ports() == [("x", "float32", ["n", "3", "12", "12"])]
    assert net.ports(True) == [("y", "float32", ["n", "10"])]
    rng = np.random.default_rng(0)
    for n in (1, 5, 2, 5):
        x = rng.standard_normal((n, 3, 12, 12)).astype(np.float32)
        np.testing.assert_array_equal(net.run([x])[0], cnn().run([x])[0])


def test_inputs_with_strides_and_of_odd_addresses(made):
    net = made(cnn())
    whole = np.random.default_rng(0).standard_normal((3, 12, 12, 3)).astype(np.float32)
    turned = whole.transpose(0, 3, 1, 2)
    want = cnn().run([np.ascontiguousarray(turned)])[0]
    np.testing.assert_array_equal(net.run([turned])[0], want)
    raw = np.zeros(turned.size * 4 + 1, np.uint8)
    odd = raw[1:].view(np.float32).reshape(turned.shape)
    odd[...] = turned
    np.testing.assert_array_equal(net.run([odd])[0], want)


def test_a_cache_grows(made):
    net, ex = made(cached_sum(), capacity=2), cached_sum().executor(capacity=2)
    assert net.ports() == [("ids", "int64", ["2", "n"])] and len(net.ports(True)) == 1
    rng = np.random.default_rng(1)
    for n in (1, 3, 1, 9):
        ids = rng.integers(0, 5, (2, n))
        np.testing.assert_array_equal(net.run([ids])[0], ex.run([ids])[0].numpy())
    assert net.lib.tec_net_rows(net.net) == 14
    with pytest.raises(Failed, match="is outside of") as e:
        net.run([np.array([[7], [1]])])
    assert e.value.status == 5 and net.lib.tec_net_rows(net.net) == 14
    net.check(net.lib.tec_net_truncate(net.net, 4))
    ex.truncate(4)
    np.testing.assert_array_equal(net.run([ids])[0], ex.run([ids])[0].numpy())
    with pytest.raises(Failed, match="99 rows of state past are asked for, it has 13"):
        net.check(net.lib.tec_net_truncate(net.net, 99))
    net.check(net.lib.tec_net_reset(net.net))
    ex.reset()
    np.testing.assert_array_equal(net.run([ids])[0], ex.run([ids])[0].numpy())


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_loops_and_branches_that_read_states(case, made):
    g, b, past, present = cached()
    outs = case(g, b, past, present)
    g.set_outputs([*outs, *present], [*(f"y{i}" for i in range(len(outs))), "k_next", "r_next"])
    network = tec.compile(g, "llvm", state={"k": "k_next", "r": "r_next"})
    net, ex = made(network, capacity=2), network.executor(capacity=2)
    rng = np.random.default_rng(5)
    for n in (1, 3, 1):
        new = {"a": rng.standard_normal((2, n, 4)).astype("f"), "c": rng.standard_normal((n, 4)).astype("f")}
        for x, y in zip(net.run(new), ex.run(new), strict=True):
            np.testing.assert_array_equal(x, y.numpy())
    with pytest.raises(Failed, match=r"size n is 1 elsewhere and 2"):
        net.run({"a": new["a"], "c": np.zeros((2, 4), "f")})


def test_a_state_that_is_replaced(made):
    g = Graph()
    b = tec.ops.dims.Dim("batch")
    x, h = g.input("x", "float32", (b, 8)), g.input("h", "float32", (b, 8))
    new = g.add("tanh", [g.add("add", [x, h])[0]])[0]
    g.set_outputs([new, g.add("multiply", [new, new])[0]], ["h_next", "y"])
    network = tec.compile(g, target="llvm", state={"h": "h_next"})
    net, ex = made(network), network.executor()
    rng = np.random.default_rng(0)
    for _ in range(4):
        now = rng.standard_normal((3, 8)).astype("f")
        np.testing.assert_array_equal(net.run([now])[0], ex.run([now])[0].numpy())
    with pytest.raises(Failed, match="3 elsewhere and 2"):
        net.run([now[:2]])
    net.check(net.lib.tec_net_reset(net.net))
    ex.reset()
    np.testing.assert_array_equal(net.run([now[:2]])[0], ex.run([now[:2]])[0].numpy())


def nested(trips):
    """A loop in a loop, a branch in both, rows taken and made, a condition that ends it, a count that is an input."""
    g = Graph("g")
    b = Builder(g, "l")
    x, w, limit = g.input("x", "float32", (6,)), g.input("w", "float32", (trips, 6)), g.input("limit", "float32", (1,))

    def inner(b, number, states, rows):
        grown = b.op("add", states[0], x)
        return [states[1], grown], [], None

    def step(b, number, states, rows):
        a, c = loop(b, inner, [states[0], states[1]], 3)[0]
        total = b.op("reduce_sum", a, axes=(0,), keepdims=True)
        (d,) = choose(
            b,
            b.op("greater", total, limit),
            lambda g: [Builder(g, "t").op("neg", a)],
            lambda g: [Builder(g, "e").op("add", a, rows[0])],
        )
        return [d, c], [d], None

    final, rows = loop(b, step, [x, x], trips, rows=[(w, True)], made=[False])
    g.set_outputs([*final, *rows])
    return g


@pytest.mark.parametrize("trips", [1, 4, 5])
def test_loops_in_loops(trips, made):
    network = tec.compile(nested(trips), "llvm")
    net = made(network)
    rng = np.random.default_rng(trips)
    for limit in (-100.0, 0.0, 100.0):
        given = {
            "x": rng.standard_normal(6).astype("f"),
            "w": rng.standard_normal((trips, 6)).astype("f"),
            "limit": np.array([limit], "f"),
        }
        for a, b in zip(net.run(given), network.run(given), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("seed", seeds.some(8 if seeds.number() else 4))
def test_drawn_networks(seed, made):
    """Drawn graphs, half of them with open sizes, are in a library what the same compiled network is in Python."""
    names = ("n", "h") if seed % 2 else ()
    g = random_graph(seed, 8, names)
    network = tec.compile(g, "llvm")
    net = made(network, weights="beside" if seed % 3 == 0 else "inside")
    rng = np.random.default_rng(seed)
    for _ in range(2):
        shapes = {v.name: [d if isinstance(d, int) else int(rng.integers(4, 9)) for d in v.shape] for v in g.inputs}
        feeds = {name: rng.normal(size=shape).astype("f") for name, shape in shapes.items()}
        try:
            want = network.run(feeds)
        except TecError as error:  # sizes that no window fits into
            with pytest.raises(Failed, match=re.escape(error.message)):
                net.run(feeds)
            continue
        for a, b in zip(net.run(feeds), want, strict=True):
            np.testing.assert_array_equal(a, b)


def test_threads_change_nothing(made):
    x = np.random.default_rng(0).standard_normal((16, 3, 12, 12)).astype(np.float32)
    net = made(cnn(), threads=1)
    want = cnn().run([x])[0]
    for threads in (1, 3, 16, 0):
        net.check(net.lib.tec_net_threads(net.net, threads))
        np.testing.assert_array_equal(net.run([x])[0], want)
    with pytest.raises(Failed, match="-1 threads"):
        net.check(net.lib.tec_net_threads(net.net, -1))
