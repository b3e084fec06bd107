"""A network's texts for the page: IR, LLVM and assembly of each kernel, linked line by line, with registers and stalls beside the assembly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..codegen.linked import begin_links
from ..emulator.analyses.calls import parse_kernel
from ..emulator.analyses.liveness import live_vgprs
from ..errors import TecError
from ..target import Target
from .listing import KernelListing


def texts_of(net: Any, kernels: list[KernelListing], stalls: Mapping[str, Mapping[int, float]]) -> list[dict[str, Any]]:
    """One a kernel: {"ir", "llvm", "asm", "of_llvm", "of_asm", "live", "held"}.

    `of_llvm`, `of_asm`: see `codegen.linked.Linked`. `live`: vector registers in use before the instruction of each line of assembly, `held`: the
    share of the waves' time that they wait there, in thousandths (`stalls`: shares by kernel and number of instruction); of AMD GPUs.
    """
    target = Target(net.module.target)
    waiting = [begin_links(k.name, k.llvm, target) for k in kernels]
    out = []
    for k, wait in zip(kernels, waiting):
        linked = wait(k.asm)
        beside = _beside(k.name, linked.asm, stalls.get(k.name, {})) if target.kind == "rocm" else {}
        out.append(
            {
                "ir": k.ir,
                "llvm": linked.llvm,
                "asm": linked.asm,
                "of_llvm": linked.of_llvm,
                "of_asm": linked.of_asm,
                **beside,
            }
        )
    return out


def _beside(name: str, asm: str, stalls: Mapping[int, float]) -> dict[str, list[int]]:
    """What stands beside each line of assembly, 0 for lines without; nothing where the software GPU cannot read the kernel."""
    try:
        text = parse_kernel(asm, name)
        live = live_vgprs(text)
    except TecError:
        return {}
    lines = asm.count("\n") + 1
    registers, held = [0] * lines, [0] * lines
    for number, inst in enumerate(text.insts):
        registers[inst.line - 1] = live[number]
        held[inst.line - 1] = round(1000 * stalls.get(number, 0.0))
    return {"live": registers, "held": held if stalls else []}
