"""What kernels written for Triton do that a draw of its tests and of public kernels found wrong: one case of each."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tec
import tec.tile as tl
from tec.jit import tile_code
from tec.jit.reflection import resources_of
from tec.jit.tile_tellers import is_wide
from tec.tile import triton

from .nvidia import interpreted

BF16 = np.dtype(ml_dtypes.bfloat16)

HOPPER, CDNA = "cuda -arch=sm_90a", "rocm -mcpu=gfx942"


@tl.jit
def _ends_early(x, out, TURNS: tl.constexpr, KIND: tl.constexpr):
    if KIND == "branch":
        if tl.load(x) > 0:
            tl.store(out, 1)
            return
    else:
        for k in tl.static_range(TURNS):
            if tl.load(x + k) > 0:
                tl.store(out, 10 + k)
                return
    tl.store(out, 2)


@pytest.mark.parametrize("kind,x,want", [("branch", 1, 1), ("branch", 0, 2), ("loop", 3, 11), ("loop", 0, 2)])
def test_a_return_below_what_is_constant_ends_only_its_own_side(kind: str, x: int, want: int) -> None:
    values, out = np.array([0, x, 0] if kind == "loop" else [x], np.int32), np.zeros(1, np.int32)
    _ends_early[(1,)](values, out, TURNS=len(values), KIND=kind)
    assert out[0] == want


@tl.jit
def _pointers(a, b, out, wide, N: tl.constexpr):
    at = tl.arange(0, N)
    odd = (at % 2 == 1) & (tl.load(out) == 0)
    tl.store(out + at, tl.load(tl.where(odd, a + at, b + at)))
    low = a.to(tl.pointer_type(tl.int16))
    tl.store(wide + at, tl.load(low + 2 * at).to(tl.int32))


@tl.jit
def _added(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.atomic_add(out + at % 8, tl.load(x + at), sem="relaxed")


@tl.jit
def _shapes(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    v = tl.reshape(tl.load(x + at), (2, N // 2))
    tl.store(out + tl.arange(0, 2 * N), tl.ravel(tl.cat(v, v + 1.0, dim=1)))
    tl.static_assert(tl.unsqueeze(v, 0).shape == (1, 2, N // 2))
    tl.static_assert(tl.squeeze(tl.unsqueeze(v, 0), 0).shape == (2, N // 2))


@tl.jit
def _large(a, b, out, M: tl.constexpr, K: tl.constexpr):
    m, k = tl.arange(0, M), tl.arange(0, K)
    x, y = tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * M + m[None, :])
    tl.store(out + m[:, None] * M + m[None, :], tl.dot(x, y, input_precision="ieee"))


@tl.jit
def _nothing(n):
    tl.device_assert(tl.sum(tl.arange(0, 16)) == n)


def _added_in_bfloat16() -> None:
    x, sums = np.random.default_rng(1).integers(-4, 5, 64).astype(BF16), np.zeros(8, BF16)
    _added[(1,)](x, sums, N=64)
    np.testing.assert_array_equal(sums.astype("f4"), x.astype("f4").reshape(8, 8).sum(0))


def test_on_a_software_gpu() -> None:
    with tl.on_device(tec.rocm_emu("gfx942")):
        a, b = (np.arange(k, k + 64, dtype=np.int32) for k in (100, 1000))
        out, wide = np.zeros(64, np.int32), np.zeros(64, np.int32)
        _pointers[(1,)](a, b, out, wide, N=64)
        np.testing.assert_array_equal(out, np.where(np.arange(64) % 2 == 1, a, b))
        np.testing.assert_array_equal(wide, a)
        _added_in_bfloat16()
        _nothing[(1,)](120)  # no array says where


@pytest.mark.slow
def test_operands_that_shared_memory_does_not_hold_come_in_pieces() -> None:
    rng = np.random.default_rng(0)
    p, q = (rng.standard_normal(s).astype(np.float32) for s in ((32, 512), (512, 32)))
    c = np.zeros((32, 32), np.float32)
    with tl.on_device(tec.rocm_emu("gfx942")):
        _large[(1,)](p, q, c, M=32, K=512, num_warps=32)  # 128 KB of operands, and more waves than a work-group has
    np.testing.assert_allclose(c, p @ q, rtol=1e-4, atol=1e-4)


def test_pieces_of_operands_are_within_the_chips_shared_memory() -> None:
    text = _large.ir("*fp32", "*fp32", "*fp32", M=64, K=256, target=CDNA, what="loops")
    sizes = [int(n) for n in re.findall(r'alloc\(\((\d+),\), "float32", scope="shared"\)', text)]
    assert sizes and 4 * sum(sizes) <= 65536


def test_on_the_cpu() -> None:
    _added_in_bfloat16()
    v, out = np.random.default_rng(2).random(16, np.float32), np.zeros(32, np.float32)
    _shapes[(1,)](v, out, N=16)
    w = v.reshape(2, 8)
    np.testing.assert_array_equal(out.reshape(2, 16), np.concatenate([w, w + 1], 1))


@tl.jit
def _described(desc, out, N: tl.constexpr):
    tile = desc.load([0, 0])
    tl.store(out + tl.arange(0, 32)[:, None] * N + tl.arange(0, N)[None, :], tile)


def test_code_of_descriptors_atomics_and_texts() -> None:
    half = np.zeros((64, 64), np.float16)
    desc = triton.TensorDescriptor.from_tensor(half, [32, 64])
    made = _described.compiled_for(HOPPER, desc, "*fp16:16", N=64, num_warps=4)
    assert "ld.global.nc.v4.b32" in made.asm["ptx"]  # the last stride is 1, which nobody has to say
    assert made.asm["ttir"].startswith("tile _described") and "amdgcn" not in made.asm
    text = _added.asm(HOPPER, "*bf16", "*bf16", N=64)
    assert "atom.global.gpu.relaxed.add.noftz.bf16" in text


def test_registers_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = _added.compiled_for(CDNA, "*fp32:16", "*fp32:16", N=64)
    read: list[Any] = []
    monkeypatch.setattr(tile_code, "resources_of", lambda m: read.append(m) or resources_of(m))
    found = [(made.n_regs, made.n_spills) for _ in range(3)]
    assert read == [made.module]
    assert found == [(int(re.search(r"\.vgpr_count:\s*(\d+)", made.asm["amdgcn"])[1]), 0)] * 3


@tl.jit
def _some_more(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    v = tl.load(x + at)
    tl.store(out + at, tl.where(v > 3, v + 5, v))


def test_sums_of_pairs_of_small_integers_are_done_one_by_one(tmp_path: Path) -> None:
    """Where one sum of a pair is used, ptxas 13.0 takes another addend for a constant 0."""
    text = _some_more.asm(HOPPER, "*i16:16", "*i16:16", N=1024)
    assert "add.s16x2" not in text and text.count("add.s16 %pair") == 8
    if shutil.which("ptxas"):
        (tmp_path / "k.ptx").write_text(text)
        subprocess.run(["ptxas", "-arch=sm_90a", "k.ptx", "-o", "k.o"], cwd=tmp_path, check=True)


@tl.jit
def _summed(a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, TURNS: tl.constexpr, KEPT: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    total, last = tl.zeros((M, N), tl.float32), tl.zeros((M, N), tl.float32)
    for turn in range(TURNS):
        x = tl.load(a + m[:, None] * K * TURNS + turn * K + k[None, :])
        made = tl.dot(x, tl.load(b + (turn * K + k)[:, None] * N + n[None, :]))
        total += made
        if KEPT:
            last += made * made
    tl.store(out + m[:, None] * N + n[None, :], total + last)


@pytest.mark.parametrize("kept", [False, True])
def test_products_begin_from_what_they_are_added_to(kept: bool) -> None:
    """Unless they are used elsewhere, too: small whole numbers, whose sums are exact."""
    sizes = {"M": 64, "N": 16, "K": 32, "TURNS": 2, "KEPT": kept}
    assert ("fn=add) : <64, 16, fp32>" in _summed.ir("*fp16", "*fp16", "*fp32", **sizes).split("yield")[0]) == kept
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((64, 64), (64, 16)))
    parts = [a[:, k : k + 32].astype(float) @ b[k : k + 32] for k in (0, 32)]
    want = sum(parts) + kept * sum(p * p for p in parts)
    here, there = np.zeros((2, 64, 16), np.float32)
    _summed[(1,)](a, b, here, **sizes)
    interpreted(_summed, HOPPER, (1, 1), a, b, there, **sizes, num_warps=4)
    np.testing.assert_array_equal(here, want)
    np.testing.assert_array_equal(there, want)


def test_tritons_knobs_stand_and_change_nothing() -> None:
    with triton.knobs.runtime.scope():
        triton.knobs.runtime.override_arch = "sm80"
    assert triton.knobs.runtime.override_arch is None
    assert triton.knobs.language.copy().reset().default_fp_fusion is True


@tl.jit
def _casts(x, out, N: tl.constexpr, TO: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at).to(TO))


@pytest.mark.parametrize("on", ["cpu", "interpreter", "gfx942"])
@pytest.mark.parametrize(
    ("to", "kind", "largest"), [(tl.float8e4nv, "float8_e4m3fn", 448), (tl.float8e5, "float8_e5m2", 57344)]
)
def test_casts_to_floats_of_8_bits_saturate(
    on: str, to: Any, kind: str, largest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.array([1.0, -465.0, 6e4, -6e4, np.inf, -np.inf, np.nan, -0.5], np.float32)
    out = np.zeros(8, np.dtype(getattr(ml_dtypes, kind)))
    if on == "interpreter":
        monkeypatch.setenv("TEC_INTERPRET", "1")
    with tl.on_device(tec.rocm_emu("gfx942")) if on == "gfx942" else contextlib.nullcontext():
        _casts[(1,)](x, out, N=8, TO=to)
    want = np.clip(x, -largest, largest).astype(out.dtype)
    np.testing.assert_array_equal(out.astype(np.float32), want.astype(np.float32))


@pytest.mark.parametrize("on", ["cpu", "interpreter", "gfx942"])
def test_casts_to_narrow_integers_keep_the_low_bits(on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Triton's code for AMD's chips, on which kernels of microscaling formats rely: they add a bias to a negative exponent in uint8."""
    x = np.array([-1, -127, -2.5, 3.7, 255, 300, 70000, -5e9], np.float32)
    if on == "interpreter":
        monkeypatch.setenv("TEC_INTERPRET", "1")
    wants = {
        tl.uint8: [255, 129, 254, 3, 255, 44, 112, 0], tl.int8: [-1, -127, -2, 3, -1, 44, 112, 0],
        tl.uint16: [0, 0, 0, 3, 255, 300, 4464, 0],
    }  # fmt: skip
    for to, want in wants.items():
        out = np.zeros(8, str(to))
        with tl.on_device(tec.rocm_emu("gfx942")) if on == "gfx942" else contextlib.nullcontext():
            _casts[(1,)](x, out, N=8, TO=to)
        np.testing.assert_array_equal(out, want)


