"""The memory that a model may take: its weights and code when it is loaded, and the working memory of each run, by the sizes of its requests."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from ..errors import ArgumentError
from ..runtime.networks.network import Network
from .errors import Refusal

_KEPT = 1024  # working memory is worked out once for each set of sizes; these are kept


class Budget:
    """`limit` bytes for a network, of which as many as `threads` runs at the same time share what weights and code leave. Raises Refusal (400) where these, or a run of
    known sizes, do not fit."""

    def __init__(self, network: Network, limit: int, threads: int = 1):
        self.network, self.limit, self.threads = network, limit, max(1, threads)
        self.held = sum(int(p.nbytes) for p in network.params.values()) + len(network.get_binary())
        self._names = network.open_sizes
        self._known: OrderedDict[tuple[int, ...], int] = OrderedDict()
        least = self._working({}) if not self._names else 0
        if self.held + least * self.threads > limit:
            raise Refusal(400, f"it takes {self.held + least * self.threads} bytes, {limit} are allowed")

    def fits(self, sizes: Mapping[str, int]) -> bool:
        """Whether a run for these sizes has its memory."""
        return self.held + self._working(sizes) * self.threads <= self.limit

    def check(self, sizes: Mapping[str, int]) -> None:
        """Raise Refusal (413) for a request whose sizes take too much."""
        if not self.fits(sizes):
            said = ", ".join(f"{n} {sizes[n]}" for n in self._names)
            left = (self.limit - self.held) // self.threads
            raise Refusal(
                413,
                f"a run for {said} takes {self._working(sizes)} bytes, {left} of the model's memory are left for it",
            )

    def _working(self, sizes: Mapping[str, int]) -> int:
        key = tuple([sizes.get(n, 1) for n in self._names])
        found = self._known.get(key)
        if found is None:
            arena = self._arena(dict(zip(self._names, key)))
            found = self._known[key] = arena
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return found

    def _arena(self, sizes: dict[str, int]) -> int:
        """Bytes of working memory for sizes; 0 where they cannot be told ahead: the run then says what is wrong with them."""
        if self.network.plan.growing:
            return 0
        try:
            arena = self.network.bind(sizes).plan.arena_bytes if sizes else self.network.plan.arena_bytes
        except ArgumentError:
            return 0
        return arena if isinstance(arena, int) else 0
