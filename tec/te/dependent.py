"""Reductions whose domain depends on other axes of the compute: triangular loops.

    k = reduce_axis((0, i + 1));  sum(A[i, k], axis=k)   ->   k in (0, n);  sum(A[i, k], axis=k, where=k < i + 1)

In: the bodies of a compute. Out: bodies whose reduce axes have domains that hold for every index (the smallest box around
the dependent one), and whose conditions say which part of the box counts. Every schedule is then right by construction:
loops may be split, reordered, bound and factored as those of any `where`. Lowering runs the loop over just the part where
it can (`partition_loops`; ends that are read from memory, `read_ends`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

from ..errors import ExprError
from ..ir import build
from ..ir.arith import Analyzer
from ..ir.expr import Add, Expr, IntImm, IterVar, Range, Reduce, TensorRead, Var
from ..ir.visit import free_vars, walk_exprs

# Reduce variables that have had their domain boxed: they belong to that one compute, as what it depended on does.
_BOXED: WeakValueDictionary[int, Var] = WeakValueDictionary()


def boxed(bodies: tuple[Expr, ...], axes: Sequence[IterVar], what: str) -> tuple[Expr, ...]:
    """The bodies with reduce axes of fixed domains; see the module. Raises ExprError where no box is known."""
    first = bodies[0]
    if not isinstance(first, Reduce):
        return bodies
    for iv in first.axis:
        _check_own(iv, bodies, what)
    moving = {id(a.var): a for a in (*axes, *first.axis)}
    dependent = [iv for iv in first.axis if _depends(iv, moving)]
    if not dependent:
        return bodies
    ana = Analyzer()
    known: dict[Var, Range] = {}
    for a in (*axes, *(iv for iv in first.axis if not _depends(iv, moving))):
        assert a.dom is not None
        known[a.var] = a.dom
        ana.bind(a.var, a.dom)
    conditions: list[Expr] = []
    while dependent:
        ready = [x for x in dependent if all(v in known or id(v) not in moving for v in _symbols(x))]
        if not ready:
            names = ", ".join(x.name for x in dependent)
            raise ExprError(
                f"{what}: the domains of the reduce axes {names} depend on each other in a circle",
                hint="let the domain of one of them be of constants, and give a where=",
            )
        iv = ready[0]
        dependent = [x for x in dependent if x is not iv]
        conditions += _box(iv, known, ana, bodies, what)
        _BOXED[id(iv.var)] = iv.var
    inside = build.all_of(*conditions)
    # A condition of the user's own may read: it is asked inside of the domain alone.
    own = first.condition
    whole = inside if build.const_value(own) == 1 else build.if_then_else(inside, own, build.const(False))
    return tuple(
        [Reduce(r.combiner, r.source, r.axis, whole, r.value_index, r.init) for r in bodies if isinstance(r, Reduce)]
    )


def _check_own(iv: IterVar, bodies: Sequence[Expr], what: str) -> None:
    assert iv.dom is not None
    if _BOXED.get(id(iv.var)) is iv.var:
        raise ExprError(
            f"{what} reduces over {iv.name}, whose domain depends on an axis of another compute",
            where=iv.loc, hint="make a reduce_axis of its own inside of the function of the indices",
        )  # fmt: skip
    for e in (iv.dom.min, iv.dom.extent):
        read = next((x for x in walk_exprs(e) if isinstance(x, TensorRead)), None)
        if read is not None and _extent_of_what_is_read(iv, bodies) is None:
            raise ExprError(
                f"the domain of reduce axis {iv.name} is read from {read.tensor.name}: how far it goes at most is not known",
                where=iv.loc, hint=f"give the axis its largest extent, and the reduction where={iv.name} < {e}",
            )  # fmt: skip


def _symbols(iv: IterVar) -> list[Var]:
    assert iv.dom is not None
    return [*free_vars(iv.dom.min), *free_vars(iv.dom.extent)]


def _depends(iv: IterVar, moving: dict[int, IterVar]) -> bool:
    assert iv.dom is not None
    read = any(isinstance(x, TensorRead) for e in (iv.dom.min, iv.dom.extent) for x in walk_exprs(e))
    return read or any(id(v) in moving for v in _symbols(iv))


def _is_beside(index: Expr, var: Var) -> bool:
    """Whether an index is the variable plus what does not depend on it."""
    if index is var:
        return True
    if not isinstance(index, Add):
        return False
    return any(
        _is_beside(x, var) and not any(v is var for v in free_vars(y))
        for x, y in ((index.a, index.b), (index.b, index.a))
    )


def _extent_of_what_is_read(iv: IterVar, bodies: Sequence[Expr]) -> Expr | None:
    """The extent of a dimension that is read at the axis beside what is not negative: the axis goes no further, as its ends are read from memory (a row of a
    sparse matrix, whose elements are A[start + k]). None where nothing is read so."""
    for r in bodies:
        if not isinstance(r, Reduce):
            continue
        for x in (x for source in r.source for x in walk_exprs(source)):
            if not isinstance(x, TensorRead):
                continue
            for k, index in enumerate(x.indices):
                if _is_beside(index, iv.var):
                    extent: Expr = build.convert(x.tensor.shape[k])
                    return extent
    return None


def _box(iv: IterVar, known: dict[Var, Range], ana: Analyzer, bodies: Sequence[Expr], what: str) -> list[Expr]:
    """Give `iv` the box around its domain; what is left to ask of its values."""
    assert iv.dom is not None
    begin, end = iv.dom.min, ana.simplify(build.add(iv.dom.min, iv.dom.extent))
    if any(isinstance(x, TensorRead) for e in (begin, end) for x in walk_exprs(e)):
        extent = build.cast(iv.var.dtype, _extent_of_what_is_read(iv, bodies))
        iv.dom = Range(build.const(0, iv.var.dtype), extent)
        iv.var.is_size = True
        known[iv.var] = iv.dom
        ana.bind(iv.var, iv.dom)
        return [build.compare("ge", iv.var, begin), build.compare("lt", iv.var, end)]
    domain: dict[Var, Any] = dict(known)
    low, high = ana.int_set(begin, domain).min, ana.int_set(end, domain).max
    if low is None or high is None:
        raise ExprError(
            f"{what}: how far reduce axis {iv.name} of domain ({begin}, {end}) goes at most is not known",
            where=iv.loc, hint=f"give the axis its largest extent, and the reduction where=tec.all({begin} <= {iv.name}, {iv.name} < {end})",
        )  # fmt: skip
    dtype = iv.var.dtype
    extent = ana.simplify(build.cast(dtype, build.sub(high, low)))
    if isinstance(extent, IntImm) and extent.value < 0:
        extent = build.const(0, dtype)
    iv.dom = Range(build.cast(dtype, ana.simplify(low)), extent)
    iv.var.is_size = isinstance(iv.dom.min, IntImm) and iv.dom.min.value >= 0
    known[iv.var] = iv.dom
    ana.bind(iv.var, iv.dom)
    asked = [build.compare("ge", iv.var, begin), build.compare("lt", iv.var, end)]
    return [c for c in asked if not ana.can_prove(c)]
