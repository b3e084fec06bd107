"""Functions that make and change tiles. Names and arguments are Triton's.

Shapes are constants, and powers of two. A tile argument may be a Python number if the other operand decides its type.
Every function raises KernelError at the user's line for operands that do not fit.

In the examples `tl` is `tec.tile`. They run on any device, and with TEC_INTERPRET=1 on NumPy, without compilation.
"""

from __future__ import annotations

import builtins
from typing import Any

from . import grammar as G
from .builder import current, describe, float32, int32, int64, plain
from .examples import of_places, of_rows
from .grammar import TileType
from .values import sizes


def constant(v: Any, what: str) -> Any:
    """A value that must be known when the kernel is compiled."""
    v = plain(v)
    if isinstance(v, G.Value):
        of = v.of
        if of is not None and of.name == "const":
            return of.attrs["value"]
        raise current().error(f"{what} is known at run time alone", hint="make it a tl.constexpr")
    return v


def _shape(shape: Any) -> tuple[int, ...]:
    return sizes((shape,)) if hasattr(plain(shape), "__iter__") or hasattr(plain(shape), "__index__") else sizes(shape)


# ---- the launch and new tiles


def program_id(axis: Any) -> Any:
    """The index of the program along `axis` (0, 1 or 2) of the grid, a scalar int32.

    >>> @tl.jit
    ... def show(out):
    ...     i = tl.program_id(0)
    ...     tl.store(out + i, 10 * i)
    >>> out = np.zeros(3, "int32")
    >>> show[(3,)](out)
    >>> out
    array([ 0, 10, 20], dtype=int32)
    """
    k = constant(axis, "the axis of tl.program_id")
    if k not in (0, 1, 2):
        raise current().error(f"tl.program_id({k})", hint="a grid has the axes 0, 1 and 2")
    return current().value("program_id", (), TileType((), int32), axis=k)


def num_programs(axis: Any) -> Any:
    """The number of programs of the grid along `axis`, a scalar int32.

    >>> @tl.jit
    ... def show(out):
    ...     tl.store(out + tl.program_id(0), tl.num_programs(0))
    >>> out = np.zeros(3, "int32")
    >>> show[(3,)](out)
    >>> out
    array([3, 3, 3], dtype=int32)
    """
    k = constant(axis, "the axis of tl.num_programs")
    if k not in (0, 1, 2):
        raise current().error(f"tl.num_programs({k})", hint="a grid has the axes 0, 1 and 2")
    return current().value("num_programs", (), TileType((), int32), axis=k)


@of_places("tl.arange(4, 8)", "4, 5, 6, 7", count=4)
def arange(start: Any, end: Any) -> Any:
    """start, start + 1, ..., end - 1: a tile [end - start] of int32. Its length is a power of two."""
    b = current()
    low, high = constant(start, "the start of tl.arange"), constant(end, "the end of tl.arange")
    if not isinstance(low, int) or not isinstance(high, int):
        raise b.error(
            f"tl.arange({describe(low)}, {describe(high)})", hint="its bounds are whole numbers: tl.constexpr"
        )
    if high <= low:
        raise b.error(
            f"tl.arange({low}, {high}): arange's end argument must be greater than the start argument",
            hint="tl.arange(start, end) with start below end",
        )
    if (high - low) & (high - low - 1):
        raise b.error(
            f"tl.arange({low}, {high}): arange's range must be a power of 2, and {high - low} is none",
            hint=f"tl.arange({low}, {low + (1 << (high - low).bit_length())}) and a mask",
        )
    b.sized((high - low,))
    return b.value("arange", (), TileType((high - low,), int32), start=low)


def full(shape: Any, value: Any, dtype: Any = None) -> Any:
    """A tile of `shape` with `value` in every element.

    >>> @tl.jit
    ... def show(out):
    ...     tl.store(out + tl.arange(0, 4), tl.full((4,), 7, tl.int32))
    >>> out = np.zeros(4, "int32")
    >>> show[(1,)](out)
    >>> out
    array([7, 7, 7, 7], dtype=int32)
    """
    b, shape, value = current(), _shape(shape), plain(value)
    dt = plain(dtype)
    if dt is None:
        if not isinstance(value, G.Value):
            raise b.error("tl.full of a number without a dtype", hint="tl.full(shape, value, tl.float32)")
        dt = value.ty.dtype
    if isinstance(value, G.Value):
        if value.ty.size != 1:
            raise b.error(f"tl.full of a tile {value.ty}", hint="its value is a scalar")
        made = b.cast(b.options["item"](value), dt)
    elif dt.is_fp8() or dt.tec == "bfloat16":
        made = b.cast(b.const(float(value), float32), dt)
    else:
        made = (
            b.const(float(value) if dt.is_floating() else value, dt)
            if not dt.is_ptr()
            else b.cast(b.const(value, int64), dt)
        )
    return b.broadcast_to(made, shape)


