"""Statements: the whole grammar.

    stmt := BufferStore | For | While | IfThenElse | Seq | LetStmt | Alloc | Attr | Assert | Evaluate | AllReduce

Loops run `min <= var < min + extent`, step 1. Immutable by convention, as expressions are.
"""

from __future__ import annotations

from typing import ClassVar

from ..errors import ExprError, Loc
from ..records import dataclass
from .buffer import Buffer
from .expr import CommReducer, Expr, IntImm, Var
from .notes import Note
from .spelling import Spelled


class Stmt(Spelled):
    """`binds`: the fields that name a variable or a buffer anew, for `body`."""

    __slots__ = ("__weakref__",)
    binds: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        from .printer import stmt_to_text

        return stmt_to_text(self)

    def __repr__(self) -> str:
        return str(self)


class ForKind:
    SERIAL = "serial"
    PARALLEL = "parallel"  # CPU thread pool
    VECTORIZED = "vectorized"
    UNROLLED = "unrolled"
    THREAD = "thread"  # bound to `thread`: blockIdx.{x,y,z}, threadIdx.{x,y,z}, vthread


@dataclass(slots=True, eq=False, repr=False)
class BufferStore(Stmt):
    """`buffer[indices] = value`; the last index may be a Ramp, `value` then has its lanes. `loc`: the te statement."""

    buffer: Buffer
    value: Expr
    indices: tuple[Expr, ...]
    predicate: Expr | None = None
    loc: Loc | None = None


@dataclass(slots=True, eq=False, repr=False)
class For(Stmt):
    """A loop. For ForKind.THREAD `thread` names the launch index; loops over one index may nest or follow each other:
    each then runs its body for those threads whose index is within its extent."""

    binds: ClassVar[tuple[str, ...]] = ("var",)
    var: Var
    min: Expr
    extent: Expr
    body: Stmt
    kind: str = ForKind.SERIAL
    thread: str = ""
    unroll: int = 0  # by LLVM: 0 as it sees fit, 1 not at all, else so often
    pipelined: bool = False  # its steps start loads for later steps: what the pass `pipeline` leaves behind

    def with_body(self, body: Stmt) -> For:
        """This loop around another body."""
        return self.with_range(self.min, self.extent, body)

    def with_range(self, low: Expr, extent: Expr, body: Stmt) -> For:
        """This loop with another range and body."""
        return For(self.var, low, extent, body, self.kind, self.thread, self.unroll, self.pipelined)


@dataclass(slots=True, eq=False, repr=False)
class While(Stmt):
    """`loc`, here and below: the line of a kernel that the statement, its condition or value stands for."""

    cond: Expr
    body: Stmt
    loc: Loc | None = None


@dataclass(slots=True, eq=False, repr=False)
class IfThenElse(Stmt):
    cond: Expr
    then: Stmt
    orelse: Stmt | None = None
    loc: Loc | None = None


@dataclass(slots=True, eq=False, repr=False)
class Seq(Stmt):
    stmts: tuple[Stmt, ...]

    def __getitem__(self, k: int) -> Stmt:
        return self.stmts[k]


@dataclass(slots=True, eq=False, repr=False)
class LetStmt(Stmt):
    binds: ClassVar[tuple[str, ...]] = ("var",)
    var: Var
    value: Expr
    body: Stmt
    loc: Loc | None = None


@dataclass(frozen=True, slots=True)
class StorageNotes:
    """What is asked of an allocation. Raises ExprError for values of another form.

    `double_buffer`: one step's contents are made while another's are used (see passes/pipeline).
    `storage_align`: an (axis, factor, offset) of each axis whose stride, in elements, is to be `offset` modulo `factor`: the rows of a
    shared tile then begin in different banks.
    `ordered`: its accesses are ordered by hand, insert_barriers leaves them alone.
    """

    double_buffer: bool = False
    storage_align: tuple[tuple[int, int, int], ...] = ()
    ordered: bool = False

    def __post_init__(self) -> None:
        for name in ("double_buffer", "ordered"):
            if not isinstance(getattr(self, name), bool):
                raise ExprError(f"{name} of an allocation is {getattr(self, name)!r}", hint="True or False")
        if not isinstance(self.storage_align, tuple) or not all(map(_is_alignment, self.storage_align)):
            raise ExprError(
                f"storage_align of an allocation is {self.storage_align!r}",
                hint="an (axis, factor, offset) of each aligned axis: ((0, 32, 4),)",
            )

    def below_new_axis(self) -> StorageNotes:
        """The notes of a buffer that got one more dimension in front."""
        if not self.storage_align:
            return self
        moved = tuple((axis + 1, factor, offset) for axis, factor, offset in self.storage_align)
        return StorageNotes(self.double_buffer, moved, self.ordered)


def _is_alignment(x: object) -> bool:
    return isinstance(x, tuple) and len(x) == 3 and all(type(n) is int for n in x) and x[0] >= 0 and x[1] > 0


NO_NOTES = StorageNotes()


@dataclass(slots=True, eq=False, repr=False)
class Alloc(Stmt):
    """Storage for `buffer` while `body` runs; contents are undefined at first."""

    binds: ClassVar[tuple[str, ...]] = ("buffer",)
    buffer: Buffer
    body: Stmt
    notes: StorageNotes = NO_NOTES


@dataclass(slots=True, eq=False, repr=False)
class Attr(Stmt):
    """A note on `body`, for the passes."""

    note: Note
    body: Stmt


@dataclass(slots=True, eq=False, repr=False)
class Assert(Stmt):
    cond: Expr
    message: str


@dataclass(slots=True, eq=False, repr=False)
class Evaluate(Stmt):
    """An expression for its effect: a barrier, a call with side effects."""

    value: Expr
    loc: Loc | None = None


@dataclass(slots=True, eq=False, repr=False)
class AllReduce(Stmt):
    """Combine `values` of all threads along `threads` (loop variables bound to threadIdx.*) where `predicate` holds
    (others contribute the identity); afterwards `dests[i][0]` of each of these threads holds the i-th result."""

    combiner: CommReducer
    values: tuple[Expr, ...]
    predicate: Expr
    dests: tuple[Buffer, ...]
    threads: tuple[Var, ...]
    loc: Loc | None = None


NOP = Evaluate(IntImm(0))


def seq(*stmts: Stmt | None) -> Stmt:
    """The statements in order, nested Seqs flattened, None and no-ops left out."""
    flat: list[Stmt] = []
    for s in stmts:
        if s is None or (isinstance(s, Evaluate) and isinstance(s.value, IntImm)):
            continue
        if isinstance(s, Seq):
            flat.extend(s.stmts)
        else:
            flat.append(s)
    if not flat:
        return NOP
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))
