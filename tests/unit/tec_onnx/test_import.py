"""Taking ONNX models in: shapes, functions, control flow, sessions, the backend; against the reference of the operators."""

import numpy as np
import onnx
import pytest
import tec_onnx
from onnx import TensorProto, helper, numpy_helper, parser
from tec_onnx.session import Session, reference_runner

from tec.errors import ImportModelError
from tec.graph import run_graph
from tec.graph.operators import run_op
from tec.ops import TensorType, get_op

rng = np.random.default_rng(3)
F = TensorProto.FLOAT


def parse(text, opset=17):
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')


def f(*shape):
    return rng.normal(size=shape).astype("float32")


def test_graph_and_params():
    m = parse("g (float[1, 3] x) => (float[1, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> { y = MatMul(x, w) }")
    graph, params = tec_onnx.from_onnx(m)
    assert [n.op for n in graph.nodes] == ["matmul"] and list(params) == ["w"]
    assert graph.output_names == ["y"] and graph.nodes[0].outputs[0].name == "y"
    np.testing.assert_array_equal(run_graph(graph, {"x": np.ones((1, 3), "f")})[0], [[9, 12]])


def test_a_clips_constant_limits_are_its_attributes():
    """Those of floats; of integers they are operands."""
    for shape, dtype, ops in (
        ("", "float", ["clip"]),
        ("[1]", "float", ["clip"]),
        ("", "int32", ["maximum", "minimum"]),
    ):
        low, high = (f"{dtype}{shape} {n} = {{{v}}}" for n, v in (("a", "-1"), ("b", "2")))
        m = parse(f"g ({dtype}[1, 3] x) => ({dtype}[1, 3] y) <{low}, {high}> {{ y = Clip(x, a, b) }}", 13)
        graph, _ = tec_onnx.from_onnx(m)
        assert [n.op for n in graph.nodes] == ops, (shape, dtype)
        x = np.array([[-4, 1, 7]], "f" if dtype == "float" else "i4")
        np.testing.assert_array_equal(run_graph(graph, {"x": x})[0], [[-1, 1, 2]])


def test_dimensions_by_name_and_by_shape():
    m = parse("g (float[n, 3] x, float[n, k] z) => (float[n, m] y) { y = Concat <axis = 1> (x, z) }")
    a, _ = tec_onnx.from_onnx(m, {"n": 4, "k": 2})
    b, _ = tec_onnx.from_onnx(m, {"x": (4, 3), "z": (4, 2)})
    assert a.outputs[0].shape == b.outputs[0].shape == (4, 5)


def test_shape_arithmetic_folds_away():
    m = parse("""g (float[2, 3, 4] x) => (float[a, b] y) <int64[1] minus = {-1}, int64 zero = {0}> {
        s = Shape(x) n = Gather(s, zero) u = Unsqueeze(n, zero1) t = Concat <axis = 0> (u, minus) y = Reshape(x, t)
    }""".replace("zero1", "minus"))  # fmt: skip
    graph, params = tec_onnx.from_onnx(m)
    assert [n.op for n in graph.nodes] == ["reshape"] and not params and graph.outputs[0].shape == (2, 12)


def test_frozen_inputs_decide_on_shapes():
    m = parse("g (float[6] x, int64[2] s) => (float[a, b] y) { y = Reshape(x, s) }")
    with pytest.raises(ImportModelError, match="depends on the value of input 's'"):
        tec_onnx.from_onnx(m)
    graph, _ = tec_onnx.from_onnx(m, freeze={"s": np.array([3, -1])})
    assert graph.outputs[0].shape == (3, 2) and [v.name for v in graph.inputs] == ["x"]


def test_functions_of_the_model_and_of_the_standard():
    text = """<ir_version: 8, opset_import: ["" : 17, "my" : 1]>
    g (float[2, 3] x) => (float[2, 3] y) { t = my.scaled <by = 3.0> (x)  y = HardSwish(t) }
    <domain: "my", opset_import: ["" : 17]> scaled <by> (a) => (b) { k = Constant <value_float: float = @by> ()  b = Mul(a, k) }"""
    graph, _ = tec_onnx.from_onnx(parser.parse_model(text))
    x = f(2, 3)
    t = x * 3
    np.testing.assert_allclose(run_graph(graph, {"x": x})[0], t * np.clip(t / 6 + 0.5, 0, 1), rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 23, reason="the installed onnx does not define Attention")
