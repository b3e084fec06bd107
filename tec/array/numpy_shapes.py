"""NumPy's functions that make, shape, join and multiply arrays, and that the standard leaves out (`numpy_names`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import creation, dtypes, elementwise, linalg, manipulation, products, searching, statistical
from .array import Array, node_of
from .errors import ArrayTypeError, ArrayValueError

# ---- making arrays


def array(x: Any, dtype: Any = None, copy: bool = True, device: Any = None) -> Array:
    """`asarray`, by default of a copy.

    >>> xp.array([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    return creation.asarray(x, dtype=dtype, copy=copy or None, device=device)


def identity(n: int, dtype: Any = None, device: Any = None) -> Array:
    """The unit matrix of n by n."""
    return creation.eye(n, dtype=dtype, device=device)


def logspace(start: float, stop: float, num: int = 50, endpoint: bool = True, base: float = 10.0) -> Array:
    """`num` numbers from base**start to base**stop, in equal ratios."""
    return elementwise.pow(creation.full((), float(base)), creation.linspace(start, stop, num, endpoint=endpoint))


def geomspace(start: float, stop: float, num: int = 50, endpoint: bool = True) -> Array:
    """`num` numbers from start to stop, in equal ratios."""
    if not start or not stop or (start < 0) != (stop < 0):
        raise ArrayValueError(f"geomspace from {start} to {stop}", hint="both above 0, or both below")
    line = creation.linspace(math.log(abs(start)), math.log(abs(stop)), num, endpoint=endpoint, dtype=dtypes.float64)
    made = manipulation.astype(elementwise.exp(line), dtypes.DEFAULT_FLOAT)
    return -made if start < 0 else made


def fromfunction(function: Any, shape: Sequence[int], dtype: Any = dtypes.DEFAULT_FLOAT, device: Any = None) -> Any:
    """`function` of the indices of an array of that shape: one array for each dimension."""
    lines = [creation.arange(n, dtype=dtype, device=device) for n in shape]
    return function(*creation.meshgrid(*lines, indexing="ij"))


def _window(name: str) -> Any:
    def window(m: int, dtype: Any = None, device: Any = None) -> Array:
        return creation.asarray(getattr(np, name)(m), dtype=dtype or dtypes.DEFAULT_FLOAT, device=device)

    window.__name__ = window.__qualname__ = name
    window.__doc__ = f"NumPy's {name} window of m samples."
    return window


hanning, hamming, blackman, bartlett = map(_window, ("hanning", "hamming", "blackman", "bartlett"))


# ---- their form


def asnumpy(x: Any) -> np.ndarray[Any, Any]:
    """A copy in NumPy, under CuPy's name: `x.numpy()`."""
    return x.numpy() if isinstance(x, Array) else np.asarray(x)


def copy(x: Array) -> Array:
    """Another array of the same elements."""
    return creation.asarray(x, copy=True)


def shape(x: Any) -> tuple[int, ...]:
    """The extents of an array, a number or nested lists."""
    return x.shape if isinstance(x, Array) else np.shape(x)


def ndim(x: Any) -> int:
    """How many dimensions an array, a number or nested lists have."""
    return len(shape(x))


def size(x: Array, axis: int | None = None) -> int:
    """How many elements there are, or how many along `axis`."""
    return x.size if axis is None else x.shape[manipulation.axis_of(axis, x.ndim)]


def _value(x: Array) -> Array:
    """The same elements as an array of its own: an assignment to it does not change `x`."""
    return Array(node_of(x))


def _beside(values: Any, x: Array) -> Array:
    """An array, or what `asarray` takes, where `x` is."""
    return values if isinstance(values, Array) else creation.asarray(values, device=x.device)


def _of_blocks(rows: Any) -> Array:
    """An array of blocks in nested lists: the innermost are joined along the last dimension, those around them along the ones before."""

    def depth(v: Any) -> int:
        return 1 + depth(v[0]) if isinstance(v, list) and v else 0

    def joined(v: Any, level: int) -> Array:
        if not isinstance(v, list):
            made: Array = v
            while made.ndim < most:
                made = manipulation.expand_dims(made, 0)
            return made
        return manipulation.concat([joined(part, level - 1) for part in v], axis=-level)

    def flat(v: Any) -> list[Array]:
        return [x for part in v for x in flat(part)] if isinstance(v, list) else [v]

    levels = depth(rows)
    parts = flat(rows)
    if not parts or any(not isinstance(x, Array) for x in parts):
        raise ArrayTypeError("block of a list of no arrays", hint="nested lists of arrays: [[a, b], [c, d]]")
    most = max(levels, *[x.ndim for x in parts])
    return joined(rows, levels)


def apply_over_axes(func: Any, a: Array, axes: Any) -> Array:
    """A reduction over one axis after the other, each of which stays with extent 1."""
    for axis in axes if isinstance(axes, (tuple, list)) else (axes,):
        made = func(a, axis)
        a = made if made.ndim == a.ndim else manipulation.expand_dims(made, axis)
    return a


def ravel(x: Array) -> Array:
    """One dimension."""
    return manipulation.reshape(x, (-1,))


def transpose(x: Array, axes: Sequence[int] | None = None) -> Array:
    """The dimensions in the order of `axes`, by default backwards."""
    return manipulation.permute_dims(x, tuple(range(x.ndim))[::-1] if axes is None else tuple(axes))


def swapaxes(x: Array, axis1: int, axis2: int) -> Array:
    """Two dimensions exchanged."""
    order = list(range(x.ndim))
    a, b = manipulation.axis_of(axis1, x.ndim), manipulation.axis_of(axis2, x.ndim)
    order[a], order[b] = order[b], order[a]
    return manipulation.permute_dims(x, tuple(order))


def atleast_1d(x: Array) -> Array:
    """Return arrays of at least one dimension."""
    return _value(x) if x.ndim else manipulation.reshape(x, (1,))


def atleast_2d(x: Array) -> Array:
    """Return arrays of at least two dimensions; new ones stand in front."""
    return _value(x) if x.ndim > 1 else manipulation.reshape(x, (1, -1))


def atleast_3d(x: Array) -> Array:
    """Return arrays of at least three dimensions: a vector becomes (1, n, 1), and a matrix (m, n, 1)."""
    if x.ndim > 2:
        return _value(x)
    return manipulation.reshape(x, (*x.shape, 1) if x.ndim == 2 else (1, -1, 1))


def rollaxis(x: Array, axis: int, start: int = 0) -> Array:
    """Dimension `axis` moved before dimension `start`."""
    k = manipulation.axis_of(axis, x.ndim)
    to = start + x.ndim if start < 0 else start
    return manipulation.moveaxis(x, k, to - (to > k))


def cross(a: Array, b: Array, axis: int = -1) -> Array:
    """The cross product of vectors of three along `axis`."""
    return linalg.cross(a, b, axis=axis)


def concatenate(arrays: Any, axis: int | None = 0) -> Array:
    """`concat`, whose axis is also taken by position."""
    return manipulation.concat(arrays, axis=axis)


def vstack(arrays: Any) -> Array:
    """Joined along the first of at least two dimensions."""
    return manipulation.concat([atleast_2d(x) for x in arrays], axis=0)


def hstack(arrays: Any) -> Array:
    """Joined along the second dimension, along the first for arrays of one."""
    parts = [atleast_1d(x) for x in arrays]
    return manipulation.concat(parts, axis=0 if parts[0].ndim == 1 else 1)


row_stack = vstack


def dstack(arrays: Any) -> Array:
    """Joined along the third of at least three dimensions."""
    return manipulation.concat([atleast_3d(x) for x in arrays], axis=2)


def column_stack(arrays: Any) -> Array:
    """Arrays of one dimension as the columns of a matrix."""
    return manipulation.concat([x if x.ndim > 1 else manipulation.reshape(x, (-1, 1)) for x in arrays], axis=1)


def array_split(x: Array, sections: Any, axis: int = 0) -> list[Array]:
    """Parts along `axis`: as many as `sections` says, of sizes that differ by at most 1; or between the indices that it lists."""
    k = manipulation.axis_of(axis, x.ndim)
    n = x.shape[k]
    if isinstance(sections, (int, np.integer)):
        if sections < 1:
            raise ArrayValueError(f"an array in {sections} parts", hint="at least one part")
        each, more = divmod(n, sections)
        ends = [(i + 1) * each + min(i + 1, more) for i in range(sections)]
    else:
        ends = [*sections, n]
    lead = (slice(None),) * k
    return [x[(*lead, slice(a, b))] for a, b in zip([0, *ends], ends)]


def split(x: Array, sections: Any, axis: int = 0) -> list[Array]:
    """`array_split` of equal parts."""
    n = x.shape[manipulation.axis_of(axis, x.ndim)]
    if isinstance(sections, (int, np.integer)) and sections > 0 and n % sections:
        raise ArrayValueError(f"{n} elements in {sections} equal parts", hint="tec.array.array_split(x, n)")
    return array_split(x, sections, axis)


def vsplit(x: Array, sections: Any) -> list[Array]:
    """`split` along the first dimension."""
    return split(x, sections, 0)


def hsplit(x: Array, sections: Any) -> list[Array]:
    """`split` along the second dimension, of vectors along the first."""
    return split(x, sections, 1 if x.ndim > 1 else 0)


def dsplit(x: Array, sections: Any) -> list[Array]:
    """`split` along the third dimension."""
    return split(x, sections, 2)


def flipud(x: Array) -> Array:
    """The first dimension backwards."""
    return manipulation.flip(x, axis=0)


def fliplr(x: Array) -> Array:
    """The second dimension backwards."""
    return manipulation.flip(x, axis=1)


def rot90(x: Array, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """Turned by k times 90 degrees from the first of `axes` to the second."""
    a, b = (manipulation.axis_of(axis, x.ndim) for axis in axes)
    if a == b:
        raise ArrayValueError(f"rot90 from axis {axes[0]} to {axes[1]}", hint="two axes that differ")
    turned = k % 4
    if turned == 2:
        return manipulation.flip(x, axis=axes)
    if not turned:
        return _value(x)
    return swapaxes(manipulation.flip(x, axis=b), a, b) if turned == 1 else manipulation.flip(swapaxes(x, a, b), axis=b)


def _zeros_around(x: Array, before: int, after: int) -> Array:
    """A vector between zeros."""
    ends = [creation.zeros((n,), dtype=x.dtype, device=x.device) for n in (before, after)]
    return manipulation.concat([ends[0], x, ends[1]])


def append(x: Array, values: Any, axis: int | None = None) -> Array:
    """`values`, an array or what `asarray` takes, behind `x`; both of one dimension for `axis` None."""
    if not isinstance(values, Array):
        values = creation.asarray(values, device=x.device)
    parts = [ravel(x), ravel(values)] if axis is None else [x, values]
    return manipulation.concat(parts, axis=0 if axis is None else axis)


def diagonal(x: Array, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The diagonal of two dimensions, as the last one."""
    return linalg.diagonal(manipulation.moveaxis(x, (axis1, axis2), (-2, -1)), offset=offset)


def diag(x: Array, k: int = 0) -> Array:
    """The diagonal of a matrix; of a vector the matrix that has it there."""
    if x.ndim == 2:
        return linalg.diagonal(x, offset=k)
    if x.ndim != 1:
        raise ArrayValueError(f"diag of an array of {x.ndim} dimensions", hint="it takes vectors and matrices")
    n = x.shape[0] + abs(k)
    column = manipulation.reshape(_zeros_around(x, max(k, 0), max(-k, 0)), (1, n))
    there = creation.eye(n, k=k, dtype=dtypes.bool, device=x.device)
    return searching.where(there, column, creation.zeros((), dtype=x.dtype, device=x.device))


def diagflat(x: Array, k: int = 0) -> Array:
    """The matrix that has all elements in order on diagonal k."""
    return diag(ravel(x), k)


def trace(x: Array, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The sum of the diagonal.

    >>> xp.trace(xp.asarray([[1, 2], [3, 4]]))
    Array(5, dtype=int64)
    """
    return statistical.sum(diagonal(x, offset, axis1, axis2), axis=-1)


# ---- products


def dot(a: Any, b: Any) -> Array:
    """NumPy's: of vectors the sum of products, of matrices their product, else over the last dimension of `a` and the last but one of `b`."""
    if not (isinstance(a, Array) and isinstance(b, Array)) or 0 in (a.ndim, b.ndim):
        return elementwise.multiply(a, b)
    if b.ndim < 3:
        return products.matmul(a, b)
    return products.tensordot(a, b, axes=((a.ndim - 1,), (b.ndim - 2,)))


def inner(a: Array, b: Array) -> Array:
    """Over the last dimensions of both; of a number each element times it."""
    if 0 in (a.ndim, b.ndim):
        return elementwise.multiply(a, b)
    return products.tensordot(a, b, axes=((a.ndim - 1,), (b.ndim - 1,)))


def vdot(a: Array, b: Array) -> Array:
    """The sum of conj(a) b over all elements."""
    return products.vecdot(ravel(a), ravel(b))


def outer(a: Array, b: Array) -> Array:
    """Each element of `a` times each of `b`."""
    return manipulation.reshape(a, (-1, 1)) * manipulation.reshape(b, (1, -1))


def kron(a: Array, b: Array) -> Array:
    """The Kronecker product."""
    n = max(a.ndim, b.ndim)
    s, t = ((1,) * (n - x.ndim) + x.shape for x in (a, b))
    spread = manipulation.reshape(a, tuple(v for d in s for v in (d, 1)))
    over = manipulation.reshape(b, tuple(v for d in t for v in (1, d)))
    return manipulation.reshape(spread * over, tuple(p * q for p, q in zip(s, t)))


def convolve(a: Array, v: Array, mode: str = "full") -> Array:
    """The convolution of two vectors: "full", "same" or "valid"."""
    if len(v) > len(a):
        a, v = v, a
    n, m = len(a), len(v)
    spread = _zeros_around(a, m - 1, m - 1)
    windows = creation.arange(n + m - 1, device=a.device)[:, None] + creation.arange(m, device=a.device)[None, :]
    taken = manipulation.reshape(
        manipulation.take(spread, manipulation.reshape(windows, (-1,)), axis=0), (n + m - 1, m)
    )
    whole = products.matmul(taken, manipulation.flip(v))
    if mode == "full":
        return whole
    if mode == "same":
        return whole[(m - 1) // 2 : (m - 1) // 2 + n]
    if mode == "valid":
        return whole[m - 1 : n]
    raise ArrayValueError(f"convolve(mode={mode!r})", hint='"full", "same" or "valid"')


def resize(x: Array, new_shape: Any) -> Array:
    """The elements in order, repeated as often as the new shape needs."""
    shape = (int(new_shape),) if isinstance(new_shape, (int, np.integer)) else tuple(int(n) for n in new_shape)
    flat, size = ravel(x), math.prod(shape)
    if not flat.size:
        return creation.zeros(shape, dtype=x.dtype, device=x.device)
    times = -(-size // flat.size)
    return manipulation.reshape(manipulation.tile(flat, (times,))[:size] if times else flat[:0], shape)
