"""Reductions: sum, min, max, prod, any, all, and reducers of your own (also over tuples, as argmax needs).

A reducer called with `axis=` makes a `Reduce`. `tec.max(a, b)` and the like with values alone combine them directly.

NaN: `max` and `min` return the number if one side is NaN (NumPy's fmax and fmin), while `maximum` and `minimum`
return NaN (NumPy's maximum and minimum). `max` over nothing but NaN is its identity, -inf. This is the same on every
target and in every type. Which zero the four return for -0.0 and 0.0 is not defined, because the hardware differs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..errors import ExprError
from ..ir import build
from ..ir.dtype import dtype_info
from ..ir.expr import Call, CommReducer, Expr, IterKind, IterVar, Reduce, Var
from .build import infinity, max_value, min_value
from .complexes import ComplexValue, reduced
from .like import FunctionOfEach

__all__ = ["all", "any", "comm_reducer", "max", "maximum", "min", "minimum", "prod", "sum"]


class Reducer:
    """A reduction: call it with an expression (or a tuple) and `axis=`. `comm_reducer` makes one of your own."""

    def __init__(self, combine: Callable[[Any, Any], Any], identity: Callable[..., Any], name: str):
        self.combine = combine
        self.identity = identity
        self.__name__ = self.name = name
        # One combiner a tuple of dtypes, so that the values of one reduction share theirs.
        self._combiners: dict[tuple[str, ...], CommReducer] = {}

    def __call__(self, expr: Any, *more: Any, axis: Any = None, where: Any = None, init: Any = None) -> Any:
        """The reduction of `expr` over `axis`, or a combination of values.

        expr: an expression, or a tuple if the reducer combines tuples. axis: a reduction axis or a list of them;
        without it `expr` and `more` are combined directly. where: a condition; other elements are left out. init:
        what the reduction starts with, by default the identity. Raises ExprError for nested reductions and for an
        axis that is not a reduction axis.
        """
        if axis is None and len(more) == 1 and _is_axis(more[0]):
            axis, more = more[0], ()
        if axis is None:
            return self._directly((expr, *more), where, init)
        if isinstance(expr, ComplexValue):
            return reduced(self, expr, axis=axis, where=where, init=init)
        if more:
            raise ExprError(
                f"{self.name} takes either values or an axis, not both", hint=f"tec.{self.name}(a[k], axis=k)"
            )
        axes = self._axes(axis)
        sources = tuple(build.convert(e) for e in expr) if isinstance(expr, (tuple, list)) else (build.convert(expr),)
        for e in sources:
            if isinstance(e, Reduce):
                raise ExprError(
                    f"{self.name} of a reduction: reductions do not nest",
                    hint="list all axes in one: axis=[k, l], or make the inner one a tensor of its own",
                )
        combiner = self._combiner(tuple(e.dtype for e in sources), isinstance(expr, (tuple, list)))
        condition = build.const(True) if where is None else build.convert(where)
        if condition.dtype != "bool":
            raise ExprError(
                f"where= of {self.name} is {condition.dtype}, not bool: {condition}", hint="write a comparison"
            )
        start = self._start(init, sources)
        values = [Reduce(combiner, sources, axes, condition, k, start) for k in range(len(sources))]
        return tuple(values) if isinstance(expr, (tuple, list)) else values[0]

    def _directly(self, values: tuple[Any, ...], where: Any, init: Any) -> Any:
        if len(values) < 2 or where is not None or init is not None:
            raise ExprError(
                f"{self.name} needs an axis to reduce over",
                hint=f"tec.{self.name}(A[i, k], axis=k) with k = tec.reduce_axis(...)",
            )
        result = values[0]
        for v in values[1:]:
            result = self.combine(result, v)
        return build.convert(result)

    def _axes(self, axis: Any) -> tuple[IterVar, ...]:
        items = list(axis) if isinstance(axis, (tuple, list)) else [axis]
        if not items:
            raise ExprError(f"{self.name} over no axis", hint="axis=k or axis=[k, l]")
        for a in items:
            if not isinstance(a, IterVar):
                shown = f"{a!r} ({type(a).__name__})"
                raise ExprError(
                    f"axis of {self.name} is {shown}", hint="an axis comes from tec.reduce_axis((begin, end))"
                )
            if a.kind != IterKind.REDUCE:
                raise ExprError(
                    f"axis {a.name} of {self.name} is a {a.kind} axis", hint="make it by tec.reduce_axis((begin, end))"
                )
        if len({id(a) for a in items}) != len(items):
            raise ExprError(f"{self.name} lists an axis twice", hint="name each axis once")
        return tuple(items)

    def _combiner(self, dtypes: tuple[str, ...], is_tuple: bool) -> CommReducer:
        hit = self._combiners.get(dtypes)
        if hit is not None:
            return hit
        n = len(dtypes)
        _check_arity(self.identity, n, f"the identity of reducer {self.name}")
        lhs = tuple(Var(f"x{k}" if n > 1 else "x", t) for k, t in enumerate(dtypes))
        rhs = tuple(Var(f"y{k}" if n > 1 else "y", t) for k, t in enumerate(dtypes))
        if is_tuple:
            result, identity = self.combine(lhs, rhs), self.identity(*dtypes)
        else:
            result, identity = self.combine(lhs[0], rhs[0]), self.identity(dtypes[0])
        results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        identities = tuple(identity) if isinstance(identity, (tuple, list)) else (identity,)
        if len(results) != n or len(identities) != n:
            raise ExprError(
                f"reducer {self.name} combines {len(results)} values with {len(identities)} identities, and is given {n}",
                hint="combine and identity return as many values as the reduction has",
            )
        cast = tuple(_typed(r, t, f"the combination of {self.name}") for r, t in zip(results, dtypes))
        start = tuple(_typed(i, t, f"the identity of {self.name}") for i, t in zip(identities, dtypes))
        self._combiners[dtypes] = CommReducer(lhs, rhs, cast, start, self.name)
        return self._combiners[dtypes]

    def has_made(self, combiner: CommReducer) -> bool:
        """Whether a combiner is this reducer's."""
        return combiner in self._combiners.values()

    def _start(self, init: Any, sources: tuple[Expr, ...]) -> tuple[Expr, ...]:
        if init is None:
            return ()
        items = init if isinstance(init, (tuple, list)) else (init,)
        if len(items) != len(sources):
            raise ExprError(
                f"{self.name} has {len(sources)} values and {len(items)} init values",
                hint="one init value for each value",
            )
        return tuple(_typed(i, s.dtype, f"init of {self.name}") for i, s in zip(items, sources))


