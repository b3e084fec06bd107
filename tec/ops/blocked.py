"""Operators in the CPU's blocked layout NCHWc: (batch, channels / c, height, width, c), the last channel block filled up.

`pack` and `unpack` go between NCHW and NCHWc. Channels past the real ones hold values without meaning (finite where the
real ones are): weights for them are zero, and `unpack` leaves them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import te
from ..te import Tensor
from .conv import conv_out, padded
from .dims import inverse
from .registry import COMPLEX, INJECTIVE, REDUCTION, Attrs, TensorType, fail, register, static_shape


def _pack_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    n, c, h, w = types[0].shape
    b = attrs["block"]
    return [TensorType(types[0].dtype, (n, -(-c // b), h, w, b))]


@register("pack", INJECTIVE, _pack_type)
def _pack(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """NCHW to NCHWc; channels that are not there are 0."""
    x, b = inputs[0], attrs["block"]
    channels = static_shape(x)[1]

    def body(n: Any, co: Any, h: Any, w: Any, ci: Any) -> Any:
        value = x(n, co * b + ci, h, w)
        return value if channels % b == 0 else te.if_then_else(co * b + ci < channels, value, te.const(0, x.dtype))

    return [te.compute(outputs[0].shape, body, name="pack")]


def _unpack_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    n, _, h, w, _ = types[0].shape
    return [TensorType(types[0].dtype, (n, attrs["channels"], h, w))]


@register("unpack", INJECTIVE, _unpack_type)
def _unpack(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """NCHWc to NCHW with `channels` channels."""
    x = inputs[0]
    b = static_shape(x)[-1]
    return [te.compute(outputs[0].shape, lambda n, c, h, w: x(n, c // b, h, w, c % b), name="unpack")]


def _conv_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    x, w = types
    kh, kw = attrs["kernel"]
    rows, cols = (
        conv_out(n, k, s, d, b, a)
        for n, k, s, d, b, a in zip(
            x.shape[2:4], (kh, kw), attrs["strides"], attrs["dilations"], attrs["before"], attrs["after"]
        )
    )
    return [TensorType(x.dtype, (x.shape[0], w.shape[0], rows, cols, w.shape[-1]))]


def _conv_flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    w = types[1].shape
    inner = 1
    for n in w[1:-1]:
        inner *= n
    return 2 * outs[0].size * inner


def _pad5(x: Tensor, before: Sequence[int], after: Sequence[int], fill: Any = 0) -> Tensor:
    return padded(x, [*before, 0], [*after, 0], fill)


@register("conv_nchwc", COMPLEX, _conv_type, flops=_conv_flops)
def _conv(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """Blocked convolution: x NCHWc, or NCHW where there are few input channels; weights (O/o, C/c, KH, KW, c, o), for NCHW (O/o, C, KH, KW, o).
    `groups`: of so many, each of whole blocks, an output block sees the input blocks of its own; C counts those of one group."""
    x, w = inputs
    (sh, sw), (dh, dw) = attrs["strides"], attrs["dilations"]
    kh, kw = attrs["kernel"]
    ry, rx = te.reduce_axis((0, kh), "ry"), te.reduce_axis((0, kw), "rx")
    shape = static_shape(x)
    if len(shape) == 4:
        plain = padded(x, attrs["before"], attrs["after"])
        rc = te.reduce_axis((0, shape[1]), "rc")
        y = te.compute(
            outputs[0].shape,
            lambda n, o, i, j, l: te.sum(plain(n, rc, i * sh + ry * dh, j * sw + rx * dw) * w(o, rc, ry, rx, l), axis=[rc, ry, rx]),
            name="conv", tag="conv2d_nchwc",
        )  # fmt: skip
        return [y]
    p = _pad5(x, attrs["before"], attrs["after"])
    groups = attrs.get("groups", 1)
    own_in, own_out = shape[1] // groups, outputs[0].shape[1] // groups  # blocks of a group
    rc, ri = te.reduce_axis((0, own_in), "rc"), te.reduce_axis((0, shape[4]), "ri")

    def block(o: Any) -> Any:
        return rc if groups == 1 else o // own_out * own_in + rc

    y = te.compute(
        outputs[0].shape,
        lambda n, o, i, j, l: te.sum(p(n, block(o), i * sh + ry * dh, j * sw + rx * dw, ri) * w(o, rc, ry, rx, ri, l), axis=[rc, ry, rx, ri]),
        name="conv", tag="conv2d_nchwc",
    )  # fmt: skip
    return [y]


@register("depthwise_nchwc", COMPLEX, _conv_type, flops=_conv_flops)
def _depthwise(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """Blocked depthwise convolution; weights (C/c, KH, KW, c)."""
    x, w = inputs
    (sh, sw), (dh, dw) = attrs["strides"], attrs["dilations"]
    kh, kw = attrs["kernel"]
    ry, rx = te.reduce_axis((0, kh), "ry"), te.reduce_axis((0, kw), "rx")
    p = _pad5(x, attrs["before"], attrs["after"])
    y = te.compute(
        outputs[0].shape,
        lambda n, c, i, j, l: te.sum(p(n, c, i * sh + ry * dh, j * sw + rx * dw, l) * w(c, ry, rx, l), axis=[ry, rx]),
        name="depthwise", tag="depthwise_nchwc",
    )  # fmt: skip
    return [y]


def _pool_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    n, c, _, _, b = types[0].shape
    return [TensorType(types[0].dtype, (n, c, *attrs["out_space"], b))]


@register("max_pool_nchwc", REDUCTION, _pool_type)
def _max_pool(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The largest element of each window; attributes as max_pool."""
    x = inputs[0]
    (sh, sw), (dh, dw) = attrs["strides"], attrs["dilations"]
    ry, rx = (te.reduce_axis((0, k), f"r{a}") for k, a in zip(attrs["kernel"], "yx"))
    p = _pad5(x, attrs["before"], attrs["after"], te.maximum.identity(x.dtype))
    return [
        te.compute(
            outputs[0].shape,
            lambda n, c, i, j, l: te.maximum(p(n, c, i * sh + ry * dh, j * sw + rx * dw, l), axis=[ry, rx]),
            name="max_pool",
            tag="pool",
        )
    ]


