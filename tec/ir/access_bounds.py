"""Whether an access stays inside of its buffer: for certain, for certain not, or neither.

In: an Access, with the loops around it and the conditions that it stands under. Inside is proved by intervals of numbers
(`surely_inside`), and by an Analyzer where that is not enough (`is_inside`). Outside takes a witness: the corner of the domain
where the index is the least or greatest, at which all conditions hold (`find_outside`). What memory decides is neither, unless it is
clamped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..records import dataclass
from . import build as B
from . import expr as E
from .arith import Analyzer
from .arith.intervals import Interval, interval_of
from .dtype import dtype_info
from .visit import free_vars, substitute, walk_exprs

Ints = Mapping[int, Interval]  # least and greatest value of a variable, by its id
Domain = Sequence[tuple[E.Var, E.Range]]  # loops, outermost first


@dataclass(slots=True, eq=False)
class Access:
    """`what[indices]` in a buffer of `shape`; `guards`: conditions that hold where it is made."""

    what: str
    shape: Sequence[E.Expr]
    indices: Sequence[E.Expr]
    guards: Sequence[E.Expr]

    def __str__(self) -> str:
        return f"{self.what}[{', '.join(map(str, self.indices))}]"


@dataclass(slots=True, eq=False)
class Outside:
    """An iteration at which dimension `dim` of an access has the index `index`."""

    dim: int
    at: list[tuple[E.Var, E.Expr]]
    index: E.Expr

    def __str__(self) -> str:
        where = ", ".join(f"{v.name} = {e}" for v, e in self.at)
        return f"the index is {self.index}" + (f" at {where}" if where else "")


def numbers(domain: Domain) -> dict[int, tuple[int, int]]:
    """The variables whose range is constant."""
    out: dict[int, tuple[int, int]] = {}
    for v, r in domain:
        low, extent = r.min, r.extent
        if type(low) is E.IntImm and type(extent) is E.IntImm:
            out[id(v)] = (low.value, low.value + extent.value - 1)
    return out


def surely_inside(shape: Sequence[E.Expr], indices: Sequence[E.Expr], known: Ints, whole: Mapping[int, E.Expr]) -> bool:
    """Whether simple rules are enough, conditions aside. `whole`: the ends of loops that run from 0, by variable."""
    for i, n in zip(indices, shape):
        if type(i) is E.Var and whole.get(id(i)) is n:
            continue
        s = interval_of(i, known)
        if s is None or s[0] < 0 or type(n) is not E.IntImm or s[1] >= n.value:
            return False
    return True


def is_inside(access: Access, ana: Analyzer) -> bool:
    """Whether an access is inside for certain; `ana` has the loops around it bound."""
    if any(dtype_info(i.dtype).lanes > 1 for i in access.indices):
        return False
    with ana.scope():
        for g in access.guards:
            ana.add_constraint(g)
        return all(
            ana.can_prove(E.GE(i, B.const(0, i.dtype))) and ana.can_prove(B.compare("lt", i, n))
            for i, n in zip(access.indices, access.shape)
        )


def find_outside(access: Access, domain: Domain, known: Ints) -> Outside | None:
    """An iteration at which an access is outside, where one is found; `known`: `numbers(domain)`."""
    for d, (i, n) in enumerate(zip(access.indices, access.shape)):
        s = interval_of(i, known)
        if s is None or s[0] < 0:
            found = _witness(access, d, False, domain)
            if found is not None:
                return found
        if s is None or type(n) is not E.IntImm or s[1] >= n.value:
            found = _witness(access, d, True, domain)
            if found is not None:
                return found
    return None


def _witness(access: Access, d: int, past: bool, domain: Domain) -> Outside | None:
    """The corner of the domain where the index of dimension `d` is the least (`past`: the greatest), if that is outside."""
    index, n = access.indices[d], access.shape[d]
    if any(type(x) in (E.TensorRead, E.BufferLoad, E.Call) for x in walk_exprs(index)):
        return None
    coeffs = Analyzer().detect_linear(index, [v for v, _ in domain])
    if coeffs is None and access.guards:
        return None  # a corner that no one knows to be the right one, and conditions that few corners fulfil: seldom, and dear
    free = Analyzer()
    for v in {
        id(v): v
        for e in (index, n, *access.guards, *(x for _, r in domain for x in (r.min, r.extent)))
        for v in free_vars(e)
    }.values():
        if all(v is not w for w, _ in domain) and v.dtype in ("int32", "int64"):
            free.bind(v, E.Range(B.const(1, v.dtype), B.const(2**30, v.dtype)))  # a size; of nothing there is no access
    at: dict[E.Var, E.Expr] = {}
    for k, (v, r) in enumerate(domain):
        c = coeffs[k] if coeffs is not None else None
        step = c.value if isinstance(c, E.IntImm) else 1 if coeffs is None else None
        if step is None:
            return None
        low, high = substitute(r.min, at), substitute(B.sub(B.add(r.min, r.extent), 1), at)
        for g in access.guards:
            there = substitute(g, at)
            is_asked = any(x is v for x in free_vars(there))
            bounds = Analyzer().detect_clip_bound(there, [v]) if is_asked else None
            if bounds is not None:
                low = low if bounds[0].min is None else B.maximum(low, B.cast(low.dtype, bounds[0].min))
                high = high if bounds[0].max is None else B.minimum(high, B.cast(high.dtype, bounds[0].max))
        value = free.simplify(high if (step > 0) == past else low)
        inside = B.all_of(
            B.compare("ge", value, substitute(r.min, at)),
            B.compare("lt", value, substitute(B.add(r.min, r.extent), at)),
        )
        if not free.can_prove(inside):
            return None
        at[v] = B.cast(v.dtype, value)
    if not all(free.can_prove(substitute(g, at)) for g in access.guards):
        return None
    here = free.simplify(substitute(index, at))
    if not free.can_prove(B.compare("ge", here, n) if past else B.compare("lt", here, 0)):
        return None
    used = {id(v) for e in (index, *access.guards) for v in free_vars(e)}
    return Outside(d, [(v, e) for v, e in at.items() if id(v) in used], here)


def describe_shape(shape: Sequence[Any]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
