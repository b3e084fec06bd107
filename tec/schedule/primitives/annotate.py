"""bind, vectorize, unroll, parallel, tensorize, pragma, prefetch, env_threads: what is done with a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ...errors import ExprError
from ...ir import build as B
from ...ir.dtype import dtype_info
from ...ir.expr import Expr, IntImm, IterKind, IterVar
from ...ir.notes import Note, make, usage
from ...records import dataclass
from ...te.operation import ComputeOp, ScanOp
from ...te.tensor import Tensor
from ..script_loops import check_steps_apart
from ..show import fail, known_ranges
from ..state import AttachKind
from .base import Primitive
from .checks import check_has_loops, check_loop, describe

if TYPE_CHECKING:
    from ..schedule import Schedule
    from ..stage import Stage


@dataclass(frozen=True, slots=True)
class Bind(Primitive[None]):
    """A loop runs as a launch index."""

    method: ClassVar[str] = "bind"

    stage: Any
    iv: Any
    thread: Any

    def check(self, sch: Schedule) -> None:
        stage, thread = self.stage, self.thread
        check_has_loops(stage, "bind")
        iv = check_loop(stage, self.iv, "bind")
        if not isinstance(thread, IterVar) or thread.kind != IterKind.THREAD:
            raise fail(
                stage, f"bind of {iv.name} to {describe(thread)}, which is no thread axis", mark=iv,
                hint='tec.thread_axis("threadIdx.x")',
            )  # fmt: skip
        _check_unused(stage, iv)
        _check_kind(stage, iv, thread.thread_tag)
        check_steps_apart(stage, iv, "bind")
        _check_index_free(stage, iv, thread.thread_tag)
        _check_extent(stage, iv, thread)

    def apply(self, sch: Schedule) -> None:
        self.stage.attr(self.iv).thread = self.thread


def _check_unused(stage: Stage, iv: IterVar) -> None:
    a = stage.attrs.get(iv)
    if a is not None and a.thread is not None:
        raise fail(
            stage, f"loop {iv.name} of {stage.name} is bound to {a.thread.thread_tag} already", mark=iv,
            hint="split the loop to use two launch indices",
        )  # fmt: skip
    if a is not None and a.kind != "serial":
        raise fail(
            stage,
            f"bind: loop {iv.name} of {stage.name} is {a.kind} already",
            mark=iv,
            hint="split the loop, and give each part one use",
        )


def _check_kind(stage: Stage, iv: IterVar, tag: str) -> None:
    if iv.kind in (IterKind.ORDERED, IterKind.OPAQUE):
        raise fail(
            stage,
            f"bind: loop {iv.name} of {stage.name} is {iv.kind} and must run in order",
            mark=iv,
            hint="bind a data loop",
        )
    if iv.kind == IterKind.REDUCE and not tag.startswith("threadIdx"):
        raise fail(
            stage, f"bind of reduce loop {iv.name} to {tag}: only the threads of a work-group combine their values", mark=iv,
            hint="bind it to threadIdx.*, or rfactor it and bind the new data axis",
        )  # fmt: skip


def _check_index_free(stage: Stage, iv: IterVar, tag: str) -> None:
    """A stage has one loop for each launch index; virtual threads may be several."""
    if tag == "vthread":
        return
    for other in stage.leaf:
        if other is not iv and stage.thread_of(other) == tag:
            raise fail(
                stage, f"bind of {iv.name} to {tag}, which loop {other.name} of {stage.name} has already", mark=other,
                hint=f"fuse {other.name} and {iv.name}, or use another index",
            )  # fmt: skip


def _check_extent(stage: Stage, iv: IterVar, thread: IterVar) -> None:
    """A thread axis with an extent of its own takes a loop of that extent."""
    if thread.dom is None or stage.placement.attach != AttachKind.ROOT:
        return
    r = known_ranges(stage).get(iv)
    if r is None:
        return
    have, want = r.extent, thread.dom.extent
    if isinstance(have, IntImm) and isinstance(want, IntImm) and have.value > want.value:
        raise fail(
            stage, f"bind of {iv.name} (extent {have}) to {thread.thread_tag} of extent {want}", mark=iv,
            hint=f"split the loop by factor={want}, or leave the thread axis without an extent",
        )  # fmt: skip


# ---- kinds of loops


@dataclass(frozen=True, slots=True)
class _Kind(Primitive[None]):
    """A loop runs as something other than one step after another."""

    kind: ClassVar[str]

    stage: Any
    iv: Any

    def check(self, sch: Schedule) -> None:
        check_has_loops(self.stage, self.method)
        iv = check_loop(self.stage, self.iv, self.method)
        _check_annotation(self.stage, iv, self.kind, self.method)
        if self.kind in ("vectorized", "parallel"):
            _check_independent(self.stage, iv, self.kind, self.method)
            check_steps_apart(self.stage, iv, self.method)
        if self.kind in ("vectorized", "unrolled"):
            _check_constant(self.stage, iv, self.method)

    def apply(self, sch: Schedule) -> None:
        self.stage.attr(self.iv).kind = self.kind


@dataclass(frozen=True, slots=True)
class Vectorize(_Kind):
    """A loop runs as the lanes of vectors."""

    method: ClassVar[str] = "vectorize"
    kind: ClassVar[str] = "vectorized"


@dataclass(frozen=True, slots=True)
class Unroll(_Kind):
    """A loop is written out."""

    method: ClassVar[str] = "unroll"
    kind: ClassVar[str] = "unrolled"


@dataclass(frozen=True, slots=True)
class Parallel(_Kind):
    """A loop's steps run on the threads of the CPU."""

    method: ClassVar[str] = "parallel"
    kind: ClassVar[str] = "parallel"


