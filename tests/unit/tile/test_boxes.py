"""Tiles of tensor descriptors that the copy engine of Hopper brings: code after all passes in the interpreter, with races watched."""

from __future__ import annotations

import numpy as np
import pytest

import tec.tile
import tec.tile as tl

from .nvidia import interpreted

HOPPER = "cuda -arch=sm_90a"


@tec.tile.jit
def products(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TURNED: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])
    b = tl.make_tensor_descriptor(
        b_ptr, [N, K] if TURNED else [K, N], [K if TURNED else N, 1], [BN, BK] if TURNED else [BK, BN]
    )
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BM, BN])
    for tile in range(tl.program_id(0), tl.cdiv(M, BM) * tl.cdiv(N, BN), tl.num_programs(0)):
        i, j = tile // tl.cdiv(N, BN) * BM, tile % tl.cdiv(N, BN) * BN
        total = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            x = a.load([i, k])
            y = b.load([j, k]).T if TURNED else b.load([k, j])
            total = tl.dot(x, y, total)
        c.store([i, j], total.to(tl.float16))


@pytest.mark.parametrize(("turned", "m", "n", "k"), [(True, 80, 96, 208), (False, 64, 144, 64), (False, 96, 64, 400)])
def test_boxes_over_the_edges_of_a_tensor(turned: bool, m: int, n: int, k: int) -> None:
    """A ring of boxes in a loop over tiles: its barriers begin anew for each of them."""
    rng = np.random.default_rng(k)
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    c = np.zeros((m, n), np.float16)
    other = np.ascontiguousarray(b.T) if turned else b
    constants = {"BM": 64, "BN": 64, "BK": 64, "TURNED": turned, "num_warps": 4, "num_stages": 3}
    interpreted(products, HOPPER, (2,), a, other, c, m, n, k, **constants)
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), rtol=2e-3, atol=3e-2)


def test_who_copies() -> None:
    """The copy engine where rows begin at multiples of 16 bytes, threads elsewhere."""
    sizes = {"BM": 64, "BN": 64, "BK": 64, "TURNED": True, "num_warps": 4, "num_stages": 3}
    text = products.asm(HOPPER, *["*fp16:16"] * 3, *["i32:16"] * 3, **sizes)
    assert "cp.async.bulk.tensor.2d" in text and "cp.async.c" not in text
    loop = text[text.index("mbarrier.try_wait") :]
    order = [
        "wgmma.mma_async",
        "wgmma.commit_group",
        "wgmma.wait_group.sync.aligned 1",
        "bar.sync",
        "cp.async.bulk.tensor",
    ]
    at = [loop.index(word) for word in order]
    assert at == sorted(at)
    odd = products.asm(HOPPER, *["*fp16:16"] * 3, "i32:16", "i32:16", "i32", **sizes)
    assert "cp.async.bulk" not in odd
