"""Operators of `topi` against NumPy: Fourier transforms, fixed-point numbers, gradients with a name of their own, sparse sums, small helpers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import tec
from tec import te, topi

RNG = np.random.default_rng(6107100)


def run(outs: Any, inputs: dict[Any, Any]) -> Any:
    many = isinstance(outs, (list, tuple))
    found = list(outs) if many else [outs]
    s = te.create_schedule([t.op for t in found])
    results = [np.zeros([int(n) for n in t.shape], t.dtype) for t in found]
    tec.build(s, [*inputs, *found], "llvm")(*[np.ascontiguousarray(v) for v in inputs.values()], *results)
    return results if many else results[0]


def given(shape: Any, dtype: str = "float32") -> tuple[Any, Any]:
    t = te.placeholder(shape, dtype, name="x")
    values = RNG.standard_normal(shape) if dtype.startswith("float") else RNG.integers(-100, 100, shape)
    return t, values.astype(dtype)


@pytest.mark.parametrize("inverse", [False, True])
def test_dft(inverse: bool) -> None:
    (a, x), (b, y) = given((3, 12), "float64"), given((3, 12), "float64")
    re, im = run(topi.dft(a, b, inverse), {a: x, b: y})
    want = (np.fft.ifft if inverse else np.fft.fft)(x + 1j * y)
    np.testing.assert_allclose(re + 1j * im, want, atol=1e-12)


@pytest.mark.parametrize("onesided,normalized", [(True, False), (False, True)])
def test_stft(onesided: bool, normalized: bool) -> None:
    (a, x), (w, window) = given((2, 40)), given((8,))
    got = run(topi.stft(a, 8, 5, 8, w, normalized, onesided), {a: x, w: window})
    frames = np.stack([x[:, s : s + 8] * window for s in range(0, 33, 5)], 1)
    want = np.fft.fft(frames)[..., : 5 if onesided else 8].transpose(0, 2, 1) / (8**0.5 if normalized else 1)
    np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], want, atol=1e-5)


def test_fixed_point() -> None:
    a, x = given((5, 4), "int32")
    want = np.floor(x.astype(np.float64) * 1518500250 * 2.0 ** (3 - 31) + 0.5).astype(np.int32)
    np.testing.assert_array_equal(run(topi.fixed_point_multiply(a, 1518500250, 3), {a: x}), want)
    want = np.floor(x.astype(np.float64) * 1518500250 * 2.0 ** (-2 - 31) + 0.5).astype(np.int32)
    np.testing.assert_array_equal(run(topi.fixed_point_multiply(a, 1518500250, -2), {a: x}), want)
    m, left, right = (te.placeholder((4,), "int32", name=n) for n in ("m", "l", "r"))
    values = {
        a: x, m: np.int32([1 << 30, 1 << 29, 3 << 28, 7]), left: np.int32([0, 1, 2, 3]), right: np.int32([1, 0, 2, 0]),
    }  # fmt: skip
    got = run(topi.fixed_point_multiply_per_axis(a, m, left, right, 1, 1, [1]), values)
    scale = values[m].astype(np.float64) * 2.0 ** (values[left] - values[right] - 31)
    np.testing.assert_array_equal(got, np.floor(x * scale + 0.5).astype(np.int32))


@pytest.mark.parametrize("dtype", ["disable", "int8", "uint8", "int32"])
def test_simulated_quantisation(dtype: str) -> None:
    a, x = given((6, 3))
    code = te.var("code", "int32")
    s, z = te.placeholder((3,), name="s"), te.placeholder((1,), "int32", name="z")
    scale, zero = np.float32([0.01, 0.1, 0.5]), np.int32([7])
    q, d = topi.nn.simulated_quantize(a, code, s, z), topi.nn.simulated_dequantize(a, code, s, z)
    f = tec.build(te.create_schedule([q.op, d.op]), [a, s, z, code, q, d], "llvm")
    got, back = np.zeros_like(x), np.zeros_like(x)
    f(x, scale, zero, topi.nn.SQNN_DTYPE_TO_CODE[dtype], got, back)
    if dtype == "disable":
        np.testing.assert_array_equal(got, x)
        np.testing.assert_array_equal(back, x)
        return
    info = np.iinfo(dtype)
    np.testing.assert_allclose(got, np.clip(np.round(x / scale) + 7, info.min, info.max), atol=1e-6)
    np.testing.assert_allclose(back, (x - 7) * scale, rtol=1e-6)


def test_products_of_signs() -> None:
    (a, x), (b, y) = given((3, 64)), given((5, 64))
    words = topi.nn.binary_dense(topi.nn.binarize_pack(a), topi.nn.binarize_pack(b))
    np.testing.assert_array_equal(run(words, {a: x, b: y}), np.where(x >= 0, 1, -1) @ np.where(y >= 0, 1, -1).T)
    with pytest.raises(tec.ExprError, match="32 elements"):
        topi.nn.binarize_pack(te.placeholder((3, 40)))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    "kernel,stride,padding,kind,count",
    [([2, 2], [2, 2], [0, 0, 0, 0], "max", True), ([3, 3], [2, 1], [1, 1, 1, 1], "max", True), ([3, 2], [2, 2], [1, 0, 1, 1], "avg", False),
     ([3, 3], [1, 2], [1, 1, 1, 1], "avg", True)],
)  # fmt: skip
def test_pool_grad(kernel: Any, stride: Any, padding: Any, kind: str, count: bool, layout: str) -> None:
    x = RNG.integers(0, 6, (2, 3, 6, 7)).astype(np.float32)  # with equal elements
    (kh, kw), (sh, sw), (t, l, b, r) = kernel, stride, padding
    oh, ow = (6 + t + b - kh) // sh + 1, (7 + l + r - kw) // sw + 1
    g = RNG.standard_normal((2, 3, oh, ow)).astype(np.float32)
    want = np.zeros_like(x)
    for n, c, i, j in np.ndindex(g.shape):
        rows, columns = (
            range(max(i * sh - t, 0), min(i * sh - t + kh, 6)),
            range(max(j * sw - l, 0), min(j * sw - l + kw, 7)),
        )
        places = [(p, q) for p in rows for q in columns]
        if kind == "max":
            want[n, c][max(places, key=lambda at: x[n, c][at])] += g[n, c, i, j]
        else:
            for at in places:
                want[n, c][at] += g[n, c, i, j] / (kh * kw if count else len(places))
    order = (0, 1, 2, 3) if layout == "NCHW" else (0, 2, 3, 1)
    X, G = (np.ascontiguousarray(v.transpose(order)) for v in (x, g))
    a, h = te.placeholder(X.shape, name="x"), te.placeholder(G.shape, name="g")
    made = topi.nn.pool_grad(h, a, kernel, stride, padding, kind, False, layout, count)
    np.testing.assert_allclose(run(made, {h: G, a: X}), want.transpose(order), atol=1e-5)


@pytest.mark.parametrize("stride,padding", [(1, "SAME"), ((2, 1), [1, 0]), (2, 0)])
def test_depthwise_gradients(stride: Any, padding: Any) -> None:
    """Both gradients follow from the sum of the output times its gradient: a finite difference of a linear function is exact."""
    (a, x), (f, w) = given((2, 6, 5, 3), "float64"), given((3, 2, 3, 2), "float64")
    sh, sw = (stride, stride) if isinstance(stride, int) else stride
    pads = {"SAME": (1, 1, 1, 0)}.get(padding) if isinstance(padding, str) else None
    top, left, bottom, right = pads or ((padding,) * 4 if isinstance(padding, int) else (*padding, *padding))

    def forward(x: Any, w: Any) -> Any:
        p = np.pad(x, [(0, 0), (top, bottom), (left, right), (0, 0)])
        oh, ow = (p.shape[1] - 3) // sh + 1, (p.shape[2] - 2) // sw + 1
        y = np.zeros((2, oh, ow, 3, 2))
        for i, j in np.ndindex(3, 2):
            y += p[:, i : i + (oh - 1) * sh + 1 : sh, j : j + (ow - 1) * sw + 1 : sw, :, None] * w[i, j]
        return y.reshape(2, oh, ow, 6)

    shape = forward(x, w).shape
    g, head = te.placeholder(shape, "float64", name="g"), RNG.standard_normal(shape)
    by_input = topi.nn.depthwise_conv2d_backward_input_nhwc(f, g, shape, x.shape, stride, padding)
    by_weight = topi.nn.depthwise_conv2d_backward_weight_nhwc(a, g, shape, w.shape, stride, padding)
    dx, dw = run([by_input, by_weight], {f: w, a: x, g: head})
    ex, ew = RNG.standard_normal(x.shape), RNG.standard_normal(w.shape)
    np.testing.assert_allclose((dx * ex).sum(), (forward(ex, w) * head).sum(), rtol=1e-10)
    np.testing.assert_allclose((dw * ew).sum(), (forward(x, ew) * head).sum(), rtol=1e-10)


def test_sparse_sums_and_transposes() -> None:
    m = scipy.sparse.random(7, 7, 0.3, "csr", np.float32, RNG)
    d, i, p = (
        te.placeholder(v.shape, str(v.dtype), name=n) for n, v in (("d", m.data), ("i", m.indices), ("p", m.indptr))
    )
    a, x = given((7, 7))
    values = {d: m.data, i: m.indices, p: m.indptr}
    np.testing.assert_allclose(run(topi.nn.sparse_add(a, d, i, p), {a: x, **values}), x + m.toarray(), rtol=1e-6)
    data, indices, indptr = run(topi.nn.sparse_transpose(d, i, p), values)
    np.testing.assert_array_equal(scipy.sparse.csr_matrix((data, indices, indptr), (7, 7)).toarray(), m.toarray().T)
    lhs, rhs = topi.nn.sparse_dense_sp_lhs(d, i, p, a), topi.nn.sparse_dense_sp_rhs(a, d, i, p)
    np.testing.assert_allclose(run(lhs, {a: x, **values}), m.toarray() @ x.T, atol=1e-5)
    np.testing.assert_allclose(run(rhs, {a: x, **values}), x @ m.toarray().T, atol=1e-5)


def test_buffers_and_layouts() -> None:
    (a, x), (b, y) = given((2, 3, 4)), given((2, 8, 4))
    np.testing.assert_array_equal(run(topi.nn.fifo_buffer(a, b, 1), {a: x, b: y}), np.concatenate([y, x], 1)[:, 3:])
    (c, z), (s, scale), (t, shift) = given((2, 3, 4, 5, 8)), given((3, 8)), given((3, 8))
    got = run(topi.nn.scale_shift_nchwc(c, s, t), {c: z, s: scale, t: shift})
    wide = (slice(None), None, None)
    np.testing.assert_allclose(got, z * scale[wide] + shift[wide], rtol=1e-5, atol=1e-6)
    want = z.transpose(0, 1, 4, 2, 3).reshape(2, 24, 4, 5).astype(np.float64)
    np.testing.assert_array_equal(run(topi.nn.unpack_NCHWc_to_nchw(c, "float64"), {c: z}), want)
    (e, u), (w, v) = given((3, 6)), given((2, 6, 4))
    np.testing.assert_allclose(
        run(topi.nn.dense_pack(e, w), {e: u, w: v}), u @ v.transpose(0, 2, 1).reshape(8, 6).T, atol=1e-5
    )


def test_helpers() -> None:
    U = topi.utils
    assert [topi.ceil_log2(te.const(n, "int32")).value for n in (1, 2, 3, 8, 9)] == [0, 1, 2, 3, 4]
    assert (U.get_max_power2_factor(24), U.get_max_power2_factor(24, 5), U.swap([1, 2, 3, 4], 1)) == (
        8,
        4,
        [1, 4, 3, 2],
    )
    assert U.ravel_index((1, 2, 3), (4, 5, 6)) == 45 and U.unravel_index(45, (4, 5, 6))[0] == 1
    assert U.prod([]).value == 1 and U.is_empty_shape([3, 0]) and not U.equal_const_int(te.var("n"), 3)
    values = RNG.integers(0, 9, (3, 2)).astype(np.int32)
    np.testing.assert_array_equal(run(U.const_matrix(values), {}), values)
    for b, e, s in ((1, 7, 2), (6, 0, -2), (3, 3, 1)):
        step = te.var("s", "int32")  # a step that is not known
        held = te.compute(
            (9,), lambda i, b=b, e=e, step=step: te.cast("int32", U.within_index(b, e, step, i)), name="held"
        )
        f = tec.build(te.create_schedule(held.op), [step, held], "llvm")
        got = np.zeros(9, np.int32)
        f(s, got)
        assert np.flatnonzero(got).tolist() == sorted(range(9)[b:e:s])


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("layout,order", [("NCHW", (0, 1, 2, 3)), ("NHWC", (0, 2, 3, 1)), ("NWCH", (0, 3, 1, 2))])
def test_pooling_in_any_layout(layout: str, order: Any, kind: str) -> None:
    """Where the channels stand decides which dimensions are pooled; windows of sizes that do not divide overlap."""
    x = RNG.standard_normal((2, 5, 7, 6)).astype(np.float32)
    reduce = np.max if kind == "max" else np.mean
    a = te.placeholder([x.shape[d] for d in order], name="a")
    X = np.ascontiguousarray(x.transpose(order))
    got = run(topi.nn.global_pool(a, kind, layout), {a: X})
    np.testing.assert_allclose(got, reduce(x, (2, 3), keepdims=True).transpose(order), rtol=1e-5, atol=1e-6)
    want = np.stack(
        [np.stack([reduce(x[:, :, i * 7 // 3 : -(-(i + 1) * 7 // 3), j * 3 : j * 3 + 3], (2, 3)) for j in range(2)], -1) for i in range(3)], -2
    )  # fmt: skip
    got = run(topi.nn.adaptive_pool(a, (3, 2), kind, layout), {a: X})
    np.testing.assert_allclose(got, want.transpose(order), rtol=1e-5, atol=1e-6)
    got = run(topi.nn.pool2d(a, [2, 3], [2, 3], [1, 1], [0, 0], kind, False, layout), {a: X})
    want = reduce(x[:, :, :6].reshape(2, 5, 3, 2, 2, 3), (3, 5))
    np.testing.assert_allclose(got, want.transpose(order), rtol=1e-5, atol=1e-6)
    with pytest.raises(tec.ExprError, match="layout 'NCHW2h'"):
        topi.nn.global_pool(te.placeholder((1, 2, 3, 4, 2)), kind, "NCHW2h")


def test_a_sparse_matrix_on_either_side() -> None:
    m = scipy.sparse.random(6, 7, 0.4, "csr", np.float32, RNG)
    s = topi.sparse.placeholder((6, 7), m.nnz)
    a, x = given((5, 7))
    values = {s.data: m.data, s.indices: m.indices, s.indptr: m.indptr, a: x}
    np.testing.assert_allclose(run(topi.sparse.dense(s, a), values), m.toarray() @ x.T, atol=1e-5)
    np.testing.assert_allclose(run(topi.sparse.dense(a, s), values), x @ m.toarray().T, atol=1e-5)
    with pytest.raises(tec.ExprError, match="two sparse"):
        topi.sparse.dense(a, a)


def test_shapes_in_other_layouts_and_padding() -> None:
    U = topi.utils
    assert U.get_shape((1, 2, 3, 4), "NCHW", "NHWC") == (1, 3, 4, 2) and U.get_shape((5, 6)) == (5, 6)
    assert U.get_pad_tuple("SAME", (4, 3)) == (2, 1, 1, 1) and U.get_pad_tuple([1, 2], (3, 3)) == (1, 2, 1, 2)
