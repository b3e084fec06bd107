"""Calls of a network on a CPU: tensors go in and out as NumPy arrays of the same memory, which takes a tenth of DLPack's time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tec.runtime.networks.network import Network


class HostCalls:
    """As `placed.PlacedCalls`, for a network whose inputs and outputs have types that NumPy has: `calls(tensors)` gives the outputs, or None for what goes another
    way."""

    def __init__(self, network: Network):
        self._network = network

    def __call__(self, given: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
        try:
            arrays = [(t.detach() if t.requires_grad else t).numpy() for t in given]
        except (RuntimeError, TypeError):  # on another device, or marked as conjugate or negative
            return None
        return [torch.from_numpy(a) for a in self._network.run(arrays)]

    checked = __call__

    def learn(self, given: Sequence[torch.Tensor], arrays: Sequence[Any]) -> None:
        """Nothing: the network keeps what it learns from a run."""
