"""Stage: how one operation is computed. The methods are the schedule primitives.

In: an Operation. A stage keeps its loops as IterVars: `leaf` are the loops as they stand, outermost first; `relations`
say how they came from the operation's axes; `attrs` what is done with each loop; `attach` where the stage is computed.
Each method checks its arguments at once and raises a ScheduleError that shows the loop nest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import Loc, caller_loc
from ..ir.expr import Expr, IterVar
from .relations import Relation

if TYPE_CHECKING:
    from ..te.operation import Operation
    from ..te.tensor import Tensor
    from .places import Layout
    from .schedule import Schedule


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
    pragmas: list[tuple[str, Any]] = field(default_factory=list)
    prefetches: list[tuple[Any, Expr]] = field(default_factory=list)  # (tensor, distance in iterations)
    intrin: Any = None  # a TensorIntrin
    align: tuple[int, int] | None = None  # storage_align of a data axis: factor, offset in elements


class Stage:
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
        self.layout: Layout | None = None
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
        self.leaf = roots[:1] if _is_scan(op) else list(roots)
        self.all = list(roots)
        self.relations = []
        self.attrs = {}

    def replace_op(self, op: Operation) -> None:
        """Take `op`, which has the same axes, and keep the loops."""
        self._op = op

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
        stage = self
        while stage.attach == AttachKind.ROOT and stage.group is not None:
            stage = stage.group
        return stage

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

    def __str__(self) -> str:
        from .show import stage_text

        return stage_text(self)

    # ---- loops

    def split(self, parent: IterVar, factor: Any = None, nparts: Any = None) -> tuple[IterVar, IterVar]:
        """Split a loop in two; exactly one of `factor` (extent of the inner) and `nparts` (extent of the outer).

            for i in n:            for i_outer in ceil(n / 4):
                ...          ->        for i_inner in 4:  # guarded where 4 does not divide n
                                           ...
        Returns (outer, inner). Raises ScheduleError where the loop is split, fused, bound or annotated already, or belongs to
        another stage.
        """
        from .primitives import loops

        out = loops.split(self, parent, factor, nparts)
        self.sch.note(self, "split", (parent,), {"factor": factor, "nparts": nparts}, out)
        return out

    def tile(
        self, x_parent: IterVar, y_parent: IterVar, x_factor: Any, y_factor: Any
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split two loops and reorder: x_outer, y_outer, x_inner, y_inner, which are returned.

            for x in 64:           for x_outer in 8:
                for y in 64:  ->       for y_outer in 8:
                    ...                    for x_inner in 8:
                                               for y_inner in 8:
        x_factor, y_factor: extents of the inner loops.
        """
        from .primitives import loops

        out = loops.tile(self, x_parent, y_parent, x_factor, y_factor)
        self.sch.note(self, "tile", (x_parent, y_parent, x_factor, y_factor), {}, out)
        return out

    def fuse(self, *axes: IterVar | Sequence[IterVar]) -> IterVar:
        """Make one loop of adjacent ones, outermost first; returns it. No axes: a loop of one step, to attach to.

            for i in 4:
                for j in 8:        ->    for i_j_fused in 32:
                    ...                      ...

        Raises ScheduleError where the loops are not neighbours, or a data loop would be fused with a reduction's.
        """
        from .primitives import loops

        flat = tuple(loops.flatten_axes(axes))
        out = loops.fuse(self, flat)
        self.sch.note(self, "fuse", flat, {}, out)
        return out

    def reorder(self, *order: IterVar | Sequence[IterVar]) -> None:
        """Put the given loops in this order, in the places that they take together; the others stay.

            for i in 4:            for k in 16:
                for j in 8:   ->       for j in 8:       # reorder(k, i): j stays where it is
                    for k in 16:           for i in 4:
        Raises ScheduleError for a loop that is given twice or is none of this stage.
        """
        from .primitives import loops

        flat = tuple(loops.flatten_axes(order))
        loops.reorder(self, flat)
        self.sch.note(self, "reorder", flat, {})

    # ---- what is done with a loop

    def bind(self, iv: IterVar, thread: IterVar) -> None:
        """Run a loop as a launch index: `s[C].bind(tx, tec.thread_axis("threadIdx.x"))`.

            for i_outer in 8:            # blockIdx.x: a work-group each
                for i_inner in 64:   ->  # threadIdx.x: a thread each
                    ...
        thread: `tec.thread_axis` of "blockIdx.x|y|z", "threadIdx.x|y|z" or "vthread"; one with an extent must have the loop's.
        A reduction's loop takes threadIdx alone: the threads then combine their values. Raises ScheduleError where the loop
        has a kind already, another loop of the stage has the index, or extents differ.
        """
        from .primitives import annotate

        annotate.bind(self, iv, thread)
        self.sch.note(self, "bind", (iv, thread), {})

    def vectorize(self, iv: IterVar) -> None:
        """Run a loop of constant extent as the lanes of vectors: loads and stores of neighbours become one access.

        On GPUs up to 16 bytes a thread go at a time (`Target.max_vector_bytes`); on CPUs whatever the vector unit has. Raises
        ScheduleError for an extent that is not constant, and for a reduction's loop (`rfactor` makes a data loop of it).
        """
        from .primitives import annotate

        annotate.set_kind(self, iv, "vectorized", "vectorize")
        self.sch.note(self, "vectorize", (iv,), {})

    def unroll(self, iv: IterVar) -> None:
        """Write a loop of constant extent out step by step. Raises ScheduleError where the extent is not constant.

        Storage indexed by such a loop can stay in registers; a loop that is left indexes memory.
        """
        from .primitives import annotate

        annotate.set_kind(self, iv, "unrolled", "unroll")
        self.sch.note(self, "unroll", (iv,), {})

    def parallel(self, iv: IterVar) -> None:
        """Run a loop's steps on the threads of the CPU (`TEC_NUM_THREADS`, else all cores).

        Raises ScheduleError for a reduction's loop: its steps depend on each other.
        """
        from .primitives import annotate

        annotate.set_kind(self, iv, "parallel", "parallel")
        self.sch.note(self, "parallel", (iv,), {})

    def tensorize(self, iv: IterVar, intrin: Any) -> None:
        """Replace the loops from `iv` inwards by a tensor intrinsic that computes the same.

            for io in 8:                 for io in 8:
                for ii in 16:       ->       mfma(...)     # one instruction of a wavefront for all three
                    for j in 16:
                        for k in 16:
        intrin: from `tec.decl_tensor_intrin`, or ready-made from `tec.te.intrin`. Raises ScheduleError here for something that is no
        intrinsic, and when lowering where computation, types, extents or strides are not the intrinsic's.
        """
        from .primitives import annotate

        annotate.tensorize(self, iv, intrin)
        self.sch.note(self, "tensorize", (iv, intrin), {})

    def pragma(self, iv: IterVar, name: str, value: Any = None) -> None:
        """Note `pragma.<name>` on a loop, for the passes.

        "auto_unroll_max_step" (value: steps) unrolls serial loops as long as what is repeated stays below; "unroll_explicit" False leaves
        that to LLVM; "software_pipeline" (value: slots of storage) starts the loads of later steps early. Other names are kept and have no
        effect.
        """
        from .primitives import annotate

        annotate.pragma(self, iv, name, value)
        self.sch.note(self, "pragma", (iv, name, value), {})

    def prefetch(self, tensor: Tensor, var: IterVar, offset: Any) -> None:
        """Fetch what `tensor` will be read for `offset` steps of loop `var` ahead."""
        from .primitives import annotate

        annotate.prefetch(self, tensor, var, offset)
        self.sch.note(self, "prefetch", (tensor, var, offset), {})

    # ---- where it is computed, and how stored

    def compute_at(self, parent: Stage, scope: IterVar) -> None:
        """Compute inside loop `scope` of stage `parent`: just what one step of that loop needs.

            for i in 64:                 for i in 64:
                A[i] = ...        ->         A[0] = ...      # storage for one element
            for i in 64:                     B[i] = A[0] ...
                B[i] = A[i] ...
        Bounds are inferred: a parent that reads neighbours (a stencil) makes the part larger. Raises ScheduleError where `parent`
        does not read this stage, nor anything that does, or this stage is an output.
        """
        from .primitives import attach

        attach.compute_at(self, parent, scope)
        self.sch.note(self, "compute_at", (parent, scope), {})

    def compute_inline(self) -> None:
        """Put the expression in place of every read of it; no storage, no loops.

        Raises ScheduleError for an output, a reduction, and what is no compute.
        """
        from .primitives import attach

        attach.compute_inline(self)
        self.sch.note(self, "compute_inline", (), {})

    def compute_root(self) -> None:
        """A loop nest of its own again; undoes compute_at and compute_inline."""
        from .primitives import attach

        attach.compute_root(self)
        self.sch.note(self, "compute_root", (), {})

    def set_scope(self, scope: str) -> None:
        """Where its values are stored.

        scope: "global"; "shared" (LDS, one a work-group) and "shared.dyn" (sized at launch); "local" (registers of a thread);
        "fragment.a", "fragment.b", "fragment.acc" (tiles over the registers of a wavefront, for matrix units). Without it, a
        stage in loops over blockIdx is shared, in loops over threadIdx local. Raises ScheduleError for an output.
        """
        from .primitives import annotate

        annotate.set_scope(self, scope)
        self.sch.note(self, "set_scope", (scope,), {})

    def env_threads(self, threads: IterVar | Sequence[IterVar]) -> None:
        """Launch indices around the whole stage, for a scan: its time loop then runs inside one kernel."""
        from .primitives import annotate

        items = [threads] if isinstance(threads, IterVar) else list(threads)
        annotate.env_threads(self, items)
        self.sch.note(self, "env_threads", (items,), {})

    def set_store_predicate(self, predicate: Any) -> None:
        """Store only where `predicate` holds: `s[C].set_store_predicate(thread_x.var.equal(0))`."""
        from .primitives import annotate

        annotate.set_store_predicate(self, predicate)
        self.sch.note(self, "set_store_predicate", (predicate,), {})

    def storage_align(self, axis: IterVar, factor: int, offset: int) -> None:
        """Pad the storage: the stride of data axis `axis`, in elements, is `offset` modulo `factor`.

        `s[shared].storage_align(row, 32, 8)` starts the rows of a tile in different LDS banks.
        """
        from .primitives import annotate

        annotate.storage_align(self, axis, factor, offset)
        self.sch.note(self, "storage_align", (axis, factor, offset), {})

    def double_buffer(self) -> None:
        """Keep two copies of the storage, so that one is filled while the other is read."""
        from .primitives import annotate

        annotate.double_buffer(self)
        self.sch.note(self, "double_buffer", (), {})

    def rolling_buffer(self) -> None:
        """Keep what neighbouring steps of the attachment loop share, in a circular buffer."""
        from .primitives import layout

        layout.rolling_buffer(self)
        self.sch.note(self, "rolling_buffer", (), {})

    def transform_layout(self, mapping: Callable[..., Any]) -> list[IterVar]:
        """Store the output by another index: `lambda n, c, h, w: [n, c // 4, h, w, c % 4]`. Returns the new loops."""
        from .primitives import layout

        loc = caller_loc()
        out = layout.transform_layout(self, mapping, loc)
        self.sch.note(self, "transform_layout", (mapping,), {}, tuple(out))
        return out


def _is_scan(op: Any) -> bool:
    from ..te.operation import ScanOp

    return isinstance(op, ScanOp)
