"""ONNX operators on signals: Fourier transforms as products with constant matrices, mel filters; optimizers' update steps."""

from __future__ import annotations

import math

import numpy as np

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders import axis_of, fourier
from tec.ops.dims import Dim, Size

from . import reader
from .importer import Call, Outputs, onnx_op


def _resized(c: Call, x: Value, axis: int, n: Size) -> Value:
    """`x` cut or padded with zeros to n along an axis."""
    have = x.shape[axis]
    if have == n:
        return x
    if have > n:
        return c.slice(x, axis, 0, n)
    after = tuple(n - have if k == axis else 0 for k in range(x.ndim))
    return c.op("pad", x, before=(0,) * x.ndim, after=after)


def transform(c: Call, x: Value, axis: int, length: Size, inverse: bool, onesided: bool) -> Value:
    """The Fourier transform along `axis` of (..., 1 or 2): real and imaginary part in the last dimension."""
    x = _resized(c, x, axis, length)
    if onesided and inverse:
        raise ImportModelError(
            "a one-sided inverse transform is not defined here",
            hint="set onesided to 0 for an inverse transform of all frequencies",
        )
    rows = length // 2 + 1 if onesided else length
    known = not isinstance(length, Dim)
    if known:
        reader.check_bytes("a Fourier matrix", (rows, length))
    real, imag = (c.slice(x, -1, k, 1) if k < x.shape[-1] else None for k in range(2))
    assert real is not None
    scale = 1.0 / int(length) if inverse and known else 1.0
    parts = fourier.transform(c, (real, imag), axis, rows=rows, inverse=inverse, scale=scale)
    made = c.op("concat", *parts, axis=x.ndim - 1)
    if not inverse or known:
        return made
    return c.op("divide", made, c.cast(c.op("iota", size=1, start=length, step=1, dtype="int64"), made.dtype))


