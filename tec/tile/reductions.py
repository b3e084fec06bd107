"""Functions over an axis: reductions with any combiner, scans, sorts, gathers, histograms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import grammar as G
from .arithmetic import exp
from .builder import current, float32, int32, plain, uint32
from .examples import of_four, of_places
from .grammar import Block, TileType
from .words import arange


def _combiner(types: Sequence[G.dtype], combine: Any) -> Block:
    """A block that makes one of two: arguments are those of the left, then of the right."""
    b = current()
    with b.block([TileType((), t) for t in (*types, *types)]) as block:
        made = b.options["call"](combine, list(block.args))
        made = list(made) if isinstance(made, (tuple, list)) else [made]
        if len(made) != len(types):
            raise b.error(
                f"a combiner of {len(types)} values gives {len(made)}",
                hint="it returns a value for each of the tiles: def f(a1, b1, a2, b2): return a, b",
            )
        block.yields = [b.cast(v, t) for v, t in zip(made, types)]
    return block


def _named(fn: str, t: G.dtype) -> Block:
    b = current()
    with b.block([TileType((), t)] * 2) as block:
        x, y = block.args
        block.yields = [b.arithmetic(fn, x, y) if fn in ("add", "mul", "min", "max") else b.bits(fn, x, y)]
    return block


def fold(x: Any, axis: Any, fn: str, keep_dims: Any = False) -> Any:
    """A reduction by a named operation: add, mul, min, max, and, or, xor."""
    return _reduced([x], axis, lambda: _named(fn, x.ty.dtype), keep_dims, fn)[0]


def _reduced(tiles: list[Any], axis: Any, combiner: Any, keep_dims: Any, fn: str = "") -> list[Any]:
    b, rank = current(), len(tiles[0].ty.shape)
    if not rank:
        return tiles
    if plain(axis) is None:
        tiles = [b.reshape(x, (x.ty.size,)) for x in tiles]
        made = _reduced(tiles, 0, combiner, False, fn)
        return [b.broadcast_to(m, (1,) * rank) for m in made] if plain(keep_dims) else made
    k = b.axis(tiles[0], axis, "a reduction")
    shape = tiles[0].ty.shape
    out = shape[:k] + shape[k + 1 :]
    op = b.op("reduce", tiles, [TileType(out, x.ty.dtype) for x in tiles], [combiner()], axis=k, fn=fn)
    made = list(op.results)
    return [b.expand_dims(m, k) for m in made] if plain(keep_dims) else made


def reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False, reduction_ordering: Any = None) -> Any:
    """All elements along `axis` (None for all) combined by `combine_fn(a, b)`. A tuple of tiles takes a function of
    twice as many arguments.

    >>> @tl.jit
    ... def longest(x, y):
    ...     return tl.where(x > y, x, y)
    >>> @tl.jit
    ... def show(a, out):
    ...     tl.store(out, tl.reduce(tl.load(a + tl.arange(0, 4)), 0, longest))
    >>> a, out = np.int32([3, 1, 4, 2]), np.zeros(1, "int32")
    >>> show[(1,)](a, out)
    >>> out
    array([4], dtype=int32)
    """
    b = current()
    several = isinstance(input, (tuple, list))
    tiles = list(b.same_shape(*input)) if several else [input]
    made = _reduced(tiles, axis, lambda: _combiner([x.ty.dtype for x in tiles], combine_fn), keep_dims)
    return tuple(made) if several else made[0]


def _summed(x: Any, dtype: Any) -> Any:
    b, dt = current(), plain(dtype)
    if dt is None and x.ty.dtype.is_int() and x.ty.dtype.primitive_bitwidth < 32:
        dt = int32 if x.ty.dtype.is_int_signed() else uint32
    return x if dt is None else b.cast(x, dt)


@of_four("tl.sum(x, 0)", "9", is_one=True)
def sum(input: Any, axis: Any = None, keep_dims: Any = False, dtype: Any = None) -> Any:
    """The sum along `axis`; integers below 32 bits are summed in 32."""
    return fold(_summed(input, dtype), axis, "add", keep_dims)


def _wide(x: Any) -> Any:
    return current().cast(x, float32) if x.ty.dtype.tec == "bfloat16" else x


def _extremum(x: Any, axis: Any, fn: str, indices: Any, left: Any, keep_dims: Any) -> Any:
    b, x = current(), _wide(x)
    if plain(indices):
        return _with_index(x, axis, fn, plain(left), keep_dims)
    if x.ty.dtype.primitive_bitwidth < 32:
        x = b.cast(x, float32 if x.ty.dtype.is_floating() else int32)
    return fold(x, axis, fn, keep_dims)


def _with_index(x: Any, axis: Any, fn: str, left: bool, keep_dims: Any) -> tuple[Any, Any]:
    """(extremum, its index) along an axis. left: of equal ones the first."""
    b = current()
    if plain(axis) is None:
        rank = len(x.ty.shape)
        v, i = _with_index(b.reshape(x, (x.ty.size,)), 0, fn, left, False)
        if plain(keep_dims):
            v, i = (b.broadcast_to(t, (1,) * rank) for t in (v, i))
        return v, i
    k = b.axis(x, axis, "an index of an extremum")
    index = arange(0, x.ty.shape[k])
    for d in range(len(x.ty.shape)):
        if d != k:
            index = b.expand_dims(index, d)
    index = b.broadcast_to(index, x.ty.shape)

    def combiner() -> Block:
        with b.block([TileType((), x.ty.dtype), TileType((), int32)] * 2) as block:
            v, i, w, j = block.args
            better = b.compare("gt" if fn == "max" else "lt", v, w)
            if left:
                better = b.logical("or", better, b.logical("and", b.compare("eq", v, w), b.compare("lt", i, j)))
            block.yields = [b.select(better, v, w), b.select(better, i, j)]
        return block

    v, i = _reduced([x, index], k, combiner, keep_dims)
    return v, i


@of_four("tl.max(x, 0)", "3", is_one=True)
def max(
    input: Any,
    axis: Any = None,
    return_indices: Any = False,
    return_indices_tie_break_left: Any = True,
    keep_dims: Any = False,
) -> Any:
    """The largest element along `axis`. return_indices: also its index, of equal ones the first."""
    return _extremum(input, axis, "max", return_indices, return_indices_tie_break_left, keep_dims)


@of_four("tl.min(x, 0)", "1", is_one=True)
def min(
    input: Any,
    axis: Any = None,
    return_indices: Any = False,
    return_indices_tie_break_left: Any = True,
    keep_dims: Any = False,
) -> Any:
    """The smallest element along `axis`. return_indices: also its index, of equal ones the first."""
    return _extremum(input, axis, "min", return_indices, return_indices_tie_break_left, keep_dims)


@of_four("tl.argmax(x, 0)", "0", is_one=True)
def argmax(input: Any, axis: Any, tie_break_left: Any = True, keep_dims: Any = False) -> Any:
    """The index of the largest element along `axis`."""
    return _with_index(_wide(input), axis, "max", plain(tie_break_left), keep_dims)[1]


@of_four("tl.argmin(x, 0)", "1", is_one=True)
def argmin(input: Any, axis: Any, tie_break_left: Any = True, keep_dims: Any = False) -> Any:
    """The index of the smallest element along `axis`."""
    return _with_index(_wide(input), axis, "min", plain(tie_break_left), keep_dims)[1]


@of_four("tl.xor_sum(x, 0)", "3", is_one=True)
def xor_sum(input: Any, axis: Any = None, keep_dims: Any = False) -> Any:
    """The exclusive or of all elements along `axis`."""
    if not input.ty.dtype.is_int():
        raise current().error("xor_sum only supported for integers", hint="x.to(tl.int32)")
    return fold(input, axis, "xor", keep_dims)


@of_four("tl.reduce_or(x, 0)", "3", is_one=True)
def reduce_or(input: Any, axis: Any, keep_dims: Any = False) -> Any:
    """The or of all elements along `axis`."""
    if not input.ty.dtype.is_int():
        raise current().error("reduce_or only supported for integers", hint="x.to(tl.int32)")
    return fold(input, axis, "or", keep_dims)


# ---- scans


def _scanned(tiles: list[Any], axis: Any, combiner: Any, reverse: Any, fn: str = "") -> list[Any]:
    k = current().axis(tiles[0], axis, "a scan")
    op = current().op("scan", tiles, [x.ty for x in tiles], [combiner()], axis=k, reverse=bool(plain(reverse)), fn=fn)
    return list(op.results)


def associative_scan(input: Any, axis: Any, combine_fn: Any, reverse: Any = False) -> Any:
    """Each element combined with all before it along `axis` by an associative function. reverse: with all behind it.

    >>> @tl.jit
    ... def larger(x, y):
    ...     return tl.maximum(x, y)
    >>> @tl.jit
    ... def show(a, out):
    ...     i = tl.arange(0, 4)
    ...     tl.store(out + i, tl.associative_scan(tl.load(a + i), 0, larger))
    >>> a, out = np.int32([2, 1, 4, 3]), np.zeros(4, "int32")
    >>> show[(1,)](a, out)
    >>> out
    array([2, 2, 4, 4], dtype=int32)
    """
    several = isinstance(input, (tuple, list))
    tiles = list(current().same_shape(*input)) if several else [input]
    made = _scanned(tiles, axis, lambda: _combiner([x.ty.dtype for x in tiles], combine_fn), reverse)
    return tuple(made) if several else made[0]


@of_four("tl.cumsum(x, 0)", "3, 4, 6, 9")
def cumsum(input: Any, axis: Any = 0, reverse: Any = False, dtype: Any = None) -> Any:
    """The sums of all elements up to each element along `axis`."""
    x = _summed(_wide(input), dtype)
    return _scanned([x], axis, lambda: _named("add", x.ty.dtype), reverse, "add")[0]


@of_four("tl.cumprod(x, 0)", " 3,  3,  6, 18")
def cumprod(input: Any, axis: Any = 0, reverse: Any = False) -> Any:
    """The products of all elements up to each element along `axis`."""
    x = _wide(input)
    return _scanned([x], axis, lambda: _named("mul", x.ty.dtype), reverse, "mul")[0]


# ---- order and places


@of_four("tl.sort(x)", "1, 2, 3, 3")
def sort(x: Any, dim: Any = None, descending: Any = False) -> Any:
    """Sorted along the last dimension."""
    b = current()
    k = b.axis(x, -1 if plain(dim) is None else dim, "a sort")
    if k != len(x.ty.shape) - 1:
        raise b.error("only minor dimension is currently supported", hint="tl.permute brings the dimension to the end")
    return b.value("sort", (x,), x.ty, descending=bool(plain(descending)))


def bitonic_merge(x: Any, dim: Any = None, descending: Any = False) -> Any:
    """Sorted along the last dimension, of elements that rise and then fall, or fall and then rise.

    >>> @tl.jit
    ... def show(a, out):
    ...     i = tl.arange(0, 4)
    ...     x = tl.load(a + i)
    ...     tl.store(out + i, tl.bitonic_merge(x))
    >>> a, out = np.int32([1, 3, 4, 2]), np.zeros(4, "int32")
    >>> show[(1,)](a, out)
    >>> out
    array([1, 2, 3, 4], dtype=int32)
    """
    return sort(x, dim, descending)


def topk(x: Any, k: Any, dim: Any = None, descending: Any = True) -> Any:
    """The k largest elements along the last dimension, the largest first; not descending: the k smallest, the smallest first.

    >>> @tl.jit
    ... def show(a, out):
    ...     i = tl.arange(0, 4)
    ...     x = tl.load(a + i)
    ...     tl.store(out + tl.arange(0, 2), tl.topk(x, 2))
    >>> a, out = np.int32([1, 3, 4, 2]), np.zeros(2, "int32")
    >>> show[(1,)](a, out)
    >>> out
    array([4, 3], dtype=int32)
    """
    n, want = x.ty.shape[-1], plain(k)
    ordered = sort(x, dim, descending)
    if want == n:
        return ordered
    index = arange(0, want)
    for d in range(len(x.ty.shape) - 1):
        index = current().expand_dims(index, d)
    return gather(ordered, current().broadcast_to(index, (*x.ty.shape[:-1], want)), len(x.ty.shape) - 1)


@of_four("tl.flip(x)", "3, 2, 1, 3")
def flip(x: Any, dim: Any = None) -> Any:
    """The elements in reverse order along a dimension, by default the last."""
    b = current()
    k = b.axis(x, -1 if plain(dim) is None else dim, "tl.flip")
    index = (x.ty.shape[k] - 1) - arange(0, x.ty.shape[k])
    for d in range(len(x.ty.shape)):
        if d != k:
            index = b.expand_dims(index, d)
    return gather(x, b.broadcast_to(index, x.ty.shape), k)


@of_four("tl.gather(x, 3 - i, 0)", "3, 2, 1, 3")
def gather(src: Any, index: Any, axis: Any) -> Any:
    """src[..., index, ...] along `axis`. The other dimensions of both agree."""
    b = current()
    k = b.axis(src, axis, "tl.gather")
    if not index.ty.dtype.is_int():
        raise b.error("index must be an integer tensor", hint="index.to(tl.int32)")
    if len(index.ty.shape) != len(src.ty.shape):
        raise b.error("source and index tensors must have the same rank", hint="add dimensions of 1: index[:, None]")
    if any(d != k and index.ty.shape[d] != n for d, n in enumerate(src.ty.shape)):
        raise b.error(
            f"index dim {axis} must match the corresponding source dim",
            hint="all dimensions but the gathered axis are equal: tl.broadcast_to(index, shape)",
        )
    return b.value("gather", (src, index), TileType(index.ty.shape, src.ty.dtype), axis=k)


@of_four("tl.histogram(x, 4)", "0, 1, 1, 2")
def histogram(input: Any, num_bins: Any, mask: Any = None) -> Any:
    """The number of occurrences of 0, 1, ..., num_bins - 1 in a tile of one dimension, [num_bins] of int32."""
    b, n = current(), plain(num_bins)
    if len(input.ty.shape) != 1 or not input.ty.dtype.is_int():
        raise b.error(
            f"histogram only supports 1D integer input, and this is {input.ty}",
            hint="tl.histogram(x.to(tl.int32).ravel(), bins)",
        )
    b.sized((n,))
    operands = [input] if plain(mask) is None else [input, b.broadcast_to(b.truth(mask), input.ty.shape)]
    return b.value("histogram", operands, TileType((n,), int32))


# ---- what reductions make


@of_four("tl.item(tl.sum(x, 0, keep_dims=True))", "9", is_one=True)
def item(x: Any) -> Any:
    """The one element of a tile of one element, as a scalar."""
    if not x.ty.shape:
        return x
    x = current().reshape(x, (1,))
    return fold(x, 0, "add")


@of_places("tl.softmax(i.to(tl.float32))", "0.2689, 0.7311", count=2, dtype="float32", decimals=4)
def softmax(x: Any, dim: Any = None, keep_dims: Any = False, ieee_rounding: Any = False) -> Any:
    """exp(x - max) / sum along `dim`, by default the first."""
    axis = 0 if plain(dim) is None else dim
    e = exp(x - max(x, axis, keep_dims=True))
    return e / sum(e, axis, keep_dims=True)
