"""What extents a tile of a product has: the one rule of all templates that part a result of `m` rows and `n` columns among work-groups.

A split makes no loop longer than what there is (`schedule.relations.Split`), but for loops that threads of a given number or an instruction take: these stay
whole (`schedule.show.fixed_loops`), and what lies beyond the product is guarded. So a tile may have as many rows and columns as the product, each filled up to
the smallest part that threads or an instruction take whole. What a template says beside this is about registers, memory and time.
"""

from __future__ import annotations

THREAD_PART = (
    32  # rows or columns of the smallest tile by threads: runs of four elements by eight threads, or two blocks of 16
)


def filled(size: int, part: int) -> int:
    """`size` rows or columns, filled up to whole parts."""
    return -(-size // part) * part


def why_not_tile(tile: tuple[int, int], product: tuple[int, int], part: tuple[int, int] = (1, 1)) -> str | None:
    """Why a tile of (rows, columns) is none of a product of (m, n) whose parts of (rows, columns) are taken whole; None where it is one."""
    if any(have > filled(size, p) for have, size, p in zip(tile, product, part)):
        m, n = product
        return f"the product has {m} rows and {n} columns"
    return None


__all__ = ["THREAD_PART", "filled", "why_not_tile"]
