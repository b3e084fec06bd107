"""Loop, Scan, If and recurrent layers of ONNX models as parts of the plan: compiled once, against ONNX Runtime, on the CPU and the software GPU."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import tec_onnx
from onnx import TensorProto, helper, numpy_helper, parser
from tec_onnx.backend import compiled_runner
from tec_onnx.session import Session

import tec
from tec.errors import ArgumentError, ImportModelError
from tec.runtime.plans.plan import Choose, Repeat
from tests.thinned import thinned, thinned_rows

rng = np.random.default_rng(5)
TARGETS = [("llvm", None), ("rocm -mcpu=gfx942", "rocm_emu:gfx942")]


def rand(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def model(text):
    m = parser.parse_model('<ir_version: 8, opset_import: ["" : 18]>\n' + text)
    onnx.checker.check_model(m)
    return m


def reference(m, feeds):
    ort.set_default_logger_severity(4)
    session = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {k: np.asarray(v) for k, v in feeds.items()})


def check(m, *many, targets=TARGETS, tol=1e-5, **kwargs):
    """One compilation serves all of `many`."""
    for target, device in targets:
        net = tec.compile(m, target, cache=False, **kwargs)
        for feeds in many:
            for a, b in zip(net.run(feeds, device), reference(m, feeds), strict=True):
                assert a.dtype == b.dtype and a.shape == b.shape
                np.testing.assert_allclose(a, b, rtol=tol, atol=tol)
    return net


def holders(net):
    return [type(s) for s, _ in net.plan.holders]


def test_a_loop_whose_count_and_condition_are_inputs():
    m = model("""
        agraph (int64 n, bool go, float[4] x, float limit) => (float[4] y, int64 k) {
            zero = Constant<value = int64 {0}>()
            y, k = Loop (n, go, x, zero) <body = body (int64 i, bool c, float[4] now, int64 at) => (bool more, float[4] then, int64 after) {
                then = Add (now, x)
                after = Add (at, i)
                top = ReduceMax <keepdims = 0> (then)
                more = Less (top, limit)
            }>
        }""")
    x = np.abs(rand(4)) + 0.5
    net = check(
        m,
        *(
            {"n": np.int64(n), "go": np.asarray(g), "x": x, "limit": np.float32(l)}
            for n, g, l in ((5, True, 99), (50, True, 9), (5, False, 9), (0, True, 9))
        ),
    )
    assert holders(net) == [Repeat]


@pytest.mark.parametrize("trips", [3, 9, 40])
def test_a_loop_that_makes_rows(trips):
    """Short ones are unrolled, long ones are not."""
    m = model(f"""
        agraph (float[2, 3] x) => (float[2, 3] y, float[r, 2, 3] rows, float[r, 3] sums) {{
            n = Constant<value = int64 {{{trips}}}>()
            y, rows, sums = Loop (n, , x) <body = body (int64 i, bool c, float[2, 3] now) => (bool more, float[2, 3] then, float[2, 3] row, float[3] total) {{
                more = Identity (c)
                half = Constant<value = float {{0.5}}>()
                a = Mul (now, half)
                f = Cast <to = 1> (i)
                then = Add (a, f)
                row = Sub (then, x)
                axes = Constant<value = int64[1] {{0}}>()
                total = ReduceSum <keepdims = 0> (row, axes)
            }}>
        }}""")
    net = check(m, {"x": rand(2, 3)})
    assert holders(net) == ([] if trips <= 8 else [Repeat]) and len(net.plan.steps) < 50


def test_a_loop_that_never_ends_is_refused():
    m = model("""
        agraph (float[4] x) => (float[4] y) {
            y = Loop ( , , x) <body = body (int64 i, bool c, float[4] now) => (bool more, float[4] then) {
                more = Identity (c)
                then = Add (now, x)
            }>
        }""")
    with pytest.raises(ImportModelError, match="does not end"):
        tec.compile(m, cache=False)


def test_a_loop_below_zero_says_so():
    m = model("""
        agraph (int64 n, float[4] x) => (float[4] y) {
            y = Loop (n, , x) <body = body (int64 i, bool c, float[4] now) => (bool more, float[4] then) {
                more = Identity (c)
                then = Add (now, x)
            }>
        }""")
    net = tec.compile(m, cache=False)
    with pytest.raises(ArgumentError, match="-3 trips"):
        net.run({"n": np.int64(-3), "x": rand(4)})
    np.testing.assert_allclose(net.run({"n": np.int64(2), "x": np.ones(4, np.float32)})[0], 3)


BRANCHES = """
    agraph (bool flag, float[n, 4] x, float[4] s) => (float[n, 4] y, float[n, 4] z) {
        y, z = If (flag) <
            then_branch = a () => (float[n, 4] p, float[n, 4] q) { p = Add (x, s)  q = Identity (x) },
            else_branch = b () => (float[n, 4] p, float[n, 4] q) {
                small = ReduceMax <keepdims = 0> (x)
                zero = Constant<value = float {0.0}>()
                low = Less (small, zero)
                p = If (low) <
                    then_branch = c () => (float[n, 4] r) { r = Neg (x) },
                    else_branch = d () => (float[n, 4] r) { r = Tanh (x) }>
                q = Mul (p, s)
            }>
    }"""


def test_branches_in_branches():
    many = [
        {"flag": np.asarray(f), "x": sign * np.abs(rand(3, 4)), "s": rand(4)} for f in (True, False) for sign in (1, -1)
    ]
    net = check(model(BRANCHES), *many, {"flag": np.asarray(False), "x": rand(7, 4), "s": rand(4)})
    assert holders(net) == [Choose, Choose]


def test_branches_of_other_types_want_a_session():
    m = model("""
        agraph (bool flag, float[4] x) => (float[k] y) {
            y = If (flag) <
                then_branch = a () => (float[k] p) { p = Concat <axis = 0> (x, x) },
                else_branch = b () => (float[k] p) { p = Neg (x) }>
        }""")
    with pytest.raises(
        ImportModelError,
        match=r"a condition depends on the value of input 'flag'; left to run time: branches that give float32\[8\] and float32\[4\]",
    ):
        tec.compile(m, cache=False)
    session = Session(m, compiled_runner("llvm"))
    for flag in (True, False):
        feeds = {"flag": np.asarray(flag), "x": rand(4)}
        np.testing.assert_allclose(session.run(feeds)[0], reference(m, feeds)[0])


def test_a_branch_that_cannot_be_is_a_condition():
    """A frame of one rate fits that rate's branch alone: the other is an error at the run that takes it."""
    m = model("""
        agraph (int64 rate, float[1, 6] x) => (float[a, b] y) {
            fast = Constant<value = int64 {16000}>()
            is = Equal (rate, fast)
            y = If (is) <
                then_branch = a () => (float[k, m] p) { two = Constant<value = int64[2] {2, 3}>() q = Reshape (x, two) p = Neg (q) },
                else_branch = b () => (float[k, m] p) { two = Constant<value = int64[2] {2, 4}>() q = Reshape (x, two) p = Tanh (q) }>
        }""")
    net = tec.compile(m, cache=False)
    x = rand(1, 6)
    np.testing.assert_allclose(net.run({"rate": np.array(16000), "x": x})[0], -x.reshape(2, 3))
    with pytest.raises(
        ArgumentError, match=r"the else branch cannot be run with inputs of these shapes.*has 6 elements"
    ):
        net.run({"rate": np.array(8000), "x": x})


