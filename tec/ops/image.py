"""Sampling pictures at places that are data: grid_sample, roi_align."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import te
from ..te import Tensor
from .registry import INJECTIVE, REDUCTION, Attrs, TensorType, fail, register, static_shape


def _grid_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x, grid = types
    nd = x.ndim - 2
    if nd < 1 or grid.ndim != x.ndim or grid.shape[-1] != nd or grid.shape[0] != x.shape[0]:
        raise fail(
            f"grid_sample of {x} at {grid}",
            hint="X is (batch, channels, size ...) and the grid (batch, size ..., number of spatial dimensions), in float32",
        )
    if attrs["mode"] not in ("nearest", "linear", "cubic") or attrs["padding"] not in ("zeros", "border", "reflection"):
        raise fail(
            f"grid_sample with mode {attrs['mode']!r}, padding {attrs['padding']!r}",
            hint="modes: nearest, linear, cubic; padding: zeros, border, reflection",
        )
    if attrs["mode"] == "cubic" and nd != 2:
        raise fail("cubic grid_sample is for two dimensions", hint="linear and nearest take three dimensions")
    return [TensorType(x.dtype, (x.shape[0], x.shape[1], *grid.shape[1:-1]))]


def _mirror(v: Any, low: float, high: Any) -> Any:
    """A coordinate reflected into [low, high], whose ends are a whole number apart; `high` of an open size is an expression."""
    span = high - low
    if not isinstance(span, float):
        return te.select(span > 0.0, _mirrored(v, low, high, te.max(span, te.const(1, span.dtype))), v * 0.0)
    return _mirrored(v, low, high, span) if span > 0 else v * 0.0


def _mirrored(v: Any, low: float, high: Any, span: Any) -> Any:
    t = te.abs(v - low)
    turns = te.floor(t / span)
    rest = t - turns * span
    odd = turns - te.floor(turns * 0.5) * 2.0
    return te.select(odd == 0.0, rest + low, high - rest)


def _cubic_weights(t: Any) -> list[Any]:
    """Weights of the neighbours at distance 1 + t, t, 1 - t, 2 - t, by Keys' kernel with a = -0.75 as PyTorch and ONNX have it."""
    a = -0.75

    def far(d: Any) -> Any:
        return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a

    def near(d: Any) -> Any:
        return ((d * (a + 2)) - (a + 3)) * d * d + 1.0

    return [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]


