"""What mutated models and graphs brought to light, each a case of its own."""

import numpy as np
import pytest
from onnx import TensorProto, helper, parser
from tec_onnx.backend import run_model

import tec
from tec.graph import Graph

RNG = np.random.default_rng(3)


@pytest.mark.parametrize(("op", "count"), [("add", 1), ("add", 3), ("relu", 2), ("where", 2), ("cast", 2)])
def test_operators_take_the_inputs_that_they_take(op, count):
    g = Graph("g")
    x = g.input("x", "float32", (2, 3))
    with pytest.raises(tec.ImportModelError, match=f"{count} inputs"):
        g.add(op, [x] * count, {"dtype": "int32"} if op == "cast" else {})


def test_only_1_keeps_dimensions():
    node = helper.make_node("ReduceL2", ["x"], ["y"], axes=[1], keepdims=2**31)
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))
    graph = helper.make_graph([node], "g", [info], [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    assert run_model(model, [np.ones((2, 3), np.float32)])[0].shape == (2,)


def test_a_condition_beyond_the_axis_is_refused():
    from onnx import numpy_helper

    node = helper.make_node("Compress", ["v", "mask"], ["y"], axis=0)
    weights = [
        numpy_helper.from_array(a, k) for k, a in {"v": np.ones(2, "f"), "mask": np.array([1, 0, 1, 1], bool)}.items()
    ]
    graph = helper.make_graph([node], "g", [], [helper.make_empty_tensor_value_info("y")], weights)
    with pytest.raises(tec.ImportModelError, match="an index of gather is outside of -2 to 1: 0 to 3"):
        run_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), [])


def test_a_split_into_more_than_its_outputs_is_refused():
    node = helper.make_node("Split", ["x"], ["y", "z"], axis=0, num_outputs=2**31)
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, (4,))
    outs = [helper.make_empty_tensor_value_info(k) for k in ("y", "z")]
    model = helper.make_model(helper.make_graph([node], "g", [info], outs), opset_imports=[helper.make_opsetid("", 18)])
    with pytest.raises(tec.ImportModelError, match="num_outputs 2147483648 of a Split with 2 outputs"):
        run_model(model, [np.ones(4, np.float32)])


@pytest.mark.parametrize(
    "text",
    [
        "(float[4] x, int64[1] i) => (float[4] y) { u = Constant<value = float[1] {5.0}>() y = ScatterElements<axis = 0>(x, i, u) }",
        '(float[4] x, float[1] i) => (float[4] y) { k = Constant<value = int64[1] {2}>() y = ScatterElements<axis = 0, reduction = "add">(x, k, i) }',
    ],
)
def test_a_constant_of_one_element_that_loops_read(text):
    """On a GPU it was a stage that no thread computed."""
    model = parser.parse_model('<ir_version: 8, opset_import: ["" : 18]> g ' + text)
    feeds = {"x": np.arange(4, dtype=np.float32), "i": np.array([1], np.int64 if "int64[1] i" in text else np.float32)}
    want = run_model(model, feeds, device="REFERENCE")
    net = tec.compile(model, "rocm -mcpu=gfx942", cache=False)
    np.testing.assert_array_equal(net.run(feeds, "rocm_emu:gfx942")[0], want[0])


@pytest.mark.parametrize(
    ("op", "attrs", "each", "want"),
    [
        ("ReduceL2", {"axes": [2], "keepdims": 0}, 30.0, 1643.17),
        ("ReduceLogSum", {"axes": [2], "keepdims": 0}, 300.0, 13.71),
        ("GlobalLpPool", {"p": 2}, 30.0, 1643.17),
        ("GlobalLpPool", {"p": 3}, 30.0, 432.67),
        ("LpPool", {"p": 2, "kernel_shape": [3000]}, 30.0, 1643.17),
        ("LpPool", {"p": 3, "kernel_shape": [3000]}, 30.0, 432.67),
        ("LpNormalization", {"axis": 2}, 30.0, 0.018257),
    ],
)
def test_a_total_that_float16_does_not_hold(op, attrs, each, want):
    """The result is well within it."""
    node = helper.make_node(op, ["x"], ["y"], **attrs)
    value = helper.make_tensor_value_info
    x, y = value("x", TensorProto.FLOAT16, (2, 1, 3000)), value("y", TensorProto.FLOAT16, None)
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=[helper.make_opsetid("", 13)])
    (got,) = tec.compile(model, "llvm").run({"x": np.full((2, 1, 3000), each, np.float16)})
    np.testing.assert_allclose(got, want, rtol=2e-3)


