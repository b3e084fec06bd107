"""On a chip with warpgroups: float32 products whose registers are filled ahead, products of two warpgroups in turn, and attention by warpgroup products, against float64.

Small enough for `compute-sanitizer --tool memcheck` and `racecheck`.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tec
from tec import te
from tec.choices import schedule, spaces
from tec.ops.registry import TensorType, get_op
from tec.runtime import cuda_exists
from tests.unit.codegen_gpu.warpgroup_gemm import gemm

HOPPER = "cuda -arch=sm_90a"


def _has_warpgroups() -> bool:
    return cuda_exists() and str(tec.cuda(0).arch).startswith("sm_90")


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not _has_warpgroups(), reason="needs an NVIDIA GPU of sm_90")]

PRODUCTS = [
    (256, 192, 96, {"rows": 128, "columns": 64, "blocks": 3}),
    (200, 132, 328, {"rows": 128, "columns": 64, "blocks": 4}),
    (300, 68, 260, {"rows": 64, "columns": 64, "blocks": 2, "step": 64}),
    (128, 96, 512, {"rows": 32, "columns": 32, "blocks": 2, "parts": 4}),
    (130, 100, 192, {"rows": 64, "columns": 32, "blocks": 3, "stages": 3, "order": "blocks"}),
]


@pytest.mark.parametrize(("m", "n", "k", "choice"), PRODUCTS)
def test_registers_filled_ahead(m: int, n: int, k: int, choice: dict[str, Any]) -> None:
    a, b, r = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B"), te.placeholder((m, n), name="R")
    kk = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, kk] * b[kk, j], axis=kk), name="C")
    out = te.compute((m, n), lambda i, j: te.max(c[i, j] + r[i, j], te.const(0, "float32")), name="out")
    wanted = {"template": "bulk product", "ahead": True, "order": "turns", "step": 32, **choice}
    made = schedule([out], HOPPER, wanted)
    f = tec.build(made.schedule, [a, b, r, *made.outputs], HOPPER)
    rng = np.random.default_rng(m)
    x, w, z = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n), (m, n)))
    on = [tec.nd.array(v, tec.cuda(0)) for v in (x, w, z, np.full((m, n), np.nan, np.float32))]
    f(*on)
    want = np.maximum(x.astype(np.float64) @ w + z, 0)
    np.testing.assert_allclose(on[-1].numpy(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("m", "n", "k", "dtype", "orders", "choice"),
    [
        (300, 136, 1000, "float16", "ik kj", {"split_k": 3}),
        (200, 264, 1032, "float16", "ik jk", {"split_k": 4, "rows": 128, "columns": 128}),
        (136, 136, 584, "bfloat16", "ki jk", {"split_k": 2}),
        (260, 144, 2064, "int8", "ik jk", {"split_k": 4, "columns": 128}),
    ],
)
def test_sums_in_parts(m: int, n: int, k: int, dtype: str, orders: str, choice: dict[str, Any]) -> None:
    """Parts of whole steps, of which the last reaches beyond the sum, by both orders of the operands."""
    kind, acc = np.dtype(getattr(ml_dtypes, dtype, dtype)), "int32" if dtype == "int8" else "float32"
    first, second = (tuple({"i": m, "j": n, "k": k}[x] for x in o) for o in orders.split())
    a, b = te.placeholder(first, dtype, name="A"), te.placeholder(second, dtype, name="B")
    kk = te.reduce_axis((0, k), "k")

    def term(i: Any, j: Any) -> Any:
        x, y = (t[tuple({"i": i, "j": j, "k": kk}[q] for q in o)] for t, o in zip((a, b), orders.split()))
        return te.sum(x.astype(acc) * y.astype(acc), axis=kk)

    c = te.compute((m, n), term, name="C")
    out = te.compute((m, n), lambda i, j: te.max(c[i, j], te.const(0, acc)), name="out")
    made = schedule([out], HOPPER, {"template": "warpgroup product", "rows": 64, "columns": 64, "stages": 2, **choice})
    f = tec.build(made.schedule, [a, b, *made.outputs], HOPPER)
    rng = np.random.default_rng(k)
    x, y = (rng.integers(-4, 5, s).astype(kind) for s in (first, second))
    on = [tec.nd.array(v, tec.cuda(0)) for v in (x, y, np.full((m, n), -1, acc))]
    f(*on)
    want = np.einsum(orders.replace(" ", ",") + "->ij", x.astype(np.int64), y.astype(np.int64))
    np.testing.assert_array_equal(on[-1].numpy(), np.maximum(want, 0))  # whole numbers: exact


IN_TURN = [
    (700, 520, 200, {"bn": 128, "groups": 4, "band": 2}),
    (1000, 264, 72, {"bm": 64, "bn": 256, "groups": 3, "trans_b": True}),
    (300, 776, 1000, {"bn": 192, "groups": 1, "stages": 2}),
    (128, 512, 128, {"bn": 128, "groups": 2}),
    (400, 512, 64, {"bn": 128, "groups": 3}),
]


@pytest.mark.parametrize(("m", "n", "k", "options"), IN_TURN)
def test_two_warpgroups_take_tiles_in_turn(m: int, n: int, k: int, options: dict[str, Any]) -> None:
    """Tiles even and odd in number, sums shorter and longer than the ring; twice, each time into what is no result."""
    target, s, args = gemm(m, n, k, turns=True, **options)
    f = tec.build(s, args, target)
    rng = np.random.default_rng(n)
    b_shape = (n, k) if options.get("trans_b") else (k, n)
    a, b = (rng.standard_normal(x).astype(np.float16) for x in ((m, k), b_shape))
    want = a.astype(np.float64) @ (b.T if options.get("trans_b") else b).astype(np.float64)
    for _ in range(2):
        on = [tec.nd.array(x, tec.cuda(0)) for x in (a, b, np.full((m, n), np.nan, np.float16))]
        f(*on)
        np.testing.assert_allclose(on[-1].numpy().astype(np.float64), want, rtol=2e-3, atol=3e-2)


@pytest.mark.parametrize("template", ["warpgroup attention", "attention in turns"])
@pytest.mark.parametrize("size", [64, 128, 256])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(template: str, size: int, causal: bool) -> None:
    length, heads, keys = 320, 4, 2
    rng = np.random.default_rng(size)
    q, k, v = (rng.standard_normal((1, n, length, size)).astype(np.float16) for n in (heads, keys, keys))
    ins = [te.placeholder(x.shape, "float16", name) for name, x in zip("qkv", (q, k, v))]
    attrs: dict[str, Any] = {"scale": size**-0.5, "extras": (), **({"right": 0} if causal else {})}
    attention = get_op("attention")
    outputs = attention.compute(attrs, ins, [TensorType("float16", q.shape)])
    (space,) = (x for x in spaces(outputs, HOPPER) if x.template == template)
    made = schedule(outputs, HOPPER, next(iter(space.all)))
    f = tec.build(made.schedule, [*ins, *made.outputs], HOPPER)
    on = [tec.nd.array(x, tec.cuda(0)) for x in (q, k, v, np.full(q.shape, np.nan, np.float16))]
    f(*on)
    k, v = (np.repeat(x.astype(np.float64), heads // keys, axis=1) for x in (k, v))
    scores = q.astype(np.float64) @ k.swapaxes(-1, -2) * size**-0.5
    if causal:
        scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    want = weights / weights.sum(axis=-1, keepdims=True) @ v
    np.testing.assert_allclose(on[-1].numpy().astype(np.float64), want, rtol=1e-2, atol=4e-3)


def test_sums_of_one_step_with_a_residual() -> None:
    """In turn, six rounds of tiles: the residual is read beside the other warpgroup's products."""
    m, n = 50176, 256
    x, w, r = (
        te.placeholder((m, 64), "float16", "x"),
        te.placeholder((64, n), "float16", "w"),
        te.placeholder((m, n), "float16", "r"),
    )
    k = te.reduce_axis((0, 64), "k")
    y = te.compute((m, n), lambda i, j: te.sum(x[i, k].astype("float32") * w[k, j].astype("float32"), k), "y")
    out = te.compute(
        (m, n),
        lambda i, j: te.max(y[i, j] + r[i, j].astype("float32"), te.const(0, "float32")).astype("float16"),
        "out",
    )
    made = schedule([out], HOPPER)
    assert made.choice["ping_pong"]
    f = tec.build(made.schedule, [x, w, r, *made.outputs], HOPPER)
    rng = np.random.default_rng(5)
    a, b, c = (rng.standard_normal(s).astype(np.float16) for s in ((m, 64), (64, n), (m, n)))
    on = [tec.nd.array(v, tec.cuda(0)) for v in (a, b, c, np.full((m, n), np.nan, np.float16))]
    f(*on)
    want = np.maximum(a.astype(np.float32) @ b.astype(np.float32) + c, 0)
    np.testing.assert_allclose(on[-1].numpy().astype(np.float32), want, rtol=2e-3, atol=3e-2)


def test_layer_norm_of_a_row_a_wavefront() -> None:
    rows = 4224
    x = te.placeholder((rows, 768), "float16", "x")
    norm = get_op("layer_norm")
    attrs = {"axis": -1, "epsilon": 1e-5}
    outputs = norm.compute(attrs, [x], norm.infer([TensorType("float16", (rows, 768))], attrs))[:1]
    made = schedule(outputs, HOPPER)
    assert made.choice["rows"] == 4
    f = tec.build(made.schedule, [x, *made.outputs], HOPPER)
    a = np.random.default_rng(6).standard_normal((rows, 768)).astype(np.float16)
    on = [tec.nd.array(v, tec.cuda(0)) for v in (a, np.full((rows, 768), np.nan, np.float16))]
    f(*on)
    b = a.astype(np.float64)
    want = (b - b.mean(1, keepdims=True)) / np.sqrt(b.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(on[-1].numpy().astype(np.float64), want, rtol=2e-3, atol=2e-3)
