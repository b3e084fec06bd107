"""Many size expressions worked out together: one matrix of polynomials, so that a new size costs microseconds.

In: expressions of `exprs` over the names of sizes. `row(e)` gives an expression's row, and equal polynomials share one;
`evaluate(env)` gives all rows as 64-bit integers. An expression is brought to a sum of products of atoms: names, and what is
neither sum nor product (quotients, minima ...), which is worked out one by one; atoms stand by number in `tec.polynomials`. The matrix times the values of the products is
done in float64, whose integers are exact up to 2^53; what may pass that raises OverflowError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...polynomials import Monomial, Polynomial, add_to, times
from ..modules import exprs

Wrong = Callable[[int, Mapping[str, int]], Exception]
EXACT = 1 << 53  # integers that float64 holds, all of them


class SizeTable:
    """See the module. Rows may be added until the first `evaluate`, and after it while nobody else uses the table: it is then put together anew."""

    def __init__(self) -> None:
        self._atoms: dict[Any, int] = {}
        self._compiled: list[exprs.Compiled] = []
        self._expressions: list[Any] = []  # of the atoms
        self._rows: dict[tuple[tuple[Monomial, int], ...], int] = {}
        self._polynomials: list[tuple[tuple[Monomial, int], ...]] = []
        # Rows by numbers, names, and the text of other expressions that were asked for.
        self._known: dict[str | int, int] = {}
        self._monomials: list[Monomial] = []
        self._matrix: Any = None

    @classmethod
    def of(
        cls, atoms: list[Any], polynomials: list[tuple[tuple[Monomial, int], ...]], known: dict[str | int, int]
    ) -> SizeTable:
        """The table whose atoms, rows and rows by what was asked for are these."""
        made = cls()
        made._atoms = {a if isinstance(a, str) else repr(a): k for k, a in enumerate(atoms)}
        made._expressions, made._compiled = list(atoms), [exprs.compile_expr(a) for a in atoms]
        made._polynomials, made._rows = polynomials, {p: k for k, p in enumerate(polynomials)}
        made._known = known
        return made

    def row(self, e: Any) -> int:
        """The row of an expression. PackageError for what is none."""
        key = e if type(e) is int or type(e) is str else repr(e)
        at = self._known.get(key)
        if at is None:
            at = self._known[key] = self.row_of(self.polynomial(e))
        return at

    def row_of(self, p: Polynomial) -> int:
        """The row of a polynomial."""
        key = tuple(sorted((m, c) for m, c in p.items() if c))
        at = self._rows.get(key)
        if at is None:
            at = self._rows[key] = len(self._rows)
            self._polynomials.append(key)
            self._matrix = None
        return at

    def polynomial_of(self, row: int) -> Polynomial:
        """The polynomial of a row."""
        return dict(self._polynomials[row])

    def constant(self, row: int) -> int | None:
        """The value of a row that no size changes; None for another."""
        polynomial = self._polynomials[row]
        if not polynomial:
            return 0
        return polynomial[0][1] if polynomial[0][0] == () and len(polynomial) == 1 else None

    def polynomial(self, e: Any) -> Polynomial:
        """An expression as {product of atoms: factor}."""
        if type(e) is int:
            return {(): e}
        compiled = exprs.compile_expr(e)  # its form is checked here
        if not callable(compiled):
            return {(): int(compiled)}
        return self._expand(e, compiled)

    def _expand(self, e: Any, compiled: exprs.Compiled | None = None) -> Polynomial:
        if not isinstance(e, (str, list, tuple)):
            return {(): int(e)}
        op = e[0] if not isinstance(e, str) else ""
        if op in ("add", "sub"):
            return add_to(dict(self._expand(e[1])), self._expand(e[2]), 1 if op == "add" else -1)
        if op == "mul":
            return times(self._expand(e[1]), self._expand(e[2]))
        key = e if isinstance(e, str) else repr(e)
        at = self._atoms.get(key)
        if at is None:
            at = self._atoms[key] = len(self._compiled)
            self._compiled.append(exprs.compile_expr(e) if compiled is None else compiled)
            self._expressions.append(e)
        return {(at,): 1}

    def atom_expressions(self) -> list[Any]:
        """The expression of each atom, by its number."""
        return list(self._expressions)

    def sums(self) -> tuple[list[Monomial], list[tuple[tuple[Monomial, int], ...]]]:
        """All products of atoms, and each row as a sum of them."""
        return list(dict.fromkeys(m for row in self._rows for m, _ in row)), list(self._polynomials)

    def _fix(self) -> Any:
        products = dict.fromkeys(m for row in self._rows for m, _ in row)
        column = {m: k for k, m in enumerate(products)}
        matrix = np.zeros((len(self._rows), len(products)))
        for row, at in self._rows.items():
            for m, c in row:
                matrix[at, column[m]] = c
        self._monomials = list(products)
        self._matrix = matrix, np.abs(matrix)
        return self._matrix

    def evaluate(self, env: Mapping[str, int]) -> Any:
        """The values of all rows (int64). Raises OverflowError, ZeroDivisionError; KeyError for a name that is not there."""
        matrix, positive = self._matrix or self._fix()
        atoms = [exprs.evaluate(c, env) for c in self._compiled]
        values = []
        for m in self._monomials:
            x = 1
            for a in m:
                x *= atoms[a]
            values.append(x)
        column = np.array(values, np.float64)
        if len(values) and (positive @ np.abs(column)).max() >= EXACT:
            raise OverflowError("a size is past 2^53")
        return (matrix @ column).astype(np.int64)


class Limits:
    """What rows of a table must lie between, all looked at in one go."""

    def __init__(self) -> None:
        self._wrong: dict[tuple[int, int, int], Wrong] = {}
        self._columns: Any = None

    def add(self, row: int, least: int, most: int, wrong: Wrong) -> None:
        """Of what is wrong, that which was added first is told. wrong: of the row's value and the sizes."""
        if self._wrong.setdefault((row, least, most), wrong) is wrong:
            self._columns = None

    def rows(self) -> list[tuple[int, int, int, Wrong]]:
        """(row, least, most, what is wrong where it is not between them) of each, in the order in which they are told."""
        return [(*key, wrong) for key, wrong in self._wrong.items()]

    def check(self, numbers: Any, env: Mapping[str, int]) -> None:
        """Raise what a row is wrong for."""
        columns = self._columns
        if columns is None:
            columns = self._columns = np.ascontiguousarray(np.array(list(self._wrong), np.int64).reshape(-1, 3).T)
        rows, least, most = columns
        values = numbers[rows]
        beyond = (values < least) | (values > most)
        if beyond.any():
            at = int(beyond.argmax())
            raise list(self._wrong.values())[at](int(values[at]), env)


def substitute(e: Any, env: Mapping[str, Any]) -> Any:
    """An expression with names replaced by expressions."""
    if isinstance(e, str):
        return env.get(e, e)
    if isinstance(e, (list, tuple)):
        return [e[0], *(substitute(x, env) for x in e[1:])]
    return e