@pytest.mark.parametrize("op", ["ReduceLogSum", "ReduceLogSumExp", "ReduceL2"])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_logarithms_of_sums_of_integers(op, dtype):
    """They were refused, since a logarithm takes reals."""
    x = np.array([[1, 2, 9], [4, 8, 0]], dtype)
    node = helper.make_node(op, ["x"], ["y"], axes=[1], keepdims=0)
    info = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), (2, 3))
    graph = helper.make_graph([node], "g", [info], [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    reals = {
        "ReduceLogSum": np.log(x.sum(1)),
        "ReduceLogSumExp": np.log(np.exp(x).sum(1)),
        "ReduceL2": np.sqrt((x * x).sum(1)),
    }
    got = run_model(model, [x])[0]
    assert got.dtype == dtype and got.tolist() == np.trunc(reals[op]).tolist()


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("size", [(1, 1, 3, 4), (2, 1, 1, 5), (1, 2, 2, 1), (1, 1, 2, 3, 4), (2, 1, 1, 2, 1)])
def test_affine_grids_of_one_picture_and_of_one_row(align, size):
    """A batch of one was taken for no batch, and the place of a lone element was 0 / 0."""
    from onnx import numpy_helper
    from onnx.reference import ReferenceEvaluator

    rank = len(size) - 2
    theta = np.random.default_rng(3).standard_normal((size[0], rank, rank + 1)).astype(np.float32)
    node = helper.make_node("AffineGrid", ["t", "s"], ["y"], align_corners=align)
    info = helper.make_tensor_value_info("t", TensorProto.FLOAT, theta.shape)
    weights = [numpy_helper.from_array(np.array(size, np.int64), "s")]
    graph = helper.make_graph([node], "g", [info], [helper.make_empty_tensor_value_info("y")], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    got = run_model(model, [theta])[0]
    with np.errstate(
        all="ignore"
    ):  # with align_corners it divides by 0 along an axis of one element, and takes its first place
        want = ReferenceEvaluator(model).run(None, {"t": theta})[0]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


SLICES = [
    (2, 2**31 - 1, -1, [2, 1, 0]),
    (2, 2**63 - 1, -2, [2, 0]),
    (-1, -(2**31), -2, [4, 2, 0]),
    (-7, -9, -2, [0]),
    (-7, 2**63 - 1, -1, [0]),
    (9, 1, -1, [4, 3, 2]),
    (3, 4, -1, []),
    (-9, 2**31 - 1, 2, [0, 2, 4]),
    (7, 2**63 - 1, 1, []),
]


# A size that is 0 for some sizes of the input is told.
@pytest.mark.parametrize(
    ("start", "end", "step", "want", "open_size"), [(*s, o) for o in (False, True) for s in SLICES if s[3] or not o]
)
def test_bounds_of_slices_beyond_the_ends(start, end, step, want, open_size):
    """As the standard bounds them and ONNX Runtime has them: NumPy takes nothing before the first element, and the largest integer is an end both ways."""
    from onnx import numpy_helper

    given = {"s": start, "e": end, "a": 0, "k": step}
    weights = [numpy_helper.from_array(np.array([v], np.int64), k) for k, v in given.items()]
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n" if open_size else 5])
    node = helper.make_node("Slice", ["x", *given], ["y"])
    graph = helper.make_graph([node], "g", [info], [helper.make_empty_tensor_value_info("y")], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    assert run_model(model, [np.arange(5, dtype=np.float32)])[0].tolist() == want


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_the_greatest_of_the_cells_of_boxes(scale):
    """MaxRoiPool, a loop over the elements of each cell: corners are rounded away from 0, and a cell outside of the picture is 0."""
    x = np.random.default_rng(5).standard_normal((2, 3, 6, 7)).astype(np.float32)
    boxes = [
        [0, 0, 0, 3, 3],
        [1, 1, 1, 5, 4],
        [0, 2.5, 1.5, 6.4, 5.6],
        [1, 5, 5, 2, 2],
        [0, 0, 0, 20, 20],
        [1, -3, -1, 2, 1],
    ]
    boxes = np.array(boxes, np.float32)
    node = helper.make_node("MaxRoiPool", ["x", "b"], ["y"], pooled_shape=[2, 3], spatial_scale=scale)
    infos = [helper.make_tensor_value_info(k, TensorProto.FLOAT, v.shape) for k, v in (("x", x), ("b", boxes))]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    got = run_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), [x, boxes])[0]
    want = np.zeros((len(boxes), 3, 2, 3), np.float32)
    for r, box in enumerate(boxes):
        x1, y1, x2, y2 = (int(np.copysign(np.floor(abs(v * scale) + 0.5), v)) for v in box[1:])
        for i in range(2):
            for j in range(3):
                high, wide = max(y2 - y1 + 1, 1) / 2, max(x2 - x1 + 1, 1) / 3
                rows = slice(max(int(np.floor(i * high)) + y1, 0), max(int(np.ceil((i + 1) * high)) + y1, 0))
                columns = slice(max(int(np.floor(j * wide)) + x1, 0), max(int(np.ceil((j + 1) * wide)) + x1, 0))
                cell = x[int(box[0]), :, rows, columns]
                if cell.size:
                    want[r, :, i, j] = cell.max((1, 2))
    assert (got == want).all() and (want == 0).any()


def test_a_ratio_that_is_not_used_may_be_an_input():
    """Exporters leave the ratio of a dropout among the inputs; in inference nothing is dropped."""
    infos = [helper.make_tensor_value_info(k, TensorProto.FLOAT, s) for k, s in (("x", ["n", 3]), ("ratio", []))]
    node = helper.make_node("Dropout", ["x", "ratio"], ["y", "mask"])
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info(k) for k in ("y", "mask")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    x = np.ones((2, 3), np.float32)
    y, mask = run_model(model, [x, np.float32(0.3)])
    assert (y == x).all() and mask.all() and mask.shape == x.shape


REGION = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}


@pytest.mark.parametrize(
    ("op", "attrs", "x", "floats", "counts", "wrong", "said"),
    [
        ("RoiAlign", REGION, (2, 3, 8, 9), [[[0, 0, 4, 4]]], [1], (2, -1, 10**9), "a picture of a box"),
        ("ReverseSequence", {"batch_axis": 1, "time_axis": 0}, (4, 1), [], [4], (5, -1), "a length of a sequence"),
    ],
)
def test_counts_that_leave_the_tensor_are_an_error_of_the_run(op, attrs, x, floats, counts, wrong, said):
    """Pictures of boxes read gigabytes behind the input, and the process ended."""
    arrays = [RNG.random(x, "float32"), *(np.array(a, "float32") for a in floats), np.array(counts)]
    names = [f"x{k}" for k in range(len(arrays))]
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(names, arrays)
    ]
    node = helper.make_node(op, names, ["y"], **attrs)
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    net = tec.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), target="llvm", cache=False)
    net.run(dict(zip(names, arrays)))
    for k in wrong:
        with pytest.raises(tec.ArgumentError, match=f"{said} is outside of 0 to"):
            net.run(dict(zip(names, [*arrays[:-1], np.array([k])])))


def test_a_box_of_a_picture_that_is_not_there_is_of_the_nearest():
    g = Graph("g")
    x, boxes, of = g.input("x", "float32", (2, 1, 4, 5)), g.input("b", "float32", (3, 4)), g.input("n", "int64", (3,))
    attrs = {"height": 2, "width": 2, "ratio_h": 1, "ratio_w": 1, "half": False, "scale": 1.0, "mode": "avg"}
    g.set_outputs(g.add("roi_align", [x, boxes, of], attrs), ["y"])
    net = tec.compile(g, target="llvm", cache=False)
    feeds = {"x": RNG.random((2, 1, 4, 5), "float32"), "b": np.float32([[0, 0, 3, 3]] * 3)}
    far, near = (np.asarray(net.run({**feeds, "n": np.array(n)})[0]) for n in ([-(10**9), 1, 10**9], [0, 1, 1]))
    np.testing.assert_array_equal(far, near)
