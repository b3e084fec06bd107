"""Templates of vectors without a mask where sizes are open: they serve the sizes that fill a vector, and others stand behind a question about smaller ones."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te
from tec.errors import TecError
from tec.graph import Graph, run_graph
from tec.ops.dims import Dim
from tests.seeds import first

N, M, K = Dim("n"), Dim("m"), Dim("k")


def _net(op, shape, attrs, template):
    g = Graph("g")
    g.set_outputs(g.add(op, [g.input("x", "float32", shape)], attrs))
    net = tec.compile(g, target="llvm", cache=False)
    assert [f["choice"]["template"] for f in net.report.choices.values()] == [template]
    return net


def _drawn(*shape):
    return np.random.default_rng(first(sum(shape))).standard_normal(shape).astype("float32")


def test_an_open_matrix_is_turned_by_squares():
    net = _net("transpose", (N, M), {"perm": (1, 0)}, "cpu squares")
    assert "shuffle" in str(net.get_source("llvm"))
    sizes = (1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 50)
    for n in sizes:
        for m in sizes:
            x = _drawn(n, m)
            np.testing.assert_array_equal(net.run({"x": x})[0], x.T)


def test_axes_that_follow_one_another_are_turned_as_one():
    net = _net("transpose", (N, 4, M, K), {"perm": (2, 3, 0, 1)}, "cpu squares")
    for n, m, k in [(1, 1, 1), (3, 2, 5), (9, 1, 33), (8, 40, 2), (17, 5, 7)]:
        x = _drawn(n, 4, m, k)
        np.testing.assert_array_equal(net.run({"x": x})[0], x.transpose(2, 3, 0, 1))


@pytest.mark.parametrize(("window", "stride"), [(5, 2), (3, 1), (5, 3), (7, 4)])
def test_windows_over_an_open_image_have_no_masks(window, stride):
    pad = window // 2
    sizes = tuple((n - 1) // stride + 1 for n in (M, K))
    attrs = {"kernel": (window, window), "strides": (stride, stride), "before": (pad, pad), "after": (pad, pad)}
    attrs |= {"dilations": (1, 1), "out_space": sizes}
    net = _net("max_pool", (N, 3, M, K), attrs, "cpu padded planes")
    assert not net.report.refused
    for n, m, k in [(1, 1, 1), (2, 3, 9), (1, 7, 15), (1, 16, 16), (2, 5, 17), (1, 33, 31), (1, 4, 70)]:
        x = _drawn(n, 3, m, k)
        whole = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)], constant_values=-np.inf)
        want = np.lib.stride_tricks.sliding_window_view(whole, (window, window), (2, 3))[:, :, ::stride, ::stride]
        np.testing.assert_array_equal(net.run({"x": x})[0], want.max((4, 5)))


def test_a_schedule_for_long_loops_says_so_of_short_ones():
    n = te.var("n")
    a = te.placeholder((n,), "float32", name="a")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="b")
    s = tec.create_schedule(b.op)
    _, inner = s[b].split(b.op.axis[0], factor=8, shift_inwards=True, long=True)
    s[b].vectorize(inner)
    f = tec.build(s, [a, b], "llvm")
    assert "store(" not in f.get_source("ir")  # under a mask
    for size in (8, 9, 15, 16, 31):
        x, y = np.arange(size, dtype="float32"), np.zeros(size, "float32")
        f(x, y)
        np.testing.assert_array_equal(y, 2 * x)
    with pytest.raises(TecError, match="sizes with"):
        f(np.zeros(7, "float32"), np.zeros(7, "float32"))


def test_axes_of_one_element_leave_no_quotients():
    g = Graph("g")
    x, y = (g.input(name, "float32", (1, N, M)) for name in "xy")
    g.set_outputs(g.add("add", [x, y]))
    net = tec.compile(g, target="llvm", cache=False)
    assert "%" not in net.get_source("ir")
    a, b = _drawn(1, 7, 13), _drawn(1, 7, 13)
    np.testing.assert_array_equal(net.run({"x": a, "y": b})[0], a + b)


def test_groups_of_an_open_image_go_by_rows_of_any_length():
    def graph(shape):
        g = Graph("g")
        w = g.constant(_drawn(6, 2, 3, 3))
        attrs = {"strides": (1, 1), "dilations": (1, 1), "before": (1, 1), "after": (1, 1), "groups": 3}
        g.set_outputs(g.add("conv", [g.input("x", "float32", shape), w], attrs | {"out_space": shape[2:]}))
        return g

    net = tec.compile(graph((N, 6, M, K)), target="llvm", cache=False)
    assert [f["choice"]["template"] for f in net.report.choices.values()] == ["cpu plain convolution"]
    for n, m, k in [(1, 1, 1), (2, 3, 3), (1, 2, 4), (1, 5, 9), (2, 4, 17), (1, 3, 40)]:
        x = _drawn(n, 6, m, k)
        np.testing.assert_allclose(net.run({"x": x})[0], run_graph(graph(x.shape), {"x": x})[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("options", [{}, {"exclusive": True, "reverse": True}])
def test_running_sums_side_by_side_stay_in_registers(dtype, options):
    g = Graph("g")
    attrs = {"axis": 1, "exclusive": False, "reverse": False} | options
    g.set_outputs(g.add("cumsum", [g.input("x", dtype, (N, M, K))], attrs))
    net = tec.compile(g, target="llvm", cache=False)
    assert "acc[ramp(" in net.get_source("ir")
    for n, m, k in [(1, 1, 1), (2, 5, 15), (1, 3, 16), (2, 4, 17), (1, 6, 100)]:
        x = np.rint(_drawn(n, m, k)).astype(dtype)
        want = np.cumsum(x[:, ::-1], 1)[:, ::-1] - x if options else np.cumsum(x, 1)
        np.testing.assert_array_equal(net.run({"x": x})[0], want)


def test_repetitions_of_an_open_image_copy_lines():
    g = Graph("g")
    g.set_outputs(g.add("tile", [g.input("x", "float32", (N, 2, M, K))], {"repeats": (1, 3, 2, 2)}))
    net = tec.compile(g, target="llvm", cache=False)
    assert "% broadcast(" not in net.get_source("ir")  # lanes that are picked one by one
    for n, m, k in [(1, 1, 1), (2, 3, 5), (1, 2, 16), (2, 5, 33)]:
        x = _drawn(n, 2, m, k)
        np.testing.assert_array_equal(net.run({"x": x})[0], np.tile(x, (1, 3, 2, 2)))


def test_windows_that_share_no_rows_of_an_open_image_are_reduced_over_rows_first():
    attrs = {"kernel": (3, 3), "strides": (3, 3), "before": (1, 1), "after": (1, 1), "dilations": (1, 1)}
    net = _net(
        "max_pool", (1, 3, M, K), attrs | {"out_space": ((M - 1) // 3 + 1, (K - 1) // 3 + 1)}, "cpu padded planes"
    )
    assert not net.report.refused
    for m, k in [(1, 1), (7, 20), (4, 47), (9, 100)]:
        x = _drawn(1, 3, m, k)
        whole = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-np.inf)
        want = np.lib.stride_tricks.sliding_window_view(whole, (3, 3), (2, 3))[:, :, ::3, ::3].max((4, 5))
        np.testing.assert_array_equal(net.run({"x": x})[0], want)


def test_rows_of_twice_an_open_size_lie_together():
    m = te.var("m")
    a = te.placeholder((m * 2, m * 2), "float32", name="a")
    b = te.compute(a.shape, lambda i, j: a[i, j] + 1.0, name="b")
    s = tec.create_schedule(b.op)
    s[b].vectorize(s[b].split(s[b].fuse(*b.op.axis, wide=True), factor=16)[1])
    assert "%" not in str(tec.lower(s, [a, b]))
