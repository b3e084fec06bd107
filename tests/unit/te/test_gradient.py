"""Gradients of te computations against finite differences, in float64."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tec import te

D = "float64"


def shape_of(t):
    return tuple(int(d) for d in t.shape)


def run(outs, feed):
    f = tec.build(te.create_schedule([o.op for o in outs]), [*feed, *outs], "llvm")
    arrays = [tec.nd.zeros(shape_of(o), o.dtype) for o in outs]
    f(*feed.values(), *arrays)
    return [a.numpy() for a in arrays]


def differences(out, feed, wanted, weights, step=1e-4):
    """Of sum(weights * out) by each element of `wanted`."""
    f = tec.build(te.create_schedule(out.op), [*feed, out], "llvm")
    got = tec.nd.zeros(shape_of(out), D)
    slopes = np.zeros_like(feed[wanted])
    for where in np.ndindex(*slopes.shape):
        for sign in (1, -1):
            moved = feed[wanted].copy()
            moved[where] += sign * step
            f(*{**feed, wanted: moved}.values(), got)
            slopes[where] += sign * float((got.numpy() * weights).sum()) / (2 * step)
    return slopes


A = te.placeholder((4, 5), D, name="A")
B = te.placeholder((5, 3), D, name="B")
X = te.placeholder((2, 9), D, name="X")
W = te.placeholder((3, 2, 3), D, name="W")
ROWS = te.placeholder((7,), "int32", name="rows")


def axis(n):
    return te.reduce_axis((0, n), "k")


def product():
    k = axis(5)
    return te.compute((4, 3), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")


def convolution(stride, dilation=1):
    c, r = axis(2), axis(3)
    n = (9 - 2 * dilation - 1) // stride + 1
    return te.compute(
        (3, n), lambda o, x: te.sum(X[c, x * stride + r * dilation] * W[o, c, r], axis=[c, r]), name="conv"
    )


def softmax():
    k, k2 = axis(5), axis(5)
    m = te.compute((4,), lambda i: te.max(A[i, k], axis=k), name="m")
    e = te.compute((4, 5), lambda i, j: te.exp(A[i, j] - m[i]), name="e")
    z = te.compute((4,), lambda i: te.sum(e[i, k2], axis=k2), name="z")
    return te.compute((4, 5), lambda i, j: e[i, j] / z[i], name="softmax")


def reduced(f, **options):
    k = axis(5)
    return te.compute((4,), lambda i: f(A[i, k] * 0.5, axis=k, **options), name="reduced")


def elementwise(f):
    return te.compute((4, 5), lambda i, j: f(A[i, j], A[3 - i, j]), name="f")


def padded():
    inside = lambda i, j: te.all(i >= 1, i < 5, j >= 1, j < 6)  # noqa: E731
    p = te.compute((6, 7), lambda i, j: te.if_then_else(inside(i, j), A[i - 1, j - 1], te.const(0.0, D)), name="pad")
    return te.compute((6, 6), lambda i, j: p[i, j] * p[i, j + 1], name="neighbours")


def where_and_init():
    k = axis(5)
    return te.compute(
        (4, 3), lambda i, j: te.sum(A[i, k] * B[te.min(k + j, 4), j], axis=k, where=k > i, init=A[i, j]), name="w"
    )


CASES = {
    "a product": (product, [A, B]),
    "a convolution": (lambda: convolution(1), [X, W]),
    "with strides": (lambda: convolution(2), [X, W]),
    "with more stride than window": (lambda: convolution(3), [X]),
    "with dilation": (lambda: convolution(2, 2), [X, W]),
    "softmax": (softmax, [A]),
    "a maximum": (lambda: reduced(te.max), [A]),
    "a minimum that carries NaN": (lambda: reduced(te.minimum), [A]),
    "products over an axis": (lambda: reduced(te.prod), [A]),
    "a reshape": (lambda: te.compute((20,), lambda i: A[i // 5, i % 5]), [A]),
    "a reshape into three": (lambda: te.compute((2, 2, 5), lambda a, b, c: A[a * 2 + b, c]), [A]),
    "a transpose with clipping": (lambda: te.compute((5, 4), lambda i, j: A[j, i] * 2 + te.max(A[j, i], 0.5)), [A]),
    "a diagonal": (lambda: te.compute((4,), lambda i: A[i, i] * A[i, 0]), [A]),
    "a gather": (lambda: te.compute((7, 5), lambda i, j: A[ROWS[i], j]), [A]),
    "padding": (padded, [A]),
    "where and init": (where_and_init, [A, B]),
    "exp and tanh": (lambda: elementwise(lambda a, b: te.tanh(a) * te.exp(b) + te.sigmoid(a * a)), [A]),
    "powers": (lambda: elementwise(lambda a, b: te.power(te.abs(a), b) + te.log(te.abs(a) + 1) / te.sqrt(b * b + 1)), [A]),
    "trigonometry": (lambda: elementwise(lambda a, b: te.sin(a) * te.cos(b) + te.atan2(a, b) + te.hypot(a, b) + te.tan(a / 3)), [A]),
    "inverses": (lambda: elementwise(lambda a, b: te.asin(a / 3) + te.acos(b / 3) + te.atan(a) + te.asinh(b) + te.acosh(a * a + 2)), [A]),
    "more functions": (
        lambda: elementwise(lambda a, b: te.erf(a) + te.exp2(b) + te.log2(a * a + 1) + te.log1p(b * b) + te.expm1(a) + te.rsqrt(b * b + 1)),
        [A],
    ),
    "choices": (lambda: elementwise(lambda a, b: te.select(a > b, a * b, te.minimum(a, b) + te.maximum(a, 0.1) * te.fmod(a, 0.7))), [A]),
    "rounding": (lambda: elementwise(lambda a, b: te.floor(a) * b), [A]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_against_finite_differences(name):
    make, wanted = CASES[name]
    out = make()
    rng = np.random.default_rng(0)
    used = [
        t for t in (A, B, X, W) if t in wanted or any(t is s.op.output(0) for s in te.create_schedule(out.op).stages)
    ]
    feed = {t: rng.uniform(-2, 2, shape_of(t)) for t in used}
    if name == "a gather":
        feed[ROWS] = np.array([0, 3, 3, 1, 2, 0, 0], "int32")
    weights = rng.uniform(-1, 1, shape_of(out))
    head = te.placeholder(out.shape, D, name="head")
    grads = te.gradient(out, wanted, head)
    got = run(grads, {**feed, head: weights})
    for t, g in zip(wanted, got):
        want = differences(out, feed, t, weights)
        np.testing.assert_allclose(g, want, rtol=2e-5, atol=2e-5 * max(1.0, np.abs(want).max()))


def test_a_products_gradients_are_products():
    head = te.placeholder((4, 3), D, name="head")
    dA, dB = te.gradient(product(), [A, B], head)
    text = str(tec.lower(te.create_schedule([dA.op, dB.op]), [A, B, head, dA, dB], simple_mode=True))
    assert text.count("for ") == 6 and "if" not in text


def test_of_a_convolution_no_more_is_summed_than_reads():
    k = axis(3)
    long = te.placeholder((1000,), D, name="long")
    taps = te.placeholder((3,), D, name="taps")
    out = te.compute((499,), lambda i: te.sum(long[i * 2 + k] * taps[k], axis=k), name="out")
    head = te.placeholder((499,), D, name="head")
    (g,) = te.gradient(out, long, head)
    assert [int(a.dom.extent) for a in g.op.reduce_axis] == [3]


def test_ties_share():
    out = reduced(te.max)
    head = te.placeholder((4,), D, name="head")
    x = np.array([[1.0, 3, 3, 0, 3]] * 4)
    (g,) = run(te.gradient(out, A, head), {A: x, head: np.ones(4)})
    np.testing.assert_allclose(g, 0.5 * np.array([[0, 1, 1, 0, 1]] * 4) / 3)


def test_without_a_head_the_jacobian():
    out = te.compute((4,), lambda i: A[i, i] * A[i, 0])
    (j,) = te.gradient(out, A)
    x = np.random.default_rng(1).standard_normal((4, 5))
    (got,) = run([j], {A: x})
    want = np.zeros((4, 4, 5))
    for i in range(4):
        want[i, i, i] += x[i, 0]
        want[i, i, 0] += x[i, i]
    np.testing.assert_allclose(got, want)


def test_what_it_does_not_depend_on_and_what_is_computed():
    doubled = te.compute((4, 5), lambda i, j: A[i, j] * 2, name="doubled")
    out = te.compute((4,), lambda i: doubled[i, 1] * doubled[i, 1])
    head = te.placeholder((4,), D, name="head")
    by_doubled, by_a, by_b = te.gradient(out, [doubled, A, B], head)
    x = np.random.default_rng(2).standard_normal((4, 5))
    got = run([by_doubled, by_a, by_b], {A: x, B: np.zeros((5, 3)), head: np.ones(4)})
    np.testing.assert_allclose(got[0][:, 1], 4 * x[:, 1])
    np.testing.assert_allclose(got[1], 2 * got[0])
    assert not got[2].any()


def test_float32_on_the_software_gpu():
    a, b = te.placeholder((32, 32), name="a"), te.placeholder((32, 32), name="b")
    k = axis(32)
    c = te.compute((32, 32), lambda i, j: te.sum(te.tanh(a[i, k]) * b[k, j], axis=k), name="c")
    head = te.placeholder((32, 32), name="head")
    (g,) = te.gradient(c, a, head)
    s = te.create_schedule(g.op)
    for st in s.stages:
        if isinstance(st.op, te.ComputeOp):
            s[st].bind(s[st].op.axis[0], te.thread_axis("blockIdx.x"))
            s[st].bind(s[st].op.axis[1], te.thread_axis("threadIdx.x"))
    dev = tec.rocm_emu("gfx942")
    rng = np.random.default_rng(3)
    x, y, h = (rng.standard_normal((32, 32)).astype("float32") for _ in range(3))
    out = tec.nd.zeros((32, 32), device=dev)
    tec.build(s, [a, b, head, g], "rocm -mcpu=gfx942")(*(tec.nd.array(v, dev) for v in (x, y, h)), out)
    np.testing.assert_allclose(out.numpy(), (h @ y.T) * (1 - np.tanh(x) ** 2), rtol=2e-5, atol=2e-5)


def test_mistakes():
    k = axis(7)
    numbers = te.compute((), lambda: te.sum(ROWS[k], axis=k), name="numbers")
    argmax = te.comm_reducer(
        lambda x, y: (te.select(x[1] >= y[1], x[0], y[0]), te.max(x[1], y[1])),
        lambda i, v: (te.const(-1, i), te.min_value(v)),
    )
    r = axis(5)
    where, best = te.compute((4,), lambda i: argmax((r.var, A[i, r]), axis=r), name="argmax")
    length = te.comm_reducer(te.hypot, lambda t: te.const(0.0, t), name="length")
    lengths = te.compute((4,), lambda i: length(A[i, r], axis=r), name="lengths")
    state = te.placeholder((3, 5), D, name="state")
    scan = te.scan(
        te.compute((1, 5), lambda t, i: A[0, i]),
        te.compute((3, 5), lambda t, i: state[t - 1, i] * 2),
        state,
        inputs=[A],
        name="scan",
    )
    head = te.placeholder((5,), D, name="head")
    for call, words in (
        (lambda: te.gradient(numbers, [ROWS]), "int32"),
        (lambda: te.gradient(product(), [A], head), "the head has shape (5), C (4, 3)"),
        (lambda: te.gradient(product(), ["A"]), "takes tensors"),
        (lambda: te.gradient(best, [A]), "reduces tuples"),
        (lambda: te.gradient(lengths, [A]), "reduces by length"),
        (lambda: te.gradient(scan, [A]), "no gradient through scan"),
    ):
        with pytest.raises(tec.ExprError) as caught:
            call()
        assert words in str(caught.value) and __file__ in str(caught.value)
