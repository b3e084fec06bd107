"""NumPy's methods of functions of two arrays: `xp.add.reduce(x)`, `accumulate`, `outer`, `at`, `reduceat`; and `mgrid` and `ogrid`.

`at(x, index, values)` changes x, each place as often as the index names it. Axes are NumPy's: `reduce` and its kin take the first one where none is named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import build, creation, dtypes, elementwise, manipulation, statistical
from .array import Array, node_of, written
from .errors import ArrayTypeError, ArrayValueError
from .host import on_host

Binary = Callable[[Any, Any], Array]
# The reductions that have an operator, by the name of the function of two.
_REDUCE: dict[str, Callable[..., Array]] = {
    "add": statistical.sum, "multiply": statistical.prod, "maximum": statistical.max, "minimum": statistical.min,
    "logical_and": statistical.all, "logical_or": statistical.any,
}  # fmt: skip
_RUNNING: dict[str, Callable[..., Array]] = {
    "add": statistical.cumulative_sum, "multiply": statistical.cumulative_prod,
}  # fmt: skip
# The word of a scatter, and what becomes of the values first.
_SCATTER: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "add": ("add", lambda v: v), "subtract": ("add", lambda v: -v), "multiply": ("mul", lambda v: v), "maximum": ("max", lambda v: v),
    "minimum": ("min", lambda v: v),
}  # fmt: skip
_TWO = (
    "add subtract multiply divide floor_divide remainder pow maximum minimum bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor hypot "
    "atan2 logaddexp equal not_equal less less_equal greater greater_equal copysign bitwise_left_shift bitwise_right_shift nextafter"
).split()
_ASSOCIATIVE = "add multiply maximum minimum bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor hypot logaddexp".split()


def _part(x: Array, axis: int, start: int, stop: int) -> Array:
    return x[(*(slice(None),) * axis, slice(start, stop))]


def _reduce(f: Binary) -> Callable[..., Array]:
    name = f.__name__

    def reduce(x: Array, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Array:
        """All elements along an axis (the first by default, None for all) joined by the function."""
        held = x if dtype is None else manipulation.astype(x, dtype)
        known = _REDUCE.get(name)
        made = known(held, axis=axis, keepdims=keepdims) if known else _halved(f, held, axis, keepdims)
        return made if out is None else written(out, made)

    return reduce


def _halved(f: Binary, x: Array, axis: Any, keepdims: bool) -> Array:
    if axis is None:
        joined = _halved(f, manipulation.reshape(x, (-1,)), 0, False)
        return manipulation.reshape(joined, (1,) * x.ndim) if keepdims else joined
    k = manipulation.axis_of(axis, x.ndim)
    if not x.shape[k]:
        raise ArrayValueError(f"{f.__name__}.reduce of no elements, which has no first value", hint="test x.size first")
    while (n := x.shape[k]) > 1:
        half = n // 2
        joined = f(_part(x, k, 0, half), _part(x, k, half, 2 * half))
        x = manipulation.concat([joined, _part(x, k, 2 * half, n)], axis=k) if n % 2 else joined
    return x if keepdims else manipulation.squeeze(x, axis=k)


def _accumulate(f: Binary) -> Callable[..., Array]:
    known = _RUNNING.get(f.__name__)

    def accumulate(x: Array, axis: int = 0, dtype: Any = None, out: Any = None) -> Array:
        """The results along an axis so far."""
        made = x if dtype is None else manipulation.astype(x, dtype)
        k = manipulation.axis_of(axis, x.ndim)
        if known is not None:
            made = known(made, axis=k)
        else:
            step = 1
            while step < x.shape[k]:  # each round joins twice as many
                rest = f(_part(made, k, 0, x.shape[k] - step), _part(made, k, step, x.shape[k]))
                made = manipulation.concat([_part(made, k, 0, step), rest], axis=k)
                step *= 2
        return made if out is None else written(out, made)

    return accumulate


def _outer(f: Binary) -> Callable[..., Array]:
    def outer(a: Array, b: Array) -> Array:
        """The function of each element of `a` with each of `b`."""
        return f(manipulation.reshape(a, (*a.shape, *(1,) * b.ndim)), b)

    return outer


def _places(x: Array, index: Any) -> Array:
    """The positions in memory order that an index names."""
    positions = manipulation.reshape(creation.arange(x.size, dtype=dtypes.int64, device=x.device), x.shape)
    if isinstance(index, list):
        index = creation.asarray(index, device=x.device)
    return positions[index]


def _added_at(name: str, x: Array, places: Array, values: Any) -> Array:
    word, first = _SCATTER[name]
    given = values if isinstance(values, Array) else creation.asarray(values, dtype=x.dtype, device=x.device)
    if dtypes.is_complex(x.dtype) or x.dtype == "bool":
        raise ArrayTypeError(
            f"{name}.at of {x.dtype}", hint="numbers that are real; real and imaginary parts one after the other"
        )
    kind = dtypes.result_type(x.dtype, given.dtype)
    if kind != x.dtype:
        raise ArrayTypeError(f"{name}.at of {x.dtype} with {given.dtype}", hint="tec.array.astype(values, x.dtype)")
    updates = manipulation.broadcast_to(first(manipulation.astype(given, x.dtype)), places.shape)
    flat = manipulation.reshape(x, (-1,))
    points = manipulation.reshape(places, (places.size, 1))
    inputs = tuple(build.boundary(v._node) for v in (flat, points, manipulation.reshape(updates, (-1,))))
    made = Array(build.make("scatter_nd", inputs, flat.shape, x.dtype, (("reduction", word),)))
    return manipulation.reshape(made, x.shape)


def _at(f: Binary) -> Callable[..., None]:
    name = f.__name__

    def at(x: Array, index: Any, values: Any) -> None:
        """x[index] = f(x[index], values), once for each time that the index names a place."""
        node_of(x)
        x._become(_added_at(name, x, _places(x, index), values)._node)

    return at


def _reduceat(f: Binary) -> Callable[..., Array]:
    name = f.__name__

    def reduceat(x: Array, indices: Any, axis: int = 0) -> Array:
        """Of each index the elements from it up to the next index joined; the element alone where the next index is not greater."""
        starts = np.asarray(indices.numpy() if isinstance(indices, Array) else indices, np.int64)
        k = manipulation.axis_of(axis, x.ndim)
        if starts.ndim != 1 or ((starts < 0) | (starts >= x.shape[k])).any():
            raise ArrayValueError(
                f"{name}.reduceat with indices {starts.tolist()}", hint=f"a list of integers from 0 to {x.shape[k] - 1}"
            )
        ends = np.append(starts[1:], x.shape[k])
        counts = np.maximum(ends - starts - 1, 0)
        owners = np.repeat(np.arange(len(starts)), counts)
        before = np.concatenate([[0], np.cumsum(counts)[:-1]])
        rest = starts[owners] + 1 + np.arange(len(owners)) - before[owners]
        rows = manipulation.moveaxis(x, k, 0)
        made = rows[creation.asarray(starts, device=x.device)]
        if len(owners):
            places = _places(made, creation.asarray(owners, device=x.device))
            made = _added_at(name, made, places, rows[creation.asarray(rest, device=x.device)])
        return manipulation.moveaxis(made, 0, k)

    return reduceat


def _give_methods() -> None:
    """Puts NumPy's methods on the functions of two arrays."""
    for name in _TWO:
        f: Any = getattr(elementwise, name)
        f.outer, f.nin, f.nout = _outer(f), 2, 1
        if name in _ASSOCIATIVE:
            f.reduce, f.accumulate = _reduce(f), _accumulate(f)
        if name in _SCATTER:
            f.at = _at(f)
        if name in ("add", "multiply", "maximum", "minimum"):
            f.reduceat = _reduceat(f)


