"""What the benchmarks share: sides timed in turn, and the line they print."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

Run = Callable[[], Any]
# A thread pool's threads spin for a while when their work is done, and would take a core from the other side.
REST_S = 0.2


def in_turn(
    *sides: Run, rounds: int, block: int = 1, rest: float = 0.0, clock: Callable[[], float] = time.perf_counter
) -> list[list[float]]:
    """Seconds of every run of each side, by `clock`.

    A round gives each side `block` runs, every other round in reverse order, so that what a host does meanwhile meets all alike. Before a
    block with a rest there are `rest` seconds of nothing and a run that does not count: for sides with threads of their own.
    """
    times: list[list[float]] = [[] for _ in sides]
    for run in sides:
        for _ in range(3):
            run()
    pairs = list(zip(sides, times))
    for k in range(rounds):
        for run, taken in pairs[::-1] if k % 2 else pairs:
            if rest:
                time.sleep(rest)
                run()
            for _ in range(block):
                start = clock()
                run()
                taken.append(clock() - start)
    return times


def line(
    name: str,
    value: float,
    unit: str,
    peer: str = "",
    peer_value: float | None = None,
    *,
    inverse: bool = False,
    **more: Any,
) -> float:
    """Prints a figure as one JSON object, and gives its ratio to the peer's; `inverse` for units of which less is better and a ratio
    that says how many times as fast."""
    row: dict[str, Any] = {"name": name, "value": _short(value), "unit": unit}
    ratio = 0.0
    if peer_value:
        ratio = peer_value / value if inverse else value / peer_value
        row |= {"peer": peer, "peer_value": _short(peer_value), "ratio": round(ratio, 3)}
    print(json.dumps({**row, **more}), flush=True)
    return ratio


def _short(x: float) -> float:
    """Four digits that count, and all of those before the point."""
    return round(x) if abs(x) >= 1000 else float(f"{x:.4g}")
