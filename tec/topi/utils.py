"""Small helpers that schedules over operators need."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

from .. import te
from ..errors import ExprError, listed
from ..ir.arith import Analyzer
from ..ir.expr import Expr, IntImm
from ..te import ComputeOp, Operation, Tensor
from .tag import is_injective
from .window import padding_of

__all__ = [
    "InvalidShapeError", "ceil_div", "const_matrix", "const_vector", "equal_const_int", "get_const_float", "get_const_int", "get_const_tuple", "get_float_tuple",
    "get_max_power2_factor", "get_pad_tuple", "get_pad_tuple1d", "get_pad_tuple3d", "get_shape", "is_empty_shape", "nchw_pack_layout", "nchw_xc_layout", "ncw_pack_layout", "ncw_xc_layout", "prod", "ravel_index",
    "simplify", "swap", "traverse_inline", "unravel_index", "within_index",
]  # fmt: skip

InvalidShapeError = ExprError  # what operators here raise for shapes that do not fit


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


def get_shape(src_shape: Iterable[Any], src_layout: str = "", dst_layout: str = "") -> tuple[Any, ...]:
    """A shape as `get_const_tuple` gives it, in the order of another layout with the same letters ("NCHW", "NHWC"). Raises ExprError for other letters."""
    shape = get_const_tuple(src_shape)
    if src_layout == dst_layout:
        return shape
    dims = [[c for c in str(layout) if c.isalpha()] for layout in (src_layout, dst_layout)]
    if sorted(dims[0]) != sorted(dims[1]) or len(dims[0]) != len(shape):
        raise ExprError(
            f"a shape {shape} of layout {src_layout} in layout {dst_layout}", hint="the same letters, one a dimension"
        )
    return tuple(shape[dims[0].index(c)] for c in dims[1])


def get_pad_tuple(padding: Any, kernel: Sequence[int]) -> tuple[int, ...]:
    """Padding of a convolution in front of each dimension, then behind: of a number, one a dimension, all, "SAME" or "VALID"."""
    front, back = padding_of(padding, tuple(kernel), (1,) * len(kernel), "get_pad_tuple")
    return (*front, *back)


def get_const_float(expr: Any) -> float:
    """The float that a constant expression stands for. Raises ExprError for one that is symbolic."""
    value = getattr(expr, "value", expr)
    if isinstance(value, (int, float)):
        return float(value)
    raise ExprError(f"{expr} is no constant", hint="a number, or an expression of numbers: bind the variable first")


def get_float_tuple(in_tuple: Iterable[Any]) -> tuple[float, ...]:
    """Constant expressions as floats."""
    return tuple(map(get_const_float, in_tuple))


def equal_const_int(expr: Any, value: int) -> bool:
    """Whether an expression is this constant; False for one that is symbolic."""
    return isinstance(expr, (int, IntImm)) and get_const_int(expr) == value


def simplify(expr: Any) -> Any:
    """An expression in a simpler form; a number as it is."""
    return Analyzer().simplify(expr) if isinstance(expr, Expr) else expr


def prod(x: Iterable[Any]) -> Any:
    """The product of sizes; 1 (int32) of none."""
    found = list(x)
    return reduce(operator.mul, found) if found else te.const(1, "int32")


def ceil_div(a: Any, b: Any) -> Any:
    """a / b, rounded up, of sizes that are not negative."""
    return te.indexdiv(a + (b - 1), b)


def swap(arr: list[Any], axis: int) -> list[Any]:
    """A list with the element `axis` and the last in each other's place."""
    found = list(arr)
    found[axis], found[-1] = found[-1], found[axis]
    return found


def ravel_index(indices: Iterable[Any], shape: Iterable[Any]) -> Any:
    """The place of an element in row-major order."""
    place: Any = None
    for n, i in zip(shape, indices):
        place = i if place is None else place * n + i
    return place


def unravel_index(idx: Any, shape: Iterable[Any]) -> list[Any]:
    """The indices of the element at a place in row-major order."""
    made: list[Any] = []
    sizes = list(shape)
    for k, n in reversed(list(enumerate(sizes))):
        made.insert(0, 0 if equal_const_int(n, 0) else idx if k == 0 else te.indexmod(idx, n))
        if k and not equal_const_int(n, 0):
            idx = te.indexdiv(idx, n)
    return made


def get_max_power2_factor(n: int, max_value: int | None = None) -> int:
    """The largest power of two that divides n, at most `max_value`."""
    factor = n & -n
    return factor if max_value is None else min(factor, 1 << (max_value.bit_length() - 1))


def is_empty_shape(shape: Iterable[Any]) -> bool:
    """Whether a dimension is known to be 0."""
    return any(equal_const_int(n, 0) for n in shape)


def const_matrix(matrix: Any, name: str = "const_matrix", attrs: Any = None) -> Tensor:
    """A NumPy matrix as a tensor whose elements stand in the code."""
    return _constants(matrix, name)


def const_vector(vector: Any, name: str = "const_vector") -> Tensor:
    """A NumPy vector as a tensor whose elements stand in the code."""
    return _constants(vector, name)


def _constants(values: Any, name: str) -> Tensor:
    dtype = str(values.dtype)

    def element(*i: Any) -> Any:
        place, flat = ravel_index(i, values.shape), values.ravel()
        found = te.const(flat[-1].item(), dtype)
        for k in range(len(flat) - 2, -1, -1):
            found = te.select(place == k, te.const(flat[k].item(), dtype), found)
        return found

    made: Tensor = te.compute(values.shape, element, name=name)
    return made


def within_index(b: Any, e: Any, s: Any, i: Any) -> Any:
    """Whether the slice b:e:s has the element i. With a negative step b is the larger end."""
    forward = te.all(i >= b, i < e, te.floormod(i - b, te.max(s, 1)) == 0)
    backward = te.all(i <= b, i > e, te.floormod(b - i, te.max(-s, 1)) == 0)
    return te.select(s < 0, backward, forward)


def ncw_pack_layout(layout_info: str) -> bool:
    """Whether a layout has blocks of channels and of rows (NCW2n16c)."""
    return layout_info.startswith("NCW") and "c" in layout_info and "n" in layout_info


def ncw_xc_layout(layout_info: str) -> bool:
    """Whether a layout has blocks of channels alone (NCW16c)."""
    return layout_info.startswith("NCW") and layout_info.endswith("c") and layout_info[3:-1].isnumeric()


get_pad_tuple1d = get_pad_tuple3d = get_pad_tuple


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
