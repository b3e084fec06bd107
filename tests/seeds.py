"""Where drawn tests begin to draw. The gate draws the same cases each time; `make night` draws others each night.

TEC_SEED is unset or 0 at the gate. A night's is its date (20270131), so each night's seeds are their own; it stands at the head of the run and behind each
failure, and the same number draws the same cases again:

    TEC_SEED=20270131 pytest tests/fuzz/test_schedules.py

A test asks `first(n)` for the first of its seeds, `some(n)` for a range of them, or `stream(text)` for the text that a generator is seeded with; all
leave what the gate draws as it was. Hypothesis gets the night's number from `tests/conftest.py`.
"""

from __future__ import annotations

import os

STRIDE = 1_000_000  # between the seeds of one night and the next; no test draws as many
LAST = 2**31 - 1  # what generators of every library take


def number() -> int:
    """TEC_SEED; 0 where it is not set. ValueError where it is no number of at least 0."""
    text = os.environ.get("TEC_SEED", "").strip() or "0"
    if not text.isdecimal():
        raise ValueError(f"TEC_SEED is {text!r}; it is a whole number of at least 0, such as a date: 20270131")
    return int(text)


def first(n: int = 0) -> int:
    """The first seed of a test whose first seed at the gate is `n`."""
    return n if number() == 0 else n + number() * STRIDE % (LAST - 10 * STRIDE)


def some(n: int, start: int = 0) -> range:
    """`n` seeds, which at the gate begin at `start`."""
    return range(first(start), first(start) + n)


def stream(text: object) -> str:
    """What seeds a generator that the gate seeds with `text`."""
    return f"{text}" if number() == 0 else f"{text} of {number()}"


def said() -> str:
    """The environment that draws this run's cases again; "" at the gate."""
    return f"TEC_SEED={number()}" if number() else ""