def zeros(shape: Any, dtype: Any) -> Any:
    """A tile of zeros.

    >>> @tl.jit
    ... def show(out):
    ...     tl.store(out + tl.arange(0, 4), tl.zeros((4,), tl.int32))
    >>> out = np.ones(4, "int32")
    >>> show[(1,)](out)
    >>> out
    array([0, 0, 0, 0], dtype=int32)
    """
    return full(shape, 0, dtype)


@of_places("tl.zeros_like(i)", "0, 0, 0, 0", count=4)
def zeros_like(input: Any) -> Any:
    """A tile of zeros with the shape and dtype of another tile."""
    return full(input.ty.shape, 0, input.ty.dtype)


def to_tensor(x: Any) -> Any:
    """A Python number as a scalar; a tile as it is.

    >>> @tl.jit
    ... def show(out):
    ...     tl.store(out, tl.to_tensor(3).to(tl.float32))
    >>> out = np.zeros(1, "float32")
    >>> show[(1,)](out)
    >>> out
    array([3.], dtype=float32)
    """
    return current().of_number(x)


# ---- shapes


@of_rows("tl.broadcast_to(i, 2, 4)", "0, 1, 2, 3", "0, 1, 2, 3")
def broadcast_to(input: Any, *shape: Any) -> Any:
    """The tile broadcast to a shape: dimensions of 1 repeat."""
    return current().broadcast_to(input, sizes(shape))


def broadcast(input: Any, other: Any) -> Any:
    """Both tiles, broadcast to one shape.

    >>> @tl.jit
    ... def show(out):
    ...     rows, columns = tl.broadcast(tl.arange(0, 2)[:, None], tl.arange(0, 4)[None, :])
    ...     tl.store(out + 4 * rows + columns, 10 * rows + columns)
    >>> out = np.zeros((2, 4), "int32")
    >>> show[(1,)](out)
    >>> out
    array([[ 0,  1,  2,  3],
           [10, 11, 12, 13]], dtype=int32)
    """
    return current().same_shape(current().of_number(input), current().of_number(other))


@of_rows("tl.expand_dims(tl.arange(0, 2), 1) + tl.expand_dims(i, 0)", "0, 1, 2, 3", "1, 2, 3, 4")
def expand_dims(input: Any, axis: Any) -> Any:
    """New dimensions of 1 at `axis`, a number or several numbers."""
    b, v = current(), current().of_number(input)
    axis = plain(axis)
    axes = [plain(a) for a in axis] if isinstance(axis, (tuple, list)) else [axis]
    rank = len(v.ty.shape) + len(axes)
    if any(not isinstance(a, int) or not -rank <= a < rank for a in axes) or len({a % rank for a in axes}) < len(axes):
        raise b.error(f"tl.expand_dims of a tile {v.ty} at {axis}", hint="axes run from 0 to the number of dimensions")
    for a in sorted(a % rank for a in axes):
        v = b.expand_dims(v, a)
    return v


@of_rows("tl.unsqueeze(tl.arange(0, 2), 1) + tl.unsqueeze(i, 0)", "0, 1, 2, 3", "1, 2, 3, 4")
def unsqueeze(input: Any, dim: Any) -> Any:
    """A new dimension of 1 at `dim`."""
    return expand_dims(input, dim)


@of_places("tl.squeeze(i[None, :], 0)", "0, 1, 2, 3", count=4)
def squeeze(input: Any, dim: Any) -> Any:
    """Without its dimension `dim`, which is 1. Raises KernelError where it is not."""
    b, v, dim = current(), current().of_number(input), plain(dim)
    shape = v.ty.shape
    if not isinstance(dim, int) or not -len(shape) <= dim < len(shape) or shape[dim] != 1:
        raise b.error(f"tl.squeeze of a tile {v.ty} at {dim}", hint="the dimension's size is 1")
    at = dim % len(shape)
    return b.reshape(v, (*shape[:at], *shape[at + 1 :]))


@of_rows("tl.reshape(tl.arange(0, 8), 2, 4)", "0, 1, 2, 3", "4, 5, 6, 7")
def reshape(input: Any, *shape: Any, can_reorder: Any = False) -> Any:
    """The same elements in row-major order under another shape."""
    return current().reshape(current().of_number(input), sizes(shape))


view = reshape


def ravel(x: Any, can_reorder: Any = False) -> Any:
    """All elements along one dimension.

    >>> @tl.jit
    ... def show(out):
    ...     x = 4 * tl.arange(0, 2)[:, None] + tl.arange(0, 4)[None, :]
    ...     tl.store(out + tl.arange(0, 8), tl.ravel(x))
    >>> out = np.zeros(8, "int32")
    >>> show[(1,)](out)
    >>> out
    array([0, 1, 2, 3, 4, 5, 6, 7], dtype=int32)
    """
    return current().reshape(x, (x.ty.size,))


