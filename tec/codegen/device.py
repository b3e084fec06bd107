"""Kernels to device code: LLVM IR text, assembly, object, linked image, and what a launch must know of each kernel.

LLVM works in this process, on modules that hold only what the emitters' whitelists allow. Code that names LLVM
intrinsics of the user's choice is first tried in a process of its own, since LLVM ends the process on one that it cannot
select.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

from ..errors import CodegenError
from ..ir.func import Func
from ..target import Target
from . import cache, llvm_util
from .gpu import GpuEmitter
from .line_info import without_lines

_TRIAL = """
import sys
from tec.codegen import llvm_util
triple, cpu, features, speed = sys.argv[1:]
llvm_util.compile_text(sys.stdin.read(), llvm_util.Machine(triple, cpu, features), "asm", int(speed))
"""
_TRIAL_TIMEOUT_S = 120


@dataclass
class DeviceCode:
    """The code of some kernels for one target.

    llvm: LLVM IR before optimisation; object: the relocatable object (empty for PTX); image: what a driver loads;
    kernels: name -> {"vgprs", "agprs", "sgprs", "lds_bytes", "scratch_bytes", "vgpr_spills", "sgpr_spills",
    "kernarg_bytes", "args": [{"offset", "size"}], "threads": (x, y, z)} as far as the target says; asm, made when it is
    first asked for: the assembly of the object (PTX for NVIDIA).
    """

    llvm: str
    object: bytes
    image: bytes
    kernels: dict[str, dict[str, Any]]
    machine: llvm_util.Machine
    optimised: str = field(repr=False, default="")
    _asm: str | None = field(repr=False, default=None)

    @property
    def asm(self) -> str:
        if self._asm is None:
            self._asm = _emit(self.optimised, self.machine, "asm")
        return self._asm


def build_kernels(kernels: list[Func], target: Target, link: str = "auto", speed: int = 3) -> DeviceCode:
    """Compile kernels (of `split_host_device`) for a GPU target. Raises CodegenError.

    link: "auto", "lld" or "own", see `tec.codegen.linking.link`. Objects come from the disk cache where they are known.
    """
    emitter = _emitter(target)
    with llvm_util.timed("emit text"):
        text = emitter.emit(kernels)
    machine = emitter.machine
    if emitter.user_intrinsics:
        _try_apart(text, machine, speed)
    optimised = _optimise(text, machine, speed)
    shapes = {f.name: _block_shape(f) for f in kernels}
    if target.kind == "cuda":
        from .nvptx import dynamic_shared_bytes, finish_ptx

        asm = finish_ptx(_emit(optimised, machine, "asm"), target)
        facts: dict[str, dict[str, Any]] = {
            f.name: {
                "threads": shapes[f.name],
                "lds_bytes": f.attrs.get("lds_bytes", 0),
                "dynamic_shared_bytes": dynamic_shared_bytes(f, target),
            }
            for f in kernels
        }
        return DeviceCode(text, b"", asm.encode() + b"\0", facts, machine, optimised, asm)
    bare = without_lines(optimised)
    key = cache.key_of(bare, machine.triple, machine.cpu, machine.features, "device", llvm_util.llvm_version())
    obj = cache.load(key)
    if obj is None:
        obj = _emit(bare, machine, "object")
        cache.store(key, obj)
    with llvm_util.timed("link"):
        from .linking import link as link_image

        image = link_image(obj, link)
    return DeviceCode(text, obj, image, _facts(image, shapes), machine, optimised)


def _emitter(target: Target) -> Any:
    emitter: GpuEmitter
    if target.kind == "rocm":
        from . import amdgpu

        emitter, machine = amdgpu.AmdgpuEmitter(target), amdgpu.machine_of(target)
    elif target.kind == "cuda":
        from . import nvptx

        emitter, machine = nvptx.NvptxEmitter(target), nvptx.machine_of(target)
    else:
        raise CodegenError(f"{target} is no GPU target", hint="use codegen.build_cpu", locate=False)
    emitter.triple = machine.triple  # type: ignore[misc]
    emitter.layout = llvm_util.data_layout(machine)  # type: ignore[misc]
    emitter.machine = machine
    return emitter


def _optimise(text: str, machine: llvm_util.Machine, speed: int) -> str:
    """The optimised module as text: what the object and the assembly are both made from, each from a fresh parse."""
    optimised: str = llvm_util.compile_text(text, machine, "llvm", speed)
    return optimised


def _emit(optimised: str, machine: llvm_util.Machine, what: str) -> Any:
    return llvm_util.compile_text(optimised, machine, what, 0)


def _try_apart(text: str, machine: llvm_util.Machine, speed: int) -> None:
    """Compile in a child process; CodegenError with LLVM's last words where that ends badly."""
    command = [sys.executable, "-c", _TRIAL, machine.triple, machine.cpu, machine.features, str(speed)]
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=_TRIAL_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise CodegenError(
            f"LLVM took more than {_TRIAL_TIMEOUT_S} s over code with intrinsics of the user's choice"
        ) from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "LLVM ERROR" in line or "Error" in line]
        raise CodegenError(
            f"LLVM cannot make code for an intrinsic of the user's choice on {machine.cpu}: {(said or [done.stderr[-300:]])[0]}",
            hint="check that the chip has the instruction and that the argument types match",
        )


def _block_shape(f: Func) -> tuple[int, int, int]:
    threads = f.attrs.get("threads", {})
    x, y, z = (getattr(threads[t][1], "value", 0) if (t := f"threadIdx.{c}") in threads else 1 for c in "xyz")
    return x, y, z


def _facts(image: bytes, shapes: dict[str, tuple[int, int, int]]) -> dict[str, dict[str, Any]]:
    """What the code object says of its kernels."""
    from ..runtime.codeobject import read_code_object

    out: dict[str, dict[str, Any]] = {}
    for name, k in read_code_object(image).kernels.items():
        out[name] = {
            "vgprs": k.vgprs, "agprs": k.agprs, "sgprs": k.sgprs, "lds_bytes": k.lds_bytes,
            "scratch_bytes": k.private_bytes, "vgpr_spills": k.vgpr_spills, "sgpr_spills": k.sgpr_spills,
            "kernarg_bytes": k.kernarg_bytes, "wavefront_size": k.wavefront_size,
            "args": [{"offset": a.offset, "size": a.size} for a in k.explicit_args],
            "threads": shapes.get(name, (1, 1, 1)),
        }  # fmt: skip
    return out
