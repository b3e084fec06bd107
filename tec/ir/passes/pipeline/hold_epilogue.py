"""Loads of a product's epilogue (a bias, a residual) ahead of its sums, on AMD's matrix units.

In: a kernel that makes sums on a matrix unit outside of loops over tiles. Out: what the nests behind the sums read from global memory is loaded before them
(see `hold_operands`): a short product's time is one load's latency after another, and these are then under way beside the first tiles.
"""

from __future__ import annotations

from ....target import Target
from ... import expr as E
from ... import stmt as S
from ...func import Func
from ...visit import any_stmt, map_stmt
from .hold_operands import hold_behind

_WORDS = (
    16  # of 32 bits a thread: what a product of few steps has beside its sums without losing work-groups of its unit
)


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


__all__ = ["hold_epilogue"]
