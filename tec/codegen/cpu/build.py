"""CPU code of lowered functions: the LLVM machine of a target, its emitter, and the object that LLVM makes of the text."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from dataclasses import field
from functools import lru_cache

from ...errors import CodegenError
from ...ir.func import Func
from ...records import dataclass
from ...target import Target
from .. import cache, llvm_util
from .emitter import CpuEmitter

_RISCV_LINUX = "+m,+a,+f,+d,+c"
# x86's features of which LLVM would choose instructions, and code does without. SSE4A is AMD's alone, for a few shuffles of bytes: code of one make would end
# the process on another. The others are too new for the names that systems give them (/proc/cpuinfo): nobody could be asked whether a processor has them.
UNUSED = (
    "sse4a", "avxifma", "avxneconvert", "avxvnniint8", "avxvnniint16", "avx10.1", "avx10.2",
    "cmpccxadd", "egpr", "ndd", "ccmp", "nf", "zu", "push2pop2", "ppx",
)  # fmt: skip
DEFAULT_SPEED = 2  # -O3 takes twice as long, and neither matmul, nor math, nor a ResNet-50 ran faster with it


@dataclass
class HostCode:
    """CPU code: the object, the LLVM IR it came from, and the messages of each function's assertions in order.

    `asm` (a property) makes the assembly when it is asked for.
    """

    object: bytes
    llvm: str
    machine: llvm_util.LLVMMachine
    messages: dict[str, list[str]] = field(default_factory=dict)
    speed: int = DEFAULT_SPEED
    what: str = "a module"
    _asm: str | None = None

    @property
    def asm(self) -> str:
        """Assembly of the same module, from a fresh parse."""
        if self._asm is None:
            self._asm = llvm_util.assembly(self.llvm, self.machine, self.speed, self.what)
        return self._asm


@lru_cache(maxsize=64)
def machine_of(target: Target) -> llvm_util.LLVMMachine:
    """The LLVM machine of a CPU target: the host by default, always ELF."""
    if target.kind != "llvm":
        raise CodegenError(f"{target} is not a CPU target", locate=False, hint='target="llvm", or tec.build for a GPU')
    triple = target.mtriple or _host_triple()
    cpu, features = target.mcpu, target.mattr
    arch = triple.split("-")[0]
    if arch == "x86_64":  # what the user asks for comes behind it, and counts
        features = ",".join(x for x in ("-" + ",-".join(UNUSED), features) if x)
    if not target.mtriple and cpu in ("", "native", "host"):
        cpu, host = llvm_util.host_cpu()
        features = ",".join(x for x in (host, features) if x)
    if arch not in ("x86_64", "aarch64", "arm64", "riscv64"):
        raise CodegenError(
            f"no CPU code is made for {triple!r}",
            hint="-mtriple is an x86_64, aarch64 or riscv64 one, such as aarch64-unknown-linux-gnu",
            locate=False,
        )
    if not cpu:
        cpu = {"x86_64": "x86-64", "riscv64": "generic-rv64"}.get(arch, "generic")
    if arch == "riscv64":
        # What Linux for RISC-V is built for (RV64GC), with its calling convention for floats.
        features = ",".join(x for x in (_RISCV_LINUX, features) if x)
    if features:
        features = ",".join(f if f[0] in "+-" else "+" + f for f in features.split(",") if f)
    return llvm_util.LLVMMachine(triple, cpu, features)


def _host_triple() -> str:
    """An ELF triple of the host: the loader is tec's own on every system."""
    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    return f"{arch}-pc-windows-elf" if sys.platform == "win32" else f"{arch}-unknown-linux-gnu"


def emit_cpu(
    funcs: list[Func], target: Target, places: dict[int, int] | None = None
) -> tuple[str, dict[str, list[str]]]:
    """The LLVM IR text of CPU functions, and the messages of their assertions. places: see `Printer.places`."""
    emitter = emitter_for(target)
    emitter.places = places or {}
    return llvm_util.with_imports(emitter.emit(funcs), funcs), emitter.messages


def emitter_for(target: Target) -> CpuEmitter:
    """The emitter of a CPU target's text."""
    machine = machine_of(target)
    emitter = CpuEmitter(target, machine)
    emitter.triple = machine.triple  # type: ignore[misc]
    emitter.layout = llvm_util.data_layout(machine)  # type: ignore[misc]
    return emitter


def assembly_of(llvm: str, target: Target, name: str) -> str:
    """The assembly of a CPU function's LLVM IR. Raises CodegenError."""
    return llvm_util.assembly(llvm, machine_of(target), DEFAULT_SPEED, llvm_util.named([name]))


def build_cpu(funcs: list[Func], target: Target, speed: int = DEFAULT_SPEED) -> HostCode:
    """Compile functions of stage "lowered" for a CPU target; objects come from the disk cache where they are known.

    Raises CodegenError for what cannot be expressed.
    """
    return begin_cpu(funcs, target, speed)()


def begin_cpu(
    funcs: list[Func], target: Target, speed: int = DEFAULT_SPEED, places: dict[int, int] | None = None
) -> Callable[[], HostCode]:
    """`build_cpu` in two steps: LLVM begins now, and a call of what is returned waits for the code. places: see `Printer.places`."""
    with llvm_util.timed("emit text"):
        text, messages = emit_cpu(funcs, target, places)
    machine, what = machine_of(target), llvm_util.named(funcs)
    key = cache.key_of(text, machine.triple, machine.cpu, machine.features, str(speed), llvm_util.llvm_version())
    found = cache.load(key)
    compiling = llvm_util.begin(text, machine, ("object",), speed, what) if found is None else None

    def finish() -> HostCode:
        obj = found
        if compiling is not None:
            obj = compiling.result()["object"]
            cache.store(key, obj)
        assert obj is not None
        return HostCode(obj, text, machine, messages, speed, what)

    return finish
