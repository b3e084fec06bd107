"""Constants whose numbers come after compilation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..te.numpy_dtype import np_dtype


class Deferred(np.ndarray[Any, Any]):
    """What a constant holds whose numbers come after compilation, such as a weight of a network whose code is kept for all weights of these sizes: zeros that
    take no memory. Passes may read no such constant (`Value.is_known` tells), and `optimize` says where one has; `Graph.deferred` makes them, and who
    compiles the graph gives `Network.params` the numbers (`Network.provide`). A network that runs or is saved before that is refused."""

    is_deferred = True

    @classmethod
    def of(cls, dtype: str, shape: Sequence[int]) -> Deferred:
        """For a constant of this type."""
        return np.broadcast_to(np.zeros((), np_dtype(dtype)), tuple(shape)).view(cls)
