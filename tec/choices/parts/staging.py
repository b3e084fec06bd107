"""An operand's tile of a step on its way into shared memory, all threads of a work-group at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ...ir import IterVar
from ...schedule import Stage
from .grid import joined


def deal(stage: Stage, loop: IterVar, threads: Iterable[tuple[Any, int]]) -> tuple[Any, Any]:
    """A loop over threads (each with how many there are), neighbours to the first. Returns what is left of the loop, and the last thread's axis."""
    part = None
    for thread, n in threads:
        loop, part = stage.split(loop, factor=n)
        stage.bind(part, thread)
    return loop, part


def bring(
    stage: Stage,
    product: Any,
    step: IterVar,
    threads: Sequence[tuple[Any, int]],
    piece: int = 1,
    is_turned: bool = False,
) -> Any:
    """The tile that `product` reads in a `step`, in pieces of so many elements that lie side by side. Returns the loop over a thread's pieces. `is_turned`: the operand lies along
    the tile's rows in memory, so that neighbouring threads bring neighbouring rows."""
    stage.set_scope("shared")
    stage.compute_at(product, step)
    axes = list(stage.op.axis)
    if is_turned:
        *lead, x, y = axes
        y, vector = stage.split(y, factor=piece)
        axes = [*lead, y, x]
        stage.reorder(*axes, vector)
        loop = joined(stage, axes)
        stage.vectorize(vector)
    else:
        loop = joined(stage, axes)
        if piece > 1:
            loop, vector = stage.split(loop, factor=piece)
            stage.vectorize(vector)
    loop, at = stage.split(loop, factor=math.prod(n for _, n in threads))
    at, _ = deal(stage, at, threads[:-1])
    stage.bind(at, threads[-1][0])
    return loop


__all__ = ["bring", "deal"]