# ---- grids


class _Grid:
    """`mgrid[0:2, 0:3]`: an array of coordinates for each slice, of whole extent or (`ogrid`) of extent 1 along the others. A step of `5j` is 5 points, the end
    among them."""

    def __init__(self, name: str, whole: bool):
        self.__name__, self._whole = name, whole

    def __getitem__(self, key: Any) -> Any:
        one = not isinstance(key, tuple)
        lines = [self._line(s) for s in ((key,) if one else key)]
        if one:
            return lines[0]
        kind = dtypes.result_type(*[x.dtype for x in lines])
        made = creation.meshgrid(*[manipulation.astype(x, kind) for x in lines], indexing="ij")
        if self._whole:
            return manipulation.stack(made)
        return tuple(
            manipulation.reshape(manipulation.astype(x, kind), tuple(-1 if i == k else 1 for i in range(len(lines))))
            for k, x in enumerate(lines)
        )

    def _line(self, s: Any) -> Array:
        if not isinstance(s, slice) or s.stop is None:
            raise ArrayTypeError(
                f"{self.__name__}[{s!r}]", hint=f"slices with an end: tec.array.{self.__name__}[0:3, 0:4]"
            )
        first = 0 if s.start is None else s.start
        if isinstance(s.step, complex):
            return creation.linspace(first, s.stop, int(abs(s.step)))
        return creation.arange(first, s.stop, 1 if s.step is None else s.step)


mgrid, ogrid = _Grid("mgrid", True), _Grid("ogrid", False)

# ---- integers


def _integers(name: str, a: Any, b: Any) -> tuple[Array, Array]:
    x, y = (v if isinstance(v, Array) else creation.asarray(v, device=w.device) for v, w in ((a, b), (b, a)))
    for v in (x, y):
        if not dtypes.is_int(v.dtype):
            raise ArrayTypeError(f"{name} of {v.dtype}", hint="integers")
    kind = dtypes.result_type(x.dtype, y.dtype)
    return manipulation.astype(x, kind), manipulation.astype(y, kind)


def gcd(a: Any, b: Any) -> Array:
    """The greatest common divisor, not negative. NumPy computes it on the host.

    >>> xp.gcd(xp.asarray([12, 9, 0]), 18)
    Array([ 6,  9, 18], dtype=int64)
    """
    x, y = _integers("gcd", a, b)
    made: Array = on_host("gcd", np.gcd, x._node, y._node)
    return made


def lcm(a: Any, b: Any) -> Array:
    """The least common multiple, not negative. NumPy computes it on the host.

    >>> xp.lcm(xp.asarray([4, 6]), xp.asarray([6, 9]))
    Array([12, 18], dtype=int64)
    """
    x, y = _integers("lcm", a, b)
    made: Array = on_host("lcm", np.lcm, x._node, y._node)
    return made


def bitwise_count(x: Array) -> Array:
    """The number of bits that are 1 in the absolute value, as uint8.

    >>> xp.bitwise_count(xp.asarray([0, 5, -255]))
    Array([0, 2, 8], dtype=uint8)
    """
    if not dtypes.is_int(node_of(x).dtype):
        raise ArrayTypeError(f"bitwise_count of {x.dtype}", hint="integers")
    v = manipulation.astype(elementwise.abs(x), dtypes.uint64)
    # Sums of 2, 4 and 8 neighbouring bits; the product adds the bytes up in the highest one.
    v = v - ((v >> 1) & 0x5555555555555555)
    v = (v & 0x3333333333333333) + ((v >> 2) & 0x3333333333333333)
    v = (v + (v >> 4)) & 0x0F0F0F0F0F0F0F0F
    return manipulation.astype((v * 0x0101010101010101) >> 56, dtypes.uint8)


_give_methods()
