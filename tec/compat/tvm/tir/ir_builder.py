"""tvm.tir.ir_builder: tec's, with pointers of unknown size (`ib.pointer`)."""

from __future__ import annotations

from tec import ir
from tec.ir.dtype import normalize_dtype
from tec.ir.expr import Var
from tec.ir.spelling import accept
from tec.te import ir_builder as _ours
from tec.te.ir_builder import BufferVar

from ..names import absent

accept(BufferVar, {"asobject": lambda b: lambda: b.buffer, "data": lambda b: b})

__all__ = ["BufferVar", "IRBuilder", "create"]


class IRBuilder(_ours.IRBuilder):
    """Collects statements; see `tec.te.ir_builder`."""

    def pointer(self, content_type: str, name: str = "ptr", scope: str = "") -> BufferVar:
        """A parameter of the function: a buffer of as many elements as the argument has."""
        return BufferVar(self, ir.Buffer(name, normalize_dtype(content_type), (Var(f"{name}_size", is_size=True),)))


def create() -> IRBuilder:
    """A new, empty builder."""
    return IRBuilder()


__getattr__ = absent(__name__)