@register("grid_sample", INJECTIVE, _grid_type, takes=2)
def _grid_sample(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The picture at places in [-1, 1] (x first). `mode`: nearest, linear, cubic; `padding`: zeros, border, reflection; `align`."""
    x, grid = inputs
    nd = x.ndim - 2
    space = [m if isinstance(m, int) else e for m, e in zip(static_shape(x)[2:], x.shape[2:])]
    mode, padding, align = attrs["mode"], attrs["padding"], attrs["align"]
    acc = "float64" if "float64" in (x.dtype, grid.dtype) else "float32"

    def number(m: Any) -> Any:
        return float(m) if isinstance(m, int) else m.astype(acc)

    def fetch(n: Any, c: Any, place: Sequence[Any]) -> Any:
        """The element at whole coordinates (floats), by the padding rule."""
        conds, index = [], []
        for v, m in zip(place, space):
            if padding == "border":
                v = te.max(te.min(v, number(m - 1)), te.const(0, v.dtype))
            elif padding == "reflection":
                v = _mirror(v, 0.0, number(m - 1)) if align else _mirror(v, -0.5, number(m) - 0.5)
                v = te.max(te.min(te.nearbyint(v), number(m - 1)), te.const(0, v.dtype))
            else:
                conds.append(te.all(v >= 0.0, v <= number(m - 1)))
            index.append(te.max(te.min(v.astype("int32"), m - 1), 0))
        value = x(n, c, *index).astype(acc)
        return te.select(te.all(*conds), value, te.const(0, acc)) if conds else value

    def body(n: Any, c: Any, *at: Any) -> Any:
        place = []
        for k, m in enumerate(space):
            g = grid(n, *at, nd - 1 - k).astype(acc)
            v = (g + 1.0) * (number(m - 1) / 2) if align else ((g + 1.0) * number(m) - 1.0) * 0.5
            if padding == "border" and mode != "cubic":
                v = te.max(te.min(v, number(m - 1)), te.const(0, acc))
            elif padding == "reflection" and mode != "cubic":
                v = _mirror(v, 0.0, number(m - 1)) if align else _mirror(v, -0.5, number(m) - 0.5)
                v = te.max(te.min(v, number(m - 1)), te.const(0, acc))
            place.append(v)
        if mode == "nearest":
            return fetch(n, c, [te.nearbyint(v) for v in place]).astype(x.dtype)
        base = [te.floor(v) for v in place]
        parts = [v - b for v, b in zip(place, base)]
        weights = [[1.0 - t, t] for t in parts] if mode == "linear" else [_cubic_weights(t) for t in parts]
        first = 0 if mode == "linear" else -1

        def total(k: int, fixed: list[Any]) -> Any:
            if k == nd:
                return fetch(n, c, fixed)
            out = None
            for j, w in enumerate(weights[k]):
                term = total(k + 1, [*fixed, base[k] + float(first + j)]) * w
                out = term if out is None else out + term
            return out

        return total(0, []).astype(x.dtype)

    return [te.compute(outputs[0].shape, body, name="grid_sample")]


def _roi_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x, boxes, batch = types
    if (
        x.ndim != 4
        or boxes.ndim != 2
        or boxes.shape[1] != 4
        or batch.shape != boxes.shape[:1]
        or attrs["mode"] not in ("avg", "max", "max of corners")
    ):
        raise fail(
            f"roi_align of {x}, boxes {boxes}, batch {batch}",
            hint="X is (batch, channels, height, width), the boxes (number, 4), and their batch entries (number,)",
        )
    return [TensorType(x.dtype, (boxes.shape[0], x.shape[1], attrs["height"], attrs["width"]))]


@register("roi_align", REDUCTION, _roi_type, takes=3)
def _roi_align(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """Means or maxima of `ratio_h` x `ratio_w` bilinear samples in each cell of `height` x `width` cells of every box; ONNX's maxima are those of the
    samples' four weighted pixels ("max of corners")."""
    x, boxes, batch = inputs
    pictures, _, rows, cols = static_shape(x)
    ph, pw, rh, rw = attrs["height"], attrs["width"], attrs["ratio_h"], attrs["ratio_w"]
    shift = 0.5 if attrs["half"] else 0.0
    p, q = te.reduce_axis((0, rh), "p"), te.reduce_axis((0, rw), "q")

    def line(r: Any, low: int, cell: Any, cells: int, sample: Any, samples: int) -> Any:
        begin = boxes(r, low) * attrs["scale"] - shift
        end = boxes(r, low + 2) * attrs["scale"] - shift
        extent = end - begin if attrs["half"] else te.max(end - begin, te.const(1, x.dtype))
        step = extent * (1.0 / cells)
        return begin + cell.astype(x.dtype) * step + (sample.astype(x.dtype) + 0.5) * step * (1.0 / samples)

    def bilinear(r: Any, c: Any, y: Any, z: Any) -> Any:
        inside = te.all(y >= -1.0, y <= float(rows), z >= -1.0, z <= float(cols))
        terms = []
        for v, m in ((y, rows), (z, cols)):
            v = te.max(v, te.const(0, x.dtype))
            low = te.min(te.floor(v).astype("int32"), m - 1)
            high = te.min(low + 1, m - 1)
            t = te.select(low >= m - 1, te.const(0, x.dtype), v - low.astype(x.dtype))
            terms.append(((low, 1.0 - t), (high, t)))
        n = te.max(te.min(batch(r).astype("int32"), pictures - 1), 0)
        products = [x(n, c, a, b) * (wa * wb) for a, wa in terms[0] for b, wb in terms[1]]
        return inside, products

    def body(r: Any, c: Any, i: Any, j: Any) -> Any:
        inside, products = bilinear(r, c, line(r, 1, i, ph, p, rh), line(r, 0, j, pw, q, rw))
        zero = te.const(0, x.dtype)
        if attrs["mode"] == "max of corners":
            return te.maximum(te.select(inside, te.maximum(*products), zero), axis=[p, q])
        total = te.select(inside, products[0] + products[1] + products[2] + products[3], zero)
        return (te.sum if attrs["mode"] == "avg" else te.maximum)(total, axis=[p, q])

    cells = te.compute(outputs[0].shape, body, name="roi_samples")
    if attrs["mode"] != "avg":
        return [cells]
    return [te.compute(outputs[0].shape, lambda *i: cells(*i) * (1.0 / (rh * rw)), name="roi_align")]
