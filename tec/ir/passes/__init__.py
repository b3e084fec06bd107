"""The passes: one file, one public function `name(func, target) -> func`, run in the order of `tec.driver.PIPELINE`."""

import importlib
from typing import Any

_PASSES = (
    "flatten_buffers", "hoist_conditions", "inject_prefetch", "inject_vthread", "insert_barriers", "lower_allreduce", "lower_math",
    "partition_loops", "pipeline", "plan_storage", "remove_noop", "simplify", "split_host_device", "unify_threads", "unroll", "vectorize",
)  # fmt: skip

__all__ = list(_PASSES)


def __getattr__(name: str) -> Any:
    if name in _PASSES:
        return getattr(importlib.import_module(f"{__name__}.{name}"), name)
    raise AttributeError(name)
