"""The schedule primitives: one record each, in files by theme.

A record's `check` refuses what makes no sense, `apply` changes the schedule, `text` is the line that a user would write.
`Schedule.apply` does the first two and appends the record to the schedule's trace.
"""

from __future__ import annotations

from typing import Any

from .annotate import Bind, EnvThreads, Parallel, Pragma, Prefetch, SoftwarePipeline, Tensorize, Unroll, Vectorize
from .base import Code, Define, Intrin, Primitive, Ref, StageOf
from .cache import CacheRead, CacheWrite
from .layout import TransformLayout
from .loop_nest import Fuse, Reorder, Split, Tile
from .placement import ComputeAt, ComputeInline, ComputeRoot, CreateGroup
from .rfactor import Rfactor
from .stores import DoubleBuffer, RollingBuffer, SetScope, SetStorePredicate, StorageAlign

# By the method that makes each.
STAGE_PRIMITIVES: dict[str, type[Primitive[Any]]] = {
    kind.method: kind
    for kind in (
        Split, Tile, Fuse, Reorder, Bind, Vectorize, Unroll, Parallel, Tensorize, Pragma, SoftwarePipeline, Prefetch, EnvThreads, ComputeAt,
        ComputeInline, ComputeRoot, SetScope, SetStorePredicate, StorageAlign, DoubleBuffer, RollingBuffer, TransformLayout,
    )
}  # fmt: skip
SCHEDULE_PRIMITIVES: dict[str, type[Primitive[Any]]] = {
    kind.method: kind for kind in (CacheRead, CacheWrite, Rfactor, CreateGroup)
}

__all__ = [
    "SCHEDULE_PRIMITIVES", "STAGE_PRIMITIVES", "Bind", "CacheRead", "CacheWrite", "Code", "ComputeAt", "ComputeInline",
    "ComputeRoot", "CreateGroup", "Define", "DoubleBuffer", "EnvThreads", "Fuse", "Intrin", "Parallel", "Pragma", "Prefetch",
    "Primitive", "Ref", "Reorder", "Rfactor", "RollingBuffer", "SetScope", "SetStorePredicate", "SoftwarePipeline", "Split", "StageOf",
    "StorageAlign", "Tensorize", "Tile", "TransformLayout", "Unroll", "Vectorize",
]  # fmt: skip
