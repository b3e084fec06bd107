"""The passes: one file, one public function `name(func, target) -> func`, run in the order of `tec.driver.PIPELINE`.

`split_host_device` alone gives more: `(host, kernels)`.
"""

from .check_extents import check_extents
from .flatten_buffers import flatten_buffers
from .hoist_conditions import hoist_conditions
from .inject_prefetch import inject_prefetch
from .inject_vthread import inject_vthread
from .insert_barriers import insert_barriers
from .lower_allreduce import lower_allreduce
from .lower_dot import lower_dot
from .lower_fragments import lower_fragments
from .lower_math import lower_math
from .pad_tiles import pad_tiles
from .partition_loops import partition_loops
from .pipeline import pipeline
from .plan_storage import plan_storage
from .remove_noop import remove_noop
from .simplify import simplify
from .split_host_device import split_host_device
from .unify_threads import unify_threads
from .unroll import unroll
from .vectorize import vectorize

__all__ = [
    "check_extents", "flatten_buffers", "hoist_conditions", "inject_prefetch", "inject_vthread", "insert_barriers", "lower_allreduce",
    "lower_dot", "lower_fragments", "lower_math", "pad_tiles", "partition_loops", "pipeline", "plan_storage", "remove_noop", "simplify",
    "split_host_device", "unify_threads", "unroll", "vectorize",
]  # fmt: skip
