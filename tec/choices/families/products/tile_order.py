"""What a product's order of tiles costs beyond the dies' L2s, and the order that costs least.

Work-groups are dealt to the dies in turn. Row by row, the tiles that share rows of A or columns of B therefore run on different dies, and each die reads the shared operand from
the last cache again. In bands each die has a run of neighbours. The estimate counts the distinct rows and columns of the tiles that a die holds at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ....target import Machine, level_gbps

if TYPE_CHECKING:
    from .tilings import Shape, Tiling

LINE_BYTES = 128  # of the L2
BANDS = (1, 2, 3, 4, 5, 6, 7, 8, 16)  # rows of tiles that a default may have in a band


def lines(run_bytes: int, pitch_bytes: int) -> float:
    """Lines that a run of a row touches, of those that its bytes fill: rows whose length is no whole number of lines begin anywhere in one."""
    return (run_bytes + LINE_BYTES - math.gcd(pitch_bytes, LINE_BYTES)) / run_bytes


def touched(t: Tiling, shape: Shape, machine: Machine, held: int) -> tuple[float, float]:
    """`lines` of the tiles of A and of B, a step at a time, where a unit holds so many work-groups. What a step along the sum leaves of a line the next one takes: where the
    first cache keeps a line of each row until then, it is asked for once; and so are the elements that a window's next places along a row of the image have too, as far as it
    keeps those of a place."""
    level = machine.level("L1")
    kept = level is not None and 2 * held * (t.m + t.n) * LINE_BYTES <= level.size_bytes
    sides = zip(shape.along_k, (t.m, t.n), (shape.m, shape.n))
    a, b = (
        (1.0 if kept else lines(t.k * shape.bytes, shape.k * shape.bytes))
        if along_k
        else lines(tile * shape.bytes, size * shape.bytes)
        for along_k, tile, size in sides
    )
    again = [1.0, 1.0]
    for k, (tap, tile, apart) in enumerate(zip(shape.taps, (t.m, t.n), shape.distinct)):
        if tap and level is not None:
            share = min(1.0, level.size_bytes / (held * tile * tap * shape.bytes))
            again[k] = 1.0 - share * (1.0 - math.sqrt(apart))
    return a * again[0], b * again[1]


def _held_at_once(t: Tiling, high: int, wide: int, resident: int, dies: int) -> tuple[int, int]:
    """Rows and columns of tiles of `resident` tiles that a die holds at once, of `high` by `wide`."""
    if t.group_m:
        rows = min(t.group_m, high, resident)
        columns = min(wide, -(-resident // rows))
        return min(high, rows * -(-resident // (rows * columns))), columns
    # Of a row of fewer tiles than there are dies a die has one at most.
    return min(high, resident, -(-resident * dies // wide)), min(resident, wide // math.gcd(wide, dies))


def beyond_bytes(t: Tiling, shape: Shape, machine: Machine, held: int) -> float:
    """Bytes of operands that all dies ask for beyond their L2s, where a unit holds so many work-groups."""
    high, wide = -(-shape.m // t.m), -(-shape.n // t.n)
    tiles, dies = high * wide, machine.dies
    each = -(-tiles * shape.batch // dies)  # of a die
    resident = min(each, held * machine.units // dies)
    # Of one product at a time a die has all tiles where they go in bands, else as many as its turn gives it.
    own = min(resident, tiles if t.group_m else -(-tiles // dies))
    rows, columns = _held_at_once(t, high, wide, own, dies)
    pieces = []
    for along_k, tile, count, apart in zip(shape.along_k, (t.m, t.n), (rows, columns), shape.distinct):
        run = tile * (count if t.group_m or dies == 1 else 1) * shape.bytes  # neighbours on a die share lines
        whole = 1.0 if along_k else max(1.0, lines(run, LINE_BYTES // 2))
        # Windows overlap along an image's rows within a tile, across them with the neighbours of a die.
        pieces.append(tile * count * whole * (apart if t.group_m or dies == 1 else math.sqrt(apart)))
    each_time = sum(pieces) * shape.k * shape.bytes * max(1.0, resident / own)
    return dies * each / resident * each_time


def beyond_seconds(t: Tiling, shape: Shape, machine: Machine, held: int) -> float:
    """How long the next level takes for `beyond_bytes`."""
    level = "MALL" if machine.level("MALL") is not None else "memory"
    return beyond_bytes(t, shape, machine, held) / (level_gbps(machine, level) * 1e9)


def ordered(t: Tiling, shape: Shape, machine: Machine, held: int, bands: Iterable[int] = BANDS) -> Tiling:
    """The tiling in the order that asks for least beyond the L2s; as it is where the chip has one."""
    if machine.dies == 1 or not shape.padded or -(-shape.m // t.m) * -(-shape.n // t.n) == 1:
        return t
    high = -(-shape.m // t.m)
    ways = [t, *(replace(t, group_m=b) for b in bands if high % b == 0)]
    return min(ways, key=lambda x: beyond_bytes(x, shape, machine, held))
