"""Products whose operands are padded tiles: the form of a contraction that reaches shared memory on a GPU.

An operand is a stage of its own, tagged "tile": zero outside of the real operand, its extents multiples of the tile. A schedule computes it piece by
piece in shared memory and never stores it whole. So the product's loops carry no guards; only the store of the result does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ... import te
from ...ir import Expr
from ...ops.contraction import Contraction, Element, Operand
from ...ops.dims import Size, divisor, is_symbolic, round_up
from ...ops.typical import typical
from ...target import Target
from ...te import Tensor
from ...te.like import Index
from . import split_k

Block = tuple[int, int]  # of an operand that a thread turns round: along its rows, along the sum
Turns = tuple[Block | None, Block | None]  # of both operands


def sizes(c: Contraction) -> tuple[int, int, int, int]:
    """(m, n, k, batch) as numbers: of symbolic ones, what they are likely to be."""
    return typical(c.m), typical(c.n), typical(c.k), typical(math.prod(c.batch))


def guarded(c: Contraction) -> bool:
    """Whether elements come under conditions."""
    return c.a.guarded or c.b.guarded or is_symbolic((c.m, c.n, c.k))


def run(c: Contraction, o: Operand) -> int:
    """Neighbours of an operand that one access may bring: that lie side by side in every row."""
    return _run(o, o.pitch or (c.k if o.k_last else c.m if o is c.a else c.n))


def _run(o: Operand, row: Size) -> int:
    return o.run() if o.anywhere and not o.guarded else math.gcd(o.run(), divisor(row))


def anywhere(c: Contraction, target: Target) -> Contraction:
    """The product as the target's loads see it, which may begin at any element."""
    if not target.chip.loads_anywhere:
        return c
    return replace(c, a=replace(c.a, anywhere=True), b=replace(c.b, anywhere=True))


def can_turn(c: Contraction, o: Operand, rows: Size, tile: int, step: int) -> bool:
    """Whether an operand that lies along its rows or columns can be turned round on its way: elements that come one by one always, more at once without conditions, in whole tiles but
    where loads begin anywhere."""
    if o.k_last or is_symbolic((rows, c.k)):
        return False
    return o.run() == 1 or (not o.guarded and (o.anywhere or not (rows % tile or c.k % step)))


def terms(k: int, splits: int, step: int) -> int:
    """Terms of one of `splits` parts of a sum, in whole steps: the last part may have fewer."""
    return -(-k // (splits * step)) * step


def part(c: Contraction, splits: int, step: int, in_turn: bool = False) -> Contraction:
    """The product with its sum in `splits` parts of as many whole steps, which are its first batch dimension, in the type of the sums. What is beyond the sum is 0.
    in_turn: the parts take a step each in turn; else each takes its own in one piece."""
    assert isinstance(c.k, int)
    each = terms(c.k, splits, step)

    def operand(o: Operand) -> Operand:
        terms = o.pitch if o.k_last and o.pitch else c.k
        assert isinstance(terms, int)

        def at(batch: list[Expr], i: Expr, k: Expr) -> Any:
            first, *rest = batch
            place = (k // step * splits + first) * step + k % step if in_turn else first * each + k
            value = o.at(rest, i, place)
            return value if splits * each == terms else te.if_then_else(place < terms, value, te.const(0, o.dtype))

        own = 0 if o.k_last else o.pitch
        return replace(o, at=at, wide=lambda: _run(o, terms) if o.k_last else o.run(), pitch=own)

    return replace(c, batch=(splits, *c.batch), k=each, a=operand(c.a), b=operand(c.b), out_dtype=c.acc)


def padded(c: Contraction, tile: tuple[int, int, int], turns: Turns = (None, None), parts: int = 1) -> Tensor:
    """The product over tiles of (rows, columns, step) as a guarded copy of a padded product. `turns`: operands that threads turn round. `parts`: the
    sum is one of so many sums, which are stored."""
    tm, tn, tk = tile
    # From here on a turned operand is [i, k] like any other.
    a, b = (replace(o, k_last=True, wide=1) if block else o for o, block in zip((c.a, c.b), turns))
    tk *= parts  # of the padding alone
    left, right = _operand(c, a, c.m, tm, tk, turns[0], "left"), _operand(c, b, c.n, tn, tk, turns[1], "right")
    depth = round_up(c.k, tk) // parts

    def x(lead: Sequence[Any], i: Index, k: Any) -> Any:
        return left(*lead, *((i, k) if a.k_last else (k, i)))

    def y(lead: Sequence[Any], j: Index, k: Any) -> Any:
        return right(*lead, *((j, k) if b.k_last else (k, j)))

    shape = (*c.batch, round_up(c.m, tm), round_up(c.n, tn))
    made = split_k.sums(shape, depth, parts, x, y, c.acc, "part" if parts > 1 else "product", "tiled_product")
    if parts > 1:
        each, q = made, te.reduce_axis((0, parts), "q")
        made = te.compute((*c.batch, c.m, c.n), lambda *i: te.sum(each(q, *i), axis=q), name="total")
    result: Tensor = te.compute((*c.batch, c.m, c.n), lambda *i: made(*i).astype(c.out_dtype), name="result")
    return result


def _operand(c: Contraction, o: Operand, rows: Size, tile: int, step: int, turn: Block | None, name: str) -> Tensor:
    more = {"turn": turn} if turn else {}
    if o.k_last:
        return _tile(c, rows, o.pitch or c.k, (tile, step), o.at, o, name, more)
    return _tile(c, c.k, o.pitch or rows, (step, tile), lambda i, r, k: o.at(i, k, r), o, name, {})


def _tile(
    c: Contraction,
    rows: Size,
    cols: Size,
    tile: tuple[int, int],
    element: Element,
    o: Operand,
    name: str,
    more: dict[str, Any],
) -> Tensor:
    """An operand as a padded stage over (batch..., rows, cols); `wide` neighbours of a row lie side by side in memory."""
    shape = (*c.batch, round_up(rows, tile[0]), round_up(cols, tile[1]))

    def body(*i: Any) -> Any:
        *b, r, k = i
        conds = [r < rows] * (shape[-2] != rows) + [k < cols] * (shape[-1] != cols)
        value = element(b, r, k)
        return te.if_then_else(te.all(*conds), value, te.const(0, o.dtype)) if conds else value

    tiled: Tensor = te.compute(shape, body, name=name, tag="tile", attrs={"wide": _run(o, cols), **more})
    return tiled
