"""Kernels to device code: LLVM IR text, assembly, object, linked image, and what a launch must know of each kernel.

The emitters' whitelists let only pass what LLVM can select; an intrinsic of the user's choice that it cannot ends its worker
process, which is an error here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from ..errors import CodegenError
from ..ir.func import Func
from ..llvmworker.jobs import without_lines
from ..records import dataclass
from ..runtime.objects.codeobject import read_code_object
from ..target import Target
from . import cache, llvm_util
from .emit.emitter import Emitter
from .objects.linking import link as link_image
from .objects.merging import merge_objects

DEFAULT_SPEED = 3


@dataclass
class KernelCode:
    """A kernel, compiled by itself.

    llvm: LLVM IR before optimisation; code: the relocatable object, or PTX text in bytes; threads: of a work-group, along x, y and z; asm, made
    when it is first asked for: the assembly of the object (PTX for NVIDIA).
    """

    names: list[str]
    llvm: str
    code: bytes
    machine: llvm_util.LLVMMachine
    facts: dict[str, dict[str, Any]]  # what is known of each kernel without its code
    speed: int = DEFAULT_SPEED
    optimised: str = field(repr=False, default="")  # empty where the object came from the disk cache
    _asm: str | None = field(repr=False, default=None)

    @property
    def asm(self) -> str:
        if self._asm is None:
            what = llvm_util.named(self.names)
            self._asm = llvm_util.assembly(self.llvm, self.machine, self.speed, what, self.optimised, True)
        return self._asm


@dataclass
class DeviceCode:
    """The code of a module's kernels for one target.

    image: what a driver loads, of all; kernels: name -> {"vgprs", "agprs", "sgprs", "lds_bytes", "scratch_bytes", "vgpr_spills",
    "sgpr_spills", "kernarg_bytes", "args": [{"offset", "size"}], "threads": (x, y, z)} as far as the target says; parts: where their texts are.
    """

    parts: list[KernelCode]
    image: bytes
    kernels: dict[str, dict[str, Any]]

    @property
    def llvm(self) -> str:
        return "\n\n".join(p.llvm for p in self.parts)

    @property
    def asm(self) -> str:
        return "\n\n".join(p.asm for p in self.parts)


def build_kernels(kernels: list[Func], target: Target, link: str = "auto", speed: int = DEFAULT_SPEED) -> DeviceCode:
    """Compile kernels (of `split_host_device`) for a GPU target, in one LLVM module. Raises CodegenError.

    link: see `join_kernels`. Objects come from the disk cache where they are known.
    """
    return join_kernels([begin_kernels(kernels, target, speed)()], target, link)


def assembly_of(llvm: str, target: Target, name: str) -> str:
    """The assembly of a kernel's LLVM IR (PTX for NVIDIA). Raises CodegenError."""
    made = llvm_util.assembly(llvm, machine_of(target), DEFAULT_SPEED, llvm_util.named([name]), parsed_again=True)
    return finished(made, target)


def finished(asm: str, target: Target) -> str:
    """Assembly as it is handed out, and compiled where it is PTX, from LLVM's."""
    if target.kind != "cuda":
        return asm
    from .nvptx import extrema_in_words, ordered_loads, sums_one_by_one

    return extrema_in_words(sums_one_by_one(ordered_loads(asm)))


def begin_kernels(
    kernels: list[Func], target: Target, speed: int = DEFAULT_SPEED, places: dict[int, int] | None = None
) -> Callable[[], KernelCode]:
    """LLVM begins with one module of kernels now, and a call of what is returned waits for the code. places: see `Printer.places`."""
    emitter = emitter_for(target)
    emitter.places = places or {}
    with llvm_util.timed("emit text"):
        text = llvm_util.with_imports(emitter.emit(kernels), kernels)
    machine, what = emitter.machine, llvm_util.named(kernels)
    facts = {f.name: _known_facts(f, target) for f in kernels}
    made = "asm" if target.kind == "cuda" else "bare object"
    bare = without_lines(text)
    key = cache.key_of(
        bare, machine.triple, machine.cpu, machine.features, "device", made, str(speed), llvm_util.llvm_version()
    )
    found = cache.load(key)
    # The optimised text is made, though not wanted: the object and the assembly each come from a fresh parse of it.
    compiling = None if found is not None else llvm_util.begin(text, machine, ("llvm", made), speed, what)

    def finish() -> KernelCode:
        code, optimised = found, ""
        if compiling is not None:
            try:
                answer = compiling.result()
            except CodegenError as error:
                if not emitter.user_intrinsics:
                    raise
                hint = "it has LLVM intrinsics of the user's choice: check that the chip has the instructions, and that types match"
                raise CodegenError(error.message, where=error.where, hint=hint, locate=False) from None
            optimised, code = answer["llvm"], answer[made]
            if isinstance(code, str):
                code = code.encode()
            cache.store(key, code)
        assert code is not None
        asm = None
        if target.kind == "cuda":
            asm = finished(code.decode(), target)
            code = asm.encode()
        return KernelCode(list(facts), text, code, machine, facts, speed, optimised, asm)

    return finish


