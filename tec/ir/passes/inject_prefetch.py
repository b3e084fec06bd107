"""Keep prefetches where the target has them.

The schedule writes a prefetch as `Evaluate(Call("prefetch", (BufferLoad,)))` at the loop that it was asked at. A CPU
keeps them, unless they are of memory that lives in registers; a GPU hides latency with threads and drops them.
"""

from __future__ import annotations

from ...target import Target
from .. import expr as E
from .. import stmt as S
from ..func import Func
from ..visit import map_stmts


def inject_prefetch(func: Func, target: Target) -> Func:
    """The function with the prefetches that its target can use."""

    def fs(s: S.Stmt) -> S.Stmt:
        if isinstance(s, S.Evaluate) and isinstance(s.value, E.Call) and s.value.op == "prefetch":
            head = s.value.args[0]
            on_chip = isinstance(head, E.BufferLoad) and head.buffer.scope != "global"
            return S.NOP if target.is_gpu or on_chip else s
        return map_stmts(s, fs)

    return func.with_body(fs(func.body))