@onnx_op("DFT")
def dft(c: Call) -> Value:
    x = c[0]
    inverse, onesided = bool(c.attr("inverse", 0)), bool(c.attr("onesided", 0))
    if c.opset >= 20:
        axis = int(np.asarray(c.array(2)).reshape(-1)[0]) if c.has(2) else -2
    else:
        axis = c.attr("axis", 1)
    axis = axis_of(axis, x.ndim)
    length = int(np.asarray(c.array(1)).reshape(-1)[0]) if c.has(1) else x.shape[axis]
    if onesided and inverse:
        # The other half of the spectrum is the mirror image of the given one.
        length = length if c.has(1) else 2 * (x.shape[axis] - 1)
        half = _resized(c, x, axis, length // 2 + 1)
        mirror = c.slice(half, axis, (length - 1) // 2, (length - 1) // 2, -1)
        flip = c.const(np.array([1.0, -1.0]), x.dtype)
        full = c.op("concat", half, c.op("multiply", mirror, flip), axis=axis)
        return c.slice(transform(c, full, axis, length, True, False), -1, 0, 1)
    return transform(c, x, axis, length, inverse, onesided)


@onnx_op("STFT")
def stft(c: Call) -> Value:
    x = c[0]
    step = int(np.asarray(c.array(1)).reshape(-1)[0])
    window = c.get(2)
    length = int(np.asarray(c.array(3)).reshape(-1)[0]) if c.has(3) else window.shape[0]
    x = x if x.ndim == 3 else c.unsqueeze(x, 2)
    frames = (x.shape[1] - length) // step + 1
    index = c.op("add", c.reshape(c.count(frames, step), (frames, 1)), c.reshape(c.count(length), (1, length)))
    y = c.op("gather", x, index, axis=1)  # (batch, frames, length, parts)
    if window is not None:
        y = c.op("multiply", y, c.reshape(window, (window.shape[0], 1)))
    return transform(c, y, 2, length, False, bool(c.attr("onesided", 1)))


@onnx_op("MelWeightMatrix")
def mel_weight_matrix(c: Call) -> Value:
    bins, length, rate = (int(np.asarray(c.array(k)).reshape(-1)[0]) for k in range(3))
    low, high = (float(np.asarray(c.array(k)).reshape(-1)[0]) for k in (3, 4))

    def mel(f: float) -> float:
        return 2595 * math.log10(1 + f / 700)

    reader.check_bytes("a mel matrix", (max(length, 0) // 2 + 1, max(bins, 0)))
    points = mel(low) + np.arange(bins + 2) * (mel(high) - mel(low)) / (bins + 2)
    hertz = 700 * (10 ** (points / 2595) - 1)
    place = np.floor((length + 1) * hertz / rate).astype(np.int64)
    out = np.zeros((length // 2 + 1, bins))
    for k in range(bins):
        first, middle, last = place[k : k + 3]
        if middle == first:
            out[middle, k] = 1
        else:
            for i in range(first, middle + 1):
                out[i, k] = (i - first) / (middle - first)
        if last != middle:
            for i in range(middle, last):
                out[i, k] = (last - i) / (last - middle)
    dtype = reader.dtype_name(c.attr("output_datatype")) if "output_datatype" in c.attrs else "float32"
    return c.const(out, dtype)


# ---- training steps: (rate, step, then per tensor: value, gradient, state...)

_TRAINING = "ai.onnx.preview.training"


def _groups(c: Call, kinds: int) -> tuple[Value, Value, list[list[Value]]]:
    rest = [c[k] for k in range(2, len(c.inputs))]
    n = len(rest) // kinds
    return c[0], c[1], [[rest[k * n + i] for k in range(kinds)] for i in range(n)]


def _times(c: Call, v: Value, by: float) -> Value:
    return c.op("multiply", v, c.like(by, v))


def _ordered(results: list[list[Value]]) -> Outputs:
    return Outputs([row[k] for k in range(len(results[0])) for row in results])


@onnx_op("Momentum", domain=_TRAINING)
def momentum(c: Call) -> Outputs:
    alpha, beta, decay = c.attr("alpha"), c.attr("beta"), c.attr("norm_coefficient")
    rate, step, groups = _groups(c, 3)
    first = c.op("equal", step, c.like(0, step))
    results = []
    for x, g, v in groups:
        g = c.op("add", _times(c, x, decay), g)
        factor = c.op("where", c.reshape(first, ()), c.like(1.0, x), c.like(beta, x))
        v = c.op("add", _times(c, v, alpha), c.op("multiply", g, factor))
        move = c.op("add", g, _times(c, v, alpha)) if c.attr("mode") == "nesterov" else v
        results.append([c.op("subtract", x, c.op("multiply", c.reshape(rate, ()), move)), v])
    return _ordered(results)


@onnx_op("Adagrad", domain=_TRAINING)
def adagrad(c: Call) -> Outputs:
    decay, eps, slow = c.attr("norm_coefficient", 0.0), c.attr("epsilon", 0.0), c.attr("decay_factor", 0.0)
    rate, step, groups = _groups(c, 3)
    results = []
    for x, g, h in groups:
        t = c.op("add", _times(c, c.cast(c.reshape(step, ()), x.dtype), slow), c.like(1.0, x))
        r = c.op("divide", c.cast(c.reshape(rate, ()), x.dtype), t)
        g = c.op("add", _times(c, x, decay), g)
        h = c.op("add", h, c.op("square", g))
        move = c.op("divide", c.op("multiply", r, g), c.op("add", c.op("sqrt", h), c.like(eps, x)))
        results.append([c.op("subtract", x, move), h])
    return _ordered(results)


@onnx_op("Adam", domain=_TRAINING)
def adam(c: Call) -> Outputs:
    alpha, beta, eps = c.attr("alpha", 0.9), c.attr("beta", 0.999), c.attr("epsilon", 0.0)
    decay, after = c.attr("norm_coefficient", 0.0), c.attr("norm_coefficient_post", 0.0)
    rate, step, groups = _groups(c, 4)
    results = []
    for x, g, v, h in groups:
        t, r = c.cast(c.reshape(step, ()), x.dtype), c.cast(c.reshape(rate, ()), x.dtype)
        g = c.op("add", _times(c, x, decay), g)
        v = c.op("add", _times(c, v, alpha), _times(c, g, 1 - alpha))
        h = c.op("add", _times(c, h, beta), _times(c, c.op("square", g), 1 - beta))
        one = c.like(1.0, x)
        rise = c.op("sqrt", c.op("subtract", one, c.op("power", c.like(beta, x), t)))
        fall = c.op("subtract", one, c.op("power", c.like(alpha, x), t))
        scaled = c.op("where", c.op("greater", t, c.like(0, x)), c.op("divide", c.op("multiply", r, rise), fall), r)
        move = c.op("divide", c.op("multiply", scaled, v), c.op("add", c.op("sqrt", h), c.like(eps, x)))
        results.append([_times(c, c.op("subtract", x, move), 1 - after), v, h])
    return _ordered(results)
