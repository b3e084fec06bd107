"""What kinds of statements a function has, found in one walk: by it the driver leaves out passes that would change nothing, and imports none of them."""

from __future__ import annotations

from ..records import dataclass
from . import expr as E
from . import stmt as S
from .visit import visit


@dataclass(slots=True)
class Features:
    """Of a body. notes: names of the classes of notes; loops: kinds; threads: what loops are bound to; scopes: of storage; calls: operations that a statement evaluates
    or stores; has_open_loops: whether an extent is no number; has_allreduce, has_double_buffers: whether there is such a statement, or such storage."""

    notes: set[str]
    loops: set[str]
    threads: set[str]
    scopes: set[str]
    calls: set[str]
    has_open_loops: bool = False
    has_allreduce: bool = False
    has_double_buffers: bool = False


def features(body: S.Stmt) -> Features:
    """The features of a statement and all that stand below it. Values are not looked into."""
    found = Features(set(), set(), set(), set(), set())

    def look(s: S.Stmt) -> None:
        if isinstance(s, (S.BufferStore, S.Evaluate)):
            if isinstance(s.value, E.Call):
                found.calls.add(s.value.op)
        elif isinstance(s, S.For):
            found.loops.add(s.kind)
            found.threads.add(s.thread)
            found.has_open_loops |= not isinstance(s.extent, E.IntImm)
        elif isinstance(s, S.Alloc):
            found.scopes.add(s.buffer.scope)
            found.has_double_buffers |= s.notes.double_buffer
        elif isinstance(s, S.Attr):
            found.notes.add(type(s.note).__name__)
        elif isinstance(s, S.AllReduce):
            found.has_allreduce = True

    visit(body, None, look)
    return found
