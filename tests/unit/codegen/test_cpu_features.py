"""Which instructions code for a CPU may have: LLVM says it, and what nobody can be asked for is left out."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from tec.codegen import llvm_util
from tec.codegen.cpu.build import UNUSED, machine_of
from tec.codegen.cpu.features import CHOSEN, required_features
from tec.errors import TargetError
from tec.llvmworker import client
from tec.native.features import required
from tec.target import Target

# The x86-64 psABI, section 3.1.1, without what no code here uses (CMPXCHG16B, LAHF).
V2 = {"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt"}
V3 = V2 | {"movbe", "lzcnt", "avx", "fma", "f16c", "bmi", "bmi2", "avx2"}
V4 = V3 | {"avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl"}


@pytest.mark.parametrize(
    ("words", "features"),
    [
        ("-mcpu=x86-64", set()),
        ("-mcpu=x86-64-v2", V2),
        ("-mcpu=x86-64-v3", V3),
        ("-mcpu=x86-64-v4", V4),
        ("-mcpu=x86-64-v4 -mattr=-avx512f", V3),
        ("-mcpu=x86-64-v2 -mattr=+avx2", V2 | {"avx", "avx2"}),
        ("-mcpu=cascadelake", V4 | {"avx512vnni"}),
        ("-mtriple=riscv64-linux-gnu", set()),
    ],
)
def test_levels(words: str, features: set[str]) -> None:
    assert required_features(Target(f"llvm {words}")) == tuple(sorted(features))


@pytest.mark.parametrize("cpu", ["znver3", "znver5", "bdver4", "sierraforest", "diamondrapids"])
def test_what_is_left_out(cpu: str) -> None:
    assert not set(required_features(Target(f"llvm -mcpu={cpu}"))) & set(UNUSED)


def test_no_shuffle_of_amd_alone() -> None:
    """Code of a Zen for a quantized convolution had it, and ended a process on an Intel host."""
    text = """define <16 x i8> @f(<16 x i8> %a, <16 x i8> %b) {
  %c = shufflevector <16 x i8> %a, <16 x i8> %b, <16 x i32> <i32 0, i32 1, i32 16, i32 17, i32 18, i32 5, i32 6, i32 7, i32 poison, i32 poison, i32 poison, i32 poison, i32 poison, i32 poison, i32 poison, i32 poison>
  ret <16 x i8> %c
}
"""
    for words in ("-mcpu=znver3", "-mcpu=znver3 -mattr=+sse4a"):
        asm = llvm_util.compile_text(text, machine_of(Target(f"llvm {words}")), "asm")
        assert ("insertq" in asm) == ("+sse4a" in words), asm


def test_libraries_can_ask_for_all_but_what_is_refused() -> None:
    asked = required({"cpu_features": [f for f in CHOSEN["x86_64"] if not f.startswith("avx10")]}, "llvm")
    assert set(asked.names) == {f for f in CHOSEN["x86_64"] if not f.startswith("avx10")}
    with pytest.raises(TargetError, match=r"cannot ask a processor for avx10.2.*\n.*-mattr=-avx10.2"):
        required({"cpu_features": ["avx", "avx10.2"]}, "llvm -mattr=+avx10.2")
    assert required({}, "rocm -mcpu=gfx942").names == required({"cpu_features": ["sve", "bf16"]}, "llvm").names == ()


@pytest.mark.parametrize("cpu", ["znver4", "sapphirerapids", "bdver4"])
def test_the_software_gpu_has_code_that_this_host_runs(cpu: str) -> None:
    from llvmlite import binding

    from tec.emulator.translate.jit import get_jit

    there = binding.get_host_cpu_features()
    jit = get_jit(cpu)
    machine = llvm_util.LLVMMachine(binding.get_default_triple(), cpu, jit.features)
    job = {"do": "features", "machine": astuple(machine), "of": tuple(there)}
    assert all(there[f] for f in client.submit(job, cpu).result()["has"])
