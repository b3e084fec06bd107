"""Blocks under construction: statements in order, some of them open, which take all that follows in their block as their body.

For what writes loop IR front to back: `tec.te.ir_builder`, and kernels written as Python functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .stmt import NOP, Stmt, seq


class Open:
    """A statement whose body is all that follows in its block; `wrap(body)` makes it."""

    def __init__(self, wrap: Callable[[Stmt], Stmt]):
        self.wrap = wrap


def close(block: Sequence[Stmt | Open]) -> Stmt:
    """The statements of a block as one; open statements take what follows them as their body."""
    body: list[Stmt] = []
    for s in reversed(block):
        if isinstance(s, Open):
            body = [s.wrap(seq(*reversed(body)))]
        else:
            body.append(s)
    return seq(*reversed(body)) if body else NOP
