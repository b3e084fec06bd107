"""How tiles of common kernels go through memory on an NVIDIA GPU: values by the loop IR of all passes, and the PTX that says how."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import tec.tile as tl

from .devices import On
from .nvidia import counted, interpreted, loops

HOPPER = "cuda -mcpu=sm_90a"


@tl.jit
def odd_rows(x, y, stride, n, by, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    k = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + k, mask=k < n, other=0.0).to(tl.float32)
    tl.store(y + row * stride + k, (v / by).to(tl.float16), mask=k < n)


def test_rows_that_begin_anywhere_are_read_by_neighbours_and_stored_under_predicates() -> None:
    x = np.random.default_rng(0).standard_normal((3, 201)).astype(np.float16)
    y = np.zeros_like(x)
    interpreted(odd_rows, HOPPER, (3,), x, y, 201, 201, 3.0, BLOCK=256, num_warps=1)
    np.testing.assert_allclose(y, x.astype(np.float32) / 3, rtol=1e-3)
    given = ("*fp16:16", "*fp16:16", "i32", "i32", "fp32")
    assert "thread_x % 32 * 8" not in odd_rows.ir(*given, target=HOPPER, what="loops", BLOCK=256, num_warps=1)
    text = odd_rows.asm(HOPPER, *given, BLOCK=256, num_warps=1)
    assert text.index("st.global") > text.rindex("div.full")  # no quotient behind a condition
    given = ("*fp16:16", "*fp16:16", "i32:16", "i32:16", "fp32")
    assert counted(odd_rows.asm(HOPPER, *given, BLOCK=256, num_warps=1), r"ld\.global\S*v4", r"st\.global\S*v4") == (
        1,
        1,
    )


def test_wide_stores_under_conditions_have_no_branch() -> None:
    """What is stored is computed in front of the condition, two halves in a register."""
    given = ("*fp16:16", "*fp16:16", "i32:16", "i32:16", "fp32")
    text = odd_rows.asm(HOPPER, *given, BLOCK=2048, num_warps=4)
    assert text.index("st.global") > text.rindex("div.full")
    assert counted(text, r"cvt\.rn\.f16x2", r"st\.global\S*v4") == (8, 2)


def test_the_widest_array_of_a_thread_says_how_many_programs_meet() -> None:
    """A thread of one with 16 words has up to 80 registers, of 32 words 128, of 64 words 168."""
    for columns, programs in ((1024, 6), (8192, 4), (16384, 3), (32768, None)):
        text = odd_rows.asm(HOPPER, *["*fp16:16"] * 2, "i32:16", "i32:16", "fp32", BLOCK=columns, num_warps=4)
        found = re.search(r"minnctapersm (\d+)", text)
        assert (None if found is None else int(found[1])) == programs


@tl.jit
def turned_pairs(x, angles, y, N: tl.constexpr):
    k = tl.arange(0, N)
    cos, sin = tl.split(tl.load(angles + k[:, None] * 2 + tl.arange(0, 2)[None, :]))
    a, b = tl.load(x + 2 * k).to(tl.float32), tl.load(x + 2 * k + 1).to(tl.float32)
    tl.store(y + 2 * k, (a * cos - b * sin).to(tl.float16))
    tl.store(y + 2 * k + 1, (a * sin + b * cos).to(tl.float16))


@pytest.mark.parametrize("n", [64, 256])
def test_halves_of_a_tile_that_is_split_are_loaded_by_one_thread(n: int) -> None:
    """Else each use of a half moved it through shared memory, with two meetings of the threads: twice the time of a rotation."""
    rng = np.random.default_rng(0)
    x, angles = rng.standard_normal((n, 2)).astype(np.float16), rng.standard_normal((n, 2)).astype(np.float32)
    y = np.zeros_like(x)
    interpreted(turned_pairs, HOPPER, (1,), x, angles, y, N=n, num_warps=4)
    (a, b), (c, s) = x.astype(np.float32).T, angles.T
    np.testing.assert_allclose(y, np.stack([a * c - b * s, a * s + b * c], 1), rtol=0, atol=4e-3)
    text = turned_pairs.asm(HOPPER, "*fp16:16", "*fp32:16", "*fp16:16", N=n, num_warps=4)
    assert counted(text, r"bar\.sync", r"\.shared\.") == (0, 0)


@tl.jit
def met_twice(x, flag):
    tl.store(x + tl.arange(0, 64), 1.0)
    tl.debug_barrier()
    tl.atomic_xchg(flag, 1)


def test_threads_that_have_just_met_do_not_meet_again() -> None:
    assert counted(met_twice.asm(HOPPER, "*fp32", "*i32", num_warps=4), r"bar(?:rier)?\.\S*sync") == (1,)


@tl.jit
def masked(x, keep, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at)
    tl.store(y + at, tl.where(tl.load(keep + at) != 0, v, 0.0))


def test_types_of_several_sizes_meet_in_registers() -> None:
    given = ("*fp16:16", "*i8:16", "*fp16:16")
    text = masked.asm(HOPPER, *given, BLOCK=1024, num_warps=4)
    assert counted(text, r"bar(?:rier)?\.", r"[ls][td]\.shared", r"ld\.global\S*v4", r"ld\.global\S*v2") == (0, 0, 1, 1)


@tl.jit
def to_fp8(x, y, back, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    q = tl.load(x + at).to(tl.float8e4nv)
    tl.store(y + at, q)
    tl.store(back + at, q.to(tl.float32))


def test_fp8_by_the_chips_conversions() -> None:
    """Tiles hold numbers within the largest first, which the instruction does itself."""
    text = to_fp8.asm(HOPPER, "*fp32:16", "*fp8e4nv:16", "*fp32:16", BLOCK=256, num_warps=1)
    words = (r"cvt\.rn\.satfinite\.e4m3x2\.f32", r"cvt\.rn\.f16x2\.e4m3x2", r"\b(?:min|max|setp|selp)\.")
    assert counted(text, *words) == (4, 4, 0)
    x = np.array([0.0, -0.01, 1.3, -448, 460, 1e9, np.inf, -np.inf] * 32, np.float32)
    y, back = np.zeros(256, np.uint8).view(ml_dtypes.float8_e4m3fn), np.zeros(256, np.float32)
    to_fp8[(1,)](x, y, back, BLOCK=256)
    np.testing.assert_array_equal(back, y.astype(np.float32))
    np.testing.assert_array_equal(back, np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32))


@tl.jit
def embed(dy, ids, dw, N, BLOCK: tl.constexpr):
    t, c = tl.program_id(0), tl.arange(0, BLOCK)
    tl.atomic_add(dw + tl.load(ids + t) * N + c, tl.load(dy + t * N + c, mask=c < N), mask=c < N)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_neighbours_are_added_at_once(dtype: type) -> None:
    """With one fence for all that a thread adds, and only where rows begin at a multiple of 16 bytes."""
    dy = np.random.default_rng(1).integers(-9, 9, (6, 48)).astype(dtype)
    ids, dw = np.array([1, 0, 3, 1, 1, 0], np.int32), np.zeros((4, 48), dtype)
    want = np.zeros_like(dw)
    np.add.at(want, ids, dy)
    interpreted(embed, HOPPER, (6,), dy, ids, dw, 48, BLOCK=64, num_warps=1)
    np.testing.assert_array_equal(dw, want)
    name, wide = ("fp32", 4) if dtype is np.float32 else ("fp16", 8)
    many = (f"*{name}:16", "*i32:16", f"*{name}:16", "i32:16")
    text = embed.asm(HOPPER, *many, BLOCK=512, num_warps=1)
    runs = rf"red\.relaxed\.gpu\.global\.add\.(?:noftz\.)?v{wide}\."
    assert counted(text, runs, r"atom\.", r"fence\.") == (16 // wide, 0, 1)
    one = embed.asm(HOPPER, *many[:3], "i32", BLOCK=512, num_warps=1)
    assert counted(one, r"red\.\S+\.v\d", r"atom\.\S*relaxed", r"atom\.\S*acq_rel", r"fence\.") == (0, 16, 0, 1)


@tl.jit
def gathered(a, w, c, order, T, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    token = tl.load(order + tl.program_id(0) * BM + tl.arange(0, BM))
    live = token < T
    n, k = tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    pa, pw = a + (token[:, None] // 2) * K + k[None, :], w + n[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), tl.float32)
    for i in range(tl.cdiv(K, BK)):
        x = tl.load(pa, mask=live[:, None] & (k[None, :] < K - i * BK), other=0.0)
        total += tl.dot(x, tl.load(pw, mask=k[:, None] < K - i * BK, other=0.0))
        pa += BK
        pw += BK
    tl.store(c + token[:, None] * N + n[None, :], total.to(tl.float16), mask=live[:, None] & (n[None, :] < N))


def test_rows_of_a_gather_are_copied_in_the_background() -> None:
    """The rows' numbers move between threads once, ahead of the loop; its turn has no loads, and its results go out 16 bytes at a time."""
    rng = np.random.default_rng(2)
    a, w = rng.standard_normal((40, 96)).astype(np.float16), rng.standard_normal((64, 96)).astype(np.float16)
    order = np.concatenate([rng.permutation(80)[:60], np.full(4, 80)]).astype(np.int32)
    c = np.zeros((80, 64), np.float16)
    sizes = {"BM": 64, "BN": 64, "BK": 32, "num_warps": 4, "num_stages": 3}
    interpreted(gathered, HOPPER, (1, 1), a, w, c, order, 80, 64, 96, **sizes)
    want = np.zeros((80, 64), np.float32)
    want[order[:60]] = a[order[:60] // 2].astype(np.float32) @ w.T.astype(np.float32)
    np.testing.assert_allclose(c, want, atol=0.05)
    text = gathered.asm(HOPPER, *["*fp16:16"] * 3, "*i32:16", *["i32:16"] * 3, **{**sizes, "BK": 64})
    body = max(loops(text), key=len)
    assert counted(body, r"cp\.async\.cg", r"ld\.(?:global|shared)", r"st\.shared") == (8, 0, 0)
    assert counted(text, r"st\.global\.v4", r"st\.global\.b") == (4, 0)


@tl.jit
def paged(q, keys, table, out, length, PAGE: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    g, d = tl.arange(0, 16), tl.arange(0, D)
    total = tl.zeros((16, D), tl.float32)
    for first in range(0, length, BN):
        n = first + tl.arange(0, BN)
        page = tl.load(table + n // PAGE, mask=n < length, other=0)
        at = (page * PAGE + n % PAGE)[:, None] * D + d[None, :]
        x = tl.load(q + g[:, None] * length + n[None, :], mask=(n < length)[None, :], other=0.0)
        total = tl.dot(x, tl.load(keys + at, mask=(n < length)[:, None], other=0.0), total)
    tl.store(out + g[:, None] * D + d[None, :], total)


def test_rows_that_a_table_in_the_loop_names_are_copied_in_the_background() -> None:
    """Each thread reads the entries that its own copies need: a turn neither waits for what it has loaded itself, nor moves it between threads."""
    rng = np.random.default_rng(5)
    length, d = 37, 64
    q, keys = rng.standard_normal((16, length)).astype(np.float16), rng.standard_normal((80, d)).astype(np.float16)
    table = rng.permutation(10)[:5].astype(np.int32)
    rows = keys.reshape(10, 8, d)[table].reshape(40, d)[:length]
    slots = []
    for stages, barriers in ((2, 2), (3, 1)):  # one slot is free when all have read it
        out = np.zeros((16, d), np.float32)
        sizes = {"PAGE": 8, "BN": 32, "D": d, "num_warps": 1, "num_stages": stages}
        interpreted(paged, HOPPER, (1,), q, keys, table, out, length, **sizes)
        np.testing.assert_allclose(out, q.astype(np.float32) @ rows.astype(np.float32), atol=0.02)
        given = (*["*fp16:16"] * 2, "*i32:16", "*fp32:16", "i32:16")
        body = max(loops(paged.asm(HOPPER, *given, **sizes)), key=len)
        words = (r"cp\.async\.cg", r"ld\.global\S*v4", r"st\.shared", r"bar(?:rier)?\.\S*sync")
        assert counted(body, *words) == (10, 0, 0, barriers)
        slots.append(paged.compiled_for(HOPPER, *given, **sizes).metadata.shared)
    assert slots[1] == 2 * slots[0]  # of few rows a slot less than stages


def test_loads_under_conditions_are_started_before_any_is_waited_for() -> None:
    """Of an array whose size is not known: one instruction each, with no branch, and the conversions behind all of them."""
    text = odd_rows.asm(HOPPER, "*fp16:16", "*fp16:16", "i32", "i32", "fp32", BLOCK=1024, num_warps=1)
    assert counted(text, r"@%p\d+ ld\.global\.nc\.b16") == (32,)
    assert text.rindex("ld.global.nc") < text.index("cvt.f32.f16")


@tl.jit
def paged_by_warpgroups(q, keys, table, out, length, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    m, d = tl.arange(0, BM), tl.arange(0, D)
    total = tl.zeros((BM, D), tl.float32)
    for first in range(0, length, BN):
        n = first + tl.arange(0, BN)
        at = tl.load(table + n)[:, None] * D + d[None, :]
        x = tl.load(q + m[:, None] * length + n[None, :])
        total = tl.dot(x, tl.load(keys + at), total)
    tl.store(out + m[:, None] * D + d[None, :], total)


def test_a_table_is_not_read_beyond_its_last_entry() -> None:
    """Copies of turns that there are not bring zeros without a branch, and read no entry for it."""
    rng = np.random.default_rng(6)
    length, d = 192, 64
    q, keys = rng.standard_normal((64, length)).astype(np.float16), rng.standard_normal((99, d)).astype(np.float16)
    table, out = rng.integers(0, 99, length).astype(np.int32), np.zeros((64, d), np.float32)
    sizes = {"BM": 64, "BN": 64, "D": d, "num_warps": 4, "num_stages": 3}
    assert "wgmma" in paged_by_warpgroups.asm(HOPPER, *["*fp16:16"] * 2, "*i32:16", "*fp32:16", "i32:16", **sizes)
    interpreted(paged_by_warpgroups, HOPPER, (1,), q, keys, table, out, length, **sizes)
    np.testing.assert_allclose(out, q.astype(np.float32) @ keys[table].astype(np.float32), atol=0.05)


@tl.jit
def recurrence(u, a, b, y, T, D: tl.constexpr, N: tl.constexpr):
    d, n = tl.arange(0, D), tl.arange(0, N)
    rate, h = tl.load(a + d[:, None] * N + n[None, :]), tl.zeros((D, N), tl.float32)
    for t in range(T):
        h = h * rate + tl.load(u + t * D + d)[:, None] * tl.load(b + t * N + n)[None, :]
        tl.store(y + t * D + d, tl.sum(h, 1))


def test_short_rows_are_loaded_where_they_are_needed() -> None:
    rng = np.random.default_rng(3)
    u, a, b = (rng.random(s).astype(np.float32) for s in ((5, 64), (64, 16), (5, 16)))
    y, h = np.zeros_like(u), np.zeros((64, 16), np.float32)
    interpreted(recurrence, HOPPER, (1,), u, a, b, y, 5, D=64, N=16, num_warps=4)
    for t in range(5):
        h = h * a + u[t][:, None] * b[t]
        np.testing.assert_allclose(y[t], h.sum(1), rtol=1e-4)
    body = max(loops(recurrence.asm(HOPPER, *["*fp32:16"] * 4, "i32", D=64, N=16, num_warps=4)), key=len)
    assert not re.search(r"bar(?:rier)?\.", body)


@tl.jit
def _linear(a1, b1, a2, b2):
    return a1 * a2, a2 * b1 + b2


@tl.jit
def scanned(a, x, y, s, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    v = tl.load(x + at)
    _, h = tl.associative_scan((tl.load(a + at), v), AXIS, _linear, reverse=REVERSE)
    tl.store(y + at, h)
    tl.store(s + at, tl.sort(v, descending=REVERSE))


def test_scans_and_sorts_over_registers_lanes_waves_and_blocks(on: On) -> None:
    rng = np.random.default_rng(4)
    for m, n, axis, reverse, warps in ((2, 64, 1, True, 2), (32, 4, 0, False, 2), (1, 64, 1, False, 1)):
        a, x = rng.random((2, m, n)).astype(np.float32)
        y, s = on.zeros(m, n), on.zeros(m, n)
        scanned[(1,)](on.array(a), on.array(x), y, s, M=m, N=n, AXIS=axis, REVERSE=reverse, num_warps=warps)
        step = -1 if reverse else 1
        rows, values = np.moveaxis(a, axis, 0)[::step], np.moveaxis(x, axis, 0)[::step]
        want, h = np.zeros_like(values), np.zeros_like(values[0])
        for k, (rate, v) in enumerate(zip(rows, values)):
            h = want[k] = rate * h + v
        np.testing.assert_allclose(on.numpy(y), np.moveaxis(want[::step], 0, axis), rtol=1e-4)
        np.testing.assert_array_equal(on.numpy(s), np.sort(x, 1)[:, ::step])


def test_scans_and_sorts_meet_seldom() -> None:
    """Steps within a wavefront go by registers and shuffles."""
    args = ["*fp32:16"] * 4
    text = scanned.asm(HOPPER, *args, M=1, N=256, AXIS=1, REVERSE=False, num_warps=4)
    # Two of the scan's waves, and two each of the sort's three steps between the four.
    assert counted(text, r"bar(?:rier)?\.\S*sync")[0] <= 2 + 2 * 3


@tl.jit
def by_blocks(x, y, N: tl.constexpr):
    p = tl.make_block_ptr(x, (N,), (1,), (0,), (N,), (0,))
    q = tl.make_block_ptr(y, (N,), (1,), (0,), (N,), (0,))
    tl.store(q, (tl.load(p) * 2).to(q.dtype.element_ty))


def test_a_block_pointer_knows_its_elements(on: On) -> None:
    x, y = np.arange(64, dtype=np.float32), on.zeros(64, dtype="float16")
    by_blocks[(1,)](on.array(x), y, N=64)
    np.testing.assert_array_equal(on.numpy(y), (x * 2).astype(np.float16))


@tl.jit
def padded(x, out, n, D: tl.constexpr, FIRST: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    r, c = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    tl.store(out + r * N + c, tl.load(x + r * D + c + FIRST, mask=(r < n) & (c + FIRST < D), other=0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8])
def test_columns_beyond_a_constant_in_rows_below_a_number(on: On, dtype: type) -> None:
    """Masks of which some vectors, or halves of vectors, are known to be empty when loops are written out, beside a condition that is not known."""
    for d, n, first in ((5, 16, 0), (16, 16, 9), (40, 64, 0), (24, 32, 3)):
        x = np.arange(1, 8 * d + 1).astype(dtype).reshape(8, d)
        out, want = on.zeros(8, n, dtype=np.dtype(dtype).name), np.zeros((8, n), dtype)
        padded[(1,)](on.array(x), out, 6, D=d, FIRST=first, M=8, N=n)
        want[:6, : d - first] = x[:6, first:]
        np.testing.assert_array_equal(on.numpy(out), want)


@tl.jit
def mixed(x, y, z, n, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + k, mask=k < n, other=1.0).to(tl.float32)
    b = tl.load(y + k, mask=k < n, other=2.0).to(tl.float32)
    tl.store(z + k, (a * b).to(tl.bfloat16), mask=k < n)


def test_masked_loads_of_eight_halves_begin_before_the_first_is_waited_for() -> None:
    """Of a branch LLVM takes the halves apart in the block that loads them."""
    given = ("*bf16:16", "*bf16:16", "*bf16:16", "i32:16")
    text = mixed.asm(HOPPER, *given, BLOCK=2048, num_warps=2)
    assert counted(text, r"@%p\d+ ld\.global\.nc\.v4") == (8,)
    assert text.rindex("ld.global.nc") < text.index("mul.f32")
    x, y = (np.random.default_rng(k).standard_normal(1000).astype(ml_dtypes.bfloat16) for k in range(2))
    z = np.zeros_like(x)
    interpreted(mixed, HOPPER, (2,), x, y, z, 992, BLOCK=512, num_warps=2)
    want = (x.astype("f4") * y.astype("f4")).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(z, np.where(np.arange(1000) < 992, want, z.dtype.type(0)))


@tl.jit
def exact_product(x, y, z, N: tl.constexpr, K: tl.constexpr):
    i, j, k = tl.arange(0, 16), tl.arange(0, N), tl.arange(0, K)
    a, b = tl.load(x + i[:, None] * K + k[None, :]), tl.load(y + k[:, None] * N + j[None, :])
    tl.store(z + i[:, None] * N + j[None, :], tl.dot(a, b, allow_tf32=False))


def test_a_product_without_a_unit_reads_four_neighbours_of_shared_memory_at_once() -> None:
    text = exact_product.asm(HOPPER, *["*fp32:16"] * 3, N=32, K=16, num_warps=1)
    assert counted(text, r"ld\.shared\.v4", r"ld\.shared\.b32", r"st\.shared\.b32") == (8, 0, 0)
    x, y = (np.random.default_rng(k).standard_normal(s).astype("f4") for k, s in enumerate(((16, 8), (8, 32))))
    z = np.zeros((16, 32), "f4")
    interpreted(exact_product, HOPPER, (1,), x, y, z, N=32, K=8, num_warps=2)
    np.testing.assert_allclose(z, x @ y, rtol=1e-5, atol=1e-5)
