"""The tensor-expression language: what users write before any schedule.

A computation is declared (`placeholder`, `compute`, `reduce_axis`, `scan`, `extern`), never run here: each call makes an
operation, the operations form a graph, and `tec.create_schedule` takes it from there.
"""

from typing import TYPE_CHECKING, Any

from ..door import of_tec as _of_tec
from ..errors import ExprError as _ExprError
from ..ir.expr import Var
from . import ir_builder, tensor_ops  # noqa: F401 - tensor_ops gives whole tensors their operators
from .build import (
    AXIS_SEPARATOR,
    const,
    decl_buffer,
    infinity,
    max_value,
    min_value,
    placeholder,
    reduce_axis,
    size_var,
    thread_axis,
    var,
)  # fmt: skip
from .complexes import ComplexTensor, conj, imag, real
from .complexes import complex_ as complex
from .computation import compute, scan
from .einsum import einsum
from .extern import TensorIntrin, decl_tensor_intrin, extern
from .math import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    call_extern,
    call_intrin,
    call_llvm_intrin,
    call_llvm_pure_intrin,
    call_packed,
    call_pure_extern,
    cast,
    ceil,
    ceildiv,
    clz,
    copysign,
    cos,
    cosh,
    ctz,
    div,
    erf,
    exp,
    exp2,
    exp10,
    expm1,
    floor,
    floordiv,
    floormod,
    fma,
    fmod,
    hypot,
    if_then_else,
    indexdiv,
    indexmod,
    isfinite,
    isinf,
    isnan,
    ldexp,
    likely,
    log,
    log1p,
    log2,
    log10,
    nearbyint,
    nextafter,
    popcount,
    pow,
    power,
    reinterpret,
    round,
    rsqrt,
    select,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
    truncdiv,
    truncmod,
)  # fmt: skip
from .operation import ComputeOp, ExternOp, Operation, PlaceholderOp, ScanOp, topo_order
from .reducer import all, any, comm_reducer, max, maximum, min, minimum, prod, sum
from .tags import tag_scope
from .tensor import Tensor, TensorSlice

if TYPE_CHECKING:
    from . import libraries as libraries
    from .evaluation import evaluate
    from .json_text import load_json, save_json

__all__ = [
    "AXIS_SEPARATOR", "ComputeOp", "ExternOp", "Operation", "PlaceholderOp", "ScanOp", "Tensor", "TensorIntrin", "TensorSlice", "Var",
    "abs", "acos", "acosh", "all", "any", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_not",
    "bitwise_or", "bitwise_xor", "call_extern", "call_intrin", "call_llvm_intrin", "call_llvm_pure_intrin",
    "call_packed", "call_pure_extern", "cast", "ceil", "ceildiv", "clz", "comm_reducer", "ComplexTensor", "complex", "compute", "conj", "const", "copysign", "cos", "cosh", "ctz", "einsum",
    "decl_buffer", "decl_tensor_intrin", "div", "erf", "evaluate", "exp", "exp10", "exp2", "expm1", "extern", "floor", "floordiv",
    "floormod", "fma", "fmod", "hypot", "if_then_else", "imag", "indexdiv", "indexmod", "infinity", "ir_builder", "isfinite",
    "isinf", "isnan", "ldexp", "likely", "load_json", "log", "log10", "log1p", "log2", "max", "max_value", "maximum", "min",
    "min_value", "minimum", "nearbyint", "nextafter", "placeholder", "popcount", "pow", "power", "prod", "reduce_axis", "real", "reinterpret",
    "round", "rsqrt", "save_json", "scan", "select", "sigmoid", "sign", "sin", "sinh", "size_var", "sqrt", "sum", "tag_scope", "tan",
    "tanh", "thread_axis", "topo_order", "trunc", "truncdiv", "truncmod", "var",
]  # fmt: skip

_of_tec(_ExprError).check_names(
    globals(), "te",
    "comm_reducer compute const decl_buffer decl_tensor_intrin einsum extern placeholder reduce_axis scan size_var thread_axis var".split(),
)  # fmt: skip

# What is read when it is first asked for: name -> the module that has it, "" for the module itself.
_LATER = {
    "evaluate": ".evaluation", "load_json": ".json_text", "save_json": ".json_text", "libraries": "", "intrin": "", "hybrid": "",
    # te's users know these of tec as te's own.
    "create_schedule": "tec.schedule", "gradient": "tec.autodiff",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """What a first computation does not need, so that `import tec` stays quick, and what te's users know of tec as te's own."""
    import importlib

    if name == "schedule":
        return importlib.import_module("tec.schedule")
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_LATER[name] or f".{name}", __name__)
    found = globals()[name] = getattr(module, name) if _LATER[name] else module
    return found


def __dir__() -> list[str]:
    """The public names, which completion then offers."""
    return sorted(__all__)
