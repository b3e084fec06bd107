"""Deformable convolution: each window place reads at an offset that is data, by bilinear interpolation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import te
from ..te import Tensor
from .registry import COMPLEX, SUMS, Attrs, TensorType, fail, register, static_shape
from .windows import conv_out


def _deform_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x, w, offset = types[:3]
    if x.ndim != 4 or w.ndim != 4 or offset.ndim != 4:
        raise fail(
            f"deform_conv of {x} by {w} with offsets {offset}: pictures have four dimensions",
            hint="X and offset are (batch, channels, height, width)",
        )
    lists = [attrs[k] for k in ("strides", "dilations", "before", "after")]
    space = tuple(conv_out(n, k, s, d, b, a) for n, k, s, d, b, a in zip(x.shape[2:], w.shape[2:], *lists))
    g, og = attrs["groups"], attrs["offset_groups"]
    window = w.shape[2] * w.shape[3]
    if (
        x.shape[1] != w.shape[1] * g
        or w.shape[0] % g
        or x.shape[1] % og
        or offset.shape != (x.shape[0], og * window * 2, *space)
    ):
        raise fail(
            f"deform_conv of {x} by {w} with offsets {offset}, {g} groups, {og} offset groups",
            hint="offset has 2 * offset_group * window height * window width channels, and the size of the output",
        )
    if len(types) > 3 and types[3].shape != (x.shape[0], og * window, *space):
        raise fail(
            f"deform_conv with mask {types[3]}",
            hint="the mask has offset_group * window height * window width channels, and the size of the output",
        )
    return [TensorType(x.dtype, (x.shape[0], w.shape[0], *space))]


@register("deform_conv", COMPLEX, _deform_type, traits=[SUMS], takes=(3, 4))
def _deform_conv(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """conv with an offset (y, x) and, as a fourth input, a factor for each window place of each output place.

    Attributes as conv's, and `offset_groups`. Places outside of the picture count as zeros.
    """
    x, w, offset = inputs[:3]
    mask = inputs[3] if len(inputs) > 3 else None
    _, channels, rows, cols = static_shape(x)
    oc, cin, kh, kw = static_shape(w)
    g, og = attrs["groups"], attrs["offset_groups"]
    (sy, sx), (dy, dx), (by, bx) = attrs["strides"], attrs["dilations"], attrs["before"]
    per_group = channels // og
    dtype = x.dtype
    _, _, oh, ow = outputs[0].shape

    def corner(n: Any, c: Any, y: Any, z: Any, weight: Any) -> Any:
        inside = te.all(y >= 0, y < rows, z >= 0, z < cols)
        value = x(n, c, te.max(te.min(y, rows - 1), 0), te.max(te.min(z, cols - 1), 0))
        return te.select(inside, value * weight, te.const(0, dtype))

    def sample(n: Any, c: Any, r: Any, s: Any, i: Any, j: Any) -> Any:
        k = (c // per_group) * (kh * kw) + r * kw + s
        y = (i * sy + r * dy - by).astype(dtype) + offset(n, k * 2, i, j)
        z = (j * sx + s * dx - bx).astype(dtype) + offset(n, k * 2 + 1, i, j)
        y0, z0 = te.floor(y), te.floor(z)
        ty, tz = y - y0, z - z0
        a, b = y0.astype("int32"), z0.astype("int32")
        total = corner(n, c, a, b, (1.0 - ty) * (1.0 - tz)) + corner(n, c, a, b + 1, (1.0 - ty) * tz)
        total = total + corner(n, c, a + 1, b, ty * (1.0 - tz)) + corner(n, c, a + 1, b + 1, ty * tz)
        return total * mask(n, k, i, j) if mask is not None else total

    # The samples are worked out once and not again for every output channel.
    columns = te.compute((static_shape(x)[0], channels, kh, kw, oh, ow), sample, name="deform_samples", tag="keep")
    rc = te.reduce_axis((0, cin), "rc")
    rs = te.reduce_axis((0, kh), "r"), te.reduce_axis((0, kw), "s")

    def body(n: Any, c: Any, i: Any, j: Any) -> Any:
        channel = rc if g == 1 else (c // (oc // g)) * cin + rc
        return te.sum(columns(n, channel, *rs, i, j) * w(c, rc, *rs), axis=[rc, *rs])

    return [te.compute(outputs[0].shape, body, name="deform_conv")]
