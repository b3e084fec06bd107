"""Normalizations: of layers, groups, batches and neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import te
from ..errors import ExprError
from ..te import Tensor
from ..te.tensor_ops import BROADCAST, elementwise
from . import broadcast
from .operators import axis_of, output, tensor, type_of
from .tag import INJECTIVE
from .transform import reshape, transpose


def along(v: Tensor, axis: int, x: Tensor) -> Tensor:
    """A vector as a tensor that broadcasts along `axis` of `x`."""
    if v.ndim != 1:
        raise ExprError(f"{v.name} has {v.ndim} dimensions and goes along one axis", hint="give a vector")
    behind = x.ndim - 1 - axis_of(axis, x.ndim, f"a vector along an axis of {x.name}")
    return reshape(v, (v.shape[0], *[1] * behind)) if behind else v


def layer_norm(data: Tensor, gamma: Tensor, beta: Tensor | None, axis: Sequence[int], epsilon: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta over the last dimensions, `axis`."""
    x = tensor(data, "layer_norm")
    axes = sorted(axis_of(a, x.ndim, "layer_norm") for a in ([axis] if isinstance(axis, int) else axis))
    if axes != list(range(axes[0], x.ndim)):
        raise ExprError(f"layer_norm over axes {axes} of {x.ndim} dimensions", hint="they are the last ones")
    y = broadcast.multiply(output("layer_norm", [x], axis=axes[0], epsilon=epsilon), tensor(gamma, "layer_norm"))
    return y if beta is None else broadcast.add(y, tensor(beta, "layer_norm"))  # type: ignore[no-any-return]


def rms_norm(data: Tensor, weight: Tensor, axis: Any = -1, epsilon: Any = 1e-5, *more: float) -> Tensor:
    """x / sqrt(mean of squares + epsilon) * weight over `axis`. As `(data, weight, bias, axis, epsilon)`, which TVM had first: with a bias."""
    if more or axis is None or isinstance(axis, Tensor):
        made = rms_norm(data, weight, epsilon, *more)
        return made if axis is None else broadcast.add(made, axis)
    x = tensor(data, "rms_norm")
    axes = tuple(axis_of(a, x.ndim, "rms_norm") for a in ([axis] if isinstance(axis, int) else axis))
    wide = x if x.dtype in ("float32", "float64") else x.astype("float32")
    mean = output("reduce_mean", [broadcast.multiply(wide, wide)], axes=axes, keepdims=True)
    return elementwise(
        lambda v, m, w: (v * te.rsqrt(m + te.const(epsilon, wide.dtype))).astype(x.dtype) * w,
        wide,
        mean,
        tensor(weight, "rms_norm"),
        name="rms_norm",
    )


def group_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    num_groups: int,
    channel_axis: int,
    axes: Sequence[int],
    epsilon: float = 1e-5,
) -> Tensor:
    """Each of `num_groups` groups of channels normalized over its channels and places; gamma and beta are one a channel."""
    x = tensor(data, "group_norm")
    places = sorted(axis_of(a, x.ndim, "group_norm") for a in axes)
    if axis_of(channel_axis, x.ndim, "group_norm") != 1 or places != list(range(2, x.ndim)):
        raise ExprError(
            "group_norm of another layout than (batch, channels, spatial...)",
            hint="channel_axis=1 and the axes behind it",
        )
    n, c, *space = type_of(x).shape
    flat = output("reshape", [x], INJECTIVE, shape=(n, num_groups, c // num_groups, *space))
    y = output("reshape", [output("layer_norm", [flat], axis=2, epsilon=epsilon)], INJECTIVE, shape=(n, c, *space))
    return broadcast.add(broadcast.multiply(y, along(gamma, 1, x)), along(beta, 1, x))  # type: ignore[no-any-return]


def instance_norm(
    data: Tensor, gamma: Tensor, beta: Tensor, channel_axis: Any, axis: Any = None, epsilon: float = 1e-5
) -> Tensor:
    """Each channel of each picture normalized over its places. As `(data, gamma, beta, axis, epsilon)`, which TVM had first: layer_norm."""
    if isinstance(channel_axis, Sequence):
        return layer_norm(data, gamma, beta, channel_axis, epsilon if axis is None else axis)
    return group_norm(data, gamma, beta, type_of(tensor(data, "instance_norm")).shape[1], channel_axis, axis, epsilon)


def batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    axis: int | None = None,
    epsilon: float | None = None,
    center: bool | None = None,
    scale: bool | None = None,
    training: bool | None = None,
    momentum: float | None = None,
) -> list[Tensor]:
    """(x - mean) / sqrt(var + epsilon) * gamma + beta along `axis` (1). Returns [y, moving_mean, moving_var].

    In training mean and variance are the batch's, and the moving ones go towards them by `momentum` (0.1); else these are copied.
    """
    x, at = tensor(data, "batch_norm"), 1 if axis is None else axis
    moving = [tensor(v, "batch_norm") for v in (moving_mean, moving_var)]
    if training:
        share = 0.1 if momentum is None else momentum
        rest = tuple(k for k in range(x.ndim) if k != axis_of(at, x.ndim, "batch_norm"))
        mean = output("reduce_mean", [x], axes=rest, keepdims=False)
        apart = broadcast.subtract(x, along(mean, at, x))
        seen = [mean, output("reduce_mean", [broadcast.multiply(apart, apart)], axes=rest, keepdims=False)]
        moving = [
            elementwise(lambda m, v: m * (1 - share) + v * share, m, v, name="moving") for m, v in zip(moving, seen)
        ]
    else:  # outputs are tensors of their own
        seen, moving = moving, [elementwise(lambda v: v, t, name="moving") for t in moving]
    m, v, g, b = (along(tensor(t, "batch_norm"), at, x) for t in (*seen, gamma, beta))
    tiny = te.const(1e-5 if epsilon is None else epsilon, x.dtype)

    def body(e: Any, m: Any, s: Any, g: Any, b: Any) -> Any:
        e = (e - m) / te.sqrt(s + tiny)
        e = e * g if scale is None or scale else e
        return e + b if center is None or center else e

    return [elementwise(body, x, m, v, g, b, name="batch_norm", tag=BROADCAST), *moving]


def lrn(data: Tensor, size: int, axis: int = 1, alpha: float = 0.0001, beta: float = 0.75, bias: float = 2.0) -> Tensor:
    """x / (bias + alpha / size * sum of squares of `size` neighbours along `axis`) ** beta."""
    x = tensor(data, "lrn")
    at = axis_of(axis, x.ndim, "lrn")
    swapped = [at if k == 1 else 1 if k == at else k for k in range(x.ndim)]
    made = output("lrn", [x if at == 1 else transpose(x, swapped)], size=size, alpha=alpha, beta=beta, bias=bias)
    return made if at == 1 else transpose(made, swapped)
