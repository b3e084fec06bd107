"""Words that the drawn programs do not use: custom combiners, histograms, atomics of tiles, block pointers, descriptors, tuples; and what chooses constants."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import tec
import tec.tile as tl
from tec.jit import mxfp
from tec.jit.tile_tuning import Autotuner
from tec.tile import triton

from .devices import On

F32 = np.float32


@tl.jit
def _merge(mean_a, count_a, mean_b, count_b):
    count = count_a + count_b
    return (mean_a * count_a + mean_b * count_b) / count, count


@tl.jit
def _later(a, b):
    return a * 0 + b


@tl.jit
def over_axes(x, out, counts, N: tl.constexpr):
    at = tl.arange(0, N)
    v = tl.load(x + at)
    mean, _ = tl.reduce((v, tl.full((N,), 1.0, tl.float32)), 0, _merge)
    tl.store(out + at, tl.associative_scan(v, 0, _later) + mean)
    first, second = tl.split(tl.reshape(v, N // 2, 2))
    tl.store(out + N + tl.arange(0, N // 2), first - second)
    bins = (v * 8).to(tl.int32)
    tl.store(counts + tl.arange(0, 8), tl.histogram(bins, 8))
    tl.atomic_add(counts + 8 + tl.arange(0, N) % 4, tl.full((N,), 1, tl.int32), mask=v < 0.5)


def test_reductions_scans_histograms_and_atomics(on: On) -> None:
    n = 128
    x = np.random.default_rng(0).random(n, F32)
    out, counts = on.zeros(2 * n), on.zeros(12, dtype="int32")
    over_axes[(1,)](on.array(x), out, counts, N=n)
    got, c = on.numpy(out), on.numpy(counts)
    np.testing.assert_allclose(got[:n], x + x.mean(), rtol=1e-5)
    np.testing.assert_array_equal(got[n : n + n // 2], x[::2] - x[1::2])
    np.testing.assert_array_equal(c[:8], np.bincount((x * 8).astype(int), minlength=8))
    np.testing.assert_array_equal(c[8:], [(x[k::4] < 0.5).sum() for k in range(4)])


@tl.jit
def transpose(x, out, M, N, B: tl.constexpr):
    """By a block pointer in, and a descriptor out."""
    i, j = tl.program_id(0), tl.program_id(1)
    p = tl.make_block_ptr(x, (M, N), (N, 1), (i * B, 0), (B, B), (1, 0))
    p = tl.advance(p, (0, j * B))
    tile = tl.load(p, boundary_check=(0, 1), padding_option="zero")
    desc = tl.make_tensor_descriptor(out, (N, M), (M, 1), (B, B))
    desc.store([j * B, i * B], tile.T)


def test_block_pointers_and_descriptors(on: On) -> None:
    x = np.random.default_rng(1).random((50, 37), F32)
    out = on.zeros(37, 50)
    transpose[(4, 3)](on.array(x), out, 50, 37, B=16)
    np.testing.assert_array_equal(on.numpy(out), x.T)


@tl.jit
def scaled(x, out, n, factor, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at) if EVEN else tl.load(x + at, mask=at < n)
    tl.store(out + at, v * factor, mask=at < n)


def test_constants_are_chosen_at_launch() -> None:
    tried = []
    configs = [tl.Config({"BLOCK": b}, pre_hook=lambda given: tried.append(given["BLOCK"])) for b in (2**21, 64, 256)]
    tuned = tl.autotune(configs, key=["n"])(
        tl.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0})(scaled)
    )
    x = np.arange(1000, dtype=F32)
    out = np.zeros_like(x)
    tuned[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, out, 1000, 3.0)
    np.testing.assert_array_equal(out, 3 * x)
    assert tuned.best_config.kwargs["BLOCK"] in (64, 256)  # 2**21 elements are no tile
    measured = len(tried)
    tuned[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, out, 1000, 2.0)
    assert len(tried) == measured + 1 and (out == 2 * x).all()


def test_host_arrays_on_another_device() -> None:
    x = np.arange(100, dtype=F32)
    out = np.zeros_like(x)
    with tl.on_device(tec.rocm_emu("gfx1100")):
        scaled[(2,)](x, out, 100, 2.0, EVEN=False, BLOCK=64)
    np.testing.assert_array_equal(out, 2 * x)


PROGRAM = """
from tec.jit import mxfp
from tec.tile import triton
triton.install()
import numpy as np
import triton, triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def double(desc, out, N: tl.constexpr):
    tl.store(out + tl.arange(0, N), tl.reshape(desc.load([0, 0]), N) * 2)

