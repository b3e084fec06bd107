"""Transposed convolutions with any strides and dilations, by phases: against sums written out in NumPy, and against ONNX Runtime."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import tec_onnx
from ml_dtypes import bfloat16
from onnx import TensorProto, helper, numpy_helper

import tec
from tec.graph import Graph, run_graph
from tec.graph.builders import Builder, conv
from tests.thinned import thinned_rows

from ... import seeds
from .test_gradient import differences

Case = dict[str, Any]


def drawn(rng: np.random.Generator, nd: int | None = None) -> Case:
    """Sizes of a transposed convolution; the output is cut anywhere, or reaches beyond all windows."""
    nd = nd or int(rng.integers(1, 4))
    groups = int(rng.integers(1, 4))
    space, kernel = rng.integers(1, 6, nd), rng.integers(1, 5, nd)
    strides, dilations = rng.integers(1, 7, nd), rng.integers(1, 7, nd)
    full = (space - 1) * strides + (kernel - 1) * dilations + 1
    before = [int(rng.integers(0, n)) for n in full]
    out = [int(rng.integers(1, n - b + 5)) for n, b in zip(full, before)]
    return {
        "x": rng.integers(-4, 5, (2, 2 * groups, *space)).astype("float32"),
        "w": rng.integers(-4, 5, (2 * groups, 3, *kernel)).astype("float32"),
        "strides": strides.tolist(), "dilations": dilations.tolist(), "before": before, "out": out, "groups": groups,
    }  # fmt: skip


def reference(x: Any, w: Any, strides: Any, dilations: Any, before: Any, out: Any, groups: int) -> np.ndarray:
    """Every input by every tap, added where it belongs."""
    y = np.zeros((x.shape[0], groups, w.shape[1], *out))
    parts = x.astype("float64").reshape(len(x), groups, -1, *x.shape[2:])
    taps = w.astype("float64").reshape(groups, -1, *w.shape[1:])
    for i in np.ndindex(x.shape[2:]):
        for k in np.ndindex(w.shape[2:]):
            at = [a * s + b * d - p for a, b, s, d, p in zip(i, k, strides, dilations, before)]
            if all(0 <= v < n for v, n in zip(at, out)):
                y[(..., *at)] += np.einsum("ngc,gco->ngo", parts[(..., *i)], taps[(..., *k)])
    return y.reshape(len(x), -1, *out)


def built(case: Case, dtype: str = "float32", constant: bool = False) -> Graph:
    g = Graph("main")
    x = g.input("x", dtype, case["x"].shape)
    w = g.constant(case["w"].astype(bfloat16 if dtype == "bfloat16" else dtype), "w", dtype) if constant else None
    w = w or g.input("w", dtype, case["w"].shape)
    more = [case[k] for k in ("strides", "dilations", "before", "out", "groups")]
    g.set_outputs([conv.conv_transpose(Builder(g, "t"), x, w, *more)])
    g.check()
    return g


def wanted(case: Case) -> np.ndarray:
    return reference(*(case[k] for k in ("x", "w", "strides", "dilations", "before", "out", "groups")))


@pytest.mark.parametrize("seed", range(seeds.first(), seeds.first() + 60))
def test_drawn_ones_are_the_sums_written_out(seed: int) -> None:
    case = drawn(np.random.default_rng(seed))
    g = built(case)
    assert [n.op for n in g.nodes].count("conv") == 1
    assert "conv_transpose" not in [n.op for n in g.nodes]
    np.testing.assert_array_equal(run_graph(g, {k: case[k] for k in "xw"})[0], wanted(case))


def test_no_product_is_with_a_stuffed_zero() -> None:
    """As many multiplications as the sums written out have, where kernels are multiples of the phases: the cost does not grow with stride or dilation."""
    for s, d in itertools.product((1, 2, 4), (1, 2, 4, 8)):
        case = drawn(np.random.default_rng(0), 2)
        case |= {"x": np.zeros((1, 2, 16, 16), "f"), "w": np.zeros((2, 3, 4, 4), "f"), "groups": 1}
        case |= {"strides": [s, s], "dilations": [d, d], "before": [0, 0], "out": [15 * s + 3 * d + 1] * 2}
        (node,) = [n for n in built(case).nodes if n.op == "conv"]
        y, w = node.outputs[0], node.inputs[1]
        taps, phases = math.prod(w.shape[2:]), w.shape[0] // 3
        assert taps * phases == 16
        reach = -(-3 * d // s)  # places behind the last input that its windows reach
        assert y.shape[2] <= 16 + reach


# Both of a common divisor and without one, more phases than taps, and a crop past the first windows.
COMPILED = [((3, 3), (2, 2), (2, 2), (1, 0)), ((3, 2), (5, 2), (2, 3), (1, 2)), ((4, 3), (6, 3), (4, 6), (3, 14)),
            ((3, 3), (1, 1), (2, 3), (4, 1)), ((2, 3, 2), (2, 1, 3), (2, 2, 2), (1, 0, 2))]  # fmt: skip


def small(kernel: Any, strides: Any, dilations: Any, before: Any, n: int = 5) -> Case:
    rng = np.random.default_rng(0)
    full = [(n - 1) * s + (k - 1) * d + 1 for s, k, d in zip(strides, kernel, dilations)]
    return {
        "x": rng.integers(-2, 3, (1, 4, *[n] * len(kernel))).astype("float32"),
        "w": rng.integers(-2, 3, (4, 3, *kernel)).astype("float32"), "groups": 2,
        "strides": strides, "dilations": dilations, "before": before, "out": [f - b - 1 for f, b in zip(full, before)],
    }  # fmt: skip


@pytest.mark.parametrize(
    "row,target", [(r, "llvm") for r in COMPILED] + [(r, "rocm -mcpu=gfx942") for r in COMPILED[1:3]], ids=str
)
def test_compiled(row: Any, target: str) -> None:
    case = small(*row)
    device = tec.rocm_emu("gfx942") if "rocm" in target else None
    got = tec.compile(built(case, constant=True), target=target, cache=False).run({"x": case["x"]}, device)[0]
    np.testing.assert_array_equal(got, wanted(case))


@pytest.mark.parametrize("row", COMPILED[1:4], ids=str)
def test_open_sizes(row: Any) -> None:
    """One network serves every batch and image."""
    kernel, strides, dilations, before = row
    case = small(*row)
    m = model(
        case["x"], case["w"], np.zeros(6, "f"), strides=strides, dilations=dilations, pads=[*before, 1, 2], group=2
    )
    for k, name in ((0, "n"), (2, "h"), (3, "w")):
        m.graph.input[0].type.tensor_type.shape.dim[k].dim_param = name
    net = tec.compile(m, target="llvm", cache=False)
    for n, *space in ((2, 5, 7), (1, 9, 4)):
        x = np.random.default_rng(n).integers(-3, 4, (n, 4, *space)).astype("float32")
        full = [(q - 1) * s + (k - 1) * d + 1 for q, s, k, d in zip(space, strides, kernel, dilations)]
        out = [f - b - a for f, b, a in zip(full, before, (1, 2))]
        want = reference(x, case["w"], strides, dilations, before, out, 2)
        np.testing.assert_array_equal(net.run({"x": x})[0], want)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_of_every_float_type(dtype: str) -> None:
    case = small((3, 2), (3, 2), (2, 4), (1, 0))
    net = tec.compile(built(case, dtype, constant=True), target="llvm", cache=False)
    got = np.asarray(net.run({"x": case["x"].astype(bfloat16 if dtype == "bfloat16" else dtype)})[0])
    assert got.dtype.name == dtype
    np.testing.assert_array_equal(got.astype("float64"), wanted(case))


@thinned_rows(1, "row", [((3,), (2,), (2,), (1,)), ((3,), (3,), (2,), (2,)), ((2, 3), (2, 1), (3, 2), (1, 1))])
def test_gradients_are_the_finite_differences(row: Any) -> None:
    case = small(*row, n=2)
    g = built(case, "float64")
    rng = np.random.default_rng(5)
    feeds = {k: rng.standard_normal(case[k].shape) for k in "xw"}
    weights = rng.standard_normal(g.outputs[0].shape)
    got = run_graph(tec.grad(g, ["x", "w"], head="weights"), {**feeds, "weights": weights})
    for k, found in zip("xw", got[1:]):
        np.testing.assert_allclose(found, differences(g, feeds, k, weights, 1e-6), rtol=1e-5, atol=1e-5)


def model(x: np.ndarray, w: np.ndarray, bias: np.ndarray, **attrs: Any) -> Any:
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], **attrs)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)], [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(bias, "b")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("seed", range(seeds.first(100), seeds.first(100) + 20))
def test_drawn_nodes_are_as_onnx_runtime_has_them(seed: int) -> None:
    ort = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(seed)
    case = drawn(rng, int(rng.integers(1, 3)))
    strides, dilations = case["strides"], case["dilations"]
    size = [
        (n - 1) * s + (k - 1) * d + 1
        for n, k, s, d in zip(case["x"].shape[2:], case["w"].shape[2:], strides, dilations)
    ]
    pads = [[int(rng.integers(0, (n + 1) // 2)) for n in size] for _ in range(2)]
    extra = [int(rng.integers(0, s)) for s in strides]  # ONNX Runtime takes no more
    bias = rng.integers(-3, 4, 3 * case["groups"]).astype("float32")
    m = model(
        case["x"], case["w"], bias, strides=strides, dilations=dilations, pads=pads[0] + pads[1], group=case["groups"],
        output_padding=extra,
    )  # fmt: skip
    want = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": case["x"]})
    got = run_graph(tec_onnx.from_onnx(m)[0], {"x": case["x"]})
    np.testing.assert_array_equal(got[0], want[0])


def test_refusals_name_the_types() -> None:
    case = small((3, 3), (2, 2), (2, 2), (1, 0))
    for change, text in (
        ({"groups": 3}, "in 3 groups"),
        ({"dilations": (2, 0)}, "dilations"),
        ({"strides": (2,)}, "strides"),
        ({"out": [4, -1]}, "leaves"),
    ):
        with pytest.raises(tec.ImportModelError, match=text):
            built({**case, **change})
