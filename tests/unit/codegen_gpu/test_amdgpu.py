"""AMDGPU code: everything compiles on every chip, instructions are the ones meant, the assembly is the object's."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tec.codegen.amdgpu import AmdgpuEmitter, machine_of
from tec.codegen.device import build_kernels
from tec.errors import CodegenError
from tec.ir import BufferLoad, BufferStore, Call, Evaluate, Func, Var
from tec.ir import build as B
from tec.runtime.objects.codeobject import read_code_object
from tec.target import Target
from tests.thinned import thinned_rows

from . import kernels as K

CHIPS = [
    "gfx900",
    "gfx906",
    "gfx908",
    "gfx90a",
    "gfx942",
    "gfx950",
    "gfx1030",
    "gfx1100",
    "gfx1101",
    "gfx1151",
    "gfx1200",
    "gfx1201",
]
QUICK = {"gfx900", "gfx942", "gfx1100"}

SELECTED = [
    ("gfx942", "mma_mfma_float32_32x32x8_float16", r"v_mfma_f32_32x32x8_f16"),
    ("gfx942", "mma_mfma_int32_32x32x16_int8", r"v_mfma_i32_32x32x16_i8"),
    ("gfx942", "mma_mfma_float64_16x16x4_float64", r"v_mfma_f64_16x16x4_f64"),
    ("gfx942", "mma_mfma_float32_4x4x4x16b_bfloat16", r"v_mfma_f32_4x4x4_16b_bf16"),
    ("gfx1100", "mma_wmma_float32_16x16x16_bfloat16", r"v_wmma_f32_16x16x16_bf16"),
    ("gfx1100", "mma_wmma_int32_16x16x16_int8", r"v_wmma_i32_16x16x16_iu8 .*neg_lo:\[1,1,0\]"),
    ("gfx942", "dot4_int8", r"v_dot4c?_i32_i8"),
    ("gfx1100", "dot4_int8", r"v_dot4_i32_iu8 .*neg_lo:\[1,1,0\]"),
    ("gfx1100", "dot4_uint8", r"v_dot4_(u32_u8|i32_iu8)(?!.*neg_lo:\[1)"),
    ("gfx942", "dot2_float16", r"v_dot2c?_f32_f16"),
    ("gfx942", "shuffle_float32", r"quad_perm:\[1,0,3,2\]"),
    ("gfx942", "shuffle_float32", r"ds_swizzle_b32"),
    ("gfx1100", "shuffle_float32", r"row_xmask:8"),
    ("gfx1100", "shuffle_float32", r"v_permlanex16_b32"),
    ("gfx942", "vector_float32x4", r"global_load_dwordx4"),
    ("gfx942", "vector_float16x8", r"global_load_dwordx4"),
    ("gfx942", "vector_float32x4", r"global_load_dwordx4 v\[\d+:\d+\], v\d+, s\[\d+:\d+\]"),
    ("gfx1100", "vector_float64x2", r"global_load_b128"),
    ("gfx942", "atomic_int32_global", r"global_atomic_add "),
    ("gfx942", "atomic_float32_shared", r"ds_add_(rtn_)?f32"),
]
WIDE_K = "mma_mfma_float32_32x32x16_float16"


@cache
def compiled(target: str) -> dict[str, dict[str, Any]]:
    """Every kernel of kernels.py for a target, made in a child process: name -> facts, or error; with the assembly of those that are read here, and all PTX."""
    program = Path(__file__).with_name("kernels.py")
    done = subprocess.run(
        [sys.executable, str(program), target, *sorted({WIDE_K, *(kernel for _, kernel, _ in SELECTED)})],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    lines = [json.loads(x) for x in done.stdout.splitlines()]
    assert done.returncode == 0, f"LLVM ended the process at {lines[-1]}: {done.stderr[-500:]}"
    return {x["name"]: x for x in lines if "name" in x}


@thinned_rows(1, "chip", [pytest.param(c, marks=() if c in QUICK else pytest.mark.slow) for c in CHIPS])
def test_every_kernel_compiles(chip: str) -> None:
    done = compiled(f"rocm -mcpu={chip}")
    errors = {n: x["error"] for n, x in done.items() if "error" in x}
    assert not errors
    assert len(done) > 140
    for name, x in done.items():
        facts = x["kernels"][name]
        assert facts["vgpr_spills"] == 0 and facts["threads"][0] in (32, 64), name
        assert facts["wavefront_size"] == Target(f"rocm -mcpu={chip}").wavefront_size


def body(target: str, name: str) -> str:
    return str(compiled(target)[name]["asm"]).split(".section")[0]


@pytest.mark.parametrize(("chip", "kernel", "wanted"), SELECTED)
def test_instruction_selection(chip: str, kernel: str, wanted: str) -> None:
    assert re.search(wanted, body(f"rocm -mcpu={chip}", kernel))


def test_wide_k_runs_the_unit_once_a_part() -> None:
    assert len(re.findall("v_mfma_f32_32x32x8_f16", body("rocm -mcpu=gfx942", WIDE_K))) == 2


@pytest.mark.slow
@pytest.mark.parametrize("target", ["rocm -mcpu=gfx1100 -wavefrontsize=64", "rocm -mcpu=gfx1201 -wavefrontsize=64"])
def test_wave64_on_rdna(target: str) -> None:
    assert not [n for n, x in compiled(target).items() if "error" in x]
    assert "v_permlane64_b32" in body(target, "shuffle_float32")


# ---- what LLVM is told


def text_of(f: Func, target: str = "rocm -mcpu=gfx942") -> str:
    emitter = AmdgpuEmitter(Target(target))
    emitter.triple = "amdgcn-amd-amdhsa"
    return emitter.emit([f])


def test_kernel_declaration() -> None:
    text = text_of(K.guarded())
    head = next(line for line in text.splitlines() if line.startswith("define"))
    assert "amdgpu_kernel void @guarded(" in head
    assert re.search(r"ptr addrspace\(1\) noundef noalias readonly align 64 %a", head)
    assert not re.search(r"readonly[^,]*%c", head)
    assert "!reqd_work_group_size" in head
    assert '"amdgpu-flat-work-group-size"="64,64"' in text and '"amdgpu-no-implicitarg-ptr"' in text
    assert '"amdgpu-waves-per-eu"="2"' in text_of(K.guarded(), "rocm -mcpu=gfx942 -waves-per-eu=2")
    assert 'amdhsa_code_object_version", i32 500' in text


def test_no_hidden_arguments_and_natural_alignment() -> None:
    code = build_kernels([K.guarded()], Target("rocm -mcpu=gfx942"), "own")
    info = read_code_object(code.image).kernels["guarded"]
    assert not any(a.hidden for a in info.args)
    # two pointers, int32, bool as a byte, float16
    assert [(a.offset, a.size) for a in info.explicit_args] == [(0, 8), (8, 8), (16, 4), (20, 1), (22, 2)]
    assert info.required_workgroup_size == (64, 1, 1)
    assert code.kernels["guarded"]["kernarg_bytes"] == 24


def test_barrier_orders_shared_memory_only_where_asked() -> None:
    text = text_of(K.barriers())
    fences = [line for line in text.splitlines() if "fence" in line]
    assert sum("!mmra" in f for f in fences) == 2  # release and acquire of the shared one
    assert sum('syncscope("workgroup")' in f for f in fences) == 4
    assert sum('syncscope("wavefront")' in f for f in fences) == 1


def test_unsafe_atomics_are_the_users_choice() -> None:
    f = K.atomics("float32", "global")
    assert "amdgpu.no.fine.grained.memory" not in text_of(f)
    assert "amdgpu.no.fine.grained.memory" in text_of(f, "rocm -mcpu=gfx90a -mattr=+unsafe-fp-atomics")
    assert "unsafe" not in machine_of(Target("rocm -mcpu=gfx90a -mattr=+unsafe-fp-atomics")).features


@pytest.mark.parametrize("chip", ["gfx90a", "gfx1030", "gfx1100", "gfx1201"])
def test_whole_numbers_have_native_atomics(chip: str) -> None:
    """Not a loop of compare-and-swap, which chips without atomics over PCIe would get for all but additions."""
    code = build_kernels([K.atomics("int32", "global")], Target(f"rocm -mcpu={chip}"), "own")
    words = [
        re.sub(r"_s?(max|min)(_i32)?$|_(b|u)32$", r"_\1", i).rstrip("_")
        for i in re.findall(r"global_atomic_\w+", code.asm)
    ]
    assert sorted(words) == sorted(
        f"global_atomic_{w}" for w in ("add", "swap", "min", "max", "and", "or", "xor", "cmpswap")
    )


def test_wavefront_size_features() -> None:
    assert machine_of(Target("rocm -mcpu=gfx1100 -wavefrontsize=64")).features == "+wavefrontsize64,-wavefrontsize32"
    assert machine_of(Target("rocm -mcpu=gfx1100")).features == "+wavefrontsize32,-wavefrontsize64"
    assert machine_of(Target("rocm -mcpu=gfx942")).features == ""


# ---- addresses


def strided(n: Any, index: Any, block: int = 64) -> str:
    a, c = K.buf("a", "float32", n), K.buf("c", "float32")
    f = K.kernel("strided", [a, c], lambda i: BufferStore(c, BufferLoad(a, (index(i),)), (i,)), block)
    return build_kernels([f], Target("rocm -mcpu=gfx942"), "own").asm


def test_what_all_lanes_share_stays_scalar() -> None:
    """base + blockIdx part in scalar registers, threadIdx part as a 32-bit offset, also where the size is not known."""
    n = Var("n")
    assert re.search(r"global_load_dword v\d+, v\d+, s\[\d+:\d+\]", strided(n, lambda i: i))
    assert re.search(r"global_load_dword v\d+, v\d+, s\[\d+:\d+\] offset:64", strided(n, lambda i: i + 16))
    assert re.search(r"global_load_dword v\d+, v\d+, s\[\d+:\d+\]", strided(n, lambda i: i * 4096))


def test_offsets_beyond_32_bits_are_not_cut() -> None:
    asm = strided(Var("n", "int64"), lambda i: B.cast("int64", i) * (1 << 28))
    assert not re.search(r"global_load_dword v\d+, v\d+, s\[", asm)


# ---- mistakes


def one(value: Any, dtype: str = "float32") -> Func:
    c = K.buf("c", dtype)
    return K.kernel("bad", [c], lambda i: BufferStore(c, value, (i,)))


@pytest.mark.parametrize(
    ("f", "match"),
    [
        (lambda: one(Call("shuffle_xor", (B.const(1.0), B.const(1), B.const(128)), "float32")), "128 lanes"),
        (lambda: one(Call("shuffle_xor", (B.const(1.0), B.const(9), B.const(8)), "float32")), "mask 9"),
        (lambda: one(Call("exp", (B.const(1.0),), "float32")), "no native instruction"),
        (lambda: one(Call("tan", (B.const(1.0, "float64"),), "float64"), "float64"), "no native instruction"),
        (lambda: one(Call("call_llvm_pure_intrin", (B.const(1.0),), "float32", {"name": "llvm.nvvm.ex2.approx.f"})), "not one this target lowers"),
        (lambda: one(Call("ldmatrix", (B.const(1.0),), "float32")), "not available"),
        (lambda: K.product(K.matrix.MatrixInstr("mfma", "float16", "float32", 32, 32, 7)), "has no"),
    ],
)  # fmt: skip
def test_mistakes_are_codegen_errors(f: Any, match: str) -> None:
    with pytest.raises(CodegenError, match=match):
        build_kernels([f()], Target("rocm -mcpu=gfx942"), "own")


def test_matrix_unit_that_is_not_there() -> None:
    instr = K.matrix.find(Target("rocm -mcpu=gfx942"), "float16")
    assert instr is not None
    with pytest.raises(CodegenError, match="has no"):
        build_kernels([K.product(instr)], Target("rocm -mcpu=gfx906"), "own")


def test_users_intrinsic_that_the_chip_lacks_is_an_error_and_not_the_end() -> None:
    a, c = K.buf("a", "int32"), K.buf("c", "int32")

    def call(name: str, *more: Any) -> Func:
        args = (BufferLoad(a, (B.const(0),)),) * 3
        value = Call("call_llvm_pure_intrin", (*args, *more), "int32", {"name": name})
        return K.kernel("user", [a, c], lambda i: BufferStore(c, value, (i,)))

    sudot4 = Call(
        "call_llvm_pure_intrin",
        (
            B.const(True),
            BufferLoad(a, (B.const(0),)),
            B.const(True),
            BufferLoad(a, (B.const(1),)),
            B.const(0),
            B.const(False),
        ),
        "int32",
        {"name": "llvm.amdgcn.sudot4"},
    )
    f = K.kernel("user", [a, c], lambda i: BufferStore(c, sudot4, (i,)))
    with pytest.raises(CodegenError, match="user's choice"):
        build_kernels([f], Target("rocm -mcpu=gfx906"), "own")
    assert "v_dot4_i32_iu8" in build_kernels([f], Target("rocm -mcpu=gfx1100"), "own").asm
    with pytest.raises(CodegenError):
        build_kernels([call("llvm.amdgcn.no.such.thing")], Target("rocm -mcpu=gfx942"), "own")
    sleep = K.kernel(
        "nap",
        [c],
        lambda i: Evaluate(
            Call("call_llvm_intrin", (B.const(2),), "int32", {"name": "llvm.amdgcn.s.sleep", "void": True})
        ),
    )
    assert "s_sleep 2" in build_kernels([sleep], Target("rocm -mcpu=gfx942"), "own").asm


def test_two_kernels_of_one_name() -> None:
    with pytest.raises(CodegenError, match="guarded"):
        build_kernels([K.guarded(), K.guarded()], Target("rocm -mcpu=gfx942"), "own")


# ---- the assembly is the object's


def assembler() -> str | None:
    names = ["llvm-mc", *(f"llvm-mc-{v}" for v in range(24, 15, -1))]
    found = [p for p in map(shutil.which, names) if p] + [f"/usr/lib/llvm-{v}/bin/llvm-mc" for v in (22, 21, 20, 19)]
    usable = [p for p in found if os.path.exists(p)]
    return max(usable, key=version_of, default=None)


def version_of(path: str) -> int:
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"version (\d+)", said)
    return int(match[1]) if match else 0


@pytest.mark.skipif(assembler() is None or version_of(str(assembler())) < 18, reason="no llvm-mc of LLVM 18 or later")
@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx1100"])
def test_assembly_assembles_to_the_object(chip: str, tmp_path: Path) -> None:
    """Emitted from modules of their own, object and assembly hold the same instructions."""
    target = Target(f"rocm -mcpu={chip}")
    code = build_kernels(
        [K.guarded(), K.barriers(), K.shuffles("float64", target.wavefront_size), K.dots("dot4", "int8", "int32")],
        target,
        "own",
    )
    # An older assembler does not know every directive; the kernel descriptor and the metadata are not instructions.
    text = re.sub(r"\.amdhsa_kernel.*?\.end_amdhsa_kernel", "", code.asm, flags=re.S).split(".amdgpu_metadata")[0]
    text = "\n".join(x for x in text.splitlines() if not re.match(r"\s*\.(set|section\s+\.AMDGPU|amdhsa_code)", x))
    source, result = tmp_path / "k.s", tmp_path / "k.o"
    source.write_text(text)
    machine = machine_of(target)
    command = [
        str(assembler()),
        "-triple=amdgcn-amd-amdhsa",
        f"-mcpu={chip}",
        f"-mattr={machine.features}",
        "-filetype=obj",
        str(source),
        "-o",
        str(result),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-800:]
    assert section(result.read_bytes(), ".text") == section(code.parts[0].code, ".text")


def test_features_that_a_chip_is_built_on_stay() -> None:
    """LLVM drops a generation with any feature that it implies, and then writes no kernel, in silence."""
    target = Target("rocm -mcpu=gfx1201 -mattr=-unaligned-ds-access")
    with pytest.raises(CodegenError, match=r"made no kernel of guarded(?s:.*)takes away what gfx1201 is built on"):
        build_kernels([K.guarded()], target, "own")


def section(obj: bytes, name: str) -> bytes:
    import struct

    (shoff,) = struct.unpack_from("<Q", obj, 40)
    count, names = struct.unpack_from("<HH", obj, 60)
    rows = [struct.unpack_from("<IIQQQQIIQQ", obj, shoff + 64 * i) for i in range(count)]
    for r in rows:
        start = rows[names][4] + r[0]
        if obj[start : obj.index(b"\0", start)].decode() == name:
            return obj[r[4] : r[4] + r[5]]
    raise AssertionError(name)
