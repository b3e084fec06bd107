"""Values of no dimensions and of no elements, at every place that a network has for one."""

import numpy as np
import onnx.helper as oh
import pytest
from onnx import TensorProto as T
from onnx import numpy_helper

import tec

SCALARS = {
    "s": np.float32(3),
    "h": np.float16(0.5),
    "i": np.int64(-7),
    "b": np.bool_(True),
    "e": np.zeros((0, 2), np.float32),
}
DEVICES = {"llvm": lambda: None, "rocm -mcpu=gfx942": lambda: tec.rocm_emu("gfx942")}


def run(nodes, inputs, outputs, feeds, target, tmp_path):
    """The outputs, of the network as compiled and as saved and loaded."""
    held = [numpy_helper.from_array(np.asarray(v), k) for k, v in SCALARS.items()]
    graph = oh.make_graph(
        nodes,
        "g",
        [oh.make_tensor_value_info(n, T.FLOAT, s) for n, s in inputs.items()],
        [oh.make_tensor_value_info(n, t, None) for n, t in outputs.items()],
        held,
    )
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=9)
    net = tec.compile(model, target=target, cache=False)
    net.save(tmp_path / "net.tec")
    for n in (net, tec.load(tmp_path / "net.tec")):
        yield n.run(feeds, device=DEVICES[target]())


@pytest.mark.parametrize("target", DEVICES)
def test_constants_as_outputs(target, tmp_path):
    nodes = [oh.make_node("Neg", ["x"], ["y"]), oh.make_node("Neg", ["s"], ["z"])]
    names = {"y": T.FLOAT, "z": T.FLOAT, "s": T.FLOAT, "h": T.FLOAT16, "i": T.INT64, "b": T.BOOL, "e": T.FLOAT}
    x = np.ones(4, np.float32)
    for outs in run(nodes, {"x": [4]}, names, {"x": x}, target, tmp_path):
        for got, want in zip(outs, [-x, np.float32(-3), *SCALARS.values()]):
            assert got.shape == np.shape(want) and got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("target", DEVICES)
def test_inputs_sums_and_their_like(target, tmp_path):
    nodes = [
        oh.make_node("Neg", ["x"], ["y"]),
        oh.make_node("Add", ["y", "s"], ["z"]),
        oh.make_node("Identity", ["x"], ["same"]),
        oh.make_node("ReduceSum", ["e0"], ["sum"], keepdims=0),
        oh.make_node("Neg", ["e0"], ["none"]),
    ]
    names = dict.fromkeys(["y", "z", "same", "sum", "none"], T.FLOAT)
    feeds = {"x": np.float32(2), "e0": np.zeros((0, 4), np.float32)}
    for outs in run(nodes, {"x": [], "e0": [0, 4]}, names, feeds, target, tmp_path):
        for got, want in zip(outs, [-2.0, 1.0, 2.0, 0.0, np.zeros((0, 4))]):
            assert got.shape == np.shape(want)
            np.testing.assert_array_equal(got, want)


def test_a_constant_scalar_before_a_transpose_keeps_its_shape():
    """What moves in front of a transpose is turned back; a scalar has nothing to turn."""
    g = tec.graph.Graph()
    x = g.input("x", "float32", (2, 3))
    (t,) = g.add("transpose", [x], {"perm": (1, 0)})
    (y,) = g.add("add", [t, g.constant(np.float32(1.5))])
    (z,) = g.add("transpose", [y], {"perm": (1, 0)})
    g.set_outputs([z])
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(tec.compile(g, target="llvm").run({"x": a})[0], a + 1.5)


@pytest.mark.parametrize("to", [T.BFLOAT16, T.FLOAT16, T.FLOAT8E4M3FN, T.INT8, T.BOOL])
@pytest.mark.parametrize(
    "value", [np.float32(1.5), np.float64(1.5), np.int64(3), np.float16(1.5)], ids=lambda v: v.dtype
)
def test_constants_of_no_dimensions_are_cast_to_values_of_none(value, to):
    """As the bodies of functions have them: a cast of a constant stays a scalar, and what it is multiplied with keeps its shape."""
    nodes = [
        oh.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.asarray(value))),
        oh.make_node("Cast", ["c"], ["d"], to=to),
        oh.make_node("Cast", ["d"], ["f"], to=T.FLOAT),
        oh.make_node("Mul", ["x", "f"], ["y"]),
    ]
    info = [oh.make_tensor_value_info("x", T.FLOAT, [])], [oh.make_tensor_value_info("y", T.FLOAT, [])]
    model = oh.make_model(oh.make_graph(nodes, "g", *info), opset_imports=[oh.make_opsetid("", 21)], ir_version=10)
    (y,) = tec.compile(model, cache=False).run({"x": np.float32(2)})
    want = {T.INT8: float(int(value)), T.BOOL: 1.0}.get(to, float(value))
    assert y.shape == () and y == 2 * want
