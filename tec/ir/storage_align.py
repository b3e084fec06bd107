"""What a `storage_align` annotation of an Alloc means: along these axes, strides are `offset` modulo `factor`, in elements.

Rows of a shared tile so begin in different banks. In: {axis: (factor, offset)}, or what IR text writes for it: (axis, factor, offset), or a list of those.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import build as B
from . import expr as E

NOTE = "storage_align"


def aligned_axes(annotations: dict[str, Any]) -> dict[int, tuple[int, int]]:
    """{axis: (factor, offset)} of an Alloc's annotations; empty without the note."""
    note = annotations.get(NOTE)
    if not note:
        return {}
    if isinstance(note, dict):
        return {int(axis): (int(factor), int(offset)) for axis, (factor, offset) in note.items()}
    entries = [note] if isinstance(note[0], int) else note
    return {int(axis): (int(factor), int(offset)) for axis, factor, offset in entries}


def below_new_axis(annotations: dict[str, Any]) -> dict[str, Any]:
    """The annotations of a buffer that got one more dimension in front."""
    axes = aligned_axes(annotations)
    return annotations | {NOTE: {axis + 1: how for axis, how in axes.items()}} if axes else annotations


def row_major_strides(shape: Sequence[E.Expr], axes: dict[int, tuple[int, int]]) -> tuple[tuple[E.Expr, ...], E.Expr]:
    """The strides in elements of a buffer whose last axis is innermost, and how many elements it takes."""
    strides: list[E.Expr] = []
    step: E.Expr = E.IntImm(1)
    for axis in range(len(shape) - 1, -1, -1):
        if axis in axes:
            factor, offset = axes[axis]
            step = B.add(step, B.floormod(B.sub(offset, step), factor))
        strides.append(step)
        step = B.mul(step, shape[axis])
    return tuple(reversed(strides)), step
