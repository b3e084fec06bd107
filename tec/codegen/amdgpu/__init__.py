"""AMDGPU: the emitter for gfx900 to gfx1250 and the LLVM machine of a target."""

from .emitter import TRIPLE, AmdgpuEmitter, machine_of

__all__ = ["TRIPLE", "AmdgpuEmitter", "machine_of"]