@tl.jit
def _sized(out, sizes, step):
    at = tl.zeros(sizes, tl.int32)
    for k in tl.static_range(len(sizes)):
        along = tl.arange(0, sizes[k])
        for j in tl.static_range(len(sizes)):
            if j != k:
                along = tl.expand_dims(along, j)
        at += along * step[k]
    tl.store(out + at, at)


def test_constants_in_a_tuple_stay_constants() -> None:
    out = np.full(32, -1, np.int32)
    _sized[(1,)](out, (tl.constexpr(4), tl.constexpr(8)), (8, 1))
    np.testing.assert_array_equal(out, np.arange(32))


def test_an_integer_of_no_type_is_an_overflow() -> None:
    with pytest.raises(OverflowError, match="which no integer type holds"):
        _sized[(1,)](np.zeros(1, np.int32), (tl.constexpr(1),), (-(2**63) - 1,))


@tl.jit
def _tile_of(out, taken, M, BM: tl.constexpr, BN: tl.constexpr):
    taken.store([tl.program_id(0) * BM - 2, 0], taken.load([M - BM, 0]) + 1.0)
    tl.store(out, taken.strides[0])


@pytest.mark.parametrize("on", ["cpu", "gfx942"])
def test_a_descriptor_leaves_out_what_is_outside(on: str) -> None:
    """Rows below 0 and past the end, by one comparison of unsigned numbers."""
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    want, out = x.copy(), np.zeros(1, np.int64)
    want[:2] = x[4:] + 1
    taken = triton.tools.tensor_descriptor.TensorDescriptor(x, [6, 4], [4, 1], [4, 4])
    with tl.on_device(tec.rocm_emu("gfx942")) if on == "gfx942" else contextlib.nullcontext():
        _tile_of[(1,)](out, taken, 6, BM=4, BN=4)
    np.testing.assert_array_equal(x, want)
    assert out[0] == 4


