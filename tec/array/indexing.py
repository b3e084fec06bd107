"""Indices: what `x[key]` gives and what `x[key] = value` does.

Integers, slices, `...` and None are a slice in the expression, whose places are numbers at run time: `x[i]` in a loop compiles once. A mask of bools takes
as many elements as hold, which the host has to know: that waits for the device. Beside other indices it is the arrays of the places where it holds. Arrays of integers gather; where one points outside, that is an error, which
waits as well.

Assignment to a region writes it in place where nobody can tell: expressions that still have to read the old value are computed before, or the
array moves to memory of its own, whichever moves less. With a mask or integers it is an expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ..runtime.arrays.ndarray import NDArray, array
from . import build, dtypes, kernels
from .complexes import as_pairs
from .computing import compute, in_memory
from .dtypes import PART
from .errors import ArrayIndexError, ArrayValueError
from .node import RECORDERS, TRACED, Node, decides, is_traced, leaf, note, scalar
from .search_kernels import coordinates_of, places_of

# ---- reading an index


def _keys(n: Node, key: Any) -> list[Any]:
    """One entry a dimension (an int, a slice, a node of integers or of bools) or None for a new one. Raises ArrayIndexError."""
    keys = list(key) if isinstance(key, tuple) else [key]
    given = 0
    for k in keys:
        if k is None or k is Ellipsis:
            continue
        if isinstance(k, (bool, np.bool_)):
            raise ArrayIndexError(f"the index {k}", hint="a mask is an array: x[tec.array.asarray(True)]")
        if isinstance(k, Node):
            given += len(k.shape) if k.dtype == "bool" else 1
        elif isinstance(k, slice) or (hasattr(k, "__index__") and not isinstance(k, np.ndarray)):
            given += 1
        else:
            kind = f"an array of {k.dtype}" if isinstance(k, np.ndarray) else f"type {type(k).__name__}"
            raise ArrayIndexError(
                f"an index of {kind}",
                hint="indices are integers, slices, ..., None, and arrays of integers or bools: tec.array.asarray(i)",
            )
    if given > len(n.shape):
        raise ArrayIndexError(
            f"{given} indices for {len(n.shape)} dimensions", hint="one for each dimension at most; None adds one"
        )
    if sum(k is Ellipsis for k in keys) > 1:
        raise ArrayIndexError("more than one ... in an index", hint="one ... stands for all dimensions that are left")
    at = next((i for i, k in enumerate(keys) if k is Ellipsis), None)
    rest = [slice(None)] * (len(n.shape) - given)
    if at is None:
        return keys + rest
    return keys[:at] + rest + keys[at + 1 :]


class _Region:
    """What integers and slices pick: element k of dimension d is `starts[d] + k * steps[d]`; `shape` is that of the result."""

    def __init__(self, n: Node, keys: Sequence[Any]):
        starts: list[int] = []
        steps: list[int] = []
        sizes: list[int] = []
        shape: list[int] = []
        d = 0
        for k in keys:
            if k is None:
                shape.append(1)
                continue
            extent = n.shape[d]
            if isinstance(k, slice):
                try:
                    first, last, step = k.indices(extent)
                except (TypeError, ValueError) as e:
                    raise ArrayIndexError(
                        f"the slice {k} of dimension {d}: {e}", hint="bounds and steps are integers; a step is not 0"
                    ) from None
                count = len(range(first, last, step))
                starts.append(first if count else 0)
                steps.append(step if count > 1 else 1)
                sizes.append(count)
                shape.append(count)
            else:
                i = k.__index__()
                if not -extent <= i < extent:
                    raise ArrayIndexError(
                        f"index {i} of dimension {d}, which has extent {extent}",
                        hint="indices run from 0 to the extent less 1, or from -1 down",
                    )
                starts.append(i % extent)
                steps.append(1)
                sizes.append(1)
            d += 1
        self.starts, self.steps, self.sizes, self.shape = tuple(starts), tuple(steps), tuple(sizes), tuple(shape)

    def is_all(self, n: Node) -> bool:
        return self.sizes == n.shape and all(s == 1 for s in self.steps)

    def take(self, n: Node) -> Node:
        if 0 in self.shape:
            return build.full(0, self.shape, n.dtype, n.device)
        return build.reshape(build.slices(n, self.starts, self.steps, self.sizes), self.shape)


# ---- x[key]


def key_of(starts: Sequence[int], steps: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    """The slices that begin there, step so, and have so many elements."""
    made: list[slice] = []
    for b, s, n in zip(starts, steps, sizes):
        end = b + (n - 1) * s + (1 if s > 0 else -1)
        made.append(slice(b, None if end < 0 else end, s))
    return tuple(made)


def take(n: Node, key: Any) -> Node:
    """The node of `x[key]`."""
    keys = _keys(n, key)
    arrays = [k for k in keys if isinstance(k, Node)]
    if not arrays:
        return _Region(n, keys).take(n)
    build.one_device([n, *arrays])
    mask = _only_mask(n, keys)
    return _gathered(n, _with_places(n, keys)) if mask is None else _masked(n, mask)


def _only_mask(n: Node, keys: Sequence[Any]) -> Node | None:
    """The mask of an index that is one in front; None of another. Raises ArrayIndexError where its shape is not the array's."""
    mask = keys[0]
    if not _is_mask(mask) or any(not isinstance(k, slice) or k != slice(None) for k in keys[1:]):
        return None
    _check_mask(mask, n.shape)
    return mask  # type: ignore[no-any-return]


