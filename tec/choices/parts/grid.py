"""The order of tiles: which part of the result each work-group computes.

Work-groups run in the order of their numbers, so neighbours in number share operands in the second-level cache. Row by row (two dimensions of the grid) is enough where
that cache holds a row of tiles. In bands, tiles go down `band` rows of tiles, then along the columns; on a chip of several dies each die gets a run of them.
"""

from __future__ import annotations

from typing import Any

from ...ir import IterVar
from ...schedule import Stage
from ...te import thread_axis
from .threads import neighbours_on_a_die

_ONE_BAND = 6  # bands whose operands the second-level cache has at once


def count(tile: tuple[int, int], product: tuple[int, int], batch: int = 1) -> int:
    """Tiles of (rows, columns) that a product of (m, n) has, the last of each row and column perhaps partly empty."""
    return batch * -(-product[0] // tile[0]) * -(-product[1] // tile[1])


def even_band(rows: int, about: int) -> int:
    """Of `rows` rows of tiles as many as about so many go together, all bands alike: a band that reaches beyond the last row has all work of its kernel under conditions.
    Where no number near divides them, all rows are one band, or of many each is one."""
    near = [d for d in range(-(-about // 2), 2 * about + 1) if rows % d == 0]
    if about == 1 or not near:
        return rows if 1 < about and rows <= _ONE_BAND * about else 1
    return min(near, key=lambda d: abs(d - about))


class Tiles:
    """The tiles of a stage's result, `rows` by `columns`. `i` and `j` are the axes inside of a tile: a template splits them further, says the order of what it made
    of them (`nest`), and binds the tiles (`bind`)."""

    def __init__(self, stage: Stage, rows: int, columns: int):
        self.stage = stage
        *self.lead, i, j = stage.op.axis
        self.row, self.i = stage.split(i, factor=rows)
        self.column, self.j = stage.split(j, factor=columns)

    def nest(self, *inner: Any) -> None:
        """Tiles outermost, then `inner` in this order."""
        self.stage.reorder(*self.lead, self.row, self.column, *inner)

    def bind(self, band: int = 0, dies: int = 1, groups: int = 0) -> IterVar:
        """Tiles over work-groups, behind `nest`. band: rows of tiles that go together (0: row by row); dies: of the chip; groups: so many work-groups stay for all
        tiles (0: one a tile), in bands alone. Returns the axis at which a tile is made."""
        stage, lead = self.stage, self.lead
        together = band and (groups or dies > 1)  # products of a batch, or parts of a sum, in one run of tiles
        if lead and not together:
            stage.bind(stage.fuse(*lead), thread_axis("blockIdx.z"))
        if not band:
            stage.bind(self.row, thread_axis("blockIdx.y"))
            stage.bind(self.column, thread_axis("blockIdx.x"))
            return self.column
        far, near = stage.split(self.row, factor=band)
        stage.reorder(far, self.column, near)
        tile = at = stage.fuse(*(lead if together else ()), far, self.column, near)
        if groups:
            at, tile = stage.split(tile, factor=groups)
            stage.reorder(tile, at)
        else:
            at = tile = neighbours_on_a_die(stage, tile, None, dies)
        stage.bind(tile, thread_axis("blockIdx.x"))
        return at
