"""NumPy's partitions, orders, sets and index arithmetic (`numpy_names`), written in functions of the standard."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import creation, dtypes, elementwise, manipulation, searching, sets, sorting
from .array import Array
from .errors import ArrayIndexError, ArrayValueError
from .numpy_shapes import ravel

# ---- order


def _ordered_axis(x: Array, kth: Any, axis: int | None) -> tuple[Array, int]:
    held, k = (ravel(x), 0) if axis is None else (x, manipulation.axis_of(axis, x.ndim))
    n = held.shape[k]
    for i in kth if isinstance(kth, (tuple, list)) else (kth,):
        if not -n <= i < n:
            raise ArrayIndexError(f"element {i} of {n} in order", hint="k is below the number of elements")
    return held, k


def partition(x: Array, kth: Any, axis: int | None = -1) -> Array:
    """The elements with those up to the `kth` smallest in front of the others; all of them are in order here."""
    held, k = _ordered_axis(x, kth, axis)
    return sorting.sort(held, axis=k)


def argpartition(x: Array, kth: Any, axis: int | None = -1) -> Array:
    """The places of the elements of `partition`."""
    held, k = _ordered_axis(x, kth, axis)
    return sorting.argsort(held, axis=k)


def _partition_in_place(x: Array, kth: Any, axis: int = -1) -> None:
    """`partition` of the array itself."""
    x._become(partition(x, kth, axis)._node)


def lexsort(keys: Any, axis: int = -1) -> Array:
    """The order by several keys, the last of which decides first."""
    each = [keys[k] for k in range(len(keys))]
    if not each:
        raise ArrayValueError("lexsort by no keys", hint="at least one; the last is the first to decide")
    order = sorting.argsort(each[0], axis=axis)
    for key in each[1:]:
        along = sorting.argsort(manipulation.take_along_axis(key, order, axis=axis), axis=axis)
        order = manipulation.take_along_axis(order, along, axis=axis)
    return order


# ---- places


def argwhere(x: Array) -> Array:
    """The indices of the elements that are not 0, one a row."""
    return manipulation.stack(searching.nonzero(x), axis=1)


def flatnonzero(x: Array) -> Array:
    """The places of the elements that are not 0, counted in one dimension."""
    return searching.nonzero(ravel(x))[0]


def extract(condition: Array, x: Array) -> Array:
    """The elements where the condition holds, in one dimension."""
    return ravel(x)[manipulation.astype(ravel(condition), dtypes.bool)]


def compress(condition: Any, x: Array, axis: int | None = None) -> Array:
    """The slices along `axis` where the condition, a vector, holds; by default of all elements in order."""
    k = 0 if axis is None else axis
    return manipulation.take(ravel(x) if axis is None else x, flatnonzero(creation.beside(condition, x)), axis=k)


def _compressed(x: Array, condition: Any, axis: int | None = None) -> Array:
    """The slices along `axis` where the condition, a vector, holds."""
    return compress(condition, x, axis)


def choose(a: Any, choices: Sequence[Any]) -> Array:
    """Return, for each number in `a`, the element of the choice of that number. All arrays broadcast."""
    if not isinstance(a, Array):
        a = creation.asarray(a, device=next((c.device for c in choices if isinstance(c, Array)), None))
    parts = manipulation.broadcast_arrays(a, *(creation.asarray(c, device=a.device) for c in choices))
    kind = dtypes.result_type(*parts[1:])
    each = manipulation.stack([manipulation.astype(p, kind) for p in parts[1:]])
    return manipulation.take_along_axis(each, manipulation.expand_dims(parts[0], 0), axis=0)[0]


def select(conditions: Sequence[Array], choices: Sequence[Any], default: Any = 0) -> Array:
    """Return, for each element, the choice of the first condition that holds, or `default` where none does."""
    if len(conditions) != len(choices) or not conditions:
        raise ArrayValueError(
            f"select of {len(choices)} choices by {len(conditions)} conditions", hint="a choice for each condition"
        )
    made = default
    for condition, choice in zip(reversed(conditions), reversed(choices)):
        if not isinstance(made, Array) and not isinstance(choice, Array):
            made = creation.full((), made, device=condition.device)
        made = searching.where(condition, choice, made)
    found: Array = made
    return found


def piecewise(x: Array, condlist: Sequence[Any], funclist: Sequence[Any]) -> Array:
    """Compute each element by the function of the last condition that holds for it. A number may stand for a function; one more of them is for elements where no condition holds. Functions see all of `x`."""
    if len(funclist) not in (len(condlist), len(condlist) + 1):
        raise ArrayValueError(
            f"piecewise of {len(funclist)} functions by {len(condlist)} conditions",
            hint="one for each condition, and one more for all else",
        )
    values = [f(x) if callable(f) else f for f in funclist]
    made = creation.zeros(x.shape, dtype=x.dtype, device=x.device)
    if len(values) > len(condlist):
        made = made + values.pop()
    for condition, value in zip(condlist, values):
        made = searching.where(condition, value, made)
    return manipulation.astype(made, x.dtype)


def delete(x: Array, obj: Any, axis: int | None = None) -> Array:
    """Without the slices at `obj` (an integer, a slice, integers) along `axis`; by default of all elements in order."""
    held, k = (ravel(x), 0) if axis is None else (x, manipulation.axis_of(axis, x.ndim))
    n = held.shape[k]
    try:
        left = np.delete(np.arange(n), obj.numpy() if isinstance(obj, Array) else obj)
    except (IndexError, ValueError) as error:
        raise ArrayIndexError(f"delete of {obj} from {n} elements: {error}", hint="places below the length") from None
    return manipulation.take(held, creation.asarray(left, device=x.device), axis=k)


def insert(x: Array, obj: int, values: Any, axis: int | None = None) -> Array:
    """Return the array with `values` inserted before place `obj` along `axis`. Without an axis the array is flattened.

    values: a number, or an array that broadcasts to the other dimensions of `x`. One of as many dimensions as `x` has the number of
    slices in its first dimension, as in NumPy. Raises ArrayIndexError for a place that is none.
    """
    held, k = (ravel(x), 0) if axis is None else (x, manipulation.axis_of(axis, x.ndim))
    n = held.shape[k]
    if not isinstance(obj, (int, np.integer)) or not -n <= obj <= n:
        raise ArrayIndexError(f"insert at {obj!r} of {n} elements", hint="one integer")
    at = int(obj) + n if obj < 0 else int(obj)
    lead = (slice(None),) * k
    if not isinstance(values, Array):
        values = creation.asarray(values, dtype=x.dtype, device=x.device)
    # NumPy takes the first dimension of `values` for the inserted slices, wherever `axis` is.
    wide = manipulation.reshape(values, (*(1,) * (held.ndim - values.ndim), *values.shape))
    wide = manipulation.moveaxis(wide, 0, k)
    part = manipulation.broadcast_to(wide, (*held.shape[:k], wide.shape[k], *held.shape[k + 1 :]))
    return manipulation.concat([held[(*lead, slice(0, at))], part, held[(*lead, slice(at, None))]], axis=k)


def unravel_index(indices: Any, shape: Any) -> tuple[Any, ...]:
    """Places counted in one dimension as indices of an array of that shape."""
    if not isinstance(indices, Array):
        return tuple(int(v) for v in np.unravel_index(indices, shape))
    dims = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    behind = [math.prod(dims[k + 1 :]) for k in range(len(dims))]
    return tuple((indices // b) % n for b, n in zip(behind, dims))


def ravel_multi_index(indices: Sequence[Any], shape: Sequence[int]) -> Any:
    """Indices of an array of that shape as places counted in one dimension. Raises ArrayValueError for another number of indices than of dimensions."""
    if len(indices) != len(shape):
        raise ArrayValueError(
            f"ravel_multi_index of {len(indices)} indices in {len(shape)} dimensions", hint="an index for each"
        )
    made: Any = 0
    for i, n in zip(indices, shape):
        made = made * n + i
    return made


def indices(shape: Sequence[int], dtype: Any = dtypes.int64, device: Any = None) -> Array:
    """Return the index of each element of an array of that shape: a new first dimension holds one index for each dimension."""
    lines = [creation.arange(n, dtype=dtype, device=device) for n in shape]
    return manipulation.stack(creation.meshgrid(*lines, indexing="ij"))


def tri(n: int, m: int | None = None, k: int = 0, dtype: Any = None, device: Any = None) -> Array:
    """Ones on and below diagonal `k` of a matrix of n by m, zeros above."""
    return creation.tril(creation.ones((n, n if m is None else m), dtype=dtype, device=device), k=k)


def tril_indices(n: int, k: int = 0, m: int | None = None, device: Any = None) -> tuple[Array, ...]:
    """The indices of the elements on and below diagonal `k` of a matrix of n by m."""
    return tuple(creation.asarray(v, device=device) for v in np.tril_indices(n, k, m))


def triu_indices(n: int, k: int = 0, m: int | None = None, device: Any = None) -> tuple[Array, ...]:
    """The indices of the elements on and above diagonal `k` of a matrix of n by m."""
    return tuple(creation.asarray(v, device=device) for v in np.triu_indices(n, k, m))


def put_along_axis(x: Array, indices: Array, values: Any, axis: int = -1) -> None:
    """Sets x[i, indices[i, j], ...] along `axis` in place."""
    k = manipulation.axis_of(axis, x.ndim)
    shape = (*x.shape[:k], indices.shape[k], *x.shape[k + 1 :])
    where: list[Any] = []
    for d, n in enumerate(shape):
        along = tuple(n if e == d else 1 for e in range(x.ndim))
        line = manipulation.reshape(creation.arange(n, device=x.device), along)
        where.append(manipulation.broadcast_to(indices if d == k else line, shape))
    x[tuple(where)] = values


def fill_diagonal(x: Array, value: Any) -> None:
    """Sets the diagonal of a matrix in place."""
    if x.ndim != 2:
        raise ArrayValueError(f"fill_diagonal of an array of {x.ndim} dimensions", hint="a matrix")
    there = creation.eye(x.shape[0], x.shape[1], dtype=dtypes.bool, device=x.device)
    if isinstance(value, Array) and value.ndim:
        line = creation.arange(min(x.shape), device=x.device)
        x[line, line] = value[: min(x.shape)]
    else:
        x[there] = value


def ix_(*vectors: Any, device: Any = None) -> tuple[Array, ...]:
    """Vectors of indices as an open grid: `x[ix_(rows, columns)]`.

    vectors: arrays, or lists, which become arrays of `device`, that of `x`. Raises ArrayValueError for what is no vector.
    """
    out = []
    for k, v in enumerate(vectors):
        line = v if isinstance(v, Array) else creation.asarray(v if len(v) else np.zeros(0, np.int64), device=device)
        if line.ndim != 1:
            raise ArrayValueError(f"ix_ of an array of {line.ndim} dimensions", hint="vectors")
        line = flatnonzero(line) if line.dtype == "bool" else line
        out.append(manipulation.reshape(line, tuple(-1 if d == k else 1 for d in range(len(vectors)))))
    return tuple(out)


# ---- sets


def union1d(a: Array, b: Any) -> Array:
    """The different elements of both, in order."""
    return sets.unique_values(manipulation.concat([ravel(a), ravel(creation.beside(b, a))]))


def intersect1d(a: Array, b: Any) -> Array:
    """The different elements that stand in both, in order."""
    values = sets.unique_values(a)
    return values[sets.isin(values, b)]


def setdiff1d(a: Array, b: Any) -> Array:
    """The different elements of `a` that do not stand in `b`, in order."""
    values = sets.unique_values(a)
    return values[sets.isin(values, b, invert=True)]


def setxor1d(a: Array, b: Any) -> Array:
    """The different elements that stand in one of the two, in order."""
    values, both = union1d(a, b), intersect1d(a, b)
    return values[sets.isin(values, both, invert=True)]


def _without_nan(x: Array, least: float) -> Array:
    held = searching.where(elementwise.isnan(x), least, x) if dtypes.is_float(x.dtype) else x
    found: Array = held
    return found


def nanargmax(x: Array, axis: int | None = None) -> Array:
    """The index of the greatest of what is not NaN."""
    return searching.argmax(_without_nan(x, -math.inf), axis=axis)


def nanargmin(x: Array, axis: int | None = None) -> Array:
    """The index of the least of what is not NaN."""
    return searching.argmin(_without_nan(x, math.inf), axis=axis)


def trim_zeros(x: Array, trim: str = "fb") -> Array:
    """A vector without the zeros at its front ("f") and back ("b"). Computes where they are."""
    places = flatnonzero(x)
    if not len(places):
        return x[:0]
    first, last = int(places[0]), int(places[-1])
    return x[first if "f" in trim else 0 : last + 1 if "b" in trim else len(x)]
