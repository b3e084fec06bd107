"""What whole networks from exporters asked for, each by the smallest model that shows it."""

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper
import pytest
from onnx import TensorProto

import tec
from tests.code_quality import check_code
from tests.thinned import thinned_rows

ort = pytest.importorskip("onnxruntime")


def _model(nodes, inputs, outputs, opset=17):
    graph = oh.make_graph(
        nodes,
        "g",
        [oh.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [oh.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
    )
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", opset)], ir_version=9)


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool"])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 0, 0]])
def test_one_ceil_mode_window_larger_than_its_input(op, pads):
    """EfficientNet's exporter asks for a window of its 320 channels over a picture of 2 by 2, rounded up."""
    node = oh.make_node(op, ["x"], ["y"], kernel_shape=[32, 32], strides=[32, 32], ceil_mode=1, pads=pads)
    model = _model([node], {"x": [1, 3, 2, 3]}, ["y"])
    x = np.random.default_rng(0).standard_normal((1, 3, 2, 3)).astype(np.float32)
    want = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    got = tec.compile(model, target="llvm").run({"x": x})[0]
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_a_window_larger_than_its_input_without_ceil_mode_is_refused():
    node = oh.make_node("AveragePool", ["x"], ["y"], kernel_shape=[32, 32], strides=[32, 32])
    with pytest.raises(tec.TecError, match="window"):
        tec.compile(_model([node], {"x": [1, 3, 2, 3]}, ["y"]), target="llvm")


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx942"])
@pytest.mark.parametrize("read", ["values", "places"])
def test_topk_of_which_one_output_is_read(target, read):
    k = oh.make_node("Constant", [], ["k"], value=oh.make_tensor("k", TensorProto.INT64, [1], [3]))
    nodes = [k, oh.make_node("TopK", ["x", "k"], ["values", "places"])]
    nodes.append(oh.make_node("Cast", [read], ["y"], to=TensorProto.FLOAT))
    model = _model(nodes, {"x": [2, 9]}, ["y"])
    x = np.random.default_rng(0).standard_normal((2, 9)).astype(np.float32)
    want = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    net = tec.compile(model, target=target)
    got = net.run({"x": x}, device=None if target == "llvm" else tec.rocm_emu("gfx942"))[0]
    np.testing.assert_array_equal(got, want)


@thinned_rows(1, "by", ["scales", "sizes"])
def test_resize_of_pictures_in_an_open_batch(by):
    """Decoders resize height and width; the batch stays what it is, known or not."""
    nodes = [oh.make_node("Constant", [], ["none"], value=oh.make_tensor("n", TensorProto.FLOAT, [0], []))]
    if by == "scales":
        nodes.append(
            oh.make_node("Constant", [], ["s"], value=oh.make_tensor("s", TensorProto.FLOAT, [4], [1, 1, 2, 2]))
        )
        nodes.append(oh.make_node("Resize", ["x", "none", "s"], ["y"], mode="linear"))
    else:
        nodes += [
            oh.make_node("Shape", ["x"], ["front"], start=0, end=2),
            oh.make_node("Constant", [], ["back"], value=oh.make_tensor("b", TensorProto.INT64, [2], [9, 5])),
            oh.make_node("Concat", ["front", "back"], ["size"], axis=0),
            oh.make_node("Resize", ["x", "none", "none", "size"], ["y"], mode="linear"),
        ]
    model = _model(nodes, {"x": ["batch", 2, 4, 3]}, ["y"])
    session = ort.InferenceSession(model.SerializeToString())
    net = tec.compile(model, target="llvm")
    for batch in (1, 3):
        x = np.random.default_rng(batch).standard_normal((batch, 2, 4, 3)).astype(np.float32)
        np.testing.assert_allclose(net.run({"x": x})[0], session.run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)


def test_a_sum_of_two_steps_spills_no_registers():
    """SqueezeNet's expansions (1x1, 32 channels to 128 at 27) on gfx1100: both steps were read at once, into more registers than there are."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((64, 32, 1, 1)).astype(np.float32)
    nodes = [oh.make_node("Conv", ["x", "w"], ["c"]), oh.make_node("Relu", ["c"], ["y"])]
    model = _model(nodes, {"x": [1, 32, 9, 9]}, ["y"])
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    net = tec.compile(model, target="rocm -mcpu=gfx1100", cache=False)
    check_code(net.module, cover=False)
    x = rng.standard_normal((1, 32, 9, 9)).astype(np.float32)
    got = net.run({"x": x}, tec.rocm_emu("gfx1100"))[0]
    want = np.maximum(np.einsum("oc,bchw->bohw", w[:, :, 0, 0], x), 0)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
