"""Indices of gathers and scatters: what each counts in, and whether constants are inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ImportModelError


def index_sizes(op: str, attrs: dict[str, Any], shape: Sequence[Any], index_shape: Sequence[Any]) -> list[Any]:
    """The sizes that an operator's index counts in: one, or one an element of the index's last dimension."""
    if op.endswith("_nd"):
        skip = attrs.get("batch_dims", 0)
        return list(shape[skip : skip + index_shape[-1]])
    return [shape[attrs["axis"] % max(len(shape), 1)]]


def spans(sizes: Sequence[Any]) -> str:
    return ", ".join(f"-{n} to {n - 1}" for n in sizes)


def check_index(array: Any, sizes: Sequence[Any], what: str) -> None:
    """ImportModelError where an element of `array` is outside of `sizes` that are numbers."""
    array = np.asarray(array)
    for k, n in enumerate(sizes):
        part = array[..., k] if len(sizes) > 1 else array
        if isinstance(n, int) and part.size and (int(part.min()) < -n or int(part.max()) >= n):
            low, high = int(part.min()), int(part.max())
            raise ImportModelError(
                f"{what} is outside of {spans(sizes)}: {low} to {high}",
                hint="give indices from 0 on, or negative ones from the end on",
            )
