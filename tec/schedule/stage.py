"""Stage: how one operation is computed. The methods are the schedule primitives.

Each makes a record (`tec.schedule.primitives`) and hands it to `Schedule.apply`, which checks it at once (a ScheduleError shows
the loop nest), applies it and appends it to the schedule's trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..ir.expr import IterVar
from ..notebook import schedule
from .primitives import (
    Bind,
    ComputeAt,
    ComputeInline,
    ComputeRoot,
    DoubleBuffer,
    EnvThreads,
    Fuse,
    Parallel,
    Pragma,
    Prefetch,
    Reorder,
    RollingBuffer,
    SetScope,
    SetStorePredicate,
    SoftwarePipeline,
    Split,
    StorageAlign,
    Tensorize,
    Tile,
    TransformLayout,
    Unroll,
    Vectorize,
)
from .primitives.base import flatten
from .show import stage_text
from .state import AttachKind, LoopAttr, StageState

if TYPE_CHECKING:
    from ..te.tensor import Tensor

__all__ = ["AttachKind", "LoopAttr", "Stage"]


class Stage(StageState):
    """The schedule of one operation (or, for a group, of several together: `op` is then None)."""

    def __str__(self) -> str:
        return stage_text(self)

    def _repr_html_(self) -> str:
        return schedule(str(self))

    # ---- loops

    def split(
        self, parent: IterVar, factor: Any = None, nparts: Any = None, shift_inwards: bool = False
    ) -> tuple[IterVar, IterVar]:
        """Split a loop in two; exactly one of `factor` (extent of the inner) and `nparts` (extent of the outer).

            for i in n:            for i_outer in ceil(n / 4):
                ...          ->        for i_inner in 4:  # guarded where 4 does not divide n
                                           ...
        shift_inwards: where 4 does not divide a known n > 4, the last step starts at n - 4 and repeats some of the step before, without a guard:
        i = min(i_outer * 4, n - 4) + i_inner. Of other extents it changes nothing.
        Returns (outer, inner). Raises ScheduleError where the loop is split, fused, bound or annotated already, or belongs to
        another stage; with shift_inwards where the stage has sums.
        """
        return self.sch.apply(Split(self, parent, factor, nparts, shift_inwards))

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
        return self.sch.apply(Tile(self, x_parent, y_parent, x_factor, y_factor))

    def fuse(self, *axes: IterVar | Sequence[IterVar]) -> IterVar:
        """Make one loop of adjacent ones, outermost first; returns it. No axes: a loop of one step, to attach to.

            for i in 4:
                for j in 8:        ->    for i_j_fused in 32:
                    ...                      ...

        Raises ScheduleError where the loops are not neighbours, or a data loop would be fused with a reduction's.
        """
        return self.sch.apply(Fuse(self, flatten(*axes)))

    def reorder(self, *order: IterVar | Sequence[IterVar]) -> None:
        """Put the given loops in this order, in the places that they take together; the others stay.

            for i in 4:            for k in 16:
                for j in 8:   ->       for j in 8:       # reorder(k, i): j stays where it is
                    for k in 16:           for i in 4:
        Raises ScheduleError for a loop that is given twice or is none of this stage.
        """
        self.sch.apply(Reorder(self, flatten(*order)))

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
        self.sch.apply(Bind(self, iv, thread))

    def vectorize(self, iv: IterVar) -> None:
        """Run a loop of constant extent as the lanes of vectors: loads and stores of neighbours become one access.

        On GPUs up to 16 bytes a thread go at a time (`Target.max_vector_bytes`); on CPUs whatever the vector unit has. Raises
        ScheduleError for an extent that is not constant, and for a reduction's loop (`rfactor` makes a data loop of it).
        """
        self.sch.apply(Vectorize(self, iv))

    def unroll(self, iv: IterVar) -> None:
        """Write a loop of constant extent out step by step. Raises ScheduleError where the extent is not constant.

        Storage indexed by such a loop can stay in registers; a loop that is left indexes memory.
        """
        self.sch.apply(Unroll(self, iv))

    def parallel(self, iv: IterVar) -> None:
        """Run a loop's steps on the threads of the CPU (`TEC_NUM_THREADS`, else all cores).

        Raises ScheduleError for a reduction's loop: its steps depend on each other.
        """
        self.sch.apply(Parallel(self, iv))

    def tensorize(self, iv: IterVar, intrin: Any) -> None:
        """Replace the loops from `iv` inwards by a tensor intrinsic that computes the same.

            for io in 8:                 for io in 8:
                for ii in 16:       ->       mfma(...)     # one instruction of a wavefront for all three
                    for j in 16:
                        for k in 16:
        intrin: from `tec.decl_tensor_intrin`, or ready-made from `tec.te.intrin`. Raises ScheduleError here for something that is no
        intrinsic, and when lowering where computation, types, extents or strides are not the intrinsic's.
        """
        self.sch.apply(Tensorize(self, iv, intrin))

    def pragma(self, iv: IterVar, name: str, value: Any = None) -> None:
        """A note on a loop, for the passes (`tec.ir.notes` has them all).

        "auto_unroll_max_step" (value: steps) unrolls serial loops as long as what is repeated stays below; "unroll_explicit" False leaves
        that to LLVM; "software_pipeline" (value: slots of storage, or (1, steps that loads are ahead)) starts the loads of later steps early. Raises ScheduleError for a name that
        no pass knows, and for a value that does not fit.
        """
        self.sch.apply(Pragma(self, iv, name, value))

    def software_pipeline(self, iv: IterVar, stages: Sequence[int], order: Sequence[int] | None = None) -> None:
        """Let steps of a loop overlap: each statement of its body gets a stage, and a place in a turn.

            for k in 16:                 a[0] = A[0]                   # prologue
                a = A[k]                 for k in 15:
                C[0] += a * a     ->         a[(k + 1) % 2] = A[k + 1]
                                             C[0] += a[k % 2] * a[k % 2]
                                         C[0] += a[1] * a[1]           # epilogue
        stages: for each statement of the body, in its order, how many turns behind the first it works on a step; above (0, 1). order: its place in a turn (that of
        the body where it is None). Storage that the body allocates gets as many slots as steps are in it at a time. Raises ScheduleError for what is no such list, and
        when lowering LoweringError where the body has another number of statements or the order would change what is computed.
        """
        self.sch.apply(SoftwarePipeline(self, iv, stages, order))

    def prefetch(self, tensor: Tensor, var: IterVar, offset: Any) -> None:
        """Fetch what `tensor` will be read for `offset` steps of loop `var` ahead."""
        self.sch.apply(Prefetch(self, tensor, var, offset))

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
        self.sch.apply(ComputeAt(self, parent, scope))

    def compute_inline(self) -> None:
        """Put the expression in place of every read of it; no storage, no loops.

        Where it is a parameter of the function all the same, its buffer is left as it is (lowering warns).

        Raises ScheduleError for an output, a reduction, and what is no compute.
        """
        self.sch.apply(ComputeInline(self))

    def compute_root(self) -> None:
        """A loop nest of its own again; undoes compute_at and compute_inline."""
        self.sch.apply(ComputeRoot(self))

    def set_scope(self, scope: str) -> None:
        """Where its values are stored.

        scope: "global"; "shared" (LDS, one a work-group) and "shared.dyn" (sized at launch); "local" (registers of a thread);
        "fragment.a", "fragment.b", "fragment.acc" (tiles over the registers of a wavefront, for matrix units). Without it, a
        stage in loops over blockIdx is shared, in loops over threadIdx local. Raises ScheduleError for an output.
        """
        self.sch.apply(SetScope(self, scope))

    def env_threads(self, threads: IterVar | Sequence[IterVar]) -> None:
        """Launch indices around the whole stage, for a scan: its time loop then runs inside one kernel."""
        self.sch.apply(EnvThreads(self, flatten(threads)))

    def set_store_predicate(self, predicate: Any) -> None:
        """Store only where `predicate` holds: `s[C].set_store_predicate(thread_x.var.equal(0))`."""
        self.sch.apply(SetStorePredicate(self, predicate))

    def storage_align(self, axis: IterVar, factor: int, offset: int) -> None:
        """Pad the storage: the stride of data axis `axis`, in elements, is `offset` modulo `factor`.

        `s[shared].storage_align(row, 32, 8)` starts the rows of a tile in different LDS banks.
        """
        self.sch.apply(StorageAlign(self, axis, factor, offset))

    def double_buffer(self) -> None:
        """Keep two copies of the storage, so that one is filled while the other is read."""
        self.sch.apply(DoubleBuffer(self))

    def rolling_buffer(self) -> None:
        """Keep what neighbouring steps of the attachment loop share, in a circular buffer."""
        self.sch.apply(RollingBuffer(self))

    def transform_layout(self, mapping: Callable[..., Any], keep_loops: bool = False) -> list[IterVar]:
        """Store the output by another index: `lambda n, c, h, w: [n, c // 4, h, w, c % 4]`. Returns the new loops; with `keep_loops` none, the loops
        stay as they are, scheduled already or not."""
        return self.sch.apply(TransformLayout(self, mapping, keep_loops or None))
