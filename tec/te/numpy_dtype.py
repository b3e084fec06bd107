"""The NumPy dtype of a tec dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ExprError
from ..ir.dtype import ml_dtypes_name


def np_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy dtype for a tec dtype; bfloat16, the 8-bit floats and 4-bit integers need ml_dtypes."""
    name = ml_dtypes_name(dtype)
    if name.startswith(("bfloat", "float8", "int4", "uint4")):
        try:
            import ml_dtypes
        except ImportError:
            raise ExprError(f"evaluating {dtype} needs ml_dtypes", hint="pip install ml_dtypes") from None
        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found
    return np.dtype(name)