def _check_annotation(stage: Stage, iv: IterVar, kind: str, what: str) -> None:
    a = stage.attrs.get(iv)
    if a is not None and a.thread is not None:
        raise fail(
            stage,
            f"{what}: loop {iv.name} of {stage.name} is bound to {a.thread.thread_tag}",
            mark=iv,
            hint="split the loop before bind, and annotate the other part",
        )
    if a is not None and a.kind not in ("serial", kind):
        raise fail(
            stage, f"{what}: loop {iv.name} of {stage.name} is {a.kind} already", mark=iv,
            hint="split the loop, and give each part one kind",
        )  # fmt: skip
    if iv.kind == IterKind.THREAD:
        raise fail(stage, f"{what}: {iv.name} is a launch index", mark=iv, hint="annotate a loop of the stage")


def _check_independent(stage: Stage, iv: IterVar, kind: str, what: str) -> None:
    if iv.kind == IterKind.REDUCE:
        raise fail(
            stage, f"{what} of reduce loop {iv.name} of {stage.name}: its steps depend on each other", mark=iv,
            hint=f"s.rfactor({stage.name}, {iv.name}) makes a data axis of it, which can be {kind}",
        )  # fmt: skip
    if iv.kind in (IterKind.ORDERED, IterKind.OPAQUE):
        raise fail(
            stage,
            f"{what}: loop {iv.name} of {stage.name} is {iv.kind} and must run in order",
            mark=iv,
            hint="annotate a data loop",
        )


