"""How often a loop of a plan runs, on every device."""

from __future__ import annotations

from ...errors import ArgumentError
from .plan import Repeat

MOST_TRIPS = 1 << 31  # of a loop that nothing else ends: years


def trips_of(step: Repeat, bound: int | None, count: int | None) -> int:
    """The trips of a loop by its sizes and by the number that it reads. ArgumentError for a number below 0, or one beyond all use."""
    if count is None:
        return MOST_TRIPS if bound is None else bound
    if count < 0:
        raise ArgumentError(
            f"a loop is asked for {count} trips", hint="its trip count is an input, or is worked out from one"
        )
    if step.going is None and step.start is None and count >= MOST_TRIPS:
        raise ArgumentError(
            f"a loop is asked for {count} trips, and has no condition that ends it", hint="give a trip count below 2^31"
        )
    return count if bound is None else min(count, bound)