@tl.jit
def _window(x, out, first, n, B: tl.constexpr, BY: tl.constexpr):
    if BY == "block":
        p = tl.make_block_ptr(x + first, (n - first,), (1,), (0,), (B,), (0,))
        v = tl.load(p, boundary_check=(0,), padding_option="zero")
    else:
        v = tl.make_tensor_descriptor(x + first, (n - first,), (1,), (B,)).load([0])
    tl.store(out + tl.arange(0, B), v)


@pytest.mark.parametrize("by", ["block", "descriptor"])
@pytest.mark.parametrize("first, left", [(2, 3), (5, 0), (7, 0)])
def test_what_begins_behind_an_arrays_end_has_no_elements(by: str, first: int, left: int) -> None:
    """Its size is negative, which as an unsigned number would be huge."""
    x, out = np.arange(1, 17, dtype=np.float32), np.full(8, -1, np.float32)
    _window[(1,)](x, out, first, 5, B=8, BY=by)
    np.testing.assert_array_equal(out, [*x[first : first + left], *[0] * (8 - left)])


def test_a_long_stride_makes_a_descriptor_wide() -> None:
    """An array of one row may have any stride, which is an argument of 64 bits then."""
    assert is_wide((1, 8), (2**31, 1)) and is_wide((2**16, 2**16), (2**16, 1)) and not is_wide((8, 8), (8, 1))


