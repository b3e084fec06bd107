"""`check="registers"`: does a kernel name a register that its descriptor does not ask for?

Hardware gives a wave what the kernel descriptor counts; what lies beyond belongs to another wave. Source: LLVM's AMDGPU usage guide, "Kernel
Descriptor", GRANULATED_WORKITEM_VGPR_COUNT and ACCUM_OFFSET.
"""

from __future__ import annotations

from ...runtime.objects.codeobject import KernelInfo
from ...target import CHIPS
from ..decode.inst import Inst, KernelText, generation
from ..errors import EmulationError

_NAMED = 102  # SGPRs from here on have names


def declared(info: KernelInfo, chip: str) -> dict[str, int]:
    """How many registers of each file a wave of the kernel has."""
    gfx, most = generation(chip), CHIPS[chip].vgprs
    # gfx90a and later: accumulation registers lie behind the others.
    one_file = CHIPS[chip].family in ("cdna2", "cdna3", "cdna4")
    granule = 8 if one_file or info.wavefront_size == 32 else 4
    if most > 512:
        granule *= 2  # gfx1250
    total = ((info.rsrc1 & 63) + 1) * granule
    if gfx > 9:
        return {"v": min(total, most)}
    # Where the accumulation registers begin; gfx908 gives a wave as many of them as of the others.
    first = ((info.rsrc3 & 63) + 1) * 4 if one_file else total
    # Counted in blocks of 16, of which VCC, FLAT_SCRATCH and XNACK_MASK take the last ones; gfx10 and later give every wave all.
    scalars = ((info.rsrc1 >> 6 & 15) // 2 + 1) * 16
    return {"v": min(first, total), "a": max(0, total - first) if one_file else total, "s": min(scalars, _NAMED)}


def check_registers(kernel: KernelText, info: KernelInfo, chip: str) -> None:
    """Raise `EmulationError` at the first register beyond the count."""
    have = declared(info, chip)
    for inst in kernel.insts:
        for file, last in _named(inst):
            if file == "s" and last >= _NAMED:
                continue  # VCC, EXEC and the like
            if last >= have.get(file, last + 1):
                raise EmulationError(
                    f"register {file}{last} is beyond the {have[file]} that the kernel declares",
                    kernel=kernel.name,
                    line=inst.line,
                    instruction=inst.text,
                    hint=f"what it holds belongs to another wave; raise .amdhsa_next_free_{'sgpr' if file == 's' else 'vgpr'} (.amdhsa_accum_offset)",
                )


def _named(inst: Inst) -> list[tuple[str, int]]:
    """File and number of the last register of each operand."""
    found = [(op.kind, op.index + max(1, op.count) - 1) for op in inst.operands if op.is_reg]
    return found + (_named(inst.dual) if inst.dual is not None else [])
