"""Kernels to device code: LLVM IR text, assembly, object, linked image, and what a launch must know of each kernel.

The emitters' whitelists let only pass what LLVM can select; an intrinsic of the user's choice that it cannot ends its worker
process, which is an error here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import CodegenError
from ..ir.func import Func
from ..llvmworker.jobs import without_lines
from ..target import Target
from . import cache, llvm_util
from .gpu import GpuEmitter


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
    speed: int = 3
    optimised: str = field(repr=False, default="")  # empty where the object came from the disk cache
    _asm: str | None = field(repr=False, default=None)

    @property
    def asm(self) -> str:
        if self._asm is None:
            what, text, speed = llvm_util.named(list(self.kernels)), self.optimised, 0
            if not text:
                text, speed = self.llvm, self.speed
            self._asm = llvm_util.begin(text, self.machine, ("llvm", "asm"), speed, what).result()["asm"]
        return self._asm


def build_kernels(kernels: list[Func], target: Target, link: str = "auto", speed: int = 3) -> DeviceCode:
    """Compile kernels (of `split_host_device`) for a GPU target. Raises CodegenError.

    link: "auto", "lld" or "own", see `tec.codegen.linking.link`. Objects come from the disk cache where they are known.
    """
    return begin_kernels(kernels, target, link, speed)()


def begin_kernels(kernels: list[Func], target: Target, link: str = "auto", speed: int = 3) -> Callable[[], DeviceCode]:
    """`build_kernels` in two steps: LLVM begins now, and a call of what is returned waits for the code."""
    emitter = _emitter(target)
    with llvm_util.timed("emit text"):
        text = emitter.emit(kernels)
    machine, what = emitter.machine, llvm_util.named(kernels)
    shapes = {f.name: _block_shape(f) for f in kernels}
    made = "asm" if target.kind == "cuda" else "bare object"
    bare = without_lines(text)
    key = cache.key_of(
        bare, machine.triple, machine.cpu, machine.features, "device", made, str(speed), llvm_util.llvm_version()
    )
    found = cache.load(key)
    # The optimised text is made, though not wanted: the object and the assembly each come from a fresh parse of it.
    compiling = None if found is not None else llvm_util.begin(text, machine, ("llvm", made), speed, what)

    def finish() -> DeviceCode:
        obj, optimised = found, ""
        if compiling is not None:
            try:
                answer = compiling.result()
            except CodegenError as error:
                if not emitter.user_intrinsics:
                    raise
                hint = "it has LLVM intrinsics of the user's choice: check that the chip has the instructions, and that types match"
                raise CodegenError(error.message, where=error.where, hint=hint, locate=False) from None
            optimised, obj = answer["llvm"], answer[made]
            if isinstance(obj, str):
                obj = obj.encode()
            cache.store(key, obj)
        assert obj is not None
        if target.kind == "cuda":
            return _cuda_code(kernels, target, text, obj.decode(), machine, shapes, speed)
        with llvm_util.timed("link"):
            from .linking import link as link_image

            image = link_image(obj, link)
        return DeviceCode(text, obj, image, _facts(image, shapes), machine, speed, optimised)

    return finish


def _cuda_code(
    kernels: list[Func],
    target: Target,
    text: str,
    asm: str,
    machine: llvm_util.Machine,
    shapes: dict[str, tuple[int, int, int]],
    speed: int,
) -> DeviceCode:
    from .nvptx import dynamic_shared_bytes, finish_ptx

    ptx = finish_ptx(asm, target)
    facts: dict[str, dict[str, Any]] = {
        f.name: {
            "threads": shapes[f.name],
            "lds_bytes": f.attrs.get("lds_bytes", 0),
            "dynamic_shared_bytes": dynamic_shared_bytes(f, target),
        }
        for f in kernels
    }
    return DeviceCode(text, b"", ptx.encode() + b"\0", facts, machine, speed, _asm=ptx)


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
