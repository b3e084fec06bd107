"""Matrix products for GPUs: contractions whose operands reach shared memory as padded tiles.

An operand of a tiled product is a stage of its own, tagged "tile": zero outside of the real operand, its extents multiples
of the tile. A schedule computes it piece by piece in shared memory and never stores it whole. So the product's loops carry
no guards; only the store of the result does. `conv_gemm` is the convolution in this form: its second operand is the windows
of the image (im2col).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import te
from ..ir.dtype import dtype_info
from ..target import as_target
from ..te import Tensor
from .conv import conv_out
from .dims import Size, divisor, is_symbolic, round_up, typical
from .matmul import _flops as _matmul_flops
from .matmul import _matmul_type, accumulator
from .registry import COMPLEX, Attrs, TensorType, broadcast_index, fail, register, static_shape
from .views import apply_steps, contiguous_run

_FEW_GROUPS = 64  # work-groups below which a GPU is better off with more and smaller ones


def tile_sizes(m: Size, n: Size, k: Size, batch: Size = 1) -> tuple[int, int, int]:
    """Tile of a work-group without matrix units: rows, columns, and the step along the sum."""
    m, n, k = typical(m), typical(n), typical(k)
    rows, cols = (64 if x > 32 else 32 if x > 16 else 16 for x in (m, n))
    if typical(batch) * -(-m // rows) * -(-n // cols) < _FEW_GROUPS:
        rows, cols = min(rows, 32), min(cols, 32)
    return rows, cols, 16 if k > 8 else 8


def piece_elems(dtype: str) -> int:
    """Elements that one 16-byte access moves."""
    return max(1, 16 // dtype_info(dtype).bytes)


Element = Callable[..., Any]  # (batch index tuple, row, column) -> value


def _tile(
    batch: Sequence[int],
    rows: Size,
    cols: Size,
    tile: tuple[int, int],
    element: Element,
    dtype: str,
    name: str,
    wide: int = 1,
    more: dict[str, Any] | None = None,
) -> Tensor:
    """An operand as a padded stage over (batch..., rows, cols); `wide` neighbours of a row lie side by side in memory."""
    shape = (*batch, round_up(rows, tile[0]), round_up(cols, tile[1]))

    def body(*i: Any) -> Any:
        *b, r, c = i
        conds = [r < rows] * (shape[-2] != rows) + [c < cols] * (shape[-1] != cols)
        value = element(b, r, c)
        return te.if_then_else(te.all(*conds), value, te.const(0, dtype)) if conds else value

    tiled: Tensor = te.compute(
        shape, body, name=name, tag="tile", attrs={"wide": math.gcd(wide, divisor(cols)), **(more or {})}
    )
    return tiled


@dataclass(frozen=True)
class Operand:
    """One side of a product: its element at (batch index, i, k), i counting rows of A or columns of B.

    `k_last`: the tile in shared memory is [i, k], else [k, i]; it should be as the operand lies in memory, `wide` of whose
    elements along the tile's rows lie side by side from a multiple of `wide` on (1: none are known to). `guarded`: elements
    come under conditions of their own.
    """

    at: Element
    dtype: str
    k_last: bool = True
    wide: int = 1
    guarded: bool = False


def tiled_product(
    batch: Sequence[int], m: Size, n: Size, k: Size, a: Operand, b: Operand, acc: str, out_dtype: str
) -> Tensor:
    """sum_k a(batch, m, k) * b(batch, n, k) as a guarded copy of a padded product."""
    from .schedules import matrix_units

    target = as_target()
    tiling = None
    if target.is_gpu and a.dtype == b.dtype:
        guarded = a.guarded or b.guarded or is_symbolic((m, n, k))
        sizes = typical(m), typical(n), typical(k), typical(math.prod(batch))
        tiling = matrix_units.padded(*sizes, a.dtype, acc, target, guarded)
    tm, tn, tk = (tiling.m, tiling.n, tiling.k) if tiling is not None else tile_sizes(m, n, k, math.prod(batch))

    def turned(o: Operand, rows: Size, step: int) -> tuple[int, int] | None:
        """How an operand that lies along its rows or columns is turned round on its way, a block of (rows, k) a thread."""
        if (
            tiling is None
            or o.k_last
            or o.guarded
            or is_symbolic((rows, k))
            or rows % step
            or k % tk
            or target.kind == "cuda"
        ):
            return None
        return matrix_units.turning(tiling, step, o.wide, o.dtype, target)

    blocks = turned(a, m, tm), turned(b, n, tn)
    # From here on a turned operand is [i, k] like any other.
    a, b = (replace(o, k_last=True, wide=1) if block else o for o, block in zip((a, b), blocks))

    def tile(o: Operand, rows: Size, step: int, block: tuple[int, int] | None, name: str) -> Tensor:
        more = {"turn": block} if block else {}
        if o.k_last:
            return _tile(batch, rows, k, (step, tk), o.at, o.dtype, name, o.wide, more)
        return _tile(batch, k, rows, (tk, step), lambda i, r, c: o.at(i, c, r), o.dtype, name, o.wide)

    left, right = tile(a, m, tm, blocks[0], "left"), tile(b, n, tn, blocks[1], "right")
    r = te.reduce_axis((0, round_up(k, tk)), "k")

    def body(*at: Any) -> Any:
        *lead, i, j = at
        x = left(*lead, *((i, r) if a.k_last else (r, i)))
        y = right(*lead, *((j, r) if b.k_last else (r, j)))
        return te.sum(x.astype(acc) * y.astype(acc), axis=r)

    shape = (*batch, round_up(m, tm), round_up(n, tn))
    y = te.compute(shape, body, name="product", tag="tiled_product", attrs={"tile": (tm, tn, tk), "tiling": tiling})
    result: Tensor = te.compute((*batch, m, n), lambda *i: y(*i).astype(out_dtype), name="result")
    return result


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

    weights = Operand(lambda b, c, k: w(c, k), w.dtype, wide=piece_elems(w.dtype))
    windows = Operand(lambda b, p, k: window(b, k, p), x.dtype, k_last=False, guarded=any((top, left, bottom, right)))
    return [tiled_product((n,), channels, pixels, depth, weights, windows, accumulator(x.dtype), out.dtype)]


@register("tiled_matmul", COMPLEX, _matmul_type, flops=_matmul_flops)
def _tiled_matmul(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """As matmul."""
    runs, operands = [], []
    for x, key in zip(inputs, ("view_a", "view_b")):
        shape, steps = static_shape(x), attrs.get(key, ())
        runs.append(contiguous_run(shape, steps, piece_elems(x.dtype)) if steps else piece_elems(x.dtype))
        operands.append(apply_steps(x, shape, steps))
    a, b = operands
    out = outputs[0]
    ta, tb = attrs.get("transpose_a", False), attrs.get("transpose_b", False)
    shape_a, shape_b = static_shape(a), static_shape(b)
    *batch, m, n = out.shape
    left = Operand(
        lambda i, r, k: a(*broadcast_index(shape_a[:-2], i), *((k, r) if ta else (r, k))),
        a.dtype,
        not ta,
        runs[0],
    )
    right = Operand(
        lambda i, c, k: b(*broadcast_index(shape_b[:-2], i), *((c, k) if tb else (k, c))),
        b.dtype,
        tb,
        runs[1],
    )
    return [tiled_product(batch, m, n, shape_a[-2 if ta else -1], left, right, accumulator(a.dtype), out.dtype)]
