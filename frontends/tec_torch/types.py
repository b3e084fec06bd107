"""What torch's types, sizes and tensors are in tec."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

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


class Sizes:
    """The sizes of one graph, each expression in the form in which it came first: torch's guards may hold that two are one (of an image of `s` rows, halved and doubled
    again, 2 * ((s + 1) // 2) is s where both are added). names: other names for torch's symbols."""

    def __init__(self, names: Mapping[str, str] | None = None):
        self.names = names or {}
        self._forms: dict[Dim, Size] = {}
        self._first: list[torch.SymInt] = []  # of each form that stands for itself
        self._dims: list[Dim] = []

    def of(self, n: Any) -> Size:
        """An int, or the `Dim` that a SymInt of torch stands for. Raises ImportModelError for what no shape gives."""
        size = size_of(n, self.names)
        if not isinstance(size, Dim):
            return size
        found = self._forms.get(size)
        if found is None:
            traced = _hint(n)
            # Channels that a convolution's weights have. What is made of a size stays so: one of its factors alone would not say that a view has as many elements.
            is_known = traced is not None and n.node.expr.is_Symbol and statically_known_true(n == traced)
            same = (d for s, d in zip(self._first, self._dims) if _hint(s) == traced and statically_known_true(s == n))
            found = self._forms[size] = traced if is_known and traced is not None else next(same, size)
            if found is size:
                self._first.append(n)
                self._dims.append(size)
        return found

    def shape(self, value: torch.Tensor) -> tuple[Size, ...]:
        return tuple(map(self.of, value.shape))

    def form(self, size: Size) -> Size:
        """The form of a size that tec works out, of those that torch has."""
        return self._forms.get(size, size) if isinstance(size, Dim) else size


def _hint(n: torch.SymInt) -> int | None:
    """The size in the call that the graph was traced for: what differs there is not the same."""
    return n.node.hint if n.node.has_hint() else None  # type: ignore[no-any-return]


def scalar(x: Any, dtype: str) -> Any:
    """A Python number as an element of a type, cut to what it holds as torch does."""
    if dtype.startswith(("int", "uint")) and isinstance(x, float) and not math.isfinite(x):
        raise ImportModelError(f"{x} as {dtype}", hint="a finite number, or a floating type for the tensor")
    return np.asarray(x).astype(np_dtype(dtype))
