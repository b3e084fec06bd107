"""Networks and templates by TVM's names: relay.build, graph_executor, autotvm."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tec
import tec.compat.tvm as tvm
from tec.compat.tvm import autotvm, relay, te
from tec.compat.tvm.contrib import graph_executor, utils


@pytest.fixture(scope="module")
def model():
    w = np.random.default_rng(0).standard_normal((6, 4)).astype("float32")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [onnx.numpy_helper.from_array(w, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), w


def test_a_network_from_onnx_runs_and_is_kept(model, tmp_path):
    proto, w = model
    mod, params = relay.frontend.from_onnx(proto, {"x": (3, 6)})
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target="llvm", params=params)
    x = np.random.default_rng(1).standard_normal((3, 6)).astype("float32")
    path = tmp_path / "net.tar"
    lib.export_library(str(path))
    for made in (lib, tvm.runtime.load_module(str(path))):
        net = graph_executor.GraphModule(made["default"](tvm.cpu()))
        net.set_input("x", tvm.nd.array(x))
        net.run()
        np.testing.assert_allclose(net.get_output(0).numpy(), np.maximum(x @ w, 0), rtol=1e-5, atol=1e-6)
        assert (
            net.get_num_outputs() == 1
            and len(net.module.time_evaluator("run", tvm.cpu(), number=1, repeat=2)().results) == 2
        )
    found = relay.create_executor("graph", mod, tvm.cpu(), "llvm").evaluate()(x)
    np.testing.assert_allclose(found.numpy(), np.maximum(x @ w, 0), rtol=1e-5, atol=1e-6)
    with pytest.raises(tec.ArgumentError, match="no input 'z'"):
        graph_executor.GraphModule(lib["default"](tvm.cpu())).set_input("z", x)


def test_modules_are_kept_under_tvms_names():
    A = te.placeholder((8,), name="A")
    B = te.compute(A.shape, lambda i: A[i] + 1.0, name="B")
    f = tvm.build(te.create_schedule(B.op), [A, B], "llvm", name="plus_one")
    folder = utils.tempdir()
    f.save(folder.relpath("f.o"))
    tvm.contrib.cc.create_shared(folder.relpath("f.so"), [folder.relpath("f.o")])
    f.export_library(folder.relpath("g.tar"))
    for name in ("f.so", "g.tar"):
        b = tvm.nd.array(np.zeros(8, "float32"))
        tvm.runtime.load_module(folder.relpath(name))(tvm.nd.array(np.ones(8, "float32")), b)
        assert (b.numpy() == 2).all()


@autotvm.template("compat/matmul")
def matmul(n):
    A, B = (te.placeholder((n, n), name=x) for x in "AB")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    y, x = s[C].op.axis
    cfg = autotvm.get_config()
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2, filter=lambda e: e.size[-1] <= 16)
    cfg.define_knob("unroll", [0, 1])
    yo, yi = cfg["tile_y"].apply(s, C, y)
    xo, xi = cfg["tile_x"].apply(s, C, x)
    s[C].reorder(yo, xo, k, yi, xi)
    if cfg["unroll"].val:
        s[C].unroll(yi)
    return s, [A, B, C]


def test_a_template_has_a_space_and_a_default():
    task = autotvm.task.create("compat/matmul", args=(32,), target="llvm")
    space = task.config_space
    assert set(space.space_map) == {"tile_y", "tile_x", "unroll"} and len(space) == 6 * 5 * 2
    assert len({str(space.get(k)) for k in range(len(space))}) == len(space) and "60" in repr(space)
    with pytest.raises(IndexError, match="configuration 60 of 60"):
        space.get(60)
    with tvm.target.Target("llvm"):
        s, args = matmul(32)
        f = tvm.build(s, args)
    a, b = np.random.default_rng(0).random((2, 32, 32)).astype("float32")
    c = np.zeros((32, 32), "float32")
    f(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    s, args = task.instantiate(space.get(37))
    d = np.zeros((32, 32), "float32")
    tvm.build(s, args, "llvm")(a, b, d)
    np.testing.assert_allclose(d, a @ b, rtol=1e-5)
    with pytest.raises(tec.ArgumentError, match="outside of a template"):
        autotvm.get_config()