x, out = np.arange(64, dtype=np.float32).reshape(8, 8), np.zeros(64, np.float32)
double[(1,)](TensorDescriptor.from_tensor(x, [8, 8]), out, N=64)
assert (out == 2 * x.ravel()).all()
print("right", triton.next_power_of_2(33))
"""


def test_a_program_for_triton(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, "utf-8")
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout == "right 64\n", done.stderr


def test_numbers_in_microscaling_formats() -> None:
    """Each code is its own nearest; ties go to the even code; scales are the nearest power of two; packing keeps all."""
    codes = np.arange(16, dtype=np.uint8)
    assert (mxfp.e2m1_codes(mxfp.E2M1[codes]) == codes).all()
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 99, -5], F32)
    assert mxfp.E2M1[mxfp.e2m1_codes(ties)].tolist() == [0, 1, 1, 2, 2, 4, 4, 6, -4]
    powers = mxfp.e8m0_values(mxfp.e8m0_codes(np.array([0.9, 1.0, 3.0, 2.0**-130, 0.0], F32)))
    np.testing.assert_array_equal(powers, np.array([1, 1, 4, 2.0**-127, np.nan], F32))
    x = np.random.default_rng(0).integers(0, 16, (3, 5), dtype=np.uint8)
    for dim in (0, 1):
        assert (mxfp.unpacked(mxfp.packed(x, dim), dim, x.shape[dim]) == x).all()


@tl.jit
def scaled_product(a, a_scale, b, b_scale, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    half, blocks = tl.arange(0, K // 2), tl.arange(0, K // 32)
    x = tl.load(a + m[:, None] * (K // 2) + half[None, :])
    y = tl.load(b + k[:, None] * N + n[None, :])
    sx = tl.load(a_scale + m[:, None] * (K // 32) + blocks[None, :])
    sy = tl.load(b_scale + n[:, None] * (K // 32) + blocks[None, :])
    tl.store(out + m[:, None] * N + n[None, :], tl.dot_scaled(x, sx, "e2m1", y, sy, "e5m2"))


def test_products_of_microscaling_formats(on: On) -> None:
    """E2M1 by E5M2 with scales of powers of two, exact in bfloat16."""
    m, n, k = 32, 16, 64
    rng = np.random.default_rng(6)
    a, b = rng.integers(0, 256, (m, k // 2), dtype=np.uint8), rng.integers(0, 256, (k, n), dtype=np.uint8) & 0xBF
    sa, sb = (rng.integers(120, 130, (rows, k // 32), dtype=np.uint8) for rows in (m, n))
    out = on.zeros(m, n)
    scaled_product[(1,)](*map(on.array, (a, sa, b, sb)), out, M=m, N=n, K=k)
    four = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    x = np.stack([four[a & 15], four[a >> 4]], -1).reshape(m, k) * np.repeat(2.0 ** (sa.astype(float) - 127), 32, 1)
    eight = (b.astype(np.uint16) << 8).view(np.float16).astype(float)  # E5M2 is the upper half of a float16
    y = eight * np.repeat(2.0 ** (sb.astype(float) - 127), 32, 1).T
    np.testing.assert_allclose(on.numpy(out), x @ y, rtol=1e-5, atol=1e-5)


@tl.jit
def nvfp4(a, a_scale, b, b_scale, out, M: tl.constexpr, K: tl.constexpr):
    m, half, groups = tl.arange(0, M), tl.arange(0, K // 2), tl.arange(0, K // 16)
    x = tl.load(a + m[:, None] * (K // 2) + half[None, :])
    y = tl.load(b + m[:, None] * (K // 2) + half[None, :])
    sx = tl.load(a_scale + m[:, None] * (K // 16) + groups[None, :]).to(tl.float8e4nv, bitcast=True)
    sy = tl.load(b_scale + m[:, None] * (K // 16) + groups[None, :]).to(tl.float8e4nv, bitcast=True)
    tl.store(out + m[:, None] * M + m[None, :], tl.dot_scaled(x, sx, "e2m1", y.T, sy, "e2m1"))


def test_products_whose_scales_are_small_floats(on: On) -> None:
    """NVFP4: an E4M3 scale for each 16 elements, exact in bfloat16."""
    m, k = 32, 64
    rng = np.random.default_rng(8)
    a, b = rng.integers(0, 256, (2, m, k // 2), dtype=np.uint8)
    sa, sb = rng.integers(0x30, 0x48, (2, m, k // 16), dtype=np.uint8)  # exponents of -1 to 1
    out = on.zeros(m, m)
    nvfp4[(1,)](*map(on.array, (a, sa, b, sb)), out, M=m, K=k)
    scales = [(1 + (s & 7) / 8) * 2.0 ** ((s >> 3) - 7.0) for s in (sa, sb)]
    x, y = (mxfp.E2M1[mxfp.unpacked(v, 1, k)] * np.repeat(s, 16, 1) for v, s in zip((a, b), scales))
    np.testing.assert_allclose(on.numpy(out), x @ y.T, rtol=1e-5, atol=1e-5)


@tl.jit
def thirds(x, out):
    at = tl.arange(0, 16)
    tl.store(out + at, tl.load(x + at) / 3)


def test_unsigned_numbers_divided_by_a_constant() -> None:
    x, out = np.arange(16, dtype=np.uint8), np.zeros(16, F32)
    thirds[(1,)](x, out)
    np.testing.assert_allclose(out, x / 3, rtol=1e-6)


@tl.jit
def pointers_that_change(a, b, n, out, BLOCK: tl.constexpr):
    p = a if n > 2 else b
    q, r = a + tl.arange(0, BLOCK), b + tl.arange(0, BLOCK)
    i = 0
    while i < n:
        q, r = r, q
        i += 1
    s, t = a, b
    for _ in range(n):
        s, t = t, s
    tl.store(out + tl.arange(0, BLOCK), tl.load(q) * 2)
    tl.store(out + BLOCK, tl.load(p + 1))
    tl.store(out + BLOCK + 1, tl.load(t))


@pytest.mark.parametrize("n", [2, 3])
def test_pointers_into_one_of_two_arrays(on: On, n: int) -> None:
    """Which one a loop or a branch leaves a pointer in is known at run time alone."""
    a, b = np.arange(4, dtype=F32), np.arange(10, 14, dtype=F32)
    out = on.zeros(6)
    pointers_that_change[(1,)](on.array(a), on.array(b), n, out, BLOCK=4)
    q, p, t = (b, a, a) if n == 3 else (a, b, b)
    np.testing.assert_array_equal(on.numpy(out), [*(q * 2), p[1], t[0]])


@tl.jit
def one_of_four(a, b, c, d, out, n, BLOCK: tl.constexpr):
    t = tl.program_id(0)
    p = tl.where(t == 0, a, b)
    p = tl.where(t == 2, c, p)
    p = tl.where(t == 3, d, p)
    i = tl.arange(0, BLOCK)
    tl.store(out + t * n + i, tl.load(p + i.to(tl.int64), mask=i < n), mask=i < n)


def test_a_masked_load_by_a_pointer_into_one_of_four_arrays(on: On) -> None:
    xs = [np.arange(5, dtype=F32) + 10 * k for k in range(4)]
    out = on.zeros(20)
    one_of_four[(4,)](*map(on.array, xs), out, 5, BLOCK=8)
    np.testing.assert_array_equal(on.numpy(out), np.concatenate(xs))


@tl.jit
def addresses(a, b, out, BLOCK: tl.constexpr):
    first = a.to(tl.int64)
    tl.store(out, (a + 3).to(tl.uint64).to(tl.int64) - first)
    tl.store(out + 1, tl.sum((a + tl.arange(0, BLOCK)).to(tl.int64)) - BLOCK * first)
    tl.store(out + 2, (a == a).to(tl.int64) + 2 * (a != b).to(tl.int64) + 4 * (a < a + 1).to(tl.int64))
    if a:  # an array that is there
        tl.store(out + 3, 7)
    if not b:
        tl.store(out + 3, 8)
    again = (first + 8).to(tl.pointer_type(tl.float32))
    tl.store(out + 4, tl.load(again).to(tl.int64))


def test_pointers_as_numbers(on: On) -> None:
    """An address is that of the memory, not an element's number in its array."""
    a, b, out = on.array(np.arange(8, dtype=F32)), on.zeros(8), on.zeros(5, dtype="int64")
    addresses[(1,)](a, b, out, BLOCK=4)
    assert on.numpy(out).tolist() == [12, 24, 7, 7, 2]


