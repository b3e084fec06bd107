"""Moving elements: reshape, transpose, slice, concat, pad, tile, gather, one-hot, iota."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import te
from ..errors import ImportModelError
from ..te import Tensor
from .dims import Dim, Size, UndecidedSize, bind_hint, is_symbolic, is_zero, names_of, require
from .registry import (
    FOLLOWS_16,
    INDEXED,
    INJECTIVE,
    VIEW,
    Attrs,
    TensorType,
    UnequalSizes,
    fail,
    normalize_axis,
    number,
    register,
    static_shape,
)

# ---- reshape and transpose


def _reshape_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    shape = tuple(attrs["shape"])
    if math.prod(shape) != types[0].size:
        gap = math.prod(shape) - types[0].size
        what = f"{types[0]} takes the shape {shape}"
        if isinstance(gap, Dim) and gap.has_quotients and require(gap, "<=", 0, what) and require(0, "<=", gap, what):
            return [TensorType(types[0].dtype, shape)]  # it divides back, or a run says that it does not
        if is_symbolic([gap]):
            raise UndecidedSize(
                f"whether {types[0]} has as many elements as the shape {shape} is not known while sizes are symbolic",
                hint=f"bind {' or '.join(sorted(names_of([shape, types[0].shape])))} to a number: shapes={{name: size}}",
            )
        raise fail(
            f"{types[0]} has {types[0].size} elements, shape {shape} has {math.prod(shape)}",
            hint="the sizes of a shape multiply to the number of elements; one of them may be -1",
        )
    return [TensorType(types[0].dtype, shape)]


def reshape_index(old: Sequence[int], new: Sequence[int], index: Sequence[Any]) -> list[Any]:
    """The index into shape `old` of the element at `index` of shape `new`.

    Runs of dimensions with equal products are mapped on their own, so that untouched dimensions keep their variable.
    """
    out: list[Any] = []
    i = j = 0
    cuts = _cuts(old, new) if is_symbolic([*old, *new]) else None
    while i < len(old) or j < len(new):
        i0, j0 = i, j
        if cuts is not None:
            i, j = next(cut for cut in cuts if cut > (i, j) and cut[1] >= j)
        else:
            a = old[i] if i < len(old) else 1
            b = new[j] if j < len(new) else 1
            i, j = min(i + 1, len(old)), min(j + 1, len(new))
            while a != b:
                if a < b and i < len(old):
                    a, i = a * old[i], i + 1
                elif j < len(new):
                    b, j = b * new[j], j + 1
                else:
                    a, i = a * old[i], i + 1
        flat: Any = 0
        for k in range(j0, j):
            flat = flat * new[k] + index[k] if new[k] != 1 else flat
        group: list[Any] = []
        real = [k for k in range(i0, i) if old[k] != 1]
        for k in reversed(range(i0, i)):
            if old[k] == 1:
                group.append(0)
            elif real and k == real[0]:
                group.append(flat)
            else:
                group.append(te.indexmod(flat, old[k]) if not isinstance(flat, int) else 0)
                flat = te.indexdiv(flat, old[k]) if not isinstance(flat, int) else 0
        out.extend(reversed(group))
    return out


def _cuts(old: Sequence[Size], new: Sequence[Size]) -> list[tuple[int, int]]:
    """Where the leading dimensions of both shapes have equal products, in order."""
    first = [math.prod(old[:i]) for i in range(len(old) + 1)]
    second = [math.prod(new[:j]) for j in range(len(new) + 1)]
    found = [(i, j) for i, a in enumerate(first) for j, b in enumerate(second) if a == b]
    end = (len(old), len(new))  # the products of all are equal, by their form or by a condition
    return found if end in found else [*found, end]


@register("reshape", INJECTIVE, _reshape_type, traits=[VIEW, FOLLOWS_16], takes=1)
def _reshape(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """`shape`: the new shape, of as many elements; row-major order is kept."""
    x = inputs[0]
    old, new = static_shape(x), outputs[0].shape
    if 0 in new:
        return [te.compute(new, lambda *i: te.const(0, x.dtype), name="reshape")]
    return [te.compute(new, lambda *i: x(*reshape_index(old, new, i)), name="reshape")]


def _transpose_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    perm = attrs["perm"]
    if sorted(perm) != list(range(types[0].ndim)):
        raise fail(
            f"perm {tuple(perm)} does not permute the dimensions of {types[0]}",
            hint=f"each number from 0 to {types[0].ndim - 1} once",
        )
    return [TensorType(types[0].dtype, tuple(types[0].shape[p] for p in perm))]


@register("transpose", INJECTIVE, _transpose_type, traits=[FOLLOWS_16], takes=1)
def _transpose(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """`perm`: output dimension k is input dimension perm[k]."""
    x, perm = inputs[0], attrs["perm"]

    def body(*i: Any) -> Any:
        index = [None] * len(perm)
        for k, p in enumerate(perm):
            index[p] = i[k]
        return x(*index)

    return [te.compute(outputs[0].shape, body, name="transpose")]


# ---- slice, concat, pad, tile


def _slice_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    starts, steps, sizes = attrs["starts"], attrs["steps"], attrs["sizes"]
    for k, (n, b, s, c) in enumerate(zip(types[0].shape, starts, steps, sizes)):
        if s and is_zero(c):
            continue
        if is_symbolic([n, b, c]):
            what = f"slice of dimension {k} of {types[0]}"
            last = b + (c - 1) * s
            if s == 0 or not all(
                require(low, relation, high, what)
                for low, relation, high in ((0, "<=", c), (0, "<=", b), (0, "<=", last), (b, "<", n), (last, "<", n))
            ):
                raise fail(f"{what}: start {b}, step {s}, {c} elements")
            continue
        if s == 0 or c < 0 or (c and not (0 <= b < n and 0 <= b + (c - 1) * s < n)):
            raise fail(f"slice of dimension {k} of {types[0]}: start {b}, step {s}, {c} elements")
    return [TensorType(types[0].dtype, tuple(sizes))]


@register("slice", INJECTIVE, _slice_type, traits=[FOLLOWS_16], takes=1)
def _slice(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """`starts`, `steps`, `sizes`, one a dimension, resolved to the tensor's shape: element k is start + k * step."""
    x, starts, steps = inputs[0], attrs["starts"], attrs["steps"]
    if is_zero(outputs[0].size):
        return [te.compute(outputs[0].shape, lambda *i: te.const(0, x.dtype), name="slice")]
    return [te.compute(outputs[0].shape, lambda *i: x(*[b + k * s for k, b, s in zip(i, starts, steps)]), name="slice")]