@of_rows("tl.permute(tl.reshape(tl.arange(0, 8), 4, 2), 1, 0)", "0, 2, 4, 6", "1, 3, 5, 7")
def permute(input: Any, *dims: Any) -> Any:
    """The dimensions in another order."""
    return current().permute(input, sizes(dims))


@of_rows("tl.trans(tl.reshape(tl.arange(0, 8), 4, 2))", "0, 2, 4, 6", "1, 3, 5, 7")
def trans(input: Any, *dims: Any) -> Any:
    """The last two dimensions swapped, or all in the order `dims`."""
    rank = len(input.ty.shape)
    if dims:
        return current().permute(input, sizes(dims))
    if rank < 2:
        raise current().error(f"tl.trans of a tile {input.ty}", hint="it takes two dimensions or more")
    return current().permute(input, (*builtins.range(rank - 2), rank - 1, rank - 2))


def join(a: Any, b: Any) -> Any:
    """Two tiles of one shape, joined along a new last dimension of 2.

    >>> @tl.jit
    ... def show(out):
    ...     i = tl.arange(0, 4)
    ...     at = 2 * i[:, None] + tl.arange(0, 2)[None, :]
    ...     tl.store(out + at, tl.join(i, 10 * i))
    >>> out = np.zeros((4, 2), "int32")
    >>> show[(1,)](out)
    >>> out
    array([[ 0,  0],
           [ 1, 10],
           [ 2, 20],
           [ 3, 30]], dtype=int32)
    """
    x, y = current().pair(a, b)
    return current().value("join", (x, y), TileType((*x.ty.shape, 2), x.ty.dtype))


def split(a: Any) -> tuple[Any, Any]:
    """The two halves of a tile whose last dimension is 2.

    >>> @tl.jit
    ... def show(out):
    ...     i = tl.arange(0, 4)
    ...     even, odd = tl.split(tl.reshape(tl.arange(0, 8), 4, 2))
    ...     tl.store(out + i, even)
    ...     tl.store(out + 4 + i, odd)
    >>> out = np.zeros(8, "int32")
    >>> show[(1,)](out)
    >>> out
    array([0, 2, 4, 6, 1, 3, 5, 7], dtype=int32)
    """
    if not a.ty.shape or a.ty.shape[-1] != 2:
        raise current().error(f"tl.split of a tile {a.ty}", hint="its last dimension is 2: tl.reshape, tl.permute")
    t = TileType(a.ty.shape[:-1], a.ty.dtype)
    return (
        current().value("split", (a,), t, half=0),
        current().value("split", (a,), t, half=1),
    )


def interleave(a: Any, b: Any) -> Any:
    """The elements of both tiles alternately along the last dimension.

    >>> @tl.jit
    ... def show(out):
    ...     i = tl.arange(0, 4)
    ...     tl.store(out + tl.arange(0, 8), tl.interleave(i, -i))
    >>> out = np.zeros(8, "int32")
    >>> show[(1,)](out)
    >>> out
    array([ 0,  0,  1, -1,  2, -2,  3, -3], dtype=int32)
    """
    c = join(a, b)
    shape = c.ty.shape
    return c if len(shape) == 1 else current().reshape(c, (*shape[:-2], 2 * shape[-2]))


def cat(input: Any, other: Any, can_reorder: Any = False, dim: Any = 0) -> Any:
    """One tile behind the other along the dimension `dim`.

    >>> @tl.jit
    ... def show(out):
    ...     i = tl.arange(0, 4)
    ...     tl.store(out + tl.arange(0, 8), tl.cat(i, 10 + i))
    >>> out = np.zeros(8, "int32")
    >>> show[(1,)](out)
    >>> out
    array([ 0,  1,  2,  3, 10, 11, 12, 13], dtype=int32)
    """
    a, b = current().pair(input, other)
    rank, at = len(a.ty.shape), plain(dim)
    if not isinstance(at, int) or not -rank <= at < rank:
        raise current().error(f"tl.cat of tiles {a.ty} along {at}", hint="a dimension of the tiles")
    at %= rank
    # What tells the two apart comes before the dimension.
    order = (*builtins.range(at), rank, *builtins.range(at, rank))
    joined = current().permute(join(a, b), order)
    return current().reshape(joined, (*a.ty.shape[:at], 2 * a.ty.shape[at], *a.ty.shape[at + 1 :]))


@of_places("tl.where(i < 3, i, -1)", " 0,  1,  2, -1, -1, -1, -1, -1")
def where(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition holds, and y elsewhere. Both are evaluated."""
    return current().select(condition, x, y)


@of_places("tl.cast(i / 2, tl.int32)", "0, 0, 1, 1, 2, 2, 3, 3")
def cast(input: Any, dtype: Any, fp_downcast_rounding: Any = None, bitcast: Any = False) -> Any:
    """The tile converted to a dtype. bitcast: reinterpret the bits instead."""
    return current().cast(input, dtype, bitcast, fp_downcast_rounding)
