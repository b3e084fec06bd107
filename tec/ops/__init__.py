"""Operators: te definitions by family, with type inference and fusion kinds. `OPS` is the table."""

from . import (
    arithmetic,
    attention,
    collective,
    conv,
    conv_sum,
    deform,
    elementwise,
    experts,
    image,
    linear_recurrence,
    matmul,
    microscaling,
    norm,
    packed,
    pool,
    projection,
    recurrent,
    reduce,
    rotary,
    scatter,
    shape,
    sizes,
    sort,
    transform_layout,
    vjp,
)
from .registry import (
    BROADCAST,
    COMPLEX,
    ELEMENTWISE,
    INJECTIVE,
    KINDS,
    OPAQUE,
    OPS,
    REDUCTION,
    OpDef,
    TensorType,
    get_op,
    register,
)

__all__ = [
    "BROADCAST", "COMPLEX", "ELEMENTWISE", "INJECTIVE", "KINDS", "OPAQUE", "OPS", "REDUCTION", "OpDef", "TensorType", "arithmetic", "attention", "collective", "conv", "conv_sum", "deform",
    "elementwise", "experts", "get_op", "image", "linear_recurrence", "matmul", "microscaling", "norm", "packed", "pool", "projection", "recurrent", "reduce", "register", "rotary", "scatter", "shape", "sizes",
    "sort", "transform_layout", "vjp",
]  # fmt: skip
