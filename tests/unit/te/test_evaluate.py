"""The NumPy meaning of tensor expressions, held against NumPy written by hand."""

import sys

import numpy as np
import pytest

from tec import te
from tec.errors import ExprError

rng = np.random.default_rng(0)


def run(out, feeds):
    return te.evaluate([out], feeds)[0]


def test_matmul_with_symbolic_shapes():
    n, m = te.var("n"), te.var("m")
    A, B = te.placeholder((n, m), name="A"), te.placeholder((m, n), name="B")
    k = te.reduce_axis((0, m), "k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k))
    a, b = rng.normal(size=(5, 7)).astype("float32"), rng.normal(size=(7, 5)).astype("float32")
    np.testing.assert_allclose(run(C, {A: a, B: b}), a @ b, rtol=1e-5)


def test_large_reductions_go_in_pieces(monkeypatch):
    A = te.placeholder((4, 30, 20), name="A")
    k, l = te.reduce_axis((0, 30), "k"), te.reduce_axis((3, 20), "l")
    C = te.compute((4,), lambda i: te.sum(A[i, k, l], axis=[k, l], where=k > 2))
    a = rng.normal(size=(4, 30, 20)).astype("float32")
    whole = run(C, {A: a})
    monkeypatch.setitem(te.evaluate.__globals__, "_CHUNK", 200)
    pieces = run(C, {A: a})
    np.testing.assert_allclose(pieces, whole, rtol=1e-4)
    np.testing.assert_allclose(whole, a[:, 3:, 3:].sum((1, 2)), rtol=1e-4)


def test_padding_guard_and_convolution():
    X = te.placeholder((6, 6), name="X")
    P = te.compute((8, 8), lambda i, j: te.if_then_else(te.all(i >= 1, i < 7, j >= 1, j < 7), X[i - 1, j - 1], 0.0))
    r, s = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "s")
    W = te.placeholder((3, 3), name="W")
    C = te.compute((3, 3), lambda i, j: te.sum(P[i * 2 + r, j * 2 + s] * W[r, s], axis=[r, s]))
    x, w = rng.normal(size=(6, 6)).astype("float32"), rng.normal(size=(3, 3)).astype("float32")
    p = np.pad(x, 1)
    want = np.array([[(p[2 * i : 2 * i + 3, 2 * j : 2 * j + 3] * w).sum() for j in range(3)] for i in range(3)])
    np.testing.assert_allclose(run(C, {X: x, W: w}), want, rtol=1e-5)


def test_argmax_takes_the_first():
    argmax = te.comm_reducer(
        lambda x, y: (te.select(x[1] >= y[1], x[0], y[0]), te.select(x[1] >= y[1], x[1], y[1])),
        lambda t0, t1: (te.const(-1, t0), te.min_value(t1)),
    )
    A = te.placeholder((4, 9), "int32", name="A")
    k = te.reduce_axis((0, 9), "k")
    idx, val = te.compute((4,), lambda i: argmax((k, A[i, k]), axis=k))
    a = rng.integers(0, 4, (4, 9)).astype("int32")
    got = te.evaluate([idx, val], {A: a})
    np.testing.assert_array_equal(got[0], a.argmax(1))
    np.testing.assert_array_equal(got[1], a.max(1))


def test_scan_is_a_running_sum():
    m, n = te.var("m"), te.var("n")
    X, S = te.placeholder((m, n), name="X"), te.placeholder((m, n), name="S")
    first = te.compute((1, n), lambda _, i: X[0, i])
    step = te.compute((m, n), lambda t, i: S[t - 1, i] + X[t, i])
    x = rng.normal(size=(6, 3)).astype("float32")
    np.testing.assert_allclose(run(te.scan(first, step, S, inputs=[X]), {X: x}), np.cumsum(x, 0), rtol=1e-5)


