"""Shapes and order: reshaping, transposing, joining, repeating. Most are parts of an expression, and move nothing by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..runtime.arrays.dtypes import ShapeLike
from ..runtime.devices.device import DeviceLike
from . import build, dtypes
from .array import Array, node_of
from .creation import asarray, shape_of
from .dtypes import DTypeLike, as_dtype
from .errors import ArrayAxisError, ArrayTypeError, ArrayValueError
from .indexing import checked
from .node import Node, decides
from .node import broadcast_shapes as common
from .search_kernels import searched


def axis_of(axis: Any, ndim: int) -> int:
    """An axis counted from the front. Raises ArrayValueError."""
    try:
        k = int(axis.__index__())
    except AttributeError:
        raise ArrayTypeError(
            f"an axis is an integer, not {axis!r}", hint="axis=0, or a tuple of integers where a function takes several"
        ) from None
    if not -ndim <= k < ndim:
        raise ArrayAxisError(f"axis {k} of an array of {ndim} dimensions", hint="axes run from 0, or from -1 back")
    return k % ndim


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """Axes in order; all where it is None. Raises ArrayValueError for one that comes twice."""
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    found = sorted(axis_of(a, ndim) for a in given)
    if len(set(found)) != len(found):
        raise ArrayValueError(f"an axis twice in {tuple(given)}", hint="name each axis once")
    return tuple(found)


# ---- broadcasting


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape that shapes broadcast to.

    >>> xp.broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    given = [tuple(s) for s in shapes]
    found = common(given) if given else ()
    if found is None:
        raise ArrayValueError(
            f"shapes {', '.join(map(str, given))} do not broadcast",
            hint="extents are equal or 1, counted from the last dimension",
        )
    return found


def broadcast_to(x: Array, /, shape: ShapeLike) -> Array:
    """The array repeated along dimensions of extent 1 and new ones in front.

    >>> xp.broadcast_to(xp.asarray([1, 2]), (2, 2))
    Array([[1, 2],
           [1, 2]], dtype=int64)
    """
    n, new = node_of(x), shape_of(shape)
    if common([n.shape, new]) != new:
        raise ArrayValueError(
            f"shape {n.shape} does not broadcast to {new}",
            hint="extents are equal or 1, counted from the last dimension: x[:, None] adds one",
        )
    return Array(build.broadcast_to(n, new))


def broadcast_arrays(*arrays: Array) -> tuple[Array, ...]:
    """All with their common shape.

    >>> a, b = xp.broadcast_arrays(xp.zeros((3, 1)), xp.zeros(4))
    >>> a.shape, b.shape
    ((3, 4), (3, 4))
    """
    nodes = [node_of(x) for x in arrays]
    if not nodes:
        return ()
    shape = build.common_shape(nodes, "broadcast_arrays")
    return tuple(Array(build.broadcast_to(n, shape)) for n in nodes)


# ---- shapes


def reshape(x: Array, /, shape: ShapeLike, *, copy: bool | None = None) -> Array:
    """The same elements in the same order under another shape. One extent may be -1, and is then computed. copy: as
    in the standard.

    >>> xp.reshape(xp.arange(6), (2, -1)).tolist()
    [[0, 1, 2], [3, 4, 5]]
    """
    n = node_of(x)
    new = [int(m.__index__()) for m in ((shape,) if hasattr(shape, "__index__") else tuple(shape))]
    if new.count(-1) == 1:
        rest = prod(m for m in new if m != -1)
        if rest == 0 or n.size % rest:
            raise ArrayValueError(
                f"shape {n.shape} cannot become {tuple(new)}",
                hint="one -1 at most, beside extents that divide the number of elements",
            )
        new[new.index(-1)] = n.size // rest
    if any(m < 0 for m in new) or prod(new) != n.size:
        raise ArrayValueError(
            f"shape {n.shape} ({n.size} elements) cannot become {tuple(new)}",
            hint="the new shape has as many elements; -1 stands for what is left",
        )
    return Array(build.reshape(build.copy(n) if copy else n, tuple(new)))


def expand_dims(x: Array, /, axis: int = 0) -> Array:
    """A new dimension of extent 1 at `axis`; several for a tuple.

    >>> xp.expand_dims(xp.zeros((3, 4)), axis=1).shape
    (3, 1, 4)
    """
    n = node_of(x)
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    ndim = len(n.shape) + len(given)
    new = axes_of(tuple(given), ndim)
    rest = iter(n.shape)
    return Array(build.reshape(n, tuple(1 if k in new else next(rest) for k in range(ndim))))


def squeeze(x: Array, /, axis: Any = None) -> Array:
    """Without the dimensions `axis`, whose extent is 1; by default without all that have it.

    >>> xp.squeeze(xp.zeros((1, 3)), axis=0).shape
    (3,)
    """
    n = node_of(x)
    gone = [k for k, m in enumerate(n.shape) if m == 1] if axis is None else axes_of(axis, len(n.shape))
    if any(n.shape[k] != 1 for k in gone):
        raise ArrayValueError(
            f"squeeze of axis {axis} of shape {n.shape}, whose extent is not 1",
            hint="x.reshape(shape), or an axis of extent 1",
        )
    return Array(build.reshape(n, tuple(m for k, m in enumerate(n.shape) if k not in gone)))


def permute_dims(x: Array, /, axes: Any) -> Array:
    """Dimension k is dimension axes[k] of x.

    >>> xp.permute_dims(xp.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    n = node_of(x)
    perm = tuple(axis_of(a, len(n.shape)) for a in axes)
    if sorted(perm) != list(range(len(n.shape))):
        raise ArrayValueError(
            f"{tuple(axes)} does not permute {len(n.shape)} dimensions", hint="each dimension once: (1, 0) for a matrix"
        )
    return Array(build.transpose(n, perm))


def moveaxis(x: Array, source: Any, destination: Any, /) -> Array:
    """The dimensions `source` at the places `destination`, the others in their order.

    >>> xp.moveaxis(xp.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    n = node_of(x)
    ndim = len(n.shape)
    a = [axis_of(k, ndim) for k in (source if isinstance(source, (tuple, list)) else (source,))]
    b = [axis_of(k, ndim) for k in (destination if isinstance(destination, (tuple, list)) else (destination,))]
    if len(a) != len(b) or len(set(a)) != len(a) or len(set(b)) != len(b):
        raise ArrayValueError(f"moveaxis from {source} to {destination}", hint="as many destinations as sources")
    order = [k for k in range(ndim) if k not in a]
    for to, of in sorted(zip(b, a)):
        order.insert(to, of)
    return Array(build.transpose(n, tuple(order)))


def flip(x: Array, /, axis: int | Sequence[int] | None = None) -> Array:
    """The elements in reverse order along `axis`, or all.

    >>> xp.flip(xp.asarray([1, 2, 3]))
    Array([3, 2, 1], dtype=int64)
    """
    n = node_of(x)
    turned = axes_of(axis, len(n.shape))
    if 0 in n.shape:
        return Array(build.copy(n))
    starts = tuple(m - 1 if k in turned and m > 1 else 0 for k, m in enumerate(n.shape))
    steps = tuple(-1 if k in turned and m > 1 else 1 for k, m in enumerate(n.shape))
    return Array(build.slices(n, starts, steps, n.shape))


# ---- joining


def _joined(arrays: Any, axis: Any, what: str) -> list[Node]:
    if isinstance(axis, Array):
        raise ArrayTypeError(
            f"{what} of arrays that are given one by one", hint=f"they are one argument: tec.array.{what}([x, y])"
        )
    nodes = [node_of(x) for x in arrays]
    if not nodes:
        raise ArrayValueError(f"{what} of no arrays", hint="at least one")
    build.one_device(nodes)
    kind = dtypes.result_type(*(n.dtype for n in nodes))
    return [build.cast(n, kind) for n in nodes]


def concat(arrays: Any, /, axis: int | None = 0) -> Array:
    """Arrays joined along `axis`. With axis=None all elements are joined in one dimension.

    >>> xp.concat([xp.arange(2), xp.arange(3)]).tolist()
    [0, 1, 0, 1, 2]
    """
    nodes = _joined(arrays, axis, "concat")
    if axis is None:
        nodes, axis = [build.reshape(n, (n.size,)) for n in nodes], 0
    k = axis_of(axis, len(nodes[0].shape))
    first = nodes[0].shape
    if any(
        len(n.shape) != len(first) or any(a != b for d, (a, b) in enumerate(zip(n.shape, first)) if d != k)
        for n in nodes
    ):
        raise ArrayValueError(
            f"concat along axis {axis} of shapes {', '.join(str(n.shape) for n in nodes)}",
            hint="arrays agree in all extents but that one",
        )
    made = build.concat(nodes, k)
    return Array(build.unary("identity", made) if any(made is n for n in nodes) else made)


def stack(arrays: Any, /, axis: int = 0) -> Array:
    """Arrays of one shape along a new dimension.

    >>> xp.stack([xp.asarray([1, 2]), xp.asarray([3, 4])])
    Array([[1, 2],
           [3, 4]], dtype=int64)
    """
    nodes = _joined(arrays, axis, "stack")
    if any(n.shape != nodes[0].shape for n in nodes):
        raise ArrayValueError(
            f"stack of shapes {', '.join(str(n.shape) for n in nodes)}",
            hint="arrays of one shape; tec.array.concat joins others",
        )
    k = axis_of(axis, len(nodes[0].shape) + 1)
    new = [build.reshape(n, (*n.shape[:k], 1, *n.shape[k:])) for n in nodes]
    made = build.concat(new, k)
    return Array(made)


def unstack(x: Array, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The parts along `axis`, which vanishes.

    >>> [x.shape for x in xp.unstack(xp.zeros((2, 3)))]
    [(3,), (3,)]
    """
    n = node_of(x)
    k = axis_of(axis, len(n.shape))
    lead = (slice(None),) * k
    return tuple(x[(*lead, i)] for i in range(n.shape[k]))


def roll(x: Array, /, shift: Any, axis: int | Sequence[int] | None = None) -> Array:
    """The elements moved by `shift` positions along `axis`, the last ones to the front. With axis=None the array is
    treated as one dimension.

    >>> xp.roll(xp.asarray([1, 2, 3]), 1)
    Array([3, 1, 2], dtype=int64)
    """
    n = node_of(x)
    if axis is None:
        if not isinstance(shift, int):
            raise ArrayValueError(f"roll(shift={shift!r}) without axes", hint="axis= says along which each shift goes")
        return reshape(roll(reshape(x, (n.size,)), shift, axis=0), n.shape)
    axes = [axis_of(a, len(n.shape)) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    shifts = list(shift) if isinstance(shift, (tuple, list)) else [shift] * len(axes)
    if len(shifts) != len(axes):
        raise ArrayValueError(f"roll by {shift} along {axis}", hint="as many shifts as axes")
    for k, by in zip(axes, shifts):
        m = n.shape[k]
        by = by % m if m else 0
        if by:
            lead = (slice(None),) * k
            part = Array(n)
            n = build.concat([part[(*lead, slice(m - by, None))]._node, part[(*lead, slice(0, m - by))]._node], k)
    return Array(n) if n is not x._node else Array(build.unary("identity", n))


def tile(x: Array, repetitions: Any, /) -> Array:
    """The whole array repeated along each dimension.

    >>> xp.tile(xp.asarray([1, 2]), (2,))
    Array([1, 2, 1, 2], dtype=int64)
    """
    n = node_of(x)
    times = tuple(int(r) for r in (repetitions if isinstance(repetitions, (tuple, list)) else (repetitions,)))
    ndim = max(len(times), len(n.shape))
    times = (1,) * (ndim - len(times)) + times
    shape = (1,) * (ndim - len(n.shape)) + n.shape
    if any(t < 0 for t in times):
        raise ArrayValueError(f"tile by {times}", hint="counts are 0 or more")
    pairs = tuple(m for s in shape for m in (1, s))
    wide = tuple(m for t, s in zip(times, shape) for m in (t, s))
    final = tuple(t * s for t, s in zip(times, shape))
    if 0 in final:
        return Array(build.full(0, final, n.dtype, n.device))
    return Array(build.reshape(build.broadcast_to(build.reshape(n, pairs), wide), final))


def repeat(x: Array, repeats: Any, /, axis: int | None = None) -> Array:
    """Each element repeated along `axis`; with axis=None all elements in one dimension. repeats: a number, or one
    number per element.

    >>> xp.repeat(xp.asarray([1, 2]), 2)
    Array([1, 1, 2, 2], dtype=int64)
    """
    n = node_of(x)
    if isinstance(repeats, (tuple, list)):
        if any(r < 0 for r in repeats):
            raise ArrayValueError(f"repeat {min(repeats)} times", hint="counts are 0 or more")
        repeats = asarray(repeats, dtype=dtypes.int64, device=n.device)
    if axis is None:
        n, k = build.reshape(n, (n.size,)), 0
    else:
        k = axis_of(axis, len(n.shape))
    m = n.shape[k]
    if type(repeats) is Array and repeats.size == 1:
        repeats = int(repeats.item())
    if type(repeats) is not Array:
        if repeats < 0:
            raise ArrayValueError(f"repeat {repeats} times", hint="counts are 0 or more")
        final = (*n.shape[:k], m * repeats, *n.shape[k + 1 :])
        if 0 in final:
            return Array(build.full(0, final, n.dtype, n.device))
        split = build.reshape(n, (*n.shape[: k + 1], 1, *n.shape[k + 1 :]))
        wide = build.broadcast_to(split, (*n.shape[: k + 1], repeats, *n.shape[k + 1 :]))
        return Array(build.reshape(wide, final))
    counts = node_of(repeats)
    if counts.shape != (m,):
        raise ArrayValueError(
            f"repeat with {counts.shape} counts along {m} elements",
            hint="a count for each element along the axis, or one for all",
        )
    # Element i of the result is that whose counts up to it first exceed i.
    ends = (
        build.boundary(build.make("cumsum", (build.cast(counts, dtypes.int64),), (m,), dtypes.int64, (("axis", 0),)))
        if m
        else counts
    )
    decides(ends, "the length of repeat")
    total = build.value(build.slices(ends, (m - 1,), (1,), (1,))) if m else 0
    final = (*n.shape[:k], total, *n.shape[k + 1 :])
    if 0 in final:
        return Array(build.full(0, final, n.dtype, n.device))
    place = searched(ends, build.positions(0, (total,), n.device), True)
    return Array(build.gather(n, place, k))


# ---- taking


def take(x: Array, indices: Array, /, axis: int | None = None) -> Array:
    """Slices along `axis`, selected by `indices` of any shape. Negative indices count from the end. Raises
    ArrayIndexError for an index out of range; the check waits for the device.

    >>> xp.take(xp.asarray([10, 20, 30]), xp.asarray([2, 0]), axis=0).tolist()
    [30, 10]
    """
    n = node_of(x)
    if axis is None:
        if len(n.shape) != 1:
            raise ArrayValueError(
                f"take of an array of {len(n.shape)} dimensions without an axis", hint="axis=0, or tec.array.ravel(x)"
            )
        axis = 0
    k = axis_of(axis, len(n.shape))
    return x[(*(slice(None),) * k, indices)]


def take_along_axis(x: Array, indices: Array, /, axis: int = -1) -> Array:
    """out[i, j, k] = x[i, indices[i, j, k], k] for axis 1; other dimensions broadcast.

    >>> xp.take_along_axis(xp.asarray([[10, 20], [30, 40]]), xp.asarray([[1], [0]]), axis=1)
    Array([[20],
           [30]], dtype=int64)
    """
    n, index = node_of(x), node_of(indices, "indices")
    build.one_device((n, index))
    k = axis_of(axis, len(n.shape))
    if len(index.shape) != len(n.shape):
        raise ArrayValueError(
            f"take_along_axis of shape {n.shape} by indices of shape {index.shape}",
            hint="indices have as many dimensions, and the same extents but along the axis",
        )
    others = common([(*n.shape[:k], 1, *n.shape[k + 1 :]), (*index.shape[:k], 1, *index.shape[k + 1 :])])
    if others is None:
        raise ArrayValueError(
            f"take_along_axis of shape {n.shape} by indices of shape {index.shape}",
            hint="indices have as many dimensions, and the same extents but along the axis",
        )
    index = build.broadcast_to(index, (*others[:k], index.shape[k], *others[k + 1 :]))
    n = build.broadcast_to(n, (*others[:k], n.shape[k], *others[k + 1 :]))
    if 0 in index.shape:
        return Array(build.full(0, index.shape, n.dtype, n.device))
    return Array(build.gather_elements(build.boundary(n), build.boundary(checked(index, n.shape[k], k)), k))


# ---- types


def astype(x: Array, dtype: DTypeLike, /, *, copy: bool = True, device: DeviceLike = None) -> Array:
    """The elements as another type: floats to integers toward zero (and to the nearest that there is), integers to integers by wrapping, to bool: not 0.

    >>> xp.astype(xp.asarray([1.5, -1.5]), xp.int32)
    Array([ 1, -1], dtype=int32)
    """
    n, kind = node_of(x), as_dtype(dtype)
    if device is not None:
        x = x.to_device(device)
        n = x._node
    if n.dtype == kind:
        return Array(build.unary("identity", n)) if copy else x
    return Array(build.cast(n, kind))
