"""Whole kernels over tiles on the CPU, the software GPUs and NumPy's interpreter, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import tec

from . import kernels as K
from .devices import On

F32 = np.float32


def once(on: On, given: bool, first: str) -> None:
    """Of two cases each software GPU runs one: `given` on the one named, the other elsewhere."""
    if on.name.startswith("gfx") and given != (on.name == first):
        pytest.skip("the other software GPU has this case")


def test_vector_add(on: On) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random(1000, F32), rng.random(1000, F32)
    out = on.zeros(1000)
    K.add[lambda meta: (-(-1000 // meta["BLOCK"]),)](on.array(x), on.array(y), out, 1000, BLOCK=256)
    np.testing.assert_array_equal(on.numpy(out), x + y)


def test_softmax(on: On) -> None:
    x = np.random.default_rng(1).standard_normal((13, 781)).astype(F32)
    out = on.zeros(13, 781)
    K.softmax[(4,)](out, on.array(x), 781, 781, 13, 781, BLOCK=1024, num_warps=8)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(on.numpy(out), e / e.sum(1, keepdims=True), rtol=2e-6)


def test_dropout_keeps_what_the_seed_says(on: On) -> None:
    """Philox's bits: the elements that stay are the ones that Triton's tl.rand keeps."""
    x = np.arange(1, 1001, dtype=F32)
    out = on.zeros(1000)
    K.dropout[(4,)](on.array(x), out, 1000, 0.5, 123, BLOCK=256)
    kept = uniform(123, np.arange(1000)) > 0.5
    np.testing.assert_array_equal(on.numpy(out), np.where(kept, 2 * x, 0))


def uniform(seed: int, offsets: np.ndarray) -> np.ndarray:
    """Philox 4x32-10 of (seed, offset), as float32 in [0, 1), written from the paper."""
    mask = np.uint64(0xFFFFFFFF)
    c = [offsets.astype(np.uint64), *[np.zeros(len(offsets), np.uint64)] * 3]
    k0, k1 = np.uint64(seed), np.uint64(0)
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ k0, p1 & mask, (p0 >> np.uint64(32)) ^ c[3] ^ k1, p0 & mask]
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & mask, (k1 + np.uint64(0xBB67AE85)) & mask
    x = c[0].astype(np.uint32).view(np.int32)
    return np.where(x < 0, -x - 1, x).astype(F32) * F32(4.6566127342e-10)


def test_layer_norm_forward_and_backward(on: On) -> None:
    rows, n, groups = 21, 300, 4
    rng = np.random.default_rng(2)
    x, dy = rng.standard_normal((2, rows, n)).astype(F32)
    w, b = rng.random((2, n)).astype(F32)
    y, mean, rstd = on.zeros(rows, n), on.zeros(rows), on.zeros(rows)
    X, W = on.array(x), on.array(w)
    K.norm[(rows,)](X, y, W, on.array(b), mean, rstd, n, n, 1e-5, BLOCK=128)
    scale = 1 / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    xhat = (x - x.mean(1, keepdims=True)) * scale
    np.testing.assert_allclose(on.numpy(y), xhat * w + b, atol=2e-6)

    dx, dw, db = on.zeros(rows, n), on.zeros(groups, n), on.zeros(groups, n)
    locks = on.zeros(2 * groups, dtype="int32")
    K.norm_backward[(rows,)](dx, on.array(dy), dw, db, X, W, mean, rstd, locks, n, n, GROUPS=groups, BLOCK=512)
    wdy = w * dy
    want = (wdy - xhat * (xhat * wdy).mean(1, keepdims=True) - wdy.mean(1, keepdims=True)) * scale
    np.testing.assert_allclose(on.numpy(dx), want, atol=2e-6)
    for parts, rows_of in ((dw, dy * xhat), (db, dy)):
        out = on.zeros(n)
        K.column_sums[(3,)](parts, out, groups, n, BM=4, BN=128)
        np.testing.assert_allclose(on.numpy(out), rows_of.sum(0), atol=2e-5)
    assert not on.numpy(locks)[:groups].any()


@pytest.mark.parametrize("activation", ["", "leaky_relu"])
def test_matmul(on: On, activation: str) -> None:
    once(on, activation == "", "gfx942")
    m, n, k = 70, 45, 50
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    c = on.zeros(m, n, dtype="float16")
    K.matmul[(3 * 2,)](
        on.array(a), on.array(b), c, m, n, k, k, 1, n, 1, n, 1, BM=32, BN=32, BK=32, GROUP=2, ACTIVATION=activation
    )
    want = a.astype(F32) @ b.astype(F32)
    want = np.where(want >= 0, want, 0.01 * want) if activation else want
    np.testing.assert_allclose(on.numpy(c), want, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(on: On, causal: bool) -> None:
    once(on, causal, "gfx942")
    heads, n, d = 2, 70, 32
    q, k, v = np.random.default_rng(4).standard_normal((3, heads, n, d)).astype(np.float16)
    out = on.zeros(heads, n, d)
    K.attention[(3, heads)](on.array(q), on.array(k), on.array(v), out, n, d**-0.5, BM=32, BN=32, D=d, CAUSAL=causal)
    score = np.einsum("hid,hjd->hij", q.astype(F32), k.astype(F32)) * d**-0.5
    if causal:
        score = np.where(np.tri(n, dtype=bool), score, -np.inf)
    e = np.exp(score - score.max(-1, keepdims=True))
    want = np.einsum("hij,hjd->hid", e / e.sum(-1, keepdims=True), v.astype(F32))
    np.testing.assert_allclose(on.numpy(out), want, atol=4e-3)


@pytest.mark.parametrize("device", ["cpu", "gfx942", "gfx1100"])
def test_grouped_products_by_address(device: str) -> None:
    dev = tec.device("cpu") if device == "cpu" else tec.rocm_emu(device)
    rng = np.random.default_rng(5)
    sizes = [(40, 33, 17), (16, 70, 64)]
    groups = [
        [
            rng.standard_normal((m, k)).astype(np.float16),
            rng.standard_normal((k, n)).astype(np.float16),
            np.zeros((m, n), F32),
        ]
        for m, n, k in sizes
    ]
    arrays = [[tec.nd.array(x, dev) for x in g] for g in groups]
    addresses = np.array([x.address for g in arrays for x in g], np.int64)
    K.grouped[(2,)](
        tec.nd.array(addresses, dev), tec.nd.array(np.array(sizes, np.int32).ravel(), dev), BM=32, BN=32, BK=32
    )
    for (a, b, _), (_, _, c) in zip(groups, arrays):
        np.testing.assert_allclose(c.numpy(), a.astype(F32) @ b.astype(F32), atol=2e-3)


@pytest.mark.parametrize(
    "target", ["rocm -mcpu=gfx90a", "rocm -mcpu=gfx942", "rocm -mcpu=gfx1100", "rocm -mcpu=gfx1201", "cuda -arch=sm_80"]
)
def test_products_go_to_the_matrix_unit(target: str) -> None:
    word = {"c": "mma.sync", "r": "v_mfma" if "gfx9" in target else "v_wmma"}[target[0]]
    text = K.matmul.asm(
        target,
        "*fp16",
        "*fp16",
        "*fp16",
        512,
        512,
        512,
        512,
        1,
        512,
        1,
        512,
        1,
        BM=64,
        BN=64,
        BK=32,
        GROUP=4,
        ACTIVATION="",
    )
    assert word in text and "scratch_load" not in text


def test_constants_of_numpy_are_numbers() -> None:
    x = np.arange(100, dtype="float32")
    out = np.zeros_like(x)
    K.add[(4,)](x, x, out, 100, np.int64(32))
    np.testing.assert_array_equal(out, 2 * x)
