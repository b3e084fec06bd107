"""What becomes of a product's sums: each of these ends takes any main loop, which makes a tile of them.

stored     each tile as it is summed up; what follows elementwise works on the sums where they lie
added      the sum in parts: work-groups store theirs, and a second kernel adds them up and goes on with what follows
shared     the sum in parts of one work-group, which meet in shared memory and are added up there
met        a tile in shared memory, for whatever reads it next: a fold of its rows, say (`families.products.row_folds`)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from ... import te
from ...ir import IterVar
from ...ir.dtype import dtype_info
from ...ops.contraction import Contraction
from ...schedule import Schedule, Stage
from ...te import ComputeOp, Tensor
from ..cost import Kernel
from ..group import Group
from . import copies, grid, padding, split_k
from .grid import Tiles
from .operands import Begun, begin_with
from .padding import Turns
from .staging import deal
from .threads import bind_all

MET = "met"  # the tag of sums that meet in shared memory, parts of them as a first dimension
PIECE = 4  # neighbours of a row of sums that a thread adds up at once, where their parts meet: 16 bytes


class Mainloop(ABC):
    """What makes a tile of sums: how its operands come, its ring, what multiplies."""

    on_matrix_units: ClassVar[bool]  # else vector units multiply
    called: ClassVar[str] = ""  # what sets it apart from others of its tile

    @property
    @abstractmethod
    def tile(self) -> tuple[int, int, int]:
        """Rows and columns of the tile, and terms of the sum in a step."""

    @property
    def name(self) -> str:
        """Of a main loop among those for one product."""
        return f"{self.tile[0]}x{self.tile[1]}{self.called}"

    @property
    @abstractmethod
    def threads(self) -> list[tuple[IterVar, int]]:
        """A work-group's threads, each axis with how many there are; neighbours are the first's."""

    @abstractmethod
    def schedule(self, s: Schedule, product: ComputeOp, out: ComputeOp) -> None:
        """Schedule the sums, and `out`, which ends in them elementwise: it is tiled over work-groups, but for one of tag `MET`, whose reader is."""

    def operands(self, c: Contraction) -> Contraction:
        """The product as its tiles hold it."""
        return c

    def turns(self, c: Contraction) -> Turns:
        """How operands are turned round on their way."""
        return None, None

    def over_threads(self, stage: Stage, loop: IterVar, count: int) -> tuple[Any, Any]:
        """A loop of so many pieces of work over the work-group's threads, of which a small tile has fewer pieces: what is left of it, and the last thread's axis."""
        threads = []
        for thread, n in self.threads:
            threads.append((thread, min(n, count)))
            count //= min(n, count)
        return deal(stage, loop, threads)

    def padded(self, c: Contraction) -> Tensor:
        """A product, or a part of its sum, over whole tiles."""
        return padding.padded(self.operands(c), self.tile, self.turns(c))


def sketch(loop: Mainloop, c: Contraction) -> Kernel:
    """What making all tiles asks of a machine: each brings its operands a step at a time. Where the sums go is not counted."""
    (m, n, k, batch), (rows, columns, step) = padding.sizes(c), loop.tile
    groups, steps, threads = (
        grid.count((rows, columns), (m, n), batch),
        -(-k // step),
        math.prod(n for _, n in loop.threads),
    )
    brought = groups * steps * (rows + columns) * step * dtype_info(c.a.dtype).bytes
    macs = groups * steps * rows * columns * step
    each = (0.0, macs) if loop.on_matrix_units else (macs / groups / threads, 0.0)
    return Kernel(groups, threads, asked_bytes=brought, scratch_bytes=brought, issued=each[0], matrix=each[1], waits=steps, dtype=c.a.dtype)  # fmt: skip


def product_of(result: Tensor) -> ComputeOp:
    """The sums that a padded product (`padding.padded`) copies."""
    product = result.op.inputs[0].op
    assert isinstance(product, ComputeOp)
    return product


def as_they_lie(loop: Mainloop, group: Group, op: ComputeOp) -> Begun:
    """A product of operands as they lie in memory, each tile stored."""
    begun = begin_with(group)
    loop.schedule(begun.s, op, begun.out)
    return begun


def stored(loop: Mainloop, group: Group, c: Contraction, result: Tensor, sides: str = "") -> Begun:
    """sides: operands that are copied first (`copies`)."""
    c, ahead = copies.copied(c, sides)
    made = loop.padded(c)
    begun = begin_with(group, result, made, [t.op for t in ahead])
    copies.schedule(begun.s, ahead)
    loop.schedule(begun.s, product_of(made), begun.out)
    return begun


def added(loop: Mainloop, group: Group, c: Contraction, result: Tensor, parts: int, sides: str = "") -> Begun:
    """A batch of products over `parts` of the sum, as many elements as there are; the last part may have fewer terms. sides: as in `stored`."""
    c, ahead = copies.copied(c, sides)
    each = loop.padded(padding.part(c, parts, loop.tile[2]))
    begun = begin_with(group, result, _total(each, parts, c), [each.op, *(t.op for t in ahead)])
    copies.schedule(begun.s, ahead)
    product = product_of(each)
    assert isinstance(each.op, ComputeOp)
    loop.schedule(begun.s, product, each.op)
    split_k.end(begun.s, begun.group, product, bind_all(begun.s, begun.out))
    return begun


def added_tiles(loop: Mainloop, group: Group, result: Tensor, total: Tensor) -> Begun:
    """The same of a `total` whose parts are whole tiles of sums (`padding.padded`, `split_k.sums`)."""
    begun = begin_with(group, result, total)
    (product,) = (o for o in begun.group.reductions() if o.tag in ("tiled_product", "part"))
    split_k.schedule_total(begun.s, begun.group, product)
    loop.schedule(begun.s, product, product)
    return begun


def shared(loop: Mainloop, group: Group, c: Contraction, result: Tensor, parts: int, group_m: int, dies: int) -> Begun:
    """A part of the sum for some of a work-group's threads. group_m, dies: the order of tiles (`grid.Tiles.bind`)."""
    product, each = met(loop, c, parts, loop.turns(c))
    begun = begin_with(group, result, _total(each, parts, c), [each.op])
    s, (rows, columns, _) = begun.s, loop.tile
    final = s[begun.out]
    tiles = Tiles(final, rows, columns)
    tiles.nest(tiles.i, tiles.j)
    at = tiles.bind(group_m, dies)
    rest, piece = final.split(final.fuse(tiles.i, tiles.j), factor=PIECE)
    rest, thread = loop.over_threads(final, rest, rows * columns // PIECE)
    final.unroll(rest)
    final.vectorize(piece)
    s[each].set_scope("shared")
    s[each].compute_at(final, at)
    split_k.end(s, begun.group, product, thread)
    assert isinstance(each.op, ComputeOp)
    loop.schedule(s, product, each.op)
    return begun


def met(loop: Mainloop, c: Contraction, parts: int = 1, turns: Turns = (None, None)) -> tuple[ComputeOp, Tensor]:
    """The padded product of a work-group whose sums meet in shared memory, in so many parts, and the tensor there: the parts are its first axis."""
    part = padding.part(c, parts, loop.tile[2], in_turn=True)
    return copied(product_of(padding.padded(loop.operands(part), loop.tile, turns)).output(0))


def copied(product: Tensor) -> tuple[ComputeOp, Tensor]:
    """A product, and a copy of it nearby, for what follows to read."""
    assert isinstance(product.op, ComputeOp)
    return product.op, te.compute(product.shape, lambda *i: product(*i), name="met", tag=MET)


def _total(parts: Tensor, count: int, c: Contraction) -> Tensor:
    return split_k.total(parts, count, (*c.batch, c.m, c.n), c.out_dtype)
