"""AMDGPU: the deltas of the emitter for gfx900 to gfx1250, and what LLVM is told about a kernel.

Kernels follow the ABI of docs/architecture.md: explicit arguments alone, so every hidden argument is declared unused.
Source: LLVM's "User Guide for AMDGPU Backend".
"""

from __future__ import annotations

from functools import lru_cache

from ...ir import expr as E
from ...ir.dtype import dtype_info
from ...ir.func import Func
from ...target import Target
from ..emit.emitter import Emitter, Parts
from ..emit.gpu import GpuFrame
from ..emit.line_info import LineInfo
from ..llvm_util import LLVMMachine
from .addresses import LaneValues
from .buffers import BufferLoads
from .calls import CALLS
from .tiles import AmdgpuStatements

TRIPLE = "amdgcn-amd-amdhsa"
UNSAFE_ATOMICS = "unsafe-fp-atomics"  # a pseudo feature of -mattr
_UNUSED = (
    "agpr-alloc dispatch-ptr dispatch-id queue-ptr implicitarg-ptr hostcall-ptr heap-ptr multigrid-sync-arg default-queue "
    "completion-action lds-kernel-id flat-scratch-init cluster-id-x cluster-id-y cluster-id-z"
).split()[1:]


class AmdgpuFrame(GpuFrame):
    """A kernel, and what LLVM is told about it."""

    grid_limits = (2**31 - 1, 2**31 - 1, 2**31 - 1)
    index_intrinsics = {
        **{f"threadIdx.{c}": f"llvm.amdgcn.workitem.id.{c}" for c in "xyz"},
        **{f"blockIdx.{c}": f"llvm.amdgcn.workgroup.id.{c}" for c in "xyz"},
    }

    def kernel_convention(self) -> str:
        return "amdgpu_kernel "

    def function(self, f: Func) -> None:
        super().function(f)
        # Metadata of the kernel goes between its attributes and its body.
        if all(self._extent(f, f"threadIdx.{c}") for c in "xyz"):
            k = max(i for i, line in enumerate(self.em.functions) if line.startswith("define "))
            x, y, z = self.block_shape
            node = self.meta(f"!{{i32 {x}, i32 {y}, i32 {z}}}")
            self.em.functions[k] = self.em.functions[k].removesuffix(" {") + f" !reqd_work_group_size {node} {{"

    def function_attributes(self, f: Func) -> str:
        n = self.block_threads
        words = [
            "nounwind",
            "mustprogress",
            f'"amdgpu-flat-work-group-size"="{n},{n}"',
            '"uniform-work-group-size"="true"',
        ]
        words += [f'"amdgpu-no-{name}"' for name in _UNUSED]
        threads = f.attrs.get("threads", {})
        for tag, name in (("threadIdx", "workitem-id"), ("blockIdx", "workgroup-id")):
            words += [f'"amdgpu-no-{name}-{c}"' for c in "yz" if f"{tag}.{c}" not in threads]
        waves = f.attrs.get("waves_per_eu") or self.em.target.options.get("waves-per-eu")
        if waves:
            words.append(f'"amdgpu-waves-per-eu"="{waves}"')
        return " ".join(words)


class AmdgpuEmitter(Emitter):
    """LLVM IR of AMDGPU kernels."""

    parts = Parts(values=LaneValues, memory=BufferLoads, statements=AmdgpuStatements, frame=AmdgpuFrame)
    calls = CALLS
    values: LaneValues
    memory: BufferLoads
    statements: AmdgpuStatements
    frame: AmdgpuFrame
    alloca_space = 5
    intrinsic_prefixes = ("llvm.amdgcn.",)
    atomic_scope = 'syncscope("agent") '
    smallest_atomic = 32

    def __init__(self, target: Target):
        super().__init__(target)
        self.family = target.chip.family
        self.is_rdna = self.family.startswith("rdna") or self.family == "cdna5"  # whose instructions are RDNA 4's
        self.wave = target.wavefront_size
        self.lines = LineInfo(self.meta, self.meta_plain)

    def module_flags(self) -> list[str]:
        return ['!{i32 1, !"amdhsa_code_object_version", i32 500}']

    def scope_of_atomic(self, scope: str) -> str:
        return 'syncscope("workgroup") ' if scope.startswith("shared") else self.atomic_scope

    def atomic_suffix(self, e: E.Call) -> str:
        """Whole numbers in global memory: the address lies in the device's own memory, as AMD's compilers take it for HIP; without that word LLVM makes a loop of
        compare-and-swap of all but additions on chips that know nothing of atomics over PCIe. Float additions: the native instruction works on coarse-grained memory,
        which the user vouches for by `-mattr=+unsafe-fp-atomics`; else LLVM makes such a loop."""
        load = self.memory.load_of(e.args[0], e.op)
        is_float = dtype_info(load.buffer.dtype).is_float
        if load.buffer.scope != "global" or (is_float and UNSAFE_ATOMICS not in self.target.mattr):
            return ""
        empty = self.meta("!{}")
        known = ["no.fine.grained.memory", "no.remote.memory", *["ignore.denormal.mode"] * is_float]
        return "".join(f", !amdgpu.{word} {empty}" for word in known)

    def native_math(self, op: str, dtype: str) -> str | None:
        return "llvm.ldexp" if op == "ldexp" else super().native_math(op, dtype)


@lru_cache(maxsize=64)
def machine_of(target: Target) -> LLVMMachine:
    """The LLVM target machine of an AMDGPU target."""
    features = [f for f in target.mattr.split(",") if f and f.lstrip("+-") != UNSAFE_ATOMICS]
    features = [f if f[0] in "+-" else "+" + f for f in features]
    if len(target.chip.wavefront_sizes) > 1:
        other = 96 - target.wavefront_size
        features += [f"+wavefrontsize{target.wavefront_size}", f"-wavefrontsize{other}"]
    return LLVMMachine(TRIPLE, target.mcpu, ",".join(features))
