"""Where a CPU's threads are worth starting: one figure, and what an element of each kind of work takes of a core.

A parallel loop on tec's waiting threads starts and ends within some microseconds: they sleep where there was nothing to do for a while, and all must be
done before the next step. Work of less than that on one core is over sooner.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ..target.cpus import THREADS_START_CLOCKS

START_SECONDS = THREADS_START_CLOCKS / 3e9
# Clocks of a core for one element (times the length of its sum).
POINTWISE = 0.5  # loads, some arithmetic and a store, in vectors
ROWS = 2.0  # several passes over a row, with an exponential or a root in them


def worth(clocks: float) -> bool:
    """Whether work of so many clocks on one core is worth starting threads."""
    return clocks >= THREADS_START_CLOCKS


# Elements that a value of symbolic sizes is taken to have: so many that threads are worth starting, unless the caller knows better.
_OPEN: ContextVar[int] = ContextVar("open_elements", default=1 << 30)


def open_elements() -> int:
    """Elements of a value whose sizes are symbolic, for the choice of threads."""
    return _OPEN.get()


@contextmanager
def expecting(elements: int) -> Iterator[None]:
    """Symbolic sizes stand for values of about so many elements meanwhile."""
    token = _OPEN.set(elements)
    try:
        yield
    finally:
        _OPEN.reset(token)
