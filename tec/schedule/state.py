"""What a schedule knows of one operation: its loops, where they came from, what is done with each, where it is computed.

`leaf` are the loops as they stand, outermost first; `relations` say how they came from the operation's axes; `attrs` what
is done with each loop; `attach` where the stage is computed. The primitives change it; `Stage` is its face for users.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, cast

from ..errors import Loc
from ..ir.expr import Expr, IterVar
from ..ir.notes import Note
from ..ir.spelling import Spelled
from ..records import dataclass
from ..te.intrin_call import tensorized
from ..te.operation import ComputeOp, Operation, ScanOp
from .relations import Relation

if TYPE_CHECKING:
    from .schedule import Schedule
    from .stage import Stage


class AttachKind:
    ROOT = "root"  # a loop nest of its own
    INLINE = "inline"  # its expression replaces the reads of it
    SCOPE = "scope"  # inside a loop of another stage
    SCAN = "scan"  # the update of a scan: inside the time loop


@dataclass(slots=True, eq=False)
class LoopAttr:
    """What is done with one loop."""

    kind: str = "serial"  # serial, parallel, vectorized, unrolled, tensorized
    thread: IterVar | None = None
    notes: list[Note] = field(default_factory=list)
    prefetches: list[tuple[Any, Expr]] = field(default_factory=list)  # (tensor, distance in iterations)
    intrin: Any = None  # a TensorIntrin
    align: tuple[int, int] | None = None  # storage_align of a data axis: factor, offset in elements


@dataclass(slots=True, eq=False)
class IndexMap:
    """From transform_layout: `apply` takes an index of the tensor to one of the buffer, whose shape is `shape`. separators: the
    dimensions before which the layout has an AXIS_SEPARATOR, which changes no address. places: to a place whose axes have the given `sizes`, of which `apply` joins some to one dimension; cut: those
    along which elements lie beyond the sizes, before: in front of them, which are not stored."""

    apply: Callable[[Sequence[Expr]], list[Expr]]
    shape: tuple[Expr, ...]
    places: Callable[[Sequence[Expr]], list[Expr]]
    sizes: tuple[Expr, ...]
    separators: tuple[int, ...] = ()
    cut: tuple[int, ...] = ()
    before: tuple[int, ...] = ()


class StageState(Spelled):
    """The schedule of one operation (or, for a group, of several together: `op` is then None)."""

    def __init__(self, sch: Schedule, op: Operation | None, name: str):
        self.sch = sch
        self._op = op
        self.origin_op = op
        self.name = name
        self.loc: Loc | None = None
        self.scope = ""
        self.is_output = False
        self.attach = AttachKind.ROOT
        self.attach_stage: Stage | None = None
        self.attach_ivar: IterVar | None = None
        self.group: Stage | None = None
        self.relations: list[Relation] = []
        self.attrs: dict[IterVar, LoopAttr] = {}
        self.env: list[IterVar] = []
        self.store_predicate: Expr | None = None
        self.double_buffered = False
        self.rolling = False
        self.layout: IndexMap | None = None
        self.leaf: list[IterVar] = []
        self.all: list[IterVar] = []
        if op is not None:
            self.set_op(op)

    # ---- what it is

    @property
    def op(self) -> Operation:
        """The operation computed; a cache or a factored reduction replaces it."""
        assert self._op is not None
        return self._op

    @property
    def is_group(self) -> bool:
        """Whether it stands for several stages that are placed together (`Schedule.create_group`)."""
        return self._op is None

    def set_op(self, op: Operation) -> None:
        """Take `op` with its own loops, unscheduled."""
        self._op = op
        roots = list(op.root_iter_vars())
        self.leaf = roots[:1] if isinstance(op, ScanOp) else list(roots)
        self.all = list(roots)
        self.relations = []
        self.attrs = {}
        call = tensorized(op)
        if call is not None:  # the intrinsic's loops innermost, as `reorder` and `tensorize` would have it
            assert isinstance(op, ComputeOp)
            lead, own = op.axis[: -call.data or None], op.axis[len(op.axis) - call.data :]
            self.leaf = [*lead, *op.reduce_axis[: call.outer], *own, *op.reduce_axis[call.outer :]]
            place = len(lead) + call.outer
            if place < len(self.leaf):
                self.attrs[self.leaf[place]] = LoopAttr("tensorized", intrin=call.intrin)

    def replace_op(self, op: Operation) -> None:
        """Take `op`, which has the same axes, and keep the loops."""
        self._op = op

    def relate(self, relation: Relation) -> None:
        """Take a relation between loops. The new ones get their domains: those of the whole operation, where they are known."""
        self.relations.append(relation)
        if all(p.dom is not None for p in relation.parents):
            ranges = {p: p.dom for p in relation.parents if p.dom is not None}
            relation.extents_down(ranges)
            for loop in relation.children:
                loop.dom = ranges[loop]

    @property
    def num_child_stages(self) -> int:
        """How many stages and groups a group holds directly."""
        return sum(s.group is self for s in (*self.sch.stages, *self.sch.groups))

    @property
    def leaf_iter_vars(self) -> tuple[IterVar, ...]:
        """The loops as they stand, outermost first."""
        return tuple(self.leaf)

    @property
    def all_iter_vars(self) -> tuple[IterVar, ...]:
        """Every loop that it ever had: the operation's axes and what splits and fuses made of them."""
        return tuple(self.all)

    @property
    def placement(self) -> Stage:
        """The stage whose attachment counts: itself, or the group that decides for it."""
        stage: StageState = self
        while stage.attach == AttachKind.ROOT and stage.group is not None:
            stage = stage.group
        return cast("Stage", stage)

    def attr(self, iv: IterVar) -> LoopAttr:
        found = self.attrs.get(iv)
        if found is None:
            found = self.attrs[iv] = LoopAttr()
        return found

    def thread_of(self, iv: IterVar) -> str:
        """The thread tag of a loop, "" where it is none."""
        a = self.attrs.get(iv)
        if a is not None and a.thread is not None:
            return a.thread.thread_tag
        return iv.thread_tag if iv.kind == "thread" else ""

    def __repr__(self) -> str:
        return f"stage({self.name}, {self.op if self._op is not None else 'group'})"


def thread_rank(tag: str) -> int:
    """0 for blockIdx, 1 for threadIdx and vthread, -1 for no launch index."""
    if not tag:
        return -1
    return 0 if tag.startswith("blockIdx") else 1


def scope_rank(scope: str) -> int:
    """Which launch indices share the memory: rank <= a thread's rank means that index is relaxed."""
    if scope.startswith("global"):
        return 0
    return 1 if scope.startswith("shared") else 2
