"""Schedules by structure: from the te tensors of one fused group of operators to a Schedule for a target.

`schedule_group(outputs, target) -> Schedule` looks at what the stages are (injective, reduction, matrix product, convolution, scan,
extern) and not at which operator they came from; computes that want a special template say so by their te `tag`
("matmul", "conv2d_nchwc", ...) and `attrs`. One file a kind: analysis.py, cpu.py, gpu.py, matmul.py, conv.py.
"""

from __future__ import annotations

from ...schedule import Schedule
from ...target import Target, as_target
from ...te import Tensor


def schedule_group(outputs: list[Tensor], target: Target | str | None = None) -> Schedule:
    """A schedule for a group of te tensors: its outputs, with everything between them and the placeholders."""
    from . import cpu, gpu

    tgt = as_target(target)
    return gpu.schedule(outputs, tgt) if tgt.is_gpu else cpu.schedule(outputs, tgt)


__all__ = ["schedule_group"]