def test_attention_is_inlined():
    nodes = [helper.make_node("Attention", ["q", "k", "v"], ["y"])]
    values = [helper.make_tensor_value_info(n, F, (1, 2, 4, 8)) for n in "qkv"]
    m = helper.make_model(
        helper.make_graph(nodes, "g", values, [helper.make_empty_tensor_value_info("y")]),
        opset_imports=[helper.make_opsetid("", 23)],
    )
    graph, _ = tec_onnx.from_onnx(m)
    q, k, v = f(1, 2, 4, 8), f(1, 2, 4, 8), f(1, 2, 4, 8)
    e = np.exp(q @ k.transpose(0, 1, 3, 2) / np.sqrt(8))
    np.testing.assert_allclose(
        run_graph(graph, {"q": q, "k": k, "v": v})[0], e / e.sum(-1, keepdims=True) @ v, rtol=1e-4, atol=1e-5
    )


def test_softmax_before_opset_13_flattens():
    x = f(2, 3, 4)
    for opset, axes in ((12, (1, 2)), (13, (1,))):
        graph, _ = tec_onnx.from_onnx(
            parse("g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Softmax <axis = 1> (x) }", opset)
        )
        e = np.exp(x)
        np.testing.assert_allclose(run_graph(graph, {"x": x})[0], e / e.sum(axes, keepdims=True), rtol=1e-5)


def test_short_loops_unroll_and_branches_run():
    m = parse("""g (float[2] x, bool flag) => (float[2] y, float[n, 2] all) <int64 trips = {3}, bool yes = {1}> {
        s, all = Loop (trips, yes, x) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w, float[2] o) {
            d = Identity(c) w = Add(v, v) o = Neg(w) }>
        y = If (flag) <then_branch = t () => (float[2] p) { p = Relu(s) }, else_branch = e () => (float[2] p) { p = Neg(s) }>
    }""")
    session = Session(m)
    x = np.array([1, -1], "f")
    for flag, want in ((True, [8, 0]), (False, [-8, 8]), (True, [8, 0])):
        y, rows = session.run({"x": x, "flag": np.array(flag)})
        np.testing.assert_array_equal(y, want)
        np.testing.assert_array_equal(rows, -np.outer([2, 4, 8], x))
    assert sum(map(len, session._finished.values())) == 1  # one network for both branches


def test_sessions_compile_again_for_new_shapes_only():
    made = []

    def runner(graph):
        made.append(graph)
        return reference_runner(graph)

    session = Session(parse("g (float[n] x) => (float[n] y) { y = Neg(x) }"), runner)
    for n in (3, 4, 3, 4, 3):
        x = f(n)
        np.testing.assert_array_equal(session.run([x])[0], -x)
    assert len(made) == 2


def test_values_in_the_middle_decide_on_shapes():
    m = parse(
        "g (float[n] x) => (float[k] y) { big = Greater(x, z)  i = NonZero(big)  j = Squeeze(i)  y = Gather(x, j) }"
    )
    m.graph.initializer.append(numpy_helper.from_array(np.float32(0), "z"))
    session = Session(m)
    for x in (f(8), f(8), np.zeros(8, "f")):
        np.testing.assert_array_equal(session.run([x])[0].reshape(-1), x[x > 0])


def test_sequences_and_optionals():
    m = parse("""g (float[2, 3] x) => (seq(float[a]) s, float[a] first, int64 n) <int64 zero = {0}, int64 axis1 = {1}> {
        s = SplitToSequence <axis = 0, keepdims = 0> (x)  first = SequenceAt(s, zero)  n = SequenceLength(s) }""")
    x = f(2, 3)
    s, first, n = Session(m).run([x])
    np.testing.assert_array_equal(s, x)
    np.testing.assert_array_equal(first, x[0])
    assert n == 2


