"""A network that has diverged looks so: NaN goes through every operator that NumPy's meaning of it lets through."""

import numpy as np
import onnx.helper as oh
import pytest
from onnx import TensorProto as T
from onnx import numpy_helper

import tec
from tests.thinned import thinned_rows

NAN, INF = np.nan, np.inf
X = np.array(
    [[1, NAN, 3, NAN], [NAN, 1, 2, 0], [-INF, INF, NAN, 0], [4, -2, 0.5, -0.25], [INF, INF, -INF, 1], [NAN] * 4]
)
Z = X[::-1, ::-1]
DEVICES = {
    "llvm": lambda: None,
    "llvm -mcpu=x86-64-v3": lambda: None,
    "rocm -mcpu=gfx942": lambda: tec.rocm_emu("gfx942"),
    "rocm -mcpu=gfx1100": lambda: tec.rocm_emu("gfx1100"),
    "rocm -mcpu=gfx1201": lambda: tec.rocm_emu("gfx1201"),
}


def windows(x):
    """Rows of each window of two columns: (rows, 3, 2)."""
    return np.stack([x[:, :-1], x[:, 1:]], -1)


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def largest_two(x):
    """The two largest of each row, NaN above all."""
    return np.sort(x, axis=1)[:, ::-1][:, :2]


def last(f):
    return lambda x, z: x.shape[1] - 1 - f(x[:, ::-1], axis=1)


# name: (operator, inputs, attributes, its meaning in NumPy)
CASES = {
    "relu": ("Relu", "x", {}, lambda x, z: np.maximum(x, 0)),
    "clip": ("Clip", "x low high", {}, lambda x, z: np.clip(x, -0.5, 1)),
    "clip_low": ("Clip", "x low", {}, lambda x, z: np.maximum(x, -0.5)),
    "max": ("Max", "x z", {}, np.maximum),
    "min": ("Min", "x z", {}, np.minimum),
    "hard_sigmoid": ("HardSigmoid", "x", {"alpha": 0.25}, lambda x, z: np.clip(x * 0.25 + 0.5, 0, 1)),
    "hard_swish": ("HardSwish", "x", {}, lambda x, z: x * np.clip(x / 6 + 0.5, 0, 1)),
    "leaky": ("LeakyRelu", "x", {"alpha": 0.5}, lambda x, z: np.where(x < 0, x / 2, x)),
    "elu": ("Elu", "x", {}, lambda x, z: np.where(x < 0, np.expm1(x), x)),
    "celu": ("Celu", "x", {}, lambda x, z: np.where(x < 0, np.expm1(x), x)),
    "selu": ("Selu", "x", {"alpha": 1.0, "gamma": 2.0}, lambda x, z: 2 * np.where(x < 0, np.expm1(x), x)),
    "thresholded": ("ThresholdedRelu", "x", {"alpha": 0.5}, lambda x, z: np.where(x <= 0.5, 0, x)),
    "shrink": ("Shrink", "x", {"lambd": 0.5}, lambda x, z: np.where(np.abs(x) <= 0.5, 0, x)),
    "softplus": ("Softplus", "x", {}, lambda x, z: np.logaddexp(0, x)),
    "mish": ("Mish", "x", {}, lambda x, z: x * np.tanh(np.logaddexp(0, x))),
    "sigmoid": ("Sigmoid", "x", {}, lambda x, z: 1 / (1 + np.exp(-x))),
    "tanh": ("Tanh", "x", {}, lambda x, z: np.tanh(x)),
    "sign": ("Sign", "x", {}, lambda x, z: np.sign(x)),
    "reduce_max": ("ReduceMax", "x", {"axes": [1], "keepdims": 0}, lambda x, z: x.max(1)),
    "reduce_min": ("ReduceMin", "x", {"axes": [0], "keepdims": 0}, lambda x, z: x.min(0)),
    "reduce_l2": ("ReduceL2", "x", {"axes": [1], "keepdims": 0}, lambda x, z: np.sqrt((x * x).sum(1))),
    "argmax": ("ArgMax", "x", {"axis": 1, "keepdims": 0}, lambda x, z: x.argmax(1)),
    "argmin": ("ArgMin", "x", {"axis": 1, "keepdims": 0}, lambda x, z: x.argmin(1)),
    "argmax_last": ("ArgMax", "x", {"axis": 1, "keepdims": 0, "select_last_index": 1}, last(np.argmax)),
    "argmin_last": ("ArgMin", "x", {"axis": 1, "keepdims": 0, "select_last_index": 1}, last(np.argmin)),
    "softmax": ("Softmax", "x", {}, lambda x, z: softmax(x)),
    "log_softmax": ("LogSoftmax", "x", {}, lambda x, z: np.log(softmax(x))),
    "topk": ("TopK", "x two", {}, lambda x, z: largest_two(x)),
    "max_pool": ("MaxPool", "picture", {"kernel_shape": [2]}, lambda x, z: windows(x).max(-1)[:, None]),
    "average_pool": ("AveragePool", "picture", {"kernel_shape": [2]}, lambda x, z: windows(x).mean(-1)[:, None]),
    "lp_pool": ("LpPool", "picture", {"kernel_shape": [2]}, lambda x, z: np.sqrt((windows(x) ** 2).sum(-1))[:, None]),
}
SECOND = {"max_pool": lambda x: (windows(x).argmax(-1) + np.arange(3) + 4 * np.arange(6)[:, None])[:, None]}


