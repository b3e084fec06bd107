"""Fourier transforms as sums: `topi.dft`, `topi.stft`. They are for short signals; `tec.array.fft` has fast ones."""

from __future__ import annotations

import math
from typing import Any

from .. import te
from ..errors import ExprError
from ..te import Tensor
from .operators import check_sizes, tensor

__all__ = ["dft", "stft"]


def _turns(row: Any, column: Any, n: Any, dtype: str) -> tuple[Any, Any]:
    """Cosine and sine of 2 pi row column / n. The product is reduced first, so that long signals keep their digits."""
    part = te.floormod(te.cast("int64", row) * column, te.cast("int64", n))
    angle = te.cast(dtype, part) * te.const(2.0 * math.pi, dtype) / te.cast(dtype, n)
    return te.cos(angle), te.sin(angle)


def dft(re_data: Tensor, im_data: Tensor, inverse: bool = False) -> list[Tensor]:
    """The Fourier transform along the last axis, as real and imaginary parts: sum over k of x[k] exp(-2 pi i n k / N); `inverse` turns the sign and divides by N.

    >>> x = te.placeholder((4, 8), name="x")
    >>> [t.shape for t in topi.dft(x, x)]
    [(4, 8), (4, 8)]
    """
    re, im = tensor(re_data, "dft"), tensor(im_data, "dft")
    if re.ndim != im.ndim or not re.ndim or re.dtype != im.dtype or not re.dtype.startswith("float"):
        raise ExprError(
            f"dft of {re.dtype} {re.shape} and {im.dtype} {im.shape}", hint="two float tensors of one shape"
        )
    check_sizes("dft", *zip(re.shape, im.shape))
    n, back = re.shape[-1], bool(getattr(inverse, "value", inverse))

    def part(which: int) -> Tensor:
        k = te.reduce_axis((0, n), name="k")

        def element(*i: Any) -> Any:
            cos, sin = _turns(i[-1], k.var, n, re.dtype)
            sin = sin if back else -sin
            a, b = re(*i[:-1], k), im(*i[:-1], k)
            return te.sum(a * sin + b * cos if which else a * cos - b * sin, axis=k)

        made: Tensor = te.compute(re.shape, element, name="dft_im" if which else "dft_re")
        scaled: Tensor = (
            te.compute(re.shape, lambda *i: made(*i) / te.cast(re.dtype, n), name="scaled") if back else made
        )
        return scaled

    return [part(0), part(1)]


def stft(
    data: Tensor,
    n_fft: int,
    hop_length: int,
    win_length: int,
    window: Tensor,
    normalized: bool,
    onesided: bool,
    output_shape: Any = None,
) -> Tensor:
    """Fourier transforms of windows of (batch, samples), `hop_length` samples apart: (batch, frequencies, windows, 2), real and imaginary parts last.

    A window has `win_length` elements, which are one period of the lowest frequency. normalized: divide by the root of n_fft. onesided: n_fft // 2 + 1
    frequencies, for a real signal the others follow from them. output_shape: these sizes, where the caller knows them.

    >>> x, w = te.placeholder((2, 100), name="x"), te.placeholder((16,), name="w")
    >>> topi.stft(x, 16, 8, 16, w, False, True).shape
    (2, 9, 11, 2)
    """
    x, w = tensor(data, "stft"), tensor(window, "stft")
    if x.ndim != 2 or w.ndim != 1:
        raise ExprError(f"stft of {x.shape} with a window {w.shape}", hint="(batch, samples) and (win_length,)")
    check_sizes("stft", (w.shape[0], win_length))
    shape = output_shape or (
        x.shape[0], n_fft // 2 + 1 if onesided else n_fft, te.floordiv(x.shape[1] - win_length, hop_length) + 1, 2,
    )  # fmt: skip
    k = te.reduce_axis((0, win_length), name="k")

    def element(b: Any, row: Any, column: Any, part: Any) -> Any:
        cos, sin = _turns(row, k.var, win_length, x.dtype)
        return te.sum(w[k] * x[b, column * hop_length + k] * te.select(part == 0, cos, -sin), axis=k)

    made: Tensor = te.compute(shape, element, name="stft")
    if not bool(getattr(normalized, "value", normalized)):
        return made
    scaled: Tensor = te.compute(shape, lambda *i: made(*i) / te.const(math.sqrt(n_fft), x.dtype), name="normalized")
    return scaled
