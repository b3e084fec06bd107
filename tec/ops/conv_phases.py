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
from .conv import distinct_share, in_blocks, split_place
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
    image that lies as NCHW, with `block` in blocks of so many channels (`conv`), (taps, channels) of pixels by channels; `space` (see `windows`). together: phases are rows of one product, which reads its windows once, in place
    of a batch.
    """
    (x, w), (out,) = inputs, outputs
    lx: Layout = layouts_of(attrs, 1)[0]
    factors, kernel, letters = attrs["factors"], attrs["kernel"], spatial(attrs)
    sizes = image_sizes(lx, static_shape(x), attrs)
    phases = (_Rows if attrs.get("together") else _Batch)(attrs, sizes["N"], static_shape(w)[-2])
    windows = Windows(x, {**attrs, "after": _behind(attrs, phases.last, [sizes[k] for k in letters])}, lx, True)
    channels, window, is_along = sizes["C"], math.prod(kernel), lx.dims[-1] == "C"
    block = channels if is_along else attrs.get("block") or 1

    def element(batch: Sequence[Any], p: Any, k: Any) -> Any:
        n, *places = split_place(p, (sizes["N"], *phases.counts))
        channel, tap = in_blocks(k, block, window) if block > 1 else (k // window, k % window)
        at = dict(zip(letters, phases.seen(batch, places)))
        return windows.read({**at, "N": n, "C": channel}, dict(zip(letters, split_place(tap, kernel))))

    pixels = sizes["N"] * math.prod(phases.counts)
    apart = (*factors, pixels, channels, window) if phases.batch else (pixels, channels, window)
    pixel = Operand(
        element, x.dtype, is_along, math.gcd(piece_elems(x.dtype), channels) if is_along else 1, guarded=True,
        distinct=distinct_share(x, apart), tap=block, sides=sum(n != 1 for n in kernel),
    )  # fmt: skip
    weights = Operand(lambda batch, i, k: w(*phases.weights(batch, i), k), w.dtype, wide=piece_elems(w.dtype))
    return Contraction(
        phases.batch, phases.rows, pixels, channels * window, weights, pixel, accumulator(x.dtype), out.dtype,
        fold=Fold(out.shape, phases.place, phases.find, phases.is_cut), are_apart=factors[-1] > 1,
    ).tensors()  # fmt: skip


class _Batch:
    """Each phase of the output is a product of its own. counts: places of a phase; last: the last place of the convolution that a phase asks for."""

    def __init__(self, attrs: Attrs, images: int, outs: int):
        self.factors, self.first, self.space, self.images = attrs["factors"], attrs["first"], attrs["out_space"], images
        self.counts = [-(-y // s) for y, s in zip(self.space, self.factors)]
        self.last = [q - 1 + (s - 1 + f) // s for q, s, f in zip(self.counts, self.factors, self.first)]
        self.batch, self.rows = tuple(self.factors), outs
        self.is_cut = any(y % s for y, s in zip(self.space, self.factors))

    def seen(self, batch: Sequence[Any], places: Sequence[Any]) -> list[Any]:
        """The convolution's places."""
        each = zip(places, batch, self.first, self.factors)
        return [q + te.indexdiv(r + f, s) for q, r, f, s in each]

    def weights(self, batch: Sequence[Any], i: Any) -> list[Any]:
        """The index of a row's weights."""
        return [*batch, i]

    def place(self, *at: Any) -> list[Any]:
        *phase, c, p = at
        n, *places = split_place(p, (self.images, *self.counts))
        return [n, c, *(q * s + r for q, s, r in zip(places, self.factors, phase))]

    def find(self, n: Any, c: Any, *at: Any) -> list[Any]:
        for y, q, s in zip(at, self.counts, self.factors):
            n = n * q + te.indexdiv(y, s)
        return [*(te.indexmod(y, s) for y, s in zip(at, self.factors)), c, n]


class _Rows:
    """The phases of a channel are rows of one product beside each other, the last dimension's innermost: what a work-group stores are whole lines. counts: places of
    the convolution, from `begin` on; the first of them have results in front of the output, `cut` places."""

    def __init__(self, attrs: Attrs, images: int, outs: int):
        self.factors, self.space, self.images = attrs["factors"], attrs["out_space"], images
        self.begin, self.cut = zip(*(divmod(f, s) for f, s in zip(attrs["first"], self.factors)))
        self.counts = [-(-(y + f) // s) for y, f, s in zip(self.space, self.cut, self.factors)]
        self.last = [q - 1 + b for q, b in zip(self.counts, self.begin)]
        self.batch: tuple[int, ...] = ()
        self.rows = outs * math.prod(self.factors)
        self.is_cut = any(f or y % s for y, f, s in zip(self.space, self.cut, self.factors))

    def seen(self, batch: Sequence[Any], places: Sequence[Any]) -> list[Any]:
        """The convolution's places."""
        return [q + b for q, b in zip(places, self.begin)]

    def weights(self, batch: Sequence[Any], i: Any) -> list[Any]:
        """The index of a row's weights, which lie by the phases of the output."""
        each = zip(self._phases(i), self.cut, self.factors)
        return [*(te.indexmod(r + (s - f), s) if f else r for r, f, s in each), te.indexdiv(i, math.prod(self.factors))]

    def _phases(self, i: Any) -> list[Any]:
        below = [math.prod(self.factors[d + 1 :]) for d in range(len(self.factors))]
        return [te.indexmod(te.indexdiv(i, n) if n > 1 else i, s) for n, s in zip(below, self.factors)]

    def place(self, *at: Any) -> list[Any]:
        i, p = at
        n, *places = split_place(p, (self.images, *self.counts))
        each = zip(places, self.factors, self._phases(i), self.cut)
        made = [(q * s + r, f) if s > 1 else (q, f) for q, s, r, f in each]
        return [n, te.indexdiv(i, math.prod(self.factors)), *(y - f if f else y for y, f in made)]

    def find(self, n: Any, c: Any, *at: Any) -> list[Any]:
        row = c
        for y, f, q, s in zip(at, self.cut, self.counts, self.factors):
            u = y + f if f else y
            n, row = n * q + te.indexdiv(u, s), row * s + te.indexmod(u, s)
        return [row, n]


def _behind(attrs: Attrs, last: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """By how many places the last windows of any phase reach beyond the image."""
    each = zip(last, sizes, *(attrs[k] for k in ("kernel", "strides", "dilations", "before")))
    return tuple(max(0, q * stride + (k - 1) * d - b - size + 1) for q, size, k, stride, d, b in each)
