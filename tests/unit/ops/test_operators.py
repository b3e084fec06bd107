"""The te definition of every operator against NumPy, and type inference against what comes out."""

import numpy as np
import pytest

from tec.errors import ImportModelError
from tec.graph.graph import dtype_of
from tec.graph.operators import run_op
from tec.ops import OPS, TensorType, get_op

rng = np.random.default_rng(7)


def f(*shape, dtype="float32"):
    return rng.normal(size=shape).astype(dtype)


def run(name, *arrays, **attrs):
    op = get_op(name)
    types = [TensorType(dtype_of(a), a.shape) for a in arrays]
    outs = op.infer(types, attrs)
    got = run_op(op, attrs, arrays, types, outs)
    for g, t in zip(got, outs):
        assert (dtype_of(g), g.shape) == (t.dtype, t.shape)
    return got if len(got) > 1 else got[0]


X = f(3, 4)
P = np.abs(X) + 0.5
S = np.tanh(X)

UNARY = {
    "exp": (X, np.exp), "log": (P, np.log), "sqrt": (P, np.sqrt), "rsqrt": (P, lambda x: 1 / np.sqrt(x)), "sin": (X, np.sin),
    "cos": (X, np.cos), "tan": (X, np.tan), "asin": (S, np.arcsin), "acos": (S, np.arccos), "atan": (X, np.arctan),
    "sinh": (X, np.sinh), "cosh": (X, np.cosh), "tanh": (X, np.tanh), "asinh": (X, np.arcsinh), "acosh": (P + 1, np.arccosh),
    "atanh": (S, np.arctanh), "sigmoid": (X, lambda x: 1 / (1 + np.exp(-x))), "floor": (X, np.floor), "ceil": (X, np.ceil),
    "trunc": (X, np.trunc), "abs": (X, np.abs), "sign": (X, np.sign), "log1p": (P, np.log1p), "expm1": (X, np.expm1),
    "exp2": (X, np.exp2), "log2": (P, np.log2), "round_even": (X * 4, np.rint), "neg": (X, np.negative), "identity": (X, lambda x: x),
    "reciprocal": (P, lambda x: 1 / x), "square": (X, np.square), "relu": (X, lambda x: np.maximum(x, 0)),
    "hard_swish": (X, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)), "softplus": (X, lambda x: np.log1p(np.exp(x))),
    "softsign": (X, lambda x: x / (1 + np.abs(x))), "mish": (X, lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    "gelu_tanh": (X, lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
    "isnan": (np.array([1, np.nan], "f"), np.isnan), "isfinite": (np.array([1, np.inf], "f"), np.isfinite),
    "logical_not": (X > 0, np.logical_not), "bitwise_not": (np.arange(5, dtype="int16"), np.bitwise_not),
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    x, want = UNARY[name]
    np.testing.assert_allclose(run(name, x), want(x), rtol=2e-6, atol=1e-6)


ATTRS = {
    "leaky_relu": ({"alpha": 0.1}, lambda x: np.where(x < 0, 0.1 * x, x)),
    "thresholded_relu": ({"alpha": 0.5}, lambda x: np.where(x > 0.5, x, 0)),
    "elu": ({"alpha": 0.7}, lambda x: np.where(x < 0, 0.7 * np.expm1(x), x)),
    "celu": ({"alpha": 0.7}, lambda x: np.maximum(x, 0) + np.minimum(0, 0.7 * np.expm1(x / 0.7))),
    "selu": ({"alpha": 1.6, "gamma": 1.1}, lambda x: 1.1 * np.where(x > 0, x, 1.6 * np.expm1(x))),
    "hard_sigmoid": ({"alpha": 0.3, "beta": 0.4}, lambda x: np.clip(0.3 * x + 0.4, 0, 1)),
    "silu": ({"alpha": 1.5}, lambda x: x / (1 + np.exp(-1.5 * x))),
    "clip": ({"low": -0.5, "high": 0.5}, lambda x: np.clip(x, -0.5, 0.5)),
    "shrink": ({"lambd": 0.5, "bias": 0.2}, lambda x: np.where(x < -0.5, x + 0.2, np.where(x > 0.5, x - 0.2, 0))),
    "cast": ({"dtype": "int32"}, lambda x: x.astype("int32")),
    "bitcast": ({"dtype": "int32"}, lambda x: x.view("int32")),
    "isinf": ({"positive": True, "negative": False}, np.isposinf),
}


@pytest.mark.parametrize("name", ATTRS)
def test_with_attributes(name):
    attrs, want = ATTRS[name]
    np.testing.assert_allclose(run(name, X, **attrs), want(X), rtol=2e-6, atol=1e-6)


I, J = rng.integers(-9, 9, (2, 3, 4)).astype("int32"), rng.integers(1, 5, (3, 1)).astype("int32")
B = (rng.random((3, 4)) > 0.5, rng.random((4,)) > 0.5)
BINARY = {
    "add": (X, f(4), np.add), "subtract": (X, f(3, 1), np.subtract), "multiply": (f(2, 1, 4), X, np.multiply),
    "divide": (X, P, np.divide), "floor_mod": (I, J, np.mod), "trunc_mod": (I, J, np.fmod), "power": (P, f(4), np.power),
    "maximum": (X, f(4), np.maximum), "minimum": (X, f(4), np.minimum), "bitwise_and": (I, J, np.bitwise_and),
    "bitwise_or": (I, J, np.bitwise_or), "bitwise_xor": (I, J, np.bitwise_xor), "shift_left": (np.abs(I), J, np.left_shift),
    "shift_right": (I, J, np.right_shift), "prelu": (X, f(4), lambda a, b: np.where(a < 0, a * b, a)), "atan2": (X, P, np.arctan2),
    "equal": (I, J, np.equal), "not_equal": (I, J, np.not_equal), "less": (X, f(4), np.less), "less_equal": (I, J, np.less_equal),
    "greater": (X, f(4), np.greater), "greater_equal": (I, J, np.greater_equal), "logical_and": (*B, np.logical_and),
    "logical_or": (*B, np.logical_or), "logical_xor": (*B, np.logical_xor),
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    a, b, want = BINARY[name]
    np.testing.assert_allclose(run(name, a, b), want(a, b), rtol=3e-6, atol=1e-6)


def test_integers_divide_toward_zero():
    np.testing.assert_array_equal(run("divide", I, J), np.trunc(I / J))


def test_shifts_past_the_width():
    x, by = np.array([-8, 4, -1], "int8"), np.array([8, -1, 100], "int8")
    np.testing.assert_array_equal(run("shift_right", x, by), [-1, 0, -1])
    np.testing.assert_array_equal(run("shift_left", x, by), [0, 0, 0])


def test_where_and_broadcast():
    np.testing.assert_array_equal(run("where", X > 0, X, f(4) * 0), np.where(X > 0, X, 0))
    np.testing.assert_array_equal(run("broadcast_to", f(1, 4) * 0 + 2, shape=(3, 4)), np.full((3, 4), 2))


@pytest.mark.parametrize(
    "old,new", [((2, 3, 4), (6, 4)), ((6, 4), (2, 3, 4)), ((4, 6), (3, 8)), ((1, 12), (12,)), ((2, 1, 5), (1, 10, 1)), ((), (1, 1)),
                ((0, 3), (3, 0)), ((2, 3, 4, 5), (2, 12, 5)), ((8, 9), (6, 12))],
)  # fmt: skip
def test_reshape(old, new):
    x = f(*old)
    np.testing.assert_array_equal(run("reshape", x, shape=new), x.reshape(new))


def test_transpose_slice_concat_tile():
    x = f(2, 3, 4)
    np.testing.assert_array_equal(run("transpose", x, perm=(2, 0, 1)), x.transpose(2, 0, 1))
    np.testing.assert_array_equal(
        run("slice", x, starts=(1, 2, 3), steps=(1, -1, -2), sizes=(1, 3, 2)), x[1:2, ::-1, 3::-2]
    )
    np.testing.assert_array_equal(
        run("concat", x, x[:, :1], x[:, :2], axis=1), np.concatenate([x, x[:, :1], x[:, :2]], 1)
    )
    np.testing.assert_array_equal(run("tile", x, repeats=(1, 2, 3)), np.tile(x, (1, 2, 3)))


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pad(mode):
    x = f(3, 4)
    want = np.pad(x, ((1, 2), (2, 1)), mode=mode, **({"constant_values": 1.5} if mode == "constant" else {}))
    np.testing.assert_array_equal(run("pad", x, before=(1, 2), after=(2, 1), mode=mode, value=1.5), want)


def test_cropping_by_negative_padding():
    x = f(4, 5)
    np.testing.assert_array_equal(run("pad", x, before=(-1, 0), after=(1, -2)), np.pad(x[1:, :3], ((0, 1), (0, 0))))


def test_gathers():
    x = f(4, 5, 6)
    i = np.array([[0, -1], [3, 2]])
    np.testing.assert_array_equal(run("gather", x, i, axis=1), np.take(x, i, 1))
    e = rng.integers(-5, 5, (4, 2, 6))
    np.testing.assert_array_equal(run("gather_elements", x, e, axis=1), np.take_along_axis(x, e % 5, 1))
    n = np.array([[[0, 1]], [[1, -1]], [[2, 0]], [[3, 3]]])
    np.testing.assert_array_equal(run("gather_nd", x, n, batch_dims=0), x[n[..., 0], n[..., 1]])
    np.testing.assert_array_equal(
        run("gather_nd", x, n[..., :1], batch_dims=1), np.stack([x[k][n[k, :, 0]] for k in range(4)])
    )


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatters(reduction):
    x, index, update = f(4, 5), rng.integers(0, 5, (3, 4)), f(3, 4)
    apply = {"none": lambda a, b: b, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction]
    want = x.copy()
    for i, j in np.ndindex(3, 4):
        want[i, index[i, j]] = apply(want[i, index[i, j]], update[i, j])
    np.testing.assert_allclose(run("scatter_elements", x, index, update, axis=1, reduction=reduction), want, rtol=1e-5)
    points, rows = np.array([[1], [3], [1]]), f(3, 5)
    want = x.copy()
    for p, r in zip(points[:, 0], rows):
        want[p] = apply(want[p], r)
    np.testing.assert_allclose(run("scatter_nd", x, points, rows, reduction=reduction), want, rtol=1e-5)


def test_one_hot_trilu_reverse():
    np.testing.assert_array_equal(
        run("one_hot", np.array([1, -1]), np.array([0, 5], "f"), depth=3, axis=0), [[0, 0], [5, 0], [0, 5]]
    )
    x = f(2, 4, 5)
    np.testing.assert_array_equal(run("trilu", x, k=1, upper=True), np.triu(x, 1))
    np.testing.assert_array_equal(run("trilu", x, k=-1, upper=False), np.tril(x, -1))
    y = f(4, 2, 3)
    want = y.copy()
    want[:3, 0] = y[2::-1, 0]
    np.testing.assert_array_equal(run("reverse_sequence", y, np.array([3, 1]), batch_axis=1, time_axis=0), want)


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("axes", [(0,), (1, 2), (0, 1, 2), ()])
def test_reductions(axes, keepdims):
    x = f(3, 4, 5)
    kw = {"axis": axes, "keepdims": keepdims}
    for name, want in {
        "sum": np.sum(x, **kw), "mean": np.mean(x, **kw) if axes else x, "max": np.max(x, **kw), "min": np.min(x, **kw),
        "prod": np.prod(x, **kw), "sum_square": np.sum(x * x, **kw), "sum_abs": np.sum(np.abs(x), **kw),
    }.items():  # fmt: skip
        np.testing.assert_allclose(run(f"reduce_{name}", x, axes=axes, keepdims=keepdims), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(run("reduce_any", x > 1, axes=axes, keepdims=keepdims), np.any(x > 1, **kw))
    np.testing.assert_array_equal(run("reduce_all", x > -1, axes=axes, keepdims=keepdims), np.all(x > -1, **kw))


def test_half_precision_sums_in_single():
    x = np.full((4096,), 1.0, "float16")
    assert run("reduce_sum", x, axes=(0,), keepdims=False) == 4096


@pytest.mark.parametrize("last", [False, True])
def test_arg(last):
    x = rng.integers(0, 3, (4, 7)).astype("float32")
    flip = x[:, ::-1]
    for name, by in (("argmax", np.argmax), ("argmin", np.argmin)):
        want = 6 - by(flip, 1) if last else by(x, 1)
        np.testing.assert_array_equal(run(name, x, axis=1, keepdims=False, last=last), want)


def test_argmax_of_the_lowest_values():
    x = np.full((3,), -np.inf, "f")
    assert run("argmax", x, axis=0, keepdims=False, last=False) == 0
    assert run("argmin", -x, axis=0, keepdims=False, last=True) == 2


def test_running_sums_and_topk():
    x = f(3, 6)
    np.testing.assert_allclose(run("cumsum", x, axis=1), np.cumsum(x, 1), rtol=1e-5, atol=1e-6)
    back = np.cumsum(x[:, ::-1], 1)[:, ::-1] - x
    np.testing.assert_allclose(run("cumsum", x, axis=1, reverse=True, exclusive=True), back, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(run("cumprod", x, axis=0), np.cumprod(x, 0), rtol=1e-5)
    y = rng.integers(0, 4, (2, 9)).astype("float32")
    values, index = run("topk", y, k=5, axis=1, largest=True)
    order = np.argsort(-y, 1, kind="stable")[:, :5]
    np.testing.assert_array_equal(index, order)
    np.testing.assert_array_equal(values, np.take_along_axis(y, order, 1))


def test_matrix_products():
    a, b = f(2, 1, 3, 4), f(5, 4, 6)
    np.testing.assert_allclose(run("matmul", a, b), a @ b, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        run("matmul", f(4, 3) * 0 + 1, b, transpose_a=True), np.ones((3, 4), "f") @ b, rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        run("matmul", a, b.transpose(0, 2, 1).copy(), transpose_b=True), a @ b, rtol=1e-5, atol=1e-6
    )
    p, q = rng.integers(-128, 127, (3, 70)).astype("int8"), rng.integers(0, 255, (70, 2)).astype("uint8")
    np.testing.assert_array_equal(run("matmul", p, q), p.astype("int32") @ q.astype("int32"))
    for equation, arrays in {"bij,bjk->bik": (f(2, 3, 4), f(2, 4, 5)), "...ij->...i": (f(2, 3, 4),), "ij->ji": (X,), "ii->i": (f(4, 4),),
                             "i,j": (f(3), f(4)), "ij,ij->": (X, X), "...i,...i": (f(2, 1, 3), f(4, 3))}.items():  # fmt: skip
        np.testing.assert_allclose(
            run("einsum", *arrays, equation=equation), np.einsum(equation, *arrays), rtol=1e-4, atol=1e-5
        )


def conv_reference(x, w, strides, dilations, before, after, groups):
    x = np.pad(x, [(0, 0), (0, 0), *zip(before, after)])
    out = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], w.shape[2:], strides, dilations)]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    per, c = w.shape[0] // groups, w.shape[1]
    for o in range(w.shape[0]):
        g = o // per
        for place in np.ndindex(*out):
            window = tuple(
                slice(p * s, p * s + d * (k - 1) + 1, d) for p, s, d, k in zip(place, strides, dilations, w.shape[2:])
            )
            y[(slice(None), o, *place)] = (x[(slice(None), slice(g * c, g * c + c), *window)] * w[o]).sum(
                tuple(range(1, x.ndim))
            )
    return y


@pytest.mark.parametrize(
    "shape,weights,strides,dilations,before,after,groups",
    [((2, 3, 7, 8), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1), ((1, 4, 9, 9), (4, 1, 3, 3), (2, 2), (1, 1), (0, 1), (1, 0), 4),
     ((1, 6, 8, 7), (4, 3, 2, 3), (1, 2), (2, 1), (0, 0), (0, 0), 2), ((2, 3, 11), (5, 3, 4), (3,), (2,), (2,), (1,), 1),
     ((1, 2, 4, 5, 6), (3, 2, 2, 2, 2), (1, 1, 2), (1, 1, 1), (0, 1, 0), (1, 0, 0), 1), ((1, 4, 5, 5), (8, 1, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 4)],
)  # fmt: skip
def test_convolution_and_its_transpose(shape, weights, strides, dilations, before, after, groups):
    x, w = f(*shape), f(*weights)
    attrs = {"strides": strides, "dilations": dilations, "before": before, "after": after, "groups": groups}
    y = run("conv", x, w, **attrs)
    np.testing.assert_allclose(y, conv_reference(x, w, **attrs), rtol=1e-4, atol=1e-5)
    # <conv(x), u> = <x, conv_transpose(u)>: the transpose is what it says.
    u = f(*y.shape)
    back = run(
        "conv_transpose", u, w, strides=strides, dilations=dilations, before=before, out_space=shape[2:], groups=groups
    )
    np.testing.assert_allclose((y * u).sum(dtype="f8"), (x * back).sum(dtype="f8"), rtol=1e-3, atol=1e-3)


def test_pools():
    x = f(1, 2, 6, 7)
    attrs = {
        "kernel": (3, 2),
        "strides": (2, 2),
        "dilations": (1, 1),
        "before": (1, 0),
        "after": (1, 1),
        "out_space": (3, 4),
    }
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (0, 1)], constant_values=-np.inf)
    windows = np.array([[padded[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 2] for j in range(4)] for i in range(3)])
    want = windows.max((-2, -1)).transpose(2, 3, 0, 1)
    np.testing.assert_array_equal(run("max_pool", x, **attrs), want)
    values, index = run("max_pool", x, **attrs, indices=True)
    np.testing.assert_array_equal(values, want)
    np.testing.assert_array_equal(x.reshape(-1)[index], want)
    inside = np.isfinite(windows)
    total = np.where(inside, windows, 0).sum((-2, -1)).transpose(2, 3, 0, 1)
    count = inside.sum((-2, -1)).transpose(2, 3, 0, 1)
    np.testing.assert_allclose(run("avg_pool", x, **attrs), total / count, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run("avg_pool", x, **attrs, include_pad=True), total / 6, rtol=1e-5, atol=1e-6)
    square = np.sqrt(np.where(inside, windows, 0).__pow__(2).sum((-2, -1))).transpose(2, 3, 0, 1)
    np.testing.assert_allclose(run("lp_pool", x, **attrs, p=2), square, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_a_window_of_padding_alone_has_the_mean_0(dtype):
    """As in TVM; of floats it was NaN. A dilated window may pass an input of one element on both sides."""
    lead = {"strides": (1,), "dilations": (1,), "before": (3,), "after": (3,), "out_space": (6,)}
    x = np.array([[[4, 6]]], dtype)
    np.testing.assert_array_equal(run("avg_pool", x, kernel=(3,), **lead), [[[0, 4, 5, 5, 6, 0]]])
    apart = {"kernel": (2,), "strides": (1,), "dilations": (2,), "before": (1,), "after": (1,), "out_space": (1,)}
    assert run("avg_pool", x[..., :1], **apart).tolist() == [[[0]]]


def test_normalizations():
    x = f(3, 4, 5)
    e = np.exp(x - x.max((1, 2), keepdims=True))
    np.testing.assert_allclose(run("softmax", x, axes=(1, 2)), e / e.sum((1, 2), keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(
        run("log_softmax", x, axes=(1, 2)), np.log(e / e.sum((1, 2), keepdims=True)), rtol=1e-4, atol=1e-5
    )
    big = np.array([[1e30, 1e30]], "f")
    np.testing.assert_allclose(run("softmax", big, axes=(1,)), [[0.5, 0.5]])
    y, mean, inverse = run("layer_norm", x, axis=1, epsilon=1e-5)
    m, v = x.mean((1, 2), keepdims=True), x.var((1, 2), keepdims=True)
    np.testing.assert_allclose(y, (x - m) / np.sqrt(v + 1e-5), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mean, m, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(inverse, 1 / np.sqrt(v + 1e-5), rtol=1e-5)
    shifted, _, _ = run("layer_norm", x + 1000, axis=1, epsilon=1e-5)
    np.testing.assert_allclose(shifted, y, atol=1e-2)
    c = f(1, 6, 2)
    total = np.stack([(c[:, max(k - 1, 0) : k + 2] ** 2).sum(1) for k in range(6)], 1)
    np.testing.assert_allclose(
        run("lrn", c, size=3, alpha=0.3, beta=0.75, bias=2.0), c / (2 + 0.1 * total) ** 0.75, rtol=1e-5
    )


def test_resample_and_unpool():
    x = f(2, 5)
    index, weight = np.array([[0, 1, 4], [1, 2, 4]], "int32"), np.array([[0.5, 1, 0.25], [0.5, 0, 0.75]], "f")
    want = x[:, index[0]] * weight[0] + x[:, index[1]] * weight[1]
    np.testing.assert_allclose(run("resample", x, index, weight, axis=1), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(run("resample", x, index[:1], axis=1, nearest=True), x[:, index[0]])
    values, places = np.array([[[5.0, 7.0]]], "f"), np.array([[[1, 3]]])
    np.testing.assert_array_equal(run("max_unpool", values, places, shape=(1, 1, 5)), [[[0, 5, 0, 7, 0]]])


BAD = {
    "broadcast": ("add", [(3,), (4,)], {}), "reshape": ("reshape", [(3, 4)], {"shape": (5, 2)}), "perm": ("transpose", [(3, 4)], {"perm": (0, 0)}),
    "axis": ("softmax", [(3, 4)], {"axes": (2,)}), "matmul": ("matmul", [(3, 4), (5, 6)], {}), "concat": ("concat", [(3, 4), (2, 5)], {"axis": 0}),
    "conv channels": ("conv", [(1, 3, 5, 5), (4, 2, 3, 3)], {"strides": (1, 1), "dilations": (1, 1), "before": (0, 0), "after": (0, 0), "groups": 1}),
    "conv window": ("conv", [(1, 3, 2, 2), (4, 3, 3, 3)], {"strides": (1, 1), "dilations": (1, 1), "before": (0, 0), "after": (0, 0), "groups": 1}),
    "pad mode": ("pad", [(3,)], {"before": (1,), "after": (1,), "mode": "mirror"}), "slice": ("slice", [(3,)], {"starts": (2,), "steps": (1,), "sizes": (2,)}),
    "topk": ("topk", [(3,)], {"k": 4, "axis": 0}), "einsum": ("einsum", [(3, 4)], {"equation": "i->i"}), "axis twice": ("reduce_sum", [(3, 4)], {"axes": (0, 0)}),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_inference_refuses(case):
    name, shapes, attrs = BAD[case]
    with pytest.raises(ImportModelError):
        get_op(name).infer([TensorType("float32", s) for s in shapes], attrs)


def test_types_must_agree():
    with pytest.raises(ImportModelError, match="different types"):
        get_op("add").infer([TensorType("float32", (3,)), TensorType("int32", (3,))], {})


def test_every_operator_is_documented_or_named_for_what_it_does():
    for op in OPS.values():
        assert op.kind in ("elementwise", "broadcast", "injective", "reduction", "complex", "opaque")


def test_unknown_operator():
    with pytest.raises(ImportModelError, match="unknown operator"):
        get_op("frobnicate")
