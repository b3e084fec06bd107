"""The numbers of a network's constants, by their recipes.

Rows are read, brought in order and written some at a time, so that no more than a few megabytes stand beside the result. What orders them is the compiler's
side: a start that finds its weights on the disk does not import this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from threading import Event
from typing import Any

import numpy as np

from ..ops.layouts import Layout
from ..ops.packed import Weights
from .blocks import codes_of
from .checkpoint import PackedTensor
from .memory import drop_pages
from .recipes import Recipe

# Weights that are made at once: 2 MB of float32, which a second-level cache and some of the third hold.
_CHUNK_ELEMS = 1 << 19


def fill(
    recipes: Sequence[Recipe],
    tensors: Mapping[str, PackedTensor],
    out: Mapping[str, Any],
    threads: int,
    stop: Event | None = None,
) -> None:
    """Write the constants of all recipes into `out`, arrays by the constants' names. Pages of mapped files that were read are given back. stop: set where nobody
    wants them any more; then CancelledError is raised."""

    def make(recipe: Recipe) -> None:
        if stop is not None and stop.is_set():
            raise CancelledError
        own = [tensors[n] for n in recipe.tensors]
        _MAKERS[recipe.how](recipe, own, {role: out[name] for role, name in recipe.params.items()})
        drop_pages(t.data for t in own if not callable(t.raw))

    # The largest first: the last one to end would else have a core for itself.
    ordered = sorted(recipes, key=lambda r: -sum(tensors[n].nbytes for n in r.tensors))
    with ThreadPoolExecutor(max(1, threads)) as pool:
        for _ in pool.map(make, ordered):
            pass


def _vector(recipe: Recipe, own: Sequence[PackedTensor], out: Mapping[str, Any]) -> None:
    shape = recipe.attrs["shape"]
    out["data"][...] = own[0].dequantize().reshape(shape) + np.float32(recipe.attrs["shift"])


def _matrix(recipe: Recipe, own: Sequence[PackedTensor], out: Mapping[str, Any]) -> None:
    layout, data = Layout(recipe.attrs["layout"]), out["data"]
    block, tensors = layout.blocks.get("n", 1), [_rows(t, recipe.attrs, _numbers) for t in own]
    if layout.blocks and layout.name[:1] != "N":
        whole = np.concatenate([t.read(0, t.count) for t in tensors]).astype(data.dtype, copy=False)
        data[...] = layout.store(whole, "NK")
        return
    for first, rows in _chunks(tensors, block):
        made = rows.astype(data.dtype, copy=False)
        if layout.blocks:
            stored = layout.store(made, "NK")
            data[first // block : first // block + len(stored)] = stored
        elif layout.name == "NK":
            data[first : first + len(rows)] = made
        else:
            data[:, first : first + len(rows)] = made.T


def _packed(recipe: Recipe, own: Sequence[PackedTensor], out: Mapping[str, Any]) -> None:
    w = Weights.of(recipe.attrs)
    block = w.panel or 1
    if w.are_numbers:
        codes = out["codes"].view("<u2")
        for first, rows in _chunks([_rows(t, recipe.attrs, _halves) for t in own], block):
            stored = Weights(16, w.k, w.panel, w.k, len(rows), 0.0, 1, w.format).store(rows)
            codes[first // block : first // block + len(stored)] = stored
        return
    for first, made in _chunks([_rows(t, recipe.attrs, _codes) for t in own], block):
        part = Weights(w.bits, w.block, w.panel, w.k, len(made[0]), w.zero, w.group, w.format)
        at = first // block
        for role, stored in (
            ("codes", part.store(made[0])),
            *((role, part.store_blocks(made[j])) for j, role in ((1, "scale"), (2, "zero")) if role in out),
        ):
            out[role][at : at + len(stored)] = stored


def _as_halves(recipe: Recipe, own: Sequence[PackedTensor], out: Mapping[str, Any]) -> None:
    data = out["data"].view("<u2")
    for first, rows in _chunks([_rows(t, recipe.attrs, _halves) for t in own], 1):
        data[first : first + len(rows)] = rows


_MAKERS = {"vector": _vector, "matrix": _matrix, "packed": _packed, "halves": _as_halves}


# ---- rows of tensors that stand one below the other


def _numbers(t: PackedTensor) -> Any:
    return t.dequantize(as_stored=True)


def _halves(t: PackedTensor) -> Any:
    """The bits of floats of 16 bits."""
    return t.data.view("<u2").reshape(t.shape)


def _codes(t: PackedTensor) -> Any:
    return codes_of(t.format.name, t.data, *t.shape)


@dataclass(frozen=True)
class _Rows:
    """The rows of a tensor: how many, of how many weights each, and what reads some of them."""

    count: int
    k: int
    read: Callable[[int, int], Any]


def _rows(t: PackedTensor, attrs: Mapping[str, Any], made: Callable[[PackedTensor], Any]) -> _Rows:
    """Of a matrix; of experts' matrices one below the other, or one beside the other where `attrs` says so; in the order of halves where rows are permuted."""
    *above, k = t.shape
    if attrs.get("beside"):
        experts, count = above
        if made is not _codes or t.codes is None:
            return _Rows(count, experts * k, _beside(t, experts, count, made))
        k *= experts
    else:
        experts, count = 1, math.prod(above)
    if made is _codes and t.codes is not None:
        parts, repeated = [_side_by_side(p, experts) for p in t.codes()], attrs["depth"] // attrs["block"]
        return _Rows(count, k, lambda low, high: _repeated([p[low:high] for p in parts], repeated))
    if t.values is not None:  # put together of several parts, all at once
        whole = t.dequantize().reshape(count, k)
        return _Rows(count, k, lambda low, high: whole[low:high])
    raw, order = t.data.reshape(count, -1), t.half_split_rows() if t.rotary_heads else None

    def read(low: int, high: int) -> Any:
        rows = raw[low:high] if order is None else raw[order[low:high]]
        return made(PackedTensor(t.name, (high - low, k), t.format, rows.reshape(-1)))

    return _Rows(count, k, read)