def test_external_data_in_the_models_folder(tmp_path):
    m = parse("g (float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> { y = Mul(x, w) }")
    onnx.save(m, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    graph, params = tec_onnx.from_onnx(tmp_path / "m.onnx")
    np.testing.assert_array_equal(params["w"], [1, 2, 3])
    assert tec_onnx.from_onnx(str(tmp_path / "m.onnx"))[0].inputs[0].shape == graph.inputs[0].shape


@pytest.mark.parametrize(
    "strides,kernel,pads,extra,groups,size",
    [((2, 2), (4, 4), (1, 1, 1, 1), (0, 0), 1, (5, 6)), ((1, 1), (3, 2), (0, 0, 0, 0), (0, 0), 2, (4, 5)), ((3, 2), (2, 5), (0, 1, 0, 2), (2, 1), 1, (3, 4)),
     ((2, 2), (3, 3), (1, 1, 1, 1), (1, 1), 4, (4, 4))],
)  # fmt: skip
def test_transposed_convolution_by_phases(strides, kernel, pads, extra, groups, size):
    x, w = f(2, 4, *size), f(4, 3, *kernel)
    node = helper.make_node(
        "ConvTranspose", ["x", "w"], ["y"], strides=strides, pads=pads, output_padding=extra, group=groups
    )
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", F, x.shape)], [helper.make_empty_tensor_value_info("y")],
                              [numpy_helper.from_array(w, "w")])  # fmt: skip
    g, _ = tec_onnx.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    assert "conv_transpose" not in [n.op for n in g.nodes]
    out = [
        (n - 1) * s + k + e - pads[d] - pads[d + 2] for d, (n, s, k, e) in enumerate(zip(size, strides, kernel, extra))
    ]
    attrs = {"strides": strides, "dilations": (1, 1), "before": pads[:2], "out_space": tuple(out), "groups": groups}
    op = get_op("conv_transpose")
    types = [TensorType("float32", x.shape), TensorType("float32", w.shape)]
    want = run_op(op, attrs, [x, w], types, op.infer(types, attrs))[0]
    np.testing.assert_allclose(run_graph(g, {"x": x})[0], want, rtol=1e-4, atol=1e-5)


def lstm_reference(x, w, r, b):
    h = c = np.zeros((x.shape[1], r.shape[1]))
    out = []
    for xt in x:
        i, o, g, n = np.split(xt @ w.T + h @ r.T + b[: len(b) // 2] + b[len(b) // 2 :], 4, 1)
        i, o, g = (1 / (1 + np.exp(-v)) for v in (i, o, g))
        c = g * c + i * np.tanh(n)
        h = o * np.tanh(c)
        out.append(h)
    return np.array(out), h, c


def test_lstm_both_ways():
    x, w, r, b = f(5, 2, 3), f(2, 16, 3), f(2, 16, 4), f(2, 32)
    m = parse("""g (float[5, 2, 3] x, float[2, 16, 3] w, float[2, 16, 4] r, float[2, 32] b) => (float[s, d, n, h] y, float[d, n, h] h, float[d, n, h] c) {
        y, h, c = LSTM <hidden_size = 4, direction = "bidirectional"> (x, w, r, b) }""")
    y, h, c = Session(m).run([x, w, r, b])
    for d, back in ((0, 1), (1, -1)):
        out, last, cell = lstm_reference(x[::back], w[d], r[d], b[d])
        np.testing.assert_allclose(y[:, d], out[::back], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(h[d], last, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(c[d], cell, rtol=1e-4, atol=1e-5)


def test_backend_runs_nodes_and_models():
    node = helper.make_node("Add", ["a", "b"], ["c"])
    a, b = f(2, 3), f(3)
    for device in ("REFERENCE", "CPU"):
        (c,) = tec_onnx.backend.run_node(node, [a, b], device)
        np.testing.assert_allclose(c, a + b, rtol=1e-6)
    m = parse("g (float[n] x) => (float[n] y) { y = Exp(x) }")
    assert tec_onnx.backend.is_compatible(m)
    rep = tec_onnx.backend.prepare(m)
    x = f(7)
    np.testing.assert_allclose(rep.run([x])[0], np.exp(x), rtol=1e-5)
    np.testing.assert_allclose(tec_onnx.backend.run_model(m, {"x": x})[0], np.exp(x), rtol=1e-5)


def test_strings_stay_on_the_host():
    m = parse("g (string[n] x) => (string[n] y) { y = StringConcat(x, x) }", 20)
    assert Session(m).run([np.array(["a", "bc"], dtype=object)])[0].tolist() == ["aa", "bcbc"]


def test_a_model_newer_than_the_package():
    known = onnx.defs.onnx_opset_version()
    node = helper.make_node("NotYetInvented", ["x"], ["y"])
    value = helper.make_tensor_value_info("x", F, (2,))
    graph = helper.make_graph([node], "g", [value], [helper.make_empty_tensor_value_info("y")])
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", known + 1)])
    with pytest.raises(
        ImportModelError, match=f"opset {known + 1}, the installed onnx .* up to {known}: pip install -U onnx"
    ):
        tec_onnx.from_onnx(m)
