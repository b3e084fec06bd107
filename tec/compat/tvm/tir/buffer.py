"""tvm.tir.Buffer and decl_buffer."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

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
    """Storage with a layout of its own. axis_separators: the dimensions before which one stands; memory is flat, and only `get_flattened_buffer` asks for them."""
    scope = {"warp": "shared"}.get(scope, scope)
    dtype = {"uint1": "bool", "int1": "bool"}.get(dtype, dtype) if isinstance(dtype, str) else dtype
    made = te.decl_buffer(
        shape, dtype, name, data, strides, elem_offset, scope, data_alignment, offset_factor, buffer_type
    )
    if axis_separators:
        _SEPARATORS[made.data] = [int(d) for d in axis_separators]
    return made


_SEPARATORS: WeakKeyDictionary[ir.Var, list[int]] = WeakKeyDictionary()  # by the buffer's pointer


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


def flattened(b: ir.Buffer, groups: Sequence[Sequence[int]]) -> ir.Buffer:
    """The same storage with one dimension for each group of dimensions."""
    shape: list[ir.Expr] = []
    for group in groups:
        size: ir.Expr = B.const(1)
        for d in group:
            size = B.mul(size, b.shape[d])
        shape.append(size)
    return ir.Buffer(b.name, b.dtype, tuple(shape), (), b.elem_offset, b.scope, b.align_bytes, b.data)


def _flattened(b: ir.Buffer) -> Any:
    def get_flattened_buffer() -> ir.Buffer:
        ends = [0, *_SEPARATORS.get(b.data, ()), len(b.shape)]
        groups = [range(x, y) for x, y in itertools.pairwise(ends)]
        if len(groups) == len(b.shape):
            return b
        made = flattened(b, groups)
        if len(groups) > 1:
            # The pointer is another, since the separators of one pointer are those of one buffer.
            made.data = ir.Var(b.data.name, "handle")
            _SEPARATORS[made.data] = list(range(1, len(groups)))
        return made

    return get_flattened_buffer


accept(
    ir.Buffer,
    {
        "offset_of": _offset_of,
        "get_flattened_buffer": _flattened,
        "axis_separators": lambda b: list(_SEPARATORS.get(b.data, ())),
        "data_alignment": "align_bytes",
    },
)
