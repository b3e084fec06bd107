"""Runs of networks over arrays where they lie on a GPU: right for any order of sizes, addresses and streams, replayed where addresses come again."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from test_launch_table import THROUGH_SCRATCH, devices, network, pair

import tec
from tec.graph import Graph
from tec.runtime.networks import placed_runs
from tec.runtime.networks.network import Network
from tests import seeds


def on(dev: Any, *xs: Any) -> list[Any]:
    return [tec.nd.array(x, dev) for x in xs]


def run(placed: Any, xs: list[Any], out: Any, **more: Any) -> None:
    placed.run(placed.binding(xs), tuple(a.address for a in (*xs, out)), **more)


@pytest.mark.parametrize("kind", ["rocm", "cuda"])
@pytest.mark.parametrize("seed", seeds.some(3))
def test_drawn_orders_of_sizes_arrays_and_streams(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """C = (A + B) + (A + B + B), twice, by scratch memory: six launches, or two under the number that is replayed."""
    rng = random.Random(seed)
    monkeypatch.setattr(placed_runs, "_FEW_LAUNCHES", rng.choice((1, 4, 9)))
    monkeypatch.setattr(placed_runs, "_KEPT", rng.choice((1, 3)))
    lib, dev = devices(kind)
    net = network(kind, THROUGH_SCRATCH)
    placed = net.placed_runs(dev)
    assert placed is not None
    streams = [dev.stream(), dev.stream()]
    known = []
    for n in rng.choices((1, 7, 20, 64, 65, 200, 300), k=4) * 2:  # of each size other arrays too
        x, y = pair(n)
        known.append((x, y, on(dev, x, y), tec.nd.empty((n,), "float32", dev)))
    for _ in range(24):
        x, y, xs, out = rng.choice(known)
        out.copyfrom(np.zeros_like(x))
        with rng.choice(streams):
            run(placed, xs, out, is_replayed=rng.random() < 0.8)
        np.testing.assert_allclose(out.numpy(), 4 * x + 9 * y, rtol=1e-5, atol=1e-5)
    assert placed.nbytes


def test_addresses_that_come_again_are_a_graph() -> None:
    lib, dev = devices("cuda")
    placed = network("cuda", THROUGH_SCRATCH).placed_runs(dev)
    x, y = pair(90)
    xs, out = on(dev, x, y), tec.nd.empty((90,), "float32", dev)
    counts = []
    for _ in range(4):
        lib.launched.clear()
        run(placed, xs, out)
        counts.append(len(lib.launched))
    assert counts == [6, 6, 0, 0]  # as they are, into a graph, and the graph
    lib.launched.clear()
    run(placed, xs, out, is_replayed=False)
    assert len(lib.launched) == 6
    np.testing.assert_allclose(out.numpy(), 4 * x + 9 * y, rtol=1e-5, atol=1e-5)


def test_a_capture_waits_for_no_run_outside() -> None:
    lib, dev = devices("cuda")
    placed = network("cuda", THROUGH_SCRATCH).placed_runs(dev)
    x, y = pair(90)
    xs, out = on(dev, x, y), tec.nd.empty((90,), "float32", dev)
    run(placed, xs, out)
    with dev.capture() as graph:
        run(placed, xs, out)
    assert not lib.named("cuStreamWaitEvent")  # CUDA refuses what depends on work that is not captured
    out.copyfrom(np.zeros_like(x))
    graph.launch()
    np.testing.assert_allclose(out.numpy(), 4 * x + 9 * y, rtol=1e-5, atol=1e-5)
    with dev.stream():
        run(placed, xs, out)
    assert lib.named("cuStreamWaitEvent")


def soft(outputs: str = "y") -> Network:
    g = Graph()
    x = g.input("x", "float32", (5, 33))
    w = g.constant(np.random.default_rng(0).standard_normal((33, 40)).astype("float32"))
    y = g.add("softmax", [g.add("matmul", [x, w])[0]], {"axes": (1,)})[0]
    g.set_outputs([y] if outputs == "y" else [y, x], ["y"] if outputs == "y" else ["y", "same"])
    return tec.compile(g, target="rocm -mcpu=gfx942")


def test_a_bound_run_on_a_gpu_reads_and_writes_in_place() -> None:
    dev, net = tec.rocm_emu("gfx942"), soft()
    rng = np.random.default_rng(1)
    x, out = tec.nd.empty((5, 33), "float32", dev), tec.nd.empty((5, 40), "float32", dev)
    bound = net.bind([x], [out], device=dev)
    assert bound._run == bound._queue and bound._executor.nbytes == 0 < bound.nbytes
    for _ in range(3):
        host = rng.standard_normal((5, 33)).astype("float32")
        x.copyfrom(host)
        assert bound()[0] is out
        np.testing.assert_array_equal(out.numpy(), net.run([host], device=dev)[0])


def test_what_is_no_memory_of_its_own_goes_by_the_executor() -> None:
    dev, net = tec.rocm_emu("gfx942"), soft("y and x")
    assert net.placed_runs(dev) is None
    x = tec.nd.array(np.ones((5, 33), "float32"), dev)
    y, same = net.bind([x], device=dev)()
    np.testing.assert_array_equal(same.numpy(), x.numpy())
    view = tec.nd.array(np.ones((5, 34), "float32"), dev)[:, 1:]
    bound = soft().bind([view], device=dev)
    np.testing.assert_array_equal(bound()[0].numpy(), y.numpy())
