"""Runs of shapes that were seen before give what the long way gives, whatever is given in between."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tec
from tec.errors import ArgumentError
from tec.graph import Graph
from tec.ops.dims import Dim
from tec.runtime.arrays import addresses
from tec.runtime.networks.direct_run import DirectRuns
from tec.runtime.networks.network import Network
from tests import seeds


def picking() -> Graph:
    """y = softmax(x @ w) of some rows, total = the sums of its columns: values in the arena, a check of indices, two outputs."""
    g = Graph()
    x, i = g.input("x", "float32", (Dim("n"), 6)), g.input("i", "int64", (Dim("m"),))
    w = g.constant(np.random.default_rng(0).standard_normal((6, 40)).astype("float32"))
    picked = g.add("gather", [g.add("matmul", [x, w])[0], i], {"axis": 0})[0]
    y = g.add("softmax", [picked], {"axes": (1,)})[0]
    g.set_outputs([y, g.add("reduce_sum", [y], {"axes": (0,), "keepdims": False})[0]], ["y", "total"])
    return g


@pytest.fixture(scope="module")
def net() -> Network:
    return tec.compile(picking(), target="llvm")


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each run that came to `DirectRuns.run`, whether it was direct."""
    seen: list[bool] = []
    run = DirectRuns.run

    def watched(self: DirectRuns, given: Any) -> Any:
        found = run(self, given)
        seen.append(found is not None)
        return found

    monkeypatch.setattr(DirectRuns, "run", watched)
    return seen


def drawn(rng: random.Random) -> dict[str, Any]:
    n, m = rng.choice((1, 3, 17, 400)), rng.choice((1, 5, 900))
    own = np.random.default_rng(rng.randrange(1 << 30))
    return {"x": own.standard_normal((n, 6)).astype("f4"), "i": own.integers(0, n, m)}


def want(x: dict[str, Any]) -> list[Any]:
    w = np.random.default_rng(0).standard_normal((6, 40)).astype("float32")
    s = (x["x"] @ w)[x["i"]]
    e = np.exp(s - s.max(1, keepdims=True))
    y = e / e.sum(1, keepdims=True)
    return [y, y.sum(0)]


