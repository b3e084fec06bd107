"""Gradients that have a name of their own: of pooling, and of depthwise convolutions by input and weight."""

from __future__ import annotations

from typing import Any, NamedTuple

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


class _Windows(NamedTuple):
    """Windows over two dimensions `at` of a picture, of `sizes` there."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    before: list[int]
    at: list[int]
    sizes: list[Any]

    def placed(self, i: tuple[Any, ...], h: Any, w: Any) -> list[Any]:
        """The indices of a picture's element, or of a window."""
        return [h if d == self.at[0] else w if d == self.at[1] else v for d, v in enumerate(i)]

    def winners(self, x: Tensor, shape: Any) -> Tensor:
        """The place, in row-major order, of the first of the largest elements of each window."""
        larger = te.comm_reducer(
            _larger, lambda place, value: (te.max_value(place), te.min_value(value)), name="larger"
        )
        dy, dx = (te.reduce_axis((0, k), name=n) for k, n in zip(self.kernel, ("dy", "dx")))

        def largest(*i: Any) -> Any:
            h = i[self.at[0]] * self.stride[0] + dy - self.before[0]
            w = i[self.at[1]] * self.stride[1] + dx - self.before[1]
            inside = te.all(h >= 0, h < self.sizes[0], w >= 0, w < self.sizes[1])
            value = te.if_then_else(inside, x(*self.placed(i, h, w)), te.min_value(x.dtype))
            place = te.if_then_else(inside, te.cast("int32", h * self.sizes[1] + w), te.max_value("int32"))
            return larger((place, value), axis=[dy, dx])

        found: Tensor = te.compute(shape, largest, name="winner")[0]
        return found

    def held(self, oh: Any, ow: Any) -> Any:
        """How many elements of the picture a window holds, at least 1."""
        product: Any = 1
        for o, s, b, k, n in zip((oh, ow), self.stride, self.before, self.kernel, self.sizes):
            product = product * (te.min(o * s - b + k, n) - te.max(o * s - b, 0))
        return te.max(product, 1)

    def gradient(self, x: Tensor, g: Tensor, winner: Tensor | None, whole: bool) -> Tensor:
        """The sum of what each element gets of the windows that hold it: `winner`'s, or a share of `whole` windows or of their elements inside."""
        # The windows that hold an element: so many before the last that begins at it or in front of it.
        ry, rx = (te.reduce_axis((0, -(-k // s)), name=n) for k, s, n in zip(self.kernel, self.stride, ("ry", "rx")))
        zero = te.const(0, g.dtype)

        def element(*i: Any) -> Any:
            h, w = (i[d] + b for d, b in zip(self.at, self.before))
            oh, ow = te.floordiv(h, self.stride[0]) - ry, te.floordiv(w, self.stride[1]) - rx
            part = g(*self.placed(i, oh, ow))
            if winner is not None:
                place = i[self.at[0]] * self.sizes[1] + i[self.at[1]]
                part = te.select(winner(*self.placed(i, oh, ow)) == place, part, zero)
            else:
                part = part / te.cast(g.dtype, self.kernel[0] * self.kernel[1] if whole else self.held(oh, ow))
            holds = te.all(
                oh >= 0, oh < g.shape[self.at[0]], ow >= 0, ow < g.shape[self.at[1]],
                h - oh * self.stride[0] < self.kernel[0], w - ow * self.stride[1] < self.kernel[1],
            )  # fmt: skip
            return te.sum(te.if_then_else(holds, part, zero), axis=[ry, rx])

        made: Tensor = te.compute(x.shape, element, name="pool_grad")
        return made


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
    w = _Windows(_pair(kernel), _pair(stride), [int(p) for p in padding[:2]], at, [x.shape[d] for d in at])
    winner = w.winners(x, g.shape) if pool_type == "max" else None
    return w.gradient(x, g, winner, count_include_pad)


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
