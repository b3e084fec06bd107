"""An operand's tile of a step on its way into shared memory, all threads of a work-group at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir import IterVar
from ...schedule import Stage


def deal(stage: Stage, loop: IterVar, threads: Sequence[tuple[IterVar, int]]) -> tuple[Any, Any]:
    """A loop over threads (each with how many there are), neighbours to the first. Returns what is left of the loop, and the last thread's axis."""
    part = None
    for thread, n in threads:
        loop, part = stage.split(loop, factor=n)
        stage.bind(part, thread)
    return loop, part


def bring(stage: Stage, product: Stage, step: IterVar, threads: Sequence[tuple[IterVar, int]], piece: int = 1, wide: int = 0, turn: tuple[int, int] = (0, 0), apart: bool = False, swizzle: bool = False) -> None:  # fmt: skip
    """The tile that `product` reads in a `step`, in pieces of so many elements that lie side by side, of which memory has `wide` side by side (0: all).

    turn: the operand lies along the tile's rows in memory; a thread has a block of so many rows by so many terms, and neighbouring threads neighbouring rows ((0, 0):
    it is not turned round). apart: the tile's first axis are parts, each brought by the wavefronts (the last of `threads`) that have it. swizzle: pieces lie
    where lanes' reads spread over the banks."""
    stage.set_scope("shared")
    stage.compute_at(product, step)
    axes, threads = list(stage.op.axis), list(threads)
    if apart:
        stage.bind(axes.pop(0), threads.pop()[0])
    own = None
    if turn[1]:
        *lead, x, y = axes
        if turn[0] > 1:
            x, own = stage.split(x, factor=turn[0])
        y, vector = stage.split(y, factor=turn[1])
        stage.reorder(*lead, y, x, *([] if own is None else [own]), vector)
        loop = stage.fuse(*lead, y, x)
    else:
        loop, vector = stage.fuse(*axes), None
        if piece > 1:
            loop, vector = stage.split(loop, factor=piece)
    loop, part = deal(stage, loop, threads)
    if swizzle:
        stage.pragma(part, "swizzle", max(1, turn[0]))
    stage.unroll(loop)
    if own is not None:
        stage.unroll(own)
    if vector is not None and 0 < wide < piece and not turn[1]:
        parts, vector = stage.split(vector, factor=wide)
        stage.unroll(parts)
    if vector is not None:
        (stage.unroll if turn[0] == 1 else stage.vectorize)(vector)
