"""Convolutions and windows over (batch, channels, ...space)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ...errors import ImportModelError
from ...ops.dims import Size, maximum, require
from ...records import dataclass
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
            raise ImportModelError(
                f"window {kernel} is larger than the padded input {x.type}",
                hint="a larger image, or more padding: shapes= says how large images are",
            )
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
    out: Sequence[Size],
    groups: int,
) -> Value:
    """x (batch, cin, ...space) by w (cin, cout / groups, ...kernel), cut to `out` places from `before` on; zeros where no window reaches.

    It is the operator `conv_transpose` as one plain convolution and copies, with no multiplication by stuffed zeros; the
    convolution's own schedules serve. `Phases` holds the index equation. Raises ImportModelError where channels, groups and
    attributes do not fit each other.
    """
    nd, cin = x.ndim - 2, x.shape[1]
    lists = strides, dilations, before, out
    if nd < 1 or w.ndim != x.ndim or any(len(v) != nd for v in lists) or min(*strides, *dilations, groups) < 1:
        raise ImportModelError(
            f"transposed convolution of {x.type} by {w.type}: strides {strides}, dilations {dilations}, {groups} groups",
            hint="a number for each dimension of the image, of 1 or more",
        )
    if cin != w.shape[0] or cin % groups or x.dtype != w.dtype:
        raise ImportModelError(
            f"transposed convolution of {x.type} by {w.type} in {groups} groups",
            hint="weights [channels, outputs / groups, ...] of the image's type, with groups that divide the channels",
        )
    if any(isinstance(n, int) and n < 0 for n in out):
        raise ImportModelError(
            f"transposed convolution of {x.type} by {w.type}: padding {before} leaves {out} places",
            hint="less padding, or a larger image",
        )
    phases = [Phases.of(*each) for each in zip(w.shape[2:], strides, dilations, before, out)]
    y = b.op(
        "conv",
        x,
        _phase_weights(b, w, phases, groups),
        strides=(1,) * nd,
        dilations=tuple(p.dilation for p in phases),
        before=tuple(maximum(p.lead, 0) for p in phases),
        after=tuple(p.behind(n) for p, n in zip(phases, x.shape[2:])),
        groups=groups,
    )
    for d, p in enumerate(phases):
        y = b.slice(y, 2 + d, maximum(-p.lead, 0), p.span)
    y = _interleaved(b, b.cast(y, x.dtype), phases)
    for d, (p, first, size) in enumerate(zip(phases, before, out)):
        y = b.slice(y, 2 + d, first - p.start * p.stride, size)
    return y


@dataclass(frozen=True)
class Phases:
    """One dimension of a transposed convolution as `count` convolutions of stride 1, whose results lie between each other.

    Place u of the uncut output (u = y + before) takes input i by tap k where i * s + k * d = u (s: stride, d: dilation; Dumoulin and
    Visin, "A guide to convolution arithmetic for deep learning", arXiv 1603.07285, chapters 4 and 5). With g = gcd(s, d) only the
    multiples u = g * v take anything, and i * s' + k * d' = v (s' = s / g, d' = d / g, which have no common divisor). So v
    and k are of one class: v = k * d' (mod s'), a bijection between the residues of k and of v. The taps of residue p are k = p + t * s',
    a progression; the places that they serve are v = q * s' + p * d' % s', and there

        i = (v - k * d') / s' = q - p * d' // s' - t * d'.

    That is a convolution of stride 1 and dilation d' over q, moved by p * d' // s' places. Residues p >= `kernel` have no tap, and
    their places, as those beside the multiples of g, are zero.
    """

    stride: int  # s
    gcd: int  # g
    dilation: int  # d'
    count: int  # of residues p that have a tap
    taps: int  # of each, with zeros behind the kernel's end
    start: Size  # the first q that the output needs
    span: Size  # places of q - moved, of all phases together

    @classmethod
    def of(cls, kernel: int, stride: int, dilation: int, before: Size, out: Size) -> Phases:
        """The phases of `out` places from `before` on."""
        g = math.gcd(stride, dilation)
        count, taps = min(kernel, stride // g), -(-kernel // (stride // g))
        start = before // stride
        made = cls(stride, g, dilation // g, count, taps, start, 0)
        return replace(made, span=maximum(-(-(before + out) // stride) - start, 1) + made.most)

    @property
    def coprime(self) -> int:
        """s', how many residues there are."""
        return self.stride // self.gcd

    def moved(self, p: int) -> int:
        """By how many places phase `p` is moved."""
        return p * self.dilation // self.coprime

    @property
    def most(self) -> int:
        """By how many the last phase is moved: the first place computed is as many before `start`."""
        return self.moved(self.count - 1)

    @property
    def lead(self) -> Size:
        """Padding before the input; below 0: places that the convolution computes in vain."""
        return (self.taps - 1) * self.dilation + self.most - self.start

    def behind(self, size: Size) -> Size:
        """Padding after an input of `size` places. With fewer places than inputs the input's tail is not read."""
        return maximum(self.span - self.lead + (self.taps - 1) * self.dilation - size, 0)


def _phase_weights(b: Builder, w: Value, phases: Sequence[Phases], groups: int) -> Value:
    """(groups * cout * counts, cin / groups, ...taps): the window's taps of each phase, turned around."""
    cin, cout, kernel = w.shape[0], w.shape[1], w.shape[2:]
    nd = len(kernel)
    fill = tuple(p.taps * p.count - k for p, k in zip(phases, kernel))
    if any(fill):
        w = b.op("pad", w, before=(0,) * w.ndim, after=(0, 0, *fill))
    w = b.reshape(w, (groups, cin // groups, cout, *[v for p in phases for v in (p.taps, p.count)]))
    turned = [3 + 2 * d for d in range(nd)]
    w = b.op(
        "slice", w, starts=tuple(w.shape[k] - 1 if k in turned else 0 for k in range(w.ndim)),
        steps=tuple(-1 if k in turned else 1 for k in range(w.ndim)), sizes=w.shape,
    )  # fmt: skip
    w = b.transpose(w, (0, 2, *[4 + 2 * d for d in range(nd)], 1, *turned))
    return b.reshape(w, (groups * cout * math.prod(p.count for p in phases), cin // groups, *[p.taps for p in phases]))


def _interleaved(b: Builder, y: Value, phases: Sequence[Phases]) -> Value:
    """(batch, channels * counts, ...spans) as (batch, channels, ...places), each phase's results at their places, zeros elsewhere."""
    if all(p.stride == 1 for p in phases):
        return y
    nd = len(phases)
    n, space = y.shape[0], y.shape[2:]
    counts = [p.count for p in phases]
    channels = y.shape[1] // math.prod(counts)
    y = b.reshape(y, (n, channels, *counts, *space))
    for d, p in enumerate(phases):
        y = _in_order(b, y, 2 + d, 2 + nd + d, p)
    y = b.transpose(y, (0, 1, *[k for d in range(nd) for k in (2 + nd + d, 2 + d)]))
    lengths = y.shape[2::2]
    # Between the residues' places lie g - 1 zeros, and behind the last one as many as the stride has left.
    y = b.reshape(y, (n, channels, *[v for d, q in enumerate(lengths) for v in (q, y.shape[3 + 2 * d], 1)]))
    zeros = [v for d, p in enumerate(phases) for v in (0, p.coprime - y.shape[3 + 3 * d], p.gcd - 1)]
    if any(zeros):
        y = b.op("pad", y, before=(0,) * y.ndim, after=(0, 0, *zeros))
    return b.reshape(y, (n, channels, *[q * p.stride for q, p in zip(lengths, phases)]))


def _in_order(b: Builder, y: Value, axis: int, along: int, p: Phases) -> Value:
    """`y` with the phases on `axis` by their residues' places rather than by their taps, and each one moved `along` the places as it is to be."""
    if p.dilation == 1 or p.count == 1:
        return y
    length = p.span - p.most
    residues = {k * p.dilation % p.coprime: k for k in range(p.count)}
    places = sorted(residues)
    made = []
    for at, following in zip(places, [*places[1:], places[-1] + 1]):
        k = residues[at]
        one = b.slice(b.slice(y, axis, k, 1), along, p.most - p.moved(k), length)
        gap = following - at - 1
        if gap:
            one = b.op("pad", one, before=(0,) * y.ndim, after=tuple(gap if v == axis else 0 for v in range(y.ndim)))
        made.append(one)
    return b.concat(made, axis)
