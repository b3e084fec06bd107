"""What is no expression of elements, as kernels: writing to a region, searching sorted arrays, picking what a mask holds, sorting, random bits.

Each is one thread's program (`tec.kernel`), the same on every device.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from ..kernels.language import grid_idx
from ..runtime.arrays.dtypes import itemsize
from ..runtime.arrays.ndarray import NDArray, empty
from . import onesweep, radix
from .radix import kernel


@kernel
def _put1(out: Any, value: Any) -> None:
    i = grid_idx(1)
    out[i] = value[i]


@kernel
def _put2(out: Any, value: Any) -> None:
    i, j = grid_idx(2)
    out[i, j] = value[i, j]


@kernel
def _put3(out: Any, value: Any) -> None:
    i, j, k = grid_idx(3)
    out[i, j, k] = value[i, j, k]


_PUT = {1: _put1, 2: _put2, 3: _put3}


def put(target: NDArray, source: NDArray, dims: list[list[int]]) -> None:
    """Write the source to the target; `dims` has for each dimension its extent and both strides."""
    outer, inner = dims[:-3], dims[-3:]
    shape = tuple(d[0] for d in inner)
    launch = _PUT[len(inner)].launch(*shape)
    size = itemsize(target.dtype)
    for index in product(*(range(d[0]) for d in outer)):
        t = sum(i * d[1] for i, d in zip(index, outer)) * size
        s = sum(i * d[2] for i, d in zip(index, outer)) * size
        out = NDArray(target.storage, target.address + t, shape, target.dtype, tuple(d[1] for d in inner))
        value = NDArray(source.storage, source.address + s, shape, source.dtype, tuple(d[2] for d in inner))
        launch(out, value)


def _places_before(table: Any, x: Any, is_before: Any) -> Any:
    """How many elements of the table lie before x, which are all in front.

    L. Shar's search: the first step leaves a power of two of places, and each later one adds a bit to the place. No step jumps by what it finds, so that several searches are
    under way at once.
    """
    step = np.int64(1)
    while 2 * step <= len(table):
        step = 2 * step
    low = np.int64(0)
    place = len(table) - step
    while step > 0:
        low += np.int64(is_before(table[low + place], x)) * (place + 1)
        step //= 2
        place = step - 1
    return low


def _is_below(y: Any, x: Any) -> Any:
    return y < x


def _is_not_above(y: Any, x: Any) -> Any:
    return y <= x


def _is_number(y: Any, x: Any) -> Any:
    return y == y


@kernel
def _search(table: Any, sought: Any, found: Any, right: Any) -> None:
    """found[i]: how many elements of the sorted table come before sought[i]; with `right`, those that are equal too. NaN is behind all."""
    i = grid_idx(1)
    x = sought[i]
    if right != 0:
        found[i] = _places_before(table, x, _is_not_above)
        if x != x:
            found[i] = np.int64(len(table))
    else:
        found[i] = _places_before(table, x, _is_below)
        if x != x:
            found[i] = _places_before(table, x, _is_number)


def search(table: NDArray, sought: NDArray, found: NDArray, right: bool) -> None:
    """See `_search`; all of one dimension."""
    _search.launch(found.size)(table, sought, found, int(right))


@kernel
def _pick(held: Any, count: Any, places: Any) -> None:
    """places[number of i among those that hold] = i."""
    i = grid_idx(1)
    if held[i]:
        places[count[i] - 1] = np.int64(i)


def pick(held: NDArray, count: NDArray, places: NDArray) -> None:
    """The indices at which the bools of `held` hold; `count` is their running count."""
    _pick.launch(held.size)(held, count, places)


# Philox 4x32-10: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011: multipliers and Weyl increments of
# its table 2, ten rounds.
_M0, _M1, _W0, _W1 = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85


@kernel
def _philox(out: Any, first: Any, key0: Any, key1: Any, n: Any) -> None:
    """out[4 i : 4 i + 4] = the four words of counter first + i."""
    i = grid_idx(1)
    c = np.uint64(first) + np.uint64(i)
    c0 = np.uint32(c)
    c1 = np.uint32(c >> np.uint64(32))
    c2 = np.uint32(0)
    c3 = np.uint32(0)
    k0 = np.uint32(key0)
    k1 = np.uint32(key1)
    for _ in range(10):
        p0 = np.uint64(_M0) * np.uint64(c0)
        p1 = np.uint64(_M1) * np.uint64(c2)
        h0 = np.uint32(p0 >> np.uint64(32))
        h1 = np.uint32(p1 >> np.uint64(32))
        c0 = h1 ^ c1 ^ k0
        c1 = np.uint32(p1)
        c2 = h0 ^ c3 ^ k1
        c3 = np.uint32(p0)
        k0 = k0 + np.uint32(_W0)
        k1 = k1 + np.uint32(_W1)
    at = 4 * i
    if at < n:
        out[at] = c0
    if at + 1 < n:
        out[at + 1] = c1
    if at + 2 < n:
        out[at + 2] = c2
    if at + 3 < n:
        out[at + 3] = c3


def philox(out: NDArray, first: int, key: int) -> None:
    """Fill an array of uint32 with the words of counters from `first` on, under a key of 64 bits."""
    n = out.size
    if n:
        _philox.launch(-(-n // 4))(out, np.uint64(first), np.uint32(key & 0xFFFFFFFF), np.uint32(key >> 32), n)


RUN = 16  # elements that one thread puts in order by insertion, before runs are merged


def _before(x: Any, y: Any, descending: Any) -> Any:
    """Whether x stands before y; NaN is beyond all numbers."""
    if descending is None:
        return x < y or (y != y and x == x)
    return x > y or (x != x and y == y)


@kernel
def _sort_runs(keys: Any, out: Any, order: Any, n: Any, runs: Any, descending: Any) -> None:
    """Runs of RUN elements of each line of n in order; `order` gets their places in the line."""
    g = grid_idx(1)
    first = (g % runs) * RUN
    base = (g // runs) * n + first
    count = min(RUN, n - first)
    for k in range(count):
        x = keys[base + k]
        j = k
        while j > 0 and _before(x, out[base + j - 1], descending):
            out[base + j] = out[base + j - 1]
            order[base + j] = order[base + j - 1]
            j = j - 1
        out[base + j] = x
        order[base + j] = np.int32(first + k)


@kernel
def _merge_runs(keys: Any, order: Any, out: Any, out_order: Any, n: Any, width: Any, descending: Any) -> None:
    """Neighbouring runs of `width` elements as one: an element goes to its place in its own run plus its rank in the other. Equal ones of the
    first run come first."""
    g = grid_idx(1)
    i = g % n
    base = g - i
    run = i // width
    other = (run ^ 1) * width
    x = keys[g]
    begin = min(other, n)
    low = begin
    high = min(other + width, n)
    while low < high:
        middle = (low + high) // 2
        y = keys[base + middle]
        if run % 2 == 0:
            ahead = _before(y, x, descending)
        else:
            ahead = not _before(x, y, descending)
        if ahead:
            low = middle + 1
        else:
            high = middle
    at = base + (run // 2) * 2 * width + (i - run * width) + (low - begin)
    out[at] = x
    out_order[at] = order[g]


def sort(keys: NDArray, descending: bool) -> tuple[NDArray, NDArray]:
    """The lines (last dimension) of an array in order, and the places where elements stood, as int32. Stable: by digits, O(n), short lines by
    merging runs, O(n log^2 n), all threads at once."""
    n, total = keys.shape[-1], keys.size
    if keys.device.kind == "cpu":
        if n >= radix.SHORTEST:
            return radix.sort(keys, descending)
    elif onesweep.SHORTEST <= n < onesweep.MOST:
        return onesweep.sort(keys, descending)
    flat = keys.reshape(total)
    way = (1,) if descending else None
    runs = -(-n // RUN)

    def room() -> tuple[NDArray, NDArray]:
        return empty((total,), keys.dtype, keys.device), empty((total,), "int32", keys.device)

    now = room()
    then = room() if n > RUN else now  # one run a line: nothing is merged
    _sort_runs.launch(total // n * runs)(flat, *now, n, runs, way)
    width = RUN
    while width < n:
        _merge_runs.launch(total)(*now, *then, n, width, way)
        now, then = then, now
        width *= 2
    return now[0].reshape(keys.shape), now[1].reshape(keys.shape)
