"""A measurement by several processes, one a rank: each begins in a fresh interpreter, and what fails on one ends all."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from typing import Any

# (rank, ranks, what more there is, the queue for its results): a tuple of at least three, its rank first.
Rank = Callable[..., None]


def of_all(run: Rank, ranks: int, *more: Any, timeout_s: float) -> list[Any]:
    """What each rank puts into the queue once, in the order of ranks. SystemExit with the traceback of a rank that failed; queue.Empty where one takes longer
    than `timeout_s` after the one before it."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=_guarded, args=(run, r, ranks, *more, results)) for r in range(ranks)]
    for p in processes:
        p.start()
    try:
        return sorted((_found(results, timeout_s) for _ in range(ranks)), key=lambda f: f[0])
    finally:
        for p in processes:
            p.join(5)
            p.kill()


def _guarded(run: Rank, rank: int, ranks: int, *more: Any) -> None:
    """What fails on a rank ends the measurement, and no other rank is waited for."""
    try:
        run(rank, ranks, *more)
    except BaseException:
        more[-1].put((rank, traceback.format_exc()))
        raise


def _found(results: Any, timeout_s: float) -> Any:
    found = results.get(timeout=timeout_s)
    if len(found) == 2:
        raise SystemExit(f"rank {found[0]} failed:\n{found[1]}")
    return found
