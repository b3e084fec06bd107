"""Sorting lines by the digits of their elements, the lowest first, on a CPU: a pass over a line for each digit, stable, O(n).

D. Knuth, The Art of Computer Programming, volume 3, 5.2.5. Elements become unsigned keys in whose order they stand: of floats the sign flips the rest, both
zeros have one key, and NaN comes behind all numbers. A line is one thread's; a digit that is the same in all elements takes no pass.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ..jit import kernel as _kernel
from ..kernels.language import grid_idx, local, static_range
from ..runtime.arrays.dtypes import itemsize
from ..runtime.arrays.ndarray import NDArray, empty

kernel: Callable[[Callable[..., None]], Any] = _kernel

UNSIGNED, SIGNED, FLOAT = range(3)
INFINITY = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F80_0000, "float64": 0x7FF0_0000_0000_0000}
# Lines of fewer elements are sorted faster by merging runs: 256 counters a digit are cleared and added up for each. (64 and 128 took the same time.)
SHORTEST = 96
# Digits of 11 bits save a pass in four, but write to 2,048 places at a time: more pages than a core's tables of addresses hold where they are far apart.
# On Zen 4, 2^17 floats take 1.5 ms by 11 bits and 2.8 by 8, 2^20 take 95 and 59.
FEW_WIDE, MANY_WIDE = 1 << 12, 1 << 18


def key_of(u: Any, kind: Any, top: Any, infinity: Any, flip: Any) -> Any:
    """The key of an element's bits."""
    k = u
    if kind == FLOAT:
        size = u & (top - 1)
        if size > infinity:
            k = ~(u ^ u)
        elif size == 0:
            k = size | top
        elif u >= top:
            k = ~u
        else:
            k = u | top
    elif kind == SIGNED:
        k = u ^ top
    return ~k if flip else k


@cache
def _sorter(digit: int) -> Any:
    """The kernel for digits of so many bits."""
    buckets = 1 << digit

    @kernel
    def sort_line(bits: Any, key: Any, order: Any, out: Any, n: Any, total: Any, how: Any) -> None:
        """`out` gets a line's elements in order, `order` their places. `key` and `order` have room for all elements twice."""
        kind, width, infinity, flip, passes = how
        base = np.int64(grid_idx(1)) * n
        counts = local((passes * buckets,), np.int32)
        for r in range(passes * buckets):
            counts[r] = 0
        for i in range(n):
            k = key_of(bits[base + i], kind, 1 << (width - 1), infinity, flip)
            key[base + i] = k
            order[base + i] = np.int32(i)
            for p in static_range(passes):
                at = p * buckets + np.int32((k >> (p * digit)) & (buckets - 1))
                counts[at] = counts[at] + 1
        source = base
        target = base + total
        for p in static_range(passes):
            start = np.int32(0)
            first = np.int32((key[source] >> (p * digit)) & (buckets - 1))
            if counts[p * buckets + first] != n:
                for r in range(buckets):
                    count = counts[p * buckets + r]
                    counts[p * buckets + r] = start
                    start = start + count
                for i in range(n):
                    k = key[source + i]
                    d = p * buckets + np.int32((k >> (p * digit)) & (buckets - 1))
                    at = counts[d]
                    counts[d] = at + 1
                    key[target + at] = k
                    order[target + at] = order[source + i]
                was = source
                source = target
                target = was
        for i in range(n):
            place = order[source + i]
            out[base + i] = bits[base + place]
            order[base + i] = place

    return sort_line


def sort(keys: NDArray, descending: bool) -> tuple[NDArray, NDArray]:
    """The lines (last dimension) of a compact array in order, and the places where elements stood, as int32."""
    n, total, dtype = keys.shape[-1], keys.size, keys.dtype
    width = 8 * itemsize(dtype)
    digit = 11 if FEW_WIDE < n <= MANY_WIDE and width >= 32 else 8
    kind = FLOAT if dtype in INFINITY else SIGNED if dtype.startswith("int") else UNSIGNED
    how = (kind, width, INFINITY.get(dtype, 0), int(descending), -(-width // digit))
    unsigned = f"uint{width}"
    bits = NDArray(keys.storage, keys.address, (total,), unsigned)
    values = empty((total,), dtype, keys.device)
    out = NDArray(values.storage, values.address, (total,), unsigned)
    key, order = empty((2 * total,), unsigned, keys.device), empty((2 * total,), "int32", keys.device)
    _sorter(digit)[total // n, 1](bits, key, order, out, n, total, how)
    return values.reshape(keys.shape), order[:total].reshape(keys.shape)
