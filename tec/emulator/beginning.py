"""What a launch's waves begin with: the block of kernel arguments, and the registers that the hardware fills.

In: a kernel's descriptor and metadata, the arguments, the sizes of grid and work-group. Source: LLVM's AMDGPU usage guide, "Initial Kernel Execution State".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..runtime.devices.surface import Dim3
from ..runtime.objects.codeobject import KernelInfo
from .chips import Chip
from .context import STATE_LANES, STATE_SCC, STATE_SIGNALLED, STATE_VGPRS
from .decode.inst import TTMP0
from .errors import EmulationError
from .translate.wave import EXEC


def aligned(nbytes: int, fill: int | None = None) -> tuple[np.ndarray, int]:
    """A buffer and the first 64-byte boundary in it."""
    buffer = np.empty(nbytes + 64, np.uint8)
    if fill is not None:
        buffer.fill(fill)
    return buffer, (buffer.ctypes.data + 63) & ~63


def kernarg_block(
    info: KernelInfo, kernargs: bytes, grid: Dim3, block: Dim3, dynamic_lds: int = 0, hidden: dict[str, int] | None = None
) -> bytes:  # fmt: skip
    """The explicit arguments with the hidden ones that the metadata asks for (`hidden` has those of this launch), padded to the segment's size."""
    explicit = info.explicit_bytes
    if not explicit <= len(kernargs) <= (explicit + 15) // 8 * 8:
        raise EmulationError(
            f"{len(kernargs)} bytes of kernel arguments, but its parameters take {explicit}",
            kernel=info.name,
            hint="pack all parameters, in order and at their alignments",
        )
    data = bytearray(max(info.kernarg_bytes, len(kernargs)))
    data[: len(kernargs)] = kernargs
    axis = {"x": 0, "y": 1, "z": 2}
    for arg in info.args:
        if not arg.hidden:
            continue
        kind = arg.kind.removeprefix("hidden_")
        value = (hidden or {}).get(kind, 0)
        if kind.startswith("block_count_"):
            value = grid[axis[kind[-1]]]
        elif kind.startswith("group_size_"):
            value = block[axis[kind[-1]]]
        elif kind == "grid_dims":
            value = 3 if grid[2] * block[2] > 1 else 2 if grid[1] * block[1] > 1 else 1
        elif kind == "dynamic_lds_size":
            value = dynamic_lds
        elif kind == "shared_base":
            value = 1
        elif kind == "private_base":
            value = 2
        data[arg.offset : arg.offset + arg.size] = value.to_bytes(arg.size, "little")
    return bytes(data)


@dataclass(slots=True)
class Registers:
    sgprs: np.ndarray
    places: tuple[int, int, int]
    used: int  # SGPRs that the hardware fills


def initial_sgprs(chip: Chip, info: KernelInfo, kernarg: int, dispatch: int, block: bytes) -> Registers:
    """User SGPRs in the descriptor's order, then where the work-group ids go."""
    sgprs = np.zeros(128, np.uint32)
    at = 0

    def put(value: int, words: int) -> None:
        nonlocal at
        if at + words > 100:
            raise EmulationError(
                "more initial SGPRs than there are",
                kernel=info.name,
                hint="the code object is damaged: compile it again",
            )
        for i in range(words):
            sgprs[at + i] = (value >> (32 * i)) & 0xFFFFFFFF
        at += words

    p = info.properties
    if p & 1:  # private segment buffer: only its swizzle bit means something here
        put(0, 1)
        put(1 << 31, 1)
        put(0xFFFFFFFF, 1)
        put(0, 1)
    if p & 2:
        put(dispatch, 2)
    if p & 4:
        put(0, 2)
    if p & 8:
        put(kernarg, 2)
    if p & 16:
        put(1, 2)
    if p & 32:  # flat scratch init
        put(0, 2)
    if p & 64:
        put(info.private_bytes, 1)
    # Kernels that ask for preloading begin with loads of the same SGPRs, for firmware that cannot (`prologue`).
    for k in range(info.kernarg_preload_offset, info.kernarg_preload_offset + info.kernarg_preload_dwords):
        put(int.from_bytes(block[4 * k : 4 * k + 4], "little"), 1)
    at = max(at, info.user_sgprs)
    places = [-1, -1, -1]
    if not chip.limits.ttmp_ids:
        for i in range(3):
            if info.rsrc2 & (1 << (7 + i)):
                places[i] = at
                at += 1
    if at > 100:
        raise EmulationError(
            f"{at} initial SGPRs", kernel=info.name, hint="compile for a chip whose code objects ask for fewer"
        )
    at += (info.rsrc2 >> 10 & 1) + (info.rsrc2 & 1)  # work-group info, the wave's scratch offset
    return Registers(sgprs, (places[0], places[1], places[2]), at)


def initial_vgprs(chip: Chip, lanes: int, waves: int, block: Dim3) -> tuple[np.ndarray, np.ndarray]:
    """v0 to v2 of each wave (work-item ids), and each wave's EXEC."""
    bx, by, bz = block
    total = bx * by * bz
    ids = np.arange(waves * lanes, dtype=np.uint32)
    x, y, z = ids % bx, ids // bx % by, ids // (bx * by)
    v = np.zeros((waves, 3, lanes), np.uint32)
    if chip.limits.packed_ids:
        v[:, 0] = (x | (y << 10) | (z << 20)).reshape(waves, lanes)
    else:
        v[:, 0], v[:, 1], v[:, 2] = (a.reshape(waves, lanes) for a in (x, y, z))
    on = (ids < total).reshape(waves, lanes)
    exec_ = np.array([sum(1 << int(i) for i in np.flatnonzero(row)) for row in on], np.uint64)
    return v, exec_


def initial_undefined(chip: Chip, info: KernelInfo, registers: Registers, state: int, lanes: int) -> np.ndarray:
    """The shadow of a wave's first state: what the hardware fills is defined, everything else is not."""
    out = np.full(state, 255, np.uint8)
    sgprs = out[:512].view(np.uint32)
    sgprs[: registers.used] = 0
    sgprs[TTMP0 : TTMP0 + 16] = 0
    sgprs[EXEC : EXEC + 2] = 0
    out[STATE_SCC : STATE_SCC + 4] = 1  # a boolean
    out[STATE_LANES : STATE_SIGNALLED + 4] = 0
    out[STATE_VGPRS : STATE_VGPRS + 4 * lanes * id_registers(chip, info)] = 0
    return out


def id_registers(chip: Chip, info: KernelInfo) -> int:
    """Vector registers that begin with a work-item's place in its work-group."""
    return 1 if chip.limits.packed_ids else 1 + (info.rsrc2 >> 11 & 3)