def test_what_names_memory_by_an_address_alone(on: On) -> None:
    """As Triton takes it: `data_ptr`, `dtype` and where the memory is; what lies before the address is reached too."""

    if on.name == "interpreter":
        pytest.skip("NumPy knows arrays, no addresses")

    class Storage:
        def __init__(self, x: np.ndarray):
            self.x = x

        def nbytes(self) -> int:
            return self.x.nbytes

        def data_ptr(self) -> int:
            return int(self.x.ctypes.data)

    class Last:
        """An array from its last element on, for a kernel that goes backwards."""

        dtype, device = "torch.float32", "cpu"

        def __init__(self, x: np.ndarray):
            self.x = x

        def data_ptr(self) -> int:
            return int(self.x.ctypes.data) + self.x.nbytes - 4

        def untyped_storage(self) -> Storage:
            return Storage(self.x)

    x, out = np.arange(8, dtype=F32), np.zeros(8, F32)
    with tec.tile.on_device(on.device) if on.device is not None else nullcontext():
        backwards[(1,)](Last(x), Last(out), BLOCK=8)
    np.testing.assert_array_equal(out, x * 2)


@tl.jit
def backwards(x, out, BLOCK: tl.constexpr):
    i = -tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) * 2)


@tl.jit
def doubled(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) * 2)


