"""Matrix products for GPUs: contractions whose operands reach shared memory as padded tiles.

An operand of a tiled product is a stage of its own, tagged "tile": zero outside of the real operand, its extents multiples
of the tile. A schedule computes it piece by piece in shared memory and never stores it whole. So the product's loops carry
no guards; only the store of the result does. `conv_gemm` is the convolution in this form: its second operand is the windows
of the image (im2col).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import te
from ..target import as_target
from ..te import Tensor
from .conv import conv_out
from .matmul import _flops as _matmul_flops
from .matmul import _matmul_type, accumulator
from .registry import COMPLEX, Attrs, TensorType, broadcast_index, fail, register, static_shape


def tile_sizes(m: int, n: int, k: int) -> tuple[int, int, int]:
    """Tile of a work-group: rows, columns, and the step along the sum."""
    return (64 if m > 32 else 32 if m > 16 else 16), (64 if n > 32 else 32 if n > 16 else 16), (16 if k > 8 else 8)


def _up(n: int, tile: int) -> int:
    return -(-n // tile) * tile


Element = Callable[..., Any]  # (batch index tuple, row, column) -> value


def _tile(
    batch: Sequence[int], rows: int, cols: int, tile: tuple[int, int], element: Element, dtype: str, name: str
) -> Tensor:
    """An operand as a padded stage over (batch..., rows, cols)."""
    shape = (*batch, _up(rows, tile[0]), _up(cols, tile[1]))

    def body(*i: Any) -> Any:
        *b, r, c = i
        conds = [r < rows] * (shape[-2] != rows) + [c < cols] * (shape[-1] != cols)
        value = element(b, r, c)
        return te.if_then_else(te.all(*conds), value, te.const(0, dtype)) if conds else value

    return te.compute(shape, body, name=name, tag="tile")


def tiled_product(
    batch: Sequence[int],
    m: int,
    n: int,
    k: int,
    a: Element,
    b: Element,
    dtypes: tuple[str, str],
    acc: str,
    out_dtype: str,
) -> Tensor:
    """sum_k a(batch, m, k) * b(batch, k, n) as a guarded copy of a padded product; `a` ignores batches where it has none."""
    from .schedules import matrix_units

    target = as_target()
    tiling = matrix_units.padded(m, n, k, dtypes[0], acc, target) if target.is_gpu and dtypes[0] == dtypes[1] else None
    tm, tn, tk = (tiling.m, tiling.n, tiling.k) if tiling is not None else tile_sizes(m, n, k)
    left = _tile(batch, m, k, (tm, tk), a, dtypes[0], "left")
    right = _tile(batch, k, n, (tk, tn), b, dtypes[1], "right")
    r = te.reduce_axis((0, _up(k, tk)), "k")
    shape = (*batch, _up(m, tm), _up(n, tn))
    y = te.compute(shape, lambda *i: te.sum(left(*i[:-1], r).astype(acc) * right(*i[:-2], r, i[-1]).astype(acc), axis=r), name="product", tag="tiled_product", attrs={"tile": (tm, tn, tk), "tiling": tiling})  # fmt: skip
    return te.compute((*batch, m, n), lambda *i: y(*i).astype(out_dtype), name="result")


def _space(shape: Sequence[int], attrs: Attrs) -> tuple[int, int]:
    """Rows and columns of the output image."""
    kh, kw = attrs["kernel"]
    lists = [attrs[k] for k in ("strides", "dilations", "before", "after")]
    rows, cols = (conv_out(*v) for v in zip(shape[2:], (kh, kw), *lists))
    return rows, cols


def _type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x, w = types
    kh, kw = attrs["kernel"]
    if x.ndim != 4 or w.ndim != 2 or w.shape[1] != x.shape[1] * kh * kw or x.dtype != w.dtype:
        raise fail(f"convolution of {x} by the matrix {w} with windows of {kh} x {kw}")
    rows, cols = _space(x.shape, attrs)
    return [TensorType(x.dtype, (x.shape[0], w.shape[0], rows * cols))]


def _flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    return 2 * outs[0].size * types[1].shape[1]


@register("conv_gemm", COMPLEX, _type, flops=_flops)
def _conv_gemm(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """2-D convolution; weights as a matrix, attributes as `conv` and `kernel`; the output is flat in its pixels."""
    x, w = inputs
    out = outputs[0]
    n, channels, pixels = out.shape
    _, _, h, width = static_shape(x)
    _, ow = _space(static_shape(x), attrs)
    (sh, sw), (dh, dw), (kh, kw) = attrs["strides"], attrs["dilations"], attrs["kernel"]
    (top, left), (bottom, right) = attrs["before"], attrs["after"]
    depth = static_shape(w)[1]

    def window(b: Any, k: Any, p: Any) -> Any:
        i, j = (p // ow) * sh + (k % (kh * kw)) // kw * dh - top, (p % ow) * sw + k % kw * dw - left
        value = x(*b, k // (kh * kw), i, j)
        conds = [i >= 0] * (top > 0) + [i < h] * (bottom > 0) + [j >= 0] * (left > 0) + [j < width] * (right > 0)
        return te.if_then_else(te.all(*conds), value, te.const(0, x.dtype)) if conds else value

    return [
        tiled_product(
            (n,), channels, pixels, depth, lambda b, c, k: w(c, k), window, (w.dtype, x.dtype), accumulator(x.dtype), out.dtype
        )
    ]  # fmt: skip


@register("tiled_matmul", COMPLEX, _matmul_type, flops=_matmul_flops)
def _tiled_matmul(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """As matmul."""
    a, b = inputs
    out = outputs[0]
    ta, tb = attrs.get("transpose_a", False), attrs.get("transpose_b", False)
    shape_a, shape_b = static_shape(a), static_shape(b)
    *batch, m, n = out.shape
    k = shape_a[-2 if ta else -1]
    return [
        tiled_product(
            batch, m, n, k,
            lambda i, r, c: a(*broadcast_index(shape_a[:-2], i), *((c, r) if ta else (r, c))),
            lambda i, r, c: b(*broadcast_index(shape_b[:-2], i), *((c, r) if tb else (r, c))),
            (a.dtype, b.dtype), accumulator(a.dtype), out.dtype,
        )
    ]  # fmt: skip
