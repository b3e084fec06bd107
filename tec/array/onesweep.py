"""Sorting lines on a GPU by digits of eight bits, the lowest first: one pass over the elements a digit, stable, O(n).

A pass moves each element once. A work-group takes a tile of a line, in the order in which work-groups begin; ranks its elements among those of equal digit
(`ballot` by bit, then counters of each wavefront), and adds how many such elements lie in tiles before: those tiles say so in words that carry a
count and how far it reaches, in one (nothing yet, the tile's own, all up to it). Who finds a tile's own count adds it and looks one tile further back. Tiles
before have begun, so waiting for them ends. Where digits begin in the line is counted ahead for all passes at once.

A. Adinets, D. Merrill, "Onesweep: A Faster Least Significant Digit Radix Sort for GPUs", arXiv 2206.01784. Keys are as in `radix`.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import numpy as np

from ..jit.launching import Ready
from ..kernels.language import (
    atomic_add,
    atomic_exchange,
    atomic_or,
    ballot,
    barrier,
    block_idx,
    lane,
    local,
    shared,
    thread_idx,
    unrolled,
    wave_barrier,
    wave_size,
)  # fmt: skip
from ..runtime.arrays.dtypes import itemsize
from ..runtime.arrays.ndarray import NDArray, Storage
from ..runtime.devices.device import Device
from ..te import math
from .radix import FLOAT, INFINITY, SIGNED, UNSIGNED, kernel, key_of

popcount: Any = math.popcount

THREADS = 256  # one for each value of a digit
DIGITS = 256
COUNTED, REACHES = 1 << 30, 2 << 30  # a word's two flags: the tile's own count; that of all tiles up to it
LOOK = 4  # tiles further back that are asked at once
MOST = 1 << 30  # elements of a line, which the words have room for
# Lines of fewer elements are merged from runs: a pass of a digit costs a launch and a tile's worth of work whatever it moves.
SHORTEST = 1 << 11


def items(width: int) -> int:
    """Elements of a tile a thread: keys and places of a tile fit 32 KB of shared memory, or 24 for wide keys."""
    return 16 if width <= 32 else 8


def _count_runs(found: Any, keys: Any, p: Any, first: Any, n: Any, how: Any, word: Any) -> None:
    """Adds a thread's keys to the counts of digit p. Neighbours often have equal high digits: those are counted in a register, for additions to one place come one after
    the other."""
    kind, wide, infinity, flip = how
    last = np.int32(0)
    run = np.int32(0)
    for i in unrolled(len(keys)):
        if first + i * THREADS < n:
            d = np.int32((key_of(keys[i], kind, 1 << (wide - 1), infinity, flip) >> word(8 * p)) & 255)
            if d != last:
                if run > 0:
                    atomic_add(found, p * DIGITS + last, run)
                run = np.int32(0)
                last = d
            run = run + 1
    if run > 0:
        atomic_add(found, p * DIGITS + last, run)


@cache
def _counter(width: int, passes: int) -> Any:
    """The kernel that counts all digits of all passes."""
    each = items(width)
    tile = THREADS * each
    word: Any = getattr(np, f"uint{width}")

    @kernel
    def count_digits(bits: Any, counts: Any, n: Any, tiles: Any, how: Any) -> None:
        found = shared((passes * DIGITS,), np.int32)
        t = thread_idx.x
        for p in unrolled(passes):
            found[p * DIGITS + t] = 0
        barrier()
        line = block_idx.x // tiles
        first = (block_idx.x % tiles) * tile
        base = np.int64(line) * n
        keys = local((each,), word)
        for i in unrolled(each):
            at = first + i * THREADS + t
            keys[i] = bits[base + min(at, n - 1)]
        for p in unrolled(passes):
            _count_runs(found, keys, p, first + t, n, how, word)
        barrier()
        for p in unrolled(passes):
            c = found[p * DIGITS + t]
            if c > 0:
                atomic_add(counts, (line * passes + p) * DIGITS + t, c)

    return count_digits


def _add_up(scan: Any, t: Any) -> None:
    """Running sums of two rows of DIGITS numbers in shared memory."""
    for s in unrolled(8):
        a = np.int32(0)
        c = np.int32(0)
        if t >= (1 << s):
            a = scan[t - (1 << s)]
            c = scan[DIGITS + t - (1 << s)]
        barrier()
        scan[t] = scan[t] + a
        scan[DIGITS + t] = scan[DIGITS + t] + c
        barrier()


def _look_back(words: Any, own: Any, nearest: Any) -> Any:
    """How many elements of a digit the tiles before have, whose words end at that of the line's first tile, `nearest`."""
    back = own - DIGITS
    found = np.int32(0)
    going = True
    said = local((LOOK,), np.uint32)
    while going:
        for u in unrolled(LOOK):  # asked at once: an answer takes far longer than a question
            said[u] = atomic_or(words, max(back - u * DIGITS, nearest), np.uint32(0))
        known = True
        for u in unrolled(LOOK):
            w = said[u]
            if w < np.uint32(COUNTED):
                known = False
            if going and known:
                found = found + np.int32(w & np.uint32(COUNTED - 1))
                back = back - DIGITS
                if w >= np.uint32(REACHES):
                    going = False
    return found


