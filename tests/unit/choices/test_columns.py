"""Reductions along an axis that others follow: one kernel, by work-groups of neighbouring columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import spaces
from tec.graph import Graph

TARGET = "rocm -mcpu=gfx942"


def kernels(net: tec.Network) -> int:
    return sum(m.get_source("ir").count("kernel=True") for m in net.module.imported_modules)


def by_numpy(what: str, x: Any) -> Any:
    e = np.exp(x - x.max(1, keepdims=True))
    y = e / e.sum(1, keepdims=True)
    return y if what == "softmax" else np.log(y)


@pytest.mark.parametrize("what", ["softmax", "log_softmax"])
@pytest.mark.parametrize("shape", [(7, 130, 5), (2, 50, 3, 31), (3, 24, 100)])
def test_one_kernel(what: str, shape: tuple[int, ...]) -> None:
    """Columns that are fewer than a work-group has, that no number of its threads divides, and several axes of them."""
    g = Graph("g")
    x = g.input("x", "float32", shape)
    g.set_outputs(g.add(what, [x], {"axes": (1,)}), ["y"])
    net = tec.compile(g, TARGET, cache=False)
    assert kernels(net) == 1
    a = np.random.default_rng(0).standard_normal(shape, np.float32) * 3
    (y,) = net.run([a], device=tec.rocm_emu("gfx942", check="all"))
    np.testing.assert_allclose(y, by_numpy(what, a), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize(("shape", "deep"), [((130, 9, 610), 1), ((1, 709, 23104), 8), ((1, 709, 2310), 64)])
def test_short_columns_are_a_threads_own_and_few_work_groups_have_many_threads(
    shape: tuple[int, ...], deep: int
) -> None:
    """A norm over 11 channels of 32 images of 184 x 184 in float16 took 28.7 us on an MI355X by four threads a column, and takes 9.9. Of few columns work-groups have fewer, so that more
    units have one, and neighbours, which then have lines of memory in common, are on one die: a log-softmax over the middle of 2 x 1180 x 2344 took 27.7 us on an MI300X, and takes 11.5."""
    g = Graph("g")
    g.set_outputs(g.add("softmax", [g.input("x", "float16", shape)], {"axes": (1,)}), ["y"])
    net = tec.compile(g, TARGET, cache=False)
    (chosen,) = (c["choice"] for c in net.report.choices.values())
    assert (chosen["template"], chosen["deep"]) == ("gpu columns", deep)
    if deep == 1:
        a = np.random.default_rng(1).standard_normal(shape, np.float32)
        (y,) = net.run([a.astype("float16")], device=tec.rocm_emu("gfx942", check="all"))
        np.testing.assert_allclose(y, by_numpy("softmax", a), rtol=1e-2, atol=1e-3)


def test_reductions_of_different_axes_are_others_work() -> None:
    x = te.placeholder((6, 40, 5), "float32", name="x")
    j, k = te.reduce_axis((0, 40), name="j"), te.reduce_axis((0, 6), name="k")
    a = te.compute((6, 1, 5), lambda i, o, c: te.max(x[i, j, c], axis=j), name="a")
    b = te.compute((1, 40, 5), lambda o, i, c: te.sum(x[k, i, c], axis=k), name="b")
    y = te.compute((6, 40, 5), lambda i, j, c: x[i, j, c] - a[i, 0, c] + b[0, j, c], name="y")
    assert "gpu columns" not in [s.template for s in spaces([y], TARGET)]
