"""What an epilogue reads from memory (a residual, a bias), loaded into registers before the sums that it works on.

In: a kernel with a marked statement in no loop (on AMD's matrix units: the sums) and, behind it, nests of loops around one store that read global memory at places which only the loops' variables choose.
Out: the same loads in nests of their own ahead of the marked one, into registers. So they are under way while that waits for its first tiles, and its
end waits for none of them (4096 x 768 x 768 with a bias and a residual on one H200: 11.9 us for 13.1): a short product's time is one load's latency after another.
Nothing is moved where the values would not fit beside the sums, nor inside of a loop over tiles: there the first products of each tile would wait for the loads
(three tiles of 12 steps with a bias: 28.6 us for 24.1; between the last products' start and their end 27.5 for 26.1), nor what the kernel itself writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field

from ....records import dataclass
from ....target import Target
from ... import build as B
from ... import expr as E
from ... import stmt as S
from ...buffer import Buffer
from ...dtype import dtype_info
from ...effects import effects
from ...func import Func
from ...visit import any_expr, any_stmt, map_expr, map_stmt
from ..rewrite_util import clone, const_int
from .nest import Nest

# Of 32 bits a thread: what a product of few steps has beside its sums without losing work-groups of its unit.
_WORDS = 16


def hold_epilogue(func: Func, target: Target) -> Func:
    """Operands of epilogues in registers before the sums; see the module."""
    if target.kind != "rocm" or not any_stmt(func.body, _is_sum):
        return func

    def fs(s: S.Stmt) -> S.Stmt:
        if isinstance(s, S.Seq):
            at = [k for k, x in enumerate(s.stmts) if any_stmt(x, _is_sum)]
            if at and at[-1] + 1 < len(s.stmts):
                return hold_behind(s, at[-1], _WORDS)
        if isinstance(s, S.For) and s.kind != S.ForKind.THREAD:
            return s
        return map_stmt(s, fs, lambda e: e)

    return func.with_body(fs(func.body))


def _is_sum(s: S.Stmt) -> bool:
    return isinstance(s, S.BufferStore) and isinstance(s.value, E.Call) and s.value.op == "mma"


def hold_operands(body: S.Stmt, is_marked: Callable[[S.Stmt], bool], words: int) -> S.Stmt:
    """A kernel's body with what follows the marked statement reading registers, at most `words` of 32 bits a thread; else as it was."""
    if isinstance(body, S.Seq):
        at = next((k for k, x in enumerate(body.stmts) if any_stmt(x, is_marked)), None)
        if at is not None and is_marked(body.stmts[at]):
            return hold_behind(body, at, words, within=False)
    if isinstance(body, S.For) and body.kind == S.ForKind.SERIAL:
        return body
    return map_stmt(body, lambda x: hold_operands(x, is_marked, words), lambda e: e)


def hold_behind(seq: S.Seq, at: int, words: int, within: bool = True) -> S.Stmt:
    """The same of a list of statements, for those behind the one at `at`; `within`: for those that stand in a buffer's scope as well."""
    held = _Held(words, effects(seq).writes, within)
    out = [*seq.stmts[: at + 1], *(held.behind(s) for s in seq.stmts[at + 1 :])]
    if not held.ahead:
        return seq
    body: S.Stmt = S.seq(*held.ahead, *out)
    for b in held.buffers:
        body = S.Alloc(b, body)
    return body


@dataclass(slots=True)
class _Held:
    """What is loaded ahead, of at most `words`; `written`: buffers of the kernel whose values change."""

    words: int
    written: set[int]
    within: bool
    ahead: list[S.Stmt] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)

    def behind(self, s: S.Stmt) -> S.Stmt:
        """A statement behind the marked one, with the loads of its nests taken out."""
        if isinstance(s, S.Alloc) and self.within:
            return S.Alloc(s.buffer, self.behind(s.body), s.notes)
        if isinstance(s, S.Seq) and self.within:
            return S.seq(*(self.behind(x) for x in s.stmts))
        nest = _nest(s)
        if nest is None:
            return s
        count = math.prod(const_int(f.extent) or 0 for f in nest.loops)
        loads = [x for x in _loads(nest) if id(x.buffer) not in self.written]
        size = sum(count * dtype_info(x.buffer.dtype).bytes for x in loads) // 4
        if not loads or size > self.words:
            return s
        self.words -= size
        index = tuple([f.var for f in nest.loops])
        extents = tuple([B.const(const_int(f.extent) or 1) for f in nest.loops])
        for load in loads:
            held = Buffer(f"{load.buffer.name}_held", load.buffer.dtype, extents, (), 0, "local")
            self.buffers.append(held)
            self.ahead.append(clone(nest.with_inside(S.BufferStore(held, load, index)), {}))
            nest.store = _replaced(nest.store, load, E.BufferLoad(held, index))
        return nest.with_inside(nest.store)


def _nest(s: S.Stmt) -> Nest | None:
    """A nest whose loops begin at 0 and have some constant number of steps."""
    nest = Nest.of(s)
    return nest if nest and all(const_int(f.extent) and const_int(f.min) == 0 for f in nest.loops) else None


def _loads(nest: Nest) -> list[E.BufferLoad]:
    """Loads of global memory at places that no other load chooses, each once."""
    found: list[E.BufferLoad] = []

    def fe(e: E.Expr) -> E.Expr:
        if type(e) is E.BufferLoad and e.buffer.scope == "global" and e.predicate is None and not _reads(e.indices):
            found.append(e)
            return e
        if isinstance(e, E.Call) and e.op in ("if_then_else", "address_of", "access_ptr"):
            return e  # not read in any case
        return map_expr(e, fe)

    fe(nest.store.value)
    if any(_reads([x.cond]) for x in nest.around if isinstance(x, S.IfThenElse)) or nest.store.predicate is not None:
        return []
    return found


def _reads(exprs: tuple[E.Expr, ...] | list[E.Expr]) -> bool:
    """Whether expressions load."""
    return any(any_expr(e, lambda x: type(x) is E.BufferLoad) for e in exprs)


def _replaced(s: S.BufferStore, load: E.BufferLoad, by: E.Expr) -> S.BufferStore:
    def fe(e: E.Expr) -> E.Expr:
        return by if e is load else map_expr(e, fe)

    return S.BufferStore(s.buffer, fe(s.value), s.indices, s.predicate, s.loc)


__all__ = ["hold_epilogue", "hold_operands"]
