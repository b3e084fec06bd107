"""Checks of indices in the launch of what reads the same index."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.graph import Graph
from tec.graph.passes.check_indices import _part

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