def _is_mask(k: Any) -> bool:
    return isinstance(k, Node) and k.dtype == "bool"


def _check_mask(mask: Node, shape: tuple[int, ...]) -> None:
    # As with NumPy, a mask of no elements picks none of any extent.
    if len(mask.shape) > len(shape) or any(m not in (0, k) for m, k in zip(mask.shape, shape)):
        raise ArrayIndexError(
            f"a mask of shape {mask.shape} on dimensions of extents {shape}",
            hint="a mask has the shape of the array, or of its first dimensions",
        )


def _with_places(n: Node, keys: Sequence[Any]) -> list[Any]:
    """An index with the places where a mask holds, an array of integers for each of its dimensions, instead of the mask."""
    found: list[Any] = []
    d = 0
    for k in keys:
        if not _is_mask(k):
            found.append(k)
            d += k is not None
            continue
        if not k.shape:
            raise ArrayIndexError("a mask without dimensions beside other indices", hint="take one after the other")
        _check_mask(k, n.shape[d : d + len(k.shape)])
        found += map(build.boundary, coordinates_of(k))
        d += len(k.shape)
    return found


def _masked(n: Node, mask: Node) -> Node:
    rest = n.shape[len(mask.shape) :]
    if not mask.size:
        return build.full(0, (0, *rest), n.dtype, n.device)
    where = places_of(mask)
    flat = build.reshape(n, (prod(mask.shape), *rest))
    return build.gather(flat, where, 0)


def checked(index: Node, extent: int, d: int) -> Node:
    """An index whose numbers are all inside; ArrayIndexError where one is not. Waits for the device."""
    if not dtypes.is_int(index.dtype):
        raise ArrayIndexError(f"an index of {index.dtype}", hint="indices are integers or bools")
    if not index.size:
        return index
    low, high = dtypes.int_limits(index.dtype)
    bad: Node | None = None
    if high >= extent:
        bad = build.binary("greater_equal", index, scalar(extent, index.dtype, index.device), dtypes.bool)
    if low < -extent:
        below = build.binary("less", index, scalar(-extent, index.dtype, index.device), dtypes.bool)
        bad = below if bad is None else build.binary("logical_or", bad, below)
    if bad is not None and is_traced(bad):
        # Its numbers are not there yet: it stays inside, and is told when they are.
        TRACED[-1].checks.append(
            (build.reduce("any", bad, tuple(range(len(bad.shape))), False) if bad.shape else bad, _outside(d, extent))
        )
        index = build.binary("maximum", index, scalar(max(-extent, low), index.dtype, index.device))
        return build.binary("minimum", index, scalar(min(max(extent - 1, 0), high), index.dtype, index.device))
    if bad is not None and build.value(
        build.reduce("any", bad, tuple(range(len(bad.shape))), False) if bad.shape else bad, decides=False
    ):
        raise ArrayIndexError(_outside(d, extent))
    return index


def _outside(d: int, extent: int) -> str:
    return f"an index of dimension {d} is outside of its extent, {extent}"


def _split(n: Node, keys: Sequence[Any]) -> tuple[Node, list[Node], list[int]]:
    """(the array after its slices, the integer arrays, the dimensions that these index); lone integers beside arrays count as arrays."""
    plain: list[Any] = []
    picked: list[Node] = []
    dims: list[int] = []
    d = out = 0
    for k in keys:
        if isinstance(k, Node) or (k is not None and not isinstance(k, slice)):
            extent = n.shape[d]
            if isinstance(k, Node):
                picked.append(checked(k, extent, d))
            else:
                i = k.__index__()
                if not -extent <= i < extent:
                    raise ArrayIndexError(
                        f"index {i} of dimension {d}, which has extent {extent}",
                        hint="indices run from 0 to the extent less 1, or from -1 down",
                    )
                picked.append(scalar(i % extent, dtypes.int64, n.device))
            dims.append(out)
            plain.append(slice(None))
        else:
            plain.append(k)
        d += k is not None
        out += 1
    region = _Region(n, plain)
    return region.take(n), picked, dims


