"""Matrix products, batched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import te
from ..te import Tensor
from .registry import COMPLEX, Attrs, TensorType, broadcast_index, broadcast_shapes, fail, register, static_shape


def accumulator(dtype: str, other: str | None = None) -> str:
    """The type that products of `dtype` are summed in."""
    if dtype in ("float16", "bfloat16"):
        return "float32"
    return "int32" if dtype in ("int8", "uint8") else dtype


def _matmul_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    a, b = types
    ta, tb = attrs.get("transpose_a", False), attrs.get("transpose_b", False)
    if a.ndim < 2 or b.ndim < 2:
        raise fail(f"matmul of {a} and {b}: at least two dimensions each")
    m, ka = a.shape[-2:][::-1] if ta else a.shape[-2:]
    kb, n = b.shape[-2:][::-1] if tb else b.shape[-2:]
    small = {"int8", "uint8"}
    if ka != kb or (a.dtype != b.dtype and not {a.dtype, b.dtype} <= small):
        raise fail(f"matmul of {a}{' transposed' * ta} and {b}{' transposed' * tb}")
    dtype = attrs.get("out_dtype") or ("int32" if a.dtype in small else a.dtype)
    return [TensorType(dtype, (*broadcast_shapes(a.shape[:-2], b.shape[:-2]), m, n))]


def _flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    return 2 * outs[0].size * types[0].shape[-2 if attrs.get("transpose_a") else -1]


@register("matmul", COMPLEX, _matmul_type, flops=_flops)
def _matmul(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """Products of the last two dimensions; `transpose_a`, `transpose_b`; `out_dtype`. 16-bit floats and bytes accumulate in 32 bits."""
    a, b = inputs
    out = outputs[0]
    ta, tb = attrs.get("transpose_a", False), attrs.get("transpose_b", False)
    shape_a, shape_b = static_shape(a), static_shape(b)
    acc = accumulator(a.dtype)
    k = te.reduce_axis((0, shape_a[-2 if ta else -1]), "k")

    def body(*i: Any) -> Any:
        *batch, m, n = i
        x = a(*broadcast_index(shape_a[:-2], batch), *((k, m) if ta else (m, k)))
        y = b(*broadcast_index(shape_b[:-2], batch), *((n, k) if tb else (k, n)))
        return te.sum(x.astype(acc) * y.astype(acc), axis=k)

    c = te.compute(out.shape, body, name="matmul", tag="matmul")
    return [c if acc == out.dtype else te.compute(out.shape, lambda *i: c(*i).astype(out.dtype), name="matmul_cast")]
