"""Linear algebra that networks meet (inverses, determinants, factors, systems of equations): all of each graph is tec's, forward and backward."""

import pytest
import torch
from tec_torch import dynamo
from torch import linalg as L

import tec

STRICT = {"strict": True}


def positive(*shape):
    a = torch.randn(*shape, shape[-1])
    return a @ a.mT + shape[-1] * torch.eye(shape[-1])


CALLS = {
    "inverse": lambda a, b: torch.inverse(a),
    "determinant": lambda a, b: L.det(a),
    "sign and logarithm": lambda a, b: L.slogdet(-a),
    "logarithm": lambda a, b: torch.logdet(a),
    "cholesky": lambda a, b: L.cholesky(a),
    "cholesky, upper": lambda a, b: L.cholesky(a, upper=True),
    "solve": lambda a, b: L.solve(a, b),
    "solve for a vector": lambda a, b: L.solve(a, b[..., 0]),
    "solve from the right": lambda a, b: L.solve(a, b.mT, left=False),
    "one matrix for many": lambda a, b: L.solve(a[0], b),
    "triangle": lambda a, b: L.solve_triangular(a, b, upper=True),
    "triangle with ones": lambda a, b: L.solve_triangular(a, b.mT, upper=False, left=False, unitriangular=True),
    "triangle, transposed": lambda a, b: torch.triangular_solve(b, a, transpose=True)[0],
    "by cholesky factors": lambda a, b: torch.cholesky_solve(b, L.cholesky(a)),
    "inverse by cholesky factors": lambda a, b: torch.cholesky_inverse(L.cholesky(a)),
    "by LU factors": lambda a, b: L.lu_solve(*L.lu_factor(a), b),
    "by transposed LU factors": lambda a, b: L.lu_solve(*L.lu_factor(a), b, adjoint=True),
    "LU": lambda a, b: L.lu(a),
    "negative power": lambda a, b: L.matrix_power(a, -2),
    "normal distribution": lambda a, b: torch.distributions.MultivariateNormal(
        torch.zeros(a.shape[-1]), covariance_matrix=a, validate_args=False
    ).log_prob(b[..., 0]),
}


def cases(n=5):
    """Rows in drawn order, so that pivots are elsewhere than on the diagonal; systems by Cholesky factors take the matrix itself."""
    torch.manual_seed(n)
    a = positive(3, n)
    return a, a[:, torch.randperm(n)], torch.randn(3, n, 4)


@pytest.mark.parametrize("name", CALLS)
def test_values(name):
    a, shuffled, b = cases()
    given = a if any(w in name for w in ("cholesky", "normal", "logarithm")) else shuffled
    want = CALLS[name](given, b)
    got = torch.compile(CALLS[name], backend=dynamo.backend, options=STRICT)(given, b)
    torch.testing.assert_close(got, want, rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["inverse", "determinant", "cholesky", "solve", "triangle", "normal distribution"])
def test_gradients(name):
    a, _, b = cases(4)
    found = []
    for f in (CALLS[name], torch.compile(CALLS[name], backend=dynamo.backend, options=STRICT)):
        given = [t.clone().requires_grad_() for t in (a, b)]
        f(*given).sin().sum().backward()
        found.append([t.grad for t in given if t.grad is not None])
    torch.testing.assert_close(found[1], found[0], rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("turned", [False, True])
def test_gradients_of_determinants_of_any_matrix(turned):
    """Of a matrix that lies row by row, torch's factors are those of the transposed one."""

    def f(a):
        sign, size = L.slogdet(a.mT if turned else a)
        return sign * size + L.det(a.mT if turned else a)

    found = []
    for call in (f, torch.compile(f, backend=dynamo.backend, options=STRICT)):
        a = (torch.arange(32.0).reshape(2, 4, 4).cos() + torch.eye(4) * 2).requires_grad_()
        call(a).sum().backward()
        found.append(a.grad)
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("offset", [0, 2, -1])
def test_diagonals_that_are_written(offset):
    x, part = torch.randn(4, 2, 5), torch.randn(2, min(4 + min(offset, 0), 5 - max(offset, 0)))

    def f(x, part):
        return torch.diagonal_scatter(x * 2, part, offset, 0, 2)

    torch.testing.assert_close(torch.compile(f, backend=dynamo.backend, options=STRICT)(x, part), f(x, part))


def test_a_singular_matrix_is_an_error():
    fast = torch.compile(lambda a: torch.inverse(a) * 2, backend=dynamo.backend, options=STRICT)
    a = positive(2, 3)
    torch.testing.assert_close(fast(a), torch.inverse(a) * 2)
    a[1, 2] = a[1, 0] = 0
    with pytest.raises(tec.TecError, match="a matrix is singular"):
        fast(a)
    inverse, info = torch.compile(lambda a: L.inv_ex(a), backend=dynamo.backend, options=STRICT)(a)
    assert info[0] == 0 and info[1] > 0 and torch.isfinite(inverse[0]).all()