def join_kernels(parts: Sequence[KernelCode], target: Target, link: str = "auto") -> DeviceCode:
    """Kernels that were compiled one by one, as one code object (one PTX text). Raises CodegenError.

    link: "auto", "lld" or "own", see `tec.codegen.objects.linking.link`.
    """
    facts = {name: fact for p in parts for name, fact in p.facts.items()}
    if not parts:
        return DeviceCode([], b"", facts)
    with llvm_util.timed("link"):
        if target.kind == "cuda":
            from .nvptx import join_ptx

            return DeviceCode(list(parts), join_ptx([p.asm for p in parts]).encode() + b"\0", facts)
        image = link_image(merge_objects([p.code for p in parts]), link)
    return DeviceCode(list(parts), image, _code_facts(image, facts, target))


def _known_facts(f: Func, target: Target) -> dict[str, Any]:
    threads = f.attrs.get("threads", {})
    x, y, z = (getattr(threads[t][1], "value", 0) if (t := f"threadIdx.{c}") in threads else 1 for c in "xyz")
    if target.kind != "cuda":
        return {"threads": (x, y, z)}
    from .nvptx import dynamic_shared_bytes

    shared = f.attrs.get("lds_bytes", 0)
    return {"threads": (x, y, z), "lds_bytes": shared, "dynamic_shared_bytes": dynamic_shared_bytes(f, target)}


def machine_of(target: Target) -> llvm_util.LLVMMachine:
    """The LLVM target machine of a GPU target. Raises CodegenError for another."""
    if target.kind == "rocm":
        from . import amdgpu

        return amdgpu.machine_of(target)
    if target.kind == "cuda":
        from . import nvptx

        return nvptx.machine_of(target)
    raise CodegenError(f"{target} is no GPU target", hint="use codegen.build_cpu", locate=False)


def emitter_for(target: Target) -> Any:
    """The emitter of a GPU target's text."""
    machine = machine_of(target)
    emitter: Emitter
    if target.kind == "rocm":
        from .amdgpu import AmdgpuEmitter

        emitter = AmdgpuEmitter(target)
    else:
        from .nvptx import NvptxEmitter

        emitter = NvptxEmitter(target)
    emitter.triple = machine.triple  # type: ignore[misc]
    emitter.layout = llvm_util.data_layout(machine)  # type: ignore[misc]
    emitter.machine = machine
    return emitter


def _code_facts(image: bytes, known: dict[str, dict[str, Any]], target: Target) -> dict[str, dict[str, Any]]:
    """What the code object says of its kernels, and what was known before. Raises CodegenError for a kernel that it does not have."""
    out: dict[str, dict[str, Any]] = {}
    kernels = read_code_object(image).kernels
    if missing := known.keys() - kernels.keys():
        hint = f"-mattr={target.mattr} takes away what {target.mcpu} is built on" if target.mattr else None
        raise CodegenError(f"LLVM made no kernel of {min(missing)} for {target.mcpu}", hint=hint, locate=False)
    for name, k in kernels.items():
        out[name] = {
            "vgprs": k.vgprs, "agprs": k.agprs, "sgprs": k.sgprs, "lds_bytes": k.lds_bytes,
            "scratch_bytes": k.private_bytes, "vgpr_spills": k.vgpr_spills, "sgpr_spills": k.sgpr_spills,
            "kernarg_bytes": k.kernarg_bytes, "wavefront_size": k.wavefront_size,
            "args": [{"offset": a.offset, "size": a.size} for a in k.explicit_args],
            **known.get(name, {}),
        }  # fmt: skip
    return out
