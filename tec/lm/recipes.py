"""A network's constants, as recipes: which tensors of a checkpoint they are made of, and how. `filling` makes them.

packed    products with codes that stay packed (`ops.packed`): x rounded to bytes where the target multiplies bytes in fours
matrix    products with floats, in the layout that the target's templates read (`choices.layouts`)
halves    matrices of floats of 16 bits as they are
vector    scales of norms, biases
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ..records import dataclass
from ..runtime.arrays.dtypes import numpy_dtype
from ..runtime.devices.storage import ALIGN


@dataclass(frozen=True)
class Recipe:
    """Constants by their role ("data", or "codes", "scale", "zero"), made of tensors whose rows stand one below the other. `how`: see the module."""

    how: str
    tensors: tuple[str, ...]
    params: dict[str, str]
    attrs: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Recipe:
        return cls(data["how"], tuple(data["tensors"]), dict(data["params"]), dict(data["attrs"]))


def placed(specs: Mapping[str, tuple[str, Sequence[int]]]) -> dict[str, Any]:
    """Arrays of these types and shapes, each beginning at a multiple of 64 bytes, as a CPU's kernels read them in place."""
    found = {}
    for name, (dtype, shape) in specs.items():
        held = numpy_dtype(dtype)
        nbytes = held.itemsize * int(np.prod(shape, dtype=np.int64))
        room = np.empty(nbytes + ALIGN, np.uint8)
        start = -room.ctypes.data % ALIGN
        found[name] = room[start : start + nbytes].view(held).reshape(shape)
    return found
