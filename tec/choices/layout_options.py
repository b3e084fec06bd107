"""The layouts that a CPU's convolution may have, each with what it is thought to take: the graph's pass chooses among them for all convolutions together.

A block of a vector's channels is computed quickest where channels fill it. Blocks of half a vector waste less of 24 channels or 3 (and an AVX-512 core that
takes two steps for 64 bytes computes them as quickly); plain NCHW needs no copy where a convolution is small beside copies of its image. Times that a search
measured (`tec.tune`) stand in the place of the model's.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..ops.conv import merged_groups
from ..ops.layouts import Layout, plain, space
from ..ops.matmul import accumulator
from ..ops.registry import TensorType
from ..ops.typical import typical
from ..records import dataclass
from ..target import Target
from . import layouts, parallel
from .families.plain_convolutions import FEWEST_COLUMNS, Sizes
from .families.products import packing
from .families.products.tile_clocks import blocked_tile, walk_clocks
from .layouts import Convolution
from .parts.counts import lanes_for
from .rules import figures
from .store import records

TEMPLATE = "convolution layout"  # of records of measured times
_FEW_CHANNELS = layouts.FEW_CHANNELS
# A half-wide block takes twice the instructions for the same sums: where it wastes nothing less it should not win.
_NARROW = 1.1
_LATENCY = 4.0  # clocks of a multiply-add: a plain convolution sums one vector of a row at a time
# Clocks of a multiply-add of a plain convolution whose rows are no whole vectors: lane by lane, with a branch.
_SCALAR = 4.0
_DEPTHWISE = 2.0  # clocks a vector's multiply-add of a window a channel, which loads both operands
_NARROW_ROW = 14  # columns of an image deep within a network
_PICTURE = 224  # rows and columns of a network's input that are open: only how copies compare with sums follows from it
_FEW_REGISTERS = 16  # vectors that a core without AVX-512 has
_HOPELESS = 3.0  # times the best by the model: it errs by less


@dataclass(frozen=True)
class Option:
    """One way to lay a convolution out. convolution: None for plain NCHW."""

    convolution: Convolution | None
    x: Layout
    y: Layout
    seconds: float


def is_open(target: Target, x: TensorType, w: TensorType, attrs: Mapping[str, Any]) -> bool:
    """Whether there is anything to choose for a convolution: of float32, in one group or a window a channel; in other groups where all sizes are known."""
    if target.is_gpu or x.dtype != "float32" or w.dtype != "float32" or attrs.get("fill"):
        return False
    return x.ndim == 4 and (attrs["groups"] == 1 or _is_depthwise(w, attrs) or not x.is_symbolic)


def _typical(t: TensorType) -> TensorType:
    """An image's type with numbers where its sizes are symbolic, the same for all values of a network: one picture, as large as classifiers take."""
    if not t.is_symbolic:
        return t
    return TensorType(t.dtype, tuple(typical(n, _PICTURE if k > 1 else 1) for k, n in enumerate(t.shape)))


def _is_depthwise(w: TensorType, attrs: Mapping[str, Any]) -> bool:
    return bool(attrs["groups"] == w.shape[0] > 1 and w.shape[1] == 1)


