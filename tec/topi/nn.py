"""Operators of neural networks. Images are (batch, channels, spatial...), weights (out, in / groups, window...)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import te
from ..errors import ExprError, listed
from ..te import Tensor
from ..te.tensor_ops import BROADCAST, ELEMWISE, elementwise
from . import broadcast
from .dense_products import batch_matmul, dense, dense_pack, matmul
from .norms import along, batch_norm, group_norm, instance_norm, layer_norm, lrn, rms_norm
from .operators import compute, output, tensor, type_of
from .pooling import adaptive_pool, adaptive_pool1d, adaptive_pool3d, global_pool, pool1d, pool2d, pool3d
from .tag import INJECTIVE
from .transform import reshape
from .window import numbers as _list
from .window import padding_of

__all__ = [
    "adaptive_pool", "adaptive_pool1d", "adaptive_pool3d", "batch_flatten", "batch_matmul", "batch_norm", "bias_add", "conv1d_ncw", "conv1d_transpose_ncw", "conv2d", "conv2d_nchw", "conv2d_transpose_nchw", "conv3d_ncdhw", "conv3d_transpose_ncdhw",
    "dense", "dense_pack", "depthwise_conv2d_nchw", "dilate", "fast_softmax", "flatten", "gelu", "global_pool", "group_conv1d_ncw", "group_conv2d_nchw", "group_conv2d_transpose_nchw", "group_norm", "instance_norm", "layer_norm",
    "leaky_relu", "log_softmax", "lrn", "matmul", "pad", "pool1d", "pool2d", "pool3d", "prelu", "relu", "rms_norm", "scale_shift_nchw", "softmax",
]  # fmt: skip
__dir__ = listed(__name__)


# ---- activations


def relu(x: Tensor) -> Tensor:
    """max(x, 0), element by element."""
    return output("relu", [tensor(x, "relu")], ELEMWISE)


def leaky_relu(x: Tensor, alpha: float) -> Tensor:
    """x where it is positive, else alpha * x."""
    return output("leaky_relu", [tensor(x, "leaky_relu")], ELEMWISE, alpha=float(alpha))


def gelu(x: Tensor) -> Tensor:
    """x / 2 * (1 + erf(x / sqrt(2))), element by element."""
    return output("gelu", [tensor(x, "gelu")], ELEMWISE)


def prelu(data: Tensor, slope: Tensor, axis: int = 1) -> Tensor:
    """x where it is positive, else slope * x, with one slope a place along `axis`."""
    x, s = tensor(data, "prelu"), tensor(slope, "prelu")
    return elementwise(lambda v, a: te.select(v > 0, v, v * a), x, along(s, axis, x), name="prelu", tag=BROADCAST)


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """exp(x) over its sum along `axis`, the maximum taken off first."""
    return output("softmax", [tensor(x, "softmax")], axes=(axis,))


fast_softmax = softmax


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """The logarithm of `softmax`."""
    return output("log_softmax", [tensor(x, "log_softmax")], axes=(axis,))


# ---- convolutions and windows


def _window(weight: Tensor, n: int, what: str) -> tuple[int, ...]:
    shape = type_of(tensor(weight, what)).shape
    if len(shape) != n + 2 or not all(isinstance(k, int) for k in shape[2:]):
        raise ExprError(
            f"{what} by {weight.name} of shape ({', '.join(map(str, shape))})",
            hint=f"weights are (out, in, {'window, ' * n}) of numbers",
        )
    return tuple(shape[2:])


def _conv(
    what: str,
    n: int,
    x: Tensor,
    w: Tensor,
    strides: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    out_dtype: str | None,
) -> Tensor:
    x, kernel = tensor(x, what), _window(w, n, what)
    dilations = _list(dilation, n, f"{what}: dilation")
    before, after = padding_of(padding, kernel, dilations, what)
    steps = _list(strides, n, f"{what}: strides")
    y = output(
        "conv", [x, w], kernel=kernel, strides=steps, dilations=dilations, before=before, after=after, groups=groups
    )
    return y if out_dtype in (None, y.dtype) else y.astype(out_dtype)


def conv2d_nchw(
    Input: Tensor, Filter: Tensor, stride: Any, padding: Any, dilation: Any, out_dtype: str | None = None
) -> Tensor:
    """The cross-correlation of (batch, channels, height, width) with (out, channels, y, x). `padding`: a number, (y, x), or (top, left, bottom, right)."""
    return _conv("conv2d_nchw", 2, Input, Filter, stride, padding, dilation, 1, out_dtype)


def conv2d(
    input: Tensor,
    filter: Tensor,
    strides: Any,
    padding: Any,
    dilation: Any,
    data_layout: str = "NCHW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> Tensor:
    """`conv2d_nchw`. Raises ExprError for another layout: the compiler chooses those."""
    if data_layout != "NCHW" or kernel_layout not in ("", "OIHW"):
        raise ExprError(
            f"conv2d in layout {data_layout}",
            hint="transpose the input, or write NCHW: layouts are chosen by tec.compile and Stage.transform_layout",
        )
    return conv2d_nchw(input, filter, strides, padding, dilation, out_dtype)


def conv1d_ncw(
    data: Tensor,
    kernel: Tensor,
    strides: Any = 1,
    padding: Any = "VALID",
    dilation: Any = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """The cross-correlation of (batch, channels, width) with (out, channels, x)."""
    return _conv("conv1d_ncw", 1, data, kernel, strides, padding, dilation, 1, out_dtype)


def group_conv1d_ncw(
    data: Tensor,
    kernel: Tensor,
    strides: Any = 1,
    padding: Any = "VALID",
    dilation: Any = 1,
    groups: int = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """`conv1d_ncw` of each group of channels by its own weights, (out, channels / groups, x)."""
    return _conv("group_conv1d_ncw", 1, data, kernel, strides, padding, dilation, groups, out_dtype)


def conv3d_ncdhw(
    Input: Tensor,
    Filter: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """The cross-correlation of (batch, channels, depth, height, width) with (out, channels / groups, z, y, x)."""
    return _conv("conv3d_ncdhw", 3, Input, Filter, stride, padding, dilation, groups, out_dtype)


def group_conv2d_nchw(
    Input: Tensor, Filter: Tensor, stride: Any, padding: Any, dilation: Any, groups: int, out_dtype: str | None = None
) -> Tensor:
    """A convolution of each group of channels by its own weights, (out, channels / groups, y, x)."""
    return _conv("group_conv2d_nchw", 2, Input, Filter, stride, padding, dilation, groups, out_dtype)


def depthwise_conv2d_nchw(
    Input: Tensor, Filter: Tensor, stride: Any, padding: Any, dilation: Any, out_dtype: str | None = None
) -> Tensor:
    """A convolution of each channel by its own windows (channels, multiplier, y, x): channels * multiplier outputs."""
    kernel = _window(Filter, 2, "depthwise_conv2d_nchw")
    c, multiplier = Filter.shape[:2]
    w = reshape(Filter, (c * multiplier, 1, *kernel))
    return _conv(
        "depthwise_conv2d_nchw",
        2,
        Input,
        w,
        stride,
        padding,
        dilation,
        type_of(tensor(Input, "depthwise_conv2d_nchw")).shape[1],
        out_dtype,
    )


def _conv_transpose(
    what: str,
    n: int,
    x: Tensor,
    w: Tensor,
    strides: Any,
    padding: Any,
    out_dtype: str | None,
    output_padding: Any,
    groups: int,
) -> Tensor:
    x, kernel = tensor(x, what), _window(w, n, what)
    steps, more = _list(strides, n, f"{what}: strides"), _list(output_padding, n, f"{what}: output_padding")
    before, after = padding_of(padding, kernel, (1,) * n, what)
    space = tuple(
        (size - 1) * s + k + p - b - a
        for size, s, k, p, b, a in zip(type_of(x).shape[2:], steps, kernel, more, before, after)
    )
    y = output(
        "conv_transpose", [x, w], strides=steps, dilations=(1,) * n, before=before, out_space=space, groups=groups
    )
    return y if out_dtype in (None, y.dtype) else y.astype(out_dtype)


def conv1d_transpose_ncw(
    data: Tensor, kernel: Tensor, stride: Any, padding: Any, out_dtype: str | None = None, output_padding: Any = 0
) -> Tensor:
    """As `conv2d_transpose_nchw`, of (batch, channels, width) with (in, out, x)."""
    return _conv_transpose("conv1d_transpose_ncw", 1, data, kernel, stride, padding, out_dtype, output_padding, 1)


def conv2d_transpose_nchw(
    Input: Tensor,
    Filter: Tensor,
    strides: Any,
    padding: Any,
    out_dtype: str | None = None,
    output_padding: Any = 0,
    groups: int = 1,
) -> Tensor:
    """The gradient of a convolution by its input, weights (in, out / groups, y, x); `output_padding` adds rows and columns behind."""
    what = "conv2d_transpose_nchw"
    return _conv_transpose(what, 2, Input, Filter, strides, padding, out_dtype, output_padding, groups)


group_conv2d_transpose_nchw = conv2d_transpose_nchw


def conv3d_transpose_ncdhw(
    Input: Tensor, Filter: Tensor, strides: Any, padding: Any, out_dtype: str | None = None, output_padding: Any = 0
) -> Tensor:
    """As `conv2d_transpose_nchw`, of (batch, channels, depth, height, width) with (in, out, z, y, x)."""
    return _conv_transpose("conv3d_transpose_ncdhw", 3, Input, Filter, strides, padding, out_dtype, output_padding, 1)


# ---- the rest


def bias_add(data: Tensor, bias: Tensor, axis: int = 1) -> Tensor:
    """`data` and a bias, one a place along `axis`."""
    x = tensor(data, "bias_add")
    return broadcast.add(x, along(tensor(bias, "bias_add"), axis, x))  # type: ignore[no-any-return]


def scale_shift_nchw(Input: Tensor, Scale: Tensor, Shift: Tensor) -> Tensor:
    """Input * Scale + Shift, one of each a channel."""
    x = tensor(Input, "scale_shift_nchw")
    return elementwise(
        lambda v, a, b: v * a + b, x, along(Scale, 1, x), along(Shift, 1, x), name="scale_shift", tag=BROADCAST
    )


def flatten(data: Tensor) -> Tensor:
    """(batch, all the rest)."""
    x = tensor(data, "flatten")
    return reshape(x, (x.shape[0], -1))


batch_flatten = flatten


def pad(
    data: Tensor,
    pad_before: Sequence[int],
    pad_after: Sequence[int] | None = None,
    pad_value: float = 0.0,
    name: str = "PadInput",
    attrs: Any = None,
) -> Tensor:
    """`data` with `pad_value` around it: so many places in front and behind, one a dimension (behind as in front by default)."""
    x = tensor(data, "pad")
    before, after = tuple(pad_before), tuple(pad_before if pad_after is None else pad_after)
    return output("pad", [x], INJECTIVE, before=before, after=after, mode="constant", value=pad_value)


def dilate(data: Tensor, strides: Sequence[int], dilation_value: float = 0.0, name: str = "DilatedInput") -> Tensor:
    """`strides[k] - 1` places of `dilation_value` between each two elements along dimension k."""
    x = tensor(data, "dilate")
    steps = _list(strides, x.ndim, "dilate: strides")
    shape = [(n - 1) * s + 1 for n, s in zip(x.shape, steps)]

    def body(*i: Any) -> Any:
        hits = [te.floormod(k, s) == 0 for k, s in zip(i, steps) if s > 1]
        at = [te.floordiv(k, s) if s > 1 else k for k, s in zip(i, steps)]
        return te.if_then_else(te.all(*hits), x(*at), te.const(dilation_value, x.dtype)) if hits else x(*i)

    return compute(shape, body, name, INJECTIVE)
