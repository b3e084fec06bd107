"""tvm.tir.Buffer and decl_buffer."""

from __future__ import annotations

from typing import Any

from tec import ir, te
from tec.ir import build as B
from tec.ir.arith import Analyzer
from tec.ir.spelling import accept

from .nodes import node


def decl_buffer(
    shape: Any,
    dtype: Any = None,
    name: str = "buffer",
    data: Any = None,
    strides: Any = None,
    elem_offset: Any = None,
    scope: str = "",
    data_alignment: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: Any = None,
    span: Any = None,
) -> ir.Buffer:
    """Storage with a layout of its own. Separators of axes have no effect: memory is flat."""
    scope = {"warp": "shared"}.get(scope, scope)
    dtype = {"uint1": "bool", "int1": "bool"}.get(dtype, dtype) if isinstance(dtype, str) else dtype
    return te.decl_buffer(
        shape, dtype, name, data, strides, elem_offset, scope, data_alignment, offset_factor, buffer_type
    )


Buffer = node("Buffer", ir.Buffer, decl_buffer, READ=1, WRITE=2)


def _strides(b: ir.Buffer) -> tuple[ir.Expr, ...]:
    if b.strides:
        return b.strides
    steps: list[ir.Expr] = []
    step: ir.Expr = B.const(1)
    for n in reversed(b.shape):
        steps.insert(0, step)
        step = B.mul(step, n)
    return tuple(steps)


def _offset_of(b: ir.Buffer) -> Any:
    def offset_of(indices: Any) -> list[ir.Expr]:
        total = B.convert(b.elem_offset)
        for i, step in zip(indices, _strides(b)):
            total = B.add(total, B.mul(i, step))
        return [Analyzer().simplify(total)]

    return offset_of


def _flattened(b: ir.Buffer) -> Any:
    def get_flattened_buffer() -> ir.Buffer:
        if len(b.shape) == 1:
            return b
        size: ir.Expr = B.const(1)
        for n in b.shape:
            size = B.mul(size, n)
        return ir.Buffer(b.name, b.dtype, (size,), (), b.elem_offset, b.scope, b.align_bytes, b.data)

    return get_flattened_buffer


accept(
    ir.Buffer,
    {
        "offset_of": _offset_of,
        "get_flattened_buffer": _flattened,
        "axis_separators": lambda b: [],
        "data_alignment": "align_bytes",
    },
)
