"""How many threads of a kernel a chip holds at once, and launches whose sizes follow from it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..door import of_tec
from ..errors import ArgumentError, KernelError
from ..records import dataclass
from ..target import Target
from .packs import arrays_in, device_of, packed
from .reflection import resources_of

if TYPE_CHECKING:
    from .launching import Kernel

BLOCKS = (128, 256, 512, 1024)  # threads of a block that are tried
USUAL = 256  # where nothing speaks for another: 8 wavefronts of 32, 4 of 64
_CORE_BLOCKS = 4  # blocks for each core of a CPU, so that the last to end do not wait long


@dataclass(frozen=True)
class Occupancy:
    """What a compute unit (a multiprocessor, a core of a CPU) holds of a kernel at once.

    block: threads of a block. registers: of a thread; None where no driver is there to say (NVIDIA) or there are none to count (a CPU). shared_bytes: of a
    block. scratch_bytes: of a thread, which spills take. waves, blocks: of a unit. most_waves: that a unit of this chip holds. limited_by: "waves" (the
    slots), "VGPRs", "registers", "LDS", "threads" or "cores".

    >>> from tec.jit import Occupancy
    >>> found = Occupancy("rocm -mcpu=gfx942", 256, 32, 0, 0, 16, 4, 32, "VGPRs")
    >>> found.fraction
    0.5
    """

    target: str
    block: int
    registers: int | None
    shared_bytes: int
    scratch_bytes: int
    waves: int
    blocks: int
    most_waves: int
    limited_by: str

    @property
    def fraction(self) -> float:
        """Waves of a unit by those that it can hold."""
        return self.waves / self.most_waves

    def __str__(self) -> str:
        of = "" if self.registers is None else f", {self.registers} registers per thread"
        return (
            f"{self.waves} of {self.most_waves} waves per unit ({self.fraction:.0%}) in {self.blocks} blocks of {self.block} threads{of}, "
            f"{self.shared_bytes} bytes of shared memory per block, {self.scratch_bytes} of scratch per thread; limited by {self.limited_by}"
        )


@of_tec(ArgumentError).named("tec.kernel.occupancy")
def occupancy(kernel: Kernel, *args: Any, block: Any = USUAL, shared_bytes: int = 0, target: Any = None) -> Occupancy:
    """What a compute unit holds of `kernel` at once, for arguments as in a launch or their types. Compiles it.

    block: threads, a number or a tuple. shared_bytes: that the launch gives. target: by default that of the arrays' device. Raises KernelError.

    >>> @tec.kernel
    ... def twice(x):
    ...     x[tec.grid_idx(1)] *= 2.0
    >>> tec.kernel.occupancy(twice, "float32[:]", target="rocm -mcpu=gfx942").limited_by
    'waves'
    """
    compiled = kernel._for(args, block, 1, shared_bytes, target)
    x, y, z = compiled.launch.block
    return _occupancy(compiled.module, compiled.target, x * y * z, shared_bytes)


def _occupancy(module: Any, target: Target, threads: int, shared_bytes: int) -> Occupancy:
    if not target.is_gpu:
        return Occupancy(target.text, threads, None, 0, 0, 1, 1, 1, "cores")
    facts = next(iter(resources_of(module).values()))
    chip, wave = target.chip, int(facts.get("wavefront_size") or target.wavefront_size)
    group, shared = -(-threads // wave), int(facts.get("lds_bytes", 0)) + shared_bytes
    scratch = int(facts.get("scratch_bytes", 0) or 0)
    most = chip.waves_a_simd * chip.simds
    if target.kind == "cuda":  # 2,048 threads a multiprocessor
        most = 2048 // wave
        registers = facts.get("registers")  # None where no driver has compiled the kernel
        fits = {"threads": most // group}
        if shared:
            fits["LDS"] = chip.unit_lds_bytes // shared
        if registers:
            fits["registers"] = _warps_by_registers(registers) // group
        limit = min(fits, key=lambda what: fits[what])
        blocks = fits[limit]
        local = facts.get("local_bytes", scratch)
        return Occupancy(target.text, threads, registers, shared, local, blocks * group, blocks, most, limit)
    a_simd, limit = chip.occupancy(int(facts["vgprs"]), shared, group, wave)
    blocks = a_simd * chip.simds // group
    return Occupancy(
        target.text, threads, int(facts["vgprs"]), shared, scratch, blocks * group, blocks, most, limit
    )  # fmt: skip


def _warps_by_registers(registers: int) -> int:
    """Warps whose registers a multiprocessor has: four parts of 16,384, of which a warp gets a multiple of 256 (CUDA's occupancy calculator)."""
    of_a_warp = -(-registers * 32 // 256) * 256
    return 16384 // of_a_warp * 4


@of_tec(ArgumentError).named("tec.kernel.launch_configuration")
def launch_configuration(kernel: Kernel, *args: Any, target: Any = None) -> tuple[int, int]:
    """(blocks of a grid that fills the device once, threads of a block): the block with the most waves of a unit. For kernels that stride over
    their work by `tec.grid_size(1)`. args: as in a launch.
    """
    given = [a if isinstance(a, str) else packed(a) for a in args]
    device = device_of(kernel.__name__, [a for a in given if not isinstance(a, str)])
    units = device.compute_units if device is not None else 1
    best: Occupancy | None = None
    for threads in BLOCKS:
        found = occupancy(kernel, *args, block=threads, target=target)
        if found.limited_by in ("cores", "threads"):
            best = found if threads == USUAL else best
        elif best is None or (found.waves, threads == USUAL) > (best.waves, best.block == USUAL):
            best = found
    assert best is not None
    a_unit = _CORE_BLOCKS if best.limited_by == "cores" else max(best.blocks, 1)
    most = max((a.size for a in arrays_in(given)), default=1 << 31)
    return max(1, min(units * a_unit, -(-most // best.block))), best.block


def strides_by_grid_size(kernel: Kernel) -> bool:
    """Whether the kernel asks for the size of the grid: it then is right for any."""
    calls = [n for n in ast.walk(kernel.source.tree) if isinstance(n, ast.Call)]
    asked = [n for n in calls if ast.unparse(n.func).rpartition(".")[2] == "grid_size"]
    return bool(asked) and all([ast.unparse(x) for x in n.args] == ["1"] for n in asked)


def picked(kernel: Kernel, args: Sequence[Any]) -> tuple[int, int]:
    """The launch of a kernel that was given none. Raises KernelError where the kernel does not say that any will do."""
    if not strides_by_grid_size(kernel):
        raise KernelError(
            f"{kernel.__name__} is a kernel, and is called like a function",
            hint=f"{kernel.__name__}[grid, block](...), or {kernel.__name__}.launch(n)(...); sizes are picked for a kernel that "
            "strides by them: for i in range(tec.grid_idx(1), n, tec.grid_size(1))",
        )
    return launch_configuration(kernel, *args)


__all__ = ["BLOCKS", "USUAL", "Occupancy", "launch_configuration", "occupancy", "picked"]
