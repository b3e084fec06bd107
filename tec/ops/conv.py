"""Convolutions of any number of spatial dimensions, with groups, dilation and asymmetric padding, in any layout; and their transposes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .. import te
from ..te import Tensor
from .contraction import Contraction, Convolved, Fold, Operand, piece_elems
from .dims import Size, is_symbolic, is_zero, require, round_up
from .layouts import Blocked, Layout, Place, plain, plain_weights
from .matmul import accumulator
from .registry import COMPLEX, SUMS, Attrs, TensorType, fail, register, static_shape, unfit
from .windows import Windows, conv_out, image_sizes, spatial

_LEAST_CHANNELS = 16  # of a product of a plain image: a fragment's; groups of fewer are computed together


def _layouts(attrs: Attrs) -> tuple[Layout, Layout, Layout]:
    """Of the input, the weights and the output."""
    rank = len(attrs["strides"]) + 2
    made: tuple[Layout, Layout, Layout] = attrs.get("layouts") or (plain(rank), plain_weights(rank), plain(rank))
    return made


def _sizes(shapes: Sequence[Sequence[Size]], attrs: Attrs) -> tuple[dict[str, Size], dict[str, Size], dict[str, Size]]:
    """Sizes of the axes of input, weights and output."""
    lx, lw, _ = _layouts(attrs)
    letters = spatial(attrs)
    x = image_sizes(lx, shapes[0], attrs)
    w = {"I": 1, **lw.sizes(shapes[1], dict(zip(letters, attrs["kernel"])) if lw.is_flat else None)}
    lists = [attrs[k] for k in ("strides", "dilations", "before", "after")]
    space = [conv_out(x[k], w[k], *rest) for k, *rest in zip(letters, *lists)]
    return x, w, {"N": x["N"], "C": w["O"], **dict(zip(letters, space))}


def output_sizes(shapes: Sequence[Sequence[Size]], attrs: Attrs) -> tuple[dict[str, Size], dict[str, Size]]:
    """Sizes of the axes of weights and output, from the shapes of input and weights."""
    _, w, y = _sizes(shapes, attrs)
    return w, y


def _conv_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x, w = types
    nd = len(attrs["strides"])
    lists = [attrs[k] for k in ("dilations", "before", "after")]
    small = {"int8", "uint8"}
    lx, lw, ly = _layouts(attrs)
    if (
        nd < 1
        or (x.ndim, w.ndim) != (len(lx.dims), len(lw.dims))
        or any(len(v) != nd for v in lists)
        or min(attrs["strides"]) < 1
        or min(attrs["dilations"]) < 1
    ):
        raise fail(
            f"convolution of {x} by {w} with {attrs}",
            hint="data is (batch, channels, size ...) and weights (outputs, channels / group, window ...), of one type; strides, dilations and pads have a number for each spatial dimension",
        )
    sx, sw, sy = _sizes((x.shape, w.shape), attrs)
    g = attrs["groups"]
    if attrs.get("block"):
        sx = {**sx, "C": round_up(sx["C"], attrs["block"])}
    if sx["C"] != sw["I"] * g or sw["O"] % g or (x.dtype != w.dtype and not {x.dtype, w.dtype} <= small):
        what = f"convolution of {x} by {w} in {g} groups: the channels do not fit"
        raise unfit(
            what,
            (sx["C"], sw["I"] * g),
            (sw["O"] % g, 0),
            hint="the data has group times as many channels as the weights' second dimension, and the groups divide the outputs",
        )
    if not all(require(1, "<=", sy[k], f"windows of {w} over {x}") for k in spatial(attrs)):
        raise fail(
            f"convolution of {x} by {w}: the window is larger than the padded input",
            hint="pad the input, feed a larger one, or take a smaller window or dilation",
        )
    made = "int32" if x.dtype in small else accumulator(x.dtype) if "float8" in x.dtype else x.dtype
    return [TensorType(attrs.get("out_dtype") or made, ly.shape(sy))]


def _conv_flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    sizes = _sizes([t.shape for t in types], attrs)[1]
    total: int = 2 * outs[0].size * math.prod(sizes[x] for x in sizes if x != "O")
    return total


@register("conv", COMPLEX, _conv_type, flops=_conv_flops, traits=[SUMS])
def _conv(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """Cross-correlation of (batch, channels, space...) with (out, channels / groups, window...).

    `strides`, `dilations`, `before`, `after` (padding), one a spatial dimension; `groups`; `fill`: what padding holds (0); `out_dtype`.
    `layouts`: of input, weights and output, where they are not NCHW and OIHW; then `kernel` and, of flat inputs, `space` (see `windows`). Weights
    without I: channel by channel. Weights that are flat behind O make it a product of them with the windows (im2col), which are never stored whole.
    `block`: along the sum of such a product come so many channels for each place of the window, then the next as many, the last ones filled up with zeros.
    """
    x, w = inputs
    out = outputs[0]
    lx, lw, ly = _layouts(attrs)
    _, sw, sy = _sizes([static_shape(t) for t in inputs], attrs)
    kernel = tuple(sw[k] for k in spatial(attrs))
    is_product = len(lw.dims) == 2 and "I" in lw.dims[1]
    windows = Windows(x, {**attrs, "kernel": kernel}, lx, ly.is_flat or is_product, attrs.get("fill", 0))
    if is_product:
        return _as_product(attrs, windows, w, out)
    acc, groups = accumulator(x.dtype, out.dtype), attrs["groups"]
    taps, axes = _taps(lw, sw)

    def body(*i: Any) -> Any:
        at = ly.place(i, sy)
        seen = {**at, "C": _channel(at["C"], taps.get("I"), sw, groups)}
        weight = w(*lw.index({**taps, "O": at["C"]}, sw))
        return te.sum(windows.read(seen, taps).astype(acc) * weight.astype(acc), axis=axes)

    depthwise = groups > 1 and sw["I"] == 1
    kind = "depthwise" if depthwise else "conv"
    tag = "pixels" if ly.is_flat else f"blocked {kind}" if ly.blocks else kind
    notes = {"group": lw.group, "strides": attrs["strides"], "dilations": attrs["dilations"]}
    space = [sy[k] for k in ("N", *spatial(attrs))]
    if depthwise and ly.is_flat and not is_symbolic(space):
        notes["pixels"] = tuple(space)
    c = te.compute(out.shape, body, name=kind, tag=tag, attrs=notes)
    made = c if acc == out.dtype else te.compute(out.shape, lambda *i: c(*i).astype(out.dtype), name="conv_cast")
    form = None if depthwise or attrs.get("layouts") else _plain_product(attrs, x, w, out)
    return form.carried(made) if form is not None else [made]


def merged_groups(groups: int, terms: int, own_out: int) -> int:
    """How many groups, each a sum of so many terms for each of its own results, the product of a plain image computes as one, zeros between them."""
    enough = (m for m in range(1, groups + 1) if groups % m == 0 and m * min(terms, own_out) >= _LEAST_CHANNELS)
    return next(enough, groups)


def _plain_product(attrs: Attrs, x: Tensor, w: Tensor, out: TensorType) -> Contraction | None:
    """A convolution of plain images as a product: an image's channels (of some groups, zeros between them, where one has few) by its pixels."""
    sx, sw, sy = _sizes([static_shape(t) for t in (x, w)], attrs)
    letters, groups = spatial(attrs), attrs["groups"]
    extents, taps = [sy[k] for k in letters], [sw[k] for k in letters]
    if is_symbolic((*extents, *(sx[k] for k in letters), sw["I"], sw["O"])):
        return None
    own_in, own_out, window = sw["I"], sw["O"] // groups, math.prod(taps)
    merged = merged_groups(groups, own_in * window, own_out)
    windows = Windows(x, {**attrs, "kernel": tuple(taps)}, plain(x.ndim), True, attrs.get("fill", 0))

    def pixel(batch: Any, p: Any, k: Any) -> Any:
        n, g = batch
        at = {"N": n, "C": g * merged * own_in + k // window, **dict(zip(letters, split_place(p, extents)))}
        return windows.read(at, dict(zip(letters, split_place(k % window, taps))))

    def weight(batch: Any, c: Any, k: Any) -> Any:
        channel = k // window
        value = w(
            batch[1] * merged * own_out + c, channel % own_in if merged > 1 else channel, *split_place(k % window, taps)
        )
        if merged == 1:
            return value
        return te.if_then_else(c // own_out == channel // own_in, value, te.const(0, w.dtype))

    def place(n: Any, g: Any, c: Any, p: Any) -> list[Any]:
        return [n, g * merged * own_out + c, *split_place(p, extents)]

    def find(n: Any, c: Any, *at: Any) -> list[Any]:
        p = at[0]
        for i, size in zip(at[1:], extents[1:]):
            p = p * size + i
        own = merged * own_out
        return [n, te.indexdiv(c, own), te.indexmod(c, own), p]

    run = math.gcd(extents[-1], piece_elems(x.dtype)) if windows.is_same else 1
    sides = (
        Operand(
            weight,
            w.dtype,
            wide=piece_elems(w.dtype) if merged == 1 else 1,
            guarded=merged > 1,
        ),
        Operand(
            pixel, x.dtype, False, run, guarded=_is_padded(attrs),
            distinct=distinct_share(x, (sy["N"], groups * own_in, math.prod(extents), window)), tap=1, sides=_sides(taps),
        ),
    )  # fmt: skip
    sizes = merged * own_out, math.prod(extents), merged * own_in * window
    fold = Fold(out.shape, place, find)
    return Contraction(
        (sy["N"], groups // merged),
        *sizes,
        *sides,
        accumulator(x.dtype, out.dtype),
        out.dtype,
        fold=fold,
        channels=own_out,
        convolved=_convolved(attrs, windows, w, out) if merged == 1 else None,
    )


def _is_padded(attrs: Attrs) -> bool:
    return not all(map(is_zero, (*attrs["before"], *attrs["after"])))


def distinct_share(x: Tensor, windows: Sequence[Size]) -> float:
    """The elements of an image over those of its windows, whose number is the product of `windows`; 1 where a size is open."""
    sizes = (*static_shape(x), *windows)
    if is_symbolic(sizes):
        return 1.0
    return float(min(1.0, math.prod(sizes[: x.ndim]) / max(1, math.prod(windows))))


def split_place(i: Any, sizes: Sequence[int]) -> list[Any]:
    """A place along axes of `sizes` that are counted through as one."""
    made: list[Any] = []
    for size in reversed(sizes[1:]):
        made, i = [te.indexmod(i, size), *made], te.indexdiv(i, size)
    return [i, *made]


def _taps(lw: Layout, sizes: dict[str, Size]) -> tuple[Place, list[Any]]:
    """The sum's axes in the order in which weights are stored, and the place that they are."""
    made = {x: te.reduce_axis((0, n), f"r{x.lower()}") for x, n in _summed(lw, sizes)}
    taps: Place = {x: a for x, a in made.items() if x.isupper()}
    for x in lw.blocks:
        if x in made:
            taps[x.upper()] = Blocked(taps[x.upper()], made[x], lw.blocks[x])
    return taps, list(made.values())


def _summed(lw: Layout, sizes: dict[str, Size]) -> list[tuple[str, Size]]:
    letters = [x for d in lw.dims for x in d if x.upper() != "O"]
    return [(x, lw.blocks[x] if x.islower() else sizes[x] // lw.blocks.get(x.lower(), 1)) for x in letters]


def _channel(c: Any, tap: Any, sizes: dict[str, Size], groups: int) -> Any:
    """The input's channel that output channel `c` sees by the weights' `tap` along I."""
    if tap is None:
        return c
    if groups == 1:
        return tap
    own_in, own_out = sizes["I"], sizes["O"] // groups
    if isinstance(tap, Blocked):  # groups are whole blocks
        outer = c.outer // (own_out // c.block) * (own_in // tap.block) + tap.outer
        return Blocked(outer, tap.inner, tap.block)
    group = c // own_out if own_out > 1 else c
    return group * own_in + tap if own_in > 1 else group


def _as_product(attrs: Attrs, windows: Windows, w: Tensor, out: TensorType) -> list[Tensor]:
    """The convolution as a product: rows and columns are the output's last two dimensions, one of which is channels; the sum runs along the weights'.
    Groups of channels are a batch of products."""
    _, sw, sy = _sizes([static_shape(windows.x), static_shape(w)], attrs)
    depth, groups = static_shape(w)[-1], attrs["groups"]
    *lead, m, n = out.shape
    channels_first = _layouts(attrs)[2].axis("C") == len(lead)
    own_out = sw["O"] // groups

    def weight(batch: Any, c: Any, k: Any) -> Any:
        return w(c if groups == 1 else batch[-1] * own_out + c, k)

    dtype = windows.dtype
    pixels, weights = window_operand(attrs, windows, sw, sy), Operand(weight, w.dtype, wide=piece_elems(dtype))
    sides = (weights, pixels) if channels_first else (pixels, weights)
    acc, convolved = accumulator(dtype, out.dtype), _convolved(attrs, windows, w, out)
    if groups == 1:
        return Contraction(tuple(lead), m, n, depth, *sides, acc, out.dtype, convolved=convolved).tensors()
    m, n = (own_out, n) if channels_first else (m, own_out)
    return Contraction(
        (*lead, groups), m, n, depth, *sides, acc, out.dtype, fold=_grouped(out, own_out, channels_first), convolved=convolved,
    ).tensors()  # fmt: skip


def _convolved(attrs: Attrs, windows: Windows, w: Tensor, out: TensorType) -> Convolved | None:
    """What the windows are of, where all sizes are numbers."""
    (lx, lw, ly), letters, groups = _layouts(attrs), spatial(attrs), attrs["groups"]
    sx, sw, sy = _sizes([static_shape(windows.x), static_shape(w)], attrs)
    taps, block = tuple(sw[x] for x in letters), attrs.get("block", 0)
    extents = tuple(sy[x] for x in ("N", *letters))
    if is_symbolic((*extents, *taps, *(sx[x] for x in letters), sw["I"], sw["O"])) or attrs.get("fill"):
        return None
    own_in, own_out, filled = sw["I"], sw["O"] // groups, windows.sizes["C"] // groups
    by_taps = lw.dims[-1].endswith("I")

    def pixel(g: Any, c: Any, at: Sequence[Any], last: Sequence[int]) -> Any:
        n, *places = at
        value = windows.seen(
            {"N": n, "C": c if groups == 1 else g * own_in + c, **dict(zip(letters, places))}, last[1:]
        )
        return value if filled == own_in else te.if_then_else(c < filled, value, te.const(0, windows.dtype))

    def weight(g: Any, o: Any, c: Any, at: Sequence[Any]) -> Any:
        channel = o if groups == 1 else g * own_out + o
        if block:
            tap = joined_place(at, taps)
            return w(channel, te.indexdiv(c, block) * (block * math.prod(taps)) + tap * block + te.indexmod(c, block))
        return w(*lw.index({"O": channel, "I": c, **dict(zip(letters, at))}, sw))

    def place(g: Any, o: Any, at: Sequence[Any]) -> list[Any]:
        where = {"C": g * own_out + o, **dict(zip(("N", *letters), at))}
        return [where[x] for d in ly.dims for x in d]

    piece = piece_elems(windows.dtype)
    return Convolved(
        extents, (1, *taps), (1, *attrs["strides"]), (1, *attrs["dilations"]), groups, own_in, own_out, pixel, weight,
        math.gcd(piece, own_in) if lx.dims[-1] == "C" else 1, math.gcd(piece, block or own_in) if block or (by_taps and len(lw.dims[-1]) > 1) else 1,
        place, tuple(tuple(sy[x] for x in d) if len(d) > 1 else sy[d] for d in ly.dims), ly.dims[-1] == "C",
    )  # fmt: skip


def joined_place(at: Sequence[Any], sizes: Sequence[int]) -> Any:
    """A place along some axes, counted through as one: what `split_place` takes apart."""
    total = at[0]
    for i, n in zip(at[1:], sizes[1:]):
        total = total * n + i
    return total


def window_operand(attrs: Attrs, windows: Windows, sw: dict[str, Size], sy: dict[str, Size]) -> Operand:
    """The windows of an image (of a group of channels) as a product's operand: pixels of the output by the weights' taps and channels. `sw`, `sy`: sizes of
    the axes of weights and output."""
    lx, lw, ly = _layouts(attrs)
    channels_first = ly.axis("C") == len(ly.dims) - 2
    groups, own_in = attrs["groups"], sw["I"]

    def window(batch: Any, p: Any, k: Any) -> Any:
        batch, first = (list(batch), 0) if groups == 1 else (list(batch)[:-1], batch[-1] * own_in)
        at = ly.place([*batch, 0, p] if channels_first else [*batch, p, 0], sy)
        if block:
            channel, tap = in_blocks(k, block, math.prod(taps_of))
            value = windows.read({**at, "C": channel}, dict(zip(spatial(attrs), split_place(tap, taps_of))))
            return (
                value if channels == own_in else te.if_then_else(channel < channels, value, te.const(0, windows.dtype))
            )
        taps = lw.place([0, k], sw)
        return windows.read({**at, "C": first + taps["I"]}, taps)

    by_taps, block = lw.dims[-1].endswith("I"), attrs.get("block", 0)
    along = lx.dims[-1] == "C" and by_taps  # a tap's channels lie side by side
    taps_of, channels = [sw[k] for k in spatial(attrs)], windows.sizes["C"]
    tap = block or (own_in if by_taps and isinstance(own_in, int) else 1)
    if along and has_runs(attrs, channels):
        # And so do the places of a row of the window, which has the next window's but for its first.
        own_in, tap, taps_of = taps_of[-1], attrs["strides"][-1], [*taps_of[:-1], 1]
    return Operand(
        window, windows.dtype, along, math.gcd(piece_elems(windows.dtype), own_in) if along else 1,
        guarded=_is_padded(attrs) or (block > 0 and channels != own_in),
        distinct=distinct_share(windows.x, [sy[k] for k in ("N", *spatial(attrs))] + [groups, *(sw[k] for k in sw if k != "O")]),
        tap=tap, sides=_sides(taps_of),
    )  # fmt: skip


def has_runs(attrs: Attrs, channels: Size) -> bool:
    """Whether the places of a row of a window lie side by side in an image of one channel, without padding between them."""
    return (
        channels == 1 and attrs["dilations"][-1] == 1 and is_zero(attrs["before"][-1]) and is_zero(attrs["after"][-1])
    )


def in_blocks(k: Any, block: int, window: int) -> tuple[Any, Any]:
    """The channel and the place of the window of a term of a sum that goes by blocks of so many channels."""
    outer, inner = te.indexdiv(k, block * window), te.indexmod(k, block * window)
    return outer * block + te.indexmod(inner, block), te.indexdiv(inner, block)


def stored_in_blocks(data: Any, block: int) -> Any:
    """Weights (..., channels, places of the window) as (..., terms) in that order; those that fill the last block are 0. block: 1 leaves them as they are."""
    *lead, channels, window = data.shape
    data = np.pad(data, [*[(0, 0)] * len(lead), (0, -channels % block), (0, 0)])
    parts = data.reshape(*lead, -1, block, window)
    return np.ascontiguousarray(np.moveaxis(parts, -2, -1)).reshape(*lead, -1)


def _sides(taps: Iterable[Size]) -> int:
    """Axes along which a window has several places."""
    return sum(n != 1 for n in taps)


def _grouped(out: TensorType, own: int, rows: bool) -> Fold:
    """The results of groups of `own` channels, products beside each other, in the output, whose rows or columns are all channels."""

    def place(*at: Any) -> list[Any]:
        *lead, g, i, j = at
        return [*lead, g * own + i, j] if rows else [*lead, i, g * own + j]

    def find(*at: Any) -> list[Any]:
        *lead, i, j = at
        return (
            [*lead, te.indexdiv(i, own), te.indexmod(i, own), j]
            if rows
            else [*lead, te.indexdiv(j, own), i, te.indexmod(j, own)]
        )

    return Fold(out.shape, place, find)


def _transpose_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x, w = types
    g = attrs["groups"]
    if w.ndim != x.ndim or x.ndim < 3 or x.shape[1] != w.shape[0] or x.shape[1] % g or x.dtype != w.dtype:
        raise fail(
            f"transposed convolution of {x} by {w} in {g} groups",
            hint="data is (batch, channels, size ...) and weights (channels, outputs / group, window ...), and group divides the channels",
        )
    space = tuple(attrs["out_space"])
    return [TensorType(x.dtype, (x.shape[0], w.shape[1] * g, *space))]


def _transpose_flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    return 2 * types[0].size * math.prod(types[1].shape[1:])


@register("conv_transpose", COMPLEX, _transpose_type, flops=_transpose_flops, traits=[SUMS])
def _conv_transpose(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The gradient of a convolution with respect to its input, weights (in, out / groups, window...).

    `strides`, `dilations`, `before` (cropped from the front), `out_space`, `groups`. Output y takes input i by window
    place r where i * stride + r * dilation = y + before.
    """
    x, w = inputs
    out = outputs[0]
    strides, dilations, g, before = attrs["strides"], attrs["dilations"], attrs["groups"], attrs["before"]
    space, kernel = static_shape(x)[2:], static_shape(w)[2:]
    acc = accumulator(x.dtype)
    cin, cout = static_shape(x)[1] // g, static_shape(w)[1]
    rc = te.reduce_axis((0, cin), "rc")
    rs = [te.reduce_axis((0, n), f"r{k}") for k, n in enumerate(kernel)]

    def body(n: Any, c: Any, *y: Any) -> Any:
        conds, at = [], []
        for i, b, r, d, s, extent in zip(y, before, rs, dilations, strides, space):
            t = i + b - r * d
            at.append(te.floordiv(t, s))
            conds += [t >= 0, te.floordiv(t, s) < extent]
            if s > 1:
                conds.append(te.floormod(t, s) == 0)
        channel = rc if g == 1 else (c // cout) * cin + rc
        value = x(n, channel, *at).astype(acc) * w(channel, c if g == 1 else c % cout, *rs).astype(acc)
        return te.sum(te.if_then_else(te.all(*conds), value, te.const(0, acc)), axis=[rc, *rs])

    c = te.compute(out.shape, body, name="conv_transpose")
    return [c if acc == out.dtype else te.compute(out.shape, lambda *i: c(*i).astype(out.dtype), name="conv_cast")]