def _check_constant(stage: Stage, iv: IterVar, what: str) -> None:
    r = known_ranges(stage).get(iv)
    if r is not None and not isinstance(r.extent, IntImm) and stage.placement.attach == AttachKind.ROOT:
        raise fail(
            stage, f"{what}: the extent of loop {iv.name} of {stage.name} is {r.extent}, not a constant", mark=iv,
            hint=f"s[{stage.name}].split({iv.name}, factor=8) and {what} the inner loop",
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensorize(Primitive[None]):
    """A tensor intrinsic computes the loops from `iv` inwards."""

    method: ClassVar[str] = "tensorize"

    stage: Any
    iv: Any
    intrin: Any

    def check(self, sch: Schedule) -> None:
        stage, intrin = self.stage, self.intrin
        check_has_loops(stage, "tensorize")
        iv = check_loop(stage, self.iv, "tensorize")
        if not (hasattr(intrin, "op") and hasattr(intrin, "buffers") and hasattr(intrin, "body")):
            raise fail(
                stage, f"tensorize of {iv.name} with {describe(intrin)}, which is no tensor intrinsic", mark=iv,
                hint="make one by tec.decl_tensor_intrin",
            )  # fmt: skip
        if not isinstance(stage.op, ComputeOp):
            raise fail(
                stage, f"tensorize: {stage.name} is no compute", mark=stage, hint="tensorize the loops of a tec.compute"
            )
        a = stage.attrs.get(iv)
        if a is not None and (a.thread is not None or a.kind not in ("serial", "tensorized")):
            done = a.thread.thread_tag if a.thread is not None else a.kind
            raise fail(
                stage,
                f"tensorize: loop {iv.name} of {stage.name} is {done} already",
                mark=iv,
                hint="tensorize a serial loop",
            )

    def apply(self, sch: Schedule) -> None:
        a = self.stage.attr(self.iv)
        a.kind, a.intrin = "tensorized", self.intrin


# ---- notes for passes


@dataclass(frozen=True, slots=True)
class Pragma(Primitive[None]):
    """A note on a loop."""

    method: ClassVar[str] = "pragma"

    stage: Any
    iv: Any
    name: Any
    value: Any = None

    def check(self, sch: Schedule) -> None:
        check_has_loops(self.stage, "pragma")
        iv = check_loop(self.stage, self.iv, "pragma")
        try:
            make(self.name, self.value)
        except ExprError as e:
            raise fail(
                self.stage, f"pragma of {iv.name}: {e.message}", mark=iv, hint=e.hint or usage(self.name)
            ) from None

    def apply(self, sch: Schedule) -> None:
        self.stage.attr(self.iv).notes.append(make(self.name, self.value))


@dataclass(frozen=True, slots=True)
class SoftwarePipeline(Primitive[None]):
    """A loop's statements in an order of one's own, steps overlapping."""

    method: ClassVar[str] = "software_pipeline"

    stage: Any
    iv: Any
    stages: Any
    order: Any = None

    def check(self, sch: Schedule) -> None:
        check_has_loops(self.stage, "software_pipeline")
        iv = check_loop(self.stage, self.iv, "software_pipeline")
        try:
            self.note()
        except ExprError as e:
            raise fail(
                self.stage, e.message.replace("software_pipeline_order", f"software_pipeline of {iv.name}"), mark=iv,
                hint="software_pipeline(axis, stages, order): an integer each for every statement of the loop's body, in its order, as print(tec.lower(...)) shows it",
            ) from None  # fmt: skip

    def note(self) -> Note:
        return make("software_pipeline_order", (self.stages, () if self.order is None else self.order))

    def apply(self, sch: Schedule) -> None:
        self.stage.attr(self.iv).notes.append(self.note())


@dataclass(frozen=True, slots=True)
class Prefetch(Primitive[None]):
    """What later steps of a loop read is fetched now."""

    method: ClassVar[str] = "prefetch"

    stage: Any
    tensor: Any
    var: Any
    offset: Any

    def check(self, sch: Schedule) -> None:
        stage, tensor = self.stage, self.tensor
        check_has_loops(stage, "prefetch")
        iv = check_loop(stage, self.var, "prefetch")
        source = sch.find(tensor)
        if not isinstance(tensor, Tensor) or source is None:
            raise fail(
                stage,
                f"prefetch of {describe(tensor)}, which is no tensor of this schedule",
                mark=iv,
                hint="prefetch(tensor, loop, distance): a tensor that the stage reads",
            )
        if not any(sch.find(t) is source for t in stage.op.inputs):
            raise fail(
                stage, f"prefetch of {tensor.name}, which {stage.name} does not read", mark=stage,
                hint=f"{stage.name} reads {', '.join(t.name for t in stage.op.inputs)}",
            )  # fmt: skip
        if self._distance() is None:
            what = f"prefetch of {tensor.name} by {self.offset!r} steps"
            raise fail(stage, what, mark=iv, hint="a whole number of steps")

    def _distance(self) -> Expr | None:
        try:
            distance = B.convert(self.offset)
        except ExprError:
            return None
        return distance if dtype_info(distance.dtype).is_int else None

    def apply(self, sch: Schedule) -> None:
        self.stage.attr(self.var).prefetches.append((self.tensor, self._distance()))


# ---- launch indices of a scan


@dataclass(frozen=True, slots=True)
class EnvThreads(Primitive[None]):
    """Launch indices around a whole scan."""

    method: ClassVar[str] = "env_threads"
    lists: ClassVar[tuple[str, ...]] = ("threads",)

    stage: Any
    threads: Any

    def check(self, sch: Schedule) -> None:
        stage = self.stage
        check_has_loops(stage, "env_threads")
        if not isinstance(stage.op, ScanOp):
            raise fail(
                stage, f"env_threads: {stage.name} is no scan", mark=stage,
                hint="bind the loops of a compute with bind(axis, thread)",
            )  # fmt: skip
        for t in self.threads:
            if not isinstance(t, IterVar) or t.kind != IterKind.THREAD or t.dom is None:
                raise fail(
                    stage, f"env_threads: {describe(t)} is no thread axis with an extent", mark=stage,
                    hint='tec.thread_axis((0, 64), "threadIdx.x")',
                )  # fmt: skip
        if stage.env:
            raise fail(
                stage, f"env_threads of {stage.name} are set already", mark=stage, hint="give all of them in one call"
            )

    def apply(self, sch: Schedule) -> None:
        stage = self.stage
        stage.env = list(self.threads)
        stage.leaf[:0] = self.threads
        stage.all[:0] = self.threads