def close(got: Any, x: dict[str, Any]) -> None:
    for a, b in zip(got, want(x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_many_shapes_in_turn(net, direct):
    """Earlier outputs stay as they were."""
    rng = random.Random(seeds.first())
    kept = []
    for _ in range(60):
        x = drawn(rng)
        if rng.random() < 0.3:
            x["x"] = np.asfortranarray(x["x"])
        kept.append((net.run(x if rng.random() < 0.5 else [x["x"], x["i"]]), x))
    for got, x in kept:
        close(got, x)
    assert sum(direct) > 10


def test_other_ways_in_between(net, direct):
    """A run on arrays, one of another executor, or memory given back, does not disturb it."""
    rng = random.Random(seeds.first(1))
    x = drawn(rng)
    for _ in range(4):
        close(net.run(x), x)
        other = drawn(rng)
        close([a.numpy() for a in net.run_arrays(other)], other)
        close([a.numpy() for a in net.executor().run(other)], other)
        for executor in next(iter(net._idle.values())):
            executor._engine.release()
    close(net.run(x), x)
    close(net.run(x), x)
    assert direct[-1]


def test_what_is_wrong_is_told_as_ever(net, direct):
    x = {"x": np.ones((4, 6), "f4"), "i": np.arange(3)}
    for _ in range(3):
        close(net.run(x), x)
    assert direct[-1]
    for wrong in ({**x, "i": np.array([0, 1, 4])}, {**x, "x": np.ones((4, 6))}, {**x, "x": np.ones((4, 5), "f4")}, {"x": x["x"]}, [x["x"]]):  # fmt: skip
        with pytest.raises(ArgumentError):
            net.run(wrong)
    close(net.run(x), x)


def test_kinds_of_arrays(net):
    """Subclasses, byte orders, odd addresses and read-only arrays."""
    x = {"x": np.random.default_rng(1).standard_normal((5, 6)).astype("f4"), "i": np.arange(5)}
    for _ in range(2):
        close(net.run(x), x)
    odd = np.zeros(5 * 6 * 4 + 1, "u1")[1:].view("f4").reshape(5, 6)
    odd[:] = x["x"]
    fixed = x["x"].copy()
    fixed.flags.writeable = False
    for a in (odd, fixed, x["x"].astype(">f4"), x["x"].view(np.recarray), np.tile(x["x"], 2)[:, :6]):
        close(net.run({**x, "x": a}), x)


def test_threads(net):
    rng = random.Random(seeds.first(2))
    xs = [drawn(rng) for _ in range(6)]

    def some(x: Any) -> None:
        for _ in range(20):
            close(net.run(x), x)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(some, xs))


def test_addresses_are_those_numpy_tells():
    whole = np.arange(24.0).reshape(4, 6)
    for x in (whole, whole[1:, ::2], whole[::-1], whole.view(np.recarray), np.zeros(0), np.array(5)):
        assert addresses.address_of(x) == x.ctypes.data == addresses._slowly(x)


def test_outputs_without_memory_of_their_own(direct):
    """An input that is an output, a view of another one, a constant, and views of what is computed, which is an output too."""
    g = Graph()
    x, y = g.input("x", "float32", (Dim("n"), 6)), g.input("y", "float32", (4,))
    made = g.add("exp", [x])[0]
    views = [g.add("reshape", [made], {"shape": s})[0] for s in ((Dim("n"), 2, 3), (1, Dim("n"), 6))]
    outputs = [views[0], x, g.add("reshape", [y], {"shape": (2, 2)})[0], g.constant(np.arange(3, dtype="f4")), made]
    g.set_outputs([*outputs, views[1]], ["v", "x", "y", "c", "e", "w"])
    net = tec.compile(g, target="llvm")
    kept = []
    for n in (3, 3, 3, 5, 5, 3):
        a, b = np.random.rand(n, 6).astype("f4"), np.random.rand(4).astype("f4")
        e = np.exp(a)
        want = [e.reshape(n, 2, 3), a.copy(), b.reshape(2, 2).copy(), np.arange(3), e, e[None]]
        kept.append((net.run([a, b]), want))
        a[:], b[:] = 0, 0
    for got, want in kept:
        for one, other in zip(got, want, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)
    assert any(direct)


def test_memory_of_large_outputs_is_used_again_when_nobody_has_them(direct):
    g = Graph()
    g.set_outputs([g.add("exp", [g.input("x", "float32", (1 << 19,))])[0]], ["y"])
    net = tec.compile(g, target="llvm")
    x = np.zeros(1 << 19, "f4")
    net.run([x]), net.run([x])
    part = net.run([x])[0][5:7]
    assert direct[-1]
    fresh = net.run([x + 1])[0]
    assert part.tolist() == [1.0, 1.0] and abs(fresh[0] - np.e) < 1e-5
    at = fresh.ctypes.data
    del fresh
    assert net.run([x])[0].ctypes.data == at


def test_outputs_may_have_the_names_of_inputs_and_of_one_another(direct):
    g = Graph()
    x = g.input("x", "float32", (2, 3))
    e = g.add("exp", [x])[0]
    views = [g.add("reshape", [v], {"shape": (6,)})[0] for v in (e, x)]
    g.set_outputs([e, views[0], g.add("neg", [x])[0], x, views[1]], ["x", "y", "y", "x", "x"])
    net = tec.compile(g, target="llvm")
    assert [o["name"] for o in net.outputs] == ["x", "y", "y", "x", "x"]
    for _ in range(3):
        a = np.random.rand(2, 3).astype("f4")
        for got, want in zip(net.run([a]), [np.exp(a), np.exp(a).ravel(), -a, a, a.ravel()], strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5)
    assert direct[-1]


def test_what_checks_say_is_read_anew_each_run(direct):
    """Their memory stays where it is from run to run."""
    g = Graph()
    x, i, j = g.input("x", "float32", (6, 3)), g.input("i", "int64", (5000,)), g.input("j", "int32", (2,))
    g.set_outputs([g.add("gather", [x, k], {"axis": 0})[0] for k in (i, j)], ["y", "z"])
    net, rng = tec.compile(g, target="llvm"), np.random.default_rng(0)
    table, few = rng.standard_normal((6, 3)).astype("float32"), np.array([5, -6], "int32")
    for place in (None, None, 4999, None, 0, None):
        many = rng.integers(-6, 6, 5000)
        if place is None:
            y, z = net.run([table, many, few])
            np.testing.assert_array_equal(y, table[many])
            np.testing.assert_array_equal(z, table[few])
            continue
        many[place] = 6
        with pytest.raises(ArgumentError, match="outside of -6 to 5"):
            net.run([table, many, few])
    with pytest.raises(ArgumentError, match="outside of -6 to 5"):
        net.run([table, rng.integers(-6, 6, 5000), few + 1])
    assert direct.count(True) >= 2
