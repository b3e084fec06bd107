"""Pictures cut into batches and put together again, resampled volumes, and losses: `topi.nn.space_to_batch_nd`, `batch_to_space_nd`,
`upsampling3d`, `nll_loss`, `scale_shift_nhwc`, `conv1d`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import te
from ..errors import ExprError
from ..te import Tensor
from . import nn
from . import reduction as reductions
from .channels_last import conv1d_nwc
from .operators import axis_of, check_sizes, compute, tensor, type_of
from .resizing import resize3d
from .tag import BROADCAST, INJECTIVE
from .transform import reshape, strided_slice, transpose

__all__ = [
    "batch_to_space_nd", "conv1d", "fifo_buffer", "nll_loss", "scale_shift_nchwc", "scale_shift_nhwc", "space_to_batch_nd",
    "unpack_NCHWc_to_nchw", "upsampling3d",
]  # fmt: skip


def _numbers(values: Any, what: str, count: int | None = None) -> list[int]:
    found = [getattr(v, "value", v) for v in values]
    if not all(isinstance(v, int) for v in found) or count not in (None, len(found)):
        raise ExprError(f"{what} is {values!r}", hint="a number for each dimension of the picture")
    return found


def space_to_batch_nd(
    data: Tensor,
    block_shape: Sequence[int],
    pad_before: Sequence[int],
    pad_after: Sequence[int],
    pad_value: float = 0.0,
) -> Tensor:
    """The dimensions behind the first, padded, in blocks: element (i, j) of each block goes to a batch of its own. Raises ExprError where blocks do not fit.

    >>> topi.nn.space_to_batch_nd(te.placeholder((1, 4, 6, 3), name="x"), [2, 2], [0, 0], [0, 0]).shape
    (4, 2, 3, 3)
    """
    x, block = tensor(data, "space_to_batch_nd"), _numbers(block_shape, "space_to_batch_nd: block_shape")
    m = len(block)
    before, after = (
        _numbers(pad_before, "space_to_batch_nd: pad_before", m),
        _numbers(pad_after, "space_to_batch_nd: pad_after", m),
    )
    if any((*before, *after)):
        rest = [0] * (x.ndim - m - 1)
        x = nn.pad(x, [0, *before, *rest], [0, *after, *rest], float(pad_value))
    batch, *space = type_of(x).shape
    if any(isinstance(n, int) and n % b for n, b in zip(space, block)):
        raise ExprError(
            f"space_to_batch_nd of {space[:m]} places in blocks of {block}", hint="padding that makes them fit"
        )
    parts = [v for n, b in zip(space, block) for v in (n // b, b)]
    cut = reshape(x, (batch, *parts, *space[m:]))
    order = [2 * k + 2 for k in range(m)] + [0] + [2 * k + 1 for k in range(m)] + list(range(2 * m + 1, cut.ndim))
    return reshape(
        transpose(cut, order), (batch * math.prod(block), *[n // b for n, b in zip(space, block)], *space[m:])
    )


def batch_to_space_nd(
    data: Tensor, block_shape: Sequence[int], crop_begin_list: Sequence[int], crop_end_list: Sequence[int]
) -> Tensor:
    """The inverse of `space_to_batch_nd`, cut at both ends. Raises ExprError where the batch is no whole number of blocks.

    >>> topi.nn.batch_to_space_nd(te.placeholder((4, 2, 3, 3), name="x"), [2, 2], [0, 0], [0, 1]).shape
    (1, 4, 5, 3)
    """
    x, block = tensor(data, "batch_to_space_nd"), _numbers(block_shape, "batch_to_space_nd: block_shape")
    m = len(block)
    begin, end = (
        _numbers(crop_begin_list, "batch_to_space_nd: crop_begin_list", m),
        _numbers(crop_end_list, "batch_to_space_nd: crop_end_list", m),
    )
    batch, *space = type_of(x).shape
    total = math.prod(block)
    if isinstance(batch, int) and batch % total:
        raise ExprError(
            f"batch_to_space_nd of {batch} pictures in blocks of {block}", hint="a multiple of the block's elements"
        )
    cut = reshape(x, (*block, batch // total, *space))
    order = [m, *[v for k in range(m) for v in (m + 1 + k, k)], *range(2 * m + 1, cut.ndim)]
    whole = [n * b for n, b in zip(space, block)]
    made = reshape(transpose(cut, order), (batch // total, *whole, *space[m:]))
    if not any((*begin, *end)):
        return made
    stop = [n - e for n, e in zip(whole, end)]
    rest = list(space[m:])
    return strided_slice(made, [0, *begin, *[0] * len(rest)], [batch // total, *stop, *rest])


def upsampling3d(
    data: Tensor,
    scale_d: float,
    scale_h: float,
    scale_w: float,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "half_pixel",
    output_shape: Any = None,
) -> Tensor:
    """A volume so many times as deep, high and wide: `image.resize3d`. method: nearest_neighbor or trilinear.

    >>> topi.nn.upsampling3d(te.placeholder((1, 2, 3, 4, 5), name="x"), 2, 2, 2).shape
    (1, 2, 6, 8, 10)
    """
    x = tensor(data, "upsampling3d")
    space = type_of(x).shape[2:] if layout == "NCDHW" else type_of(x).shape[1:4]
    if not all(isinstance(n, int) for n in space):
        raise ExprError("upsampling3d of a volume of open sizes", hint="give the placeholder numbers")
    size = [round(n * s) for n, s in zip(space, (scale_d, scale_h, scale_w))]
    mode = "asymmetric" if method == "nearest_neighbor" else coordinate_transformation_mode
    return resize3d(x, None, size, layout, method, mode)


def conv1d(
    data: Tensor,
    kernel: Tensor,
    strides: Any = 1,
    padding: Any = "VALID",
    dilation: Any = 1,
    data_layout: str = "NCW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> Tensor:
    """`conv1d_ncw` or, of layout "NWC", `conv1d_nwc`. Raises ExprError for another layout.

    >>> topi.nn.conv1d(te.placeholder((1, 3, 9), name="x"), te.placeholder((4, 3, 3), name="w")).shape
    (1, 4, 7)
    """
    of = {"NCW": ("OIW", nn.conv1d_ncw), "NWC": ("WIO", conv1d_nwc)}.get(data_layout)
    if of is None or kernel_layout not in ("", of[0]):
        raise ExprError(f"conv1d of layouts {data_layout} and {kernel_layout}", hint="NCW with OIW, NWC with WIO")
    return of[1](data, kernel, strides, padding, dilation, out_dtype)


def scale_shift_nhwc(Input: Tensor, Scale: Tensor, Shift: Tensor) -> Tensor:
    """Input * Scale + Shift, one of each a channel, the last dimension.

    >>> v = te.placeholder((3,), name="v")
    >>> topi.nn.scale_shift_nhwc(te.placeholder((1, 4, 5, 3), name="x"), v, v).shape
    (1, 4, 5, 3)
    """
    x, a, b = (tensor(t, "scale_shift_nhwc") for t in (Input, Scale, Shift))
    return compute(x.shape, lambda *i: x(*i) * a(i[-1]) + b(i[-1]), "scale_shift", BROADCAST)


def scale_shift_nchwc(Input: Tensor, Scale: Tensor, Shift: Tensor) -> Tensor:
    """Input * Scale + Shift of (batch, chunks, height, width, block), one of each a channel: (chunks, block).

    >>> v = te.placeholder((2, 8), name="v")
    >>> topi.nn.scale_shift_nchwc(te.placeholder((1, 2, 4, 5, 8), name="x"), v, v).shape
    (1, 2, 4, 5, 8)
    """
    x, a, b = (tensor(t, "scale_shift_nchwc") for t in (Input, Scale, Shift))
    return compute(x.shape, lambda n, k, h, w, c: x(n, k, h, w, c) * a(k, c) + b(k, c), "scale_shift", BROADCAST)


def unpack_NCHWc_to_nchw(packed_out: Tensor, out_dtype: str) -> Tensor:
    """(batch, chunks, height, width, block) as (batch, channels, height, width) of `out_dtype`.

    >>> topi.nn.unpack_NCHWc_to_nchw(te.placeholder((1, 2, 4, 5, 8), name="x"), "float32").shape
    (1, 16, 4, 5)
    """
    x = tensor(packed_out, "unpack_NCHWc_to_nchw")
    n, chunks, height, width, block = x.shape
    return compute(
        (n, chunks * block, height, width),
        lambda n, c, h, w: te.cast(out_dtype, x[n, te.indexdiv(c, block), h, w, te.indexmod(c, block)]), "unpack", INJECTIVE,
    )  # fmt: skip


def fifo_buffer(data: Tensor, buffer: Tensor, axis: int) -> Tensor:
    """The buffer moved on along `axis`: as many of its first elements leave as `data` has, which stands at its end then. Raises ExprError where shapes do not meet.

    >>> topi.nn.fifo_buffer(te.placeholder((2, 3), name="x"), te.placeholder((2, 8), name="b"), 1).shape
    (2, 8)
    """
    x, b = tensor(data, "fifo_buffer"), tensor(buffer, "fifo_buffer")
    if x.ndim != b.ndim or x.dtype != b.dtype:
        raise ExprError(
            f"fifo_buffer of {x.dtype} {x.shape} into {b.dtype} {b.shape}", hint="one dtype, as many dimensions"
        )
    d = axis_of(axis, x.ndim, "fifo_buffer")
    check_sizes("fifo_buffer", *((m, n) for k, (m, n) in enumerate(zip(x.shape, b.shape)) if k != d))
    new, size = x.shape[d], b.shape[d]

    def element(*i: Any) -> Any:
        at = i[d] + new  # in the buffer and then the data
        old = b(*i[:d], at, *i[d + 1 :])
        return te.if_then_else(at < size, old, x(*i[:d], at - size, *i[d + 1 :]))

    return compute(b.shape, element, "fifo_buffer", INJECTIVE)


def nll_loss(
    predictions: Tensor, targets: Tensor, weights: Tensor, reduction: str = "mean", ignore_index: int = -100
) -> Tensor:
    """-predictions[n, t, ...] * weights[t] where t = targets[n, ...], 0 where that is `ignore_index`; their "sum", their "mean" by weight, or "none" of these.

    >>> p, t, w = te.placeholder((4, 5), name="p"), te.placeholder((4,), "int32", "t"), te.placeholder((5,), name="w")
    >>> topi.nn.nll_loss(p, t, w, "none", -1).shape
    (4,)
    """
    if reduction not in ("mean", "sum", "none"):
        raise ExprError(f"nll_loss(reduction={reduction!r})", hint="mean, sum, none")
    p, t, w = (tensor(x, "nll_loss") for x in (predictions, targets, weights))
    zero = te.const(0.0, p.dtype)

    def share(*i: Any) -> Any:
        counts = t(*i) != ignore_index
        return te.if_then_else(counts, w(te.select(counts, t(*i), te.const(0, t.dtype))), zero)

    shares = compute(t.shape, share, "nll_weights", INJECTIVE)

    def term(*i: Any) -> Any:
        counts = t(*i) != ignore_index
        return -p(*i[:1], te.select(counts, t(*i), te.const(0, t.dtype)), *i[1:]) * shares(*i)

    terms = compute(t.shape, term, "nll_loss", INJECTIVE)
    if reduction == "none":
        return terms
    total = reductions.sum(terms)
    if reduction == "sum":
        return total
    by = reductions.sum(shares)
    return compute((), lambda: total() / by(), "nll_mean", BROADCAST)