def _side_by_side(rows: Any, experts: int) -> Any:
    """[experts * n, columns] as [n, experts * columns]."""
    return rows.reshape(experts, -1, rows.shape[1]).swapaxes(0, 1).reshape(len(rows) // experts, -1)


def _repeated(parts: Sequence[Any], blocks: int) -> tuple[Any, ...]:
    """Codes, and scales and zero points of groups as those of so many blocks, of which a group has some."""
    codes, *of_groups = parts
    return codes, *(np.repeat(p, blocks // p.shape[1], 1) for p in of_groups)


def _beside(
    t: PackedTensor, experts: int, count: int, made: Callable[[PackedTensor], Any]
) -> Callable[[int, int], Any]:
    if t.values is not None:
        whole = t.dequantize().swapaxes(0, 1).reshape(count, -1)
        return lambda low, high: whole[low:high]
    raw = t.data.reshape(experts, count, -1)

    def read(low: int, high: int) -> Any:
        rows = np.ascontiguousarray(raw[:, low:high].swapaxes(0, 1))
        return made(PackedTensor(t.name, (high - low, experts * t.shape[-1]), t.format, rows.reshape(-1)))

    return read


def _chunks(tensors: Sequence[_Rows], block: int) -> Iterator[tuple[int, Any]]:
    """(number of the first row, rows) of all tensors' rows, as many at a time as a whole number of blocks has, the last ones apart."""
    size = max(block, _CHUNK_ELEMS // max(tensors[0].k, 1) // block * block)
    ends = list(accumulate(t.count for t in tensors))
    for first in range(0, ends[-1], size):
        last, parts = min(first + size, ends[-1]), []
        for t, end in zip(tensors, ends):
            low, high = max(first, end - t.count), min(last, end)
            if low < high:
                parts.append(t.read(low - end + t.count, high - end + t.count))
        yield first, _joined(parts)


def _joined(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], tuple):
        return tuple(None if p[0] is None else np.concatenate(p) for p in zip(*parts))
    return np.concatenate(parts)
