"""Checks of indices in the launch of what reads the same index."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.graph import Graph
from tec.graph.passes.check_indices import _part
from tec.ops.dims import Dim

TARGET = "rocm -mcpu=gfx942"


def gathers(count: int | str, tables: int = 1) -> Graph:
    """Rows of tables by one index."""
    g = Graph("g")
    xs = [g.input(f"x{k}", "float32", (3, 4)) for k in range(tables)]
    index = g.input("i", "int64", (tec.dim(count) if isinstance(count, str) else count,))
    outs = [g.add("gather", [x, index], {"axis": 0})[0] for x in xs]
    g.set_outputs(outs, [f"y{k}" for k in range(tables)])
    return g


def kernels(net: tec.Network) -> int:
    return sum(m.get_source("ir").count("kernel=True") for m in net.module.imported_modules)


@pytest.mark.parametrize("count", [5, 2053])
def test_a_gather_checks_its_index_in_the_same_launch(count: int) -> None:
    net, device = tec.compile(gathers(count), TARGET, cache=False), tec.rocm_emu("gfx942")
    assert kernels(net) == 1
    x, index = np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(count) % 6 - 3
    np.testing.assert_array_equal(net.run([x, index], device=device)[0], x[index])
    for place, value in ((0, 3), (count - 1, -4)):
        wrong = index.copy()
        wrong[place] = value
        with pytest.raises(tec.ArgumentError, match=r"index of gather .* is outside of -3 to 2"):
            net.run([x, wrong], device=device)
    np.testing.assert_array_equal(net.run([x, index], device=device)[0], x[index])


def test_many_indices_of_several_dimensions_are_checked_by_many_work_groups() -> None:
    """A work-group has some thousand of them: one of all took 48 times as long as the gather beside it."""
    shape = (3, 40, 50)
    g = Graph("g")
    x, index = g.input("x", "float32", (3, 7, 50)), g.input("i", "int64", shape)
    g.set_outputs(g.add("gather_elements", [x, index], {"axis": 1}), ["y"])
    net, device = tec.compile(g, TARGET, cache=False), tec.rocm_emu("gfx942")
    assert kernels(net) == 1
    (flags,) = [net.plan.values[o.value].shape for o in net.plan.outputs if o.check is not None]
    assert flags == (6,)
    a, i = np.random.default_rng(0).random((3, 7, 50), np.float32), np.arange(6000).reshape(shape) % 14 - 7
    np.testing.assert_array_equal(net.run([a, i], device=device)[0], np.take_along_axis(a, i % 7, 1))
    for place, value in (((0, 0, 0), 7), ((2, 39, 49), -8), ((1, 20, 3), 2**40)):
        wrong = i.copy()
        wrong[place] = value
        with pytest.raises(tec.ArgumentError, match=r"index of gather_elements .* is outside of -7 to 6"):
            net.run([a, wrong], device=device)


@pytest.mark.parametrize("count", [2048, 5_000_000, 3 * 4096 * 4096 + 1])
def test_flags_are_few_and_stand_for_few(count: int) -> None:
    """However many indices there are: a host reads the flags, a work-group what a flag stands for."""
    length = _part(count)
    assert -(-count // length) <= 4096 and length <= max(4096, 4 * (count // 4096))


def test_one_of_several_readers_takes_the_check() -> None:
    net = tec.compile(gathers(40, tables=2), TARGET, cache=False)
    assert kernels(net) == 2
    x, index = np.ones((3, 4), np.float32), np.arange(40) % 3
    for got in net.run([x, 2 * x, index], device=tec.rocm_emu("gfx942")):
        assert got.shape == (40, 4)


def test_short_elementwise_work_runs_beside_other_such() -> None:
    g = Graph("g")
    x, y, z = g.input("x", "float32", (64,)), g.input("y", "float32", (5, 70)), g.input("z", "float32", (300, 300))
    g.set_outputs([g.add(op, [v])[0] for op, v in (("cos", x), ("sin", y), ("exp", z))], ["a", "b", "c"])
    net = tec.compile(g, TARGET, cache=False)
    assert kernels(net) == 2  # of many elements a kernel of its own
    given = [np.random.default_rng(1).random(s, np.float32) for s in ((64,), (5, 70), (300, 300))]
    for got, f, v in zip(net.run(given, device=tec.rocm_emu("gfx942")), (np.cos, np.sin, np.exp), given):
        np.testing.assert_allclose(got, f(v), rtol=1e-5)


def test_work_that_waits_runs_after_what_it_waits_for() -> None:
    """exp reads the cosines, through a view; the sines of z do not, and go beside the cosines."""
    g = Graph("g")
    x, z = g.input("x", "float32", (4, 16)), g.input("z", "float32", (9,))
    a = g.add("cos", [x])[0]
    b = g.add("exp", [g.add("reshape", [a], {"shape": (64,)})[0]])[0]
    g.set_outputs([a, b, g.add("sin", [z])[0]], ["a", "b", "c"])
    net = tec.compile(g, TARGET, cache=False)
    assert kernels(net) == 2
    u, v = (np.random.default_rng(2).random(s, np.float32) for s in ((4, 16), (9,)))
    a, b, c = net.run([u, v], device=tec.rocm_emu("gfx942"))
    np.testing.assert_allclose(a, np.cos(u), rtol=1e-5)
    np.testing.assert_allclose(b, np.exp(np.cos(u)).ravel(), rtol=1e-5)
    np.testing.assert_allclose(c, np.sin(v), rtol=1e-5)


def test_work_that_reads_a_checked_gather_runs_after_it() -> None:
    """The gather runs beside the check of its index, and is nobody else's neighbour: the sines wait for it all the same, and are none of the cosines'."""
    g = Graph("g")
    t, i, x = g.input("t", "float32", (3, 4)), g.input("i", "int64", (5,)), g.input("x", "float32", (64,))
    early, rows = g.add("cos", [x])[0], g.add("gather", [t, i], {"axis": 0})[0]
    flat = g.add("reshape", [rows], {"shape": (20,)})[0]
    g.set_outputs([early, rows, g.add("sin", [flat])[0]], ["a", "b", "c"])
    net = tec.compile(g, TARGET, cache=False)
    table, index = np.random.default_rng(4).random((3, 4), np.float32), np.array([2, 0, 1, -1, 2])
    _, got, sines = net.run([table, index, np.ones(64, np.float32)], device=tec.rocm_emu("gfx942"))
    np.testing.assert_array_equal(got, table[index])
    np.testing.assert_allclose(sines, np.sin(table[index]).ravel(), rtol=1e-5)


def test_rows_that_are_appended_to_two_states_go_there_in_one_launch() -> None:
    """One function takes the room of both, under two names."""
    g = Graph("g")
    keys, values = (
        g.input("k", "float32", (2, Dim("past"), 8)),
        g.input("v", "float32", (3, Dim("more"), 8)),
    )
    x, y = g.input("x", "float32", (2, 1, 8)), g.input("y", "float32", (3, 1, 8))
    k, v = (g.add("concat", [c, g.add("neg", [n])[0]], {"axis": 1})[0] for c, n in ((keys, x), (values, y)))
    g.set_outputs([k, v], ["k2", "v2"])
    net = tec.compile(g, TARGET, state={"k": "k2", "v": "v2"}, cache=False)
    assert kernels(net) == 1
    rng = np.random.default_rng(3)
    held = {"k": rng.random((2, 3, 8), np.float32), "v": rng.random((3, 5, 8), np.float32)}
    executor = net.executor(tec.rocm_emu("gfx942"), capacity=9)
    for turn in range(3):
        new = {"x": rng.random((2, 1, 8), np.float32), "y": rng.random((3, 1, 8), np.float32)}
        executor.run(new | held if turn == 0 else new)
        held = {c: np.concatenate([held[c], -new[n]], 1) for c, n in (("k", "x"), ("v", "y"))}
        for c, rows in held.items():
            np.testing.assert_array_equal(executor.state[c].numpy(), rows)