def test_tuners_that_others_derive_from_ours() -> None:
    """What Triton's own has for subclasses: arguments of the launch, configurations that are left, a time of one, hooks."""

    class Quickest(Autotuner):
        def run(self, *args, **named):
            self.nargs = dict(zip(self.arg_names, args))
            left = self.prune_configs(named)
            times = [self._bench(*args, config=c, **named) for c in left]
            self.pre_hook({**self.nargs, **named}, reset_only=True)
            best = left[min(range(len(left)), key=lambda k: times[k])]
            self.seen = [c.kwargs["BLOCK"] for c in left]
            return self.fn.run(*args, **named, **best.all_kwargs())

    def model(x, out, BLOCK, **_):
        return -BLOCK  # the larger, the better

    configs = [tec.tile.Config({"BLOCK": n}) for n in (2, 8, 4)]
    tuner = Quickest(
        doubled, ["x", "out", "BLOCK"], configs, [], ["out"], prune_configs_by={"perf_model": model, "top_k": 2}
    )
    x, out = np.arange(8, dtype=F32), np.ones(8, F32)
    tuner[(1,)](x, out)
    assert tuner.seen == [8, 4] and (out[:4] == 2 * x[:4]).all() and out[4] in (0, 8)


@tl.builtin
def _columns(x, row, n: int, _semantic=None):
    return tl.tuple([tl.load(x + row * n + k) for k in range(n)])


@tl.jit
def _of_a_builtin(x, out, N: tl.constexpr):
    row = tl.arange(0, 4)
    a, b, c = _columns(x, row, N)
    tl.store(out + row, a + b * c)
    tl.static_assert(a.type.get_block_shapes() == (4,))


def test_a_builtin_is_python_that_uses_the_words() -> None:
    x, out = np.arange(12, dtype=F32), np.zeros(4, F32)
    _of_a_builtin[(1,)](x, out, N=3)
    np.testing.assert_array_equal(out, x[::3] + x[1::3] * x[2::3])


@tl.jit
def _with_a_hole(x, out):
    tl.store(out, HOLE)  # noqa: F821


def test_a_kernels_text_can_be_replaced() -> None:
    kernel = triton.JITFunction(_with_a_hole)
    kernel.src = kernel.src.replace("HOLE", "tl.load(x) + 1")
    x, out = np.full(1, 4, F32), np.zeros(1, F32)
    kernel[(1,)](x, out)
    assert out[0] == 5


@tl.jit
def _magnitudes(x, out, T: tl.constexpr):
    at = tl.arange(0, 256)
    tl.store(out + at, tl.abs(tl.load(x + at).to(T, bitcast=True)).to(tl.uint8, bitcast=True))


@pytest.mark.parametrize("t", [tl.float8e4nv, tl.float8e5, tl.float8e4b8, tl.float8e5b16], ids=str)
def test_magnitudes_of_8_bit_floats(on: On, t: tl.dtype) -> None:
    x, out = np.arange(256, dtype="uint8"), on.zeros(256, dtype="uint8")
    _magnitudes[(1,)](on.array(x), out, T=t)
    want = x & 127
    if t in (tl.float8e4b8, tl.float8e5b16):
        want[128] = 128  # NaN
    finite = want < {tl.float8e4nv: 127, tl.float8e5: 124}.get(t, 256)
    np.testing.assert_array_equal(on.numpy(out)[finite], want[finite])


def test_an_array_of_a_type_that_tiles_lack() -> None:
    x = np.zeros(4, "uint8")
    with pytest.raises(tec.KernelError, match="the argument x holds float8_e4b15, which tiles do not have"):
        _magnitudes[(1,)](triton.reinterpret(x, tl.float8e4b15), x, T=tl.float8e4nv)
