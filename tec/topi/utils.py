"""Small helpers that schedules over operators need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..errors import ExprError, listed
from ..ir.expr import IntImm
from ..te import ComputeOp, Operation, Tensor
from .tag import is_injective

__all__ = ["get_const_int", "get_const_tuple", "get_shape", "nchw_pack_layout", "nchw_xc_layout", "traverse_inline"]


def get_const_int(expr: Any) -> int:
    """The int that a constant expression stands for. Raises ExprError for one that is symbolic."""
    if isinstance(expr, IntImm):
        return expr.value
    if isinstance(expr, int):
        return expr
    raise ExprError(f"{expr} is no constant", hint="a number, or an expression of numbers: bind the variable first")


def get_const_tuple(in_tuple: Iterable[Any]) -> tuple[Any, ...]:
    """A shape as ints; what is symbolic in it stays as it is."""
    return tuple(n.value if isinstance(n, IntImm) else n for n in in_tuple)


def get_shape(src_shape: Iterable[Any]) -> tuple[Any, ...]:
    """The same as `get_const_tuple`."""
    return get_const_tuple(src_shape)


def nchw_pack_layout(layout_info: str) -> bool:
    """Whether a layout has blocks of channels and of pictures (NCHW2n16c)."""
    return layout_info.startswith("NCHW") and "c" in layout_info and "n" in layout_info


def nchw_xc_layout(layout_info: str) -> bool:
    """Whether a layout has blocks of channels alone (NCHW16c)."""
    return layout_info.startswith("NCHW") and layout_info.endswith("c") and layout_info[4:-1].isnumeric()


def traverse_inline(s: Any, final_op: Operation, callback: Callable[[Operation], None]) -> None:
    """Calls `callback` for each operation from the inputs to `final_op`, and inlines those of an injective tag that are not outputs."""
    visited: set[Operation] = set()

    def go(op: Operation) -> None:
        if op in visited:
            return
        visited.add(op)
        if is_injective(op.tag):
            if op not in s.outputs:
                s[op].compute_inline()
            for t in op.input_tensors:
                if isinstance(t, Tensor) and isinstance(t.op, ComputeOp):
                    go(t.op)
        callback(op)

    go(final_op)


__dir__ = listed(__name__)
