"""Kernels of networks: convolutions, pooling, depthwise, attention scores, resize."""

from __future__ import annotations

from typing import Any

import numpy as np

from tec import te

from .elementwise import uniform
from .harness import Program, bind_all, case

F32 = np.float32


def correlate2d(x: Any, w: Any) -> Any:
    """The sums of products of a matrix's windows with `w`, where `w` lies wholly inside."""
    return np.einsum("ijkl,kl->ij", np.lib.stride_tricks.sliding_window_view(x, w.shape), w)


def _conv_ref(x: Any, w: Any, stride: int = 1, pad: int = 1) -> Any:
    x = np.pad(x.astype("d"), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    n, co = x.shape[0], w.shape[0]
    out = [
        [sum(correlate2d(x[b, c], w[o, c]) for c in range(w.shape[1]))[::stride, ::stride] for o in range(co)]
        for b in range(n)
    ]
    return np.array(out).astype(F32)


def _padded(x: Any, pad: int) -> Any:
    n, c, h, w = x.shape
    return te.compute(
        (n, c, h + 2 * pad, w + 2 * pad),
        lambda b, k, i, j: te.if_then_else(
            te.all(i >= pad, i < h + pad, j >= pad, j < w + pad), x[b, k, i - pad, j - pad], 0.0
        ),
        name="padded",
    )


def _conv2d(ci: int, co: int, h: int, stride: int) -> Program:
    x, w = te.placeholder((1, ci, h, h), name="X"), te.placeholder((co, ci, 3, 3), name="W")
    p = _padded(x, 1)
    oh = (h + 2 - 3) // stride + 1
    rc, ry, rx = (
        te.reduce_axis((0, ci), name="rc"),
        te.reduce_axis((0, 3), name="ry"),
        te.reduce_axis((0, 3), name="rx"),
    )
    y = te.compute(
        (1, co, oh, oh),
        lambda b, o, i, j: te.sum(p[b, rc, i * stride + ry, j * stride + rx] * w[o, rc, ry, rx], axis=[rc, ry, rx]),
        name="Y",
    )

    def gpu(s: Any, target: Any) -> None:
        s[p].compute_inline()
        bind_all(s, y, 32)

    def cpu(s: Any, target: Any) -> None:
        b, o, i, j = y.op.axis
        s[y].parallel(o)
        s[p].compute_at(s[y], o)

    return Program([x, w, y], [y], cpu, gpu)


case("conv2d_3x3", uniform((1, 4, 9, 9), (6, 4, 3, 3)), _conv_ref, rtol=1e-4, atol=1e-4)(lambda: _conv2d(4, 6, 9, 1))
case(
    "conv2d_3x3_stride2", uniform((1, 3, 11, 11), (5, 3, 3, 3)), lambda x, w: _conv_ref(x, w, 2), rtol=1e-4, atol=1e-4
)(lambda: _conv2d(3, 5, 11, 2))


@case(
    "conv2d_shared",
    uniform((1, 8, 10, 10), (8, 8, 3, 3)),
    lambda x, w: _conv_ref(x, w, 1, 0),
    rtol=1e-4,
    atol=1e-4,
    kinds=("gpu",),
)
def _conv_shared() -> Program:
    """Input tile and weights through shared memory."""
    x, w = te.placeholder((1, 8, 10, 10), name="X"), te.placeholder((8, 8, 3, 3), name="W")
    rc, ry, rx = te.reduce_axis((0, 8), name="rc"), te.reduce_axis((0, 3), name="ry"), te.reduce_axis((0, 3), name="rx")
    y = te.compute(
        (1, 8, 8, 8),
        lambda b, o, i, j: te.sum(x[b, rc, i + ry, j + rx] * w[o, rc, ry, rx], axis=[rc, ry, rx]),
        name="Y",
    )

    def gpu(s: Any, target: Any) -> None:
        sx, sw, yl = s.cache_read(x, "shared", [y]), s.cache_read(w, "shared", [y]), s.cache_write(y, "local")
        b, o, i, j = s[y].op.axis
        s[y].bind(o, te.thread_axis("blockIdx.x"))
        s[y].bind(i, te.thread_axis((0, 8), "threadIdx.y"))
        s[y].bind(j, te.thread_axis((0, 8), "threadIdx.x"))
        s[yl].compute_at(s[y], j)
        c = s[yl].op.reduce_axis[0]
        s[yl].reorder(c, *s[yl].op.axis)
        for t in (sx, sw):
            s[t].compute_at(s[yl], c)
            fused = s[t].fuse(*s[t].op.axis)
            _, f = s[t].split(fused, factor=64)
            ty, tx = s[t].split(f, factor=8)
            s[t].bind(ty, te.thread_axis((0, 8), "threadIdx.y"))
            s[t].bind(tx, te.thread_axis((0, 8), "threadIdx.x"))

    return Program([x, w, y], [y], None, gpu)


@case(
    "depthwise_3x3", uniform((1, 5, 8, 8), (5, 1, 3, 3)),
    lambda x, w: np.array([[correlate2d(x[0, c], w[c, 0]) for c in range(5)]]).astype(F32), rtol=1e-4, atol=1e-4,
)  # fmt: skip
def _depthwise() -> Program:
    x, w = te.placeholder((1, 5, 8, 8), name="X"), te.placeholder((5, 1, 3, 3), name="W")
    ry, rx = te.reduce_axis((0, 3), name="ry"), te.reduce_axis((0, 3), name="rx")
    y = te.compute(
        (1, 5, 6, 6), lambda b, c, i, j: te.sum(x[b, c, i + ry, j + rx] * w[c, 0, ry, rx], axis=[ry, rx]), name="Y"
    )
    return Program([x, w, y], [y], None, lambda s, t: bind_all(s, y, 32) and None)


def _maxpool_ref(x: Any) -> Any:
    return np.stack([x[:, :, i : i + 8 : 2, j : j + 8 : 2] for i in range(2) for j in range(2)]).max(0)


@case("maxpool_2x2", uniform((1, 3, 8, 8)), _maxpool_ref)
def _maxpool() -> Program:
    x = te.placeholder((1, 3, 8, 8), name="X")
    ry, rx = te.reduce_axis((0, 2), name="ry"), te.reduce_axis((0, 2), name="rx")
    y = te.compute((1, 3, 4, 4), lambda b, c, i, j: te.max(x[b, c, i * 2 + ry, j * 2 + rx], axis=[ry, rx]), name="Y")
    return Program([x, y], [y], None, lambda s, t: bind_all(s, y, 16) and None)


@case("global_avg_pool", uniform((2, 6, 7, 7)), lambda x: x.mean((2, 3), dtype="d").astype(F32), atol=1e-5)
def _gap() -> Program:
    x = te.placeholder((2, 6, 7, 7), name="X")
    ry, rx = te.reduce_axis((0, 7), name="ry"), te.reduce_axis((0, 7), name="rx")
    total = te.compute((2, 6), lambda b, c: te.sum(x[b, c, ry, rx], axis=[ry, rx]), name="total")
    y = te.compute((2, 6), lambda b, c: total[b, c] * (1.0 / 49), name="Y")

    def gpu(s: Any, target: Any) -> None:
        _, tx = bind_all(s, y, 4)
        s[total].compute_at(s[y], tx)
        s[total].set_scope("local")

    return Program([x, y], [y], None, gpu)


@case("upsample_nearest", uniform((1, 2, 5, 6)), lambda x: x.repeat(2, 2).repeat(2, 3))
def _upsample() -> Program:
    x = te.placeholder((1, 2, 5, 6), name="X")
    y = te.compute((1, 2, 10, 12), lambda b, c, i, j: x[b, c, i // 2, j // 2], name="Y")
    return Program([x, y], [y], None, lambda s, t: bind_all(s, y, 32) and None)


@case(
    "batchnorm_relu",
    uniform((1, 4, 6, 6), (4,), (4,)),
    lambda x, g, b: np.maximum(x * g[:, None, None] + b[:, None, None], 0),
)
def _batchnorm() -> Program:
    x, g, b = te.placeholder((1, 4, 6, 6), name="X"), te.placeholder((4,), name="G"), te.placeholder((4,), name="B")
    y = te.compute(x.shape, lambda n, c, i, j: te.maximum(x[n, c, i, j] * g[c] + b[c], 0.0), name="Y")
    return Program([x, g, b, y], [y], None, lambda s, t: bind_all(s, y, 32) and None)


def _attention_inputs(rng: np.random.Generator) -> list[Any]:
    return [rng.standard_normal(s).astype(np.float16) for s in ((1, 4, 33, 32), (1, 2, 41, 32), (1, 2, 41, 48))]


def _attention_ref(q: Any, k: Any, v: Any) -> Any:
    q, k, v = (x.astype("d") for x in (q, np.repeat(k, 2, 1), np.repeat(v, 2, 1)))
    scores = q @ k.swapaxes(2, 3) * 0.25
    scores = np.where(np.arange(41) <= np.arange(33)[:, None] + 8, scores, -np.inf)
    p = np.exp(scores - scores.max(3, keepdims=True))
    return (p @ v / p.sum(3, keepdims=True)).astype(np.float16)


@case("attention", _attention_inputs, _attention_ref, rtol=2e-3, atol=2e-3)
def _attention() -> Program:
    """A causal attention with shared key heads, as the first template of the target has it: on matrix units where there are some."""
    from tec.choices import schedule
    from tec.ops import get_op
    from tec.ops.registry import TensorType

    ins = [te.placeholder(s, "float16", n) for n, s in zip("qkv", ((1, 4, 33, 32), (1, 2, 41, 32), (1, 2, 41, 48)))]
    attrs = {"scale": 0.25, "extras": (), "right": 0, "offset": 8}
    made = get_op("attention").compute(attrs, ins, [TensorType("float16", (1, 4, 33, 48))])
    (out,) = schedule(made).outputs
    return Program([*ins, out], [out], None, None)
