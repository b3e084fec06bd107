"""Gradients that have a name of their own: of pooling, and of depthwise convolutions by input and weight."""

from __future__ import annotations

from typing import Any

from .. import te
from ..errors import ExprError
from ..te import Tensor
from .nn import pad
from .operators import check_sizes, tensor, type_of
from .window import padding_of

__all__ = ["depthwise_conv2d_backward_input_nhwc", "depthwise_conv2d_backward_weight_nhwc", "pool_grad"]


def _pair(v: Any) -> tuple[int, int]:
    y, x = (v, v) if isinstance(v, int) else v
    return int(y), int(x)


def _larger(lhs: Any, rhs: Any) -> Any:
    """The place of the larger value; of equal ones the first."""
    first = te.any(lhs[1] > rhs[1], te.all(lhs[1] == rhs[1], lhs[0] < rhs[0]))
    return te.select(first, lhs[0], rhs[0]), te.select(first, lhs[1], rhs[1])


def pool_grad(
    grads: Tensor,
    data: Tensor,
    kernel: Any,
    stride: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCHW",
    count_include_pad: bool = True,
) -> Tensor:
    """The gradient of `pool2d` by its input, where its output's is `grads`. "max": it goes to the first of the largest elements of a window; "avg": to all alike.

    Raises ExprError for a layout that splits height or width.

    >>> x, g = te.placeholder((1, 2, 4, 4), name="x"), te.placeholder((1, 2, 2, 2), name="g")
    >>> topi.nn.pool_grad(g, x, [2, 2], [2, 2], [0, 0, 0, 0], "max").shape
    (1, 2, 4, 4)
    """
    x, g = tensor(data, "pool_grad"), tensor(grads, "pool_grad")
    axes = [c for c in layout if c.isalpha()]
    if pool_type not in ("max", "avg") or {"h", "w"} & set(axes) or not {"H", "W"} <= set(axes) or len(axes) != x.ndim:
        raise ExprError(f"pool_grad of type {pool_type!r} and layout {layout!r}", hint="'max' or 'avg'; H and W whole")
    at = [axes.index("H"), axes.index("W")]
    (kh, kw), (sh, sw), before = _pair(kernel), _pair(stride), [int(p) for p in padding[:2]]
    sizes = [x.shape[d] for d in at]
    many = [g.shape[d] for d in at]

    def placed(i: tuple[Any, ...], h: Any, w: Any) -> list[Any]:
        return [h if d == at[0] else w if d == at[1] else v for d, v in enumerate(i)]

    def inside(h: Any, w: Any) -> Any:
        return te.all(h >= 0, h < sizes[0], w >= 0, w < sizes[1])

    dy, dx = te.reduce_axis((0, kh), name="dy"), te.reduce_axis((0, kw), name="dx")
    if pool_type == "max":
        larger = te.comm_reducer(
            _larger, lambda place, value: (te.max_value(place), te.min_value(value)), name="larger"
        )

        def largest(*i: Any) -> Any:
            h, w = i[at[0]] * sh + dy - before[0], i[at[1]] * sw + dx - before[1]
            value = te.if_then_else(inside(h, w), x(*placed(i, h, w)), te.min_value(x.dtype))
            place = te.if_then_else(inside(h, w), te.cast("int32", h * sizes[1] + w), te.max_value("int32"))
            return larger((place, value), axis=[dy, dx])

        winner = te.compute(g.shape, largest, name="winner")[0]

    def share(i: tuple[Any, ...], h: Any, w: Any, oh: Any, ow: Any) -> Any:
        value = g(*placed(i, oh, ow))
        if pool_type == "max":
            return te.select(winner(*placed(i, oh, ow)) == h * sizes[1] + w, value, te.const(0, g.dtype))
        ends = [
            (te.max(o * s - b, 0), te.min(o * s - b + k, n))
            for o, s, b, k, n in zip((oh, ow), (sh, sw), before, (kh, kw), sizes)
        ]
        count = kh * kw if count_include_pad else te.max((ends[0][1] - ends[0][0]) * (ends[1][1] - ends[1][0]), 1)
        return value / te.cast(g.dtype, count)

    # The windows that hold an element: `ry` of the last that begins at it or before.
    ry, rx = te.reduce_axis((0, -(-kh // sh)), name="ry"), te.reduce_axis((0, -(-kw // sw)), name="rx")

    def gradient(*i: Any) -> Any:
        h, w = i[at[0]], i[at[1]]
        oh, ow = te.floordiv(h + before[0], sh) - ry, te.floordiv(w + before[1], sw) - rx
        holds = te.all(
            oh >= 0, oh < many[0], ow >= 0, ow < many[1], h + before[0] - oh * sh < kh, w + before[1] - ow * sw < kw,
        )  # fmt: skip
        return te.sum(te.if_then_else(holds, share(i, h, w, oh, ow), te.const(0, g.dtype)), axis=[ry, rx])

    made: Tensor = te.compute(x.shape, gradient, name="pool_grad")
    return made


def depthwise_conv2d_backward_input_nhwc(
    Filter: Tensor, Out_grad: Tensor, oshape: Any, ishape: Any, stride: Any, padding: Any
) -> Tensor:
    """The gradient of a depthwise convolution by its input. Filter: (height, width, channels, multiplier); Out_grad: (batch, height, width, channels x multiplier);
    ishape: the input's shape (batch, height, width, channels); padding: a number, a list, "VALID" or "SAME"."""
    f, g = (
        tensor(Filter, "depthwise_conv2d_backward_input_nhwc"),
        tensor(Out_grad, "depthwise_conv2d_backward_input_nhwc"),
    )
    (sh, sw), (fh, fw, _, multiplier) = _pair(stride), type_of(f).shape
    check_sizes("depthwise_conv2d_backward_input_nhwc", (f.shape[2] * multiplier, g.shape[3]))
    (top, left), _ = padding_of(padding, (fh, fw), (1, 1), "depthwise_conv2d_backward_input_nhwc")
    dh, dw = te.reduce_axis((0, fh), name="dh"), te.reduce_axis((0, fw), name="dw")
    dc = te.reduce_axis((0, multiplier), name="dc")

    def gradient(b: Any, h: Any, w: Any, c: Any) -> Any:
        y, x = h + top - dh, w + left - dw
        oh, ow = te.floordiv(y, sh), te.floordiv(x, sw)
        meets = te.all(
            y >= 0, x >= 0, te.floormod(y, sh) == 0, te.floormod(x, sw) == 0, oh < g.shape[1], ow < g.shape[2]
        )
        part = te.if_then_else(meets, g[b, oh, ow, c * multiplier + dc], te.const(0, g.dtype))
        return te.sum(part * f[dh, dw, c, dc], axis=[dh, dw, dc])

    made: Tensor = te.compute(tuple(ishape), gradient, name="In_grad", tag="depthwise_conv2d_backward_input_nhwc")
    return made


def depthwise_conv2d_backward_weight_nhwc(
    Input: Tensor, Out_grad: Tensor, oshape: Any, fshape: Any, stride: Any, padding: Any
) -> Tensor:
    """The gradient of a depthwise convolution by its weights of shape `fshape` (height, width, channels, multiplier). See `depthwise_conv2d_backward_input_nhwc`."""
    x, g = (
        tensor(Input, "depthwise_conv2d_backward_weight_nhwc"),
        tensor(Out_grad, "depthwise_conv2d_backward_weight_nhwc"),
    )
    (sh, sw), (fh, fw, channels, multiplier) = _pair(stride), [int(n) for n in fshape]
    check_sizes("depthwise_conv2d_backward_weight_nhwc", (x.shape[3], channels), (channels * multiplier, g.shape[3]))
    front, back = padding_of(padding, (fh, fw), (1, 1), "depthwise_conv2d_backward_weight_nhwc")
    padded = pad(x, [0, *front, 0], [0, *back, 0])
    db, dh, dw = (te.reduce_axis((0, g.shape[d]), name=n) for d, n in enumerate(("db", "dh", "dw")))
    made: Tensor = te.compute(
        (fh, fw, channels, multiplier),
        lambda y, z, c, m: te.sum(g[db, dh, dw, c * multiplier + m] * padded[db, y + dh * sh, z + dw * sw, c], axis=[db, dh, dw]),
        name="Weight_grad", tag="depthwise_conv2d_backward_weight_nhwc",
    )  # fmt: skip
    return made
