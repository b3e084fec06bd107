"""What one thread asks for: the numbers that a footprint adds up over a kernel's statements."""

from __future__ import annotations

from ..records import dataclass


@dataclass(slots=True)
class Counts:
    """Of one thread."""

    loads: float = 0.0
    asked: float = 0.0
    scratch: float = 0.0
    issued: float = 0.0
    matrix: float = 0.0
    waits: float = 0.0
    barriers: float = 0.0
    copied: float = 0.0
    under_way: int = 0  # loads since the last that was waited for: of a straight line
    narrow: float = 0.0  # bytes of stores in pieces of segments

    def plus(self, o: Counts) -> Counts:
        """One after the other: loads of both are under way together where nothing stands between."""
        total = Counts()
        total.add(self)
        total.add(o)
        return total

    def add(self, o: Counts) -> None:
        """`plus` in place, of counts that nothing else holds: a tile that is written out has thousands of statements."""
        together = bool(self.under_way and o.under_way)
        self.loads += o.loads
        self.asked += o.asked
        self.scratch += o.scratch
        self.issued += o.issued
        self.matrix += o.matrix
        self.waits += o.waits - together
        self.barriers += o.barriers
        self.copied += o.copied
        self.under_way = 0 if o.barriers else max(self.under_way, o.under_way)
        self.narrow += o.narrow

    def times(self, n: float, waits: float) -> Counts:
        """A loop's; `waits`: trips that wait for themselves."""
        return Counts(
            self.loads * n, self.asked * n, self.scratch * n, self.issued * n, self.matrix * n, self.waits * waits, self.barriers * n, self.copied * n,
            narrow=self.narrow * n,
        )  # fmt: skip