def test_a_branch_that_cannot_be_taken_in_yet_may_be_the_one_that_is_chosen():
    """It needs a size as a number: no error at its run, but a session."""
    m = model(
        """
        agraph (bool flag, float[n, 4] x) => (float[4] y) {
            y = If (flag) <
                then_branch = a () => (float[4] p) {
                    axis = Constant<value = int64 {0}>()
                    size = Shape (x)
                    n = Gather (size, axis)
                    last, rows = Loop (n, , x) <body = body (int64 i, bool c, float[n, 4] now) => (bool more, float[n, 4] then, float[4] row) {
                        row = ReduceMax <keepdims = 0> (now, i0)
                        top = ReduceMax <keepdims = 0> (now)
                        half = Constant<value = float {0.5}>()
                        then = Mul (now, half)
                        more = Greater (top, half)
                    }>
                    p = ReduceSum <keepdims = 0> (rows, i0)
                },
                else_branch = b () => (float[4] p) { p = ReduceSum <keepdims = 0> (x, i0) }>
        }""".replace(
            "{\n            y = If", "{\n            i0 = Constant<value = int64[1] {0}>()\n            y = If"
        )
    )
    with pytest.raises(ImportModelError, match="depends on the value of input 'flag'"):
        tec.compile(m, cache=False)
    session = Session(m, compiled_runner("llvm"))
    for flag in (True, False):
        feeds = {"flag": np.asarray(flag), "x": np.abs(rand(3, 4)) + 4}
        np.testing.assert_allclose(session.run(feeds)[0], reference(m, feeds)[0], rtol=1e-5)


