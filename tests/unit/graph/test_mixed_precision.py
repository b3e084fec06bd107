"""Mixed precision keeps float32 where it must."""

import numpy as np
import pytest

import tec
from tec.errors import ImportModelError
from tec.graph import Graph, run_graph
from tec.graph.passes.dead_code import dead_code
from tec.graph.passes.gelu import find_gelu
from tec.graph.passes.mixed_precision import mixed_precision

rng = np.random.default_rng(1)
CONV = {"strides": (1, 1), "dilations": (1, 1), "before": (1, 1), "after": (1, 1), "groups": 1}


def network(scale=1.0):
    g = Graph()
    x = g.input("x", "float32", (1, 3, 8, 8))
    w = g.constant((rng.normal(size=(4, 3, 3, 3)) * 0.2 * scale).astype("f"), "w")
    (y,) = g.add("conv", [x, w], CONV, "y")
    (y,) = g.add("add", [y, g.constant(np.ones((4, 1, 1), "f"))])
    (r,) = g.add("relu", [y], {}, "r")
    (e,) = g.add("exp", [r], {}, "e")
    (s,) = g.add("softmax", [r], {"axes": (1,)}, "s")
    (t,) = g.add("reduce_sum", [e], {"axes": (2, 3), "keepdims": False}, "t")
    g.set_outputs([s, t])
    return g


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_types_and_values(dtype):
    g = network()
    m = mixed_precision(g, dtype)
    m.check()
    made = {n.op: n.outputs[0].dtype for n in m.nodes if n.op != "cast"}
    assert made == {
        "conv": dtype,
        "add": dtype,
        "relu": dtype,
        "exp": "float32",
        "softmax": dtype,
        "reduce_sum": "float32",
    }
    assert [v.dtype for v in m.inputs] == [v.dtype for v in g.inputs]
    assert [str(v.type) for v in m.outputs] == [str(v.type) for v in g.outputs]
    x = rng.normal(size=(1, 3, 8, 8)).astype("f")
    for a, b in zip(run_graph(m, {"x": x}), run_graph(g, {"x": x})):
        np.testing.assert_allclose(a, b, rtol=5e-3 if dtype == "float16" else 5e-2, atol=1e-2)


def test_weights_beyond_the_range_stay():
    m = mixed_precision(network(scale=1e6), "float16")
    assert {n.outputs[0].dtype for n in m.nodes if n.op == "conv"} == {"float32"}


def test_one_cast_a_value():
    m = mixed_precision(network(), "float16")
    sources = [n.inputs[0] for n in m.nodes if n.op == "cast"]
    assert len(sources) == len(set(sources))


def test_unknown_precision():
    g = network()
    assert mixed_precision(g, "float32") is g
    with pytest.raises(ImportModelError, match="mixed precision in 'int8'"):
        mixed_precision(g, "int8")


def test_types_by_node(tmp_path):
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array((rng.standard_normal((16, 16)) / 4).astype("float32"), f"w{k}") for k in range(3)
    ]
    nodes = [helper.make_node("MatMul", [f"h{k}", f"w{k}"], [f"h{k + 1}"], name=f"/layer{k}/MatMul") for k in range(3)]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (4, 16)) for n in ("h0", "h3")]
    model = helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:], weights),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )

    def types(dtype):
        net = tec.compile(model, target="llvm", dtype=dtype, cache=False)
        x = rng.standard_normal((4, 16)).astype("float32")
        want = x
        for w in weights:
            want = want @ numpy_helper.to_array(w)
        assert np.allclose(net.run([x])[0], want, rtol=2e-2, atol=2e-2)
        return [str(p.dtype) for p in net.params.values()]

    assert types({"": "float16", "/layer1/*": "float32"}).count("float16") == 2
    assert types({"/layer2/MatMul": "float16"}).count("float16") == 1
    assert types("float16;/layer0/*=float32;/layer0/MatMul=float16").count("float16") == 3  # the last that fits
    assert types(None).count("float16") == 0
    with pytest.raises(tec.TecError, match=r"no node's name fits '/layer9/\*'.*(?s:.)*/layer"):
        types({"/layer9/*": "float16"})
    with pytest.raises(tec.TecError, match="mixed precision in 'int8'"):
        types({"/layer1/*": "int8"})


