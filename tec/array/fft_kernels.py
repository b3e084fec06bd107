"""Discrete Fourier transforms of the rows of an array on a device: Stockham's passes of radix 2, 3, 4, 5 and 7, which leave the elements in order.

A pass reads and writes the whole array once, a butterfly a thread. Roots of unity come from a table, worked out in float64. Source: N. Govindaraju and
others, "High performance discrete Fourier transforms on graphics processors", SC 2008, figure 2.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ..kernels.language import grid_idx, local, unrolled
from ..runtime.arrays.ndarray import NDArray, array, empty
from ..runtime.devices.device import Device
from .complexes import as_pairs
from .dtypes import PART
from .radix import kernel

RADICES = (4, 2, 3, 5, 7)


def radices(n: int) -> list[int] | None:
    """The radices of the passes of a transform of length n; None where a prime above 7 divides it."""
    found: list[int] = []
    for r in RADICES:
        while n % r == 0:
            found.append(r)
            n //= r
    return found if n == 1 else None


@cache
def _pass(radix: int, dtype: str) -> Any:
    """The kernel of a pass of one radix for numbers of a type."""
    real: Any = getattr(np, dtype)

    @kernel
    def butterflies(source: Any, target: Any, roots: Any, n: Any, done: Any) -> None:
        """One pass; `done`: the product of the radices of the passes before."""
        g = grid_idx(1)
        each = n // radix
        j = g % each
        base = np.int64(g // each) * n
        k = j % done
        step = each // done  # roots[i k step] turns element i
        re = local((radix,), real)
        im = local((radix,), real)
        for i in unrolled(radix):
            at = 2 * (base + j + i * each)
            w = 2 * (i * k * step)
            a = source[at]
            b = source[at + 1]
            c = roots[w]
            s = roots[w + 1]
            re[i] = a * c - b * s
            im[i] = a * s + b * c
        first = base + np.int64(j // done) * done * radix + k
        for q in unrolled(radix):
            x = re[0]
            y = im[0]
            for i in unrolled(1, radix):
                w = 2 * (((i * q) % radix) * each)
                c = roots[w]
                s = roots[w + 1]
                x = x + (re[i] * c - im[i] * s)
                y = y + (re[i] * s + im[i] * c)
            at = 2 * (first + q * done)
            target[at] = x
            target[at + 1] = y

    return butterflies


_ROOTS: dict[tuple[int, bool, str, Device], NDArray] = {}
_MOST_ROOTS = 64


def _roots(n: int, inverse: bool, dtype: str, device: Device) -> NDArray:
    """exp(-2 pi i k / n) for k < n, of the inverse the conjugates, as pairs."""
    key = (n, inverse, dtype, device)
    found = _ROOTS.get(key)
    if found is None:
        angle = (2 if inverse else -2) * np.pi * np.arange(n) / n
        if len(_ROOTS) >= _MOST_ROOTS:
            _ROOTS.clear()
        pairs = np.stack([np.cos(angle), np.sin(angle)], axis=-1).astype(dtype).reshape(2 * n)
        found = _ROOTS[key] = array(pairs, device)
    return found


def transform(x: NDArray, inverse: bool) -> NDArray:
    """The transform of the last dimension of a compact complex array, whose extent has no prime above 7; not scaled."""
    n, dtype = x.shape[-1], PART[x.dtype].name
    order = radices(n)
    assert order is not None
    roots = _roots(n, inverse, dtype, x.device)
    now, done = x, 1
    for r in order:
        then = empty(x.shape, x.dtype, x.device)
        count = 2 * x.size
        _pass(r, dtype).launch(x.size // r)(as_pairs(now).reshape(count), as_pairs(then).reshape(count), roots, n, done)
        now, done = then, done * r
    return now
