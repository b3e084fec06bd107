"""Loops over products: loads that fill shared memory in the background, operands as the units read them, one barrier a turn."""

from __future__ import annotations

import importlib
import random
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tec.tile as tl
from tec.errors import TecError
from tec.ir import stmt as S
from tec.jit.specialise import target_of
from tests import seeds
from tests.thinned import thinned_rows

from . import kernels as K
from .nvidia import counted, interpreted, loops

HOPPER, AMPERE, CDNA = "cuda -arch=sm_90a", "cuda -arch=sm_80", "rocm -mcpu=gfx942"


def matmul_case(target: str, m: int, n: int, k: int, turned: tuple[bool, bool], **constants: Any) -> None:
    rng = np.random.default_rng(m + n + k)
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    c = np.zeros((m, n), np.float16)
    given = [np.ascontiguousarray(x.T) if t else x for x, t in zip((a, b), turned)]
    strides = [s for x, t in ((a, turned[0]), (b, turned[1])) for s in ((1, x.shape[0]) if t else (x.shape[1], 1))]
    grid = (-(-m // constants["BM"]) * -(-n // constants["BN"]),)
    args = (*given, c, m, n, k, *strides, n, 1)
    interpreted(K.matmul, target, grid, *args, GROUP=2, ACTIVATION="", **constants)
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize("seed", seeds.some(7))
def test_masked_products_with_operands_as_they_lie(seed: int) -> None:
    """Tiles that stick out on every side, both operands along either axis, sizes that 16 divides and that nothing does."""
    r = random.Random(seed)
    target = (HOPPER, AMPERE, CDNA)[seed % 3]
    turned = (r.random() < 0.5, r.random() < 0.5)
    m, n = 16 * r.randint(3, 5), 16 * r.randint(3, 5)
    side = 64 if target == HOPPER else 32
    k = r.choice([side * r.randint(2, 4) + 16 * r.randint(0, 2), 75])
    bn = r.choice([side, 2 * side])
    matmul_case(target, m, n, k, turned, BM=64, BN=bn, BK=side, num_warps=4, num_stages=r.choice([2, 3]))


@pytest.mark.parametrize("target", [HOPPER, AMPERE])
def test_attention_keeps_its_weights_in_registers(target: str) -> None:
    h, n, d = 1, 160 if target == HOPPER else 96, 64  # three turns: the second leaves products in flight over copies
    q, k, v = np.random.default_rng(3).standard_normal((3, h, n, d)).astype(np.float16)
    o, scale = np.zeros_like(q), 0.15
    constants = {"BM": 64, "BN": 64, "D": d, "CAUSAL": True, "num_warps": 4, "num_stages": 2}
    interpreted(K.attention, target, (-(-n // 64), h), q, k, v, o, n, scale, **constants)
    score = q.astype(np.float32) @ k.astype(np.float32).transpose(0, 2, 1) * scale
    score = np.where(np.tri(n, dtype=bool), score, -1e6)
    weights = np.exp(score - score.max(-1, keepdims=True))
    np.testing.assert_allclose(o, weights @ v.astype(np.float32) / weights.sum(-1, keepdims=True), atol=4e-3)
    pointers = ["*fp16:16"] * 4
    text = K.attention.asm(target, *pointers, 1024, scale, **constants)
    body = max(loops(text), key=len)
    fills, barriers, stores, loads = counted(
        body, r"cp\.async\.cg", r"bar(?:rier)?\.(?:cta\.)?sync", r"st\.shared", r"ld\.(?:global|shared)"
    )
    meets = 2 if target == HOPPER else 1  # the second lets copies into the slot that products in flight have left
    assert fills == 8 and barriers == meets and stores == loads == 0, (fills, barriers, stores, loads)


@pytest.mark.parametrize(("arch", "target"), [("sm_90", HOPPER), ("sm_80", AMPERE), ("gfx942:sramecc+", CDNA)])
def test_a_device_gets_what_only_its_generation_has(arch: str, target: str) -> None:
    """A driver names a Hopper GPU sm_90; warpgroup products are in sm_90a alone."""
    device: Any = SimpleNamespace(kind=target.split(" ")[0], arch=arch)
    assert str(target_of(device)) == target


@cache
def matmul_text(target: str, warps: int) -> str:
    args = ["*fp16:16"] * 3 + [512] * 3 + [512, 1, 512, 1, 512, 1]
    sizes = {"BM": 128, "BN": 128, "BK": 64, "GROUP": 8, "ACTIVATION": "", "num_warps": warps, "num_stages": 3}
    text: str = K.matmul.asm(target, *args, **sizes)
    return text


def test_main_loops() -> None:
    """A turn of a product's loop: copies of 16 bytes, one barrier (two with products in flight), operands by ldmatrix or by the unit itself."""
    for target, products, moves in ((HOPPER, r"wgmma\.mma_async", 0), (AMPERE, r"mma\.sync", 24)):
        body = max(loops(matmul_text(target, 8)), key=len)
        found = counted(
            body, r"cp\.async\.cg", r"bar(?:rier)?\.(?:cta\.)?sync", "ldmatrix", "ld.shared|st.shared|ld.global"
        )
        assert found == (8, 2 if target == HOPPER else 1, moves, 0)
        assert len(re.findall(products, body)) == (4 if target == HOPPER else 64)


def test_products_stay_in_flight(tmp_path: Path) -> None:
    """A turn begins its products, waits for those of the turn before, and only then starts copies; ptxas leaves them in flight, also where a group has two tiles."""
    for warps in (4, 8):
        text = matmul_text(HOPPER, warps)
        body = max(loops(text), key=len)
        words = r"wgmma\.mma_async|wgmma\.wait_group\S* \d|cp\.async\.cg"
        order = list(dict.fromkeys(re.findall(words, body[body.index("wgmma.fence") :])))
        assert order == ["wgmma.mma_async", "wgmma.wait_group.sync.aligned 1", "cp.async.cg"], order
        assert "wgmma.wait_group.sync.aligned 0" not in body
        assert counted(text, r"st\.global\.v4\.b32", r"st\.(global|shared)") == (64 // warps, 64 // warps)
        if shutil.which("ptxas") is not None:
            (tmp_path / "k.ptx").write_text(text)
            command = ["ptxas", "-v", "-arch=sm_90a", str(tmp_path / "k.ptx"), "-o", str(tmp_path / "k.o")]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
            assert "serialized" not in said and " 0 bytes spill stores" in said, said


@pytest.mark.parametrize("wrong", ["no barrier", "too early"])
def test_copies_into_a_slot_in_use_are_found(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch over races knows products in flight: a copy with no barrier behind the wait, and one ahead of it."""
    transfers = importlib.import_module("tec.ir.passes.pipeline.transfers")
    right = transfers._behind_wait

    def way(work: S.Stmt, begun: S.Stmt) -> S.Stmt:
        if wrong == "too early":
            return S.seq(begun, work)
        with monkeypatch.context() as m:
            m.setattr(transfers, "BARRIER", S.NOP)
            return right(work, begun)  # type: ignore[no-any-return]

    monkeypatch.setattr(transfers, "_behind_wait", way)
    said = "no barrier between" if wrong == "no barrier" else "while a warpgroup product reads it"
    with pytest.raises(TecError, match=said):
        matmul_case(HOPPER, 64, 64, 256, (False, False), BM=64, BN=64, BK=64, num_warps=8, num_stages=2)


def test_narrow_tiles_by_address_are_copied_in_the_background() -> None:
    """A line of 128 bytes is filled in part where a tile has 32 elements along k; of pointers that were numbers it is promised what they are multiples of."""
    matmul_case(HOPPER, 64, 64, 96, (False, True), BM=64, BN=64, BK=32, num_warps=4, num_stages=2)
    text = _by_address.asm(HOPPER, "*i64:16", "*fp32:16", "i32", "i32", BM=64, BK=32)
    fills, products, narrow = counted(
        text, r"cp\.async\.cg", r"wgmma\.mma_async\S+m64n64k16", r"ld\.global\.(?:nc\.)?[bu]16"
    )
    assert fills and products == 2 and not narrow


@tl.jit
def _by_address(where, c, turns, stride, BM: tl.constexpr, BK: tl.constexpr):
    at, ks, total = tl.arange(0, BM), tl.arange(0, BK), tl.zeros((BM, BM), tl.float32)
    a = tl.load(where).to(tl.pointer_type(tl.float16)) + at[:, None] * stride + ks[None, :]
    b = tl.load(where + 1).to(tl.pointer_type(tl.float16)) + ks[:, None] * stride + at[None, :]
    for _ in range(turns):
        tl.multiple_of(a, [16, 16])
        tl.multiple_of(b, [16, 16])
        total += tl.dot(tl.load(a), tl.load(b))
        a += BK
        b += BK * stride
    tl.store(c + at[:, None] * BM + at[None, :], total)


@tl.jit
def _in_two_loops(a, b, c, middle, K, BM: tl.constexpr, BK: tl.constexpr, LOOPS: tl.constexpr):
    at, total = tl.arange(0, BM), tl.zeros((BM, BM), tl.float32)
    for k in range(0, middle, BK):
        ks = k + tl.arange(0, BK)
        total = tl.dot(tl.load(a + at[:, None] * K + ks[None, :]), tl.load(b + ks[:, None] * BM + at[None, :]), total)
    if LOOPS > 1:
        for k in range(middle, K, BK):
            ks = k + tl.arange(0, BK)
            x, y = tl.load(a + at[:, None] * K + ks[None, :]), tl.load(b + ks[:, None] * BM + at[None, :])
            total = tl.dot(x, y * 2.0 if LOOPS == 2 else y, total)
    tl.store(c + at[:, None] * BM + at[None, :], total)


@thinned_rows(2, "target", [HOPPER, AMPERE, CDNA])
def test_loops_in_a_row_share_their_rings(target: str) -> None:
    """The barrier behind the first loop lies between; the interpreter watches for races."""
    n, middle, k = 64, 128, 192
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((n, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    c, constants = np.zeros((n, n), np.float32), {"BM": n, "BK": 32, "num_warps": 4, "num_stages": 3}
    interpreted(_in_two_loops, target, (1,), a, b, c, middle, k, LOOPS=2, **constants)
    x, y = a.astype(np.float32), b.astype(np.float32)
    np.testing.assert_allclose(c, x[:, :middle] @ y[:middle] + 2 * (x[:, middle:] @ y[middle:]), rtol=1e-4, atol=1e-3)
    pointers = ["*fp16:16", "*fp16:16", "*fp32:16", "i32:16", "i32:16"]
    one, two = (_in_two_loops.compiled_for(target, *pointers, LOOPS=loops, **constants) for loops in (1, 2))
    room = {HOPPER: 0, AMPERE: 0, CDNA: 1024}[target]  # rows of a tile that is computed are padded otherwise
    assert one.metadata.shared + room == two.metadata.shared == two.resources["lds_bytes"]
    # Slots are as many as the memory holds, which loops in a row share.
    both = _in_two_loops.compiled_for(target, *pointers, LOOPS=3, **constants)
    assert both.lowered.shared_bytes == both.metadata.shared == one.metadata.shared


@tl.jit
def _gradient(q, k, scale, out, n, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    keys, d = tl.arange(0, BN), tl.arange(0, D)
    kept = tl.load(k + keys[:, None] * D + d[None, :])
    total = tl.zeros((BN, D), tl.float32)
    for first in range(0, n, BM):
        rows = first + tl.arange(0, BM)
        turned = tl.load(q + rows[None, :] * D + d[:, None])
        score = tl.dot(kept, turned) * tl.load(scale + rows)[None, :]
        total += tl.dot(score.to(tl.float16), tl.trans(turned))
    tl.store(out + keys[:, None] * D + d[None, :], total)


@pytest.mark.parametrize("target", [HOPPER, AMPERE])
def test_a_tile_that_several_products_read_is_copied_once(target: str) -> None:
    """In the background, and the row of numbers beside them is loaded where it is needed: no thread waits for another but at the ring."""
    n, side = 96, 64
    rng = np.random.default_rng(8)
    q, k = rng.standard_normal((n, side)).astype(np.float16), rng.standard_normal((side, side)).astype(np.float16)
    scale, out = rng.standard_normal(n).astype(np.float32), np.zeros((side, side), np.float32)
    constants = {"BM": 32, "BN": side, "D": side, "num_warps": 4, "num_stages": 3}
    interpreted(_gradient, target, (1,), q, k, scale, out, n, **constants)
    x = q.astype(np.float32)
    want = ((k.astype(np.float32) @ x.T) * scale).astype(np.float16).astype(np.float32) @ x
    np.testing.assert_allclose(out, want, rtol=1e-2, atol=0.5)
    text = _gradient.asm(target, "*fp16:16", "*fp16:16", "*fp32:16", "*fp32:16", "i32:16", **constants)
    body = max(loops(text), key=len)
    found = counted(body, r"cp\.async\.cg", r"bar(?:rier)?\.(?:cta\.)?sync", r"(?:ld|st)\.shared")
    assert found == (2, 2 if target == HOPPER else 1, 0)


def test_sums_are_ready_ahead_of_a_loop_that_may_take_no_step(tmp_path: Path) -> None:
    """A second loop goes on from them: set on the way around the first one they are writes into sums under way to ptxas, and products wait for each other (C7515)."""
    pointers = ["*fp16:16", "*fp16:16", "*fp32:16", "i32:16", "i32:16"]
    text = _in_two_loops.asm(HOPPER, *pointers, BM=64, BK=64, LOOPS=3, num_warps=4, num_stages=3)
    around = text[text.index("cp.async") :].count("0f00000000")
    assert around == 0
    if shutil.which("ptxas") is not None:
        (tmp_path / "k.ptx").write_text(text)
        command = ["ptxas", "-v", "-arch=sm_90a", str(tmp_path / "k.ptx"), "-o", str(tmp_path / "k.o")]
        assert "serialized" not in subprocess.run(command, capture_output=True, text=True, check=True).stderr


@tl.jit
def written(a, b, c, columns, out, BLOCK: tl.constexpr, N: tl.constexpr):
    """A product to an array of another type, where a mask lets it."""
    at, across = tl.arange(0, BLOCK), tl.arange(0, N)
    x, y = tl.load(a + at[:, None] * BLOCK + at[None, :]), tl.load(b + at[:, None] * N + across[None, :])
    total = tl.dot(x, y)
    tl.store(c + at[:, None] * columns + across[None, :], total.to(c.dtype.element_ty), mask=across[None, :] < out)


@pytest.mark.parametrize("seed", seeds.some(4))
def test_sums_are_written_side_by_side(seed: int) -> None:
    """What lanes exchange before they write: types of 2 and 4 bytes, rows of any length, a mask that ends anywhere."""
    r, rng = random.Random(seed), np.random.default_rng(seed)
    target, n = (HOPPER, AMPERE)[seed % 2], r.choice([64, 128])
    columns, dtype = n + r.choice([0, 8, 5, 16]), r.choice([np.float16, np.float32])
    out = r.choice([n, n - 8, n - 13, 1])
    a, b = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((64, 64), (64, n)))
    c = np.full((64, columns), 7, dtype)
    interpreted(written, target, (1,), a, b, c, columns, out, BLOCK=64, N=n, num_warps=r.choice([4, 8]))
    want = np.full((64, columns), 7, dtype)
    want[:, :out] = (a.astype(np.float32) @ b.astype(np.float32))[:, :out]
    np.testing.assert_array_equal(c, want)


@tl.jit
def together(a, b, c, n, BLOCK: tl.constexpr):
    """A loop that writes what a later turn loads."""
    at = tl.arange(0, BLOCK)
    y = tl.load(b + at[:, None] * BLOCK + at[None, :])
    for i in range(n):
        x = tl.load(a + i * BLOCK * BLOCK + at[:, None] * BLOCK + at[None, :])
        total = tl.dot(x, y)
        tl.store(a + (i + 1) * BLOCK * BLOCK + at[:, None] * BLOCK + at[None, :], total.to(tl.float16))
    tl.store(c + at, tl.load(b + at))


@pytest.mark.parametrize("target", [HOPPER, AMPERE])
def test_a_loop_that_writes_what_it_loads_is_no_pipeline(target: str) -> None:
    rng = np.random.default_rng(0)
    a = np.zeros((4, 64, 64), np.float16)
    a[0], b, c = rng.random((64, 64)), (rng.random((64, 64)) / 32).astype(np.float16), np.zeros(64, np.float16)
    want = a[0].astype(np.float32)
    interpreted(together, target, (1,), a, b, c, 3, BLOCK=64, num_stages=3)
    for i in range(3):
        want = (want @ b.astype(np.float32)).astype(np.float16).astype(np.float32)
        np.testing.assert_allclose(a[i + 1], want, rtol=2e-2)


@tl.jit
def _sums_of_known_depth(a, b, out, SIDE: tl.constexpr, DEPTH: tl.constexpr, STEP: tl.constexpr):
    side = tl.arange(0, SIDE)
    total = tl.zeros((SIDE, SIDE), tl.float32)
    for k in range(0, DEPTH, STEP):
        at = side[:, None] * DEPTH + (k + tl.arange(0, STEP))[None, :]
        held = (k + tl.arange(0, STEP))[None, :] < DEPTH
        total += tl.dot(tl.load(a + at, mask=held, other=0.0), tl.trans(tl.load(b + at, mask=held, other=0.0)))
    tl.store(out + side[:, None] * SIDE + side[None, :], total)


@pytest.mark.parametrize("target", [HOPPER, AMPERE, CDNA])
@pytest.mark.parametrize(("depth", "step"), [(32, 32), (24, 32), (64, 64), (64, 32)])
def test_a_loop_of_one_turn_waits_for_its_copies(target: str, depth: int, step: int) -> None:
    """Such a loop is no loop when pipelines are made: without a barrier others read what was not there yet."""
    side = 64 if step == 64 else 32
    a, b = np.random.default_rng(depth).standard_normal((2, side, depth)).astype(np.float16)
    out = np.zeros((side, side), np.float32)
    interpreted(
        _sums_of_known_depth, target, (1,), a, b, out, SIDE=side, DEPTH=depth, STEP=step, num_warps=4, num_stages=3
    )
    np.testing.assert_allclose(out, a.astype(np.float32) @ b.astype(np.float32).T, rtol=2e-3, atol=2e-2)