def _typed(value: Any, dtype: str, what: str) -> Expr:
    """`value` as an expression of `dtype`; numbers convert, other types must agree."""
    e = build.convert(value, dtype)
    if e.dtype == dtype:
        return e
    if build.const_value(e) is not None:
        return build.cast(dtype, e)
    raise ExprError(f"{what} is {e.dtype}, its value {dtype}", hint="cast one of them")


def _check_arity(f: Callable[..., Any], count: int, what: str) -> None:
    try:
        inspect.signature(f).bind(*[None] * count)
    except TypeError:
        raise ExprError(
            f"{what} must take {count} argument{'s'[: count != 1]}", hint="combine(x, y), identity(dtype, ...)"
        ) from None
    except ValueError:
        pass  # a builtin without a signature


def _is_axis(value: Any) -> bool:
    return isinstance(value, IterVar) or (
        isinstance(value, (list, tuple)) and len(value) > 0 and isinstance(value[0], IterVar)
    )


def comm_reducer(fcombine: Callable[[Any, Any], Any], fidentity: FunctionOfEach, name: str = "reduce") -> Reducer:
    """A reducer of your own, which must be commutative and associative.

    fcombine: a function of two values, or of two tuples of values, that combines them. fidentity: a function of the
    dtype, or of one dtype per value, that returns the neutral element. name: shown in messages. Returns a reducer, to
    be called with `axis=`. Raises ExprError for functions with other numbers of parameters.

    >>> argmax = tec.comm_reducer(
    ...     lambda x, y: (tec.select(x[1] >= y[1], x[0], y[0]), tec.select(x[1] >= y[1], x[1], y[1])),
    ...     lambda t0, t1: (tec.const(-1, t0), tec.min_value(t1)), name="argmax")
    >>> A, k = tec.placeholder((8, 32), name="A"), tec.reduce_axis(32, name="k")
    >>> idx, val = tec.compute((8,), lambda i: argmax((k.var, A[i, k]), axis=k))
    """
    if not callable(fcombine) or not callable(fidentity):
        raise ExprError(
            "comm_reducer takes two functions: combine(x, y) and identity(dtype)",
            hint='tec.comm_reducer(lambda x, y: x + y, lambda dtype: tec.const(0, dtype), name="sum")',
        )
    _check_arity(fcombine, 2, f"the combiner of reducer {name}")
    return Reducer(fcombine, fidentity, name)


def _lowest(dtype: str) -> Expr:
    """The identity of max: -inf for floats, so that a maximum of -inf stays what it is."""
    return build.neg(infinity(dtype)) if dtype_info(dtype).is_float and "e4m3" not in dtype else min_value(dtype)


def _highest(dtype: str) -> Expr:
    return infinity(dtype) if dtype_info(dtype).is_float and "e4m3" not in dtype else max_value(dtype)


def _carrying_nan(op: str, x: Any, y: Any) -> Expr:
    """The extremum that is NaN where either side is; types without NaN have the plain one."""
    a, b = build.match(x, y)
    if dtype_info(a.dtype).is_float:
        return Call(op, (a, b), a.dtype)
    return build.minimum(a, b) if op == "min_nan" else build.maximum(a, b)


