"""Models that cannot be taken in, and inputs that do not fit: each an ImportModelError that says what is wrong."""

import numpy as np
import onnx
import pytest
import tec_onnx
from onnx import TensorProto, helper, numpy_helper
from tec_onnx.session import Session

from tec.errors import ImportModelError, TecError

F = TensorProto.FLOAT


def model(nodes, inputs=None, outputs=("y",), weights=None, opset=17, functions=(), domains=()):
    """A model with float inputs {name: shape} and outputs of unknown shape."""
    given = {"x": (2, 3)} if inputs is None else inputs
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(k, F, v) for k, v in given.items()],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in (weights or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), *[helper.make_opsetid(d, 1) for d in domains]]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions))


def one(op, *inputs, weights=None, shapes=None, opset=17, **attrs):
    """A model of one node."""
    return model(
        [helper.make_node(op, list(inputs), ["y"], name="the_node", **attrs)], shapes, weights=weights, opset=opset
    )


def i64(*values):
    return np.array(values, np.int64)


def relu():
    return one("Relu", "x")


def with_external(location, **more):
    m = one("Add", "x", "w", weights={"w": np.ones((2, 3), "f")})
    t = m.graph.initializer[0]
    t.ClearField("raw_data")
    t.data_location = TensorProto.EXTERNAL
    for k, v in {"location": location, **more}.items():
        t.external_data.add(key=k, value=str(v))
    return m


