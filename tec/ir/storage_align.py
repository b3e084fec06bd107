"""Strides of a buffer some of whose axes are aligned: see `storage_align` of `StorageNotes`."""

from __future__ import annotations

from collections.abc import Sequence

from . import build as B
from . import expr as E


def row_major_strides(
    shape: Sequence[E.Expr], align: Sequence[tuple[int, int, int]]
) -> tuple[tuple[E.Expr, ...], E.Expr]:
    """The strides in elements of a buffer whose last axis is innermost, and how many elements it takes; `align` as `StorageNotes.storage_align`."""
    axes = {axis: (factor, offset) for axis, factor, offset in align}
    strides: list[E.Expr] = []
    step: E.Expr = E.IntImm(1)
    for axis in range(len(shape) - 1, -1, -1):
        if axis in axes:
            factor, offset = axes[axis]
            step = B.add(step, B.floormod(B.sub(offset, step), factor))
        strides.append(step)
        step = B.mul(step, shape[axis])
    return tuple(reversed(strides)), step