@thinned(1, ("back", [0, 1]), ("constant", [False, True]))
def test_a_scan_of_opset_8_with_lengths_of_its_own(back, constant):
    given = "<int64[3] lengths = {4, 1, 2}>" if constant else ""
    m = parser.parse_model(f"""<ir_version: 4, opset_import: ["" : 8]>
        agraph ({"" if constant else "int64[3] lengths, "}float[3, 5] start, float[3, 4, 5] rows) => (float[3, 5] final, float[3, 4, 5] made) {given} {{
            final, made = Scan <num_scan_inputs = 1, directions = [{back}], body = body (float[5] now, float[5] row) => (float[5] then, float[5] out) {{
                then = Add (now, row)
                out = Mul (now, row)
            }}> (lengths, start, rows)
        }}""")
    feeds = {"start": rand(3, 5), "rows": rand(3, 4, 5)}
    many = [feeds] if constant else [{**feeds, "lengths": np.array(n, np.int64)} for n in ((4, 1, 2), (1, 3, 4))]
    check(m, *many)


def scan(rows, back=0, out_back=0, axis=0, out_axis=0):
    shape = f"{rows}, 3" if axis == 0 else f"3, {rows}"
    return model(f"""
        agraph (float[3] s, float[{shape}] x, float[3, 3] w) => (float[3] final, float[a, b] made) {{
            final, made = Scan <num_scan_inputs = 1, scan_input_directions = [{back}], scan_output_directions = [{out_back}],
                                scan_input_axes = [{axis}], scan_output_axes = [{out_axis}],
                body = body (float[3] now, float[3] row) => (float[3] then, float[3] out) {{
                    p = MatMul (now, w)
                    q = Add (p, row)
                    then = Tanh (q)
                    out = Mul (then, row)
                }}> (s, x)
        }}""")


@pytest.mark.parametrize(
    "how", [{}, {"back": 1}, {"out_back": 1}, {"axis": 1}, {"out_axis": 1, "back": 1, "out_back": 1}]
)
def test_scans(how):
    length = 20
    shape = (length, 3) if not how.get("axis") else (3, length)
    net = check(
        scan(length, **how),
        {"s": rand(3), "x": rand(*shape), "w": rand(3, 3)},
        targets=TARGETS[: 1 + ("out_axis" in how)],
    )
    assert holders(net) == [Repeat]


def test_a_row_that_is_made_and_read_by_a_loop_within():
    """Rows of 20 bytes begin anywhere: for the loop within, too."""
    m = model("""
        agraph (float[20, 5] x, float[5] s) => (float[20, 5] rows, float[5] f) {
            f, rows = Scan <num_scan_inputs = 1, body = body (float[5] now, float[5] row) => (float[5] then, float[5] made) {
                p = Add (now, row)
                made = Tanh (p)
                n = Constant<value = int64 {9}>()
                then = Loop (n, , now) <body = within (int64 i, bool c, float[5] a) => (bool more, float[5] b) {
                    more = Identity (c)
                    q = Add (a, made)
                    b = Tanh (q)
                }>
            }> (s, x)
        }""")
    net = check(m, {"x": rand(20, 5), "s": rand(5)})
    assert holders(net) == [Repeat, Repeat]


def test_an_open_scan_is_compiled_once():
    many = [{"s": rand(3), "x": rand(n, 3), "w": rand(3, 3)} for n in (1, 5, 30)]
    assert holders(check(scan("t"), *many)) == [Repeat]


def test_a_scan_of_other_lengths_is_refused():
    m = model("""
        agraph (float[20, 3] x, float[21, 3] y) => (float[20, 3] made) {
            made = Scan <num_scan_inputs = 2, body = body (float[3] a, float[3] b) => (float[3] out) { out = Add (a, b) }> (x, y)
        }""")
    with pytest.raises(ImportModelError, match=r"different lengths \['20', '21'\]"):
        tec.compile(m, cache=False)


def test_states_that_grow_are_unrolled_or_want_a_session():
    m = model("""
        agraph (int64 n, float[1, 4] x) => (float[r, 4] y) {
            y = Loop (n, , x) <body = body (int64 i, bool c, float[k, 4] now) => (bool more, float[j, 4] then) {
                more = Identity (c)
                then = Concat <axis = 0> (now, x)
            }>
        }""")
    with pytest.raises(
        ImportModelError,
        match=r"'n'; left to run time: a Loop whose state 0 is float32\[1, 4\] at first and float32\[2, 4\] then",
    ):
        tec.compile(m, cache=False)
    session = Session(m, compiled_runner("llvm"))
    for n in (2, 11):
        feeds = {"n": np.int64(n), "x": rand(1, 4)}
        np.testing.assert_allclose(session.run(feeds)[0], reference(m, feeds)[0])


