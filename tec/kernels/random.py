"""Random numbers in kernels, and outside of them: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

A number is a function of a seed and of what it is for, an index and a draw: there is no state, threads do not disturb one another, and every device, every
shape of a launch and Python itself give the same.

    @tec.kernel
    def pi(inside, n, seed):
        i = tec.grid_idx(1)
        count = 0
        for k in range(n):
            x, y = tec.random.uniform2(seed, i, k)
            if x * x + y * y < 1.0:
                count += 1
        tec.atomic_add(inside, 0, count)

The bits are those of `tec.array.random`: `words(seed, i)` are elements 4 i to 4 i + 3 of `Generator(seed).bits(...)`. `bits`, `integers` and `uniform` are equal on
all devices bit for bit, `normal` to the last digits of log and cos.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import listed, meant_by_a_call

meant_by_a_call(
    __name__,
    "tec.array.random.random(shape) makes an array; in kernels tec.random.uniform(seed, index, draw) is a number",
)

# Multipliers and key schedule, from the paper.
_M0, _M1, _W0, _W1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57), np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
_32, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


def words(seed: Any, index: Any, draw: Any = 0) -> Any:
    """Four random uint32. seed: a whole number, of which 64 bits count; index: 64 bits; draw: 32 bits."""
    at, key = np.uint64(index), np.uint64(seed)
    c0, c1 = np.uint32(at & _LOW), np.uint32(at >> _32)
    c2, c3 = np.uint32(draw), np.uint32(0)
    k0, k1 = np.uint32(key & _LOW), np.uint32(key >> _32)
    for _ in range(10):
        p0 = _M0 * np.uint64(c0)
        p1 = _M1 * np.uint64(c2)
        c0 = np.uint32(p1 >> _32) ^ c1 ^ k0
        c1 = np.uint32(p1 & _LOW)
        c2 = np.uint32(p0 >> _32) ^ c3 ^ k1
        c3 = np.uint32(p0 & _LOW)
        k0 = np.uint32((np.uint64(k0) + np.uint64(_W0)) & _LOW)
        k1 = np.uint32((np.uint64(k1) + np.uint64(_W1)) & _LOW)
    return c0, c1, c2, c3


def bits(seed: Any, index: Any, draw: Any = 0) -> Any:
    """A random uint32."""
    return words(seed, index, draw)[0]


def _unit(word: Any) -> Any:
    """24 bits as a float32 from 0 to 1, without 1."""
    return np.float32(word >> np.uint32(8)) * np.float32(2.0**-24)


def uniform(seed: Any, index: Any, draw: Any = 0) -> Any:
    """A float32 from 0 to 1, without 1, of 24 random bits."""
    return _unit(words(seed, index, draw)[0])


def uniform2(seed: Any, index: Any, draw: Any = 0) -> Any:
    """Two of them, for the price of one."""
    w = words(seed, index, draw)
    return _unit(w[0]), _unit(w[1])


def uniform4(seed: Any, index: Any, draw: Any = 0) -> Any:
    """Four of them, for the price of one."""
    w = words(seed, index, draw)
    return _unit(w[0]), _unit(w[1]), _unit(w[2]), _unit(w[3])


def uniform64(seed: Any, index: Any, draw: Any = 0) -> Any:
    """A float64 from 0 to 1, without 1, of 53 random bits."""
    w = words(seed, index, draw)
    high, low = np.float64(w[0] >> np.uint32(5)), np.float64(w[1] >> np.uint32(6))
    return (high * np.float64(67108864.0) + low) * np.float64(2.0**-53)


def normal2(seed: Any, index: Any, draw: Any = 0) -> Any:
    """Two normally distributed float32 of mean 0 and deviation 1 (Box and Muller, 1958)."""
    w = words(seed, index, draw)
    radius = np.float32(math.sqrt(np.float32(-2.0) * np.float32(math.log(np.float32(1.0) - _unit(w[0])))))
    angle = _unit(w[1]) * np.float32(2 * math.pi)
    return radius * np.float32(math.cos(angle)), radius * np.float32(math.sin(angle))


def normal(seed: Any, index: Any, draw: Any = 0) -> Any:
    """A normally distributed float32 of mean 0 and deviation 1."""
    return normal2(seed, index, draw)[0]


def integers(seed: Any, low: Any, high: Any, index: Any, draw: Any = 0) -> Any:
    """A whole number from `low` up to `high`, which is left out, as int64: at most 2**32 different ones. No value is more frequent than another by more
    than 2**-32 of its share.
    """
    w = words(seed, index, draw)
    span = np.uint64(high - low)
    wide = np.uint64(w[0]) * span + (np.uint64(w[1]) * span >> _32)
    return np.int64(wide >> _32) + np.int64(low)


__dir__ = listed(__name__)