def _rank(keys: Any, ranks: Any, mine: Any, wave: Any, below: Any, shift: Any, lanes: Any) -> None:
    """The rank of each of a thread's keys among those of its digit that come before it in the tile, wavefront by wavefront. mine: of each wavefront, how many of a digit; below: the lanes before
    this one, a bit each."""
    for i in unrolled(len(keys)):
        d = np.int32((keys[i] >> shift) & 255)
        alike = lanes(0xFFFFFFFF) | (lanes(0xFFFFFFFF) << lanes(wave_size() - 32))
        for b in unrolled(8):
            has = ((d >> b) & 1) != 0
            those = lanes(ballot(has))
            alike = alike & (those if has else ~those)
        before = np.int32(popcount(alike & below))
        slot = wave * DIGITS + d
        seen = mine[slot]
        wave_barrier()
        ranks[i] = seen + before
        if before == 0:
            mine[slot] = seen + np.int32(popcount(alike))
        wave_barrier()
    barrier()


def _keys_of_tile(keys: Any, bits: Any, key: Any, base: Any, start: Any, n: Any, how: Any, word: Any, is_first: bool) -> None:  # fmt: skip
    """A thread's keys, a wavefront's lanes apart: made of elements in the first pass; the greatest there is beyond the line's end."""
    kind, wide, infinity, flip = how
    for i in unrolled(len(keys)):
        at = start + i * wave_size()
        k = ~(word(0))
        if at < n:
            if is_first:
                k = key_of(bits[base + at], kind, 1 << (wide - 1), infinity, flip)
            else:
                k = key[base + at]
        keys[i] = k