def _gathered(n: Node, keys: Sequence[Any]) -> Node:
    n, picked, dims = _split(n, keys)
    shape = build.common_shape(picked, "the index")
    if 0 in shape or 0 in n.shape:
        kept = [m for k, m in enumerate(n.shape) if k not in dims]
        at = dims[0] if dims == list(range(dims[0], dims[0] + len(dims))) else 0
        if 0 in n.shape and 0 not in (*kept[:at], *shape, *kept[at:]):
            raise ArrayIndexError("an index into an array without elements", hint="test x.size first")
        return build.full(0, (*kept[:at], *shape, *kept[at:]), n.dtype, n.device)
    if len(picked) == 1:
        return build.gather(build.boundary(n), picked[0], dims[0])
    together = dims == list(range(dims[0], dims[0] + len(dims)))
    rest = [k for k in range(len(n.shape)) if k not in dims]
    moved = build.boundary(build.transpose(n, (*dims, *rest)))
    made = _gather_points(moved, picked, shape)
    if not together or dims[0] == 0:
        return made
    # The dimensions of the index stand where the first of theirs stood.
    r, at = len(shape), dims[0]
    return build.transpose(made, (*range(r, r + at), *range(r), *range(r + at, len(made.shape))))


def _points(picked: Sequence[Node], shape: tuple[int, ...]) -> Node:
    """Index arrays as one, with a last dimension for the parts of a point."""
    parts = [build.reshape(build.broadcast_to(build.cast(p, dtypes.int64), shape), (*shape, 1)) for p in picked]
    return build.boundary(build.concat(parts, len(shape)))


def _gather_points(n: Node, picked: Sequence[Node], shape: tuple[int, ...]) -> Node:
    points = _points(picked, shape)
    return build.gather_points(n, points)


# ---- x[key] = value


def put(n: Node, key: Any, value: Node) -> Node:
    """The node that an array names after `x[key] = value`."""
    keys = _keys(n, key)
    arrays = [k for k in keys if isinstance(k, Node)]
    if not arrays:
        region = _Region(n, keys)
        _fits(value, region.shape)
        if 0 in region.shape:
            return n
        return _put_region(n, region, value)
    build.one_device([n, *arrays])
    mask = _only_mask(n, keys)
    if mask is not None:
        return _put_masked(n, mask, value)
    return _put_points(n, _with_places(n, keys), value)


def _fits(value: Node, shape: tuple[int, ...]) -> None:
    extra = len(value.shape) - len(shape)
    trimmed = value.shape[max(extra, 0) :]
    if any(m != 1 for m in value.shape[: max(extra, 0)]) or any(
        m not in (1, k) for m, k in zip(reversed(trimmed), reversed(shape))
    ):
        raise ArrayValueError(
            f"values of shape {value.shape} assigned to a region of shape {shape}",
            hint="values have the region's shape, or broadcast to it: value[:, None]",
        )


def _put_region(n: Node, region: _Region, value: Node) -> Node:
    value = build.reshape(value, value.shape[max(len(value.shape) - len(region.shape), 0) :])
    if region.is_all(n):
        # The whole array: it names another value.
        full = build.broadcast_to(value, region.shape)
        return build.reshape(full, n.shape)
    if is_traced(value) or is_traced(n):
        return _with_region(n, region, value)
    source = in_memory(value)  # before it is written to what it may be made of
    if RECORDERS:  # a value of its own, of which the old one is a part
        before, n = n, build.copy(n)
        made = leaf(in_memory(n))
        _write(_view(in_memory(made), region), source)
        note("put", made, (before, value), region=region)
        return made
    n = own(n)
    target = in_memory(n)
    if source.storage is target.storage:  # the array itself, in another order
        n = build.copy(n)
        target = in_memory(n)
    _write(_view(target, region), source)
    return n


def _with_region(n: Node, region: _Region, value: Node) -> Node:
    """What an assignment gives as an expression: each element reads its place among the values, and is one of them or stays."""
    made = build.reshape(build.broadcast_to(value, region.shape), tuple(region.sizes))
    inside: Node | None = None
    for d, (start, step, size) in enumerate(zip(region.starts, region.steps, region.sizes)):
        place, off = np.divmod(np.arange(n.shape[d]) - start, step)
        within = (off == 0) & (place >= 0) & (place < size)
        if within.all() and step == 1:
            continue
        at = leaf(array(np.where(within, place, 0), n.device))
        made = build.gather(made, at, d)
        line = tuple(m if k == d else 1 for k, m in enumerate(n.shape))
        here = build.broadcast_to(build.reshape(leaf(array(within, n.device)), line), n.shape)
        inside = here if inside is None else build.binary("logical_and", inside, here)
    made = build.cast(made, n.dtype)
    return made if inside is None else build.where(inside, made, n)


