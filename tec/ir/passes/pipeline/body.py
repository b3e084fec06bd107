"""The body of a pipelined loop, taken apart: the storage around its statements, the statements in order, and how they look in one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from ....records import dataclass
from ... import expr as E
from ... import stmt as S
from ...buffer import Buffer
from ...notes import FragmentsAhead
from ..rewrite_util import clone, named_buffers, redirected


@dataclass(slots=True)
class Body:
    """`parts`: the statements; `allocs` and `attrs` stand around them, outermost first, `around` has both in order."""

    around: list[S.Alloc | S.Attr] = field(default_factory=list)
    parts: list[S.Stmt] = field(default_factory=list)

    @property
    def allocs(self) -> list[S.Alloc]:
        return [w for w in self.around if isinstance(w, S.Alloc)]

    @staticmethod
    def of(s: S.Stmt) -> Body:
        """Alloc(a, Seq(fill a, Alloc(b, Seq(fill b, work)))): one list of statements, and what is around them."""
        out = Body()
        while True:
            if isinstance(s, S.Alloc) or (isinstance(s, S.Attr) and not isinstance(s.note, FragmentsAhead)):
                out.around.append(s)
                s = s.body
            elif isinstance(s, S.Seq):
                out.parts.extend(s.stmts[:-1])
                s = s.stmts[-1]
            else:
                out.parts.append(s)
                return out

    def in_step(
        self, loop: S.For, stmts: Sequence[S.Stmt], step: E.Expr, slots: Mapping[int, Buffer], slot: E.Expr, out: Sequence[Buffer] = ()
    ) -> S.Stmt:  # fmt: skip
        """Some of the statements for one step of the loop, within what stands around them. Buffers of `slots` (by id) are read and written in their slot;
        neither they nor those of `out` are allocated here."""
        s = clone(S.seq(*stmts), {})
        named = named_buffers(s) if self.allocs else set()
        outside = {*slots, *map(id, out)}
        for w in reversed(self.around):
            if isinstance(w, S.Attr):
                s = S.Attr(w.note, s)
            elif id(w.buffer) in named and id(w.buffer) not in outside:
                s = S.Alloc(w.buffer, s, w.notes)
        return redirected(clone(s, {loop.var: step}), slots, slot)