def recurrent(op, seq, batch, features=5, hidden=6, direction="forward", inputs=("B",), steps="seq", **attrs):
    gates, states = {"LSTM": (4, 2), "GRU": (3, 1), "RNN": (1, 1)}[op]
    d = 2 if direction == "bidirectional" else 1
    first = (batch, d) if attrs.get("layout") else (d, batch)
    values = {
        "W": rand(d, gates * hidden, features),
        "R": rand(d, gates * hidden, hidden) / 2,
        "B": rand(d, 2 * gates * hidden),
        "P": rand(d, 3 * hidden),
    }
    x = rand(batch, seq, features) if attrs.get("layout") else rand(seq, batch, features)
    feeds = {
        "X": x,
        "sequence_lens": rng.integers(1, seq + 1, batch).astype(np.int32),
        "initial_h": rand(*first, hidden),
        "initial_c": rand(*first, hidden),
    }
    names = ["X", "W", "R", *(n if n in inputs else "" for n in ("B", "sequence_lens", "initial_h", "initial_c", "P"))]
    names = names[: {"LSTM": 8}.get(op, 6)]
    outs = ["Y", "Y_h", "Y_c"][: 1 + states]
    node = helper.make_node(op, names, outs, hidden_size=hidden, direction=direction, **attrs)
    feeds = {k: v for k, v in feeds.items() if k in names}
    infos = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()
    ]
    if steps is not None:
        infos[0].type.tensor_type.shape.dim[1 if attrs.get("layout") else 0].dim_param = steps
    graph = helper.make_graph(
        [node], "g", infos, [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outs],
        [numpy_helper.from_array(v, k) for k, v in values.items() if k in names],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8), feeds


LAYERS = {
    "lstm": ("LSTM", {}),
    "lstm of all": ("LSTM", {"inputs": ("B", "sequence_lens", "initial_h", "initial_c", "P"), "direction": "bidirectional"}),
    "lstm, coupled and clipped": ("LSTM", {"input_forget": 1, "clip": 0.5, "inputs": ("B", "initial_c")}),
    "lstm, other activations": ("LSTM", {"activations": ["HardSigmoid", "Relu", "Softsign"], "activation_alpha": [0.3], "activation_beta": [0.4]}),
    "gru": ("GRU", {"inputs": ("B", "sequence_lens", "initial_h"), "direction": "reverse"}),
    "gru, reset after": ("GRU", {"linear_before_reset": 1, "direction": "bidirectional"}),
    "gru without a bias": ("GRU", {"linear_before_reset": 1, "inputs": ()}),
    "rnn": ("RNN", {"inputs": ("B", "sequence_lens"), "direction": "bidirectional", "activations": ["LeakyRelu", "Elu"], "activation_alpha": [0.1, 0.7]}),
}  # fmt: skip


@thinned_rows(3, "case", LAYERS)
def test_recurrent_layers_of_any_length(case):
    """One function for all lengths; the sequence is longer than anything would be unrolled for."""
    op, more = LAYERS[case]
    m, feeds = recurrent(op, 30, 3, **more)
    short = (
        feeds
        | {"X": feeds["X"][:2]}
        | ({"sequence_lens": np.array([2, 1, 2], np.int32)} if "sequence_lens" in feeds else {})
    )
    net = check(m, feeds, short, targets=TARGETS[: 1 + (case in ("lstm of all", "gru"))], tol=2e-5)
    assert len(net.plan.steps) < 6


@pytest.mark.parametrize(
    ("names", "alphas", "betas", "want"),
    [
        (["HardSigmoid", "Relu", "Affine"], [0.3, 2.0], [0.4, 3.0], [("hard_sigmoid", 0.3, 0.4), ("relu", 0, 0), ("affine", 2, 3)]),
        (["LeakyRelu", "ScaledTanh", "Elu"], [0.3, 2.0], [3.0], [("leaky_relu", 0.3, 0), ("scaled_tanh", 2, 3), ("elu", 1, 0)]),
        (["HardSigmoid", "ThresholdedRelu", "HardSigmoid"], [], [], [("hard_sigmoid", 0.2, 0.5), ("thresholded_relu", 1, 0), ("hard_sigmoid", 0.2, 0.5)]),
    ],
)  # fmt: skip
def test_numbers_of_activations_go_to_those_that_take_them(names, alphas, betas, want):
    """In their order; where there are no more, an activation has its usual ones."""
    more = {k: v for k, v in (("activation_alpha", alphas), ("activation_beta", betas)) if v}
    m, _ = recurrent("LSTM", 4, 2, activations=names, **more)
    graph, _ = tec_onnx.from_onnx(m)
    (found,) = [n.attrs["activations"] for n in graph.nodes if "activations" in n.attrs]
    ((first, *rest),) = found
    for (kind, *numbers), (name, *wanted) in zip((first, *rest), want, strict=True):
        assert kind == name and numbers == pytest.approx(wanted)