@tl.jit
def _batched(a, b, out, B: tl.constexpr, N: tl.constexpr):
    i, j, k = tl.arange(0, B)[:, None, None], tl.arange(0, N)[None, :, None], tl.arange(0, N)[None, None, :]
    at = i * N * N + j * N + k
    tl.store(out + at, tl.dot(tl.load(a + at), tl.load(b + at), input_precision="ieee"))


def test_operands_that_fill_shared_memory_have_rows_without_padding() -> None:
    made = _batched.compiled_for(CDNA, "*fp32", "*fp32", "*fp32", B=8, N=32)
    assert made.lowered.shared_bytes == 2 * 8 * 32 * 32 * 4 == made.target.lds_bytes


@triton.jit(do_not_specialize=["n"])
def _early(x, out, n, KIND: tl.constexpr, BLOCK: tl.constexpr = 64):
    tl.extra.cuda.gdc_wait()
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0)
    tl.extra.cuda.gdc_launch_dependents()
    tl.store(out + at, tl.standard.bitonic_merge(v).to(tl.core.get_int_dtype(KIND, True), bitcast=True))


def test_what_libraries_ask_of_a_kernel_and_of_the_language() -> None:
    """Waits for the kernel ahead, integer types by their bits, parameters one by one, the text to paste elsewhere, and a launcher of their own."""
    x, out = np.concatenate([np.arange(32), np.arange(32)[::-1]]).astype(np.float32), np.zeros(64, np.int32)

    class Library(triton.KernelInterface):
        def run(self, *args: Any, grid: Any = None, warmup: bool = False, **named: Any) -> Any:
            return _early.run(*args, grid=grid, **named)

    Library()[(1,)](x, out, 64, KIND=32)
    np.testing.assert_array_equal(out.view(np.float32), np.sort(x))
    told = [(p.num, p.name, p.is_constexpr, p.do_not_specialize) for p in _early.params]
    assert told[2:4] == [(2, "n", False, True), (3, "KIND", True, False)]
    assert _early.params[4].default == 64 and list(_early.signature.parameters) == _early.arg_names
    assert _early.src.startswith("def _early(") and _early.cache_key != _ends_early.cache_key
    tuned = triton.autotune([triton.Config({"KIND": 32})], key=["n"])(_early)
    assert tuned.base_fn is _early.fn and isinstance(tuned, triton.KernelInterface)
    assert tl.uint8.is_uint8() and not tl.int16.is_int8() and not hasattr(tl.int8, "is_int7")


def test_heuristics_see_what_those_before_them_gave() -> None:
    seen = triton.heuristics({"KIND": lambda args: 32, "BLOCK": lambda args: 2 * args["KIND"]})(_early)
    x, out = np.sort(np.random.default_rng(0).random(64, np.float32)), np.zeros(64, np.int32)
    seen[(1,)](x, out, 64)
    np.testing.assert_array_equal(out.view(np.float32), x)


@tl.jit
def _said_constant(x, out, n, BLOCK: tl.constexpr):
    step: tl.constexpr = BLOCK * n
    twice: tl.constexpr = BLOCK * 2
    tl.store(out + tl.arange(0, twice), tl.load(x + step + tl.arange(0, twice)))


def test_a_constant_that_a_number_of_the_launch_gives_is_a_number() -> None:
    x, out = np.arange(64, dtype=np.float32), np.zeros(16, np.float32)
    _said_constant[(1,)](x, out, 3, BLOCK=8)
    np.testing.assert_array_equal(out, x[24:40])
