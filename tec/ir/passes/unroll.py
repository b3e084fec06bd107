"""Repeat the bodies of loops: those asked for, and those whose repetition turns arrays into registers.

Unrolled are loops of kind "unrolled" with constant extent; serial loops under a pragma `auto_unroll_max_step` as long as
the repeated body stays below that many steps (`unroll_explicit` false only marks them for the code generator); and on a
GPU short serial loops that index memory of a thread (scope "local" or a fragment), which lives in registers only where
every index is a constant. On CDNA LLVM leaves the loop around steps that are written out as it is: these ask for their
loads at once, and of more of them in one block its scheduler for gfx950 put each load before its use. A loop of kind
"unrolled" whose extent is not constant, or which would become more than `_MAX_EXPLICIT` statements, stays a loop, marked
for the code generator (annotation "unroll"); the latter with a TecWarning.

What loops under a pragma become is bounded in all by `MOST_WRITTEN` statements a function: LoweringError.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

from ...errors import LoweringError, TecWarning
from ...target import Target
from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..arith import Analyzer
from ..func import Func
from ..notes import AutoUnrollMaxExtent, AutoUnrollMaxStep, Note, UnrollExplicit
from ..visit import any_expr, any_stmt, map_stmts
from .rewrite_util import clone, const_int, first_place, stmt_size, uses_var

_MAX_EXPLICIT = 1 << 14  # statements that an unrolled loop may become
# Statements that a function's loops may become by pragmas. All passes take 0.08 ms of processor time a statement of one addition (16,384 of them, 1.3 s), ten times
# that where expressions are long, and LLVM as much again: a minute at the bound. Templates stay below 4,096 (`choices.proof`).
MOST_WRITTEN = 1 << 16
_MAX_REGISTER_STEPS = 1024
_MAX_REGISTER_EXTENT = 64


class _Options:
    __slots__ = ("explicit", "keeps_loops", "max_extent", "max_step")

    def __init__(self, keeps_loops: bool, max_step: int = 0, explicit: bool = True, max_extent: int = 1 << 30):
        self.keeps_loops = keeps_loops
        self.max_step = max_step
        self.explicit = explicit
        self.max_extent = max_extent

    def with_note(self, note: Note) -> _Options:
        out = _Options(self.keeps_loops, self.max_step, self.explicit, self.max_extent)
        if isinstance(note, AutoUnrollMaxStep):
            out.max_step = note.steps
        elif isinstance(note, AutoUnrollMaxExtent):
            out.max_extent = note.extent
        elif isinstance(note, UnrollExplicit):
            out.explicit = note.explicit
        return out


_NOTES = (AutoUnrollMaxStep, AutoUnrollMaxExtent, UnrollExplicit)


def unroll(func: Func, target: Target) -> Func:
    """The function with its unrolled loops written out; see the module."""
    return func.with_body(
        _stmt(func.body, _Options(target.kind == "rocm" and target.wavefront_size == 64), target.is_gpu)
    )


def _stmt(s: S.Stmt, options: _Options, gpu: bool) -> S.Stmt:
    if isinstance(s, S.Attr) and isinstance(s.note, _NOTES):
        return _stmt(s.body, options.with_note(s.note), gpu)
    if isinstance(s, S.For):
        body = _stmt(s.body, options, gpu)
        return _loop(s, body, options, gpu)
    return map_stmts(s, lambda x: _stmt(x, options, gpu))


def _loop(loop: S.For, body: S.Stmt, options: _Options, gpu: bool) -> S.Stmt:
    """A loop written out where it asks for it or is short enough; else the loop, with what LLVM is to do with it."""
    extent = const_int(loop.extent)
    if loop.kind == S.ForKind.UNROLLED:
        if extent is not None and extent * max(1, stmt_size(body)) <= _MAX_EXPLICIT:
            return repeat(loop.var, loop.min, extent, body)
        if extent is not None:
            _warn(loop, extent, stmt_size(body))
        return replace(loop, body=body, kind=S.ForKind.SERIAL, unroll=1)
    if loop.kind == S.ForKind.SERIAL and extent is not None:
        steps = extent * max(1, stmt_size(body))
        if 0 < steps <= options.max_step and extent <= options.max_extent:
            if options.explicit:
                if steps > MOST_WRITTEN:
                    raise LoweringError(
                        f"auto_unroll_max_step={options.max_step:,} would write loop {loop.var.name} of {extent:,} steps out as {steps:,} statements; "
                        f"{MOST_WRITTEN:,} are the most",
                        where=first_place(body),
                        locate=False,
                        hint="give fewer steps, split the loop and put the pragma on the inner part, or set unroll_explicit to False: LLVM then unrolls as it sees fit",
                    )
                return repeat(loop.var, loop.min, extent, body)
            return replace(loop, body=body, unroll=1)
        if (
            gpu
            and extent <= _MAX_REGISTER_EXTENT
            and steps <= _MAX_REGISTER_STEPS
            and _indexes_registers(loop.var, body)
        ):
            return repeat(loop.var, loop.min, extent, body)
        if extent == 1:
            return repeat(loop.var, loop.min, 1, body)
    if options.keeps_loops and loop.kind == S.ForKind.SERIAL and not loop.unroll and _is_of_written_steps(loop.body):
        return replace(loop, body=body, unroll=1)
    if body is loop.body:
        return loop
    return loop.with_body(body)


def _warn(loop: S.For, extent: int, size: int) -> None:
    place = first_place(loop.body)
    warnings.warn(
        f"loop {loop.var.name} of {extent:,} steps is not unrolled: it would become {extent * max(1, size):,} statements, and {_MAX_EXPLICIT:,} are the most"
        + (f"\n  at {place}" if place is not None else "")
        + "\n  hint: split it, and unroll the inner part",
        TecWarning,
        stacklevel=2,
    )


def repeat(var: E.Var, lo: E.Expr, extent: int, body: S.Stmt) -> S.Stmt:
    """`body` once for each value of `var`, in order."""
    return S.seq(*[clone(body, {var: B.add(lo, k)}) for k in range(extent)])


def _indexes_registers(var: E.Var, body: S.Stmt) -> bool:
    def indexes(x: Any) -> bool:
        return _in_registers(x.buffer.scope) and any(uses_var(i, var) for i in x.indices)

    loads = any_expr(body, lambda e: type(e) is E.BufferLoad and indexes(e))
    return loads or any_stmt(body, lambda s: isinstance(s, S.BufferStore) and indexes(s))


def _is_of_written_steps(body: S.Stmt) -> bool:
    """Whether it is a loop that is written out, whose steps load what does not lie side by side: elements that do become one load, of which LLVM may write out more."""
    if not isinstance(body, S.For) or body.kind != S.ForKind.UNROLLED:
        return False
    var = body.var

    def lies_apart(e: E.Expr) -> bool:
        if type(e) is not E.BufferLoad or e.buffer.scope != "global" or not uses_var(e.indices[-1], var):
            return False
        step = Analyzer().detect_linear(e.indices[-1], [var])
        return step is None or const_int(step[0]) != 1

    return any_expr(body.body, lies_apart)


def _in_registers(scope: str) -> bool:
    return scope == "local" or scope.startswith("fragment")
