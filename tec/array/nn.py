"""Parts of neural networks as functions of arrays: activations, normalization, convolution, pooling, and a loss. All have gradients.

Images are (batch, channels, height, width) or with any number of spatial dimensions, weights of a convolution (out, channels / groups, window...).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import listed
from ..ops.registry import TensorType, get_op
from . import build, dtypes
from .arguments import check_names
from .array import Array, node_of
from .dtypes import DTypeLike
from .elementwise import expm1, logaddexp
from .elsewhere import missing
from .errors import ArrayTypeError, ArrayValueError
from .manipulation import astype, axis_of, expand_dims, reshape, take_along_axis
from .node import Node, attributes, scalar
from .searching import where
from .statistical import mean

__all__ = [
    "avg_pool", "conv", "cross_entropy", "elu", "gelu", "layer_norm", "leaky_relu", "log_softmax", "max_pool", "mse_loss", "one_hot", "relu",
    "rms_norm", "sigmoid", "silu", "softmax", "softplus",
]  # fmt: skip


def _floats(name: str, x: Any) -> Node:
    n = node_of(x)
    if not dtypes.is_float(n.dtype):
        raise ArrayTypeError(f"{name} of {n.dtype}", hint='tec.array.astype(x, "float32") converts')
    return n


def _applied(op: str, *inputs: Node, **attrs: Any) -> Array:
    """An operator of graphs; its shape is what its definition says."""
    inputs = tuple(build.boundary(n) for n in inputs)
    build.one_device(inputs)
    made = get_op(op).infer([TensorType(n.dtype.name, n.shape) for n in inputs], attrs)[0]
    return Array(build.make(op, inputs, tuple(map(int, made.shape)), dtypes.ALL[made.dtype], attributes(**attrs)))


def relu(x: Array, /) -> Array:
    """x where it is positive, else 0; its gradient at 0 is 0."""
    n = _floats("relu", x)
    zero = scalar(0.0, n.dtype, n.device)
    return Array(build.where(build.binary("greater", n, zero, dtypes.bool), n, zero))


def sigmoid(x: Array, /) -> Array:
    """1 / (1 + exp(-x))."""
    return Array(build.unary("sigmoid", _floats("sigmoid", x)))


def silu(x: Array, /) -> Array:
    """x times its sigmoid."""
    return x * sigmoid(x)


def gelu(x: Array, /) -> Array:
    """x times the probability that a normal number is below it: x (1 + erf(x / sqrt 2)) / 2."""
    n = _floats("gelu", x)
    turned = build.binary("multiply", n, scalar(0.5**0.5, n.dtype, n.device))
    return x * (Array(build.unary("erf", turned)) + 1.0) * 0.5


def leaky_relu(x: Array, /, negative_slope: float = 0.01) -> Array:
    """x where it is positive, else x times the slope."""
    _floats("leaky_relu", x)
    return where(x > 0.0, x, x * negative_slope)


def elu(x: Array, /, alpha: float = 1.0) -> Array:
    """x where it is positive, else alpha (exp(x) - 1)."""
    _floats("elu", x)
    return where(x > 0.0, x, expm1(where(x > 0.0, 0.0, x)) * alpha)


def softplus(x: Array, /) -> Array:
    """log(1 + exp(x)), without overflow in between."""
    _floats("softplus", x)
    return logaddexp(x, 0.0)


def softmax(x: Array, /, *, axis: int = -1) -> Array:
    """exp(x) over its sum along an axis, without overflow in between."""
    n = _floats("softmax", x)
    return Array(build.make("softmax", (n,), n.shape, n.dtype, attributes(axes=(axis_of(axis, len(n.shape)),))))


def log_softmax(x: Array, /, *, axis: int = -1) -> Array:
    """The logarithm of `softmax`, accurate where that is small."""
    n = _floats("log_softmax", x)
    return Array(build.make("log_softmax", (n,), n.shape, n.dtype, attributes(axes=(axis_of(axis, len(n.shape)),))))


def cross_entropy(logits: Array, labels: Array, /) -> Array:
    """The mean of -log of the probability of each row's label. logits: (..., classes); labels: integers of the shape in front of the classes."""
    _floats("cross_entropy", logits)
    if not dtypes.is_int(node_of(labels, "the labels").dtype):
        raise ArrayTypeError(f"labels of {labels.dtype}", hint="integers: the number of a class")
    if labels.shape != logits.shape[:-1]:
        raise ArrayValueError(
            f"labels of shape {labels.shape} for logits of {logits.shape}",
            hint="one class for each row: the logits' shape without the last",
        )
    picked = take_along_axis(log_softmax(logits), expand_dims(labels, -1), axis=-1)
    return -mean(picked)