@pytest.mark.parametrize(
    ("half", "root", "one", "gelu"),
    [
        (0.5, 0.5**0.5, 1.0, True), (float(np.float16(0.5)), float(np.float16(0.5**0.5)), 1.0, True),
        (0.4, 0.5**0.5, 1.0, False), (1.0, 0.5**0.5, 1.0, False), (-0.5, 0.5**0.5, 1.0, False), (0.502, 0.5**0.5, 1.0, False),
        (0.5, 0.72, 1.0, False), (0.5, -(0.5**0.5), 1.0, False), (0.5, 1.0, 1.0, False), (0.5, 2**0.5, 1.0, False), (0.5, 0.7085, 1.0, False),
        (0.5, 0.5**0.5, 2.0, False), (0.5, 0.5**0.5, -1.0, False), (0.5, 0.5**0.5, 1.01, False), (0.5, 0.5**0.5, 0.0, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["half last", "half inside"])
def test_a_gelu_has_its_own_constants(half, root, one, gelu, form):
    """What looks like it and has other weights is another function."""
    g = Graph()
    x = g.input("x", "float32", (4, 8))
    (u,) = g.add("multiply", [x, g.constant(np.float32(root))])
    (total,) = g.add("add", [g.add("erf", [u])[0], g.constant(np.float32(one))])
    if form == "half last":
        (y,) = g.add("multiply", [g.add("multiply", [x, total])[0], g.constant(np.float32(half))])
    else:
        (y,) = g.add("multiply", [x, g.add("multiply", [g.constant(np.float32(half)), total])[0]])
    g.set_outputs([y])
    made = dead_code(find_gelu(g))
    assert ([n.op for n in made.nodes] == ["gelu"]) == gelu
    a = {"x": np.linspace(-4, 4, 32, dtype=np.float32).reshape(4, 8)}
    np.testing.assert_allclose(run_graph(made, a)[0], run_graph(g, a)[0], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("form", ["half first", "half last", "divided"])
def test_gelu_is_one_operator_in_16_bits(form):
    """Its parts rounded one by one would lose what is small of 1 + erf; a part that something else reads is left alone."""
    g = Graph()
    x = g.input("x", "float32", (64, 128))
    w = g.constant(rng.standard_normal((128, 96)).astype(np.float32) * 0.2, "w")
    (h,) = g.add("matmul", [x, w])
    half, root, one = (g.constant(np.float32(c), n) for c, n in ((0.5, "half"), (0.5**0.5, "root"), (1.0, "one")))
    if form == "divided":
        (u,) = g.add("divide", [h, g.constant(np.float32(2**0.5), "two")])
    else:
        (u,) = g.add("multiply", [h, root])
    (total,) = g.add("add", [g.add("erf", [u])[0], one])
    if form == "half first":
        (y,) = g.add("multiply", [g.add("multiply", [h, half])[0], total])
    else:
        (y,) = g.add("multiply", [g.add("multiply", [h, total])[0], half])
    g.set_outputs([y])
    made = mixed_precision(dead_code(find_gelu(g)), "float16")
    assert [n.op for n in made.nodes if n.op != "cast"] == ["matmul", "gelu"]
    a = rng.standard_normal((64, 128)).astype(np.float32)
    (got,), (want,) = run_graph(made, {"x": a}), run_graph(g, {"x": a})
    assert np.abs(got - want).max() < 2e-3 * np.abs(want).max()
    g.set_outputs([y, total])
    assert find_gelu(g) is g
