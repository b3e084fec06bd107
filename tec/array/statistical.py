"""Reductions: sums, means, extrema, running sums; and whether all or any hold. Each is one kernel with what it reduces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import build, dtypes
from .arguments import checked
from .array import Array, node_of, number, of_one
from .dtypes import DType, DTypeLike, as_dtype
from .errors import ArrayTypeError, ArrayValueError
from .manipulation import axes_of, axis_of, concat
from .node import Node, scalar

_BOTTOM = {"sum": 0, "prod": 1, "any": False, "all": True}


def reduce(op: str, n: Node, axis: Any, keepdims: bool) -> Node:
    """A reduction; that of no elements is its neutral element. Raises ArrayValueError where it has none."""
    axes = axes_of(axis, len(n.shape))
    if 0 in [n.shape[k] for k in axes]:
        if op not in _BOTTOM:
            raise ArrayValueError(f"{op} of no elements: shape {n.shape} along {axis}", hint="test x.size first")
        return build.full(_BOTTOM[op], build.reduced_shape(n.shape, axes, keepdims), n.dtype, n.device)
    return build.reduce(op, n, axes, keepdims)


def _summed_type(n: Node, dtype: Any) -> DType:
    """What sums are of: small integers sum in 64 bits."""
    if dtype is not None:
        return as_dtype(dtype)
    if n.dtype == "bool" or n.dtype in dtypes.KINDS["signed integer"]:
        return dtypes.int64
    return dtypes.uint64 if n.dtype in dtypes.KINDS["unsigned integer"] else n.dtype


def sum(
    x: Array,
    /,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    keepdims: bool = False,
    initial: Any = None,
    where: Array | None = None,
) -> Array:
    """The sum along `axis`, an int, a tuple, or None for all. Integers are summed in 64 bits unless `dtype` gives
    another type.

    >>> float(xp.sum(xp.ones((3, 4))))
    12.0
    """
    n = node_of(x)
    return _begun("sum", build.cast(n, _summed_type(n, dtype)), axis, keepdims, initial, where)


def prod(
    x: Array,
    /,
    axis: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    *,
    keepdims: bool = False,
    initial: Any = None,
    where: Array | None = None,
) -> Array:
    """The product along `axis`, an int, a tuple, or None for all. Integers are multiplied in 64 bits unless `dtype`
    gives another type.

    >>> xp.prod(xp.asarray([2, 3, 4]))
    Array(24, dtype=int64)
    """
    n = node_of(x)
    return _begun("prod", build.cast(n, _summed_type(n, dtype)), axis, keepdims, initial, where)


def _begun(op: str, n: Node, axis: Any, keepdims: bool, initial: Any, where: Array | None) -> Array:
    """A reduction that begins with a number, of the elements where a mask holds."""
    if where is not None:
        held = _BOTTOM.get(op, initial)
        if held is None:
            raise ArrayValueError(f"{op} where a mask holds, of which nothing may be left", hint="initial=...")
        n = build.where(build.cast(node_of(where, "where"), dtypes.bool), n, scalar(held, n.dtype, n.device))
    if initial is None:
        return Array(reduce(op, n, axis, keepdims))
    first = scalar(initial, n.dtype, n.device)
    axes = axes_of(axis, len(n.shape))
    if 0 in [n.shape[k] for k in axes]:
        return Array(build.broadcast_to(first, build.reduced_shape(n.shape, axes, keepdims)))
    return Array(build.binary(_JOINED[op], reduce(op, n, axis, keepdims), first))


_JOINED = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}


def _extreme(op: str, of_bools: str, x: Array, axis: Any, keepdims: bool, initial: Any, where: Array | None) -> Array:
    n = node_of(x)
    if initial is not None or where is not None:
        return _begun(op, n, axis, keepdims, initial, where)
    if n.dtype == "bool" and 0 not in n.shape:
        op = of_bools
    return Array(reduce(op, n, axis, keepdims))


def max(
    x: Array,
    /,
    axis: int | Sequence[int] | None = None,
    *,
    keepdims: bool = False,
    initial: Any = None,
    where: Array | None = None,
) -> Array:
    """The largest element along `axis`, an int, a tuple, or None for all. It is NaN if one element is.

    >>> xp.max(xp.asarray([[1, 5], [3, 2]]), axis=0)
    Array([3, 5], dtype=int64)
    """
    return _extreme("max", "any", x, axis, keepdims, initial, where)


def min(
    x: Array,
    /,
    axis: int | Sequence[int] | None = None,
    *,
    keepdims: bool = False,
    initial: Any = None,
    where: Array | None = None,
) -> Array:
    """The smallest element along `axis`, an int, a tuple, or None for all. It is NaN if one element is.

    >>> xp.min(xp.asarray([[1, 5], [3, 2]]), axis=0)
    Array([1, 2], dtype=int64)
    """
    return _extreme("min", "all", x, axis, keepdims, initial, where)


def _float(name: str, x: Array) -> Node:
    n = node_of(x)
    if dtypes.is_complex(n.dtype) and name == "mean":
        return n
    if dtypes.is_complex(n.dtype):
        raise ArrayTypeError(f"{name} of {n.dtype}", hint="tec.array.abs(x) is real")
    return n if dtypes.is_float(n.dtype) else build.cast(n, dtypes.DEFAULT_FLOAT)


def _count(n: Node, axis: Any) -> int:
    count = 1
    for k in axes_of(axis, len(n.shape)):
        count *= n.shape[k]
    return count


def _mean(n: Node, axis: Any, keepdims: bool, count: float) -> Node:
    total = reduce("sum", n, axis, keepdims)
    return build.binary("divide", total, scalar(float(count), n.dtype, n.device))


def mean(x: Array, /, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Array:
    """The mean along `axis` (all for None); NaN of no elements. Integers and bools become the default float.

    >>> xp.mean(xp.asarray([1.0, 2.0, 6.0]))
    Array(3., dtype=float32)
    """
    n = _float("mean", x)
    return Array(_mean(n, axis, keepdims, _count(n, axis)))


def _var(x: Array, axis: Any, correction: float, keepdims: bool, name: str) -> Node:
    n = _float(name, x)
    count = _count(n, axis)
    centred = build.binary("subtract", n, _mean(n, axis, True, count))
    left = count - correction
    squares = reduce("sum", build.unary("square", centred), axis, keepdims)
    return build.binary("divide", squares, scalar(float(left if left > 0 else 0.0), n.dtype, n.device))


def var(
    x: Array,
    /,
    axis: int | Sequence[int] | None = None,
    *,
    correction: float = 0.0,
    keepdims: bool = False,
    ddof: float | None = None,
) -> Array:
    """The variance along `axis`: the sum of the squared differences from the mean, divided by the count less
    `correction`, which NumPy calls `ddof`.

    >>> xp.var(xp.asarray([1.0, 3.0]), correction=1)
    Array(2., dtype=float32)
    """
    return Array(_var(x, axis, correction if ddof is None else ddof, keepdims, "var"))


def std(
    x: Array,
    /,
    axis: int | Sequence[int] | None = None,
    *,
    correction: float = 0.0,
    keepdims: bool = False,
    ddof: float | None = None,
) -> Array:
    """The standard deviation: the root of `var`.

    >>> xp.std(xp.asarray([1.0, 3.0]))
    Array(1., dtype=float32)
    """
    return Array(build.unary("sqrt", _var(x, axis, correction if ddof is None else ddof, keepdims, "std")))


# ---- running


def _running(op: str, x: Array, axis: int | None, dtype: Any, include_initial: bool) -> Array:
    n = node_of(x)
    if axis is None:
        if len(n.shape) != 1:
            raise ArrayValueError(
                f"a running sum of an array of {len(n.shape)} dimensions without an axis",
                hint="axis=0, or tec.array.ravel(x)",
            )
        axis = 0
    k = axis_of(axis, len(n.shape))
    kind = _summed_type(n, dtype)
    n = build.cast(n, kind)
    made = Array(build.running(op, n, k) if n.size else build.copy(n))
    if not include_initial:
        return made
    first = build.full(0 if op == "cumsum" else 1, (*n.shape[:k], 1, *n.shape[k + 1 :]), kind, n.device)
    return concat([Array(first), made], axis=k)


def cumulative_sum(
    x: Array, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Array:
    """The sums up to each element along `axis`; with `include_initial` a 0 in front.

    >>> xp.cumulative_sum(xp.asarray([1, 2, 3]))
    Array([1, 3, 6], dtype=int64)
    """
    return _running("cumsum", x, axis, dtype, include_initial)


def cumulative_prod(
    x: Array, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Array:
    """The products up to each element along `axis`; with `include_initial` a 1 in front.

    >>> xp.cumulative_prod(xp.asarray([1, 2, 3]))
    Array([1, 2, 6], dtype=int64)
    """
    return _running("cumprod", x, axis, dtype, include_initial)


# ---- bools and differences


def all(x: Array, /, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Array:
    """Whether all elements along `axis` are true, or not 0.

    >>> xp.all(xp.asarray([[True, False], [True, True]]), axis=1)
    Array([False,  True], dtype=bool)
    """
    return Array(reduce("all", build.cast(node_of(x), dtypes.bool), axis, keepdims))


def any(x: Array, /, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Array:
    """Whether any element along `axis` is true, or not 0.

    >>> xp.any(xp.asarray([[True, False], [False, False]]), axis=1)
    Array([ True, False], dtype=bool)
    """
    return Array(reduce("any", build.cast(node_of(x), dtypes.bool), axis, keepdims))


def count_nonzero(x: Array, /, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Array:
    """How many along `axis` are not 0.

    >>> xp.count_nonzero(xp.asarray([0, 1, 2]))
    Array(2, dtype=int64)
    """
    held = build.cast(build.cast(node_of(x), dtypes.bool), dtypes.int64)
    return Array(reduce("sum", held, axis, keepdims))


def _at_an_end(value: Any, x: Array, axis: int) -> Any:
    if type(value) is Array or value is None:
        return value
    n = x._node
    shape = (*n.shape[:axis], 1, *n.shape[axis + 1 :])
    return Array(build.broadcast_to(number(value, n), shape))


def diff(x: Array, /, n: int = 1, axis: int = -1, *, prepend: Any = None, append: Any = None) -> Array:
    """The differences of neighbours along `axis`, `n` times; of bools whether they differ. A number that is prepended or appended stands at each line's end.

    >>> xp.diff(xp.asarray([1, 4, 9]))
    Array([3, 5], dtype=int64)
    """
    k = axis_of(axis, x.ndim)
    prepend, append = (_at_an_end(p, x, k) for p in (prepend, append))
    if n < 0:
        raise ArrayValueError(f"diff {n} times", hint="n is 0 or more")
    parts = [p for p in (prepend, x, append) if p is not None]
    if len(parts) > 1 and n:
        x = concat(parts, axis=k)
    lead = (slice(None),) * k
    for _ in range(n):
        after, before = x[(*lead, slice(1, None))], x[(*lead, slice(0, -1 if x.shape[k] else 0))]
        x = after != before if x.dtype == "bool" else after - before
    return x


# ---- methods, as NumPy's users write them: (a * b + c).sum()


def _method(f: Any) -> Any:
    whole = of_one(f)

    def method(self: Array, axis: Any = None, **options: Any) -> Array:
        return f(self, axis=axis, **options) if options or axis is not None else whole(self)

    return method


for _f in (sum, prod, max, min, mean, var, std, all, any):
    setattr(Array, _f.__name__, _method(checked(f"tec.array.{_f.__name__}", _f, through=1)))
