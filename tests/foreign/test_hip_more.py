"""Further HIP kernels that clang compiles (`kernels_more.hip`): sorts, scans, trees, rings and the like, each held against NumPy under all checks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from .test_hip import CLANG, F32, F64, I32, U32, Case, _floats, _ints, _rng, build, has_linker, held

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CLANG is None or not has_linker(), reason="no clang with lld")]
CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


@case
def blelloch() -> Case:
    x = _ints(512).reshape(2, 256)
    return Case(2, [x, np.zeros_like(x)], {1: (x.cumsum(1) - x).astype(I32)})


@case
def radix_pass() -> Case:
    x = _rng(2).integers(0, 1 << 16, (2, 256)).astype(U32)
    order = np.argsort(x >> 4 & 15, axis=1, kind="stable")
    return Case(2, [x, np.zeros_like(x), 4], {1: np.take_along_axis(x, order, 1)})


@case
def double_buffered() -> Case:
    a, b = _floats(48, 48), _floats(48, 48, seed=1)
    return Case(9, [a, b, np.zeros_like(a), 48], {2: a @ b}, close=1e-4)


@case
def welford() -> Case:
    x = _floats(3, 300) + F32(5)
    return Case(3, [x, np.zeros(3, F32), np.zeros(3, F32), 300], {1: x.mean(1), 2: x.var(1)}, close=1e-4)


@case
def online_softmax() -> Case:
    x = _floats(8, 100) * F32(3)
    e = np.exp2(x - x.max(1, keepdims=True))
    return Case(1, [x, np.zeros_like(x), 100], {1: e / e.sum(1, keepdims=True)}, close=1e-5)


@case
def argmax() -> Case:
    x = np.round(_floats(4, 700))
    return Case(4, [x, np.zeros(4, I32), 700], {1: x.argmax(1).astype(I32)})


@case
def life() -> Case:
    x = _rng(5).integers(0, 2, (32, 48)).astype(np.uint8)
    p = np.pad(x, 1)
    near = sum(p[i : i + 32, j : j + 48] for i in range(3) for j in range(3))
    return Case(6, [x, np.zeros_like(x), 48, 32], {1: ((near == 3) | ((x == 1) & (near == 4))).astype(np.uint8)})


@case
def fft() -> Case:
    x = (_floats(2, 256) + 1j * _floats(2, 256, seed=1)).astype(np.complex64)
    roots = np.exp(-2j * np.pi * np.arange(128) / 256).astype(np.complex64)
    out = np.fft.fft(x, axis=1).astype(np.complex64)
    return Case(2, [x.view(F32), roots.view(F32), np.zeros((2, 512), F32)], {2: out.view(F32)}, close=2e-4)


@case
def floyd() -> Case:
    d = _ints(256, 1, 100).reshape(16, 16)
    want = d.copy()
    for k in range(16):
        want = np.minimum(want, want[:, k : k + 1] + want[k : k + 1])
    return Case(1, [d, np.zeros_like(d)], {1: want})


@case
def lu() -> Case:
    m = _floats(16, 16) + F32(8) * np.eye(16, dtype=F32)
    want = m.astype(F64)
    for k in range(15):
        want[k + 1 :, k] /= want[k, k]
        want[k + 1 :, k + 1 :] -= np.outer(want[k + 1 :, k], want[k, k + 1 :])
    return Case(1, [m, np.zeros_like(m)], {1: want.astype(F32)}, close=1e-4)


@case
def nbody() -> Case:
    b = np.abs(_floats(512, 4))
    d = b[None, :, :3].astype(F64) - b[:, None, :3]
    r2 = (d * d).sum(2) + 0.01
    want = np.zeros((512, 4), F32)
    want[:, :3] = (d * (b[None, :, 3:] / (r2 * np.sqrt(r2))[..., None])).sum(1)
    return Case(2, [b, np.zeros_like(b), 512], {1: want}, close=2e-3)


@case
def sieve() -> Case:
    n, bits = 4096, np.zeros(4096, bool)
    for p in range(2, 32):
        bits[2 * p :: p] = True
    return Case(2, [np.zeros(n // 32, U32), n], {0: np.packbits(bits, bitorder="little").view(U32)})


@case
def union_find() -> Case:
    edges = _ints(2 * 200, 0, 300, seed=7).reshape(200, 2)
    parent = list(range(300))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    for a, b in edges.tolist():
        low, high = sorted((root(a), root(b)))
        parent[high] = low
    # Each place's root is the least of its set, whatever the order; parents between may differ.
    return Case(1, [edges, np.arange(300, dtype=I32), 200], {1: np.array([root(i) for i in range(300)], I32)})


@case
def rope() -> Case:
    x, angle = _floats(6, 64), np.abs(_floats(6, 32))
    c, s, a, b = np.cos(angle), np.sin(angle), x[:, :32], x[:, 32:]
    return Case(6, [x, c, s, np.zeros_like(x), 64], {3: np.hstack([a * c - b * s, a * s + b * c])}, close=1e-5)


@case
def quantise() -> Case:
    x = _floats(3, 256)
    most = np.abs(x).max(1, keepdims=True)
    codes = np.rint(x * (F32(127) / most)).astype(np.int8)
    return Case(3, [x, np.zeros((3, 256), np.int8), np.zeros(3, F32)], {1: codes, 2: most[:, 0] / F32(127)}, close=1.01)


@case
def dot_halves() -> Case:
    a, b = (_floats(1000, seed=k).astype(np.float16) for k in (0, 1))
    return Case(1, [a, b, np.zeros(1, F32), 500], {2: np.array([a.astype(F64) @ b.astype(F64)], F32)}, close=1e-3)


@case
def top_of_block() -> Case:
    x = _rng(4).permutation(2000)[:512].astype(I32).reshape(2, 256)
    return Case(2, [x, np.zeros((2, 8), I32)], {1: -np.sort(-x, axis=1)[:, :8]})


@case
def merge() -> Case:
    a, b = (np.sort(_ints(300, 0, 200, seed=k)) for k in (0, 1))
    return Case(2, [a, b, np.zeros(600, I32), 300], {2: np.sort(np.concatenate([a, b]))})


@case
def segments() -> Case:
    ends, x = np.sort(_ints(16, 0, 900, seed=3)), _floats(900)
    firsts = [0, *ends[:-1].tolist()]
    want = np.array([x[i:j].sum() for i, j in zip(firsts, ends.tolist())], F32)
    return Case(2, [x, ends, np.zeros(16, F32)], {2: want}, close=1e-4)


@case
def wide_sums() -> Case:
    a, b = (_rng(k).integers(0, 1 << 64, 256, dtype=np.uint64) for k in (0, 1))
    high = np.array([int(x) * int(y) >> 64 for x, y in zip(a, b)], np.uint64)
    return Case(1, [a, b, np.zeros_like(a), np.zeros_like(a)], {2: a + b, 3: high})


@case
def unpack() -> Case:
    x = _rng(6).integers(0, 1 << 32, 512).astype(U32)
    want = (x[:, None] >> np.arange(0, 32, 4, dtype=U32) & 15).astype(F32) - 8
    return Case(2, [x, np.zeros((512, 8), F32)], {1: want})


@case
def median() -> Case:
    x = _floats(16, 32)
    p = np.pad(x, 1)
    near = np.stack([p[i : i + 16, j : j + 32] for i in range(3) for j in range(3)])
    return Case(2, [x, np.zeros_like(x), 32, 16], {1: np.median(near, axis=0)})


@case
def producers() -> Case:
    x = _ints(512).reshape(2, 256)
    want = np.zeros_like(x)
    for row, of in zip(want, x):
        kept = of[of > 0]
        row[: len(kept)] = np.sort(kept)
    return Case(2, [x, np.zeros_like(x)], {1: want})


@case
def gray_rows() -> Case:
    x = _rng(8).integers(0, 256, (300, 3)).astype(np.uint8)
    return Case(2, [x, np.zeros(300, np.uint8), 300], {1: (x @ np.array([77, 150, 29]) >> 8).astype(np.uint8)})


@case
def recurrence() -> Case:
    x, decay = _floats(20, 256), np.abs(_floats(256)) % F32(1)
    want, h = np.zeros_like(x), np.zeros(256, F32)
    for t in range(20):
        h = h * decay + x[t]
        want[t] = h
    return Case(1, [x, decay, np.zeros_like(x), 20], {2: want}, close=1e-5)


@case
def strided_copy() -> Case:
    x = _floats(3, 300, 4)
    return Case(3, [x, np.zeros((3, 256, 4), F32), 300], {1: x[:, :256]})


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("hip")
    return lambda chip: build(chip, "kernels_more.hip", folder)


def _settled(name: str, c: Case) -> None:
    """What depends on the order of waves and lanes in a form that does not."""
    if name == "producers":
        got = c.args[1]
        for row in got:
            row[: np.count_nonzero(row)].sort()
    if name == "union_find":
        parent = c.args[1]
        while not np.array_equal(parent[parent], parent):
            parent[:] = parent[parent]


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("name", list(CASES))
def test_kernel(name: str, chip: str, built: Callable[[str], Path], counted: Callable[[str, str], None]) -> None:
    held(name, CASES[name](), chip, built(chip), _settled)
    counted("HIP", name)


def test_ballot_ranks(built: Callable[[str], Path], counted: Callable[[str, str], None]) -> None:
    x = _ints(256)
    odd = (x & 1).reshape(-1, 64)
    want = np.where(odd, odd.cumsum(1) - odd, -1).ravel().astype(I32)
    held("ballot_ranks", Case(1, [x, np.zeros_like(x)], {1: want}), "gfx942", built("gfx942"), _settled)
    counted("HIP", "ballot_ranks")
