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
    """The schedule of one operation (or, for a group, of several together: `op` is then None).

    >>> A = te.placeholder((8,), name="A")
    >>> B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
    >>> s = te.create_schedule(B.op)
    >>> s[B].parallel(B.op.axis[0])
    >>> print(s[B])
    B: compute, output
        for i in 8  # parallel
    """

    def __str__(self) -> str:
        return stage_text(self)

    def _repr_html_(self) -> str:
        return schedule(str(self))

    # ---- loops

    def split(
        self, parent: IterVar, factor: Any = None, nparts: Any = None, shift_inwards: bool = False, long: bool = False
    ) -> tuple[IterVar, IterVar]:
        """Split a loop in two; exactly one of `factor` (extent of the inner) and `nparts` (extent of the outer).

            for i in n:            for i_outer in ceil(n / 4):
                ...          ->        for i_inner in 4:  # guarded where 4 does not divide n
                                           ...

        parent: a loop of this stage. factor, nparts: a positive integer or an integer expression. shift_inwards: if 4 does not divide
        a known n > 4, the last iteration starts at n - 4, repeats part of the one before, and needs no guard:
        i = min(i_outer * 4, n - 4) + i_inner. It changes nothing for other extents. long: an n that is not known is 4 at least, so that the same
        is done to it; the function asserts it.
        Returns (outer, inner). Raises ScheduleError if the loop was already split, fused, bound or annotated, or belongs to
        another stage, and for shift_inwards if the stage has a reduction.

        >>> A = tec.placeholder((100,), name="A")
        >>> B = tec.compute((100,), lambda i: A[i] * 2.0, name="B")
        >>> s = tec.create_schedule(B.op)
        >>> outer, inner = s[B].split(B.op.axis[0], factor=16)
        """
        return self.sch.apply(Split(self, parent, factor, nparts, shift_inwards, long))

    def tile(
        self, x_parent: IterVar, y_parent: IterVar, x_factor: Any, y_factor: Any
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split two loops and reorder the results to x_outer, y_outer, x_inner, y_inner.

            for x in 64:           for x_outer in 8:
                for y in 64:  ->       for y_outer in 8:
                    ...                    for x_inner in 8:
                                               for y_inner in 8:

        x_factor, y_factor: extents of the inner loops. Returns the four loops in this order.
        Raises ScheduleError as `split` and `reorder` do.

        >>> C = te.compute((4, 6), lambda i, j: i + j, name="C")
        >>> s = te.create_schedule(C.op)
        >>> i, j = C.op.axis
        >>> xo, yo, xi, yi = s[C].tile(i, j, x_factor=2, y_factor=3)
        >>> print(s[C])
        C: compute, output
            for i_outer in 2
                for j_outer in 2
                    for i_inner in 2
                        for j_inner in 3
        """
        return self.sch.apply(Tile(self, x_parent, y_parent, x_factor, y_factor))

    def fuse(self, *axes: IterVar | Sequence[IterVar], wide: bool = False) -> IterVar:
        """Make one loop of adjacent loops, given outermost first. Without axes: a loop of one iteration, to attach stages to.

            for i in 4:
                for j in 8:        ->    for i_j_fused in 32:
                    ...                      ...

        `wide` counts the loop in int64; without it open sizes must not take more steps together than int32 counts.

        Returns the new loop. Raises ScheduleError if the loops are not adjacent, or if a data loop would be fused with a
        reduction loop.

        >>> C = te.compute((4, 6), lambda i, j: i + j, name="C")
        >>> s = te.create_schedule(C.op)
        >>> i, j = C.op.axis
        >>> ij = s[C].fuse(i, j)
        >>> print(s[C])
        C: compute, output
            for i_j_fused in 24
        """
        return self.sch.apply(Fuse(self, flatten(*axes), wide))

    def reorder(self, *order: IterVar | Sequence[IterVar]) -> None:
        """Put the given loops in this order, at the positions that they occupy together. Other loops stay.

            for i in 4:            for k in 16:
                for j in 8:   ->       for j in 8:       # reorder(k, i): j stays where it is
                    for k in 16:           for i in 4:

        Raises ScheduleError for a loop that is given twice or belongs to another stage.

        >>> C = te.compute((4, 6), lambda i, j: i + j, name="C")
        >>> s = te.create_schedule(C.op)
        >>> i, j = C.op.axis
        >>> s[C].reorder(j, i)
        >>> print(s[C])
        C: compute, output
            for j in 6
                for i in 4
        """
        self.sch.apply(Reorder(self, flatten(*order)))

    # ---- how a loop runs

    def bind(self, iv: IterVar, thread: IterVar) -> None:
        """Run a loop as a launch index: `s[C].bind(tx, tec.thread_axis("threadIdx.x"))`.

            for i_outer in 8:            # blockIdx.x: a work-group each
                for i_inner in 64:   ->  # threadIdx.x: a thread each
                    ...

        thread: `tec.thread_axis` of "blockIdx.x|y|z", "threadIdx.x|y|z" or "vthread". If it has an extent, it must be the loop's.
        A reduction loop can be bound to threadIdx only; the threads then combine their values. Raises ScheduleError if the loop
        already has a kind, another loop of the stage has the index, or extents differ.

        >>> C = te.compute((4, 6), lambda i, j: i + j, name="C")
        >>> s = te.create_schedule(C.op)
        >>> i, j = C.op.axis
        >>> s[C].bind(i, te.thread_axis("blockIdx.x"))
        >>> s[C].bind(j, te.thread_axis("threadIdx.x"))
        >>> print(s[C])
        C: compute, output
            for i in 4  # blockIdx.x
                for j in 6  # threadIdx.x
        """
        self.sch.apply(Bind(self, iv, thread))

    def vectorize(self, iv: IterVar) -> None:
        """Run a loop of constant extent as the lanes of vectors: loads and stores of neighbours become one access.

        A GPU accesses up to 16 bytes per thread at a time (`Target.max_vector_bytes`), a CPU the width of its vector unit. Raises
        ScheduleError for an extent that is not constant, and for a reduction loop (`rfactor` makes a data loop of it).

        >>> C = te.compute((4, 6), lambda i, j: i + j, name="C")
        >>> s = te.create_schedule(C.op)
        >>> i, j = C.op.axis
        >>> s[C].vectorize(j)
        >>> print(s[C])
        C: compute, output
            for i in 4
                for j in 6  # vectorized
        """
        self.sch.apply(Vectorize(self, iv))

    def unroll(self, iv: IterVar) -> None:
        """Write out every iteration of a loop of constant extent. Raises ScheduleError if the extent is not constant.

        Storage that such a loop indexes can stay in registers. A loop that is not unrolled indexes memory.

        >>> C = te.compute((4, 6), lambda i, j: i + j, name="C")
        >>> s = te.create_schedule(C.op)
        >>> i, j = C.op.axis
        >>> s[C].unroll(j)
        >>> print(s[C])
        C: compute, output
            for i in 4
                for j in 6  # unrolled
        """
        self.sch.apply(Unroll(self, iv))

    def parallel(self, iv: IterVar) -> None:
        """Share the iterations of a loop among the threads of the CPU (`TEC_NUM_THREADS`, by default all cores).

        Raises ScheduleError for a reduction loop, whose iterations depend on each other.

        >>> C = te.compute((4, 6), lambda i, j: i + j, name="C")
        >>> s = te.create_schedule(C.op)
        >>> i, j = C.op.axis
        >>> s[C].parallel(i)
        >>> print(s[C])
        C: compute, output
            for i in 4  # parallel
                for j in 6
        """
        self.sch.apply(Parallel(self, iv))

    def tensorize(self, iv: IterVar, intrin: Any) -> None:
        """Replace the loop `iv` and all loops inside it by a tensor intrinsic that computes the same.

            for io in 8:                 for io in 8:
                for ii in 16:       ->       mfma(...)     # one instruction of a wavefront for all three
                    for j in 16:
                        for k in 16:

        intrin: made by `tec.decl_tensor_intrin`, or a ready one of `tec.te.intrin`. Raises ScheduleError at once if it is not an
        intrinsic, and at lowering if computation, types, extents or strides differ from the intrinsic's.
        """
        self.sch.apply(Tensorize(self, iv, intrin))

    def pragma(self, iv: IterVar, name: str, value: Any = None) -> None:
        """Give the passes a note about a loop. `tec.ir.notes` lists all notes.

        "auto_unroll_max_step" (value: steps) unrolls serial loops inside as long as the unrolled steps stay within the value.
        "unroll_explicit" False leaves this unrolling to LLVM. "software_pipeline" (value: slots of storage, or (1, prefetch
        distance in iterations)) starts the loads of later iterations early. Raises ScheduleError for a name that no pass knows,
        and for a value that does not fit.

        >>> C = te.compute((4, 6), lambda i, j: i + j, name="C")
        >>> s = te.create_schedule(C.op)
        >>> i, j = C.op.axis
        >>> s[C].pragma(i, "auto_unroll_max_step", 6)
        >>> print(s[C])
        C: compute, output
            for i in 4  # pragma auto_unroll_max_step=6
                for j in 6
        """
        self.sch.apply(Pragma(self, iv, name, value))

    def software_pipeline(self, iv: IterVar, stages: Sequence[int], order: Sequence[int] | None = None) -> None:
        """Overlap the iterations of a loop: each statement of its body gets a stage, and a position.

            for k in 16:                 a[0] = A[0]                   # prologue
                a = A[k]                 for k in 15:
                C[0] += a * a     ->         a[(k + 1) % 2] = A[k + 1]
                                             C[0] += a[k % 2] * a[k % 2]
                                         C[0] += a[1] * a[1]           # epilogue

        stages: for each statement of the body, in order, by how many turns of the new loop it is behind; (0, 1) above. order: the
        position of each statement in a turn, by default that of the body. Storage that the body allocates gets one slot for each
        iteration that uses it at the same time. Raises ScheduleError if these are not such lists. Lowering raises LoweringError
        if the body has another number of statements, or if the order would change the result.

        >>> A = te.placeholder((8,), name="A")
        >>> k = te.reduce_axis(8, name="k")
        >>> C = te.compute((1,), lambda i: te.sum(A[k], axis=k), name="C")
        >>> s = te.create_schedule(C.op)
        >>> AL = s.cache_read(A, "local", [C])
        >>> s[AL].compute_at(s[C], k)
        >>> s[C].software_pipeline(k, stages=(0, 1))
        >>> print(s)
        A: placeholder
        C: compute, output
            for i in 1
                for k in 8  # reduce, pragma software_pipeline_order=(0, 1), (0, 1)
                    A_local: compute, local
                        for ax0
        """
        self.sch.apply(SoftwarePipeline(self, iv, stages, order))

    def prefetch(self, tensor: Tensor, var: IterVar, offset: Any) -> None:
        """Prefetch what will be read of `tensor` in `offset` iterations of loop `var` from now, one instruction per cache line.

        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
        >>> s = te.create_schedule(B.op)
        >>> s[B].prefetch(A, B.op.axis[0], 2)
        >>> print(s[B])
        B: compute, output
            for i in 8  # prefetch A +2
        """
        self.sch.apply(Prefetch(self, tensor, var, offset))

    # ---- where it is computed, and how stored

    def compute_at(self, parent: Stage, scope: IterVar) -> None:
        """Compute the stage inside loop `scope` of stage `parent`: in each iteration only what that iteration needs.

            for i in 64:                 for i in 64:
                A[i] = ...        ->         A[0] = ...      # storage for one element
            for i in 64:                     B[i] = A[0] ...
                B[i] = A[i] ...

        Bounds are inferred. A parent that reads neighbours (a stencil) makes the part larger. Raises ScheduleError if neither
        `parent` nor anything that it depends on reads this stage, or if this stage is an output.

        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
        >>> C = te.compute((8,), lambda i: B[i] * 2.0, name="C")
        >>> s = te.create_schedule(C.op)
        >>> s[B].compute_at(s[C], C.op.axis[0])
        >>> print(s)
        A: placeholder
        C: compute, output
            for i in 8
                B: compute
                    for i
        """
        self.sch.apply(ComputeAt(self, parent, scope))

    def compute_inline(self) -> None:
        """Substitute the expression for every read of the stage. The stage then has neither storage nor loops.

        If its tensor is a parameter of the function, the buffer stays unchanged, and lowering warns. Raises ScheduleError for an
        output, for a reduction, and for anything that is not a compute.

        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
        >>> C = te.compute((8,), lambda i: B[i] * 2.0, name="C")
        >>> s = te.create_schedule(C.op)
        >>> s[B].compute_inline()
        >>> print(s)
        A: placeholder
        B: compute, inlined
        C: compute, output
            for i in 8
        """
        self.sch.apply(ComputeInline(self))

    def compute_root(self) -> None:
        """Give the stage a loop nest of its own again. This undoes `compute_at` and `compute_inline`.

        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
        >>> C = te.compute((8,), lambda i: B[i] * 2.0, name="C")
        >>> s = te.create_schedule(C.op)
        >>> s[B].compute_at(s[C], C.op.axis[0])
        >>> s[B].compute_root()
        >>> print(s)
        A: placeholder
        B: compute
            for i in 8
        C: compute, output
            for i in 8
        """
        self.sch.apply(ComputeRoot(self))

    def set_scope(self, scope: str) -> None:
        """Choose the memory that holds the values of the stage.

        scope: "global"; "shared" (LDS of a work-group) or "shared.dyn" (sized at launch); "local" (registers of a thread);
        "fragment.a", "fragment.b", "fragment.acc" (tiles over the registers of a wavefront, for matrix units). By default a stage
        inside loops over threadIdx is local, inside loops over blockIdx only shared, and otherwise global. Raises ScheduleError
        for an output.

        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
        >>> C = te.compute((8,), lambda i: B[i] * 2.0, name="C")
        >>> s = te.create_schedule(C.op)
        >>> s[B].compute_at(s[C], C.op.axis[0])
        >>> s[B].set_scope("local")
        >>> print(s)
        A: placeholder
        C: compute, output
            for i in 8
                B: compute, local
                    for i
        """
        self.sch.apply(SetScope(self, scope))

    def env_threads(self, threads: IterVar | Sequence[IterVar]) -> None:
        """Put launch indices around a whole scan. Its time loop then runs inside one kernel."""
        self.sch.apply(EnvThreads(self, flatten(threads)))

    def set_store_predicate(self, predicate: Any) -> None:
        """Store only where `predicate` holds, such as `thread_x.var.equal(0)`. The values are computed in any case.

        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
        >>> s = te.create_schedule(B.op)
        >>> tx = te.thread_axis("threadIdx.x")
        >>> s[B].bind(B.op.axis[0], tx)
        >>> s[B].set_store_predicate(tx.var.equal(0))
        >>> print(s[B])
        B: compute, output
            for i in 8  # threadIdx.x
        """
        self.sch.apply(SetStorePredicate(self, predicate))

    def storage_align(self, axis: IterVar, factor: int, offset: int) -> None:
        """Pad the storage so that the stride of data axis `axis`, in elements, is `offset` modulo `factor`.

        `s[shared].storage_align(row, 32, 8)` starts the rows of a tile in different LDS banks.

        >>> C = te.compute((4, 6), lambda i, j: i + j, name="C")
        >>> D = te.compute((4, 6), lambda i, j: C[i, j], name="D")
        >>> s = te.create_schedule(D.op)
        >>> s[C].storage_align(C.op.axis[0], 8, 4)  # rows begin 12 elements apart
        >>> print(s[C])
        C: compute
            for i in 4
                for j in 6
        """
        self.sch.apply(StorageAlign(self, axis, factor, offset))

    def double_buffer(self) -> None:
        """Keep two copies of the storage: one is filled while the other is read.

        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
        >>> C = te.compute((8,), lambda i: B[i] * 2.0, name="C")
        >>> s = te.create_schedule(C.op)
        >>> s[B].double_buffer()
        >>> print(s[B])
        B: compute, double_buffer
            for i in 8
        """
        self.sch.apply(DoubleBuffer(self))

    def rolling_buffer(self) -> None:
        """Keep what neighbouring iterations of the attachment loop share in a circular buffer, instead of computing it again.

        >>> A = te.placeholder((10,), name="A")
        >>> B = te.compute((10,), lambda i: A[i] + 1.0, name="B")
        >>> C = te.compute((8,), lambda i: B[i] + B[i + 1] + B[i + 2], name="C")
        >>> s = te.create_schedule(C.op)
        >>> s[B].compute_at(s[C], C.op.axis[0])
        >>> s[B].rolling_buffer()
        >>> print(s)
        A: placeholder
        C: compute, output
            for i in 8
                B: compute, rolling_buffer
                    for i
        """
        self.sch.apply(RollingBuffer(self))

    def transform_layout(
        self, mapping: Callable[..., Any], keep_loops: bool = False, within: Sequence[int | Sequence[int]] | None = None
    ) -> list[IterVar]:
        """Store the output under another index: `lambda n, c, h, w: [n, c // 4, h, w, c % 4]`.

        mapping: from the old indices to a list of the new ones. A parameter of the function then has the shape of the new layout.
        keep_loops: leave the loops as they are. within: of an output, the sizes of the layout where they are smaller than the map's; what lies beyond,
        or before 0 by a constant that the map takes off an index, is not stored; several sizes in place of one are those of neighbouring indices that are one dimension in memory. Returns the new loops, or an empty list with keep_loops. Raises ScheduleError for
        a second layout of one stage, and for a stage that is neither a compute nor an input.

        >>> C = te.compute((4, 6), lambda i, j: i + j, name="C")
        >>> s = te.create_schedule(C.op)
        >>> i, j = C.op.axis
        >>> new = s[C].transform_layout(lambda i, j: [j, i])
        >>> print(s[C])
        C: compute, output
            for j in 6
                for i in 4
        """
        return self.sch.apply(TransformLayout(self, mapping, keep_loops or None, within))
