"""Checks of indices in the launch of what reads the same index."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.graph import Graph

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


def test_one_of_several_readers_takes_the_check() -> None:
    net = tec.compile(gathers(40, tables=2), TARGET, cache=False)
    assert kernels(net) == 2
    x, index = np.ones((3, 4), np.float32), np.arange(40) % 3
    for got in net.run([x, 2 * x, index], device=tec.rocm_emu("gfx942")):
        assert got.shape == (40, 4)
