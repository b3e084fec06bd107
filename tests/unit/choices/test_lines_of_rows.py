"""Which last axes of elementwise work are one line of memory, and convolutions of one element a channel, which are such work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.choices.parts.lines import chooses, row_axes
from tec.graph import Graph
from tec.graph.passes.channel_scales import channel_scales

A = te.placeholder((4, 5, 1, 6), "float32", name="a")
B = te.placeholder((5, 1, 6), "float32", name="b")
C = te.placeholder((6,), "float32", name="c")
D = te.placeholder((3, 5, 1, 6), "float32", name="d")


def inner(i: Any, j: Any, k: Any, m: Any) -> Any:
    half = te.compute(A.shape, lambda *x: A[x] + te.if_then_else(x[1] < 2, B[x[1:]], 0.0), name="half")
    return half[i, j, k, m] * 2.0


@pytest.mark.parametrize("shape, body, count, asks", [
    ((4, 5, 1, 6), lambda *i: A[i] * 2.0, 4, False),
    ((4, 5, 1, 6), lambda *i: A[i] + B[i[1:]], 3, False),  # an axis of one is nothing to step over
    ((4, 5, 1, 6), lambda *i: A[i] + C[i[3]], 1, False),
    ((4, 5, 1, 6), lambda *i: A[i] + B[i[1], 0, 0], 1, False),
    ((7, 5, 1, 6), lambda i, *r: te.if_then_else(i < 4, A[(i, *r)], D[(i - 4, *r)]), 3, True),
    ((4, 9, 1, 6), lambda i, j, k, m: te.if_then_else(j < 5, A[i, j, k, m], 0.0), 1, True),
    ((4, 5, 1, 9), lambda *i: te.if_then_else(te.all(i[3] >= 3, i[3] < 9), A[(*i[:3], i[3] - 3)], 0.0), 1, True),
    ((4, 5, 1, 6), inner, 1, True),
    ((6, 1, 5, 4), lambda m, k, j, i: te.if_then_else(j < 4, A[i, j, k, m], 0.0), 1, False),  # turned: no copy of lines
    ((4, 5, 1, 3), lambda *i: A[(*i[:3], 2 * i[3])], 1, False),
])  # fmt: skip
def test_lines(shape: tuple[int, ...], body: Callable[..., Any], count: int, asks: bool) -> None:
    op = te.compute(shape, body, name="y").op
    assert (row_axes(op), chooses(op)) == (count, asks)


@pytest.mark.parametrize("kernel, strides, pads, groups, is_scale", [
    ((1, 1), (1, 1), (0, 0), 6, True),
    ((1, 1), (1, 1), (0, 0), 3, False),
    ((3, 1), (1, 1), (0, 0), 6, False),
    ((1, 1), (2, 1), (0, 0), 6, False),
    ((1, 1), (1, 1), (1, 0), 6, False),
    ((1,), (1,), (0,), 6, True),
])  # fmt: skip
def test_windows_of_one_element_a_channel_are_scales(
    kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...], groups: int, is_scale: bool
) -> None:
    g, rng = Graph(), np.random.default_rng(1)
    rank = len(kernel)
    x = rng.standard_normal((2, 6, *(5, 7)[:rank])).astype("f4")
    w = rng.standard_normal((6, 6 // groups, *kernel)).astype("f4")
    attrs = {"strides": strides, "dilations": (1,) * rank, "before": pads, "after": pads, "groups": groups}
    g.set_outputs(g.add("conv", [g.input("x", "float32", x.shape), g.constant(w)], attrs), ["y"])
    made = [n.op for n in channel_scales(g).nodes]
    assert made == (["multiply"] if is_scale else ["conv"])
    (got,) = tec.compile(g, "llvm", cache=False).run([x])
    np.testing.assert_allclose(got, convolved(x, w, strides, pads, groups), rtol=1e-5, atol=1e-5)


def convolved(x: Any, w: Any, strides: tuple[int, ...], pads: tuple[int, ...], groups: int) -> Any:
    """The convolution in NumPy, by windows of the padded image: [n, groups, channels of a group, *places, *kernel]."""
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in pads)])
    axes = tuple(range(2, x.ndim))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axes)
    windows = windows[(slice(None), slice(None), *(slice(None, None, s) for s in strides))]
    windows = windows.reshape(len(x), groups, -1, *windows.shape[2:])
    kernels = w.reshape(groups, -1, *w.shape[1:])
    places, window = "yz"[: len(axes)], "uv"[: len(axes)]
    made = np.einsum(f"ngc{places}{window},goc{window}->ngo{places}", windows, kernels)
    return made.reshape(len(x), len(w), *made.shape[3:])