def _no_concat(types: Sequence[TensorType], axis: int) -> ImportModelError:
    first, what = types[0], f"concat along axis {axis} of {', '.join(map(str, types))}"
    if any(t.dtype != first.dtype or t.ndim != first.ndim for t in types):
        return fail(what, hint="cast or reshape the inputs: one type, and equal sizes but along the axis")
    apart = [(a, b) for t in types for k, (a, b) in enumerate(zip(t.shape, first.shape)) if k != axis and a != b]
    if not all(is_symbolic(pair) for pair in apart):
        return fail(what, hint="cast or reshape the inputs: one type, and equal sizes but along the axis")
    return UnequalSizes(
        f"{what}: whether they fit is not known while sizes are symbolic", apart, hint=bind_hint(*apart)
    )


def _concat_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    first = types[0]
    axis = normalize_axis(attrs["axis"], first.ndim)
    for t in types[1:]:
        same = t.ndim == first.ndim and all(a == b for k, (a, b) in enumerate(zip(t.shape, first.shape)) if k != axis)
        if t.dtype != first.dtype or not same:
            raise _no_concat(types, axis)
    shape = list(first.shape)
    shape[axis] = sum(t.shape[axis] for t in types)
    return [TensorType(first.dtype, tuple(shape))]


@register("concat", INJECTIVE, _concat_type, traits=[FOLLOWS_16])
def _concat(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """`axis`: the inputs one after another along it."""
    axis = normalize_axis(attrs["axis"], outputs[0].ndim)
    parts, begin = [], 0
    for t in inputs:
        n = static_shape(t)[axis]
        if not isinstance(n, int) or n:  # a size that is open may be 0: then nothing is read of its part
            parts.append((begin, t))
            begin += n

    def body(*i: Any) -> Any:
        def read(begin: int, t: Tensor) -> Any:
            return t(*i[:axis], i[axis] - begin, *i[axis + 1 :])

        if not parts:
            return te.const(0, outputs[0].dtype)

        def choose(some: list[tuple[int, Tensor]]) -> Any:
            # Halves, so that a choice among the steps of a long sequence is a few questions deep.
            if len(some) == 1:
                return read(*some[0])
            half = len(some) // 2
            return te.if_then_else(i[axis] < some[half][0], choose(some[:half]), choose(some[half:]))

        return choose(parts)

    return [te.compute(outputs[0].shape, body, name="concat")]


def _append_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    if len(types) > 2 and (types[2].dtype, types[2].shape) != ("int64", (1,)):
        raise fail(f"append at a row {types[2]}: one int64 is wanted")
    return _concat_type(types[:2], attrs)


def _append_on_host(attrs: Attrs, arrays: Sequence[Any], outputs: Sequence[TensorType]) -> list[Any]:
    axis, made = attrs["axis"], np.concatenate(arrays[:2], attrs["axis"])
    if len(arrays) > 2:
        past, new = np.shape(arrays[0])[axis], np.asarray(arrays[1])
        made[(*(slice(None),) * axis, slice(past, None))] = 0
        at = int(np.asarray(arrays[2])[0])
        made[(*(slice(None),) * axis, slice(at, at + new.shape[axis]))] = new
    return [made]


@register("append", INJECTIVE, _append_type, host=_append_on_host, takes=(2, 3))
def _append(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The first input and the second behind it along `axis`, in the memory of the first, which has room for `capacity`: the tensor is that of
    the new rows, which alone are written. With a third input, one int64, they begin at that row of the memory (`graph.programs` moves what is stored)."""
    return [te.compute(inputs[1].shape, lambda *i: inputs[1](*i), name="append")]


def _pad_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    before, after = attrs["before"], attrs["after"]
    shape = tuple(n + b + a for n, b, a in zip(types[0].shape, before, after))
    what = "padding leaves no dimension below 0"
    if (
        len(before) != types[0].ndim
        or len(after) != types[0].ndim
        or any(not require(0, "<=", n, what) if isinstance(n, Dim) else n < 0 for n in shape)
    ):
        raise fail(
            f"padding {tuple(before)}, {tuple(after)} of {types[0]}",
            hint="a number before and one after each dimension; negative ones cut off no more than there is",
        )
    mode = attrs.get("mode", "constant")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise fail(f"unknown padding mode {mode!r}", hint="constant, edge, reflect or wrap")
    if mode == "reflect" and any(
        n == 0 and (_may_add(b) or _may_add(a)) for n, b, a in zip(types[0].shape, before, after)
    ):
        raise fail("reflection of an empty dimension", hint="mode constant pads an empty dimension")
    return [TensorType(types[0].dtype, shape)]


def _may_add(pad: Size) -> bool:
    """Whether padding may add anything: what crops needs no condition."""
    return bool((pad if isinstance(pad, int) else pad.bounds()[1]) > 0)


def _reflect(i: Any, n: int) -> Any:
    """Index i (any sign) mirrored into [0, n): period 2n - 2."""
    if n == 1:
        return 0
    # A symbolic size may be 1, whose period is 1.
    m = te.floormod(i, te.max(2 * n - 2, 1) if isinstance(n, Dim) else 2 * n - 2)
    return te.max(te.min(m, 2 * n - 2 - m), 0) if isinstance(n, Dim) else te.min(m, 2 * n - 2 - m)


def _repeated(mode: str, i: Any, n: Any) -> Any:
    """The element among `n` that place i of a padded axis repeats."""
    if mode == "reflect":
        return _reflect(i, n)
    return te.floormod(i, n) if mode == "wrap" else te.max(te.min(i, n - 1), 0)


@register("pad", INJECTIVE, _pad_type, traits=[FOLLOWS_16], takes=(1, 2))
def _pad(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """`before`, `after`, one a dimension (negative ones crop); `mode`: constant (of `value` or the second input), reflect, edge, wrap.
    `inside_first`: what repeats elements is told apart from what is copied as it lies."""
    x = inputs[0]
    shape, before, after = static_shape(x), attrs["before"], attrs["after"]
    mode = attrs.get("mode", "constant")

    def body(*i: Any) -> Any:
        index = [k - b if isinstance(b, Dim) or b else k for k, b in zip(i, before)]
        if mode == "constant":
            conds = []
            for k, n, b, a in zip(index, shape, before, after):
                conds += [k >= 0] * _may_add(b) + [k < n] * _may_add(a)
            fill = inputs[1](*[0] * inputs[1].ndim) if len(inputs) > 1 else number(attrs.get("value", 0), x.dtype)
            if not conds:
                return x(*index)
            return te.if_then_else(te.all(*conds), x(*index), fill) if 0 not in shape else fill
        padded = [d for d, ends in enumerate(zip(before, after)) if any(isinstance(n, Dim) or n for n in ends)]
        at = list(index)
        for d in padded:
            at[d] = _repeated(mode, index[d], shape[d])
        if not padded or 0 in shape or not attrs.get("inside_first"):
            return x(*at)
        # A line of the last axis of these is copied as it lies, but for its ends; which line it is costs something once a line.
        d = padded[-1]
        inside = [index[d] >= 0] * _may_add(before[d]) + [index[d] < shape[d]] * _may_add(after[d])
        line = x(*at[:d], *index[d:])
        return te.if_then_else(te.all(*inside), line, x(*at)) if inside else line

    return [te.compute(outputs[0].shape, body, name="pad")]


def _tile_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    return [TensorType(types[0].dtype, tuple(n * r for n, r in zip(types[0].shape, attrs["repeats"], strict=True)))]


@register("tile", INJECTIVE, _tile_type, traits=[FOLLOWS_16], takes=1)
def _tile(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """`repeats`: how often, one a dimension."""
    x = inputs[0]
    shape = static_shape(x)
    if is_zero(outputs[0].size):
        return [te.compute(outputs[0].shape, lambda *i: te.const(0, x.dtype), name="tile")]
    return [te.compute(outputs[0].shape, lambda *i: x(*[te.indexmod(k, n) for k, n in zip(i, shape)]), name="tile")]


# ---- gather


def wrap_index(index: Any, n: Any) -> Any:
    """A 32-bit index into [0, n) from one that may count from the end; one that is outside goes to the nearest end."""
    if index.dtype.startswith("uint"):
        return (
            te.min(index, te.cast(n - 1, index.dtype)).astype("int32")
            if _reaches(index.dtype, n)
            else index.astype("int32")
        )
    if index.dtype == "int64":
        # Not cut off to 32 bits before it is known to fit.
        index = te.max(te.min(index, te.cast("int64", n - 1)), te.cast("int64", 0 - n))
        k = index.astype("int32")
        return te.select(k < 0, k + n, k)
    k = index.astype("int32")
    return te.max(te.min(te.select(k < 0, k + n, k), n - 1), 0)


def _reaches(dtype: str, n: Any) -> bool:
    """Whether a number of the type can be n or more."""
    bits = {"uint8": 8, "uint16": 16}.get(dtype, 32)
    return not isinstance(n, int) or n < 1 << bits


def _gather_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x, index = types
    axis = normalize_axis(attrs["axis"], x.ndim)
    return [TensorType(x.dtype, x.shape[:axis] + index.shape + x.shape[axis + 1 :])]


@register("gather", INJECTIVE, _gather_type, traits=[FOLLOWS_16, INDEXED], takes=2)
def _gather(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """Slices of the first input along `axis`, picked by the second; negative indices count from the end."""
    x, index = inputs
    axis = normalize_axis(attrs["axis"], x.ndim)
    n, rank = static_shape(x)[axis], index.ndim
    if is_zero(outputs[0].size):
        return [te.compute(outputs[0].shape, lambda *i: te.const(0, x.dtype), name="gather")]
    return [
        te.compute(
            outputs[0].shape,
            lambda *i: x(*i[:axis], wrap_index(index(*i[axis : axis + rank]), n), *i[axis + rank :]),
            name="gather",
        )
    ]


def _gather_elements_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x, index = types
    axis = normalize_axis(attrs["axis"], x.ndim)
    if x.ndim != index.ndim or any(b > a for k, (a, b) in enumerate(zip(x.shape, index.shape)) if k != axis):
        raise fail(
            f"gather_elements of {x} by {index}",
            hint="indices are of int32 or int64, with as many dimensions as the data, and no larger along the other axes",
        )
    return [TensorType(x.dtype, index.shape)]


@register("gather_elements", INJECTIVE, _gather_elements_type, traits=[FOLLOWS_16, INDEXED], takes=2)
def _gather_elements(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """out[i, j, k] = x[i, index[i, j, k], k] for `axis` 1."""
    x, index = inputs
    axis = normalize_axis(attrs["axis"], x.ndim)
    n = static_shape(x)[axis]
    return [
        te.compute(
            outputs[0].shape, lambda *i: x(*i[:axis], wrap_index(index(*i), n), *i[axis + 1 :]), name="gather_elements"
        )
    ]


def _gather_nd_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x, index = types
    b = attrs.get("batch_dims", 0)
    depth = index.shape[-1]
    if x.shape[:b] != index.shape[:b] or b + depth > x.ndim:
        raise fail(
            f"gather_nd of {x} by {index} with {b} batch dimensions",
            hint="the last dimension of the indices is at most the data's rank less batch_dims, and batch dimensions are equal",
        )
    return [TensorType(x.dtype, index.shape[:-1] + x.shape[b + depth :])]


@register("gather_nd", INJECTIVE, _gather_nd_type, traits=[FOLLOWS_16, INDEXED], takes=2)
def _gather_nd(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The last dimension of the index is a point in the dimensions after `batch_dims`."""
    x, index = inputs
    b = attrs.get("batch_dims", 0)
    depth, lead = static_shape(index)[-1], index.ndim - 1
    shape = static_shape(x)

    def body(*i: Any) -> Any:
        point = [wrap_index(index(*i[:lead], k), shape[b + k]) for k in range(depth)]
        return x(*i[:b], *point, *i[lead:])

    return [te.compute(outputs[0].shape, body, name="gather_nd")]


# ---- made from indices


def _one_hot_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    axis = normalize_axis(attrs["axis"], types[0].ndim + 1)
    shape = types[0].shape
    return [TensorType(types[1].dtype, (*shape[:axis], attrs["depth"], *shape[axis:]))]


@register("one_hot", INJECTIVE, _one_hot_type, takes=2)
def _one_hot(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """`depth` classes along `axis`; the second input holds the values [off, on]."""
    index, values = inputs
    axis, depth = normalize_axis(attrs["axis"], index.ndim + 1), attrs["depth"]

    def body(*i: Any) -> Any:
        k = index(*i[:axis], *i[axis + 1 :])
        k = k.astype("int32")
        k = te.select(k < 0, k + depth, k)
        return te.select(k == i[axis], values(1), values(0))

    return [te.compute(outputs[0].shape, body, name="one_hot")]


@register("trilu", INJECTIVE, lambda types, attrs: [types[0]], takes=1)
def _trilu(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The upper (`upper`) or lower triangle of the last two dimensions, from diagonal `k`; zero elsewhere."""
    x, k, upper = inputs[0], attrs["k"], attrs["upper"]
    zero = te.const(0, x.dtype)

    def body(*i: Any) -> Any:
        inside = i[-1] - i[-2] >= k if upper else i[-1] - i[-2] <= k
        return te.select(inside, x(*i), zero)

    return [te.compute(outputs[0].shape, body, name="trilu")]


def _reverse_sequence_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    axes = {attrs["batch_axis"], attrs["time_axis"]}
    if len(axes) != 2 or not axes <= {*range(types[0].ndim)}:
        raise fail(
            f"reverse_sequence of {types[0]}: batch_axis {attrs['batch_axis']}, time_axis {attrs['time_axis']}",
            hint="two dimensions, counted from the first",
        )
    if types[1].shape != (types[0].shape[attrs["batch_axis"]],):
        raise fail(
            f"reverse_sequence of {types[0]} by lengths {types[1]}: one length for each of the batch",
            hint="sequence_lens is int64 of shape (batch,)",
        )
    return [types[0]]


@register("reverse_sequence", INJECTIVE, _reverse_sequence_type, takes=2)
def _reverse_sequence(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The first `lengths[b]` steps of each batch entry in reverse order, or all where there are fewer; `batch_axis`, `time_axis`."""
    x, lengths = inputs
    batch, time = attrs["batch_axis"], attrs["time_axis"]

    def body(*i: Any) -> Any:
        n = te.min(lengths(i[batch]), te.cast(lengths.dtype, x.shape[time])).astype("int32")
        index = list(i)
        index[time] = te.select(i[time] < n, n - 1 - i[time], i[time])
        return x(*index)

    return [te.compute(outputs[0].shape, body, name="reverse_sequence")]
