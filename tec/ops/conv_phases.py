"""Convolutions whose channels are places of a larger image, as products whose results are stored there: transposed convolutions by phases, and pixel shuffles.

    y[n, c, q * s + r - first] = conv(x, w)[n, (c, r), q]        r < s, along each dimension

Place y of the output is u = y + first: phase u % s of place u // s. Phases of y are a batch of products of weights by windows, so that nothing is stored twice; of a transposed
convolution no product is with a stuffed zero but where a phase has fewer taps than another. A graph has this operator where a pass put it (`graph.passes.stored_phases`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import te
from ..te import Tensor
from .contraction import Contraction, Fold, Operand, piece_elems
from .conv import distinct_share, split_place
from .layouts import Layout
from .matmul import accumulator
from .registry import COMPLEX, SUMS, Attrs, TensorType, fail, register, static_shape
from .windows import Windows, image_sizes, layouts_of, spatial

_EACH = ("kernel", "strides", "dilations", "before", "factors", "first", "out_space")  # with a value a dimension


def _type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x, w = types
    (lx,), nd = layouts_of(attrs, 1), len(attrs["strides"])
    if x.ndim != len(lx.dims) or w.ndim != nd + 2 or any(len(attrs[k]) != nd for k in _EACH) or x.dtype != w.dtype:
        raise fail(f"phases of a convolution of {x} by {w} with {attrs}")
    sizes = image_sizes(lx, x.shape, attrs)
    if w.shape[:nd] != tuple(attrs["factors"]) or w.shape[-1] != sizes["C"] * math.prod(attrs["kernel"]):
        raise fail(f"phases of a convolution of {x} by {w} with {attrs}: the channels do not fit")
    return [TensorType(x.dtype, (sizes["N"], w.shape[-2], *attrs["out_space"]))]


def _flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    return int(2 * outs[0].size * types[1].shape[-1])


@register("conv_phases", COMPLEX, _type, flops=_flops, traits=[SUMS])
def _conv_phases(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """A convolution of an image with weights (phases of the output along each dimension..., out, terms), whose results lie between each other.

    `kernel`, `strides`, `dilations`, `before` of the convolution; `factors`: phases; `first`: places that are left out; `out_space`. `layouts`: of the image. Terms are (channels, taps) of an
    image that lies as NCHW, (taps, channels) of pixels by channels; `space` (see `windows`).
    """
    (x, w), (out,) = inputs, outputs
    lx: Layout = layouts_of(attrs, 1)[0]
    factors, first, kernel, letters = attrs["factors"], attrs["first"], attrs["kernel"], spatial(attrs)
    counts = [-(-y // s) for y, s in zip(attrs["out_space"], factors)]  # places of a phase
    sizes = image_sizes(lx, static_shape(x), attrs)
    windows = Windows(x, {**attrs, "after": _behind(attrs, counts, [sizes[k] for k in letters])}, lx, True)
    channels, window, is_along = sizes["C"], math.prod(kernel), lx.dims[-1] == "C"

    def element(phase: Sequence[Any], p: Any, k: Any) -> Any:
        n, *places = split_place(p, (sizes["N"], *counts))
        tap, channel = (k // channels, k % channels) if is_along else (k % window, k // window)
        at = {d: q + te.indexdiv(r + f, s) for d, q, r, f, s in zip(letters, places, phase, first, factors)}
        return windows.read({**at, "N": n, "C": channel}, dict(zip(letters, split_place(tap, kernel))))

    def place(*at: Any) -> list[Any]:
        *phase, c, p = at
        n, *places = split_place(p, (sizes["N"], *counts))
        return [n, c, *(q * s + r for q, s, r in zip(places, factors, phase))]

    def find(n: Any, c: Any, *at: Any) -> list[Any]:
        for y, q, s in zip(at, counts, factors):
            n = n * q + te.indexdiv(y, s)
        return [*(te.indexmod(y, s) for y, s in zip(at, factors)), c, n]

    pixels = sizes["N"] * math.prod(counts)
    pixel = Operand(
        element, x.dtype, is_along, math.gcd(piece_elems(x.dtype), channels) if is_along else 1, guarded=True,
        distinct=distinct_share(x, (*factors, pixels, channels, window)), tap=channels if is_along else 1,
        sides=sum(n != 1 for n in kernel),
    )  # fmt: skip
    weights = Operand(lambda phase, c, k: w(*phase, c, k), w.dtype, wide=piece_elems(w.dtype))
    is_cut = any(y % s for y, s in zip(attrs["out_space"], factors))
    return Contraction(
        tuple(factors), static_shape(w)[-2], pixels, channels * window, weights, pixel, accumulator(x.dtype), out.dtype,
        fold=Fold(out.shape, place, find, is_cut), are_apart=factors[-1] > 1,
    ).tensors()  # fmt: skip


def _behind(attrs: Attrs, counts: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """By how many places the last windows of any phase reach beyond the image."""
    each = zip(counts, sizes, *(attrs[k] for k in _EACH[:-1]))
    return tuple(
        max(0, (q - 1 + (s - 1 + f) // s) * stride + (k - 1) * d - b - size + 1)
        for q, size, k, stride, d, b, s, f in each
    )
