"""HIP kernels that clang compiles."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tec

from .conftest import CHECKS

F32, I32, U32, F64 = np.float32, np.int32, np.uint32, np.float64
CLANG = next((c for c in ("clang-19", "clang-20", "clang-21", "clang") if shutil.which(c)), None)


def has_linker() -> bool:
    return bool(shutil.which("ld.lld") or shutil.which("ld.lld-19"))


pytestmark = [pytest.mark.slow, pytest.mark.skipif(CLANG is None or not has_linker(), reason="no clang with lld")]


def flags_of(chip: str) -> list[str]:
    """clang's, for a code object of HIP alone."""
    return ["-x", "hip", f"--offload-arch={chip}", "--offload-device-only", "--no-gpu-bundle-output", "-nogpuinc"]


def build(chip: str, name: str, folder: Path) -> Path:
    """The code object of a file of kernels that lies here."""
    out = folder / f"{chip}.hsaco"
    if not out.exists():
        flags = [*flags_of(chip), "-nogpulib", "-O3", "-gline-tables-only"]
        source = str(Path(__file__).with_name(name))
        subprocess.run([str(CLANG), *flags, "-o", str(out), source], check=True, capture_output=True)
    return out


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("hip")
    return lambda chip: build(chip, "kernels.hip", folder)


@dataclass
class Case:
    """A launch: its blocks, arguments, and the results wanted by the argument's place."""

    blocks: int
    args: list[Any]
    want: dict[int, np.ndarray]
    lds: int = 0
    close: float = 0.0


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _ints(n: int, low: int = -100, high: int = 100, seed: int = 0) -> np.ndarray:
    return _rng(seed).integers(low, high, n).astype(I32)


def _floats(*shape: int, seed: int = 0) -> np.ndarray:
    return _rng(seed).standard_normal(shape).astype(F32)


CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


@case
def saxpy() -> Case:
    x, y = _floats(1000), _floats(1000, seed=1)
    return Case(4, [2.5, x, y, 1000], {2: F32(2.5) * x + y}, close=1e-6)


@case
def reverse() -> Case:
    x = _ints(512)
    return Case(2, [x, np.zeros_like(x)], {1: x.reshape(2, 256)[:, ::-1].ravel()})


@case
def transpose() -> Case:
    x = _floats(48, 48)
    return Case(9, [x, np.zeros_like(x), 48], {1: np.ascontiguousarray(x.T)})


@case
def gemm() -> Case:
    a, b = _floats(48, 48), _floats(48, 48, seed=1)
    return Case(9, [a, b, np.zeros_like(a), 48], {2: a @ b}, close=1e-4)


@case
def reduce() -> Case:
    x = _floats(3000)
    parts = [sum(x[i : i + 256].astype(F64).sum() for i in range(256 * b, 3000, 1024)) for b in range(4)]
    return Case(4, [x, np.zeros(4, F32), 3000], {1: np.array(parts, F32)}, close=1e-4)


@case
def shuffle_sum() -> Case:
    x = _ints(256)
    return Case(1, [x, np.zeros_like(x)], {1: np.repeat(x.reshape(-1, 32).sum(1), 32).astype(I32)})


@case
def scan() -> Case:
    x = _ints(512)
    return Case(2, [x, np.zeros_like(x)], {1: x.reshape(2, 256).cumsum(1).ravel().astype(I32)})


@case
def histogram() -> Case:
    x = _rng(3).integers(0, 256, 2000).astype(np.uint8)
    return Case(2, [x, np.zeros(256, U32), 2000], {1: np.bincount(x, minlength=256).astype(U32)})


@case
def last_block() -> Case:
    x = _ints(1024)
    return Case(4, [x, np.zeros(4, I32), np.zeros(1, U32), np.zeros(1, I32), 4], {3: np.array([x.sum()], I32)})


@case
def spin_lock() -> Case:
    v = 2
    for _ in range(5):
        v = v * 3 + 1
    return Case(5, [np.zeros(1, U32), np.array([2], I32)], {0: np.zeros(1, U32), 1: np.array([v], I32)})


@case
def stencil() -> Case:
    x = _floats(700)
    p = np.pad(x, 1)
    return Case(3, [x, np.zeros_like(x), 700], {1: F32(0.25) * p[:-2] + F32(0.5) * x + F32(0.25) * p[2:]}, close=1e-6)


