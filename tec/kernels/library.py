"""Words that are made of other words: scans and reductions of wavefronts and blocks, lanes of equal values. Plain functions of kernels, which are inlined where
they are called.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import language as tec

OPS = ("add", "min", "max", "and", "or", "xor", "mul")


def combined(op: Any, a: Any, b: Any) -> Any:
    """`a op b`."""
    if op == "add":
        return a + b
    if op == "mul":
        return a * b
    if op == "min":
        return min(a, b)
    if op == "max":
        return max(a, b)
    if op == "and":
        return a & b
    if op == "or":
        return a | b
    return a ^ b


def total(a: Any, start: Any) -> Any:
    """sum() of an array."""
    found = start
    for v in a:
        found += v
    return found


def extremum(a: Any, op: Any) -> Any:
    """min() or max() of an array."""
    found = a[0]
    for v in a:
        found = combined(op, found, v)
    return found


def neutral(op: Any, dtype: Any) -> Any:
    """What changes nothing under `op`, of a dtype. Computed when the kernel is compiled."""
    kind = np.dtype(dtype)
    if op == "mul":
        return kind.type(1)
    if op in ("add", "or", "xor"):
        return kind.type(0)
    if kind.kind == "f":
        return kind.type(np.inf if op == "min" else -np.inf)
    if op == "and":
        return np.bitwise_not(kind.type(0))
    return kind.type(np.iinfo(kind).max if op == "min" else np.iinfo(kind).min)


def linear_thread() -> Any:
    """The thread's number in its block."""
    return (tec.thread_idx.z * tec.block_dim.y + tec.thread_idx.y) * tec.block_dim.x + tec.thread_idx.x


def lanemask_lt() -> Any:
    return (np.uint64(1) << np.uint64(tec.lane())) - np.uint64(1)


def wave_scan(value: Any, op: Any, exclusive: Any, none: Any) -> Any:
    lane = tec.lane()
    total = value
    for k in tec.static_range(int(math.log2(tec.wave_size()))):
        below = tec.shuffle_up(total, 1 << k)
        total = combined(op, below, total) if lane >= 1 << k else total
    if exclusive:
        before = tec.shuffle_up(total, 1)
        return none if lane == 0 else before
    return total


def match_any(value: Any, bits: Any) -> Any:
    alike = tec.ballot(True)
    for k in tec.static_range(bits):
        mine = (value >> k) & 1
        ones = tec.ballot(mine == 1)
        alike = alike & (ones if mine == 1 else ~ones)
    return alike


def match_all(value: Any) -> Any:
    return tec.wave_all(value == tec.shuffle(value, 0))


def block_reduce(value: Any, op: Any, dtype: Any, none: Any) -> Any:
    threads = tec.block_dim.x * tec.block_dim.y * tec.block_dim.z
    wave = tec.wave_size()
    t = linear_thread()
    if threads % wave == 0:
        part = tec.wave_reduce(value, op)
        waves = threads // wave
        if waves == 1:
            return part
        parts = tec.shared(waves, dtype)
        if t % wave == 0:
            parts[t // wave] = part
        tec.barrier()
        total = parts[0]
        for k in tec.static_range(1, waves):
            total = combined(op, total, parts[k])
        tec.barrier()
        return total
    each = tec.shared(threads, dtype)
    each[t] = value
    tec.barrier()
    total = each[0]
    for k in range(1, threads):
        total = combined(op, total, each[k])
    tec.barrier()
    return total


def block_scan(value: Any, op: Any, exclusive: Any, dtype: Any, none: Any) -> Any:
    threads = tec.block_dim.x * tec.block_dim.y * tec.block_dim.z
    wave = tec.wave_size()
    t = linear_thread()
    if threads % wave == 0:
        mine = wave_scan(value, op, exclusive, none)
        waves = threads // wave
        if waves == 1:
            return mine
        totals = tec.shared(waves, dtype)
        if t % wave == wave - 1:
            totals[t // wave] = combined(op, mine, value) if exclusive else mine
        tec.barrier()
        before = none
        for k in tec.static_range(waves - 1):
            before = combined(op, before, totals[k]) if k < t // wave else before
        tec.barrier()
        return combined(op, before, mine)
    each = tec.shared(threads, dtype)
    each[t] = value
    tec.barrier()
    total = none
    for k in range(threads):
        if k < t or (k == t and not exclusive):
            total = combined(op, total, each[k])
    tec.barrier()
    return total
