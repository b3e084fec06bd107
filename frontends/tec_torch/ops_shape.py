"""ATen operators that move elements: views, slices, concatenations, padding, and what is put into them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders import axis_of
from tec.graph.builders.slices import fitted, slice_range
from tec.ops.dims import Size, as_size, is_symbolic

from .importer import AtenCall, aten_op
from .remedies import LEFT_TO_TORCH


@aten_op(
    "view",
    "reshape",
    "_unsafe_view",
    "unsqueeze",
    "squeeze",
    "flatten",
    "unflatten",
    "view_copy",
    "_reshape_alias",
    "squeeze_copy",
    "unsqueeze_copy",
)
def reshape(c: AtenCall, x: Value, *more: Any, **rest: Any) -> Value:
    if c.overload == "dtype":
        return c.op("bitcast", x, dtype=c.dtype)
    return c.reshape(x, c.shape)


@aten_op("expand", "expand_as", "broadcast_to", "expand_copy")
def expand(c: AtenCall, x: Value, *more: Any) -> Value:
    return c.broadcast(x, c.shape)


@aten_op("permute", "permute_copy")
def permute(c: AtenCall, x: Value, dims: Sequence[int]) -> Value:
    return c.transpose(x, [axis_of(d, x.ndim) for d in dims])


@aten_op("transpose", "swapaxes", "transpose_copy")
def transpose(c: AtenCall, x: Value, a: int, b: int) -> Value:
    perm = list(range(x.ndim))
    if perm:
        perm[a], perm[b] = perm[b], perm[a]
    return c.transpose(x, perm)


@aten_op("t", "numpy_T", "t_copy")
def t(c: AtenCall, x: Value) -> Value:
    return c.transpose(x, tuple(range(x.ndim))[::-1])


@aten_op("slice", "slice_copy")
def slice_(c: AtenCall, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    axis = axis_of(dim, x.ndim)
    first, count = slice_range(x.shape[axis], start, c.shape[axis])
    return c.slice(x, axis, first, count, step)


@aten_op("narrow")
def narrow(c: AtenCall, x: Value, dim: int, start: Any, length: Any) -> Value:
    axis = axis_of(dim, x.ndim)
    return c.slice(x, axis, slice_range(x.shape[axis], start, length)[0], length)


@aten_op("select", "select_copy")
def select(c: AtenCall, x: Value, dim: int, index: Any) -> Value:
    axis = axis_of(dim, x.ndim)
    index = as_size(index)
    return c.take(x, axis, index + x.shape[axis] if not is_symbolic(index) and index < 0 else index)


@aten_op(
    "split",
    "split_with_sizes",
    "chunk",
    "unsafe_split",
    "unsafe_split_with_sizes",
    "split_copy",
    "split_with_sizes_copy",
    "tensor_split",
)
def split(c: AtenCall, x: Value, sizes: Any, dim: int = 0) -> list[Value]:
    axis = axis_of(dim, x.ndim)
    return c.split(x, axis, [shape[axis] for _, shape in c.types])  # type: ignore[misc]


@aten_op("unbind", "unbind_copy")
def unbind(c: AtenCall, x: Value, dim: int = 0) -> list[Value]:
    return [c.take(x, dim, k) for k in range(len(c.types))]


@aten_op("cat", "concat", "concatenate")
def cat(c: AtenCall, values: Sequence[Value], dim: int = 0) -> Value:
    some = [c.cast(v, c.dtype) for v in values if v.shape != (0,) or len(c.shape) == 1]
    return c.concat(some, axis_of(dim, len(c.shape))) if some else c.reshape(c.cast(values[0], c.dtype), c.shape)


@aten_op("diff")
def diff(
    c: AtenCall, x: Value, n: int = 1, dim: int = -1, prepend: Value | None = None, append: Value | None = None
) -> Value:
    axis = axis_of(dim, x.ndim)
    # With no difference to take torch returns the input alone, without what would go before or after it.
    parts = [c.cast(v, c.dtype) for v in ((prepend, x, append) if n else (x,)) if v is not None]
    x = c.concat(parts, axis) if len(parts) > 1 else parts[0]
    for _ in range(n):
        size = x.shape[axis]
        x = difference(c, c.slice(x, axis, 1, size - 1), c.slice(x, axis, 0, size - 1))
    return x


def difference(c: AtenCall, a: Value, b: Value) -> Value:
    """a - b; of truth values whether they differ."""
    return c.op("not_equal" if a.dtype == "bool" else "subtract", a, b)


@aten_op("stack")
def stack(c: AtenCall, values: Sequence[Value], dim: int = 0) -> Value:
    return c.stack([c.cast(v, c.dtype) for v in values], axis_of(dim, len(c.shape)))


@aten_op("flip")
def flip(c: AtenCall, x: Value, dims: Sequence[int]) -> Value:
    for d in dims:
        if x.ndim:
            x = c.slice(x, d, x.shape[d] - 1, x.shape[d], -1)
    return x


@aten_op("roll")
def roll(c: AtenCall, x: Value, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    if not dims:
        flat = c.reshape(x, (x.type.size,))
        return c.reshape(_rolled(c, flat, shifts[0], 0), x.shape)
    for s, d in zip(shifts, dims):
        x = _rolled(c, x, s, axis_of(d, x.ndim))
    return x


def _rolled(c: AtenCall, x: Value, shift: Size, axis: int) -> Value:
    n = x.shape[axis]
    if n == 0:
        return x
    shift = shift % n
    if shift == 0:
        return x
    return c.concat([c.slice(x, axis, n - shift, shift), c.slice(x, axis, 0, n - shift)], axis)


@aten_op("repeat", "tile")
def repeat(c: AtenCall, x: Value, repeats: Sequence[Size]) -> Value:
    repeats = (*[1] * (x.ndim - len(repeats)), *repeats)
    x = c.reshape(x, (*[1] * (len(repeats) - x.ndim), *x.shape))
    if all(n == 1 or r == 1 for n, r in zip(x.shape, repeats)):
        return c.broadcast(x, tuple(n * r for n, r in zip(x.shape, repeats)))
    return c.op("tile", x, repeats=tuple(map(as_size, repeats)))


@aten_op("repeat_interleave.self_int")
def repeat_interleave(c: AtenCall, x: Value, repeats: int, dim: int | None = None, **more: Any) -> Value:
    if dim is None:
        x, dim = c.reshape(x, (x.type.size,)), 0
    axis = axis_of(dim, x.ndim)
    shape = x.shape
    wide = c.broadcast(c.unsqueeze(x, axis + 1), (*shape[: axis + 1], repeats, *shape[axis + 1 :]))
    return c.reshape(wide, c.shape)


@aten_op("repeat_interleave.Tensor")
def repeated_places(c: AtenCall, repeats: Value, **more: Any) -> Value:
    """Each place as often as `repeats` says, one after another: how many of the counts so far end at or before it."""
    ends = c.op("cumsum", c.cast(repeats, "int64"), axis=0, exclusive=False, reverse=False)
    over = c.op("less_equal", ends, c.unsqueeze(c.iota(c.shape[0]), 1))
    return c.cast(c.op("reduce_sum", c.cast(over, "int64"), axes=(1,), keepdims=False), c.dtype)


@aten_op("constant_pad_nd", "pad")
def pad(c: AtenCall, x: Value, pads: Sequence[Size], mode: Any = "constant", value: Any = None) -> Value:
    if c.name_of_op == "constant_pad_nd":
        mode, value = "constant", mode if mode != "constant" else value
    return padded(c, x, pads, {"replicate": "edge", "circular": "wrap"}.get(mode, mode), value)


@aten_op("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(c: AtenCall, x: Value, pads: Sequence[Size]) -> Value:
    return padded(c, x, pads, "reflect")


@aten_op("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(c: AtenCall, x: Value, pads: Sequence[Size]) -> Value:
    return padded(c, x, pads, "edge")


def padded(c: AtenCall, x: Value, pads: Sequence[Size], mode: str, value: Any = None) -> Value:
    """`pads`: before and after of the last dimension, then of the one before it."""
    before, after = [0] * x.ndim, [0] * x.ndim
    for k in range(len(pads) // 2):
        before[-1 - k], after[-1 - k] = as_size(pads[2 * k]), as_size(pads[2 * k + 1])
    if not any(is_symbolic(n) or n for n in (*before, *after)):
        return x
    fill = 0 if value is None else value
    if x.dtype == "bool":
        return c.cast(
            c.op("pad", c.cast(x, "uint8"), before=tuple(before), after=tuple(after), mode=mode, value=int(bool(fill))),
            "bool",
        )
    return c.op("pad", x, before=tuple(before), after=tuple(after), mode=mode, value=fill)


# ---- a part in a whole


@aten_op("slice_scatter")
def slice_scatter(
    c: AtenCall, x: Value, part: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    axis = axis_of(dim, x.ndim)
    n, count = x.shape[axis], part.shape[axis]
    part = fitted(c, c.cast(part, x.dtype), [count if k == axis else size for k, size in enumerate(x.shape)])
    first, _ = slice_range(n, start, count)
    if count == n and step == 1:
        return part
    if step == 1:
        pieces = [c.slice(x, axis, 0, first)] if is_symbolic(first) or first else []
        pieces.append(part)
        behind = n - first - count
        if is_symbolic(behind) or behind:
            pieces.append(c.slice(x, axis, first + count, behind))
        return c.concat([p for p in pieces if p.shape[axis] != 0], axis)
    place = c.iota(count, first, step)
    shape = [1] * x.ndim
    shape[axis] = count
    return c.op(
        "scatter_elements", x, c.broadcast(c.reshape(place, shape), part.shape), part, axis=axis, reduction="none"
    )


@aten_op("select_scatter")
def select_scatter(c: AtenCall, x: Value, part: Value, dim: int, index: Any) -> Value:
    axis = axis_of(dim, x.ndim)
    index = index + x.shape[axis] if not is_symbolic(index) and index < 0 else index
    return slice_scatter(c, x, c.unsqueeze(part, axis), axis, index)


@aten_op("diagonal", "diagonal_copy")
def diagonal(c: AtenCall, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    flat, first, _ = _diagonals(c, x, offset, dim1, dim2)
    count = c.shape[-1]
    step = x.shape[axis_of(dim2, x.ndim)] + 1
    if is_symbolic([first, count, step]):
        return c.op("gather", flat, c.iota(count, first, step), axis=flat.ndim - 1)
    return c.slice(flat, -1, first if count else 0, count, step)


@aten_op("diagonal_scatter")
def diagonal_scatter(c: AtenCall, x: Value, part: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    flat, first, order = _diagonals(c, x, offset, dim1, dim2)
    if part.shape[-1] == 0:
        return x
    y = slice_scatter(c, flat, part, -1, first, None, x.shape[order[-1]] + 1)
    return c.transpose(c.reshape(y, [x.shape[k] for k in order]), [int(k) for k in np.argsort(order)])


def _diagonals(c: AtenCall, x: Value, offset: int, dim1: int, dim2: int) -> tuple[Value, Size, list[int]]:
    """x with the two dimensions as one behind the others; where in it a diagonal begins, a row and a place apart each; the order of the dimensions."""
    a, b = axis_of(dim1, x.ndim), axis_of(dim2, x.ndim)
    order = [*(k for k in range(x.ndim) if k not in (a, b)), a, b]
    y = c.transpose(x, order)
    rows, cols = y.shape[-2:]
    return c.reshape(y, (*y.shape[:-2], rows * cols)), offset if offset >= 0 else -offset * cols, order


@aten_op("unfold")
def unfold(c: AtenCall, x: Value, dim: int, size: int, step: int) -> Value:
    """Windows along a dimension, their elements in a last dimension."""
    if x.ndim == 0:  # a window of its one element, or of none
        return c.slice(c.reshape(x, (1,)), 0, 0, size)
    axis = axis_of(dim, x.ndim)
    count = c.shape[axis]
    index = c.op("add", c.unsqueeze(c.iota(count, 0, step), 1), c.unsqueeze(c.iota(size), 0))
    y = c.op("gather", x, index, axis=axis)
    perm = [k for k in range(y.ndim) if k != axis + 1]
    return c.transpose(y, (*perm, axis + 1))


@aten_op("collapse", space=torch.ops.prims)
def collapse(c: AtenCall, x: Value, first: int, last: int) -> Value:
    return c.reshape(x, c.shape)


@aten_op("pixel_shuffle")
def pixel_shuffle(c: AtenCall, x: Value, factor: int) -> Value:
    *lead, ch, h, w = x.shape
    n = len(lead)
    y = c.reshape(x, (*lead, ch // factor**2, factor, factor, h, w))
    return c.reshape(c.transpose(y, (*range(n), n, n + 3, n + 1, n + 4, n + 2)), c.shape)


@aten_op("pixel_unshuffle")
def pixel_unshuffle(c: AtenCall, x: Value, factor: int) -> Value:
    *lead, ch, h, w = x.shape
    n = len(lead)
    y = c.reshape(x, (*lead, ch, h // factor, factor, w // factor, factor))
    return c.reshape(c.transpose(y, (*range(n), n, n + 2, n + 4, n + 1, n + 3)), c.shape)


@aten_op("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(c: AtenCall, x: Value, groups: int) -> Value:
    n, ch, *space = x.shape
    y = c.reshape(x, (n, groups, ch // groups, *space))
    return c.reshape(c.transpose(y, (0, 2, 1, *range(3, y.ndim))), c.shape)


@aten_op("as_strided")
def as_strided(c: AtenCall, x: Value, size: Sequence[Size], stride: Sequence[Size], offset: Any = None) -> Value:
    """Elements by their places in the memory that x is a view of."""
    memory, first = _memory(c)
    place = _places(memory.type.size, size, stride, _offset(c, offset) - first)
    return c.op("gather", memory, c.const(place, "int64"), axis=0)


@aten_op("as_strided_scatter")
def as_strided_scatter(
    c: AtenCall, x: Value, part: Value, size: Sequence[Size], stride: Sequence[Size], offset: Any = None
) -> Value:
    """A tensor that lies in a row, with other elements at some places."""
    val = c.node.args[0].meta["val"]  # type: ignore[union-attr]
    if is_symbolic(x.shape) or not val.is_contiguous():
        raise _not_in_a_row("as_strided_scatter")
    place = _places(x.type.size, size, stride, _offset(c, offset) - val.storage_offset()).reshape(-1)
    if len(np.unique(place)) < place.size:
        raise ImportModelError(
            "as_strided_scatter to places that are one", hint="strides that give each element a place of its own"
        )
    if not place.size:
        return x
    flat, given = c.reshape(x, (x.type.size,)), c.reshape(part, (place.size,))
    made = c.op("scatter_elements", flat, c.const(place, "int64"), given, axis=0, reduction="none")
    return c.reshape(made, x.shape)


# Views by their schema that are copies where the elements lie in another order.
_MAY_COPY = frozenset({torch.ops.aten.contiguous, torch.ops.aten.reshape, torch.ops.aten.flatten, torch.ops.aten.to})


def _memory(c: AtenCall) -> tuple[Value, int]:
    """Whose memory the call's first argument lies in, as a row; the place of its first element, counted as the argument's storage offset is."""
    node: Any = c.node.args[0]
    while (
        getattr(node.target, "is_view", False)
        and node.target.overloadpacket not in _MAY_COPY
        and node.args[0].meta["val"].dtype == node.meta["val"].dtype
        and isinstance(c.earlier.get(node.args[0]), Value)
    ):
        node = node.args[0]
    val, whole = node.meta["val"], c.earlier[node]
    if is_symbolic(whole.shape):
        raise _not_in_a_row("as_strided")
    order = sorted(range(val.dim()), key=lambda k: -val.stride(k))
    if not val.permute(order).is_contiguous():
        raise _not_in_a_row("as_strided")
    return c.reshape(c.transpose(whole, order), (whole.type.size,)), val.storage_offset()


def _offset(c: AtenCall, offset: Any) -> int:
    return int(c.node.args[0].meta["val"].storage_offset() if offset is None else offset)  # type: ignore[union-attr]


def _not_in_a_row(call: str) -> ImportModelError:
    return ImportModelError(
        f"{call} of what is no dense tensor of known size",
        hint=f"x.contiguous() of numbers for sizes, or views (unfold, transpose, expand) in its place; {LEFT_TO_TORCH}",
    )


def _places(count: int, size: Sequence[Size], stride: Sequence[Size], offset: int) -> Any:
    """Where elements of such a view lie in a row of `count`."""
    if is_symbolic([*size, *stride]):
        raise _not_in_a_row("as_strided")
    place = np.full(tuple(size), offset)
    for k, (n, s) in enumerate(zip(size, stride)):
        place = place + (np.arange(n) * s).reshape([-1 if d == k else 1 for d in range(len(size))])
    if place.size and (place.min() < 0 or place.max() >= count):
        raise ImportModelError(
            "as_strided beyond its input", hint="sizes and strides whose elements lie in the tensor's memory"
        )
    return place
