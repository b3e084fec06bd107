"""Whether convolutions that are added up are best computed as one product (`ops.conv_sum`): by the estimate that tilings are chosen by, in both forms.

Two products write a result, read it again, and are a launch more; one has the longer sum, and the best tile of either may be another's.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.dims import Size, is_symbolic
from ...ops.matmul import accumulator
from ...ops.typical import typical
from ...target import Target, level_gbps
from .products import tilings
from .products.tilings import Shape


def pays(target: Target, dtype: str, pixels: Size, channels: int, depths: Sequence[int]) -> bool:
    """Whether sums of `depths` terms each, of pixels by channels, should take less time as one. Where loads come through registers, on matrix units alone: a load there takes its place from one
    image or the other without a branch, and nobody measured what NVIDIA's copies in the background, and a CPU's blocks of channels, would lose by two images."""
    if not target.is_gpu or target.chip.background_copies:
        return False
    whole = _shape(dtype, pixels, channels, sum(depths))
    if any(k % tilings.steps(whole, target)[0] for k in depths):
        return False  # steps would be of two images, and their loads not of one place
    apart = [_seconds(_shape(dtype, pixels, channels, k), target) for k in depths]
    together = _seconds(whole, target)
    if together is None or any(s is None for s in apart):
        return False
    machine = target.machine
    launches = (len(depths) - 1) * machine.launch_seconds
    read = (len(depths) - 1) * whole.m * whole.n * whole.bytes / (level_gbps(machine, "memory") * 1e9)
    return together < sum(s for s in apart if s is not None) + launches + read


def _shape(dtype: str, pixels: Size, channels: int, depth: int) -> Shape:
    fixed = not is_symbolic((pixels,))
    return Shape(typical(pixels), channels, depth, 1, dtype, accumulator(dtype), padded=True, fixed=fixed)


def _seconds(shape: Shape, target: Target) -> float | None:
    found = tilings.cheapest(shape, target)
    return tilings.seconds(found, shape, target)[0] if found is not None else None
