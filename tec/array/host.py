"""Functions of NumPy as functions of arrays: they read the memory of arrays on the CPU, or copies of what lies on a device, and their results are placed there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..runtime.arrays.ndarray import array as nd_array
from ..runtime.arrays.ndarray import from_numpy
from ..runtime.devices.device import Device
from .array import Array
from .computing import in_memory
from .node import Node, leaf, note
from .steps import apart


def on_host(name: str, function: Callable[..., Any], *nodes: Node, batched: bool = False) -> Any:
    """The result of a function of NumPy arrays, or a tuple where it gives one. name: what errors about its gradient call it.
    batched: its dimensions count from the last, so one more in front is a batch."""

    def of_memory(*held: Node) -> Any:
        with np.errstate(all="ignore"):
            made = function(*[np.asarray(in_memory(n)) for n in held])
        placed = [_placed(m, held[0].device) for m in (made if isinstance(made, tuple) else (made,))]
        return tuple(placed) if isinstance(made, tuple) else placed[0]

    made = apart(of_memory, *nodes)
    results = [Array(n) for n in (made if isinstance(made, tuple) else (made,))]
    for k, x in enumerate(results):
        note("none", x._node, nodes, name=name, again=_of_a_batch(name, function, k) if batched else None)
    return tuple(results) if isinstance(made, tuple) else results[0]


def _of_a_batch(name: str, function: Callable[..., Any], k: int) -> Callable[..., Node]:
    """Result `k` for arrays with one dimension more in front."""

    def again(*whole: Node) -> Node:
        made = on_host(name, function, *whole, batched=True)
        one: Array = made[k] if isinstance(made, tuple) else made
        return one._node

    return again


def _placed(made: Any, device: Device) -> Node:
    """NumPy's result on a device."""
    held = np.asarray(made, order="C")
    if device.driver is None and held.flags.owndata and held.flags.writeable:
        return leaf(from_numpy(held))
    return leaf(nd_array(held, device))