def own(n: Node) -> Node:
    """A node that nobody else sees the memory of: the same, or a copy."""
    a = in_memory(n)
    if n.readers is None or n.is_shared:
        return build.copy(n)
    readers = n.pending_readers()
    if sum(r.nbytes for r in readers) > a.nbytes:
        return build.copy(n)
    for r in readers:
        compute(r)
    return build.copy(n) if n.is_shared else n  # a reader may be the same elements under another shape


def _view(a: NDArray, region: _Region) -> NDArray:
    """The region, with the dimensions of the result."""
    index = tuple(
        slice(b, b + c * s if b + c * s >= 0 else None, s) if c > 1 else slice(b, b + 1)
        for b, s, c in zip(region.starts, region.steps, region.sizes)
    )
    view = a[index]
    kept = iter((m, s) for m, s in zip(view.shape, view.strides) if m != 1)
    strides = tuple(next(kept)[1] if m != 1 else 0 for m in region.shape)
    return NDArray(view.storage, view.address, region.shape, view.dtype, strides)


def _write(target: NDArray, source: NDArray) -> None:
    """target[...] = source, which broadcasts, by a kernel over as few dimensions as do."""
    if target.dtype in PART:
        target, source = as_pairs(target), as_pairs(source)
    ndim = len(target.shape)
    lead = ndim - len(source.shape)
    strides = [0 if k < lead or source.shape[k - lead] == 1 else source.strides[k - lead] for k in range(ndim)]
    dims: list[list[int]] = []  # extent, stride of the target, stride of the source
    for m, t, s in zip(target.shape, target.strides, strides):
        if m == 1:
            continue
        if dims and dims[-1][1] == t * m and dims[-1][2] == s * m:
            dims[-1] = [dims[-1][0] * m, t, s]
        else:
            dims.append([m, t, s])
    dims = dims or [[1, 1, 1]]
    kernels.put(target, source, dims)


def _put_masked(n: Node, mask: Node, value: Node) -> Node:
    if not n.size or not mask.size:
        return n
    rest = n.shape[len(mask.shape) :]
    wide = build.reshape(mask, mask.shape + (1,) * len(rest))
    if not value.shape or (len(value.shape) <= len(rest) and 0 not in value.shape and _broadcasts(value.shape, rest)):
        return build.where(wide, value, n)
    # One value for each element that holds: those are counted, and each takes the value of its number.
    flat = build.reshape(build.cast(mask, dtypes.int64), (mask.size,))
    count = build.make("cumsum", (flat,), flat.shape, dtypes.int64, (("axis", 0),))
    decides(count, "the number of elements that a mask picks")
    total = build.value(build.slices(build.boundary(count), (mask.size - 1,), (1,), (1,)))
    _fits(value, (total, *rest))
    if not total:
        return n
    value = build.boundary(build.broadcast_to(value, (total, *rest)))
    place = build.binary(
        "maximum", build.binary("subtract", count, scalar(1, dtypes.int64, n.device)), scalar(0, dtypes.int64, n.device)
    )
    place = build.reshape(build.boundary(place), mask.shape)
    return build.where(wide, build.boundary(build.gather(value, place, 0)), n)


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    return all(m in (1, k) for m, k in zip(reversed(shape), reversed(to)))


def _put_points(n: Node, keys: Sequence[Any], value: Node) -> Node:
    lead = 0
    while lead < len(keys) and keys[lead] is not None and not isinstance(keys[lead], slice):
        lead += 1
    if any(not isinstance(k, slice) or k != slice(None) for k in keys[lead:]):
        return _put_anywhere(n, keys, value)
    n, picked, _ = _split(n, keys)
    shape = build.common_shape(picked, "the index")
    full = shape + n.shape[len(picked) :]
    _fits(value, full)
    if 0 in full:
        return n
    value = build.reshape(value, value.shape[max(len(value.shape) - len(full), 0) :])
    updates = build.boundary(build.broadcast_to(value, full))
    return build.scatter_points(n, _points(picked, shape), updates)


def _put_anywhere(n: Node, keys: Sequence[Any], value: Node) -> Node:
    """Assignment with arrays behind a slice or beside a new dimension, by the place in memory of each element that is assigned to."""
    if not n.size:
        return n
    line = build.reshape(build.positions(0, (n.size,), n.device), n.shape)
    places = _gathered(line, keys)
    _fits(value, places.shape)
    if not places.size:
        return n
    value = build.reshape(value, value.shape[max(len(value.shape) - len(places.shape), 0) :])
    updates = build.reshape(build.broadcast_to(value, places.shape), (places.size,))
    points = build.boundary(build.reshape(places, (places.size, 1)))
    made = build.scatter_points(build.reshape(n, (n.size,)), points, build.boundary(updates))
    return build.reshape(made, n.shape)
