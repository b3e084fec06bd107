"""Textures of HIP programs: the API's functions under a program in Python, and the functions of HIP's headers as clang compiles them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tec
from tec.emulator.hip import environment
from tests.thinned import thinned_rows

from . import image_reference as reference
from .harness import compile_ir

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="an ELF library")
HERE = Path(__file__).parent

KERNELS = """
define amdgpu_kernel void @sample(ptr addrspace(4) %t, ptr addrspace(1) %o) #0 {
  %l = call i32 @llvm.amdgcn.workitem.id.x()
  %r = load <8 x i32>, ptr addrspace(4) %t
  %sp = getelementptr i8, ptr addrspace(4) %t, i64 48
  %s = load <4 x i32>, ptr addrspace(4) %sp
  %f = uitofp i32 %l to float
  %x = fmul float %f, 2.5e-1
  %y = fmul float %f, 1.25e-1
  %v = call <4 x float> @llvm.amdgcn.image.sample.lz.2d.v4f32.f32(i32 15, float %x, float %y, <8 x i32> %r, <4 x i32> %s, i1 false, i32 0, i32 0)
  %p = getelementptr <4 x float>, ptr addrspace(1) %o, i32 %l
  store <4 x float> %v, ptr addrspace(1) %p
  ret void
}
define amdgpu_kernel void @copy(ptr addrspace(4) %t, ptr addrspace(4) %u) #0 {
  %l = call i32 @llvm.amdgcn.workitem.id.x()
  %x = urem i32 %l, 7
  %y = udiv i32 %l, 7
  %r = load <8 x i32>, ptr addrspace(4) %t
  %w = load <8 x i32>, ptr addrspace(4) %u
  %v = call <4 x float> @llvm.amdgcn.image.load.2d.v4f32.i32(i32 15, i32 %x, i32 %y, <8 x i32> %r, i32 0, i32 0)
  call void @llvm.amdgcn.image.store.2d.v4f32.i32(<4 x float> %v, i32 15, i32 %x, i32 %y, <8 x i32> %w, i32 0, i32 0)
  ret void
}
define amdgpu_kernel void @fetch(ptr addrspace(4) %t, ptr addrspace(1) %o) #0 {
  %l = call i32 @llvm.amdgcn.workitem.id.x()
  %r = load <4 x i32>, ptr addrspace(4) %t
  %v = call <4 x float> @llvm.amdgcn.struct.buffer.load.format.v4f32(<4 x i32> %r, i32 %l, i32 0, i32 0, i32 0)
  %p = getelementptr <4 x float>, ptr addrspace(1) %o, i32 %l
  store <4 x float> %v, ptr addrspace(1) %p
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
declare <4 x float> @llvm.amdgcn.image.sample.lz.2d.v4f32.f32(i32, float, float, <8 x i32>, <4 x i32>, i1, i32, i32)
declare <4 x float> @llvm.amdgcn.image.load.2d.v4f32.i32(i32, i32, i32, <8 x i32>, i32, i32)
declare void @llvm.amdgcn.image.store.2d.v4f32.i32(<4 x float>, i32, i32, i32, <8 x i32>, i32, i32)
declare <4 x float> @llvm.amdgcn.struct.buffer.load.format.v4f32(<4 x i32>, i32, i32, i32, i32)
attributes #0 = { "amdgpu-flat-work-group-size"="32,32" "amdgpu-no-implicitarg-ptr" }
"""


@thinned_rows(1, "chip", ["gfx1100", "gfx1200"])
def test_a_program_with_textures(chip: str, tmp_path: Path) -> None:
    asm, image = compile_ir(KERNELS, chip)
    (tmp_path / "k.hsaco").write_bytes(image)
    env = environment(chip, "race,init,wait")
    program = HERE / "texture_program.py"
    got = subprocess.run(
        [sys.executable, str(program), "k.hsaco"], cwd=tmp_path, capture_output=True, text=True, timeout=120, env=env
    )
    assert got.returncode == 0 and "textures are right" in got.stdout, got.stdout + got.stderr


def test_images_as_arguments() -> None:
    """`dev.image` where a kernel takes a texture object, from the machine code alone."""
    _, image = compile_ir(KERNELS, "gfx1100")
    device = tec.rocm_emu("gfx1100", check="all")
    kernels = device.load(image)
    data = np.random.default_rng(1).random((5, 7, 4)).astype(np.float32)
    out = np.zeros((32, 4), np.float32)
    kernels["sample"][1, 32](device.image(data, filter="linear", address="wrap", normalized=True), out)
    x, y = np.arange(32, dtype=np.float32) / 4, np.arange(32, dtype=np.float32) / 8
    np.testing.assert_allclose(out, reference.sample(data[None], [x, y], ("wrap",) * 3, True, True), atol=3e-7)
    target = device.image(np.zeros((5, 7, 4), np.float32))
    kernels["copy"][1, 32](device.image(data), target)
    assert (target.numpy().reshape(35, 4)[:32] == data.reshape(35, 4)[:32]).all()


def hip_headers() -> tuple[Path, Path] | None:
    """(folder with hip/hip_runtime.h, ROCm's device library ockl.bc), where both are; Triton's package has the headers."""
    found = importlib.util.find_spec("triton")
    roots = [Path(p) for p in os.environ.get("TEC_HIP_INCLUDE", "").split(os.pathsep) if p] + [
        Path("/opt/rocm/include"),
        Path("/usr/include"),
    ]
    if found is not None and found.origin:
        roots.append(Path(found.origin).parent / "backends/amd/include")
    include = next((r for r in roots if (r / "hip/hip_runtime.h").exists()), None)
    libraries = [*Path("/opt/rocm").glob("amdgcn/bitcode/ockl.bc"), *Path("/usr/lib").glob("*/amdgcn/bitcode/ockl.bc")]
    return (include, libraries[0]) if include is not None and libraries else None


def clang() -> str | None:
    return next((c for c in ("clang-22", "clang-21", "clang-20", "clang-19", "clang++") if shutil.which(c)), None)


@pytest.mark.slow
@pytest.mark.skipif(
    clang() is None or hip_headers() is None, reason="no clang, or none of HIP's headers and device libraries"
)
@pytest.mark.parametrize("chip", ["gfx90a", "gfx1030", "gfx1100", "gfx1200"])
def test_functions_of_hip(chip: str, tmp_path: Path) -> None:
    """Samples, gathers, surface reads and writes, as hipcc compiles them: `textures.hip`."""
    headers = hip_headers()
    assert headers is not None
    include, library = headers
    abi = library.with_name("oclc_abi_version_500.bc")
    version = 9010 if chip == "gfx90a" else int(chip[3:]) * 10  # Debian's library has none for newer chips
    command = [clang() or "", "-x", "hip", f"--offload-arch={chip}", "--offload-device-only", "-nogpuinc", "-nogpulib", "-isystem", str(include),
               "-D__CLANG_CUDA_COMPLEX_BUILTINS", "-include", str(include / "hip/hip_runtime.h"), "-D__HIP_PLATFORM_AMD__", f"-DISA={version}", "-O2",
               *(w for bc in (library, abi) for w in ("-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(bc)))]  # fmt: skip
    subprocess.run([*command, "-c", str(HERE / "textures.hip"), "-o", "t.o"], cwd=tmp_path, check=True, timeout=120)
    device = tec.rocm_emu(chip, check="all")
    kernels = device.load((tmp_path / "t.o").read_bytes())
    rng = np.random.default_rng(2)
    n = 64

    def run(name: str, *args: object, channels: int = 4) -> np.ndarray:
        out = np.zeros((n, channels), np.float32)
        kernels[name][1, n](*args, out)
        return out

    x, y, z = (rng.uniform(-1, 2, n).astype(np.float32) for _ in range(3))
    flat, deep = rng.random((6, 9, 4)).astype(np.float32), rng.random((4, 6, 9, 4)).astype(np.float32)
    how = {"filter": "linear", "address": "wrap", "normalized": True}
    modes = ("wrap",) * 3
    close = {"rtol": 0, "atol": 3e-7}
    np.testing.assert_allclose(
        run("one", device.image(flat[0], "1D", **how), x, y, z),
        reference.sample(flat[None, :1], [x], modes, True, True),
        **close,
    )
    np.testing.assert_allclose(
        run("two", device.image(flat, **how), x, y, z), reference.sample(flat[None], [x, y], modes, True, True), **close
    )
    np.testing.assert_allclose(
        run("three", device.image(deep, "3D", **how), x, y, z),
        reference.sample(deep, [x, y, z], modes, True, True),
        **close,
    )
    layer = rng.integers(0, 4, n).astype(np.float32)
    np.testing.assert_allclose(
        run("layers", device.image(deep, "2D_ARRAY", **how), x, y, layer),
        reference.sample(deep, [x, y], modes, True, True, layer=layer),
        **close,
    )
    # The header counts channels from 1 here.
    gathered = run("gather", device.image(flat, **how), x, y, z) if chip != "gfx90a" else None
    if gathered is not None:
        np.testing.assert_allclose(gathered, reference.gather(flat, x, y, "wrap", 1), **close)
    # Surfaces: read, add, write one element on.
    target = device.image(flat)
    kernels["surface"][1, 64](target)
    after = flat.copy()
    after[2, 1:] = flat[1, :-1] + 1
    assert (target.numpy() == after).all()
