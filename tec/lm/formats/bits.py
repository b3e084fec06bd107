"""What functions of formats share: fields of blocks [n, nbytes] uint8."""

from __future__ import annotations

from typing import Any

import numpy as np


def half(b: Any, at: int) -> Any:
    """A float16 at a byte of each block, as float32 [n, 1]."""
    return np.ascontiguousarray(b[:, at : at + 2]).view("<f2").astype(np.float32)


def words(b: Any, start: int, stop: int, dtype: str) -> Any:
    """Bytes start to stop of each block as wider integers."""
    return np.ascontiguousarray(b[:, start:stop]).view(dtype)