@case
def bitonic() -> Case:
    x = _ints(512, -1000, 1000)
    return Case(2, [x], {0: np.sort(x.reshape(2, 256), axis=1).ravel()})


class Line(ctypes.Structure):
    _fields_ = [
        ("slope", ctypes.c_float),
        ("offset", ctypes.c_double),
        ("times", ctypes.c_int),
        ("step", ctypes.c_short),
    ]


@case
def by_struct() -> Case:
    i = np.arange(300)
    return Case(
        2, [Line(0.5, 10.25, 3, -2), np.zeros(300), 300], {1: (F32(0.5) * i.astype(F32) * 3).astype(F64) + 10.25 + 2}
    )


@case
def recursion() -> Case:
    n = _ints(100, 0, 11)
    fib = [0, 1]
    for _ in range(12):
        fib.append(fib[-1] + fib[-2])
    return Case(1, [n, np.zeros_like(n), 100], {1: np.array(fib, I32)[n]})


@case
def by_pointer() -> Case:
    a, b, w = _ints(200), _ints(200, seed=1), _ints(200, 0, 3, 2)
    return Case(1, [a, b, w, np.zeros_like(a), 200], {3: np.choose(w, [a + b, a * b, np.maximum(a, b)]).astype(I32)})


@case
def dot_double() -> Case:
    x, y = _rng(0).standard_normal(1000), _rng(1).standard_normal(1000)
    return Case(1, [x, y, np.zeros(1), 1000], {2: np.array([x @ y])}, close=1e-12)


@case
def halves() -> Case:
    x, y = _floats(300).astype(np.float16), _floats(300, seed=1).astype(np.float16)
    fused = (x.astype(F64) * y.astype(F64) + 0.5).astype(np.float16)
    return Case(2, [x, y, np.zeros_like(x), 300], {2: fused}, close=2e-3)


@case
def compact() -> Case:
    x = _ints(500, -50, 50)
    kept = np.sort(x[x > 0])
    return Case(
        2,
        [x, np.zeros_like(x), np.zeros(1, U32), 500],
        {1: np.sort(np.pad(kept, (0, 500 - len(kept)))), 2: np.array([len(kept)], U32)},
    )


@case
def dynamic() -> Case:
    x = _floats(2, 300)
    return Case(2, [x, np.zeros_like(x), 300], {1: x[:, ::-1] + x[:, :1]}, lds=1200)


