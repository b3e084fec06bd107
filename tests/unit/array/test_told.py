"""Gradients that functions tell themselves: of factorizations, of Fourier transforms, and a user's own, beside differences."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tec
from tec.errors import TecError
from tests.thinned import thinned_rows

xp = tec.array
RNG = np.random.default_rng(11)
STEP = 1e-5  # of float64 differences: its square and eps / step are both near 1e-10


def differences(f, x):
    made = np.zeros_like(x)
    for at in np.ndindex(*x.shape):
        ends = []
        for sign in (1, -1):
            moved = x.copy()
            moved[at] += sign * STEP
            ends.append(float(f(xp.asarray(moved))))
        made[at] = (ends[0] - ends[1]) / (2 * STEP)
    return made


def check(f, x):
    want = differences(f, x)
    np.testing.assert_allclose(tec.grad(f)(xp.asarray(x)).numpy(), want, atol=1e-6 * max(1, np.abs(want).max()))


def weights(*shape):
    return xp.asarray(RNG.standard_normal(shape))


def test_eigenvalues_and_vectors():
    x, by_w, by_v = RNG.standard_normal((2, 4, 4)), weights(2, 4), weights(2, 4, 4)
    check(lambda a: xp.sum(xp.linalg.eigh((a + a.mT) * 0.5).eigenvalues ** 2 * by_w), x)
    check(lambda a: xp.sum(xp.linalg.eigh((a + a.mT) * 0.5).eigenvectors ** 2 * by_v), x)
    check(lambda a: xp.sum(xp.linalg.eigvalsh(a @ a.mT) * by_w), x)


@thinned_rows(1, "shape", [(2, 4, 3), (5, 3), (3, 5), (4, 4)])
def test_singular_values_and_vectors(shape):
    x, r = RNG.standard_normal(shape), min(shape[-2:])
    by = weights(*shape[:-1], r), weights(*shape[:-2], r), weights(*shape[:-2], r, shape[-1])
    for k in range(3):
        check(lambda a, k=k: xp.sum(xp.linalg.svd(a, full_matrices=False)[k] ** 2 * by[k]), x)

    def damped(a):
        u, s, vh = xp.linalg.svd(a, full_matrices=False)
        return xp.sum(((u * xp.exp(-s)[..., None, :]) @ vh) ** 3)

    check(damped, x)
    check(lambda a: xp.sum(xp.linalg.svdvals(a) ** 3), x)
    check(lambda a: xp.sum(xp.linalg.pinv(a) * xp.permute_dims(by[0] @ by[2], (*range(len(shape) - 2), -1, -2))), x)


@thinned_rows(2, "shape", [(4, 4), (5, 3), (2, 4, 3)])
def test_orthogonal_factors(shape):
    x, r = RNG.standard_normal(shape), min(shape[-2:])
    by = weights(*shape[:-1], r), weights(*shape[:-2], r, shape[-1])
    for k in range(2):
        check(lambda a, k=k: xp.sum(xp.linalg.qr(a)[k] ** 2 * by[k]), x)


def test_factors_of_other_shapes_have_none():
    x = weights(5, 3)
    with pytest.raises(TecError, match="no gradient through svd of this shape"):
        tec.grad(lambda a: xp.sum(xp.linalg.svd(a).U))(x)
    with pytest.raises(TecError, match="no gradient through qr of this shape"):
        tec.grad(lambda a: xp.sum(xp.linalg.qr(a, mode="complete").Q))(x)


def test_second_derivative_through_eigenvalues():
    x = RNG.standard_normal((3, 3))
    f = lambda a: xp.sum(xp.linalg.eigvalsh(a @ a.mT) ** 2)  # noqa: E731
    check(lambda a: xp.sum(tec.grad(f)(a) ** 2), x)


@pytest.mark.parametrize("n", [8, 7])
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_fourier_transforms(n, norm):
    x, by, half = RNG.standard_normal((3, n)), weights(3, n), weights(3, n // 2 + 1)
    check(lambda v: xp.sum(xp.abs(xp.fft.fft(v, norm=norm)) ** 2 * by), x)
    check(lambda v: xp.sum(xp.real(xp.fft.rfft(v, norm=norm) * (1 + 2j)) * half), x)
    check(lambda v: xp.sum(xp.fft.irfft(xp.fft.rfft(v, norm=norm) ** 2, n=n, norm=norm) * by), x)
    check(lambda v: xp.sum(xp.imag(xp.fft.ifft(v, n=5, axis=0, norm=norm)) ** 2), x)


def test_fourier_transforms_cut_filled_and_of_several_axes():
    x = RNG.standard_normal((3, 6))
    for f in (
        lambda v: xp.fft.rfft(v, n=4),
        lambda v: xp.fft.fft(v, n=9),
        xp.fft.fft2,
        xp.fft.rfftn,
        lambda v: xp.fft.fftshift(xp.fft.fft(v)),
    ):
        made = f(xp.asarray(x))
        by = weights(*made.shape)
        check(lambda v, f=f, by=by: xp.sum(xp.abs(f(v)) ** 2 * by), x)


def test_on_a_device_as_on_the_host():
    x = RNG.standard_normal((2, 6)).astype("float32")
    by = RNG.standard_normal((2, 4)).astype("float32")

    def made(device):
        w = xp.asarray(by, device=device)
        return tec.grad(lambda v: xp.sum(xp.abs(xp.fft.rfft(v)) ** 2 * w))(xp.asarray(x, device=device)).numpy()

    np.testing.assert_allclose(made(tec.rocm_emu("gfx942")), made(tec.cpu()), rtol=2e-4, atol=1e-4)


def test_complex_arithmetic_inside():
    check(lambda v: xp.sum(xp.abs(xp.exp(1j * v) * v / (v + 2j))), RNG.standard_normal(5))


# ---- a user's own


def rule():
    @tec.custom_vjp
    def product(x, pair, scale=2.0):
        """Three times."""
        return x * xp.sin(pair["y"]) * scale, x + pair["y"]

    def forward(x, pair, scale=2.0):
        return product(x, pair, scale), (x, pair["y"], scale)

    def backward(kept, g):
        x, y, scale = kept
        first, second = g
        return first * xp.sin(y) * scale + second, {"y": first * x * xp.cos(y) * scale + second}, None

    product.defvjp(forward, backward)
    return product


def test_custom_gradients_are_those_that_were_given():
    f = rule()
    assert f.__doc__ == "Three times."
    x, y = weights(4), weights(4)

    def plain(x, pair, scale):
        return x * xp.sin(pair["y"]) * scale, x + pair["y"]

    def loss(f):
        return lambda x, y: xp.sum(f(x, {"y": y}, 3.0)[0] ** 2) + xp.sum(f(x, {"y": y}, 3.0)[1] * y)

    for ours, theirs in zip(tec.grad(loss(f), (0, 1))(x, y), tec.grad(loss(plain), (0, 1))(x, y)):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-12)
    second = lambda f: tec.grad(lambda x: xp.sum(tec.grad(loss(f))(x, y) ** 2))(x).numpy()  # noqa: E731
    np.testing.assert_allclose(second(f), second(plain), rtol=1e-12)
    rows = xp.stack([x, y])
    mapped = tec.vmap(lambda r: f(r, {"y": y}, 3.0)[0])(rows)
    np.testing.assert_allclose(mapped.numpy(), plain(rows, {"y": y}, 3.0)[0].numpy())


def test_a_tape_that_another_thread_begins_meanwhile_stays():
    f, made = rule(), []
    inside, begun = threading.Event(), threading.Event()

    def other():
        inside.wait(20)
        made.append(tec.grad(lambda x: (begun.set(), xp.sum(x * x))[1])(xp.asarray([3.0])).tolist())

    thread = threading.Thread(target=other)

    @tec.custom_vjp
    def slow(x):
        return x * 2.0

    def forward(x):
        inside.set()
        begun.wait(20)
        return x * 2.0, None

    slow.defvjp(forward, lambda kept, g: (g * 2.0,))
    thread.start()
    assert tec.grad(lambda x: xp.sum(slow(x)))(xp.asarray([1.0])).tolist() == [2.0]
    thread.join(20)
    assert made == [[6.0]]
    assert f.name == "product"


def test_custom_gradients_may_differ_from_the_function():
    @tec.custom_vjp
    def rounded(x):
        return xp.round(x)

    rounded.defvjp(lambda x: (xp.round(x), None), lambda kept, g: (g,))
    assert tec.grad(lambda x: xp.sum(rounded(x) * xp.asarray([2.0, 3.0])))(xp.asarray([0.4, 1.7])).tolist() == [
        2.0,
        3.0,
    ]
    assert rounded(xp.asarray([0.4, 1.7])).tolist() == [0.0, 2.0]


def test_custom_gradients_that_do_not_fit():
    @tec.custom_vjp
    def f(x):
        return x * 2.0

    assert f(xp.asarray([1.0])).tolist() == [2.0]
    with pytest.raises(TecError, match=r"no gradient of f was given\n(.|\n)*defvjp"):
        tec.grad(lambda x: xp.sum(f(x)))(xp.asarray([1.0]))
    f.defvjp(lambda x: (x * 2.0, None), lambda kept, g: (g, g))
    with pytest.raises(TecError, match="gives 2 gradients for 1 arguments"):
        tec.grad(lambda x: xp.sum(f(x)))(xp.asarray([1.0]))
    f.defvjp(lambda x: (x * 2.0, None), lambda kept, g: (xp.sum(g),))
    with pytest.raises(TecError, match=r"gradient 0 has shapes \[\(\)\], the argument \[\(1,\)\]"):
        tec.grad(lambda x: xp.sum(f(x)))(xp.asarray([1.0]))


# ---- constants, Jacobians


def test_what_is_stopped_is_a_constant():
    x = xp.asarray([1.0, 2.0])
    assert tec.grad(lambda x: xp.sum(x * tec.stop_gradient({"a": x * x})["a"]))(x).tolist() == [1.0, 4.0]
    assert tec.vmap(lambda v: v * tec.stop_gradient(v))(x).tolist() == [1.0, 4.0]
    assert tec.stop_gradient(x) is x


def test_jacobians_and_hessians():
    x, w = weights(4, 3), weights(3, 2)

    def f(x, w):
        return xp.tanh(x @ w)

    for k, shape in ((0, (4, 2, 4, 3)), (1, (4, 2, 3, 2))):
        rows, columns = tec.jacrev(f, k)(x, w), tec.jacfwd(f, k)(x, w)
        assert rows.shape == columns.shape == shape
        np.testing.assert_allclose(rows.numpy(), columns.numpy(), rtol=1e-10, atol=1e-12)
    slope = 1 - f(x, w).numpy() ** 2
    want = np.einsum("ij,ia,kj->ijak", slope, np.eye(4), w.numpy())
    np.testing.assert_allclose(tec.jacrev(f)(x, w).numpy(), want, rtol=1e-10, atol=1e-12)
    v = xp.asarray([1.0, 2.0, -1.0], dtype="float64")
    second = tec.hessian(lambda v, a: xp.sum(v**3 * a) + v[0] * v[1], 0)(v, 2.0).numpy()
    np.testing.assert_allclose(second, np.diag([12.0, 24.0, -12.0]) + np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]))
    with pytest.raises(TecError, match="jacrev by argument 1, which is a float"):
        tec.jacrev(f, 1)(x, 2.0)
    with pytest.raises(TecError, match="jacrev of a function that gives a tuple"):
        tec.jacrev(lambda v: (v, v))(v)
