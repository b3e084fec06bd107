"""Random operators of the kinds that `cliff_cases` leaves out, each with what PyTorch does for it: rarer operators, axes that are not the last, and types other than floats.

As there, a function draws a case; here it also says its peer, a function of (torch, inputs, weights) that gives a call without arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from benchmarks.cliff_cases import Bounds, Case, drawn_shape, size, until

_INTEGERS = ("int8", "uint8", "int32", "int64")
DTYPES = ("float16", "bfloat16", "float32", "float64", "bool", *_INTEGERS)


def _axis_norm(c: Case, rng: Random, b: Bounds) -> None:
    """A norm over an axis that is not the last, or over the planes of an image."""
    n, channels, side = until(
        lambda: (rng.choice((1, 2, 8, 32)), size(rng, 4, 1024), size(rng, 5, 256)),
        lambda n, ch, side: 2**14 <= n * ch * side * side <= b.elements,
    )
    what = c.spec["what"] = rng.choice(("group", "instance", "first", "l2"))
    c.spec |= {"n": n, "channels": channels, "side": side}
    x = c.input("x", n, channels, side, side)
    if what == "group":
        groups = c.spec["groups"] = rng.choice([g for g in (1, 2, 3, 4, 8, 32) if channels % g == 0])
        # GroupNormalization of opset 20 scales by groups, so exporters write an instance norm of groups and a scale.
        flat = c.op("Reshape", x, c.const(np.array([n, groups, -1])))
        ones, zeros = (c.const(np.full(groups, v, c.dtype)) for v in (1, 0))
        y = c.op(
            "Reshape", c.op("InstanceNormalization", flat, ones, zeros), c.const(np.array([n, channels, side, side]))
        )
        scale, bias = c.weight(channels, 1, 1), c.weight(channels, 1, 1)
        c.finish(c.op("Add", c.op("Mul", y, scale), bias))
        c.peer = lambda torch, x, w: (
            lambda: torch.nn.functional.group_norm(x[0], groups, w[-2].flatten(), w[-1].flatten())
        )
    elif what == "instance":
        c.finish(c.op("InstanceNormalization", x, c.weight(channels), c.weight(channels)))
        c.peer = lambda torch, x, w: lambda: torch.nn.functional.instance_norm(x[0], weight=w[0], bias=w[1])
    elif what == "first":
        axis = c.const(np.array([1]))
        centred = c.op("Sub", x, c.op("ReduceMean", x, axis, keepdims=1))
        square = c.op("ReduceMean", c.op("Mul", centred, centred), axis, keepdims=1)
        y = c.op("Div", centred, c.op("Sqrt", c.op("Add", square, c.scalar(1e-3))))
        c.finish(c.op("Mul", y, c.weight(channels, 1, 1)))

        def layer_norm(torch: Any, x: list[Any], w: list[Any]) -> Callable[[], Any]:
            def run() -> Any:
                y = torch.nn.functional.layer_norm(x[0].permute(0, 2, 3, 1), (channels,), w[-1].flatten(), None, 1e-3)
                return y.permute(0, 3, 1, 2)

            return run

        c.peer = layer_norm
    else:
        c.finish(c.op("LpNormalization", x, axis=1, p=2))
        c.peer = lambda torch, x, w: lambda: torch.nn.functional.normalize(x[0], dim=1)


def _one_hot(c: Case, rng: Random, b: Bounds) -> None:
    count, depth = until(lambda: (size(rng, 16, 65536), size(rng, 3, 16384)), lambda m, n: 2**14 <= m * n <= b.elements)
    c.spec = {"count": count, "depth": depth}
    i = c.indices("i", count, depth)
    c.finish(c.op("OneHot", i, c.const(np.array(depth)), c.const(np.array([0, 1], c.dtype)), axis=-1))

    def peer(torch: Any, x: list[Any], w: list[Any]) -> Callable[[], Any]:
        ones = w[1][1]
        return lambda: torch.zeros(count, depth, dtype=ones.dtype, device=ones.device).scatter_(1, x[0][:, None], 1.0)

    c.peer = peer


def _scatter(c: Case, rng: Random, b: Bounds) -> None:
    rows, n, picked = until(
        lambda: (size(rng, 8, 100_000), size(rng, 1, 2048), size(rng, 1, 65536)),
        lambda rows, n, m: rows * n <= b.elements and 2**12 <= m * n <= b.elements and m <= rows,
    )
    how = rng.choice(("nd", "nd add", "elements"))
    c.spec = {"rows": rows, "columns": n, "picked": picked, "how": how.replace(" ", "+")}
    x, u = c.input("x", rows, n), c.input("u", picked, n)
    if how == "elements":
        i = c.given("i", lambda r: np.argsort(r.random((rows, n)), 0)[:picked].astype(np.int64))
        c.finish(c.op("ScatterElements", x, i, u, axis=0))
        c.peer = lambda torch, x, w: lambda: torch.scatter(x[0], 0, x[2], x[1])
        return
    add = how == "nd add"
    i = c.given("i", lambda r: r.permutation(rows)[:picked].reshape(picked, 1).astype(np.int64))
    c.finish(c.op("ScatterND", x, i, u, **({"reduction": "add"} if add else {})))
    copy = "index_add" if add else "index_copy"
    c.peer = lambda torch, x, w: lambda f=getattr(torch, copy), i=x[2].flatten(): f(x[0], 0, i, x[1])


def _trilu(c: Case, rng: Random, b: Bounds) -> None:
    batch, m, n = until(
        lambda: (rng.choice((1, 1, 4, 12, 32)), size(rng, 16, 4096), size(rng, 16, 4096)),
        lambda z, m, n: 2**14 <= z * m * n <= b.elements,
    )
    upper, k = rng.choice((0, 1)), rng.randint(-3, 3)
    c.spec = {"batch": batch, "m": m, "n": n, "upper": upper, "k": k}
    c.finish(c.op("Trilu", c.input("x", batch, m, n), c.const(np.array(k)), upper=upper))
    c.peer = lambda torch, x, w: lambda: (torch.triu if upper else torch.tril)(x[0], k)


_EINSUMS = (
    "bij,bjk->bik",
    "bhqd,bkhd->bhqk",
    "bij,kj->bki",
    "bij,bij->b",
    "bi,bj->bij",
    "bcij,cd->bdij",
    "ij,jk,kl->il",
)


def _einsum(c: Case, rng: Random, b: Bounds) -> None:
    equation = rng.choice(_EINSUMS)
    operands, _, result = equation.partition("->")
    names = sorted(set(equation) - set(",->"))

    def fits(*sizes: int) -> bool:
        of = dict(zip(names, sizes))
        shapes = [*operands.split(","), result]
        counts = [math.prod(of[a] for a in s) for s in shapes]
        return math.prod(sizes) <= b.macs and max(counts) <= b.elements and max(counts) >= 2**14

    sizes = dict(zip(names, until(lambda: tuple(size(rng, 2, 1024) for _ in names), fits)))
    c.spec = {"equation": equation, **sizes}
    xs = [c.input(f"x{k}", *(sizes[a] for a in s)) for k, s in enumerate(operands.split(","))]
    c.macs = math.prod(sizes.values())
    c.finish(c.op("Einsum", *xs, equation=equation))
    c.peer = lambda torch, x, w: lambda: torch.einsum(equation, *x)


def _pool(c: Case, rng: Random, b: Bounds) -> None:
    n, channels, side, kernel, stride = until(
        lambda: (
            rng.choice((1, 2, 8, 32)), size(rng, 3, 1024), size(rng, 7, 256), rng.choice((2, 3, 3, 5, 7)), rng.choice((1, 2, 2, 3)),
        ),
        lambda n, ch, side, kernel, stride: 2**14 <= n * ch * side * side <= b.elements,
    )  # fmt: skip
    what = rng.choice(("MaxPool", "AveragePool", "GlobalAveragePool"))
    c.spec = {"what": what, "n": n, "channels": channels, "side": side}
    x, f = c.input("x", n, channels, side, side), "max_pool2d" if what == "MaxPool" else "avg_pool2d"
    if what == "GlobalAveragePool":
        c.finish(c.op(what, x))
        c.peer = lambda torch, x, w: lambda: torch.nn.functional.adaptive_avg_pool2d(x[0], 1)
        return
    c.spec |= {"kernel": kernel, "stride": stride}
    pad = kernel // 2
    more = {"count_include_pad": 1} if what == "AveragePool" else {}
    c.finish(c.op(what, x, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, **more))
    c.peer = lambda torch, x, w: lambda: getattr(torch.nn.functional, f)(x[0], kernel, stride, pad)


def _conv_3d(c: Case, rng: Random, b: Bounds) -> None:
    n, ci, co, side, kernel, stride = until(
        lambda: (
            rng.choice((1, 1, 2, 4)), size(rng, 1, 256), size(rng, 8, 256), size(rng, 5, 64), rng.choice((1, 3, 3, 3, 5)), rng.choice((1, 1, 2)),
        ),
        lambda n, ci, co, side, kernel, stride: (
            n * co * (side // stride) ** 3 * ci * kernel**3 <= b.macs and n * max(ci, co) * side**3 <= b.elements
        ),
    )  # fmt: skip
    c.spec = {"n": n, "in": ci, "out": co, "side": side, "kernel": kernel, "stride": stride}
    pad = kernel // 2
    c.macs = n * co * ((side + 2 * pad - kernel) // stride + 1) ** 3 * ci * kernel**3
    y = c.op("Conv", c.input("x", n, ci, side, side, side), c.weight(co, ci, kernel, kernel, kernel), c.weight(co), strides=[stride] * 3, pads=[pad] * 6)  # fmt: skip
    c.finish(c.op("Relu", y))
    c.peer = lambda torch, x, w: (
        lambda: torch.relu(torch.nn.functional.conv3d(x[0], w[0], w[1], stride=stride, padding=pad))
    )


def _conv_transpose(c: Case, rng: Random, b: Bounds) -> None:
    dims = rng.choice((1, 2, 2, 2))
    n, ci, co, side, kernel, stride = until(
        lambda: (
            rng.choice((1, 1, 2, 8)), size(rng, 3, 512), size(rng, 3, 512), size(rng, 7, 128 if dims == 2 else 4096), rng.choice((2, 3, 4, 4, 5)), rng.choice((1, 2, 2, 4)),
        ),
        lambda n, ci, co, side, kernel, stride: (
            n * co * side**dims * ci * kernel**dims <= b.macs and n * max(ci, co * stride**dims) * side**dims <= b.elements
        ),
    )  # fmt: skip
    c.spec = {"dims": dims, "n": n, "in": ci, "out": co, "side": side, "kernel": kernel, "stride": stride}
    pad = min((kernel - 1) // 2, kernel - 1)
    c.macs = n * co * side**dims * ci * kernel**dims
    y = c.op("ConvTranspose", c.input("x", n, ci, *[side] * dims), c.weight(ci, co, *[kernel] * dims), c.weight(co), strides=[stride] * dims, pads=[pad] * 2 * dims)  # fmt: skip
    c.finish(y)

    def peer(torch: Any, x: list[Any], w: list[Any]) -> Callable[[], Any]:
        f = torch.nn.functional.conv_transpose2d if dims == 2 else torch.nn.functional.conv_transpose1d
        image, weight = x[0], w[0]
        if dims == 2 and image.dtype == torch.float16:
            image, weight = (t.to(memory_format=torch.channels_last) for t in (image, weight))
        return lambda: f(image, weight, w[1], stride=stride, padding=pad)

    c.peer = peer


def _quantized(c: Case, rng: Random, b: Bounds) -> None:
    """A product of 8-bit integers, or of floats with weights of 8 bits and a scale for each column."""
    m, n, k = until(
        lambda: (size(rng, 17, 8192), size(rng, 16, 8192), size(rng, 16, 8192)),
        lambda m, n, k: m * n * k <= b.macs and max(m * k, k * n, m * n) <= b.elements,
    )
    n, k = max(8, n // 8 * 8), max(8, k // 8 * 8)  # PyTorch's product takes no others
    what = rng.choice(("integers", "weights"))
    c.spec, c.macs = {"what": what, "m": m, "n": n, "k": k}, m * n * k
    matrix = c.drawn(lambda r: r.integers(-127, 128, (k, n)).astype(np.int8))
    if what == "integers":
        c.given("x", lambda r: r.integers(-128, 128, (m, k)).astype(np.int8))
        c.finish(c.op("MatMulInteger", "x", matrix))
        c.peer = lambda torch, x, w: lambda y=w[0].T.contiguous().T: torch._int_mm(x[0], y)
        return
    scale = c.drawn(lambda r: (r.random(n) * 0.01 / k**0.5).astype(c.dtype))
    c.finish(c.op("MatMul", c.input("x", m, k), c.op("DequantizeLinear", matrix, scale, axis=1)))
    c.peer = lambda torch, x, w: lambda y=w[0].to(x[0].dtype) * w[1]: torch.mm(x[0], y)


def _typed(c: Case, rng: Random, b: Bounds) -> None:
    """Elementwise work of integers, bools and doubles."""
    shape = drawn_shape(rng, b.elements // 4)
    c.dtype = rng.choice((*_INTEGERS, "float64", "bool"))
    what = rng.choice(("where", "cast", "add", "compare"))
    other = tuple(s if rng.random() < 0.6 else 1 for s in shape)
    c.spec = {"what": what, "shape": shape, "other": other}
    x, y = c.integers("x", *shape), c.integers("y", *other)
    if what == "cast":
        to = np.dtype(rng.choice(("float32", "float16", "int32", "int8", "bool")))
        c.spec["to"] = str(to)
        c.finish(c.op("Cast", x, to=c.onnx_type(str(to))))
        c.peer = lambda torch, x, w: lambda: x[0].to(getattr(torch, str(to)), copy=True)
    elif what == "where":
        mask = c.given("m", lambda r: r.random(shape) < 0.5)
        c.finish(c.op("Where", mask, x, y))
        c.peer = lambda torch, x, w: lambda: torch.where(x[2], x[0], x[1])
    elif what == "compare" and c.dtype != "bool":
        c.finish(c.op("Greater", x, y))
        c.peer = lambda torch, x, w: lambda: x[0] > x[1]
    else:
        c.finish(c.op("Xor" if c.dtype == "bool" else "Add", x, y))
        c.peer = lambda torch, x, w: lambda: x[0] ^ x[1] if c.dtype == "bool" else x[0] + x[1]


def _strided(c: Case, rng: Random, b: Bounds) -> None:
    """Elementwise work of what lies in another order: a transpose, every second element, a reversed axis, or a broadcast on both sides."""
    shape = drawn_shape(rng, b.elements // 2)
    what = rng.choice(("transpose", "step", "reverse", "both"))
    axis = rng.randrange(len(shape))
    c.spec = {"what": what, "shape": shape, "axis": axis}
    if what == "transpose":
        perm = rng.sample(range(len(shape)), len(shape))
        c.spec["perm"] = perm
        x, y = c.input("x", *shape), c.input("y", *(shape[p] for p in perm))
        c.finish(c.op("Add", c.op("Transpose", x, perm=perm), y))
        c.peer = lambda torch, x, w: lambda: torch.add(x[0].permute(perm), x[1])
    elif what == "both":
        left = tuple(s if rng.random() < 0.5 else 1 for s in shape)
        right = tuple(s if n == 1 or rng.random() < 0.5 else 1 for s, n in zip(shape, left))
        c.spec |= {"left": left, "right": right}
        c.finish(c.op("Mul", c.input("x", *left), c.input("y", *right)))
        c.peer = lambda torch, x, w: lambda: x[0] * x[1]
    else:
        step, start = (2, 0) if what == "step" else (-1, -1)
        bounds = [np.array([v]) for v in (start, 2**31 - 1 if step > 0 else -(2**31) + 1, axis, step)]
        y = c.op("Slice", c.input("x", *shape), *map(c.const, bounds))
        c.finish(c.op("Relu", y))
        where = (slice(None),) * axis + (slice(None, None, 2),)
        if step > 0:
            c.peer = lambda torch, x, w: lambda: torch.relu(x[0][where])
        else:
            c.peer = lambda torch, x, w: lambda: torch.relu(torch.flip(x[0], (axis,)))


def _along(c: Case, rng: Random, b: Bounds) -> None:
    """A reduction or a softmax along any one axis."""
    shape = drawn_shape(rng, b.elements)
    axis = rng.randrange(len(shape))
    what = rng.choice(
        (
            "ArgMax",
            "ArgMin",
            "var",
            "Softmax",
            "LogSoftmax",
            "ReduceL2",
            "ReduceLogSumExp",
            "ReduceProd",
            "any",
            "norm int",
        )
    )
    c.spec = {"what": what.replace(" ", "+"), "shape": shape, "axis": axis}
    at = c.const(np.array([axis]))
    if what == "any":
        c.dtype = "bool"
        x = c.given("x", lambda r: r.random(shape) < 0.5 / shape[axis])
        c.finish(
            c.op(
                "Cast",
                c.op("ReduceMax", c.op("Cast", x, to=c.onnx_type("uint8")), at, keepdims=0),
                to=c.onnx_type("bool"),
            )
        )
        c.peer = lambda torch, x, w: lambda: torch.any(x[0], axis)
        return
    if what == "norm int":
        c.dtype = rng.choice(("int32", "int64", "float64"))
        c.finish(c.op("ReduceSum", c.integers("x", *shape), at, keepdims=0))
        c.peer = lambda torch, x, w: lambda: torch.sum(x[0], axis)
        return
    x = c.input("x", *shape)
    if what in ("ArgMax", "ArgMin"):
        c.finish(c.op(what, x, axis=axis, keepdims=0))
    elif what == "var":
        centred = c.op("Sub", x, c.op("ReduceMean", x, at, keepdims=1))
        c.finish(c.op("ReduceMean", c.op("Mul", centred, centred), at, keepdims=0))
    elif what.endswith("max"):
        c.finish(c.op(what, x, axis=axis))
    else:
        c.finish(c.op(what, x, at, keepdims=0))

    def peer(torch: Any, x: list[Any], w: list[Any]) -> Callable[[], Any]:
        a = x[0]
        return {
            "ArgMax": lambda: torch.argmax(a, axis), "ArgMin": lambda: torch.argmin(a, axis), "var": lambda: torch.var(a, axis, correction=0),
            "Softmax": lambda: torch.softmax(a, axis), "LogSoftmax": lambda: torch.log_softmax(a, axis), "ReduceL2": lambda: torch.linalg.vector_norm(a, dim=axis),
            "ReduceLogSumExp": lambda: torch.logsumexp(a, axis), "ReduceProd": lambda: torch.prod(a, axis),
        }[what]  # fmt: skip

    c.peer = peer


def _pick(c: Case, rng: Random, b: Bounds) -> None:
    """Elements along an axis by an index of each."""
    shape = drawn_shape(rng, b.elements // 2)
    axis, length = rng.randrange(len(shape)), size(rng, 1, 512)
    picked = until(lambda: tuple(length if k == axis else n for k, n in enumerate(shape)), lambda *s: True)
    if math.prod(picked) > b.elements:
        picked = shape
    c.spec = {"shape": shape, "axis": axis, "picked": picked[axis]}
    i = c.given("i", lambda r: r.integers(0, shape[axis], picked))
    c.finish(c.op("GatherElements", c.input("x", *shape), i, axis=axis))
    c.peer = lambda torch, x, w: lambda: torch.gather(x[1], axis, x[0])


def _resized(c: Case, rng: Random, b: Bounds) -> None:
    n, channels, side, to = until(
        lambda: (rng.choice((1, 4)), size(rng, 3, 256), size(rng, 8, 256), size(rng, 8, 512)),
        lambda n, ch, side, to: 2**14 <= n * ch * to * to <= b.elements and n * ch * side * side <= b.elements,
    )
    mode, corners = rng.choice(("linear", "cubic")), rng.random() < 0.4
    c.spec = {"n": n, "channels": channels, "side": side, "to": to, "mode": mode, "corners": corners}
    sizes = c.const(np.array([n, channels, to, to]))
    how = "align_corners" if corners else "half_pixel"
    y = c.op("Resize", c.input("x", n, channels, side, side), "", "", sizes, mode=mode, coordinate_transformation_mode=how, cubic_coeff_a=-0.75)  # fmt: skip
    c.finish(y)
    name = "bilinear" if mode == "linear" else "bicubic"
    c.peer = lambda torch, x, w: (
        lambda: torch.nn.functional.interpolate(x[0], size=(to, to), mode=name, align_corners=corners)
    )


def _shuffle(c: Case, rng: Random, b: Bounds) -> None:
    """Depth to space and back, tiles, and pieces of one axis."""
    what = rng.choice(("DepthToSpace", "SpaceToDepth", "Tile", "Split"))
    n, channels, side, r = until(
        lambda: (rng.choice((1, 4)), size(rng, 1, 64), size(rng, 4, 128), rng.choice((2, 2, 3, 4))),
        lambda n, ch, side, r: 2**14 <= n * ch * r * r * side * side <= b.elements,
    )
    c.spec = {"what": what, "n": n, "channels": channels, "side": side, "r": r}
    f = "pixel_shuffle" if what == "DepthToSpace" else "pixel_unshuffle"
    if what == "Tile":
        c.finish(c.op("Tile", c.input("x", n, channels, side, side), c.const(np.array([1, r, 1, r]))))
        c.peer = lambda torch, x, w: lambda: x[0].repeat(1, r, 1, r)
    elif what == "Split":
        sizes = [channels, channels * (r - 1)]
        x = c.input("x", n, side, side, channels * r)
        parts = c.ops("Split", 2, x, c.const(np.array(sizes)), axis=3)
        c.finish(
            c.op("Mul", c.op("Sigmoid", parts[0]), c.op("ReduceMax", parts[1], c.const(np.array([3])), keepdims=1))
        )
        c.peer = lambda torch, x, w: (
            lambda: torch.sigmoid(x[0][..., :channels]) * torch.amax(x[0][..., channels:], 3, keepdim=True)
        )
    elif what == "DepthToSpace":
        x = c.input("x", n, channels * r * r, side, side)
        c.finish(c.op(what, x, blocksize=r, mode="CRD"))
        c.peer = lambda torch, x, w: lambda: getattr(torch.nn.functional, f)(x[0], r)
    else:
        # ONNX has the block first, PyTorch the channel: with one they are equal.
        x = c.input("x", n * channels, 1, side * r, side * r)
        c.finish(c.op(what, x, blocksize=r))
        c.peer = lambda torch, x, w: lambda: getattr(torch.nn.functional, f)(x[0], r)


WIDE: dict[str, Callable[[Case, Random, Bounds], None]] = {
    "axis norm": _axis_norm, "one hot": _one_hot, "scatter": _scatter, "trilu": _trilu, "einsum": _einsum, "pool": _pool, "conv 3d": _conv_3d,
    "conv transpose": _conv_transpose, "quantized": _quantized, "typed": _typed, "strided": _strided, "along": _along, "pick": _pick,
    "resized": _resized, "shuffle": _shuffle,
}  # fmt: skip
