"""Forms that the onnx package has no cases of: extremes of booleans, broadcasts with an axis (opset 6 and older), Hardmax over flattened rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import tec_onnx
from onnx import TensorProto, helper

import tec
from tec.graph import run_graph
from tests import seeds


def results(node: Any, opset: int, kind: int, *arrays: np.ndarray) -> list[np.ndarray]:
    """What one node gives by the operators' meaning, and compiled."""
    names = [f"x{k}" for k in range(len(arrays))]
    types = [helper.np_dtype_to_tensor_dtype(a.dtype) for a in arrays]
    inputs = [helper.make_tensor_value_info(n, t, a.shape) for n, t, a in zip(names, types, arrays)]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", kind, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    feeds = dict(zip(names, arrays))
    read, _ = tec_onnx.from_onnx(model)
    return [run_graph(read, feeds)[0], tec.compile(model, target="llvm", cache=False).run(feeds)[0]]


@pytest.mark.parametrize("kind", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize(("axis", "keepdims"), [(1, 1), (0, 0), (-1, 0), (None, 1)])
def test_extremes_of_booleans(kind: str, axis: int | None, keepdims: int) -> None:
    x = np.array([[[1, 1, 1], [0, 0, 0]], [[1, 0, 1], [0, 1, 0]], [[1, 1, 1], [1, 1, 1]]], bool)
    axes = [] if axis is None else [np.array([axis])]
    node = helper.make_node(kind, ["x0", "axes"][: 1 + len(axes)], ["y"], keepdims=keepdims)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x0", TensorProto.BOOL, x.shape)], [helper.make_tensor_value_info("y", TensorProto.BOOL, None)],
        [onnx.numpy_helper.from_array(a.astype(np.int64), "axes") for a in axes],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    want = (np.max if kind == "ReduceMax" else np.min)(x, axis=axis, keepdims=bool(keepdims))
    read, _ = tec_onnx.from_onnx(model)
    for got in (run_graph(read, {"x0": x})[0], tec.compile(model, target="llvm", cache=False).run({"x0": x})[0]):
        assert got.dtype == bool and got.shape == want.shape
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("shape", "axis"), [((3, 4), 1), ((2, 3), 0), ((3,), 1), ((4, 5), None), ((5,), None), ((2,), 0), ((3, 4), -3), ((), None)])  # fmt: skip
@pytest.mark.parametrize("op", ["Sub", "Pow"])
def test_broadcasts_with_an_axis(op: str, shape: tuple[int, ...], axis: int | None) -> None:
    """`b` lies along the dimensions of `a` from `axis` on, along the last ones where no axis is given."""
    rng = np.random.default_rng(seeds.first(5))
    a, b = (
        rng.uniform(0.5, 2, (2, 3, 4, 5)).astype(np.float32),
        np.asarray(rng.uniform(0.5, 2, shape).astype(np.float32)),
    )
    given = {} if axis is None else {"axis": axis}
    node = helper.make_node(op, ["x0", "x1"], ["y"], broadcast=1, **given)
    first = (a.ndim - b.ndim if axis is None else axis) % a.ndim if b.ndim else 0
    lined_up = b.reshape((1,) * first + b.shape + (1,) * (a.ndim - first - b.ndim)) if b.ndim else b
    want = a - lined_up if op == "Sub" else a**lined_up
    for got in results(node, 6, TensorProto.FLOAT, a, b):
        np.testing.assert_allclose(got, want, rtol=2e-6)


@pytest.mark.parametrize(
    ("opset", "axis"), [(11, None), (11, 0), (11, 2), (11, -1), (1, 1), (13, None), (13, 1), (13, 0)]
)
def test_hardmax(opset: int, axis: int | None) -> None:
    """One for the first of the largest: of all that follows `axis` before opset 13, along it since."""
    rng = np.random.default_rng(seeds.first(6))
    x = rng.integers(0, 4, (3, 4, 5)).astype(np.float32)  # many are equal
    node = helper.make_node("Hardmax", ["x0"], ["y"], **({} if axis is None else {"axis": axis}))
    if opset < 13:
        k = (1 if axis is None else axis) % x.ndim
        rows = x.reshape(int(np.prod(x.shape[:k])), -1)
        want = np.eye(rows.shape[1], dtype=np.float32)[rows.argmax(1)].reshape(x.shape)
    else:
        k = -1 if axis is None else axis
        want = np.moveaxis(np.eye(x.shape[k], dtype=np.float32)[x.argmax(k)], -1, k)
    for got in results(node, opset, TensorProto.FLOAT, x):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("op", "opset"), [("Resize", 10), ("Upsample", 9)])
@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_sizes_of_before_count_from_the_corner(op: str, opset: int, mode: str) -> None:
    """Place i of the result is place i / scale of the input, kept within it; from opset 11 on Resize counts from the middles of places."""
    x = np.array([1, 2, 4, 8], np.float32).reshape(1, 1, 1, 4)
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "scales"], ["y"], mode=mode)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.array([1, 1, 1, 2], np.float32), "scales")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=5)
    read, _ = tec_onnx.from_onnx(model)
    want = [1, 1.5, 2, 3, 4, 6, 8, 8] if mode == "linear" else [1, 1, 2, 2, 4, 4, 8, 8]
    np.testing.assert_array_equal(run_graph(read, {"x": x})[0].reshape(-1), want)