def mse_loss(x: Array, y: Array, /) -> Array:
    """The mean of the squares of the differences."""
    _floats("mse_loss", x)
    apart = x - y
    return mean(apart * apart)


def one_hot(labels: Array, classes: int, /, *, dtype: DTypeLike = dtypes.float32) -> Array:
    """1 at the place of each label in a new last dimension of `classes`, and 0 elsewhere; a label that is no class has zeros alone."""
    n = node_of(labels)
    if not dtypes.is_int(n.dtype):
        raise ArrayTypeError(f"labels of {labels.dtype}", hint="integers: the number of a class")
    places = Array(build.positions(0, (classes,), n.device))
    return astype(expand_dims(labels, -1) == places, dtype)


def rms_norm(x: Array, weight: Array | None = None, /, *, eps: float = 1e-6) -> Array:
    """The last dimension over the root of the mean of its squares; then by a weight of its extent."""
    _floats("rms_norm", x)
    made = x / (mean(x * x, axis=-1, keepdims=True) + eps) ** 0.5
    return made if weight is None else made * weight


def layer_norm(x: Array, weight: Array | None = None, bias: Array | None = None, /, *, eps: float = 1e-5) -> Array:
    """The last dimension less its mean, over its standard deviation; then by weight and bias of its extent."""
    _floats("layer_norm", x)
    centred = x - mean(x, axis=-1, keepdims=True)
    made = centred / (mean(centred * centred, axis=-1, keepdims=True) + eps) ** 0.5
    made = made if weight is None else made * weight
    return made if bias is None else made + bias


def _each(name: str, value: Any, d: int) -> tuple[int, ...]:
    found = (int(value),) * d if hasattr(value, "__index__") else tuple(int(v) for v in value)
    if len(found) != d:
        raise ArrayValueError(f"{name}={value} for {d} spatial dimensions", hint="one number, or one for each of them")
    return found


def conv(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    /,
    *,
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilations: int | Sequence[int] = 1,
    groups: int = 1,
) -> Array:
    """The cross-correlation of images with windows, `padding` zeros on both sides of each spatial dimension, and `bias` a channel."""
    a, w = _floats("conv", x), _floats("conv", weight)
    d = len(a.shape) - 2
    if d < 1 or len(w.shape) != d + 2 or a.shape[1] != w.shape[1] * groups or w.shape[0] % groups:
        raise ArrayValueError(
            f"conv of shapes {a.shape} and {w.shape} in {groups} groups",
            hint="x is (batch, channels, size ...), w (out channels, channels / groups, window ...)",
        )
    around = _each("padding", padding, d)
    made = _applied(
        "conv", a, w, strides=_each("strides", strides, d), dilations=_each("dilations", dilations, d), before=around, after=around, groups=groups,
    )  # fmt: skip
    return made if bias is None else made + reshape(bias, (bias.size, *(1,) * d))


def _pooled(op: str, x: Array, window: Any, strides: Any, padding: Any, **more: Any) -> Array:
    n = _floats(op, x)
    d = len(n.shape) - 2
    if d < 1:
        raise ArrayValueError(f"{op} of an array of {len(n.shape)} dimensions", hint="(batch, channels, size ...)")
    kernel, around = _each("window", window, d), _each("padding", padding, d)
    steps = kernel if strides is None else _each("strides", strides, d)
    room = tuple((m + 2 * p - k) // s + 1 for m, p, k, s in zip(n.shape[2:], around, kernel, steps))
    if min(room) < 1:
        raise ArrayValueError(
            f"{op} of shape {n.shape} by windows of {kernel}",
            hint="a window is no larger than what it slides over, padding included",
        )
    return _applied(
        op, n, kernel=kernel, strides=steps, dilations=(1,) * d, before=around, after=around, out_space=room, **more
    )


def max_pool(x: Array, window: Any, /, *, strides: Any = None, padding: Any = 0) -> Array:
    """The largest element of each window; `strides` are the window's extents where they are left out."""
    return _pooled("max_pool", x, window, strides, padding)


def avg_pool(x: Array, window: Any, /, *, strides: Any = None, padding: Any = 0) -> Array:
    """The mean of each window, in which padding counts as zeros."""
    return _pooled("avg_pool", x, window, strides, padding, include_pad=True)


check_names(globals(), "tec.array.nn")


def __getattr__(name: str) -> Any:
    raise missing(__name__, name, __all__)


__dir__ = listed(__name__)
