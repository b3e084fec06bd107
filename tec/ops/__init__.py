"""Operators: te definitions by family, with type inference and fusion kinds. `OPS` is the table."""

from ..errors import listed
from . import (
    arithmetic,
    attention,
    collective,
    conv,
    conv_phases,
    conv_sum,
    deform,
    elementwise,
    experts,
    factors,
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
    special,
    tap_sum,
    transform_layout,
    trees,
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
    "BROADCAST", "COMPLEX", "ELEMENTWISE", "INJECTIVE", "KINDS", "OPAQUE", "OPS", "REDUCTION", "OpDef", "TensorType", "arithmetic", "attention", "collective", "conv", "conv_phases", "conv_sum", "deform",
    "elementwise", "experts", "factors", "get_op", "image", "linear_recurrence", "matmul", "microscaling", "norm", "packed", "pool", "projection", "recurrent", "reduce", "register", "rotary", "scatter", "shape", "sizes",
    "sort", "special", "tap_sum", "transform_layout", "trees", "vjp",
]  # fmt: skip


__dir__ = listed(__name__)
