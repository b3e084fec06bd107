"""How tiles of unequal length are dealt to multiprocessors: what the one with most of them has to do."""

from __future__ import annotations

from functools import lru_cache

import numpy as np


@lru_cache(maxsize=1 << 10)
def longest(
    blocks: tuple[int, ...], lines: int, is_sorted: bool, units: int, resident: int, stay: bool
) -> tuple[int, int, int]:
    """(blocks of keys and tiles of the unit with the most blocks, blocks of the longest tile).

    blocks: of the tiles of one head, in the order they begin in; lines: heads of all batch entries; is_sorted: heads go side by side rather than one behind
    the other; units: multiprocessors; resident: work-groups that each holds at once. stay: work-groups stay and take every so many-th tile, there and
    back; else a tile goes to the unit that has least left.
    """
    one = np.array(blocks, np.int64)
    work = np.repeat(one, lines) if is_sorted else np.tile(one, lines)
    load, tiles = np.zeros(units, np.int64), np.zeros(units, np.int64)
    for round_, first in enumerate(range(0, len(work), units)):
        part = work[first : first + units]
        if stay:
            to = np.arange(units)[:: -1 if round_ % 2 else 1]
        else:
            to = np.arange(units) if round_ < resident else np.argsort(load, kind="stable")
        load[to[: len(part)]] += part
        tiles[to[: len(part)]] += 1
    most = int(load.argmax())
    return int(load[most]), int(tiles[most]), int(one.max())
