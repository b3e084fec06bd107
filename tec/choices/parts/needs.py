"""What the pieces of a product need of a tile and a machine. Each function gives the reason in words where there is less, None where there is enough; `first` joins them.

Extents: a split makes no loop longer than what there is (`schedule.relations.Split`), but for loops that threads of a given number or an instruction take: these stay
whole (`schedule.show.fixed_loops`), and what lies beyond the product is guarded. So a tile may have as many rows and columns as the product, each filled up to
the smallest part that threads or an instruction take whole.
"""

from __future__ import annotations

from collections.abc import Iterable

# Rows or columns of the smallest tile by threads: runs of four elements by eight threads, or two blocks of 16.
THREAD_PART = 32


def first(*reasons: str | None) -> str | None:
    """The first reason that there is."""
    return next((r for r in reasons if r is not None), None)


def filled(size: int, part: int) -> int:
    """`size` rows or columns, filled up to whole parts."""
    return -(-size // part) * part


def extents(tile: tuple[int, int], product: tuple[int, int], part: tuple[int, int] = (1, 1)) -> str | None:
    """A tile of (rows, columns) is one of a product of (m, n) whose parts of (rows, columns) are taken whole."""
    if any(have > filled(size, p) for have, size, p in zip(tile, product, part)):
        m, n = product
        return f"the product has {m} rows and {n} columns"
    return None


def parts_of(size: int, options: Iterable[int], part: int) -> tuple[int, ...]:
    """Those rows or columns of a tile that a product of `size` has, whose parts are taken whole."""
    return tuple(n for n in options if n <= filled(size, part))


def dealt(pieces: Iterable[int], threads: int, what: str = "elements") -> str | None:
    """All threads have as many pieces of each."""
    if any(n % threads for n in pieces):
        return f"{threads} threads have not all as many {what}"
    return None


def shared_memory(bytes_: int, most: int) -> str | None:
    """A work-group's tiles fit the shared memory that it may have."""
    return f"{bytes_} bytes of shared memory of {most}" if bytes_ > most else None


def sums(registers: int, most: int) -> str | None:
    """The sums of a thread leave it registers for what it multiplies."""
    return f"{registers} registers of a thread for the sums alone" if registers > most else None
