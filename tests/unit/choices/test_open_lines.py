"""The largest in order and scatters of open sizes on a CPU, held against NumPy: their te definitions do quadratic work, so that the template is asked too."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec.graph import Graph
from tec.ops.dims import Dim
from tests.seeds import first


def _compiled(op, inputs, attrs, outputs):
    g = Graph("g")
    made = g.add(op, [g.input(n, dtype, shape) for n, dtype, shape in inputs], attrs)
    g.set_outputs(made if isinstance(made, (list, tuple)) else [made], outputs)
    net = tec.compile(g, target="llvm", cache=False)
    return net, [c["choice"]["template"] for c in net.report.choices.values()]


@pytest.mark.parametrize(
    ("k", "dtype", "axis", "largest"),
    [
        (None, "float32", 1, True),  # by words, and by digits
        (None, "float16", 0, False),
        (None, "float64", 1, False),  # by heaps
        (3, "float32", 1, True),  # lists
        (50, "int32", 1, False),  # the best words so far
        (17, "int64", 1, True),
    ],
)
def test_lines_of_open_length(k, dtype, axis, largest):
    n = Dim("n")
    shape = (Dim("m"), n) if axis else (n, Dim("m"))
    net, templates = _compiled(
        "topk", [("x", dtype, shape)], {"axis": axis, "k": k or n, "largest": largest}, ["v", "i"]
    )
    assert templates == ["largest of open lines"]
    rng = np.random.default_rng(first(k or 0))
    for rows, length in ((1, 1), (2, 2), (70, 31), (2, 33), (1, 2047), (2, 2048), (1, 5003)):
        if length < (k or 1):
            continue
        x = (rng.standard_normal((rows, length)) * 50).astype(dtype)
        x[0, ::3] = 1  # equal ones
        if x.dtype.kind == "f":
            x[-1, 1::4], x[0, 1::3], x[0, 2::3] = np.nan, -0.0, 0.0
        values, places = net.run({"x": np.ascontiguousarray(x if axis else x.T)})
        keys = np.where(np.isnan(x), np.inf, x) if x.dtype.kind == "f" else x.astype("i8")
        wanted = np.argsort(-keys if largest else keys, axis=1, kind="stable")[:, : k or length]
        np.testing.assert_array_equal(places if axis else places.T, wanted)
        np.testing.assert_array_equal(values if axis else values.T, np.take_along_axis(x, wanted, 1))


def test_long_lines_of_known_length_go_by_digits():
    net, templates = _compiled("topk", [("x", "float32", (2, 30011))], {"axis": 1, "k": 30011, "largest": False}, ["v", "i"])  # fmt: skip
    assert templates == ["largest"] and [c["choice"]["algorithm"] for c in net.report.choices.values()] == ["digits"]
    x = np.random.default_rng(first(4)).standard_normal((2, 30011)).astype("float32")
    np.testing.assert_array_equal(net.run({"x": x})[1], np.argsort(x, axis=1, kind="stable"))


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_scatters_of_open_sizes(reduction):
    a, b, c, d = (Dim(n) for n in "abcd")
    attrs = {"reduction": reduction}
    along, first_of = _compiled("scatter_elements", [("x", "float32", (a, b)), ("i", "int64", (c, d)), ("u", "float32", (c, d))], {"axis": 0, **attrs}, ["y"])  # fmt: skip
    blocks, second_of = _compiled("scatter_nd", [("x", "float32", (a, b)), ("i", "int64", (c, 1)), ("u", "float32", (c, b))], attrs, ["y"])  # fmt: skip
    assert all("scatter of open sizes" in of for of in (first_of, second_of))
    rng, ufunc = (
        np.random.default_rng(first(5)),
        {"none": lambda y, at, u: y.__setitem__(at, u), "add": np.add.at}[reduction],
    )
    for rows, width, count, columns in ((1, 1, 1, 1), (40, 33, 7, 31), (3, 4, 9, 4), (5, 18, 2, 18)):
        x, u, v = (rng.standard_normal(s).astype("float32") for s in ((rows, width), (count, columns), (count, width)))
        i = rng.integers(-rows, rows, (count, columns))
        want = x.copy()
        for e, j in np.ndindex(count, columns):
            ufunc(want, (i[e, j], j), u[e, j])
        np.testing.assert_allclose(along.run({"x": x, "i": i, "u": u})[0], want, rtol=1e-5, atol=1e-5)
        want, at = x.copy(), rng.integers(-rows, rows, (count, 1))
        for e in range(count):
            ufunc(want, at[e, 0], v[e])
        np.testing.assert_allclose(blocks.run({"x": x, "i": at, "u": v})[0], want, rtol=1e-5, atol=1e-5)