MODELS = {
    # the file
    "bytes that are no model": (lambda: b"\x00\x01garbage" * 9, "no ONNX model"),
    "a truncated model": (lambda: relu().SerializeToString()[:-9], "no ONNX model"),
    "an empty file": (lambda: b"", "no graph"),
    "no path and no model": (lambda: 3, "not a model: int"),
    "a missing file": (lambda: "no/such/model.onnx", "cannot read no/such/model.onnx"),
    "no outputs": (lambda: model([], outputs=()), "graph without outputs"),
    "no operator set": (lambda: helper.make_model(relu().graph, opset_imports=[]), "names no operator set"),
    "an operator set from the future": (lambda: one("Relu", "x", opset=999), "operator set 999 is not known"),
    "weights in a file, model given as an object": (lambda: with_external("w.bin"), "in another file"),
    # the graph
    "an unknown operator": (lambda: one("Frobnicate", "x"), "not supported: Frobnicate (1x: the_node)"),
    "an unknown domain": (lambda: model([helper.make_node("Foo", ["x"], ["y"], domain="org.x")]), "not supported: org.x.Foo (1x: y)"),
    "a value that nothing makes": (lambda: one("Relu", "q"), "nothing makes value 'q'"),
    "an output that nothing makes": (lambda: model([helper.make_node("Relu", ["x"], ["z"])]), "nothing makes value 'y'"),
    "a cycle": (lambda: model([helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
                               helper.make_node("Relu", ["b"], ["y"])]), "wait for each other's results: 'a' (Add) -> 'b' (Relu) -> 'a' (Add)"),
    "a missing required input": (lambda: model([helper.make_node("Add", ["x"], ["y"], name="the_node")]), "input 1 is missing"),
    "a function that calls itself": (
        lambda: model([helper.make_node("F", ["x"], ["y"], domain="my")], domains=("my",), functions=[helper.make_function(
            "my", "F", ["a"], ["b"], [helper.make_node("F", ["a"], ["b"], domain="my")], [helper.make_opsetid("my", 1)])]), "calls itself"),
    "unknown number of dimensions": (lambda: one("Relu", "x", shapes={"x": None}), "does not say how many dimensions input 'x' has"),
    # shapes and types
    "shapes that do not broadcast": (lambda: one("Add", "x", "w", weights={"w": np.ones((2, 4), "f")}), "do not broadcast"),
    "types that do not mix": (lambda: one("Add", "x", "w", weights={"w": np.ones((2, 3), "i8")}), "different types"),
    "matmul of unlike sizes": (lambda: one("MatMul", "x", "w", weights={"w": np.ones((4, 2), "f")}), "3 columns meet 4 rows"),
    "gemm of vectors": (lambda: one("Gemm", "x", "w", weights={"w": np.ones(3, "f")}), "at least two dimensions"),
    "a reshape of other size": (lambda: one("Reshape", "x", "s", weights={"s": i64(4, 2)}), "has 6 elements"),
    "a reshape that does not divide": (lambda: one("Reshape", "x", "s", weights={"s": i64(-1, 4)}), "cannot take the shape"),
    "two unknown dimensions": (lambda: one("Reshape", "x", "s", weights={"s": i64(-1, -1)}), "more than one unknown"),
    "an axis too far": (lambda: one("Softmax", "x", axis=5), "axis 5 of a tensor of 2 dimensions"),
    "a perm that repeats": (lambda: one("Transpose", "x", perm=[0, 0]), "does not permute"),
    "a squeeze of a real dimension": (lambda: one("Squeeze", "x", "a", weights={"a": i64(1)}), "is not 1"),
    "concat of unlike shapes": (lambda: one("Concat", "x", "w", weights={"w": np.ones((3, 2), "f")}, axis=0), "concat along axis 0"),
    "split sizes": (lambda: model([helper.make_node("Split", ["x", "s"], ["y", "z"], axis=1)], weights={"s": i64(1, 1)}), "into [1, 1]"),
    "a slice of step 0": (lambda: one("Slice", "x", "b", "e", "a", "s", weights={"b": i64(0), "e": i64(1), "a": i64(0), "s": i64(0)}), "step 0"),
    "a gather out of range": (lambda: one("Gather", "x", "i", weights={"i": i64(0, 7)}), "leave dimension 0"),
    "channels of a convolution": (
        lambda: one("Conv", "x", "w", shapes={"x": (1, 3, 8, 8)}, weights={"w": np.ones((4, 2, 3, 3), "f")}), "channels do not fit"),
    "a window larger than the input": (
        lambda: one("Conv", "x", "w", shapes={"x": (1, 3, 2, 2)}, weights={"w": np.ones((4, 3, 5, 5), "f")}), "larger than the padded input"),
    "kernel_shape against weights": (
        lambda: one("Conv", "x", "w", shapes={"x": (1, 3, 8, 8)}, weights={"w": np.ones((4, 3, 3, 3), "f")}, kernel_shape=[5, 5]), "kernel_shape [5, 5]"),
    "pads of a pool": (lambda: one("MaxPool", "x", shapes={"x": (1, 1, 4, 4)}, kernel_shape=[2, 2], pads=[1, 1]), "pads [1, 1]"),
    "an unknown auto_pad": (lambda: one("MaxPool", "x", shapes={"x": (1, 1, 4, 4)}, kernel_shape=[2, 2], auto_pad="SOME"), "auto_pad 'SOME'"),
    "a padding mode": (lambda: one("Pad", "x", "p", weights={"p": i64(1, 1, 1, 1)}, mode="mirror"), "unknown padding mode"),
    "a resize mode": (lambda: one("Resize", "x", "", "s", weights={"s": np.ones(2, "f")}, mode="best"), "mode 'best'"),
    "an einsum": (lambda: one("Einsum", "x", equation="ijk->i"), "einsum 'ijk->i'"),
    "a negative shape": (lambda: model([helper.make_node("ConstantOfShape", ["s"], ["y"])], {}, weights={"s": i64(-2)}), "negative dimension"),
    "topk of too many": (lambda: model([helper.make_node("TopK", ["x", "k"], ["y", "z"])], weights={"k": i64(9)}), "the first 9 along axis 1"),
    "a missing attribute": (lambda: one("Cast", "x"), "the_node"),
    "a shape only known at run time": (
        lambda: model([helper.make_node("NonZero", ["x"], ["y"])]), "depends on the value of input 'x'"),
    "branches of other types by a condition only known at run time": (
        lambda: model([helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0), helper.make_node("Cast", ["m"], ["c"], to=TensorProto.BOOL),
                       helper.make_node("If", ["c"], ["y"], then_branch=relu().graph,
                                        else_branch=helper.make_graph([helper.make_node("Shape", ["x"], ["z"])], "e", [], [helper.make_empty_tensor_value_info("z")]))]),
        "depends on the value"),
}  # fmt: skip


@pytest.mark.parametrize("case", MODELS)
def test_model(case):
    make, message = MODELS[case]
    made = make()
    with pytest.raises(ImportModelError) as caught:
        tec_onnx.from_onnx(made)
    assert message in str(caught.value)
    assert "tec_onnx/" not in str(caught.value)
    assert caught.value.hint


