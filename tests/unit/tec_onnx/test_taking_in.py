"""How a model is taken in: nodes out of order, functions that multiply, sizes that decide, and whose fault a failure is."""

import time

import numpy as np
import onnx.helper as oh
import pytest
from onnx import TensorProto as T
from tec_onnx import importer

import tec


def model(nodes, inputs, outputs=("y",), functions=(), opset=17):
    graph = oh.make_graph(
        nodes,
        "g",
        [oh.make_tensor_value_info(n, T.FLOAT, s) for n, s in inputs.items()],
        [oh.make_tensor_value_info(n, T.FLOAT, None) for n in outputs],
    )
    opsets = [oh.make_opsetid("", opset), oh.make_opsetid("own", 1)]
    return oh.make_model(graph, opset_imports=opsets, ir_version=9, functions=list(functions))


# ---- order


def test_nodes_out_of_order_are_sorted():
    then = oh.make_graph(
        [oh.make_node("Add", ["late", "x"], ["t"])], "t", [], [oh.make_tensor_value_info("t", T.FLOAT, None)]
    )
    other = oh.make_graph([oh.make_node("Neg", ["x"], ["e"])], "e", [], [oh.make_tensor_value_info("e", T.FLOAT, None)])
    yes = oh.make_node("Constant", [], ["yes"], value=oh.make_tensor("v", T.BOOL, [], [True]))
    nodes = [
        oh.make_node("Sub", ["chosen", "b"], ["y"]),
        oh.make_node("If", ["yes"], ["chosen"], then_branch=then, else_branch=other),  # reads `late` from around it
        oh.make_node("Mul", ["x", "x"], ["late"]),
        oh.make_node("Exp", ["a"], ["b"]),
        oh.make_node("Neg", ["x"], ["a"]),
        yes,
    ]
    x = np.array([0.5, -1, 2], np.float32)
    got = tec.compile(model(nodes, {"x": [3]}), target="llvm").run({"x": x})[0]
    np.testing.assert_allclose(got, x * x + x - np.exp(-x), rtol=1e-5)


def test_a_function_whose_nodes_are_out_of_order():
    body = [oh.make_node("Neg", ["t"], ["o"]), oh.make_node("Exp", ["i"], ["t"])]
    f = oh.make_function("own", "f", ["i"], ["o"], body, [oh.make_opsetid("", 17)])
    x = np.ones(3, np.float32)
    got = tec.compile(model([oh.make_node("f", ["x"], ["y"], domain="own")], {"x": [3]}, functions=[f])).run({"x": x})[
        0
    ]
    np.testing.assert_allclose(got, -np.exp(x), rtol=1e-6)


def test_a_cycle_names_its_nodes():
    nodes = [
        oh.make_node("Add", ["x", "b"], ["a"], name="first"),
        oh.make_node("Neg", ["a"], ["b"], name="second"),
        oh.make_node("Neg", ["b"], ["y"], name="third"),
    ]
    with pytest.raises(tec.ImportModelError, match=r"wait for each other's results: .*'first' \(Add\)") as e:
        tec.compile(model(nodes, {"x": [3]}))
    assert "second" in str(e.value) and "third" not in str(e.value)


# ---- functions that call others twice


def doubling(depth):
    opset = [oh.make_opsetid("", 17), oh.make_opsetid("own", 1)]
    functions = [oh.make_function("own", "f0", ["i"], ["o"], [oh.make_node("Neg", ["i"], ["o"])], opset)]
    for k in range(depth):
        calls = [oh.make_node(f"f{k}", [a], [b], domain="own") for a, b in (("i", "m"), ("m", "o"))]
        functions.append(oh.make_function("own", f"f{k + 1}", ["i"], ["o"], calls, opset))
    return model([oh.make_node(f"f{depth}", ["x"], ["y"], domain="own")], {"x": [3]}, functions=functions)


def test_functions_that_double_at_each_level(monkeypatch):
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(tec.compile(doubling(5)).run({"x": x})[0], x)
    monkeypatch.setattr(importer, "MOST_NODES", 5_000)
    start = time.process_time()
    with pytest.raises(tec.ImportModelError, match="come to more than 5000 nodes"):
        tec.compile(doubling(25))
    assert time.process_time() - start < 10


# ---- decisions on sizes that are open


def test_squeeze_without_axes_asks_for_sizes_that_it_keeps():
    net = tec.compile(model([oh.make_node("Squeeze", ["x"], ["y"])], {"x": ["n", 1, 3]}), target="llvm")
    x = np.random.default_rng(0).random((4, 1, 3), np.float32)
    np.testing.assert_array_equal(net.run({"x": x})[0], x[:, 0])
    with pytest.raises(tec.TecError, match=r"2 <= n .*Squeeze 'y' without axes"):
        net.run({"x": x[:1]})
    bound = tec.compile(model([oh.make_node("Squeeze", ["x"], ["y"])], {"x": ["n", 1, 3]}), shapes={"n": 1})
    np.testing.assert_array_equal(bound.run({"x": x[:1]})[0], x[0, 0])


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_padding_of_an_open_size_that_is_one(mode):
    pads = oh.make_node("Constant", [], ["p"], value=oh.make_tensor("p", T.INT64, [4], [2, 0, 1, 0]))
    nodes = [pads, oh.make_node("Pad", ["x", "p"], ["y"], mode=mode)]
    net = tec.compile(model(nodes, {"x": ["n", 3]}, opset=19), target="llvm")
    for n in (1, 2, 5):
        x = np.random.default_rng(n).random((n, 3), np.float32)
        np.testing.assert_array_equal(net.run({"x": x})[0], np.pad(x, ((2, 1), (0, 0)), mode))


# ---- whose fault it is


def broken(c):
    return {}["a slip in a converter"]


def test_a_fault_of_tec_is_not_shown_as_the_models(monkeypatch):
    monkeypatch.setitem(importer.CONVERTERS, ("", "Neg"), broken)
    with pytest.raises(tec.InternalError, match=r"a fault inside tec: node 'y' \(Neg\)") as e:
        tec.compile(model([oh.make_node("Neg", ["x"], ["y"])], {"x": [3]}), cache=False)
    assert isinstance(e.value.__cause__, KeyError) and "tec doctor" in str(e.value)
    assert not isinstance(e.value, tec.ImportModelError)


@pytest.mark.parametrize(
    "node",
    [
        oh.make_node("Transpose", ["x"], ["y"], perm="ab"),
        oh.make_node("Concat", ["x", "x"], ["y"]),
        oh.make_node("Neg", ["x", "x"], ["y"]),
    ],
    ids=lambda n: n.op_type,
)
def test_a_fault_of_the_model_is_the_models(node, monkeypatch):
    monkeypatch.setitem(importer.CONVERTERS, ("", node.op_type), broken)
    with pytest.raises(tec.ImportModelError, match="do not fit the operator"):
        tec.compile(model([node], {"x": [3]}), cache=False)


def test_the_command_line_gives_70(monkeypatch, capsys):
    from tec.cli.errors import guarded

    def fails():
        raise tec.InternalError("node 'y' (Neg)")

    with pytest.raises(SystemExit) as stop:
        guarded(fails)
    assert stop.value.code == 70
    assert "please report it" in capsys.readouterr().err
