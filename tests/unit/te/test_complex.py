"""complex64 and complex128 in te: drawn expressions and sums against NumPy, on the CPU, the interpreter and the software GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.errors import TecError
from tec.ir.interp import run
from tests import seeds

N = 5
TOLERANCE = {"complex64": 2e-5, "complex128": 1e-12}


def numbers(rng: np.random.Generator, dtype: str, *shape: int) -> Any:
    return (rng.uniform(0.5, 2, shape) * np.exp(1j * rng.uniform(-3, 3, shape))).astype(dtype)


def drawn(rng: np.random.Generator, leaves: list[Any], depth: int) -> Callable[[list[Any]], Any]:
    """An expression as a function of its leaves, which takes te's values and NumPy's alike."""
    if depth == 0:
        k = int(rng.integers(len(leaves) + 1))
        constant = complex(*rng.uniform(-1, 1, 2).round(2))
        return lambda v: v[k] if k < len(v) else constant + v[0] * 0.5
    a, b = (drawn(rng, leaves, depth - 1) for _ in "ab")
    forms: list[Callable[[list[Any]], Any]] = [
        lambda v: a(v) + b(v),
        lambda v: a(v) - b(v),
        lambda v: a(v) * b(v),
        lambda v: a(v) / (abs(b(v)) + 1.0),
        lambda v: 2.0 / (_conj(a(v)) * a(v) + 1.0) - b(v),
        lambda v: a(v) * _conj(b(v)),
        lambda v: -a(v) + b(v).real * 1j,
        lambda v: a(v).imag + b(v) * (1 - 2j),
        lambda v: a(v) ** 2,
    ]
    return forms[int(rng.integers(len(forms)))]


def _conj(x: Any) -> Any:
    return x.conjugate()


@pytest.mark.parametrize("seed", seeds.some(3))
def test_drawn_expressions(seed: int) -> None:
    dtype = "complex128" if seed % 3 == 1 else "complex64"
    rng = np.random.default_rng(seed)
    A, B = (te.placeholder((N, N), dtype, name=x) for x in "AB")
    f = drawn(rng, [A, B], 2)
    k = te.reduce_axis(N, name="k")
    E = te.compute((N, N), lambda i, j: f([A[i, j], B[j, i]]), name="E")
    S = te.compute((N,), lambda i: te.sum(E[i, k] * A[k, i], axis=k), name="S")
    s = te.create_schedule([E.op, S.op])
    a, b = numbers(rng, dtype, N, N), numbers(rng, dtype, N, N)
    want = f([a, b.T]).astype(dtype)
    sums = np.einsum("ik,ki->i", want, a)
    e, t = np.zeros((N, N), dtype), np.zeros(N, dtype)
    tec.build(s, [A, B, E, S])(a, b, e, t)
    scale = max(1.0, float(abs(want).max()))
    np.testing.assert_allclose(e, want, rtol=0, atol=TOLERANCE[dtype] * scale)
    np.testing.assert_allclose(t, sums, rtol=0, atol=20 * TOLERANCE[dtype] * scale)
    e2, t2 = np.zeros_like(e), np.zeros_like(t)
    part = e.real.dtype
    (func,) = tec.lower(s, [A, B, E, S], simple_mode=True)
    run(func, [x.view(part).reshape(*x.shape, 2) for x in (a, b, e2, t2)])
    np.testing.assert_allclose(e2, want, rtol=0, atol=TOLERANCE[dtype] * scale)
    np.testing.assert_allclose(t2, sums, rtol=0, atol=20 * TOLERANCE[dtype] * scale)


def test_a_parameter_that_nothing_reads_is_complex_too() -> None:
    A, B = (te.placeholder((4,), "complex64", name=x) for x in "AB")
    C = te.compute((4,), lambda i: A[i] * 2.0, name="C")
    a, c = np.full(4, 1 + 2j, "complex64"), np.zeros(4, "complex64")
    tec.build(te.create_schedule(C.op), [A, B, C])(a, a, c)
    assert (c == 2 * a).all()


def product(dtype: str, m: int = 16, n: int = 16, k: int = 12) -> tuple[Any, ...]:
    A, B = te.placeholder((m, k), dtype, name="A"), te.placeholder((k, n), dtype, name="B")
    r = te.reduce_axis(k, name="r")
    return A, B, te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")


def test_a_scheduled_product_on_a_gpu() -> None:
    dtype = "complex64"
    A, B, C = product(dtype)
    s = te.create_schedule(C.op)
    AS, CL = s.cache_read(A, "shared", [C]), s.cache_write(C, "local")
    i, j, part = s[C].op.axis
    assert C.axis == (i, j)
    x, y, xi, yi = s[C].tile(i, j, 8, 8)
    s[C].reorder(x, y, xi, yi, part)
    for loop, tag in ((x, "blockIdx.x"), (y, "blockIdx.y"), (xi, "threadIdx.y"), (yi, "threadIdx.x")):
        s[C].bind(loop, te.thread_axis(tag))
    s[CL].compute_at(s[C], yi)
    outer, inner = s[CL].split(s[CL].op.reduce_axis[0], 4)
    s[CL].reorder(outer, inner, s[CL].op.axis[-1])
    s[CL].unroll(s[CL].op.axis[-1])
    s[AS].compute_at(s[CL], outer)
    s[AS].bind(s[AS].op.axis[0], te.thread_axis("threadIdx.y"))
    try:
        dev = tec.rocm_emu("gfx942")
    except TecError as error:
        pytest.skip(str(error))
    rng = np.random.default_rng(0)
    a, b = numbers(rng, dtype, 16, 12), numbers(rng, dtype, 12, 16)
    c = tec.nd.array(np.zeros((16, 16), dtype), dev)
    tec.build(s, [A, B, C], "rocm -mcpu=gfx942")(tec.nd.array(a, dev), tec.nd.array(b, dev), c)
    np.testing.assert_allclose(c.numpy(), a @ b, rtol=0, atol=50 * TOLERANCE[dtype])
    assert "mul" in tec.build(s, [A, B, C], "cuda").imported_modules[0].get_source("asm")


def test_a_scheduled_product_on_a_cpu() -> None:
    A, B, C = product("complex64")
    s = te.create_schedule(C.op)
    x, y, xi, yi = s[C].tile(*C.axis, 4, 8)
    s[C].reorder(x, y, s[C].op.reduce_axis[0], xi, yi, s[C].op.axis[-1])
    s[C].unroll(s[C].op.axis[-1])
    s[C].parallel(x)
    rng = np.random.default_rng(0)
    a, b = numbers(rng, "complex64", 16, 12), numbers(rng, "complex64", 12, 16)
    c = np.zeros((16, 16), "complex64")
    tec.build(s, [A, B, C])(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=0, atol=1e-3)


def test_partial_sums_and_symbolic_sizes() -> None:
    n = te.var("n")
    A = te.placeholder((n,), "complex128", name="A")
    k = te.reduce_axis(n, name="k")
    S = te.compute((1,), lambda i: te.sum(te.exp(A[k]), axis=k, where=te.abs(A[k]) > 1.0), name="S")
    s = te.create_schedule(S.op)
    outer, inner = s[S].split(s[S].op.reduce_axis[0], 4)
    s.rfactor(S, inner)
    a = numbers(np.random.default_rng(0), "complex128", 23)
    got = np.zeros(1, "complex128")
    tec.build(s, [n, A, S])(23, a, got)
    np.testing.assert_allclose(got[0], np.exp(a[abs(a) > 1]).sum(), rtol=1e-12)


def test_selection_and_limits() -> None:
    A = te.placeholder((4,), "complex64", name="A")
    P = te.compute((6,), lambda i: te.if_then_else(te.all(i > 0, i < 5), A[i - 1], 0.0), name="P")
    Q = te.compute((4,), lambda i: A[i] / A[i], name="Q")
    R = te.compute((4,), lambda i: te.abs(A[i]), name="R")
    s = te.create_schedule([P.op, Q.op, R.op])
    a = np.array([3e38 + 3e37j, 1e-30j, 2, np.inf], "complex64")
    p, q, r = np.ones(6, "complex64"), np.zeros(4, "complex64"), np.zeros(4, "float32")
    tec.build(s, [A, P, Q, R])(a, p, q, r)
    np.testing.assert_array_equal(p, [0, *a, 0])
    np.testing.assert_allclose(q[:3], 1, rtol=1e-6)  # without overflow on the way
    np.testing.assert_allclose(r, abs(a), rtol=1e-6)


def test_a_number_of_python_takes_the_type_of_what_it_stands_beside() -> None:
    x = te.placeholder((4,), "float64", name="x")
    C = te.compute((4,), lambda i: te.select(x[i] > 0, x[i], 0.1 + 0.7j), name="C")
    got = np.zeros(4, "complex128")
    tec.build(te.create_schedule(C.op), [x, C])(np.array([-1.0, 0, 1, 2]), got)
    np.testing.assert_array_equal(got, [0.1 + 0.7j, 0.1 + 0.7j, 1, 2])  # to the last bit


A2, K2 = te.placeholder((4, 4), "complex64", name="A"), te.reduce_axis(4, name="k")


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda: te.compute((4,), lambda i: te.sqrt(A2[i, 0])), "a complex64 number where a real one is wanted"),
        (lambda: te.compute((4,), lambda i: te.max(A2[i, K2], axis=K2)), "te.max of complex numbers"),
        (lambda: A2 + A2, "an operator of the whole complex tensor A"),
        (lambda: te.compute((4,), lambda i: A2[i, 0] < 1.0), "complex numbers have no order"),
        (lambda: te.compute((4,), lambda i: A2[i]), "A has 2 dimensions, indexed with 1"),
        (lambda: te.compute((4,), lambda i: te.sum(A2[i, K2], axis=K2) * 2), "must be the outermost expression"),
        (lambda: te.compute((4,), lambda i: A2[i, 0] ** 0.5), "to the power 0.5"),
        (lambda: te.compute((4,), lambda i: A2[i, 0].astype("float32")), "a complex number as float32"),
    ],
)
def test_mistakes_are_told(write: Callable[[], Any], message: str) -> None:
    with pytest.raises(TecError, match=message):
        write()


def test_arguments_are_complex() -> None:
    B = te.compute((4, 4), lambda i, j: A2[i, j] * 1j, name="B")
    f = tec.build(te.create_schedule(B.op), [A2, B])
    good = np.ones((4, 4), "complex64")
    for bad, message in (
        (np.ones((4, 4), "float32"), "has dtype float32, complex64 is wanted"),
        (np.ones((4, 4), "complex128"), "has dtype complex128, complex64 is wanted"),
        (np.ones((4, 2, 2), "complex64"), r"has shape \(4, 2, 2\), \(4, 4\) is wanted"),
        (3.0, r"is a number, a complex64 array of shape \(4, 4\) is wanted"),
    ):
        with pytest.raises(TecError, match=message):
            f(bad, good.copy())
