"""Transposes on a CPU whose result has lines of two or three elements."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import spaces
from tec.graph import Graph


@pytest.mark.parametrize(
    ("shape", "axes", "dtype", "target"),
    [
        ((5, 2, 33), (0, 2, 1), "float32", "llvm"),  # a last vector that begins earlier
        ((3, 300, 7), (1, 2, 0), "int8", "llvm -mcpu=haswell"),  # two axes as one, some strips
        ((2, 3, 1, 40), (2, 0, 3, 1), "float64", "llvm"),
        ((4, 3, 5, 4, 20), (0, 2, 3, 4, 1), "float16", "llvm -mcpu=x86-64"),
    ],
)
def test_lines_are_put_together(shape, axes, dtype, target):
    x = (np.arange(np.prod(shape)) % 251 - 100).reshape(shape).astype(dtype)
    g = Graph("g")
    g.set_outputs(g.add("transpose", [g.input("x", dtype, shape)], {"perm": axes}), ["y"])
    net = tec.compile(g, target=target, cache=False)
    assert [c["choice"]["template"] for c in net.report.choices.values()] == ["cpu interleaving"]
    np.testing.assert_array_equal(np.asarray(net.run({"x": x})[0]), x.transpose(axes))


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx942", "rocm -mcpu=gfx1100", "cuda -arch=sm_90a"])
def test_a_scalar_that_is_copied_has_templates_too(target):
    """One without axes: a template that asks for its last one is mistaken."""
    x = te.placeholder((), name="x")
    assert spaces([te.compute((), lambda: x(), name="y")], target)
