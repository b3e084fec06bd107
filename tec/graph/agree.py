"""One form for sizes that must be equal and are written in two: (h + 15) // 16 beside 2 * ((h + 31) // 32), where a path of a network halves five times
and doubles once. They are equal for some numbers (multiples of 32) and not for others, so that it is a condition on sizes, which each run is held to."""

from __future__ import annotations

from collections.abc import Sequence

from ..ops.dims import Dim, Size, require


def agreed_shapes(shapes: Sequence[tuple[Size, ...]], axis: int | None = None) -> list[tuple[Size, ...]]:
    """The shapes of operands with sizes that must be equal in one form, the shortest; the others as they are. `axis`: operands are joined along it, so
    that all else is equal; None: they broadcast, aligned at their ends. Equality goes to the conditions that are being recorded (`recording`).

    Sizes of different names are left alone: they may be given one name, and are more likely a mistake.
    """
    ndim = max(map(len, shapes))
    out = [list(s) for s in shapes]
    for k in range(ndim):
        if axis is not None and k == axis % ndim:
            continue
        at = [(row, k - ndim + len(row)) for row in out if k - ndim + len(row) >= 0]
        sizes = [row[j] for row, j in at if not (axis is None and row[j] == 1)]
        form = min(sizes, key=lambda n: len(str(n)), default=1)
        if len(set(sizes)) > 1 and all(n == form or _one_condition(n, form) for n in sizes):
            for row, j in at:
                row[j] = form if row[j] in sizes else row[j]
    return [tuple(row) for row in out]


def _one_condition(a: Size, b: Size) -> bool:
    """Whether two sizes of the same names are equal, as far as is known; noted as a condition."""
    if not isinstance(a, Dim) or not isinstance(b, Dim) or a.names() != b.names():
        return False
    gap = a - b
    if not isinstance(gap, Dim) or not gap.has_quotients:
        return False
    what = "they are one dimension"
    return require(a, "<=", b, what) and require(b, "<=", a, what)