def test_transposed_and_gathered_reads():
    A, I = te.placeholder((4, 5, 6), name="A"), te.placeholder((7,), "int32", name="I")
    a, i = rng.normal(size=(4, 5, 6)).astype("float32"), rng.integers(0, 5, 7).astype("int32")
    np.testing.assert_array_equal(run(te.compute((6, 4, 5), lambda x, y, z: A[y, z, x]), {A: a}), a.transpose(2, 0, 1))
    np.testing.assert_array_equal(run(te.compute((4, 7), lambda x, y: A[x, I[y], 2]), {A: a, I: i}), a[:, i, 2])
    np.testing.assert_array_equal(run(te.compute((4,), lambda x: A[x, x, x]), {A: a}), a[range(4), range(4), range(4)])


def test_integer_division_and_wrapping():
    X = te.placeholder((4,), "int8", name="X")
    x = np.array([-7, 7, -128, 100], "int8")
    got = te.evaluate(
        te.compute(
            (4,),
            lambda i: (
                te.truncdiv(X[i], 2),
                te.floordiv(X[i], 2),
                te.truncmod(X[i], 4),
                te.floormod(X[i], 4),
                X[i] + X[i],
            ),
        ),
        {X: x},
    )
    for g, want in zip(got, ([-3, 3, -64, 50], [-4, 3, -64, 50], [-3, 3, 0, 0], [1, 3, 0, 0], [-14, 14, 0, -56])):
        np.testing.assert_array_equal(g, want)


def test_saturating_casts():
    X = te.placeholder((6,), name="X")
    x = np.array([1e20, -1e20, np.nan, 3.9, -3.9, np.inf], "float32")
    for dtype, want in (("int32", [2**31 - 1, -(2**31), 0, 3, -3, 2**31 - 1]), ("uint8", [255, 0, 0, 3, 0, 255]),
                        ("int64", [2**63 - 1, -(2**63), 0, 3, -3, 2**63 - 1]), ("uint64", [2**64 - 1, 0, 0, 3, 0, 2**64 - 1])):  # fmt: skip
        np.testing.assert_array_equal(
            run(te.compute((6,), lambda i, d=dtype: X[i].astype(d)), {X: x}), np.array(want, dtype)
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_float_types(dtype):
    A = te.placeholder((64,), dtype, name="A")
    from tec.te.numpy_dtype import np_dtype

    a = rng.normal(size=64).astype(np_dtype(dtype))
    got = run(te.compute((64,), lambda i: te.exp(A[i]) * 2), {A: a})
    assert got.dtype == np_dtype(dtype)
    np.testing.assert_allclose(got.astype("float64"), 2 * np.exp(a.astype("float64")), rtol=1e-2)


def test_missing_and_misshapen_inputs():
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i])
    with pytest.raises(ExprError, match="no array given for placeholder A"):
        run(B, {})
    with pytest.raises(ExprError, match="dimension 0 of the array for A is 5, not 4"):
        run(B, {A: np.zeros(5, "float32")})


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("how", ["sum", "max"])
def test_terms_that_come_one_by_one(dtype: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index space that is too large at once is stepped through: each term is added to the sum so far, and rounded."""
    x = (np.random.default_rng(0).standard_normal((3, 9)) * 20).astype(dtype)
    a = te.placeholder(x.shape, dtype, name="a")
    k = te.reduce_axis((0, 9), name="k")
    y = te.compute((3,), lambda i: getattr(te, how)(a[i, k], axis=k), name="y")
    monkeypatch.setattr(sys.modules["tec.te.evaluation"], "_CHUNK", 1)
    (got,) = te.evaluate([y], {a: x})
    want = np.zeros(3, dtype) if how == "sum" else x[:, 0]
    for column in x.T:
        want = want + column if how == "sum" else np.maximum(want, column)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, want)


def test_integers_divided_by_zero_are_zero_as_in_compiled_code() -> None:
    a, b = (te.placeholder((3,), name=n, dtype="int32") for n in "ab")
    quotient = te.compute((3,), lambda i: te.floordiv(a[i], b[i]))
    found = te.evaluate([quotient], {a: np.int32([5, -5, 7]), b: np.int32([0, 2, 0])})[0]
    assert found.tolist() == [0, -3, 0]
