"""What torch's types, sizes and tensors are in tec."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from tec import ImportModelError
from tec.ops.dims import Dim, Size, maximum, minimum
from tec.te.numpy_dtype import np_dtype

from .remedies import FIX_THE_SIZE

DTYPES = {
    torch.float8_e4m3fn: "float8_e4m3", torch.float8_e5m2: "float8_e5m2", torch.float8_e4m3fnuz: "float8_e4m3fnuz", torch.float8_e5m2fnuz: "float8_e5m2fnuz",
    torch.float32: "float32", torch.float64: "float64", torch.float16: "float16", torch.bfloat16: "bfloat16", torch.int64: "int64",
    torch.int32: "int32", torch.int16: "int16", torch.int8: "int8", torch.uint8: "uint8", torch.bool: "bool",
}  # fmt: skip

_OWN_BITS = (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
COMPLEX_TYPES = {torch.complex64: "complex64", torch.complex128: "complex128"}
PART_TYPES = {"complex64": "float32", "complex128": "float64"}  # of a complex type's real and imaginary part


def dtype_of(dtype: torch.dtype) -> str:
    """The tec dtype. ImportModelError where there is none."""
    found = DTYPES.get(dtype)
    if found is None:
        raise ImportModelError(
            f"values of {dtype}",
            hint="x.to() another type: float32, float16, bfloat16, float64, integers, bool or complex64",
        )
    return found


def array_of(tensor: torch.Tensor) -> Any:
    """A tensor's elements as a NumPy array: of its own memory where they lie one after another in the CPU's."""
    t = tensor.detach()
    if t.is_conj() or t.is_neg():
        t = t.resolve_conj().resolve_neg()
    if t.layout is not torch.strided:
        raise ImportModelError(f"a tensor of layout {t.layout}", hint="x.to_dense()")
    t = t.cpu().contiguous()
    if t.dtype in _OWN_BITS:  # NumPy has them of ml_dtypes alone
        return t.view(torch.int16 if t.itemsize == 2 else torch.uint8).numpy().view(np_dtype(DTYPES[t.dtype]))
    return t.numpy()


def size_of(n: Any, names: Mapping[str, str] | None = None) -> Size:
    """An int, or the `Dim` that a SymInt of torch stands for. names: other names for torch's symbols. ImportModelError for what no shape gives."""
    if not isinstance(n, torch.SymInt):
        return int(n)
    return expression_of(n.node.expr, names or {})


def expression_of(e: Any, names: Mapping[str, str]) -> Size:
    """The size that an expression of torch's symbols is. ImportModelError for what no shape gives."""
    if e.is_Integer:
        return int(e)
    if e.is_Symbol:
        if str(e).startswith(("u", "zuf")):
            raise ImportModelError(
                f"a size that values decide on ({e})",
                hint='torch.compile(module, backend="tec") leaves to torch what tec lacks',
            )
        return Dim(names.get(str(e), str(e)))
    kind = type(e).__name__
    if e.is_Pow and e.args[1].is_Integer and int(e.args[1]) > 0:
        return math.prod([expression_of(e.args[0], names)] * int(e.args[1]))
    if e.is_Mul and e.args[0].is_Rational and not e.args[0].is_Integer:  # a quotient that leaves nothing over
        p, q = int(e.args[0].p), int(e.args[0].q)
        return math.prod(expression_of(a, names) for a in e.args[1:]) * p // q
    args = [expression_of(a, names) for a in e.args]
    if e.is_Add:
        return sum(args)
    if e.is_Mul:
        return math.prod(args)
    if kind in ("FloorDiv", "CleanDiv", "PythonDiv"):
        return args[0] // args[1]
    if kind in ("Mod", "PythonMod"):
        return args[0] % args[1]
    if kind == "Max":
        return maximum(*args)
    if kind == "Min":
        least = args[0]
        for a in args[1:]:
            least = minimum(least, a)
        return least
    raise ImportModelError(f"the size {e}", hint=FIX_THE_SIZE)


def shape_of(value: torch.Tensor, names: Mapping[str, str] | None = None) -> tuple[Size, ...]:
    return tuple(size_of(n, names) for n in value.shape)


def scalar(x: Any, dtype: str) -> Any:
    """A Python number as an element of a type, cut to what it holds as torch does."""
    if dtype.startswith(("int", "uint")) and isinstance(x, float) and not math.isfinite(x):
        raise ImportModelError(f"{x} as {dtype}", hint="a finite number, or a floating type for the tensor")
    return np.asarray(x).astype(np_dtype(dtype))
