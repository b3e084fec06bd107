"""Arrays of NumPy that a kernel names without being given them: tables of constants, as filters and weights are.

Their elements are those that the table has when the kernel is compiled. Where an index is known the element is a constant; the table as a whole is a parameter
behind the kernel's own, which a launch fills in (`Compiled.tables`). A launch after which the elements were changed compiles the kernel again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import expr as E
from ..ir.buffer import GLOBAL, Buffer
from ..ir.dtype import normalize_dtype
from ..records import dataclass
from .values import Array

MOST_BYTES = 1 << 16  # of a table: comparing as much with what it was takes a launch 3 us
_KINDS = "biufc"  # NumPy's kinds of numbers


@dataclass(frozen=True)
class Table:
    """A table: the array that the program holds, its elements when the kernel was compiled, and the parameter that takes them."""

    source: np.ndarray[Any, Any]
    elements: np.ndarray[Any, Any]
    buffer: Buffer

    @property
    def is_fresh(self) -> bool:
        """Whether the program's array still has these elements."""
        return self.source.shape == self.elements.shape and self.source.tobytes() == self.elements.tobytes()

    @property
    def parameter(self) -> np.ndarray[Any, Any]:
        """The elements as compiled code takes them: a complex number is two real ones."""
        if self.elements.dtype.kind != "c":
            return self.elements
        part = self.elements.real.dtype
        return self.elements.view(part).reshape(*self.elements.shape, 2)

    @property
    def value(self) -> Array:
        """The table in a kernel."""
        return Array(self.buffer, (), self.elements.dtype.kind == "c")


def is_table(v: Any) -> bool:
    """Whether an object from outside can be one."""
    return (
        isinstance(v, np.ndarray)
        and v.dtype.kind in _KINDS
        and v.dtype.isnative
        and v.ndim > 0
        and 0 < v.nbytes <= MOST_BYTES
    )


def table_of(v: np.ndarray[Any, Any], name: str) -> Table:
    """The table of an array. Raises ExprError where its numbers are of a type that kernels do not have."""
    elements = np.array(v, order="C")
    made = Table(v, elements, Buffer(name, "int32", ()))
    part = made.parameter
    shape = tuple(E.IntImm(n) for n in part.shape)
    return Table(v, elements, Buffer(name, normalize_dtype(part.dtype), shape, (), 0, GLOBAL, part.itemsize))
