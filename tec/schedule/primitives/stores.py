"""set_scope, set_store_predicate, storage_align, double_buffer, rolling_buffer: how a stage's values are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ...errors import ExprError
from ...ir import build as B
from ...ir.buffer import FRAGMENT_SCOPES, GLOBAL, LOCAL, SHARED, SHARED_DYN, WMMA_SCOPES
from ...ir.expr import IterVar
from ...records import dataclass
from ...te.operation import ComputeOp
from ..show import fail
from ..state import AttachKind
from .base import Primitive
from .checks import check_has_loops, describe

if TYPE_CHECKING:
    from ..schedule import Schedule

WARP = "warp"  # te's memory of one wavefront
SCOPES = (GLOBAL, SHARED, SHARED_DYN, LOCAL, *FRAGMENT_SCOPES, *WMMA_SCOPES, WARP)


def memory(scope: str) -> str:
    """The memory that a scope's values are in. A wavefront's own is shared memory: its lanes read what others of them wrote either way, and there is
    room beside the registers. TVM's names of matrix units' scopes are other names of tec's."""
    return SHARED if scope == WARP else WMMA_SCOPES.get(scope, scope)


@dataclass(frozen=True, slots=True)
class SetScope(Primitive[None]):
    """The memory that a stage's values are in."""

    method: ClassVar[str] = "set_scope"

    stage: Any
    scope: Any

    def check(self, sch: Schedule) -> None:
        stage, scope = self.stage, self.scope
        if scope not in SCOPES:
            raise fail(
                stage if not stage.is_group else sch, f"unknown scope {scope!r} of {stage.name}", mark=stage,
                hint=", ".join(SCOPES),
            )  # fmt: skip
        check_has_loops(stage, "set_scope")
        if stage.is_output and scope != GLOBAL:
            raise fail(
                stage, f"{stage.name} is an output; it cannot live in {scope} memory", mark=stage,
                hint=f's.cache_write({stage.name}, "{scope}") computes it there and copies it out',
            )  # fmt: skip

    def apply(self, sch: Schedule) -> None:
        self.stage.scope = memory(self.scope)


@dataclass(frozen=True, slots=True)
class SetStorePredicate(Primitive[None]):
    """Values are stored where a condition holds."""

    method: ClassVar[str] = "set_store_predicate"

    stage: Any
    predicate: Any

    def check(self, sch: Schedule) -> None:
        stage, hint = self.stage, "write a comparison: thread_x.var.equal(0)"
        check_has_loops(stage, "set_store_predicate")
        try:
            e = B.convert(self.predicate)
        except ExprError as err:
            what = f"store predicate of {stage.name}: {err.message}"
            raise fail(stage, what, mark=stage, hint=hint) from None
        if e.dtype != "bool":
            what = f"the store predicate of {stage.name} is {e.dtype}, not bool: {e}"
            raise fail(stage, what, mark=stage, hint=hint)

    def apply(self, sch: Schedule) -> None:
        self.stage.store_predicate = B.convert(self.predicate)


@dataclass(frozen=True, slots=True)
class StorageAlign(Primitive[None]):
    """The storage is padded so that a dimension's stride is `offset` modulo `factor` elements."""

    method: ClassVar[str] = "storage_align"

    stage: Any
    axis: Any
    factor: Any
    offset: Any

    def check(self, sch: Schedule) -> None:
        stage, axis = self.stage, self.axis
        check_has_loops(stage, "storage_align")
        if not isinstance(stage.op, ComputeOp):
            hint = "pad its tensors in the statements themselves, or cache_read what reads them"
            raise fail(stage, f"storage_align of {stage.name}, which is no compute", mark=stage, hint=hint)
        if not isinstance(axis, IterVar) or not any(axis is a for a in stage.op.axis):
            raise fail(
                stage, f"storage_align: {describe(axis)} is no axis of {stage.name}", mark=stage,
                hint=f"its axes: {', '.join(a.name for a in stage.op.axis)}",
            )  # fmt: skip
        for value, label, least in ((self.factor, "factor", 1), (self.offset, "offset", 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise fail(
                    stage, f"storage_align of {axis.name}: the {label} is {value!r}", mark=stage,
                    hint="elements: storage_align(axis, 32, 4)",
                )  # fmt: skip

    def apply(self, sch: Schedule) -> None:
        self.stage.attr(self.axis).align = (self.factor, self.offset % self.factor)


@dataclass(frozen=True, slots=True)
class DoubleBuffer(Primitive[None]):
    """Two copies of the storage: one is filled while the other is read."""

    method: ClassVar[str] = "double_buffer"

    stage: Any

    def check(self, sch: Schedule) -> None:
        stage = self.stage
        check_has_loops(stage, "double_buffer")
        if stage.is_output:
            raise fail(
                stage, f"double_buffer of {stage.name}, an output", mark=stage, hint="use it on an intermediate tensor"
            )

    def apply(self, sch: Schedule) -> None:
        self.stage.double_buffered = True


@dataclass(frozen=True, slots=True)
class RollingBuffer(Primitive[None]):
    """A circular buffer keeps what neighbouring steps of the attachment loop share."""

    method: ClassVar[str] = "rolling_buffer"

    stage: Any

    def check(self, sch: Schedule) -> None:
        stage = self.stage
        check_has_loops(stage, "rolling_buffer")
        if not isinstance(stage.op, ComputeOp):
            what = f"rolling_buffer of {stage.name}, which is no compute"
            raise fail(stage, what, mark=stage, hint="use it on a tec.compute")
        if stage.is_output:
            what = f"rolling_buffer of {stage.name}, an output"
            raise fail(stage, what, mark=stage, hint="use it on an intermediate tensor")
        if stage.placement.attach != AttachKind.SCOPE:
            raise fail(
                stage, f"rolling_buffer of {stage.name}, which is not computed in a loop of its reader", mark=stage,
                hint=f"s[{stage.name}].compute_at(consumer, axis) first",
            )  # fmt: skip

    def apply(self, sch: Schedule) -> None:
        self.stage.rolling = True
