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


@pytest.mark.parametrize(("dtype", "bits"), [("int4", 4), ("uint4", 4), ("int2", 2), ("uint2", 2)])
@pytest.mark.parametrize("given", ["int64", "uint8", "float32", "float16", "bool"])
def test_integers_of_few_bits_keep_the_low_ones(dtype, bits, given):
    """What is further off wraps; a fraction is cut off first."""
    x = np.array([0, 1, 2, 3, 7, 8, 13, 16, 21, *([] if given in ("uint8", "bool") else [-1, -2, -7, -8, -9])], given)
    if x.dtype.kind == "f":
        x = x + x.dtype.type(0.75) * np.sign(x)
    whole = np.trunc(x.astype(np.float64)).astype(np.int64) & (1 << bits) - 1
    want = whole - (whole >> bits - 1 << bits) if dtype.startswith("int") else whole
    assert cast_on_host(x, dtype).astype(np.int64).tolist() == want.tolist()


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


WORDS = np.array([["a", "bc", ""], ["bc", "é", "zz"]], object)
I64 = TensorProto.INT64


@pytest.mark.parametrize(
    ("op", "more", "attrs", "want"),
    [
        ("Flatten", [], {"axis": 0}, WORDS.reshape(1, 6)),
        ("Transpose", [], {"perm": [1, 0]}, WORDS.T),
        ("Unsqueeze", [[0]], {}, WORDS[None]),
        ("Tile", [[1, 2]], {}, np.tile(WORDS, (1, 2))),
        ("Expand", [[2, 2, 3]], {}, np.stack([WORDS, WORDS])),
        ("Slice", [[2], [-4], [1], [-1]], {}, WORDS[:, ::-1]),
        ("Gather", [[1, -2, 1]], {"axis": 0}, WORDS[[1, 0, 1]]),
        ("GatherElements", [[[2, 0, 0], [1, 1, 2]]], {"axis": 1}, np.array([["", "a", "a"], ["é", "é", "zz"]])),
        ("GatherND", [[[1, 1], [0, 1]]], {}, np.array(["é", "bc"])),
        ("Pad", [[0, 1, 0, 0]], {}, np.pad(WORDS, ((0, 0), (1, 0)), constant_values="")),
        ("Equal", [np.array(["a", "bc", "zz"], object)], {}, np.array([[1, 1, 0], [0, 0, 1]], bool)),
    ],
)
def test_strings_are_moved_as_numbers_are(op, more, attrs, want):
    extra = [np.asarray(a) for a in more]
    names = [f"i{k}" for k in range(len(extra))]
    held = [helper.make_tensor(n, TensorProto.STRING if a.dtype == object else I64, a.shape, [s.encode() if isinstance(s, str) else s for s in a.flat]) for n, a in zip(names, extra)]  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *names], ["y"], **attrs)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.STRING, ("n", 3))],
        [helper.make_empty_tensor_value_info("y")],
        held,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    (got,) = run_model(model, [WORDS])
    assert got.shape == want.shape and got.tolist() == want.tolist()
    with pytest.raises(tec.ImportModelError, match=f"{op} of strings depends on the value of input 'x'"):
        tec.compile(model)
