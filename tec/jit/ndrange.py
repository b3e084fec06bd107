"""`kernel.launch(n)`: as many threads as there are items, in blocks chosen by how many wavefronts fit a unit at once.

On AMD the kernel is compiled once to know its registers and shared memory; the block is then the smallest with the greatest number
of wavefronts a vector unit (`Chip.occupancy`). NVIDIA's registers are known to its driver alone, and a CPU has none of this: there a
block is what one turn of a thread's loop is worth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import KernelError
from ..kernels.translate import Argument, LaunchShape
from ..target import Target

if TYPE_CHECKING:
    from .launching import Kernel

from .launching import Launcher, extents
from .specialise import Compiled

_USUAL = 256  # threads of a block where nothing speaks for another: 8 wavefronts of 32, 4 of 64
_CANDIDATES = (128, 256, 512, 1024)
_ALONG = {1: (1,), 2: (16, 1), 3: (4, 4, 1)}  # the shape of a block by extents; the last takes the rest


class Ranged(Launcher):
    """A kernel with the extents of a launch."""

    def __init__(self, kernel: Kernel, given: Sequence[Any], block: Any, stream: Any):
        name = kernel.__name__
        flat = given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
        numbers, ndim = extents(name, "the launch", tuple(flat), least=0)
        self.extents = numbers[:ndim]
        self.block: tuple[int, ...] | None = None
        if block is not None:
            threads, n = extents(name, "the block", block)
            if n != ndim:
                raise KernelError(
                    f"{name}: a block of {n} dimensions for {ndim} extents",
                    hint="block= has one number for each extent",
                )
            self.block = threads[:n]
        super().__init__(kernel, LaunchShape((1, 1, 1), ndim, ndim), (1, 1, 1), stream)
        self.sizes = self.extents
        self._chosen: dict[Any, LaunchShape] = {}

    def __repr__(self) -> str:
        return f"<{self.kernel.__name__}.launch{self.extents}>"

    def grid_for(self, compiled: Any) -> tuple[int, int, int]:
        counts = [-(-n // b) for n, b in zip(reversed(self.extents), compiled.launch.block)]
        x, y, z = (*counts, 1, 1)[:3]
        return x, y, z

    def _run(self, compiled: Compiled, args: Sequence[Any]) -> None:
        if compiled.meets:
            for n, b in zip(reversed(self.extents), compiled.launch.block):
                if n % b:
                    raise KernelError(
                        f"{self.kernel.__name__} is launched over {self.extents} in blocks of {compiled.launch.block}, and not all threads "
                        "of the last block would come to its barriers or shuffles",
                        hint=f"launch whole blocks, {self.kernel.__name__}.launch(..., block=...), or [grid, block] with a guard around "
                        "what lies beyond",
                    )
        super()._run(compiled, args)

    def choose(self, types: Sequence[Argument], target: Target) -> LaunchShape:
        key = (tuple(types), target.text)
        found = self._chosen.get(key)
        if found is None:
            found = self._chosen[key] = self._choose(types, target)
        return found

    def _choose(self, types: Sequence[Argument], target: Target) -> LaunchShape:
        if self.block is not None:
            return self._launch_of(self.block)
        trial = self._launch_of(self._shape(_USUAL))
        if not target.is_gpu:
            return self._rows(types, target, trial)
        if target.kind != "rocm":
            return trial
        compiled = self.kernel.compiled(types, trial, target)
        facts = [k for m in compiled.module.imported_modules for k in m.attrs["kernels"].values()]
        if len(facts) != 1:
            return trial
        vgprs, lds = facts[0]["vgprs"], facts[0]["lds_bytes"]
        wave, chip = target.wavefront_size, target.chip

        def waves(threads: int) -> int:
            group = -(-threads // wave)
            fit, _ = chip.occupancy(vgprs, lds, group, wave)
            return min(fit, fit * chip.simds // group * group // chip.simds) if group <= fit * chip.simds else 0

        best = max(
            _CANDIDATES, key=lambda n: (waves(n), n == _USUAL, -n) if n <= target.max_threads else (-1, False, 0)
        )
        return self._launch_of(self._shape(best))

    def _rows(self, types: Sequence[Argument], target: Target, usual: LaunchShape) -> LaunchShape:
        """A block along the last extent, which a CPU runs as one long loop; the usual shape for a kernel whose threads wait for each other, of which whole
        blocks are launched."""
        row = self._launch_of((*[1] * (len(self.extents) - 1), _USUAL))
        return usual if row == usual or self.kernel.compiled(types, row, target).meets else row

    def _shape(self, threads: int) -> tuple[int, ...]:
        """Threads along each extent: the last, whose elements are neighbours, gets the most."""
        outer = list(_ALONG[len(self.extents)])
        for k, n in enumerate(self.extents[:-1]):
            while outer[k] > 1 and outer[k] >= 2 * n:
                outer[k] //= 2
        outer[-1] = max(1, threads // math.prod(outer[:-1]))
        return tuple(outer)

    def _launch_of(self, block: tuple[int, ...]) -> LaunchShape:
        x, y, z = (*reversed(block), 1, 1)[:3]
        return LaunchShape((x, y, z), len(self.extents), len(self.extents))
