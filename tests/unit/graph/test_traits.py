"""What passes ask of an operator stands at its definition: a plugin's operator is treated as one of tec's own."""

import importlib
import pkgutil

import numpy as np
import onnx.helper as oh
import pytest
from onnx import TensorProto as T
from tec_onnx.importer import CONVERTERS, onnx_op

import tec
from tec import te
from tec.graph import passes
from tec.graph.passes.mixed_precision import mixed_precision
from tec.ops import ELEMENTWISE, OPS, register
from tec.ops.registry import FINITE, FOLLOWS_16, same_type


@pytest.fixture
def squash():
    """The two files of CONTRIBUTING's recipe: the operator, and what converts to it."""

    @register("squash", ELEMENTWISE, same_type, traits=[FINITE, FOLLOWS_16])
    def compute(attrs, inputs, outputs):
        """x / (1 + |x|)."""
        (x,) = inputs
        return [te.compute(x.shape, lambda *i: x(*i) / (te.abs(x(*i)) + te.const(1, x.dtype)), name="squash")]

    @onnx_op("Squash", domain="plugin")
    def convert(c):
        return c.op("squash", c[0])

    yield
    del OPS["squash"], CONVERTERS["plugin", "Squash"]


def test_an_operator_of_a_plugin(squash):
    w = np.random.default_rng(0).standard_normal((8, 8, 1, 1)).astype(np.float32)
    nodes = [
        oh.make_node("Conv", ["x", "w"], ["c"]),
        oh.make_node("Squash", ["c"], ["s"], domain="plugin"),
        oh.make_node("Relu", ["s"], ["y"]),
    ]
    graph = oh.make_graph(
        nodes,
        "g",
        [oh.make_tensor_value_info("x", T.FLOAT, [1, 8, 4, 4])],
        [oh.make_tensor_value_info("y", T.FLOAT, None)],
        [oh.make_tensor("w", T.FLOAT, w.shape, w.ravel())],
    )
    opsets = [oh.make_opsetid("", 17), oh.make_opsetid("plugin", 1)]
    model = oh.make_model(graph, opset_imports=opsets, ir_version=9)
    x = np.random.default_rng(1).standard_normal((1, 8, 4, 4)).astype(np.float32)
    c = np.einsum("oi,nihw->nohw", w[:, :, 0, 0], x)
    for target, device in (("llvm", None), ("rocm -mcpu=gfx942", tec.rocm_emu("gfx942"))):
        net = tec.compile(model, target=target, cache=False)
        got = net.run({"x": x}, device=device)[0]
        np.testing.assert_allclose(got, np.maximum(c / (1 + np.abs(c)), 0), rtol=1e-4, atol=1e-5)
        assert any("squash" in nodes and len(nodes) >= 3 for nodes in net.report.functions.values())  # fused
    import tec_onnx

    half = mixed_precision(tec_onnx.load(model))
    assert {n.op: n.outputs[0].dtype for n in half.nodes}["squash"] == "float16"


def test_an_unknown_trait_is_refused():
    with pytest.raises(ValueError, match="unknown trait 'fast' of operator hurry; traits: view, "):
        register("hurry", ELEMENTWISE, same_type, traits=["fast"])


def test_no_pass_keeps_names_of_operators():
    """A list of three operators or more is a fact that belongs to their definitions."""
    for info in pkgutil.iter_modules(passes.__path__):
        module = importlib.import_module(f"{passes.__name__}.{info.name}")
        for name, held in vars(module).items():
            if isinstance(held, (set, frozenset, tuple, list, dict)):
                assert len([x for x in held if isinstance(x, str) and x in OPS]) < 3, f"{module.__name__}.{name}"
