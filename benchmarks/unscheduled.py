"""CPU programs without a schedule, against the same with its innermost loop split and vectorized by hand. One JSON object a line; processor time.

    taskset -c 0 python benchmarks/unscheduled.py

`value` is in microseconds, the best of several blocks of runs; a ratio above 1 is slower than by hand. What a schedule by hand has no form for
(a sum along rows) has NumPy for a peer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from turns import line

import tec
from tec import te

BLOCKS, SECONDS = 7, 0.02


def best_us(run: Callable[[], Any]) -> float:
    """Processor time of a run, the least of several blocks."""
    run()
    n, least = 1, float("inf")
    while True:
        start = time.process_time()
        for _ in range(n):
            run()
        if time.process_time() - start > SECONDS:
            break
        n *= 2
    for _ in range(BLOCKS):
        start = time.process_time()
        for _ in range(n):
            run()
        least = min(least, (time.process_time() - start) / n)
    return least * 1e6


def vectorized(s: Any, t: Any) -> None:
    """What a user writes: the last axis by 16 lanes."""
    _, inner = s[t].split(t.op.axis[-1], factor=16)
    if t.op.reduce_axis:
        s[t].reorder(*t.op.axis[:-1], _, *t.op.reduce_axis, inner)
    s[t].vectorize(inner)


def exp_add() -> tuple[list[Any], Any]:
    a, b = te.placeholder((4096,), name="A"), te.placeholder((4096,), name="B")
    return [a, b], te.compute((4096,), lambda i: te.exp(a[i]) + b[i], name="C")


def matmul() -> tuple[list[Any], Any]:
    a, b = te.placeholder((128, 128), name="A"), te.placeholder((128, 96), name="B")
    k = te.reduce_axis((0, 128), name="k")
    return [a, b], te.compute((128, 96), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")


def softmax() -> tuple[list[Any], Any]:
    a = te.placeholder((64, 1000), name="A")
    k, l = te.reduce_axis((0, 1000), name="k"), te.reduce_axis((0, 1000), name="l")
    top = te.compute((64,), lambda i: te.max(a[i, k], axis=k), name="top")
    total = te.compute((64,), lambda i: te.sum(te.exp(a[i, l] - top[i]), axis=l), name="total")
    return [a], te.compute((64, 1000), lambda i, j: te.exp(a[i, j] - top[i]) / total[i], name="C")


def _numpy_softmax(x: Any) -> Any:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def main() -> None:
    rng = np.random.default_rng(0)
    for program, peer in ((exp_add, None), (matmul, None), (softmax, _numpy_softmax)):
        inputs, out = program()
        shapes = [tuple(d.value for d in t.shape) for t in inputs]
        values = [rng.uniform(-1, 1, shape).astype("f4") for shape in shapes]
        arrays = [tec.nd.array(v) for v in values] + [tec.nd.empty(tuple(d.value for d in out.shape))]
        plain = tec.build(tec.create_schedule(out.op), [*inputs, out], "llvm", name="plain")
        mine = best_us(lambda f=plain, a=arrays: f(*a))  # type: ignore[misc]
        if peer is None:
            s = tec.create_schedule(out.op)
            vectorized(s, out)
            by_hand = tec.build(s, [*inputs, out], "llvm", name="by_hand")
            other = best_us(lambda f=by_hand, a=arrays: f(*a))  # type: ignore[misc]
        else:
            other = best_us(lambda p=peer, v=values: p(*v))  # type: ignore[misc]
        line(f"{program.__name__}, no schedule", mine, "us", "vectorized by hand" if peer is None else "NumPy", other)


if __name__ == "__main__":
    main()