def blocks(target: Target, types: Iterable[tuple[TensorType, TensorType, Mapping[str, Any]]]) -> tuple[int, ...]:
    """Blocks worth considering for a network's convolutions (x, weights, attrs): a vector of channels, and half a one where some convolution fills
    that better."""
    whole = max(8, target.vector_bytes // 4)
    half = whole // 2
    if half < 8:  # vectors of 16 bytes have a block of two already
        return (whole,)
    images = [(x.shape[1], w.shape[0]) for x, w, attrs in types if is_open(target, x, w, attrs)]
    channels = {n for of, to in images for n in ((of, to) if of > _FEW_CHANNELS else (to,))}
    return (whole, half) if any(_padded(c, half) < _padded(c, whole) for c in channels) else (whole,)


def _padded(n: int, block: int) -> int:
    return -(-n // block) * block


def options(
    target: Target, x: TensorType, w: TensorType, y: TensorType, attrs: Mapping[str, Any], sizes: tuple[int, ...]
) -> list[Option]:
    """What may be chosen for an open convolution, with blocks of `sizes`."""
    image = _typical(y)
    plain_one = _as_it_is(target, _typical(x), w, image, attrs, x.is_symbolic)
    if attrs["groups"] > 1 and not _is_depthwise(w, attrs):
        return [*_in_groups(target, x, w, y, attrs), plain_one]
    found = [*_blocked(target, w, image, attrs, sizes), plain_one]
    if x.is_symbolic:
        return found
    near = worth_timing(found)
    known = [_measured(target, x, w, attrs, o) for o in near]
    if all(s is not None for s in known):  # a model's time beside a measured one says nothing
        return [Option(o.convolution, o.x, o.y, s) for o, s in zip(near, known) if s is not None]
    return found


def worth_timing(options: list[Option]) -> list[Option]:
    """Those that the model is not sure about."""
    least = min(o.seconds for o in options)
    return [o for o in options if o.seconds <= _HOPELESS * least]


def _blocked(
    target: Target, w: TensorType, y: TensorType, attrs: Mapping[str, Any], sizes: tuple[int, ...]
) -> Iterable[Option]:
    """Layouts of channels in blocks of each size, with the seconds that a model of the core gives them."""
    axes, acc, nchw = space(y.ndim), accumulator(w.dtype), plain(y.ndim)
    pixels, window = math.prod((y.shape[0], *y.shape[2:])), math.prod(w.shape[2:])
    for to in sizes:
        lies = Layout(f"NC{axes}{to}c")
        clocks = pixels * _padded(w.shape[0], to) * window / to / _vectors_a_clock(target, to)
        if to != sizes[0]:
            clocks *= _NARROW
        elif target.core.registers <= _FEW_REGISTERS and not _is_depthwise(w, attrs):
            # A multiply-add takes no element of memory for all lanes there: each is a load, which tiles of few registers share among few sums.
            row, _, _ = blocked_tile(target, -(-w.shape[0] // to), y.shape[-1])
            clocks = max(clocks, pixels // y.shape[-1] * window * row)
        far = _far_clocks(target, w, y, attrs, to)
        if _is_depthwise(w, attrs):
            made = Convolution(lies, Layout(f"O{axes}{to}o"), lies, dtype=acc)
            yield Option(made, lies, lies, _seconds(target, clocks * _DEPTHWISE))
            continue
        if w.shape[1] <= _FEW_CHANNELS:
            made = Convolution(nchw, Layout(f"OI{axes}{to}o"), lies, dtype=acc)
            yield Option(made, nchw, lies, _seconds(target, clocks * w.shape[1] + far))
        for of in sizes:
            source = Layout(f"NC{axes}{of}c")
            made = Convolution(source, Layout(f"OI{axes}{of}i{to}o"), lies, dtype=acc)
            yield Option(made, source, lies, _seconds(target, clocks * _padded(w.shape[1], of) + far))


def _far_clocks(target: Target, w: TensorType, y: TensorType, attrs: Mapping[str, Any], to: int) -> float:
    """Clocks in which the image or the weights come again from further away than the first cache, by the order that brings less."""
    pixels = math.prod(n * s for n, s in zip(y.shape[2:], attrs["strides"]))
    n, rows = y.shape[0], math.prod(y.shape[2:-1])
    return min(walk_clocks(target, 4.0 * w.shape[1] * pixels, 4.0 * w.size, n, -(-w.shape[0] // to), n * rows))


def _in_groups(
    target: Target, x: TensorType, w: TensorType, y: TensorType, attrs: Mapping[str, Any]
) -> Iterable[Option]:
    """Blocks of a vector for a convolution of some groups, of which so many are computed as one, mostly zeros, as fill a block; none where there are not as many."""
    made = layouts.convolution(target, x, w, dict(attrs), ())
    if made is None or "c" not in made.y.blocks:
        return
    to = made.y.blocks["c"]
    depth = _padded(w.shape[1] * made.merged, made.x.blocks.get("c", 1)) * math.prod(w.shape[2:])
    pixels = math.prod((y.shape[0], *y.shape[2:]))
    clocks = pixels * _padded(w.shape[0], to) * depth / to / _vectors_a_clock(target, to)
    yield Option(made, made.x, made.y, _seconds(target, clocks))


def _as_it_is(
    target: Target, x: TensorType, w: TensorType, y: TensorType, attrs: Mapping[str, Any], is_open: bool
) -> Option:
    """Plain NCHW by register tiles of channels and columns, or as weights times windows; where rows are too short for them, by sums one after another."""
    clocks = math.inf
    if y.shape[-1] >= FEWEST_COLUMNS:
        sizes = Sizes.of(x, w, y, attrs)
        clocks = sizes.best(target)
        if is_open and len(sizes.space) > 1:  # of which half are as narrow as those at the end of a classifier
            narrow = replace(sizes, space=(*sizes.space[:-1], _NARROW_ROW)).best(target)
            clocks = (clocks + narrow * sizes.space[-1] / _NARROW_ROW) / 2
    clocks = clocks if is_open else min(clocks, _as_product(target, w, y, attrs))
    if math.isinf(clocks):
        return _plain(target, w, y, attrs, is_open)
    return Option(None, plain(y.ndim), plain(y.ndim), _seconds(target, clocks))


def _as_product(target: Target, w: TensorType, y: TensorType, attrs: Mapping[str, Any]) -> float:
    """Clocks of a plain convolution as weights times windows in panels."""
    groups, window = attrs["groups"], math.prod(w.shape[2:])
    if y.is_symbolic:
        return math.inf
    own_in, own_out = w.shape[1], w.shape[0] // groups
    if merged_groups(groups, own_in * window, own_out) > 1:  # zeros are asked for between groups, element by element
        return math.inf
    is_window = window > 1 or any(n != 1 for n in attrs["strides"])
    sizes = y.shape[0] * groups, own_out, math.prod(y.shape[2:]), own_in * window
    return packing.least_clocks(target, sizes, is_window)


def _plain(target: Target, w: TensorType, y: TensorType, attrs: Mapping[str, Any], is_open: bool) -> Option:
    sums, lanes = y.size * math.prod(w.shape[1:]), lanes_for("float32", target)
    is_whole = y.shape[-1] % lanes == 0 and all(s == 1 for s in attrs["strides"])
    clocks = (
        sums
        * (_LATENCY / lanes if is_whole else _SCALAR)
        * (figures.of(TEMPLATE, target)["open_rows"] if is_open else 1.0)
    )
    return Option(None, plain(y.ndim), plain(y.ndim), _seconds(target, clocks))


def _vectors_a_clock(target: Target, block: int) -> float:
    """Vectors of a block of channels that a core multiplies and adds in a clock: all that compute on 64 bytes have two units of 32."""
    core = target.core
    return core.fma if block * 4 >= core.vector_bytes else max(2.0, core.fma)


def _seconds(target: Target, clocks: float) -> float:
    return parallel.START_SECONDS + clocks / (target.core.clock_mhz * 1e6)


def relayout_seconds(target: Target, t: TensorType, source: Layout, to: Layout) -> float:
    """What a copy of a value (its plain type) from one layout to another takes on one core."""
    if source == to:
        return 0.0
    t = _typical(t)
    others = t.size / max(1, t.shape[1])
    moved = sum(others * _padded(t.shape[1], lies.blocks.get("c", 1)) * 4 for lies in (source, to))
    return _seconds(target, moved / figures.of(TEMPLATE, target)["copied_bytes_a_clock"])


# ---- measured times


def signature(x: TensorType, w: TensorType, attrs: Mapping[str, Any], option: Option) -> str:
    """Names an option of a convolution in records."""
    window = [(k, tuple(attrs[k])) for k in ("strides", "dilations", "before", "after")]
    weights = option.convolution.weights.name if option.convolution is not None else "OIHW"
    text = f"conv {x.dtype} {x.shape} {w.shape} {window} {attrs['groups']} {option.x.name} {weights} {option.y.name}"
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _measured(target: Target, x: TensorType, w: TensorType, attrs: Mapping[str, Any], option: Option) -> float | None:
    found = records.lookup(signature(x, w, attrs, option), target, target.machine)
    return float(found["seconds"]) if isinstance(found, dict) and found.get("template") == TEMPLATE else None