def test_the_batch_first():
    """ONNX Runtime has no layout=1: the same layer the other way round."""
    m, feeds = recurrent("GRU", 6, 3, layout=1, inputs=("B", "initial_h"))
    got = tec.compile(m, cache=False).run(feeds)
    del m.graph.node[0].attribute[-1]
    assert not any(a.name == "layout" for a in m.graph.node[0].attribute)
    for i, order in zip(m.graph.input, ((1, 0, 2), (1, 0, 2))):
        turned = feeds[i.name].transpose(order)
        i.CopyFrom(helper.make_tensor_value_info(i.name, TensorProto.FLOAT, turned.shape))
        feeds[i.name] = np.ascontiguousarray(turned)
    y, h = reference(m, feeds)
    np.testing.assert_allclose(got[0], y.transpose(2, 0, 1, 3), rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(got[1], h.transpose(1, 0, 2), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda n: n.attribute.append(helper.make_attribute("direction", "sideways")), "direction 'sideways'"),
        (
            lambda n: n.attribute.append(helper.make_attribute("activations", ["Cosine", "Tanh", "Tanh"])),
            "activation 'Cosine'",
        ),
        (lambda n: n.attribute.append(helper.make_attribute("activations", ["Tanh"])), "1 activations: 3 a direction"),
        (lambda n: n.input.__setitem__(2, "W"), "LSTM"),
        (lambda n: n.input.__setitem__(5, "B"), "hidden start"),
        (lambda n: n.input.__setitem__(1, "B"), "LSTM"),
    ],
)
def test_mistakes_in_layers_are_errors(change, says):
    m, _ = recurrent("LSTM", 4, 2, inputs=("B", "initial_h"), features=5)
    node = m.graph.node[0]
    for k in [k for k, a in enumerate(node.attribute) if a.name == "direction"][::-1]:
        del node.attribute[k]
    change(node)
    with pytest.raises(ImportModelError, match=says):
        tec.compile(m, cache=False)


def test_lengths_beyond_the_sequence_are_errors():
    m, feeds = recurrent("LSTM", 4, 2, inputs=("B", "sequence_lens"))
    net = tec.compile(m, cache=False)
    for lengths in ([5, 1], [-1, 2]):
        with pytest.raises(ArgumentError, match="length"):
            net.run(feeds | {"sequence_lens": np.array(lengths, np.int32)})
    net.run(feeds)


def test_a_quantized_layer_of_any_length():
    """Its steps are a loop of the plan; ONNX Runtime quantizes rows in other portions."""
    d, values = 2, {}
    for name, shape in (("w", (2, 5, 32)), ("r", (2, 8, 32))):
        values[name] = rng.integers(-64, 65, shape).astype(np.int8)  # more saturate in ONNX Runtime without VNNI
    values |= {"b": rand(d, 64), "ws": np.full(d, 0.006, np.float32), "wz": np.zeros(d, np.int8)}
    values |= {"rs": values["ws"], "rz": values["wz"]}
    names = ["x", "w", "r", "b", "l", "", "", "", "ws", "wz", "rs", "rz"]
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        names,
        ["y", "yh", "yc"],
        domain="com.microsoft",
        hidden_size=8,
        direction="bidirectional",
    )
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["t", "n", 5]),
        helper.make_tensor_value_info("l", TensorProto.INT32, ["n"]),
    ]
    graph = helper.make_graph(
        [node],
        "g",
        infos,
        [helper.make_empty_tensor_value_info(o) for o in ("y", "yh", "yc")],
        [numpy_helper.from_array(v, k) for k, v in values.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    m = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    many = [{"x": rand(t, n, 5), "l": rng.integers(1, t + 1, n).astype(np.int32)} for t, n in ((6, 2), (20, 3), (1, 1))]
    assert holders(check(m, *many, targets=TARGETS[:1], tol=0.03)) == [Repeat, Repeat]
