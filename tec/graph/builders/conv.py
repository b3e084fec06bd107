"""Convolutions and windows over (batch, channels, ...space)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import ImportModelError
from ...ops.dims import Size, maximum, require
from ..graph import Value
from .builder import Builder
from .norm import channel_shape


def same_pads(
    space: Sequence[Size], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], upper: bool
) -> tuple[list[Size], list[Size]]:
    """Padding before and after, such that a window counts ceil(size / stride) places; `upper`: an odd one goes after."""
    before, after = [], []
    for n, k, s, d in zip(space, kernel, strides, dilations):
        total = maximum(((n + s - 1) // s - 1) * s + d * (k - 1) + 1 - n, 0)
        small, large = total // 2, total - total // 2
        before.append(small if upper else large)
        after.append(large if upper else small)
    return before, after


@dataclass(frozen=True)
class Windows:
    """Windows over the padded space: `out` of them along each dimension; padding after, with what the last ones overhang."""

    kernel: tuple[int, ...]
    after: tuple[Size, ...]
    out: tuple[Size, ...]


def pool_windows(
    x: Value,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    before: Sequence[Size],
    after: Sequence[Size],
    ceil: bool,
) -> Windows:
    """The windows of a pooling of `x`; with `ceil` those that begin inside and end past the end count. ImportModelError where none fits."""
    kernel = list(kernel)
    out, reach = [], []
    for k, n in enumerate(x.shape[2:]):
        window = dilations[k] * (kernel[k] - 1) + 1
        span = n + before[k] + after[k] - window
        if ceil and isinstance(span, int) and -strides[k] < span < 0 and dilations[k] == 1:
            # One window that overhangs its input (EfficientNet's last pooling): what it covers is all there is.
            kernel[k], window, span = kernel[k] + span, window + span, 0
        if not require(0, "<=", span, f"windows of {kernel} over {x.type}"):
            raise ImportModelError(f"window {kernel} is larger than the padded input {x.type}")
        count = (-(-span // strides[k]) if ceil else span // strides[k]) + 1
        # A window that would start in the padding at the end does not count.
        if ceil and (count - 1) * strides[k] >= n + before[k]:
            count -= 1
        out.append(count)
        reach.append(maximum((count - 1) * strides[k] + window - n - before[k], after[k], 0))
    return Windows(tuple(kernel), tuple(reach), tuple(out))


def add_bias(b: Builder, y: Value, bias: Value | None) -> Value:
    """y plus one value a channel."""
    return y if bias is None else b.op("add", y, b.reshape(bias, channel_shape(bias, y.ndim)))


def conv_transpose(
    b: Builder,
    x: Value,
    w: Value,
    strides: Sequence[int],
    dilations: Sequence[int],
    before: Sequence[int],
    out: Sequence[int],
    groups: int,
) -> Value:
    """x (batch, cin, ...space) by w (cin, cout / groups, ...kernel), cut to `out` places from `before` on."""
    if all(d == 1 for d in dilations):
        return _transposed_by_phases(b, x, w, strides, before, out, groups)
    return b.op(
        "conv_transpose", x, w, strides=tuple(strides), dilations=tuple(dilations), before=tuple(before),
        out_space=tuple(out), groups=groups,
    )  # fmt: skip


def _transposed_by_phases(
    b: Builder, x: Value, w: Value, strides: Sequence[int], before: Sequence[int], out: Sequence[int], groups: int
) -> Value:
    """A transposed convolution as a plain one with an output channel for each phase of the stride, then interleaved.

    Output place y + before = q * stride + p takes input q - t by window place p + t * stride: for each phase p a
    convolution of stride 1 over q. No multiplication by stuffed zeros is left, and the convolution's own schedules serve.
    """
    nd = x.ndim - 2
    n, space = x.shape[0], x.shape[2:]
    cout = w.shape[1]
    steps = [-(-k // s) for k, s in zip(w.shape[2:], strides)]
    count = [-(-(o + p) // s) for o, p, s in zip(out, before, strides)]
    # With fewer places than inputs the tail of the input is not read.
    after = tuple(max(q - m, 0) for q, m in zip(count, space))
    y = b.op(
        "conv",
        x,
        _phase_weights(b, w, strides, steps, groups),
        strides=(1,) * nd,
        dilations=(1,) * nd,
        before=tuple(t - 1 for t in steps),
        after=after,
        groups=groups,
    )
    for d, q in enumerate(count):
        y = b.slice(y, 2 + d, 0, q)
    if math.prod(strides) > 1:
        y = b.reshape(y, (n, groups * cout, *strides, *count))
        y = b.transpose(y, (0, 1, *[k for d in range(nd) for k in (2 + nd + d, 2 + d)]))
        y = b.reshape(y, (n, groups * cout, *[q * s for q, s in zip(count, strides)]))
    for d, (p, o) in enumerate(zip(before, out)):
        have = y.shape[2 + d] - p
        y = b.slice(y, 2 + d, p, min(o, have))
        if have < o:
            y = b.op("pad", y, before=(0,) * y.ndim, after=tuple(o - have if k == 2 + d else 0 for k in range(y.ndim)))
    return y


def _phase_weights(b: Builder, w: Value, strides: Sequence[int], steps: Sequence[int], groups: int) -> Value:
    """(groups * cout * phases, cin / groups, ...steps): the window's places of each phase, turned around."""
    cin, cout, kernel = w.shape[0], w.shape[1], w.shape[2:]
    nd = len(kernel)
    fill = tuple(t * s - k for t, s, k in zip(steps, strides, kernel))
    if any(fill):
        w = b.op("pad", w, before=(0,) * w.ndim, after=(0, 0, *fill))
    w = b.reshape(w, (groups, cin // groups, cout, *[v for t, s in zip(steps, strides) for v in (t, s)]))
    turned = [3 + 2 * d for d in range(nd)]
    w = b.op(
        "slice", w, starts=tuple(w.shape[k] - 1 if k in turned else 0 for k in range(w.ndim)),
        steps=tuple(-1 if k in turned else 1 for k in range(w.ndim)), sizes=w.shape,
    )  # fmt: skip
    w = b.transpose(w, (0, 2, *[4 + 2 * d for d in range(nd)], 1, *turned))
    return b.reshape(w, (groups * cout * math.prod(strides), cin // groups, *steps))