def _mean_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    n, c, _, _, b = types[0].shape
    return [TensorType(types[0].dtype, (n, c, 1, 1, b))]


@register("mean_nchwc", REDUCTION, _mean_type)
def _mean(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """The mean over height and width, kept as extents of 1."""
    x = inputs[0]
    _, _, h, w, _ = static_shape(x)
    ry, rx = te.reduce_axis((0, h), "ry"), te.reduce_axis((0, w), "rx")
    total = te.compute(
        outputs[0].shape, lambda n, c, i, j, l: te.sum(x(n, c, ry, rx, l), axis=[ry, rx]), name="total", tag="pool"
    )
    scale = inverse(h * w, x.dtype)
    return [te.compute(outputs[0].shape, lambda *i: total(*i) * scale, name="mean")]


def _packed_type(types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
    a, b = types
    panels, k, block = b.shape
    columns = attrs["columns"]
    if a.ndim < 2 or a.shape[-1] != k or a.dtype != b.dtype or not (panels - 1) * block < columns <= panels * block:
        raise fail(f"product of {a} and panels {b} with {columns} columns")
    return [TensorType(a.dtype, (*a.shape[:-1], columns))]


def _packed_flops(types: Sequence[TensorType], outs: Sequence[TensorType], attrs: Attrs) -> int:
    return 2 * outs[0].size * types[1].shape[1]


@register("matmul_packed", COMPLEX, _packed_type, flops=_packed_flops)
def _matmul_packed(attrs: Attrs, inputs: list[Tensor], outputs: list[TensorType]) -> list[Tensor]:
    """Products of rows with B in panels (columns / block, k, block), the last filled up; `columns`: the real ones."""
    a, b = inputs
    _, depth, block = static_shape(b)
    k = te.reduce_axis((0, depth), "k")
    y = te.compute(
        outputs[0].shape, lambda *i: te.sum(a(*i[:-1], k) * b(i[-1] // block, k, i[-1] % block), axis=k),
        name="matmul", tag="matmul", attrs={"block": block},
    )  # fmt: skip
    return [y]
