"""`total += tl.dot(a, b)` is `tl.dot(a, b, total)`: the units add to what they hold, and no sum waits for a product to end."""

from __future__ import annotations

from collections import Counter

from .grammar import Block, Op, Value, walk


def into_products(body: Block) -> None:
    """Products from zero whose one use is a sum begin from what they are added to. Sums are in the product's own type, so that a tile which is converted
    in between, or used elsewhere, too, stays as it is."""
    uses: Counter[int] = Counter(id(v) for v in body.yields)
    blocks = [body]
    for op in walk(body):
        uses.update(map(id, op.operands))
        blocks += op.blocks
        uses.update(id(v) for b in op.blocks for v in b.yields)
    for block in blocks:
        gone: set[int] = set()
        for op in block.ops:
            dot = _product(op, block, uses) if op.name == "binary" and op.attrs["fn"] == "add" else None
            if dot is not None:
                (total,) = (v for v in op.operands if v is not dot.results[0])
                op.name, op.operands, op.attrs = "dot", (*dot.operands[:2], total), dot.attrs
                gone.add(id(dot))
        block.ops = [op for op in block.ops if id(op) not in gone]


def _product(add: Op, block: Block, uses: Counter[int]) -> Op | None:
    """The product that a sum adds, if it is the sum's alone, of the same block and from zero."""
    for v in add.operands:
        dot = v.of
        if dot is None or dot.name != "dot" or uses[id(v)] != 1 or not _is_zero(dot.operands[2]):
            continue
        if v.ty == add.results[0].ty and any(x is dot for x in block.ops):
            return dot
    return None


def _is_zero(v: Value) -> bool:
    """Whether a tile is of the constant 0."""
    op = v.of
    if op is None:
        return False
    if op.name in ("splat", "broadcast", "expand_dims", "reshape"):
        return _is_zero(op.operands[0])
    return op.name == "const" and op.attrs["value"] == 0


__all__ = ["into_products"]
