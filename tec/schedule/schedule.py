"""Schedule: the stages of a computation in order, and the primitives that change several of them.

`create_schedule` makes one stage an operation. A stage's operation may be replaced (cache_write, rfactor, inlining): the
tensors that the user holds stay valid, `s[T]` finds the stage of any tensor or operation it ever had.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from ..door import of_tec
from ..errors import ScheduleError, caller_loc
from ..ir.spelling import Spelled
from ..notebook import schedule
from ..te.complexes import ComplexTensor, reals
from ..te.operation import Operation, topo_order
from ..te.tensor import Tensor
from .primitives import CacheRead, CacheWrite, CreateGroup, Primitive, Rfactor
from .primitives.base import flatten
from .primitives.checks import describe
from .recorder import Recorder
from .replay import apply_trace
from .scan import attach_updates
from .show import schedule_text
from .stage import Stage
from .state import AttachKind
from .trace import Trace

Given = TypeVar("Given")


class Schedule(Spelled):
    """The schedule of a computation, made by `create_schedule`. `s[T]` is the stage of tensor or operation T, and `print(s)` shows the loops.

    >>> A = te.placeholder((8,), name="A")
    >>> B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
    >>> s = te.create_schedule(B.op)
    >>> outer, inner = s[B].split(B.op.axis[0], factor=4)
    >>> print(s)
    A: placeholder
    B: compute, output
        for i_outer in 2
            for i_inner in 4
    """

    def __init__(self, outputs: Sequence[Operation]):
        self.outputs = tuple(outputs)
        self.stages: list[Stage] = []
        self.groups: list[Stage] = []
        self.stage_map: dict[Operation, Stage] = {}
        self._names: dict[str, int] = {}
        self.recorder: Recorder | None = None
        for op in topo_order(list(outputs)):
            self.add_stage(op)
        for op in outputs:
            self.stage_map[op].is_output = True
        attach_updates(self)
        self.recorder = Recorder(self)

    def __copy__(self) -> Schedule:
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    # ---- stages

    def add_stage(self, op: Operation, at: int | None = None) -> Stage:
        """A new stage for `op`, at a place in the order (the end by default)."""
        stage = Stage(self, op, self.unique_name(op.name))
        stage.loc = op.loc
        self.stages.insert(len(self.stages) if at is None else at, stage)
        self.stage_map[op] = stage
        if self.recorder is not None:
            self.recorder.see(stage, op)
        return stage

    def unique_name(self, name: str) -> str:
        n = self._names.get(name)
        if n is None:
            self._names[name] = 1
            return name
        self._names[name] = n + 1
        return self.unique_name(f"{name}_{n}")

    def set_stage_op(self, stage: Stage, op: Operation, fresh: bool = False) -> None:
        """`stage` computes `op` from now on; `fresh` forgets its loops."""
        if fresh:
            stage.set_op(op)
        else:
            stage.replace_op(op)
        self.stage_map[op] = stage
        if self.recorder is not None:
            self.recorder.see(stage, op)

    def add_group(self, name: str) -> Stage:
        """A stage that stands for several together."""
        group = Stage(self, None, self.unique_name(name))
        self.groups.append(group)
        return group

    def find(self, key: Any) -> Stage | None:
        """The stage of a tensor, operation or stage; None where it is not of this schedule."""
        if isinstance(key, Stage):
            return key if key.sch is self else None
        op = key.op if isinstance(key, (Tensor, ComplexTensor)) else key
        return self.stage_map.get(op) if isinstance(op, Operation) else None

    def __getitem__(self, key: Any) -> Stage:
        stage = self.find(key)
        if stage is not None:
            return stage
        if isinstance(key, (Tensor, Operation)):
            raise ScheduleError(
                f"{key.name} is not part of this schedule",
                hint=f"its stages: {', '.join(s.name for s in self.stages)}",
            )
        raise ScheduleError(f"s[...] takes a tensor or an operation, not {key!r}", hint="s[C] or s[C.op]")

    def __contains__(self, key: Any) -> bool:
        return self.find(key) is not None

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    def readers(self, stage: Stage) -> list[Stage]:
        """The stages that read an output of `stage`, in order."""
        return [s for s in self.stages if any(self.stage_map.get(t.op) is stage for t in s.op.inputs)]

    # ---- records

    def apply(self, record: Primitive[Given]) -> Given:
        """Check a primitive (`tec.schedule.primitives`), apply it, append it to the trace; returns what it gives."""
        stage = getattr(record, "stage", None)
        if hasattr(record, "stage") and (not isinstance(stage, Stage) or stage.sch is not self):
            raise ScheduleError(
                f"{record}: {describe(stage)} is no stage of this schedule", hint="s[C] is that of tensor C"
            )
        record.check(self)
        given = record.apply(self)
        if self.recorder is not None:
            self.recorder.add(record, given)
        return given

    @property
    def trace(self) -> Trace:
        """The primitives applied so far: records that print as Python, go to JSON and back, and can be replayed."""
        assert self.recorder is not None
        return self.recorder.trace

    def replay(self, trace: Trace | str, intrins: dict[str, Any] | None = None) -> Schedule:
        """Apply a trace, or the text that it prints as, to this schedule of the same or a similar computation.

        Tensors are matched by name, or by order if the computation has as many tensors with other names. intrins: tensor
        intrinsics by name, which a trace from text or JSON does not hold. Returns this schedule. Raises ScheduleError for text
        that is not a trace, and if a primitive does not apply.

        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
        >>> s = te.create_schedule(B.op)
        >>> outer, inner = s[B].split(B.op.axis[0], factor=4)
        >>> print(te.create_schedule(B.op).replay(s.trace))
        A: placeholder
        B: compute, output
            for i_outer in 2
                for i_inner in 4
        """
        apply_trace(self, trace, intrins)
        return self

    # ---- primitives over several stages

    def cache_read(self, tensor: Tensor, scope: str, readers: Any) -> Tensor:
        """Make a copy of `tensor` in `scope`, which `readers` (tensors or operations) read instead. Returns the copy.

            for i: C[i] = A[i] ...    ->    for i: A_shared[i] = A[i]
                                            for i: C[i] = A_shared[i] ...

        Place it with `s[copy].compute_at(...)`; only what is read there is then copied. scope: as in `Stage.set_scope`. Raises
        ScheduleError if a reader does not read `tensor`, or is already scheduled.

        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
        >>> s = te.create_schedule(B.op)
        >>> AL = s.cache_read(A, "local", [B])
        >>> print(s)
        A: placeholder
        A_local: compute, local
            for ax0 in 8
        B: compute, output
            for i in 8
        """
        return self.apply(CacheRead(reals(tensor), scope, [reals(r) for r in flatten(readers)]))

    def cache_write(self, tensor: Any, scope: str) -> Any:
        """Compute `tensor` (or all outputs of one operation, as a list) in `scope` and copy it out afterwards.

            for i: C[i] = ...         ->    for i: C_local[i] = ...
                                            for i: C[i] = C_local[i]

        Returns the tensor in `scope` (a list for a list). It now has the computation, so schedule its axes. After a split or
        reorder of data loops the copy has one dimension for each loop, so its elements lie in the order of the loops.

        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
        >>> s = te.create_schedule(B.op)
        >>> BL = s.cache_write(B, "local")
        >>> print(s)
        A: placeholder
        B_local: compute, local
            for i_c in 8
        B: compute, output
            for i in 8
        """
        return self.apply(CacheWrite(reals(tensor), scope))

    def rfactor(self, tensor: Tensor, axis: Any, factor_axis: int = 0) -> Any:
        """Split a reduction along its loop `axis`: partial results for each value of `axis`, and then their reduction.

            for i:                        for k_inner, i:
                for k_outer:                  for k_outer: C_rf[k_inner, i] += A[...]
                    for k_inner:    ->    for i:
                        C[i] += A[...]        for k_inner: C[i] += C_rf[k_inner, i]

        factor_axis: the position of the new axis in the shape of the partial tensor. Returns the partial tensor, or a list if the
        reduction has several values.

        >>> A = te.placeholder((8,), name="A")
        >>> k = te.reduce_axis(8, name="k")
        >>> B = te.compute((1,), lambda i: te.sum(A[k], axis=k), name="B")
        >>> s = te.create_schedule(B.op)
        >>> ko, ki = s[B].split(k, factor=4)
        >>> BF = s.rfactor(B, ki)
        >>> print(s)
        A: placeholder
        B_rf: compute
            for k_inner in 4
                for i_rf in 1
                    for k_outer in 2  # reduce
        B: compute, output
            for i in 1
                for k_inner_v in 4  # reduce
        """
        return self.apply(Rfactor(reals(tensor), axis, factor_axis))

    def create_group(self, outputs: Any, inputs: Any, include_inputs: bool = False) -> Stage:
        """Group the stages between `inputs` and `outputs`, so that one `compute_at` places all of them. Returns the group.

        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
        >>> C = te.compute((8,), lambda i: B[i] * 2.0, name="C")
        >>> s = te.create_schedule(C.op)
        >>> group = s.create_group(outputs=B, inputs=A)
        >>> print(group)
        group: group
        """
        group: Stage = self.apply(CreateGroup(flatten(outputs), flatten(inputs), include_inputs))
        return group

    # ---- text

    def __str__(self) -> str:
        return schedule_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return schedule(str(self))


def create_schedule(ops: Any) -> Schedule:
    """A schedule that computes `ops`, with one loop nest for each stage.

    ops: an operation or tensor, or a list of them; they become the outputs. Returns a Schedule. Raises ScheduleError for an
    empty list and for anything else.

    >>> A = tec.placeholder((1024,), name="A")
    >>> C = tec.compute((1024,), lambda i: A[i] + 1.0, name="C")
    >>> s = tec.create_schedule(C.op)
    >>> bx, tx = s[C].split(C.op.axis[0], factor=64)
    """
    items = list(ops) if isinstance(ops, (list, tuple)) else [ops]
    if not items:
        raise ScheduleError("create_schedule of nothing", hint="give the output: tec.create_schedule(C.op)")
    found: list[Operation] = []
    for item in items:
        op = item.op if isinstance(item, (Tensor, ComplexTensor)) else item
        if not isinstance(op, Operation):
            raise ScheduleError(
                f"create_schedule takes operations or tensors, not {item!r} ({type(item).__name__})",
                where=caller_loc(),
                hint="tec.create_schedule(C.op)",
            )
        if op not in found:
            found.append(op)
    return Schedule(found)


def replay(trace: Trace | str, outputs: Any, intrins: dict[str, Any] | None = None) -> Schedule:
    """The schedule of `outputs` that a trace or its text describes. See `Schedule.replay`.

    >>> A = te.placeholder((8,), name="A")
    >>> B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
    >>> s = te.create_schedule(B.op)
    >>> outer, inner = s[B].split(B.op.axis[0], factor=4)
    >>> print(tec.schedule.replay(s.trace, B))
    A: placeholder
    B: compute, output
        for i_outer in 2
            for i_inner in 4
    """
    return create_schedule(outputs).replay(trace, intrins)


_DOOR = of_tec(ScheduleError)
_DOOR.check_methods(Stage)
_DOOR.check_methods(Schedule)
create_schedule = _DOOR.checked("create_schedule", create_schedule)

__all__ = ["AttachKind", "Schedule", "Stage", "Trace", "create_schedule", "replay"]
