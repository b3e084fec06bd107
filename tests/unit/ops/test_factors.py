"""Factors of matrices and substitution: the CPU's loops and a GPU's work-groups against NumPy, and the builders of inverses, determinants and solutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec.errors import ImportModelError
from tec.graph import Graph, run_graph
from tec.graph.builders import linear_algebra as la
from tec.graph.builders.builder import Builder
from tec.ops.dims import Dim
from tests.seeds import first
from tests.thinned import thinned_rows

SIZES = [(3, 1, 1), (2, 5, 3), (1, 37, 9)]


def drawn(count: int, n: int, columns: int, what: int = 0) -> dict[str, Any]:
    """Matrices whose pivots lie anywhere, positive definite ones, and right-hand sides."""
    rng = np.random.default_rng(first(what))
    a = rng.standard_normal((count, n, n)).astype(np.float32)
    positive = a @ a.transpose(0, 2, 1) + n * np.eye(n, dtype=np.float32)
    return {"a": a, "positive": positive, "b": rng.standard_normal((count, n, columns)).astype(np.float32)}


def factored(feeds: dict[str, Any], count: Any = None) -> Graph:
    """A graph of what there is: factors, solutions, inverses and determinants."""
    g = Graph("factors")
    a, p, b = (g.input(n, "float32", (count or x.shape[0], *x.shape[1:])) for n, x in feeds.items())
    make = Builder(g)
    lu = la.lu(make, a)
    lower, _ = la.cholesky(make, p)
    outputs = {
        "lower": lower,
        "inverse": la.inverse(make, p)[0],
        "solution": la.solve_by_lu(make, lu.factors, lu.pivots, b),
        "adjoint": la.solve_by_lu(make, lu.factors, lu.pivots, b, adjoint=True),
        "triangle": la.solve_triangular(make, p, b, upper=True),
        "ones": la.solve_triangular(make, make.op("multiply", p, make.const(0.01, "float32")), b, upper=False, unit=True),
        "determinant": la.determinant(make, lu),
        "sign": la.log_determinant(make, lu)[0],
        "logarithm": la.log_determinant(make, lu)[1],
    }  # fmt: skip
    g.set_outputs(list(outputs.values()), list(outputs))
    return g


def reference(feeds: dict[str, Any]) -> list[Any]:
    a, p, b = (x.astype(np.float64) for x in feeds.values())
    ones = np.tril(0.01 * p, -1) + np.eye(p.shape[1])
    return [
        np.linalg.cholesky(p), np.linalg.inv(p), np.linalg.solve(a, b), np.linalg.solve(a.transpose(0, 2, 1), b),
        np.linalg.solve(np.triu(p), b), np.linalg.solve(ones, b), np.linalg.det(a), *np.linalg.slogdet(a),
    ]  # fmt: skip


def close(got: Any, want: Any) -> None:
    for x, w in zip(got, want, strict=True):
        np.testing.assert_allclose(x, w, rtol=2e-3, atol=2e-3 * np.abs(w).max())


@pytest.mark.parametrize("sizes", SIZES)
def test_definition_and_cpu(sizes: tuple[int, ...]) -> None:
    feeds = drawn(*sizes)
    g = factored(feeds)
    close(run_graph(g, feeds), reference(feeds))
    close(tec.compile(g, target="llvm", cache=False).run(feeds), reference(feeds))


def test_a_symbolic_number_of_matrices() -> None:
    net = tec.compile(factored(drawn(1, 4, 2), Dim("count")), target="llvm", cache=False)
    for count in (1, 3):
        feeds = drawn(count, 4, 2, count)
        close(net.run(feeds), reference(feeds))


@thinned_rows(1, ("chip", "sizes"), [("gfx942", (2, 5, 3)), ("gfx1100", (1, 34, 2))])
def test_on_the_software_gpu(chip: str, sizes: tuple[int, ...]) -> None:
    feeds = drawn(*sizes)
    net = tec.compile(factored(feeds), target=f"rocm -mcpu={chip}", cache=False)
    close(net.run(feeds, device=tec.rocm_emu(chip, check="all")), reference(feeds))


def test_what_a_factorization_says_of_itself() -> None:
    g = Graph("info")
    x = g.input("x", "float32", (3, 3, 3))
    g.set_outputs([g.add("lu", [x], {})[2], g.add("cholesky", [x], {})[1]], ["lu", "cholesky"])
    good, bad = np.eye(3, dtype=np.float32), np.diag([1, 0, 1]).astype(np.float32)
    feeds = {"x": np.stack([good, bad, -good])}
    for lu, cholesky in (run_graph(g, feeds), tec.compile(g, target="llvm", cache=False).run(feeds)):
        assert lu.tolist() == [0, 2, 0] and cholesky.tolist() == [0, 2, 1]


def test_what_does_not_fit_is_refused() -> None:
    g = Graph("bad")
    with pytest.raises(ImportModelError, match="factors of"):
        g.add("lu", [g.input("x", "float16", (1, 3, 3))], {})
    with pytest.raises(ImportModelError, match="factors of"):
        g.add("cholesky", [g.input("z", "float32", (1, 3, 4))], {})
    a, b = g.input("a", "float32", (1, 3, 3)), g.input("b", "float32", (1, 4, 2))
    with pytest.raises(ImportModelError, match="a triangle of"):
        g.add("substitution", [a, b], {"upper": True, "unit": False})