def _places_of_digits(mine: Any, scan: Any, starts: Any, goes: Any, whole: Any, words: Any, own: Any, at_tile: Any, t: Any) -> None:  # fmt: skip
    """Thread t answers for digit t: how many the tile has of it, and where they go. whole: how many the line has."""
    total = np.int32(0)
    for w in unrolled(THREADS // wave_size()):
        c = mine[w * DIGITS + t]
        mine[w * DIGITS + t] = total
        total = total + c
    if at_tile == 0:
        atomic_exchange(words, own, np.uint32(total) | np.uint32(REACHES))
    else:
        atomic_exchange(words, own, np.uint32(total) | np.uint32(COUNTED))
    scan[t] = total
    scan[DIGITS + t] = whole
    barrier()
    _add_up(scan, t)
    begin = scan[t] - total
    starts[t] = begin
    ahead = scan[DIGITS + t] - whole
    if at_tile > 0:
        sum_before = _look_back(words, own, own - at_tile * DIGITS)
        atomic_exchange(words, own, np.uint32(sum_before + total) | np.uint32(REACHES))
        ahead = ahead + sum_before
    goes[t] = ahead - begin
    barrier()


@cache
def _mover(width: int, passes: int, is_first: bool, is_last: bool, width_of_wave: int) -> Any:
    """The kernel of a pass: the first reads elements, the last writes them, those between have one. `width_of_wave`: its lanes."""
    each = items(width)
    tile = THREADS * each
    word: Any = getattr(np, f"uint{width}")
    lanes: Any = np.uint32 if width_of_wave == 32 else np.uint64

    @kernel
    def move(
        bits: Any, key: Any, order: Any, key_out: Any, order_out: Any, out: Any, counts: Any, words: Any, begun: Any, number: Any, n: Any, tiles: Any, how: Any
    ) -> None:  # fmt: skip
        shift = word(8 * number)
        waves = THREADS // wave_size()
        keys, ranks = local((each,), word), local((each,), np.int32)
        moved, places = shared((tile,), word), shared((tile,), np.int32)
        # Of each wavefront, how many of a digit; then how many before it in the tile.
        mine = shared((waves * DIGITS,), np.int32)
        starts = shared((DIGITS,), np.int32)  # where a digit begins in the tile
        goes = shared((DIGITS,), np.int32)  # where a digit of this tile begins in the line, less that
        scan, number_of = shared((2 * DIGITS,), np.int32), shared((1,), np.int32)
        t = thread_idx.x
        if t == 0:
            number_of[0] = atomic_add(begun, number, 1)
        for w in unrolled(waves):
            mine[w * DIGITS + t] = 0
        barrier()
        which = number_of[0]
        line, at_tile = which // tiles, which % tiles
        first, base = at_tile * tile, np.int64(line) * n
        wave, here = t // wave_size(), lane()
        start = first + wave * (each * wave_size()) + here
        _keys_of_tile(keys, bits, key, base, start, n, how, word, is_first)
        _rank(keys, ranks, mine, wave, (lanes(1) << lanes(here)) - lanes(1), shift, lanes)
        own = (np.int64(line) * tiles + at_tile) * DIGITS + t
        whole = counts[(line * passes + number) * DIGITS + t]
        _places_of_digits(mine, scan, starts, goes, whole, words, own, at_tile, t)
        # Through shared memory, so that what goes to neighbouring places is written side by side.
        for i in unrolled(each):
            at = start + i * wave_size()
            d = np.int32((keys[i] >> shift) & 255)
            to = starts[d] + mine[wave * DIGITS + d] + ranks[i]
            moved[to] = keys[i]
            place = np.int32(at)
            if not is_first:
                if at < n:
                    place = order[base + at]
            places[to] = place
        barrier()
        for i in unrolled(each):
            j = i * THREADS + t
            if first + j < n:
                k, place = moved[j], places[j]
                to = base + goes[np.int32((k >> shift) & 255)] + j
                order_out[to] = place
                if is_last:
                    out[to] = bits[base + place]
                else:
                    key_out[to] = k

    return move


class _Sorter:
    """Sorting arrays of one shape and type on one device: which launches, on what memory. `room`: bytes of what is used on the way, in one piece: the counts,
    words and numbers of tiles that have begun, all zero at first (`zeros` bytes), then keys and places of the passes between."""

    def __init__(self, shape: tuple[int, ...], dtype: str, device: Device, descending: bool):
        self.device, self.shape, self.dtype = device, shape, dtype
        self.n, self.total = shape[-1], prod(shape)
        width = 8 * itemsize(dtype)
        self.width, self.passes = width, width // 8
        kind = FLOAT if dtype in INFINITY else SIGNED if dtype.startswith("int") else UNSIGNED
        self.how = (kind, width, INFINITY.get(dtype, 0), int(descending))
        self.tiles = -(-self.n // (THREADS * items(width)))
        lines = self.total // self.n
        self.grid = lines * self.tiles
        self.n_counts, self.n_words = lines * self.passes * DIGITS, self.grid * DIGITS
        self.zeros = 4 * (self.n_counts + self.passes * self.n_words + DIGITS)
        between = self.total if self.passes > 1 else 1  # one pass reads no keys and places of another
        self.key_bytes, self.place_bytes = (-(-between * w // 8 // 512) * 512 for w in (width, 32))
        self.room = -(-self.zeros // 512) * 512 + 2 * self.key_bytes + self.place_bytes
        self.ready: list[Ready] | None = None

    def arrays(self, keys: NDArray, values: Storage, places: Storage, room: Storage) -> list[list[NDArray]]:
        """The arrays of each launch."""
        unsigned, n = f"uint{self.width}", self.total

        def at(storage: Storage, address: int, count: int, dtype: str) -> NDArray:
            return NDArray(storage, address, (count,), dtype)

        bits, out = at(keys.storage, keys.address, n, unsigned), at(values, values.address, n, unsigned)
        counts = at(room, room.address, self.n_counts, "int32")
        begun = at(room, room.address + self.zeros - 4 * DIGITS, DIGITS, "int32")
        start = room.address + -(-self.zeros // 512) * 512
        between = n if self.passes > 1 else 1
        now = at(room, start, between, unsigned), at(places, places.address, n, "int32")
        then = (
            at(room, start + self.key_bytes, between, unsigned),
            at(room, start + 2 * self.key_bytes, between, "int32"),
        )
        if self.passes % 2 == 0:
            now, then = then, now  # so that the last pass writes the places that are given back
        launches = [[bits, counts]]
        for p in range(self.passes):
            address = room.address + 4 * (self.n_counts + p * self.n_words)
            words = at(room, address, self.n_words, "uint32")
            launches.append([bits, *then, *now, out, counts, words, begun])
            now, then = then, now
        return launches

    def launchers(self) -> list[tuple[Any, tuple[Any, ...]]]:
        """The launches, and their arguments behind the arrays."""
        wave, last = self.device.wavefront_size, self.passes - 1
        made: list[tuple[Any, tuple[Any, ...]]] = [
            (_counter(self.width, self.passes)[self.grid, THREADS], (self.n, self.tiles, self.how))
        ]
        for p in range(self.passes):
            move = _mover(self.width, self.passes, p == 0, p == last, wave)
            made.append((move[self.grid, THREADS], (p, self.n, self.tiles, self.how)))
        return made

    def __call__(self, keys: NDArray) -> tuple[NDArray, NDArray]:
        device = self.device
        values, places = Storage(device, keys.nbytes), Storage(device, 4 * self.total)
        room = Storage(device, self.room)
        device.driver.memset(device.index, room.address, 0, self.zeros, device.local.stream)  # type: ignore[union-attr]
        arrays = self.arrays(keys, values, places, room)
        if self.ready is None or device.profile is not None or device.capturing is not None:
            launchers = self.launchers()
            for (launch, rest), given in zip(launchers, arrays):
                launch(*given, *rest)
            if self.ready is None:
                made = [launch.ready(*given, *rest) for (launch, rest), given in zip(launchers, arrays)]
                self.ready = None if None in made else made
        else:
            for go, given in zip(self.ready, arrays):
                go([a.address for a in given])
        shape = self.shape
        return NDArray(values, values.address, shape, self.dtype), NDArray(places, places.address, shape, "int32")


_SORTERS: dict[Any, _Sorter] = {}
_MOST_SORTERS = 256


def sort(keys: NDArray, descending: bool) -> tuple[NDArray, NDArray]:
    """The lines (last dimension) of a compact array in order, and the places where elements stood, as int32."""
    key = (keys.layout, bool(descending))
    found = _SORTERS.get(key)
    if found is None:
        if len(_SORTERS) >= _MOST_SORTERS:
            _SORTERS.clear()
        found = _SORTERS[key] = _Sorter(keys.shape, keys.dtype, keys.device, descending)
    return found(keys)