sum = comm_reducer(lambda x, y: build.add(x, y), lambda t: build.const(0, t), name="sum")
prod = comm_reducer(lambda x, y: build.mul(x, y), lambda t: build.const(1, t), name="prod")
min = comm_reducer(lambda x, y: build.minimum(x, y), _highest, name="min")
max = comm_reducer(lambda x, y: build.maximum(x, y), _lowest, name="max")
minimum = comm_reducer(lambda x, y: _carrying_nan("min_nan", x, y), _highest, name="minimum")
maximum = comm_reducer(lambda x, y: _carrying_nan("max_nan", x, y), _lowest, name="maximum")
sum.__doc__ = """The sum of an expression over `axis`, 0 over nothing: `tec.sum(A[i, k], axis=k)`. See `Reducer.__call__`.

>>> A, k = tec.placeholder((8, 32), name="A"), tec.reduce_axis(32, name="k")
>>> rows = tec.compute((8,), lambda i: tec.sum(A[i, k], axis=k))
"""
prod.__doc__ = """The product of an expression over `axis`, 1 over nothing. See `sum`.

>>> k = tec.reduce_axis((1, 5), name="k")
>>> tec.evaluate([tec.compute((1,), lambda i: tec.prod(k, axis=k))], {})[0]
array([24], dtype=int32)
"""
min.__doc__ = """The least value over `axis`, or of several values; a number wins over NaN. See `minimum` and `sum`.

>>> tec.min(3, 1, 2), tec.min(tec.var("n"), 8)
(1, min(n, 8))
"""
max.__doc__ = """The greatest value over `axis`, or of several values; a number wins over NaN. See `maximum` and `sum`.

>>> A, k = tec.placeholder((2, 3), name="A"), tec.reduce_axis(3, name="k")
>>> B = tec.compute((2,), lambda i: tec.max(A[i, k], axis=k))
>>> tec.evaluate([B], {A: np.float32([[1, 3, 2], [5, np.nan, 4]])})[0]
array([3., 5.], dtype=float32)
"""
minimum.__doc__ = """The least value over `axis`, or of several values; NaN where one is NaN, as NumPy's. See `min`.

>>> A, k = tec.placeholder((2, 3), name="A"), tec.reduce_axis(3, name="k")
>>> B = tec.compute((2,), lambda i: tec.minimum(A[i, k], axis=k))
>>> tec.evaluate([B], {A: np.float32([[1, 3, 2], [5, np.nan, 4]])})[0]
array([ 1., nan], dtype=float32)
"""
maximum.__doc__ = """The greatest value over `axis`, or of several values; NaN where one is NaN, as NumPy's. See `max`.

>>> A, k = tec.placeholder((2, 3), name="A"), tec.reduce_axis(3, name="k")
>>> B = tec.compute((2,), lambda i: tec.maximum(A[i, k], axis=k))
>>> tec.evaluate([B], {A: np.float32([[1, 3, 2], [5, np.nan, 4]])})[0]
array([ 3., nan], dtype=float32)
"""
_all = comm_reducer(lambda x, y: build.logical_and(x, y), lambda t: build.const(True), name="all")
_any = comm_reducer(lambda x, y: build.logical_or(x, y), lambda t: build.const(False), name="any")


def all(*conditions: Any, axis: Any = None, where: Any = None, init: Any = None) -> Expr:
    """Whether all conditions hold; with `axis=`, whether the one condition holds everywhere along it. Returns a bool
    expression.

    >>> A, k = tec.placeholder((8, 32), name="A"), tec.reduce_axis(32, name="k")
    >>> B = tec.compute((8,), lambda i: tec.all(A[i, k] > 0.0, axis=k))
    """
    return _logic(_all, build.all_of, conditions, axis, where, init)


def any(*conditions: Any, axis: Any = None, where: Any = None, init: Any = None) -> Expr:
    """Whether a condition holds; with `axis=`, whether the one condition holds somewhere along it. Returns a bool
    expression.

    >>> A, k = tec.placeholder((8, 32), name="A"), tec.reduce_axis(32, name="k")
    >>> B = tec.compute((8,), lambda i: tec.any(A[i, k] > 0.0, axis=k))
    """
    return _logic(_any, build.any_of, conditions, axis, where, init)


def _logic(
    reducer: Reducer, direct: Callable[..., Expr], conditions: tuple[Any, ...], axis: Any, where: Any, init: Any
) -> Expr:
    if axis is None and len(conditions) == 2:
        first, second = conditions
        if _is_axis(second):
            conditions, axis = (first,), second
    if not conditions:
        raise ExprError(
            f"tec.{reducer.name}() of no conditions", hint="pass one condition or more: tec.all(i < n, A[i] > 0)"
        )
    exprs = [build.convert(c) for c in conditions]
    for e in exprs:
        if not dtype_info(e.dtype).kind == "bool":
            raise ExprError(
                f"tec.{reducer.name} of a value of type {e.dtype}: {e}", hint="write a comparison such as x != 0"
            )
    if axis is None:
        return direct(*exprs)
    if len(exprs) != 1:
        raise ExprError(
            f"tec.{reducer.name} over an axis takes one condition, not {len(exprs)}",
            hint="join them first: tec.all(a, b), and reduce that",
        )
    result: Expr = reducer(exprs[0], axis=axis, where=where, init=init)
    return result
