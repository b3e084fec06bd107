"""Runs bound to their arrays give what other runs give of the same numbers, time after time, and refuse what they could not read in place."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tec
from tec.errors import ArgumentError
from tec.graph import Graph
from tec.graph.builders import Builder
from tec.graph.builders.control import loop
from tec.ops.dims import Dim
from tec.runtime.networks.network import Network
from tests import seeds


def graph() -> Graph:
    """Rows of a product by an index, their softmax, sums over columns, and an input as it is: a check of indices, values in the arena, an output that is no memory of its own."""
    g = Graph()
    x, i = g.input("x", "float32", (Dim("n"), 6)), g.input("i", "int64", (Dim("m"),))
    w = g.constant(np.random.default_rng(0).standard_normal((6, 40)).astype("float32"))
    picked = g.add("gather", [g.add("matmul", [x, w])[0], i], {"axis": 0})[0]
    y = g.add("softmax", [picked], {"axes": (1,)})[0]
    g.set_outputs([y, g.add("reduce_sum", [y], {"axes": (0,), "keepdims": False})[0], x], ["y", "total", "same"])
    return g


@pytest.fixture(scope="module")
def net() -> Network:
    return tec.compile(graph(), target="llvm")


def arrays(n: int, m: int, seed: int = 0) -> dict[str, Any]:
    own = np.random.default_rng(seed)
    return {"x": own.standard_normal((n, 6)).astype("f4"), "i": own.integers(0, n, m)}


def aligned(shape: tuple[int, ...], apart: int) -> np.ndarray:
    """Zeros that begin so many bytes behind a multiple of 64."""
    count = int(np.prod(shape))
    block = np.zeros(4 * count + 128, np.uint8)
    at = -block.ctypes.data % 64 + apart
    return block[at : at + 4 * count].view("f4").reshape(shape)


@pytest.mark.parametrize("seed", seeds.some(6))
def test_bound_runs_give_what_runs_give(net: Network, seed: int) -> None:
    rng = random.Random(seed)
    n, m = rng.choice((1, 3, 70)), rng.choice((1, 5, 90))
    x = arrays(n, m, seed)
    shapes = {"y": (m, 40), "total": (40,), "same": (n, 6)}
    given = {k: aligned(s, rng.choice((0, 4, 64))) for k, s in shapes.items() if rng.random() < 0.7}
    if rng.random() < 0.3 and "total" in given:  # elements apart
        given["total"] = np.zeros((40, 2), "f4")[:, 0]
    inputs: Any = x if rng.random() < 0.5 else [tec.nd.array(x["x"]), x["i"]]
    outputs = given if rng.random() < 0.7 else [given.get(k) for k in shapes]
    run = net.bind(inputs, outputs)
    for turn in range(3):
        new = arrays(n, m, seed + turn + 1)
        x["i"][:] = new["i"]
        if isinstance(inputs, dict):
            x["x"][:] = new["x"]
        want = net.run(x)
        got = run()
        for name, a, w in zip(shapes, got, want, strict=True):
            np.testing.assert_array_equal(a, w)
            assert name not in given or a is given[name]
    assert all(a is b for a, b in zip(got, run()))


def test_other_threads_wait(net: Network) -> None:
    x = arrays(40, 90)
    run = net.bind(x)
    want = [a.copy() for a in net.run(x)]
    inner, busy = run._run, []

    def watched() -> list[Any]:
        assert not busy
        busy.append(True)
        try:
            return inner()
        finally:
            busy.pop()

    run._run = watched
    with ThreadPoolExecutor(4) as pool:  # what one run gave the next one writes: they are looked at when all are done
        results = list(pool.map(lambda _: run(), range(60)))
    for got in results:
        for a, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, w)


def test_an_index_that_is_not_there_is_told_each_time(net: Network) -> None:
    x = arrays(4, 3)
    run = net.bind(x)
    run()
    kept = x["i"].copy()
    x["i"][1] = 4
    for _ in range(2):
        with pytest.raises(ArgumentError, match="outside of"):
            run()
    x["i"][:] = kept
    np.testing.assert_array_equal(run()[0], net.run(x)[0])


@pytest.mark.parametrize(
    "inputs, outputs, match",
    [
        ({"x": np.zeros((6, 4), "f4").T, "i": np.zeros(1, "i8")}, None, "input x does not lie in one piece"),
        ({"x": np.zeros((4, 6), ">f4"), "i": np.zeros(1, "i8")}, None, "order of bytes"),
        ({"x": [[0.0] * 6], "i": np.zeros(1, "i8")}, None, "input x is list"),
        ({"x": np.zeros((4, 6), "f8"), "i": np.zeros(1, "i8")}, None, "input x is float64"),
        ({"x": np.zeros((4, 5), "f4"), "i": np.zeros(1, "i8")}, None, r"input x has shape \(4, 5\)"),
        ({"x": np.zeros((4, 6), "f4")}, None, "missing: i"),
        ([np.zeros((4, 6), "f4")], None, "1 inputs given"),
        (None, [None, None, None], "missing: x, i"),
        (arrays(4, 1), [np.zeros(40, "f4")], "1 arrays given for outputs"),
        (arrays(4, 1), {"total": np.zeros(41, "f4")}, "output total is"),
        (arrays(4, 1), {"sum": np.zeros(40, "f4")}, "no output sum"),
    ],
)  # fmt: skip
def test_what_cannot_be_bound(net: Network, inputs: Any, outputs: Any, match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        net.bind(inputs, outputs)


def test_memory_is_not_shared_between_ends(net: Network) -> None:
    x = arrays(40, 1)
    with pytest.raises(ArgumentError, match="shares memory"):
        net.bind(x, {"total": x["x"].reshape(-1)[:40]})


def test_sizes_are_bound_as_before(net: Network) -> None:
    fixed = net.bind({"n": np.int64(4)}, m=2)
    assert isinstance(fixed, Network) and not fixed.open_sizes
    x = arrays(4, 2)
    np.testing.assert_array_equal(fixed.bind(x)()[0], net.run(x)[0])
    with pytest.raises(ArgumentError, match=r"size n is 2\.5"):
        net.bind({"n": 2.5, "m": 1})
    with pytest.raises(ArgumentError, match="has no 'm'"):
        net.bind(x, None, m=2)  # type: ignore[call-overload]


def test_states_and_loops_go_by_their_executor() -> None:
    g = Graph()
    x, past = g.input("x", "float32", (3,)), g.input("past", "float32", (3,))
    g.set_outputs([(total := g.add("add", [x, past])[0]), g.add("neg", [total])[0]], ["present", "y"])
    step = np.ones(3, "f4")
    run = tec.compile(g, target="llvm", state={"past": "present"}).bind({"x": step})
    assert [float(run()[0][0]) for _ in range(3)] == [-1, -2, -3]

    g = Graph()
    build, start, most = Builder(g), g.input("x", "float32", (2,)), g.input("n", "int64", ())
    (end,), _ = loop(build, lambda b, trip, s, rows: ([b.op("add", s[0], start)], [], None), [start], count=most)
    g.set_outputs([end], ["y"])
    n, y = np.array(3), aligned((2,), 0)
    run = tec.compile(g, target="llvm").bind([np.ones(2, "f4"), n], [y])
    assert run()[0] is y and y.tolist() == [4, 4]
    n[...] = 5
    run()
    assert y.tolist() == [6, 6]


def test_a_device_that_is_no_cpu() -> None:
    g = Graph()
    g.set_outputs([g.add("relu", [g.input("x", "float32", (64,))])[0]], ["y"])
    dev = tec.rocm_emu("gfx942")
    x, y = tec.nd.array(np.arange(64, dtype="f4") - 32, dev), tec.nd.empty((64,), "float32", dev)
    net = tec.compile(g, target="rocm -mcpu=gfx942")
    run = net.bind([x], [y], device=dev)
    assert run()[0] is y
    np.testing.assert_array_equal(y.numpy(), np.maximum(x.numpy(), 0))
    x.copyfrom(np.full(64, 7, "f4"))
    run()
    assert (y.numpy() == 7).all() and (net.bind([x], device=dev)()[0].numpy() == 7).all()
