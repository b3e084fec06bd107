"""The extensions `linalg` and `fft` against NumPy: on the CPU, where LAPACK and pocketfft compute, and by tec's own algorithms on the software GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec.array import fft_kernels
from tests import seeds

xp = tec.array
EMU = "gfx942"


def near(got: Any, want: Any, limit: float = 2e-3) -> None:
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got.numpy(), want, rtol=limit, atol=limit * max(1.0, float(np.abs(want).max())))


def factors(n: int, device: Any) -> None:
    rng = np.random.default_rng(seeds.first(n))
    a = (rng.standard_normal((2, n, n)) + 3 * np.eye(n)).astype("float32")
    b = rng.standard_normal((2, n, 3)).astype("float32")
    x, y = xp.asarray(a, device=device), xp.asarray(b, device=device)
    la = xp.linalg
    near(la.solve(x, y), np.linalg.solve(a, b))
    near(la.inv(x), np.linalg.inv(a))
    near(la.det(x) / xp.asarray(np.linalg.det(a), device=device), np.ones(2))
    sign, size = np.linalg.slogdet(a)
    made = la.slogdet(x)
    near(made.sign, sign)
    near(made.logabsdet, size)
    spd = a @ a.swapaxes(1, 2) + np.eye(n, dtype="float32")
    near(la.cholesky(xp.asarray(spd, device=device)), np.linalg.cholesky(spd))
    assert float(la.det(xp.zeros((3, 3), device=device))) == 0.0
    with pytest.raises(tec.TecError, match="singular"):
        la.solve(xp.zeros((3, 3), device=device), xp.ones((3,), device=device))
    with pytest.raises(tec.TecError, match="positive definite"):
        la.cholesky(xp.asarray([[1.0, 2.0], [2.0, 1.0]], device=device))


def test_factors_on_the_cpu() -> None:
    factors(7, tec.cpu())


def test_a_system_is_solved_on_the_software_gpu() -> None:
    """At the gate, which leaves the other factors there to slow tests: the CPU has LAPACK for all of them."""
    a = (np.random.default_rng(0).standard_normal((2, 3, 3)) + 3 * np.eye(3)).astype("float32")
    x = xp.asarray(a, device=tec.rocm_emu(EMU))
    near(xp.linalg.solve(x, x[:, :, :2]), np.linalg.solve(a, a[:, :, :2]))


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 40])
def test_factors_on_the_software_gpu(n: int) -> None:
    """40 is more than a block of columns."""
    factors(n, tec.rocm_emu(EMU))


def test_decompositions_and_norms() -> None:
    rng = np.random.default_rng(seeds.first(1))
    a = rng.standard_normal((2, 4, 3))
    x, la = xp.asarray(a), xp.linalg
    q, r = la.qr(x)
    near(q @ r, a, 1e-10)
    u, s, v = la.svd(x, full_matrices=False)
    near((u * xp.expand_dims(s, -2)) @ v, a, 1e-10)
    square = a[:, :3] + a[:, :3].swapaxes(1, 2)
    values, vectors = la.eigh(xp.asarray(square))
    near(vectors @ (xp.expand_dims(values, -1) * vectors.mT), square, 1e-10)
    near(la.pinv(x), np.linalg.pinv(a), 1e-10)
    assert la.eigvals(xp.asarray(square)).dtype == "complex128" and la.matrix_rank(x).tolist() == [3, 3]
    near(la.matrix_norm(x, ord="nuc"), np.linalg.norm(a, "nuc", axis=(1, 2)), 1e-10)
    near(la.vector_norm(x, axis=1, ord=3), np.linalg.norm(a, 3, axis=1), 1e-10)
    near(la.trace(x, offset=-1), np.trace(a, -1, 1, 2), 1e-10)
    near(la.matrix_power(xp.asarray(square), 3), np.linalg.matrix_power(square, 3), 1e-9)
    c = a[0] + 1j * a[1]
    near(la.inv(xp.asarray(c[:3])), np.linalg.inv(c[:3]), 1e-9)


def transforms(n: int, device: Any) -> None:
    rng = np.random.default_rng(seeds.first(n))
    a = (rng.standard_normal((2, n)) + 1j * rng.standard_normal((2, n))).astype("complex64")
    x, r = xp.asarray(a, device=device), xp.asarray(a.real, device=device)
    f = xp.fft
    near(f.fft(x), np.fft.fft(a), 1e-5)
    near(f.ifft(x, norm="ortho"), np.fft.ifft(a, norm="ortho"), 1e-5)
    near(f.rfft(r), np.fft.rfft(a.real), 1e-5)
    near(f.irfft(x, n=n), np.fft.irfft(a, n=n), 1e-5)
    near(f.hfft(x, n=n + 2, norm="forward"), np.fft.hfft(a, n=n + 2, norm="forward"), 1e-5)
    near(f.ihfft(r), np.fft.ihfft(a.real), 1e-5)


@pytest.mark.parametrize("n", [1, 12, 11])
def test_transforms_on_the_cpu(n: int) -> None:
    transforms(n, tec.cpu())


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 11, 60, 49])
def test_transforms_on_the_software_gpu(n: int) -> None:
    transforms(n, tec.rocm_emu(EMU))


def test_a_transform_on_the_software_gpu() -> None:
    a = np.random.default_rng(seeds.first(5)).standard_normal((2, 6)).astype("float32")
    near(xp.fft.fft(xp.asarray(a, device=tec.rocm_emu(EMU))), np.fft.fft(a), 1e-5)


def test_transforms_of_several_axes() -> None:
    a = np.random.default_rng(seeds.first(2)).standard_normal((3, 4, 6))
    x, f = xp.asarray(a), xp.fft
    near(f.fftn(x), np.fft.fftn(a), 1e-10)
    near(f.rfftn(x, axes=(0, 2)), np.fft.rfftn(a, axes=(0, 2)), 1e-10)
    near(f.irfftn(f.rfftn(x)), a, 1e-10)
    near(f.fftn(x, s=(2, 5), axes=(0, 1)), np.fft.fftn(a, s=(2, 5), axes=(0, 1)), 1e-10)
    near(f.ifftshift(f.fftshift(x)), a, 0.0)
    near(f.rfftfreq(7, d=0.5, dtype="float64"), np.fft.rfftfreq(7, 0.5), 1e-12)


def test_radices_multiply_to_the_length() -> None:
    for n in range(1, 400):
        found = fft_kernels.radices(n)
        largest = max((p for p in range(2, n + 1) if n % p == 0 and all(p % q for q in range(2, p))), default=1)
        assert (found is None) == (largest > 7)
        assert found is None or int(np.prod(found, dtype=int)) == n
