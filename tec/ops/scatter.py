"""Scatter: updates written to places of a copy, or combined with what stands there.

In te each output element looks through the updates that may point to it, in order, so the last one wins and every target gives
the same; `tec.choices.families.scatters` has it as loops, in linear work.

An index counts from the end where it is negative; one that is outside all the same is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import te
from ..te import Tensor
from .dims import at_most
from .forms import Form, carry
from .registry import INDEXED, OPAQUE, Attrs, TensorType, fail, normalize_axis, register, static_shape, unfit


def place_of(index: Any, n: int) -> Any:
    """The 32-bit place of an index in [0, n); -1 where it is outside."""
    if index.dtype.startswith("uint"):
        return te.select(index.astype("int64") < n, index.astype("int32"), -1)
    wide = index if index.dtype == "int64" else index.astype("int32")
    k = te.select(wide < 0, wide + n, wide)
    return te.select(te.all(k >= 0, k < n), k.astype("int32"), -1)


_COMBINE = {"add": te.sum, "mul": te.prod, "max": te.maximum, "min": te.minimum}


def _scatter_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x, index, update = types
    if attrs.get("reduction", "none") not in ("none", *_COMBINE):
        raise fail(f"unknown reduction {attrs['reduction']!r} of a scatter", hint="none, add, mul, min or max")
    if update.dtype != x.dtype:
        raise fail(f"scatter of {update} into {x}", hint="updates have the type of the data; cast them")
    if "axis" in attrs:
        normalize_axis(attrs["axis"], x.ndim)
        what, wanted = f"scatter into {x}: index {index}, updates {update}", index.shape
        if index.ndim != x.ndim:
            raise fail(what, hint="indices have as many dimensions as the data")
    else:
        what = f"scatter_nd into {x}: index {index}, updates {update}"
        wanted = index.shape[:-1] + x.shape[index.shape[-1] :]
    if update.ndim != len(wanted):
        raise fail(what, hint=f"updates of shape {wanted}")
    if update.shape != wanted:
        raise unfit(what, *zip(wanted, update.shape), hint=f"updates of shape {wanted}")
    return [x]


def _combine_all(x: Tensor, axes: list[Any], reduction: str, hits: Any, value: Any, name: str) -> list[Tensor]:
    """x combined with `value(i)` wherever `hits(i)` holds along `axes`."""
    reducer = _COMBINE[reduction]
    found = te.compute(x.shape, lambda *i: reducer(value(i), axis=axes, where=hits(i)), name=f"{name}_found")
    return [te.compute(x.shape, lambda *i: reducer(x(*i), found(*i)), name=name)]


_UFUNC: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _put(out: Any, at: Any, update: Any, reduction: str, inside: Any) -> list[Any]:
    """`out` with the updates at the index arrays `at`, where `inside` holds."""
    at = tuple(np.broadcast_to(a, inside.shape)[inside] for a in at)
    if reduction == "none":
        out[at] = update[inside]
        return [out]
    if out.dtype.kind == "b" or out.dtype.kind not in "fiu":
        wide = out.astype(np.float32 if out.dtype.kind not in "b" else np.int32)
        _UFUNC[reduction].at(wide, at, update[inside].astype(wide.dtype))
        return [wide.astype(out.dtype)]
    _UFUNC[reduction].at(out, at, update[inside])
    return [out]


def _elements_host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    x, index, update = (np.asarray(a) for a in arrays)
    axis = normalize_axis(attrs["axis"], x.ndim)
    n = x.shape[axis]
    k = index.astype(np.int64)
    k = np.where(k < 0, k + n, k)
    inside = (k >= 0) & (k < n)
    at: list[Any] = list(np.indices(index.shape, sparse=True))
    for d, c in enumerate(x.shape):
        if d != axis:
            inside &= at[d] < c
    at[axis] = k
    return _put(x.copy(), at, update, attrs.get("reduction", "none"), inside)


def _nd_host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    x, index, update = (np.asarray(a) for a in arrays)
    depth = index.shape[-1]
    k = index.astype(np.int64).reshape(math.prod(index.shape[:-1]), depth)
    k = np.where(k < 0, k + np.array(x.shape[:depth], np.int64), k)
    inside = ((k >= 0) & (k < np.array(x.shape[:depth], np.int64))).all(-1)
    if depth == 0:
        flat, values = x[None].copy(), update.reshape(len(k), *x.shape)
        return [_put(flat, (np.zeros(len(values), np.int64),), values, attrs.get("reduction", "none"), inside)[0][0]]
    return _put(x.copy(), k.T, update.reshape(len(k), *x.shape[depth:]), attrs.get("reduction", "none"), inside)


@register("scatter_elements", OPAQUE, _scatter_type, host=_elements_host, traits=[INDEXED], takes=3)
def _scatter_elements(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """out = x, then out[i, index[i, j], ...] = update[i, j, ...] along `axis`; `reduction`: none, add, mul, max, min."""
    x, index, update = inputs
    axis = normalize_axis(attrs["axis"], x.ndim)
    n = static_shape(x)[axis]
    count = static_shape(index)
    if 0 in count:
        return [te.compute(x.shape, lambda *i: x(*i), name="scatter")]
    k = te.reduce_axis((0, count[axis]), "k")

    def at(i: Any) -> tuple[Any, ...]:
        return (*i[:axis], k, *i[axis + 1 :])

    def safe(i: Any) -> tuple[Any, ...]:
        return tuple(
            te.min(a, c - 1) if not at_most(d, c) else a
            for a, c, d in zip(at(i), count, static_shape(x)[:axis] + (count[axis],) + static_shape(x)[axis + 1 :])
        )

    def hits(i: Any) -> Any:
        inside = [a < c for d, (a, c) in enumerate(zip(i, count)) if d != axis and not at_most(static_shape(x)[d], c)]
        return te.all(place_of(index(*safe(i)), n) == i[axis], *inside)

    reduction = attrs.get("reduction", "none")
    way = {"axis": axis, "reduction": reduction}
    form = Form("scatter", (x, index, update), tuple(outputs), way)
    if reduction != "none":
        return carry(form, _combine_all(x, [k], reduction, hits, lambda i: update(*safe(i)), "scatter"))
    last = te.compute(x.shape, lambda *i: te.max(te.select(hits(i), k, -1), axis=k), name="scatter_last")

    def body(*i: Any) -> Any:
        found = last(*i)
        place = [te.min(a, c - 1) if d != axis else te.max(found, 0) for d, (a, c) in enumerate(zip(i, count))]
        return te.if_then_else(found >= 0, update(*place), x(*i))

    return carry(form, [te.compute(x.shape, body, name="scatter")])


@register("scatter_nd", OPAQUE, _scatter_type, host=_nd_host, traits=[INDEXED], takes=3)
def _scatter_nd(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """out = x, then out[index[p]] = update[p] for each point p of the leading dimensions of the index; `reduction` as above."""
    x, index, update = inputs
    shape, lead, depth = static_shape(x), static_shape(index)[:-1], static_shape(index)[-1]
    if 0 in lead:
        return [te.compute(x.shape, lambda *i: x(*i), name="scatter_nd")]
    axes = [te.reduce_axis((0, n), f"p{k}") for k, n in enumerate(lead)]

    def hits(i: Any) -> Any:
        return te.all(te.const(True), *[place_of(index(*axes, d), shape[d]) == i[d] for d in range(depth)])

    reduction = attrs.get("reduction", "none")
    form = Form("scatter", (x, index, update), tuple(outputs), {"axis": None, "reduction": reduction})
    if reduction != "none":
        made = _combine_all(x, axes, reduction, hits, lambda i: update(*axes, *i[depth:]), "scatter_nd")
        return carry(form, made) if depth else made
    flat: Any = 0
    for a, n in zip(axes, lead):
        flat = flat * n + a
    place = shape[:depth] or (1,)
    last = te.compute(
        place,
        lambda *i: te.max(
            te.select(hits(i), flat, -1) if axes else te.select(hits(i), 0, -1), axis=axes or [te.reduce_axis((0, 1))]
        ),
        name="scatter_last",
    )

    def body(*i: Any) -> Any:
        found = last(*i[:depth]) if depth else last(0)
        rest, point = te.max(found, 0), []
        for n in reversed(lead):
            point.append(te.indexmod(rest, n))
            rest = te.indexdiv(rest, n)
        return te.if_then_else(found >= 0, update(*reversed(point), *i[depth:]), x(*i))

    last_one = te.compute(x.shape, body, name="scatter_nd")
    return carry(form, [last_one]) if depth else [last_one]


def _write_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    pool, rows, slots = types
    fits = pool.ndim == 4 and rows.ndim == 3 and slots.ndim == 1 and rows.dtype == pool.dtype
    if (
        not fits
        or rows.shape != (slots.shape[0], pool.shape[1], pool.shape[3])
        or slots.dtype not in ("int32", "int64")
    ):
        raise fail(f"write_rows of {rows} at {slots} into {pool}")
    return [pool]


def _write_host(attrs: Attrs, arrays: Sequence[Any], outs: Sequence[TensorType]) -> list[Any]:
    pool, rows, slots = (np.asarray(a) for a in arrays)
    out, places = pool.copy(), pool.shape[2]
    inside = (slots >= 0) & (slots < len(pool) * places)
    out[slots[inside] // places, :, slots[inside] % places] = rows[inside]
    return [out]


@register("write_rows", OPAQUE, _write_type, host=_write_host, takes=3)
def _write_rows(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """Rows [n, heads, size] into a pool of blocks [blocks, heads, places, size]: row i goes to place slots[i] % places of block slots[i] // places. A slot that is
    outside is left out; a network checks none, since a row that is not wanted has the slot -1.

    The result lies in the memory of the pool, of which the rows alone are written: the pool is a state of the network (`graph.state`), and nothing else reads it as it was.
    """
    pool, rows, slots = inputs
    blocks, heads, places, size = static_shape(pool)
    n = static_shape(rows)[0]

    def make(ins: Any, outs: Any) -> Any:
        ib = te.ir_builder.create()
        source, at, target = (ib.buffer_ptr(x) for x in (*ins, *outs))
        with ib.for_range(0, n, "row") as row:
            slot = ib.let("slot", at[row].astype("int32"))
            with (
                ib.if_scope(te.all(slot >= 0, slot < blocks * places)),
                ib.for_range(0, heads, "head") as head,
                ib.for_range(0, size, "d") as d,
            ):
                target[te.indexdiv(slot, places), head, te.indexmod(slot, places), d] = source[row, head, d]
        return ib.get()

    made = te.extern([pool.shape], [rows, slots], make, name="write_rows", dtype=[pool.dtype])
    return carry(Form("write_rows", (rows, slots), tuple(outputs)), [made])
