"""What the host does alone: powers of two in a byte, pictures, suppression of boxes."""

import io

import numpy as np
import pytest
from onnx import TensorProto, helper
from tec_onnx.backend import run_model
from tec_onnx.casts import cast_on_host

import tec


@pytest.mark.parametrize(
    ("mode", "want"), [("up", [127, 128, 128, 129, 0, 254, 255]), ("down", [127, 127, 127, 128, 0, 254, 255]), ("nearest", [127, 127, 128, 129, 0, 254, 255])]
)  # fmt: skip
def test_powers_of_two_in_a_byte(mode, want):
    x = np.array([1, 1.25, 1.5, 3.5, 0, 3e38, np.inf], np.float32)
    assert cast_on_host(x, "float8_e8m0fnu", True, mode).view(np.uint8).tolist() == want
    with pytest.raises(tec.ImportModelError, match="round_mode"):
        cast_on_host(x, "float8_e8m0fnu", True, "sideways")


def decoder(form):
    node = helper.make_node("ImageDecoder", ["x"], ["y"], pixel_format=form)
    info = helper.make_tensor_value_info("x", TensorProto.UINT8, ("n",))
    graph = helper.make_graph([node], "g", [info], [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def test_pictures():
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 255, (5, 7, 3)).astype(np.uint8)
    data = io.BytesIO()
    image.fromarray(pixels).save(data, "png")
    file = np.frombuffer(data.getvalue(), np.uint8)
    assert np.array_equal(run_model(decoder("RGB"), [file])[0], pixels)
    assert np.array_equal(run_model(decoder("BGR"), [file])[0], pixels[:, :, ::-1])
    assert run_model(decoder("Grayscale"), [file])[0].shape == (5, 7, 1)
    for bad in (file[:-30], file[:3], np.zeros(50, np.uint8)):
        with pytest.raises(tec.ImportModelError, match="cannot be read"):
            run_model(decoder("RGB"), [bad])


def test_many_boxes_are_quick():
    import time

    rng = np.random.default_rng(0)
    corner = rng.random((1, 8400, 2)) * 100
    boxes = np.concatenate([corner, corner + rng.random((1, 8400, 2)) * 8], -1).astype(np.float32)
    scores = rng.random((1, 4, 8400)).astype(np.float32)
    node = helper.make_node("NonMaxSuppression", ["b", "s", "m", "i"], ["y"])
    infos = [helper.make_tensor_value_info(k, t, v) for k, t, v in (
        ("b", TensorProto.FLOAT, boxes.shape), ("s", TensorProto.FLOAT, scores.shape), ("m", TensorProto.INT64, (1,)), ("i", TensorProto.FLOAT, (1,)))]  # fmt: skip
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    start = time.process_time()
    (got,) = run_model(model, [boxes, scores, np.array([300]), np.array([0.5], np.float32)])
    assert time.process_time() - start < 20 and got.shape == (1200, 3)
