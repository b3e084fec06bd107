"""All converters: importing their modules registers them."""

from __future__ import annotations

from . import (  # noqa: F401
    ops_attention,
    ops_complex,
    ops_control,
    ops_experts,
    ops_grad,
    ops_index,
    ops_linalg,
    ops_make,
    ops_math,
    ops_nn,
    ops_quantized,
    ops_reduce,
    ops_resize,
    ops_rnn,
    ops_shape,
    ops_special,
    ops_vision,
)
from .importer import COMPLEX, CONVERTERS


def operators() -> list[str]:
    """The names of the operators that are converted, sorted: "aten.add" with all its overloads, "aten.scatter_reduce.two" the one."""
    return sorted({str(target) for target in CONVERTERS | COMPLEX})
