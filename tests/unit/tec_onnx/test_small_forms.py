"""Small things that whole models and node cases leave out: each was an error that could be planted without a test's notice."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser
from tec_onnx.describe import operators
from tec_onnx.ops_control import _never_stops

import tec

from .test_old_opsets import results

rng = np.random.default_rng(11)
FLOAT = TensorProto.FLOAT


@pytest.mark.parametrize(
    ("condition", "stays"),
    [("more = Identity(c)", True), ("one = Constant<value = bool {1}>() more = Identity(one)", True), ("more = Identity(yes)", True),
     ("more = Not(c)", False), ("far = Less(i, i) more = Identity(far)", False)],
)  # fmt: skip
def test_a_loop_that_never_stops_by_itself(condition: str, stays: bool) -> None:
    """Its condition is handed on, or a constant: of a node, or of the body."""
    body = parser.parse_graph(f"body (int64 i, bool c) => (bool more) {{ {condition} }}")
    if "yes" in condition:
        body.initializer.append(onnx.numpy_helper.from_array(np.array(True), "yes"))
    assert _never_stops(body) is stays


@pytest.mark.parametrize("dims", [0, 2])
def test_rotary_embedding_by_tables_of_each_step(dims: int) -> None:
    """Without position_ids cos and sin are (batch, steps, half): of three steps and three heads alike."""
    x = rng.standard_normal((2, 3, 3, 4)).astype(np.float32)  # batch, heads, steps, size
    half = (dims or 4) // 2
    cos, sin = (rng.standard_normal((2, 3, half)).astype(np.float32) for _ in range(2))
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    c, s = cos[:, None], sin[:, None]
    want = np.concatenate([a * c - b * s, b * c + a * s, rest], -1)
    node = helper.make_node("RotaryEmbedding", ["x0", "x1", "x2"], ["y"], rotary_embedding_dim=dims)
    for got in results(node, 23, FLOAT, x, cos, sin):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_norms_of_whole_images(p: int) -> None:
    """The pixels' dimensions stay, of size one."""
    x = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    want = (np.abs(x) ** p).sum((2, 3), keepdims=True) ** (1 / p)
    for got in results(helper.make_node("GlobalLpPool", ["x0"], ["y"], p=p), 17, FLOAT, x):
        assert got.shape == (2, 3, 1, 1)
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_resize_of_opset_10_has_scales_alone() -> None:
    x = rng.standard_normal((1, 1, 2, 3)).astype(np.float32)
    scales = np.array([1, 1, 2, 3], np.float32)
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x0", "scales"], ["y"], mode="nearest")], "g",
        [helper.make_tensor_value_info("x0", FLOAT, x.shape)], [helper.make_tensor_value_info("y", FLOAT, None)],
        [onnx.numpy_helper.from_array(scales, "scales")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)], ir_version=5)
    (got,) = tec.compile(model, target="llvm", cache=False).run({"x0": x})
    np.testing.assert_array_equal(got, x.repeat(2, 2).repeat(3, 3))


def test_how_operators_are_taken() -> None:
    found = operators()
    assert found["Conv"] == found["com.microsoft.RotaryEmbedding"] == "converted"
    assert found["Celu"] in ("converted", "by its definition in ONNX") and "no" in found.values()
    assert {k.split(".")[0] for k, how in found.items() if "." in k and how != "converted"} <= {"ai"}, (
        "other domains' only where they are converted"
    )