def test_the_node_is_named():
    with pytest.raises(ImportModelError, match=r"node 'the_node' \(Add\)"):
        tec_onnx.from_onnx(one("Add", "x", "w", weights={"w": np.ones((2, 4), "f")}))


def test_all_unsupported_operators_at_once():
    nodes = [helper.make_node(n, ["x"], [f"y{k}"]) for k, n in enumerate(["Foo", "Bar", "Foo"])]
    with pytest.raises(ImportModelError, match=r"Foo \(2x: y0, y2\); Bar \(1x: y1\)"):
        tec_onnx.from_onnx(model(nodes, outputs=("y0",)))


SHAPES = {
    "an unknown name": ({"q": (1, 2)}, "no input 'q'"),
    "another rank": ({"x": (2, 3, 4)}, "has 2 dimensions"),
    "against the model": ({"x": (2, 4)}, "not (2, 4)"),
    "negative": ({"x": (-2, 3)}, "negative dimension"),
}


@pytest.mark.parametrize("case", SHAPES)
def test_shapes(case):
    shapes, message = SHAPES[case]
    with pytest.raises(ImportModelError) as caught:
        tec_onnx.from_onnx(relu(), shapes)
    assert message in str(caught.value)


def test_named_dimensions_agree():
    m = one("Add", "x", "z", shapes={"x": ("n", 3), "z": ("n", 3)})
    with pytest.raises(ImportModelError, match="dimension 'n' is 2 and 4"):
        tec_onnx.from_onnx(m, {"x": (2, 3), "z": (4, 3)})


def test_a_name_of_an_expression_is_a_dimension_somewhere():
    """Compiling took it, and the network called itself a damaged package."""
    with pytest.raises(ImportModelError, match="the size 32\\*h needs 'h', which no input has for a whole dimension"):
        tec_onnx.from_onnx(one("Relu", "x", shapes={"x": ("n", "h")}), {"x": ("n", "32*h")})


FEEDS = {
    "a missing input": ({}, "input 'x' is missing"),
    "an unknown input": ({"x": np.zeros((2, 3), "f"), "q": 1}, "no input 'q'"),
    "another type": ({"x": np.zeros((2, 3), "d")}, "is float64, the model takes float32"),
    "another shape": ({"x": np.zeros((3, 3), "f")}, "has shape (3, 3)"),
    "too many": ([np.zeros((2, 3), "f"), 1], "2 inputs given"),
}


@pytest.mark.parametrize("case", FEEDS)
def test_inputs_at_run_time(case):
    feeds, message = FEEDS[case]
    with pytest.raises(ImportModelError) as caught:
        Session(relu()).run(feeds)
    assert message in str(caught.value) and caught.value.hint


@pytest.mark.parametrize(
    "location,more,message",
    [("../w.bin", {}, "outside of the model's folder"), ("/etc/passwd", {}, "outside of the model's folder"), ("w.bin", {}, "cannot read"),
     ("here.bin", {"offset": 900}, "has 24 bytes"), ("here.bin", {"length": 900}, "has 24 bytes"), ("here.bin", {"offset": "x"}, "cannot read"),
     ("here.bin", {"length": 8}, "damaged")],
)  # fmt: skip
def test_external_data(tmp_path, location, more, message):
    (tmp_path / "here.bin").write_bytes(np.ones(6, "f").tobytes())
    path = tmp_path / "m.onnx"
    path.write_bytes(with_external(location, **more).SerializeToString())
    with pytest.raises(ImportModelError, match=message):
        tec_onnx.from_onnx(path)


def test_a_tensor_with_too_little_data():
    m = one("Add", "x", "w", weights={"w": np.ones((2, 3), "f")})
    m.graph.initializer[0].raw_data = b"1234"
    with pytest.raises(ImportModelError, match="damaged"):
        tec_onnx.from_onnx(m)


def test_unknown_element_type():
    m = one("Add", "x", "w", weights={"w": np.ones((2, 3), "f")})
    m.graph.initializer[0].data_type = 999
    with pytest.raises(ImportModelError, match="unknown ONNX element type 999"):
        tec_onnx.from_onnx(m)


def test_backend_device():
    with pytest.raises(TecError, match="unknown device"):
        tec_onnx.backend.prepare(relu(), "TPU")
    assert not tec_onnx.backend.supports_device("TPU") and tec_onnx.backend.supports_device("CPU")
    assert isinstance(relu(), onnx.ModelProto)
