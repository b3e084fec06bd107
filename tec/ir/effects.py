"""What a statement or an expression does besides giving a value: the memory it touches, the threads it needs, its order.

One walk answers for every pass and for code generation. Facts about calls come from the table of `tec.ir.intrin`; loads and
stores are plain. A pointer that is taken counts for all that its attrs `rw` allow, anywhere in its buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any

from ..errors import Loc
from ..records import dataclass
from . import build as B
from . import expr as E
from . import stmt as S
from .buffer import Buffer
from .dtype import dtype_info
from .func import Func
from .intrin import INTRINS
from .visit import CHILDREN, LEAVES, any_expr, visit_children


@dataclass(slots=True)
class Access:
    """One access of a buffer: where (no indices: anywhere in it), whether it writes, the statement's place in the program."""

    buffer: Buffer
    indices: tuple[E.Expr, ...]
    is_write: bool
    loc: Loc | None = None
    atomic: bool = False
    collective: bool = False  # made for all lanes of the wavefront, whichever names the element


@dataclass(slots=True)
class Effects:
    """See the module. `collective` and `varying` are `Intrin`'s, of any call below."""

    accesses: list[Access] = field(default_factory=list)  # those of calls first
    is_opaque: bool = False
    is_kept: bool = False  # does more than give a value: stores, calls that do
    collective: set[str] = field(default_factory=set)
    is_varying: bool = False
    takes_pointer: bool = False

    @property
    def reads(self) -> set[int]:
        """`id` of the buffers read."""
        return {id(a.buffer) for a in self.accesses if not a.is_write}

    @property
    def writes(self) -> set[int]:
        """`id` of the buffers written."""
        return {id(a.buffer) for a in self.accesses if a.is_write}

    @property
    def touched(self) -> set[int]:
        """`id` of the buffers read or written."""
        return {id(a.buffer) for a in self.accesses}

    @property
    def is_constant(self) -> bool:
        """Whether it may be evaluated at any time, any number of times, and gives one value: no memory, nothing kept."""
        return not self.is_kept and not self.accesses


def effects(root: E.Expr | S.Stmt, loc: Loc | None = None) -> Effects:
    """The effects of all that stands below `root`; an expression met twice counts once."""
    walk = _Walk(loc)
    if isinstance(root, E.Expr):
        walk.expr(root)
    else:
        walk.stmt(root)
    walk.out.accesses.extend(walk.loads)
    return walk.out


class _Walk:
    """What was met on the way."""

    def __init__(self, loc: Loc | None):
        self.out = Effects()
        self.loads: list[Access] = []
        self.seen: dict[int, None] = {}
        self.loc = loc

    def expr(self, e: E.Expr) -> E.Expr:
        k = id(e)
        if k in self.seen:
            return e
        self.seen[k] = None
        t = type(e)
        if t in LEAVES:
            return e
        if t is E.Call:
            self._call(e)
            return e
        for c in CHILDREN[t](e):
            if type(c) not in LEAVES:
                self.expr(c)
        if t is E.BufferLoad:
            self.loads.append(Access(e.buffer, e.indices, False, self.loc))  # type: ignore[attr-defined]
        return e

    def _call(self, e: Any) -> None:
        known, out = INTRINS[e.op], self.out
        for k, a in enumerate(e.args):
            if k in known.elements and isinstance(a, E.BufferLoad):
                for c in CHILDREN[E.BufferLoad](a):  # its indices; the element itself is no load
                    self.expr(c)
            else:
                self.expr(a)
        out.accesses.extend(_accesses(e, self.loc))
        out.is_opaque = out.is_opaque or known.opaque
        out.is_kept = out.is_kept or known.is_kept
        out.is_varying = out.is_varying or known.varying
        out.takes_pointer = out.takes_pointer or known.pointer
        if known.collective:
            out.collective.add(known.collective)

    def stmt(self, s: S.Stmt) -> S.Stmt:
        out, around = self.out, self.loc
        if isinstance(s, (S.BufferStore, S.AllReduce)):
            self.loc = s.loc or around
        visit_children(s, self)
        if isinstance(s, S.BufferStore):
            out.is_kept = True
            out.accesses.append(Access(s.buffer, s.indices, True, self.loc))
        elif isinstance(s, S.AllReduce):
            out.is_kept = True
            out.collective.add("group")
            out.accesses.extend(Access(d, (E.IntImm(0),), True, self.loc) for d in s.dests)
        elif isinstance(s, S.Assert):
            out.is_kept = True
        self.loc = around
        return s


def _accesses(e: E.Call, loc: Loc | None) -> Iterator[Access]:
    """The accesses that a call makes itself."""
    known = INTRINS[e.op]
    if known.pointer and e.args and isinstance(e.args[0], E.BufferLoad):
        rw = (e.attrs or {}).get("rw", "rw")
        for letter, writes in (("r", False), ("w", True)):
            if letter in rw:
                yield Access(e.args[0].buffer, (), writes, loc)
    for positions, writes in ((known.writes, True), (known.reads, False)):
        for k in positions:
            load = e.args[k] if k < len(e.args) else None
            if isinstance(load, E.BufferLoad):
                at = _span(known.span, load, e.args)
                yield Access(load.buffer, at, writes, loc, known.atomic, known.collective == "wave")


def _span(span: str, load: E.BufferLoad, args: tuple[E.Expr, ...]) -> tuple[E.Expr, ...]:
    """The indices of what a call touches from the named element on; none where that is not known."""
    if span == "one":
        return load.indices
    if span == "tile":
        return ()
    if span == "row":
        n: int | None = 128 // dtype_info(load.buffer.dtype).bits
    else:
        count = args[2]  # behind both ends; a lane or a condition may follow
        n = count.value if isinstance(count, E.IntImm) else None
    if n == 1:
        return load.indices
    first = load.indices[-1]
    if not n or isinstance(first, E.Ramp):
        return ()
    return (*load.indices[:-1], E.Ramp(first, B.const(1, first.dtype), n))


def is_call(e: E.Expr | S.Stmt, op: str) -> bool:
    """Whether an expression, or a statement that only evaluates one, is a call of `op`."""
    if isinstance(e, S.Evaluate):
        e = e.value
    return isinstance(e, E.Call) and e.op == op


def is_kept(e: E.Expr | S.Stmt) -> bool:
    """Whether evaluating `e` does more than give a value; of a statement, whether an expression in it does."""
    return any_expr(e, lambda x: type(x) is E.Call and INTRINS[x.op].is_kept)


def lasting(cond: E.Expr, body: S.Stmt) -> E.Expr:
    """What of `cond`, which holds when `body` starts, holds anywhere in it: not what it reads from memory that is written there, by
    `body` or, behind a barrier, by other threads."""
    if isinstance(cond, E.And):
        return B.logical_and(lasting(cond.a, body), lasting(cond.b, body))
    reads = effects(cond).reads
    if not reads:
        return cond
    does = effects(body)
    return E.IntImm(1, "bool") if reads & does.writes or does.collective or does.takes_pointer else cond


def written_params(func: Func) -> set[int]:
    """`id(buffer.data)` of the parameters that a function may write; what split_host_device found of a kernel stands."""
    params = [p for p in func.params if isinstance(p, Buffer)]
    if "writes" in func.attrs:
        return {id(p.data) for p in params if p.name in func.attrs["writes"]}
    written = {id(a.buffer.data) for a in effects(func.body).accesses if a.is_write}
    return {id(p.data) for p in params if id(p.data) in written}
