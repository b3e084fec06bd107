"""Every operator whose gradient can be asked for, with inputs and what PyTorch has for it; and those that have none, with the reason.

A row: how a Builder adds it, its inputs (float64 ones are differentiated by), and the same of torch: `f(torch, *inputs)`, None where torch has no such
function. `NONE` names the others; `test_every_operator_has_a_row` holds both against the table of operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Row = tuple[Callable[..., Any], dict[str, Any], Callable[..., Any] | None]


def numbers(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> Any:
    return np.random.default_rng(seed + sum(shape)).uniform(low, high, shape)


X, Y, ROW, P = numbers(2, 3), numbers(2, 3, seed=1), numbers(3), numbers(2, 3, low=0.4, high=2.0)
S = numbers(2, 3, low=-0.8, high=0.8)
PICTURE, KERNEL = numbers(1, 2, 4, 4), numbers(2, 2, 3, 3)
ACROSS = np.array([[0, 2, 1], [1, 1, 0]], "int64")
CONV = {"strides": (1, 1), "before": (1, 1), "after": (1, 1), "dilations": (1, 1), "groups": 1}
POOL = {
    "kernel": (2, 2),
    "strides": (2, 2),
    "before": (0, 0),
    "after": (0, 0),
    "dilations": (1, 1),
    "out_space": (2, 2),
}
PLACES = np.array([[[[1, 2], [8, 15]], [[16, 22], [28, 30]]]], "int64")  # in the flattened output of max_unpool
ROI = {"height": 2, "width": 2, "ratio_h": 2, "ratio_w": 1, "scale": 0.5, "half": True}
BOXES = np.array([[0.3, 0.9, 6.2, 7.1], [1.7, 0.2, 4.4, 9.9]])  # one reaches out of the picture
CODES = np.random.default_rng(0).integers(0, 256, (3, 4), "uint8")


def unary(name: str, x: Any = X, torch: Callable[..., Any] | None = None, **attrs: Any) -> Row:
    return lambda b, x: b.op(name, x, **attrs), {"x": x}, torch or (lambda t, x: getattr(t, name)(x))


def binary(name: str, x: Any = X, y: Any = ROW, torch: str = "") -> Row:
    return lambda b, x, y: b.op(name, x, y), {"x": x, "y": y}, lambda t, x, y: getattr(t, torch or name)(x, y)


def reduction(name: str, torch: Callable[..., Any], x: Any = X) -> Row:
    return lambda b, x: b.op(name, x, axes=(1,), keepdims=False), {"x": x}, torch


def nn(name: str, *args: Any) -> Callable[..., Any]:
    return lambda t, x: getattr(t.nn.functional, name)(x, *args)


def _turned(t: Any, x: Any, c: Any, s: Any) -> Any:
    a, b = x[..., :2], x[..., 2:4]
    return t.cat([a * c - b * s, b * c + a * s, x[..., 4:]], -1)


def _moved(t: Any, x: Any, w: Any, o: Any, m: Any) -> Any:
    """A sample of the picture of 3 x 3 for each place of the window, by grid_sample, whose places go from -1 to 1."""
    line, total = t.arange(4, dtype=x.dtype), 0
    for k, (r, s) in enumerate(np.ndindex(2, 2)):
        y, z = line[:, None] + r - 1 + o[0, 2 * k], line + s - 1 + o[0, 2 * k + 1]
        sample = t.nn.functional.grid_sample(x, t.stack([z - 1, y - 1], -1)[None], align_corners=True) * m[:, k : k + 1]
        total = total + t.einsum("ncij,oc->noij", sample, w[:, :, r, s])
    return total


def _scaled(t: Any, q: Any, s: Any, z: Any) -> Any:
    codes = t.stack([q & 15, q >> 4], -1).reshape(3, 8)
    return ((codes - z.repeat_interleave(4, 1)) * s.repeat_interleave(4, 1)).float()


ROWS: dict[str, Row] = {
    **{n: unary(n) for n in ("exp", "atan", "sinh", "cosh", "asinh", "expm1", "exp2", "sin", "cos", "tan", "erf", "tanh", "sigmoid", "abs", "neg", "square", "relu")},
    **{n: unary(n, P) for n in ("sqrt", "rsqrt", "log", "log1p", "log2", "log10", "reciprocal")},
    **{n: unary(n, S) for n in ("asin", "acos", "atanh")},
    "acosh": unary("acosh", P + 1.0), "identity": unary("identity", torch=lambda t, x: x),
    "leaky_relu": unary("leaky_relu", torch=nn("leaky_relu", 0.1), alpha=0.1), "elu": unary("elu", torch=nn("elu", 0.7), alpha=0.7),
    "thresholded_relu": unary("thresholded_relu", torch=nn("threshold", 0.5, 0.0), alpha=0.5), "celu": unary("celu", torch=nn("celu", 0.7), alpha=0.7),
    "selu": unary("selu", torch=nn("selu"), alpha=1.6732632423543772, gamma=1.0507009873554805),
    "hard_sigmoid": unary("hard_sigmoid", torch=nn("hardsigmoid"), alpha=1 / 6, beta=0.5), "hard_swish": unary("hard_swish", torch=nn("hardswish")),
    **{n: unary(n, x, torch) for n, x, torch in (
        ("erfc", X, lambda t, x: t.erfc(x)), ("erfcx", X, lambda t, x: t.special.erfcx(x)), ("erfinv", S, lambda t, x: t.erfinv(x)),
        ("ndtri", S * 0.5 + 0.5, lambda t, x: t.special.ndtri(x)), ("lgamma", P, lambda t, x: t.lgamma(x)), ("digamma", P, lambda t, x: t.digamma(x)),
    )},
    "polygamma": unary("polygamma", P, lambda t, x: t.polygamma(2, x), n=2),
    "bessel_i": unary("bessel_i", X, lambda t, x: t.special.i1e(x), order=1, scaled=True),
    "bessel_j": (lambda b, x: b.op("bessel_j", x, order=0), {"x": X}, None),
    "softplus": unary("softplus", torch=nn("softplus")), "softsign": unary("softsign", torch=nn("softsign")), "mish": unary("mish", torch=nn("mish")),
    "silu": unary("silu", torch=lambda t, x: x * t.sigmoid(1.5 * x), alpha=1.5), "gelu": unary("gelu", torch=nn("gelu")),
    "gelu_tanh": unary("gelu_tanh", torch=lambda t, x: t.nn.functional.gelu(x, approximate="tanh")),
    "shrink": unary("shrink", torch=lambda t, x: t.where(x < -0.5, x + 0.2, t.where(x > 0.5, x - 0.2, 0 * x)), lambd=0.5, bias=0.2),
    "clip": unary("clip", torch=lambda t, x: t.clamp(x, -0.5, 0.5), low=-0.5, high=0.5),
    "cast": unary("cast", torch=lambda t, x: x.to(t.float32).to(t.float64), dtype="float32"),
    **{n: unary(n) for n in ("floor", "ceil", "trunc", "sign")}, "round_even": unary("round_even", torch=lambda t, x: t.round(x)),
    **{n: binary(n) for n in ("add", "subtract", "multiply", "maximum", "minimum", "atan2", "hypot", "logaddexp")},
    "divide": binary("divide", X, P), "power": binary("power", P, ROW, "pow"), "copysign": binary("copysign"),
    "floor_mod": binary("floor_mod", P + 2, np.array([0.7, 1.3, 0.9]), "remainder"), "trunc_mod": binary("trunc_mod", X + 3, np.array([0.7, 1.3, 0.9]), "fmod"),
    "prelu": (lambda b, x, y: b.op("prelu", x, y), {"x": X, "y": ROW}, lambda t, x, y: t.where(x < 0, x * y, x)),
    "where": (lambda b, x, y: b.op("where", b.op("greater", x, b.like(0.2, x)), x, y), {"x": X, "y": Y}, lambda t, x, y: t.where(x > 0.2, x, y)),
    "broadcast_to": (lambda b, x: b.op("broadcast_to", x, shape=(2, 3)), {"x": ROW}, lambda t, x: x.expand(2, 3)),
    "reshape": (lambda b, x: b.reshape(x, (3, 2)), {"x": X}, lambda t, x: x.reshape(3, 2)),
    "transpose": (lambda b, x: b.transpose(x, (1, 0)), {"x": X}, lambda t, x: x.T),
    "slice": (lambda b, x: b.op("slice", x, starts=(0, 2), steps=(1, -2), sizes=(2, 2)), {"x": X}, lambda t, x: x.flip(1)[:, ::2]),
    "concat": (lambda b, x, y: b.concat([x, y, x], 1), {"x": X, "y": Y}, lambda t, x, y: t.cat([x, y, x], 1)),
    "pad": (lambda b, x: b.op("pad", x, before=(0, 1), after=(0, 2), mode="reflect"), {"x": X}, lambda t, x: t.nn.functional.pad(x, (1, 2), mode="reflect")),
    "tile": (lambda b, x: b.op("tile", x, repeats=(2, 3)), {"x": X}, lambda t, x: x.repeat(2, 3)),
    "gather": (lambda b, x, i: b.op("gather", x, i, axis=1), {"x": X, "i": np.array([0, 2, 2, 1])}, lambda t, x, i: x[:, i]),
    "gather_elements": (lambda b, x, i: b.op("gather_elements", x, i, axis=1), {"x": X, "i": ACROSS}, lambda t, x, i: t.gather(x, 1, i)),
    "gather_nd": (lambda b, x, i: b.op("gather_nd", x, i, batch_dims=0), {"x": X, "i": np.array([[0, 1], [1, 2], [0, 1]])}, lambda t, x, i: x[i[:, 0], i[:, 1]]),
    "one_hot": (lambda b, i, v: b.op("one_hot", i, v, depth=3, axis=-1), {"i": np.array([1, 0]), "v": numbers(2)},
                lambda t, i, v: v[0] + (v[1] - v[0]) * t.nn.functional.one_hot(i, 3)),
    "trilu": (lambda b, x: b.op("trilu", x, k=0, upper=True), {"x": X}, lambda t, x: t.triu(x)),
    "reverse_sequence": (lambda b, x, n: b.op("reverse_sequence", x, n, batch_axis=0, time_axis=1), {"x": X, "n": np.array([3, 1])},
                         lambda t, x, n: t.stack([x[0].flip(0), x[1]])),
    "grid_sample": (lambda b, x, g: b.op("grid_sample", x, g, mode="linear", padding="zeros", align=False), {"x": PICTURE, "g": numbers(1, 2, 3, 2, low=-0.6, high=0.6)},
                    lambda t, x, g: t.nn.functional.grid_sample(x, g, align_corners=False)),
    "matmul": (lambda b, x, w: b.op("matmul", x, w), {"x": numbers(2, 2, 3), "w": numbers(3, 2)}, lambda t, x, w: x @ w),
    "expert_matmul": (lambda b, x, w, e: b.op("expert_matmul", x, w, e, experts=3, bits=0, depth=4, columns=6),
                      {"x": numbers(2, 4), "w": numbers(6, 4), "e": np.array([[0, 2], [2, 1]])},
                      lambda t, x, w, e: t.einsum("rk,rcnk->rcn", x, w.reshape(3, 2, 4)[e]).reshape(4, 2)),
    "einsum": (lambda b, x, y: b.op("einsum", x, y, equation="bij,bjk->bik"), {"x": numbers(2, 2, 3), "y": numbers(2, 3, 2)},
               lambda t, x, y: t.einsum("bij,bjk->bik", x, y)),
    "conv": (lambda b, x, w: b.op("conv", x, w, **CONV), {"x": PICTURE, "w": KERNEL}, lambda t, x, w: t.nn.functional.conv2d(x, w, padding=1)),
    "conv_transpose": (lambda b, x, w: b.op("conv_transpose", x, w, **CONV, out_space=(4, 4)), {"x": PICTURE, "w": KERNEL},
                       lambda t, x, w: t.nn.functional.conv_transpose2d(x, w, padding=1)),
    "attention": (lambda b, q, k, v: b.op("attention", q, k, v, scale=0.5), {"q": numbers(1, 2, 2, 3), "k": numbers(1, 2, 3, 3), "v": numbers(1, 2, 3, 3, seed=3)},
                  lambda t, q, k, v: t.softmax(q @ k.mT * 0.5, -1) @ v),
    "softmax": (lambda b, x: b.op("softmax", x, axes=(1,)), {"x": X}, lambda t, x: t.softmax(x, 1)),
    "log_softmax": (lambda b, x: b.op("log_softmax", x, axes=(1,)), {"x": X}, lambda t, x: t.log_softmax(x, 1)),
    "layer_norm": (lambda b, x: b.op("layer_norm", x, axis=1, epsilon=1e-5), {"x": X},
                   lambda t, x: t.nn.functional.layer_norm(x, (3,))),
    "rms_norm": (lambda b, x: b.op("rms_norm", x, axis=1, epsilon=1e-5), {"x": X},
                 lambda t, x: t.nn.functional.rms_norm(x, (3,), eps=1e-5)),
    "max_norm": (lambda b, x: b.op("max_norm", x, axis=1, factor=0.5, least=1e-9), {"x": X},
                 lambda t, x: x / (x.abs().amax(1, keepdim=True) * 0.5)),
    "log_sum_exp": (lambda b, x: b.op("log_sum_exp", x, axis=1), {"x": X}, lambda t, x: t.logsumexp(x, 1, keepdim=True)),
    "log_softmax_of": (lambda b, x, y: b.op("log_softmax_of", x, y, axis=1), {"x": X, "y": Y},
                       lambda t, x, y: y - t.logsumexp(x, 1, keepdim=True)),
    "lrn": (lambda b, x: b.op("lrn", x, size=3, alpha=0.3, beta=0.75, bias=1.5), {"x": numbers(1, 4, 2, 2)},
            lambda t, x: t.nn.functional.local_response_norm(x, 3, 0.3, 0.75, 1.5)),
    "scatter_elements": (lambda b, x, i, u: b.op("scatter_elements", x, i, u, axis=1, reduction="add"), {"x": X, "i": ACROSS, "u": Y},
                         lambda t, x, i, u: t.scatter_add(x, 1, i, u)),
    "scatter_nd": (lambda b, x, i, u: b.op("scatter_nd", x, i, u, reduction="add"), {"x": numbers(4, 3), "i": np.array([[1], [3]]), "u": X},
                   lambda t, x, i, u: x.index_add(0, i[:, 0], u)),
    "cumsum": (lambda b, x: b.op("cumsum", x, axis=1), {"x": X}, lambda t, x: t.cumsum(x, 1)),
    "cumprod": (lambda b, x: b.op("cumprod", x, axis=1), {"x": X}, lambda t, x: t.cumprod(x, 1)),
    "topk": (lambda b, x: b.ops("topk", x, k=2, axis=1)[0], {"x": X}, lambda t, x: t.topk(x, 2, 1).values),
    "reduce_sum": reduction("reduce_sum", lambda t, x: x.sum(1)), "reduce_mean": reduction("reduce_mean", lambda t, x: x.mean(1)),
    "reduce_prod": reduction("reduce_prod", lambda t, x: x.prod(1)), "reduce_max": reduction("reduce_max", lambda t, x: t.amax(x, 1)),
    "reduce_min": reduction("reduce_min", lambda t, x: t.amin(x, 1)), "reduce_sum_square": reduction("reduce_sum_square", lambda t, x: (x * x).sum(1)),
    "reduce_sum_abs": reduction("reduce_sum_abs", lambda t, x: x.abs().sum(1)),
    "max_pool": (lambda b, x: b.op("max_pool", x, **POOL), {"x": PICTURE}, lambda t, x: t.nn.functional.max_pool2d(x, 2)),
    "avg_pool": (lambda b, x: b.op("avg_pool", x, **POOL), {"x": PICTURE}, lambda t, x: t.nn.functional.avg_pool2d(x, 2)),
    "lp_pool": (lambda b, x: b.op("lp_pool", x, **POOL, p=2), {"x": PICTURE}, lambda t, x: t.nn.functional.lp_pool2d(x, 2.0, 2)),
    "max_unpool": (lambda b, x, i: b.op("max_unpool", x, i, shape=(1, 2, 4, 4)), {"x": numbers(1, 2, 2, 2), "i": PLACES},
                   lambda t, x, i: t.nn.functional.max_unpool2d(x, i - 16 * t.arange(2).reshape(2, 1, 1), 2)),
    "resample": (lambda b, x, i, w: b.op("resample", x, i, w, axis=1), {"x": X, "i": np.array([[0, 0, 1, 2], [0, 1, 2, 2]]), "w": numbers(2, 4)},
                 lambda t, x, i, w: x[:, i[0]] * w[0] + x[:, i[1]] * w[1]),
    "roi_align": (lambda b, x, r, n: b.op("roi_align", x, r, n, **ROI, mode="avg"), {"x": PICTURE, "r": BOXES, "n": np.array([0, 0])}, None),  # torchvision has none by the boxes
    "deform_conv": (lambda b, x, w, o, m: b.op("deform_conv", x, w, o, m, **CONV, offset_groups=1),
                    {"x": numbers(1, 2, 3, 3), "w": numbers(2, 2, 2, 2), "o": numbers(1, 8, 4, 4, low=0.1, high=0.9), "m": numbers(1, 4, 4, 4)}, _moved),
    "rotary": (lambda b, x, c, s: b.op("rotary", x, c, s), {"x": numbers(2, 3, 6), "c": numbers(3, 2), "s": numbers(3, 2, seed=1)}, _turned),
    "dequantize": (lambda b, q, s, z: b.op("dequantize", q, s, z, bits=4, shape=(3, 8), axis=1, block=4, dtype="float32"),
                   {"q": CODES, "s": numbers(3, 2), "z": numbers(3, 2, seed=1)}, _scaled),
}  # fmt: skip
TIES = {"relu", "abs", "maximum"}

_INTEGERS = "gives or takes integers or truth values"
_LATER = "made by passes of the compiler, behind which no gradient is taken"
NONE: dict[str, str] = {
    **dict.fromkeys(
        "isnan isfinite isinf logical_not bitwise_not signbit signum bitwise_and bitwise_or bitwise_xor shift_left shift_right left_shift right_shift equal not_equal less "
        "less_equal greater greater_equal logical_and logical_or logical_xor positions sizes iota require reduce_any reduce_all all_in_parts argmax argmin bitcast cummax "
        "nextafter floor_divide remainder int_power mx_matmul mx_quantize".split(),
        _INTEGERS,
    ),
    **dict.fromkeys("packed_matmul round_blocks projection transform_layout append vjp conv_sum conv_phases resample_axes tap_sum".split(), _LATER),
    **dict.fromkeys("all_reduce all_gather reduce_scatter all_to_all".split(), "no computation of one device: refused"),
    **dict.fromkeys("choose loop".split(), "regions: refused, write their steps out"),
    "write_rows": "writes into the memory of a state: refused",
    **dict.fromkeys("tree_leaves tree_sums".split(), "steps of its input: zero but where a comparison changes"),
    "mx_round": "rounds a block by its largest element: zero but at the steps, which differences of float32 cannot tell from them",
    **dict.fromkeys("recurrence linear_recurrence cholesky lu row_order substitution".split(), "its definition is a loop written by hand: refused, write the steps out"),
}  # fmt: skip