def model(dtype):
    kind = {"float32": T.FLOAT, "float16": T.FLOAT16, "float64": T.DOUBLE}[dtype]
    nodes = [oh.make_node("Reshape", ["x", "shape"], ["picture"])]
    outputs = []
    for name, (op, inputs, attrs, _) in CASES.items():
        made = [name, name + "_index"] if op in ("TopK", "MaxPool") else [name]
        nodes.append(oh.make_node(op, inputs.split(), made, **attrs))
        outputs.append((name, T.INT64 if op.startswith("Arg") else kind))
    outputs.append(("max_pool_index", T.INT64))
    constants = {
        "shape": np.array([6, 1, 4]),
        "two": np.array([2]),
        "low": np.array(-0.5, dtype),
        "high": np.array(1, dtype),
    }
    graph = oh.make_graph(
        nodes,
        "g",
        [oh.make_tensor_value_info(n, kind, X.shape) for n in "xz"],
        [oh.make_tensor_value_info(n, t, None) for n, t in outputs],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=9)


@thinned_rows(  # gfx1201's minimum and maximum of NaN are gfx1100's
    4,
    ("target", "dtype"),
    [*((t, "float32") for t in DEVICES), ("llvm", "float16"), ("llvm", "float64")],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_nan_goes_through(target, dtype):
    x, z = X.astype(dtype), Z.astype(dtype)
    net = tec.compile(model(dtype), target=target)
    got = dict(zip([*CASES, "max_pool_index"], net.run({"x": x, "z": z}, device=DEVICES[target]())))
    tolerance = 2e-3 if dtype == "float16" else 1e-5
    wrong = []
    for name, (_, _, _, meaning) in CASES.items():
        want = meaning(x.astype("float64"), z.astype("float64"))
        if not np.allclose(got[name].astype("float64"), want, rtol=tolerance, atol=tolerance, equal_nan=True):
            wrong.append((name, got[name].tolist(), want.tolist()))
    assert not wrong
    np.testing.assert_array_equal(got["max_pool_index"], SECOND["max_pool"](x))


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx942"])
def test_pooling_in_a_networks_own_layouts(target):
    """Behind a convolution, pictures are blocked by channels, or lie channels last."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((16, 16, 1, 1)).astype(np.float32)
    nodes = [
        oh.make_node("Conv", ["x", "w"], ["c"]),
        oh.make_node("Relu", ["c"], ["r"]),
        oh.make_node("MaxPool", ["r"], ["m"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        oh.make_node("Conv", ["m", "w"], ["y"]),
        oh.make_node("GlobalMaxPool", ["y"], ["g"]),
    ]
    graph = oh.make_graph(
        nodes,
        "g",
        [oh.make_tensor_value_info("x", T.FLOAT, [1, 16, 8, 8])],
        [oh.make_tensor_value_info(n, T.FLOAT, None) for n in ("y", "g")],
        [numpy_helper.from_array(w, "w")],
    )
    net = tec.compile(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=9), target=target)
    x = rng.standard_normal((1, 16, 8, 8)).astype(np.float32)
    x[0, 3, 5, 5] = NAN
    y, g = net.run({"x": x}, device=DEVICES[target]())
    want = np.zeros((4, 4), bool)
    want[2:4, 2:4] = True  # the windows that hold row 5 and column 5
    np.testing.assert_array_equal(np.isnan(y), np.broadcast_to(want, y.shape))
    assert np.isnan(g).all()
