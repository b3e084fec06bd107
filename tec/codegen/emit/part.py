"""What a part of an emitter has at hand: the emitter, and the words of the text that it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...ir.func import Func
    from .emitter import Emitter


class Part:
    """One concern of an emitter (memory, arithmetic, ...). The writer's words are bound here once, so that a use looks up no more than a method's does;
    state of the text (`block`, `counter`, `out`) is the emitter's."""

    def __init__(self, em: Emitter):
        self.em = em
        self.expr, self.index = em.expr, em.index
        self.op, self.line, self.intrinsic, self.phi = em.op, em.line, em.intrinsic, em.phi
        self.label, self.place, self.branch, self.branch_if = em.label, em.place, em.branch, em.branch_if
        self.type_of, self.reg, self.mangle, self.is_soft = em.type_of, em.reg, em.mangle, em.is_soft
        self.splat, self.int_const, self.float_const, self.zero = em.splat, em.int_const, em.float_const, em.zero
        self.lanes_of, self.vector_of, self.vector_literal = em.lanes_of, em.vector_of, em.vector_literal
        self.broadcast_value = em.broadcast_value
        self.meta, self.int_meta, self.meta_distinct, self.expected = (
            em.meta,
            em.int_meta,
            em.meta_distinct,
            em.expected,
        )
        self.memo_mark, self.memo_release, self.memo_clear = em.memo_mark, em.memo_release, em.memo_clear
        self.error = em.error

    def begin(self, f: Func) -> None:
        """Forget the function before; `f` is written next."""