@case
def divide() -> Case:
    a, b = (_rng(s).integers(-(2**40), 2**40, 200) for s in (0, 1))
    b[:50] = _rng(2).integers(1, 100, 50)
    q = np.array([int(abs(int(x)) // abs(int(y))) * (1 if (x < 0) == (y < 0) else -1) for x, y in zip(a, b)])
    return Case(1, [a, b, np.zeros_like(a), np.zeros_like(a), 200], {2: q, 3: a - q * b})


@case
def mandelbrot() -> Case:
    w, h = 40, 20
    out = []
    for p in range(w * h):
        cx = F32(-2) + F32(3) * F32(p % w) / F32(w)
        cy = F32(-1) + F32(2) * F32(p // w) / F32(h)
        x = y = F32(0)
        i = 0
        while i < 60 and x * x + y * y < 4:
            x, y = x * x - y * y + cx, 2 * x * y + cy
            i += 1
        out.append(i)
    return Case(4, [np.zeros(w * h, I32), w, h], {0: np.array(out, I32)}, close=3.0)


@case
def spmv() -> Case:
    rng = _rng(4)
    lengths = rng.integers(0, 12, 100)
    start = np.concatenate([[0], lengths.cumsum()]).astype(I32)
    column, value, x = rng.integers(0, 64, start[-1]).astype(I32), _floats(start[-1]), _floats(64, seed=1)
    want = np.array([(value[s:e] * x[column[s:e]]).sum() for s, e in itertools.pairwise(start)], F32)
    return Case(1, [start, column, value, x, np.zeros(100, F32), 100], {4: want}, close=1e-4)


@case
def crc32() -> Case:
    data = _rng(5).integers(0, 256, (90, 13)).astype(np.uint8)
    return Case(1, [data, np.zeros(90, U32), 13, 90], {1: np.array([zlib.crc32(r.tobytes()) for r in data], U32)})


@case
def cases() -> Case:
    op, x = _ints(256, 0, 7), np.abs(_floats(256)) + F32(0.1)
    table = [x * x, np.sqrt(x), 1 / x, np.floor(x) - x, 0 * x, -x, 0 * x]
    return Case(1, [op, x, np.zeros_like(x), 256], {2: np.choose(op, table).astype(F32)}, close=1e-6)


@case
def bodies() -> Case:
    x, y = _floats(512), _floats(512, seed=1)
    dx, dy = x[None, :] - x[:, None], y[None, :] - y[:, None]
    r2 = dx * dx + dy * dy + F32(0.01)
    return Case(
        2, [x, y, np.zeros_like(x), np.zeros_like(x), 512], {2: (dx / r2).sum(1), 3: (dy / r2).sum(1)}, close=2e-3
    )


@case
def spill() -> Case:
    x = _ints(200, -1000, 1000)
    out = []
    for v in x.tolist():
        a, k, total = [v * i for i in range(40)], v & 31, 0
        for _ in range(9):
            total += a[k]
            a[k] = -total
            k = (k * 5 + 3) & 31
        out.append(total)
    return Case(1, [x, np.zeros_like(x), 200], {1: np.array(out, np.int64).astype(I32)})


def held(name: str, c: Case, chip: str, code: Path, settle: Callable[[str, Case], None]) -> None:
    """A launch under all checks against what is wanted; `settle`: what depends on the order of waves in a form that does not."""
    kernel = tec.rocm_emu(chip, check=CHECKS).load(code)[name]
    sizes = (c.blocks, 256, c.lds) if c.lds else (c.blocks, 256)
    kernel[sizes](*c.args)
    settle(name, c)
    for at, want in c.want.items():
        got = c.args[at]
        if c.close:
            np.testing.assert_allclose(got, want, rtol=c.close, atol=c.close, err_msg=name)
        else:
            np.testing.assert_array_equal(got, want, err_msg=name)


def _settled(name: str, c: Case) -> None:
    if name == "compact":
        c.args[1].sort()


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("name", list(CASES))
def test_kernel(name: str, chip: str, built: Callable[[str], Path], counted: Callable[[str, str], None]) -> None:
    held(name, CASES[name](), chip, built(chip), _settled)
    counted("HIP", name)


DEVICE_LIBS = Path("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode")  # of Debian's rocm-device-libs
PRINTS = """
extern "C" __attribute__((device)) int printf(const char *, ...);
extern "C" __attribute__((global)) void prints(const int *in, const float *f, int n) {
  int i = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
  if (i < n) printf("i=%d f=%8.3f %s c=%c %lld %%\\n", in[i], (double)f[i], in[i] & 1 ? "odd" : "even", 'a' + i, (long long)in[i] << 33);
}
"""


@pytest.mark.skipif(not DEVICE_LIBS.exists(), reason="no rocm-device-libs")
@pytest.mark.parametrize("chip", ["gfx90a", "gfx1030"])
def test_printf(
    chip: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], counted: Callable[[str, str], None]
) -> None:
    """HIP's printf through ROCm's own device libraries, as clang lowers it."""
    (tmp_path / "prints.hip").write_text(PRINTS)
    flags = [*flags_of(chip), f"--rocm-device-lib-path={DEVICE_LIBS}"]
    subprocess.run(
        [str(CLANG), *flags, "-O2", "-o", "prints.hsaco", "prints.hip"], cwd=tmp_path, check=True, capture_output=True
    )
    x = np.arange(70, dtype=I32) - 2
    kernel = tec.rocm_emu(chip, check=CHECKS).load(tmp_path / "prints.hsaco")["prints"]
    kernel[2, 64](x, np.linspace(-1, 1, 70).astype(F32), 70)
    want = [
        f"i={v} f={f:8.3f} {'odd' if v & 1 else 'even'} c={chr((97 + i) & 255)} {v << 33} %"
        for i, (v, f) in enumerate(zip(x.tolist(), np.linspace(-1, 1, 70).astype(F32).tolist()))
    ]
    got = capfd.readouterr().out.split("\n")[:-1]
    assert got == want
    counted("HIP", "printf")
