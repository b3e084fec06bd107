"""bind, vectorize, unroll, parallel, tensorize, pragma, prefetch and the storage notes."""

from __future__ import annotations

from typing import Any

from ...errors import ExprError
from ...ir import build as B
from ...ir.buffer import FRAGMENT_SCOPES, GLOBAL, LOCAL, SHARED, SHARED_DYN
from ...ir.dtype import dtype_info
from ...ir.expr import IntImm, IterKind, IterVar
from ...te.operation import ComputeOp, PlaceholderOp, ScanOp
from ...te.tensor import Tensor
from ..show import known_ranges
from ..stage import AttachKind, Stage
from .common import check_has_loops, check_loop, describe, fail

SCOPES = (GLOBAL, SHARED, SHARED_DYN, LOCAL, *FRAGMENT_SCOPES)


def bind(stage: Stage, loop: Any, thread: Any) -> None:
    check_has_loops(stage, "bind")
    iv = check_loop(stage, loop, "bind")
    if not isinstance(thread, IterVar) or thread.kind != IterKind.THREAD:
        raise fail(
            stage, f"bind of {iv.name} to {describe(thread)}, which is no thread axis", mark=iv,
            hint='tec.thread_axis("threadIdx.x")',
        )  # fmt: skip
    tag = thread.thread_tag
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
    if tag != "vthread":
        for other in stage.leaf:
            if other is not iv and stage.thread_of(other) == tag:
                raise fail(
                    stage, f"bind of {iv.name} to {tag}, which loop {other.name} of {stage.name} has already", mark=other,
                    hint=f"fuse {other.name} and {iv.name}, or use another index",
                )  # fmt: skip
    _check_extent(stage, iv, thread)
    stage.attr(iv).thread = thread


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


def set_kind(stage: Stage, loop: Any, kind: str, what: str) -> None:
    check_has_loops(stage, what)
    iv = check_loop(stage, loop, what)
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
    if kind in ("vectorized", "parallel") and iv.kind == IterKind.REDUCE:
        raise fail(
            stage, f"{what} of reduce loop {iv.name} of {stage.name}: its steps depend on each other", mark=iv,
            hint=f"s.rfactor({stage.name}, {iv.name}) makes a data axis of it, which can be {kind}",
        )  # fmt: skip
    if kind in ("vectorized", "parallel") and iv.kind in (IterKind.ORDERED, IterKind.OPAQUE):
        raise fail(
            stage,
            f"{what}: loop {iv.name} of {stage.name} is {iv.kind} and must run in order",
            mark=iv,
            hint="annotate a data loop",
        )
    if kind in ("vectorized", "unrolled"):
        r = known_ranges(stage).get(iv)
        if r is not None and not isinstance(r.extent, IntImm) and stage.placement.attach == AttachKind.ROOT:
            raise fail(
                stage, f"{what}: the extent of loop {iv.name} of {stage.name} is {r.extent}, not a constant", mark=iv,
                hint=f"s[{stage.name}].split({iv.name}, factor=8) and {what} the inner loop",
            )  # fmt: skip
    stage.attr(iv).kind = kind


def tensorize(stage: Stage, loop: Any, intrin: Any) -> None:
    check_has_loops(stage, "tensorize")
    iv = check_loop(stage, loop, "tensorize")
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
    if a is not None and (a.thread is not None or a.kind != "serial"):
        done = a.thread.thread_tag if a.thread is not None else a.kind
        raise fail(
            stage,
            f"tensorize: loop {iv.name} of {stage.name} is {done} already",
            mark=iv,
            hint="tensorize a serial loop",
        )
    stage.attr(iv).kind = "tensorized"
    stage.attr(iv).intrin = intrin


def pragma(stage: Stage, loop: Any, name: Any, value: Any) -> None:
    check_has_loops(stage, "pragma")
    iv = check_loop(stage, loop, "pragma")
    if not isinstance(name, str) or not name:
        raise fail(stage, f"pragma of {iv.name} named {name!r}", mark=iv, hint='a name such as "auto_unroll_max_step"')
    stage.attr(iv).pragmas.append((name, value))


def prefetch(stage: Stage, tensor: Any, loop: Any, offset: Any) -> None:
    check_has_loops(stage, "prefetch")
    iv = check_loop(stage, loop, "prefetch")
    source = stage.sch.find(tensor)
    if not isinstance(tensor, Tensor) or source is None:
        raise fail(
            stage,
            f"prefetch of {describe(tensor)}, which is no tensor of this schedule",
            mark=iv,
            hint="prefetch(tensor, loop, distance): a tensor that the stage reads",
        )
    if not any(stage.sch.find(t) is source for t in stage.op.inputs):
        raise fail(
            stage, f"prefetch of {tensor.name}, which {stage.name} does not read", mark=stage,
            hint=f"{stage.name} reads {', '.join(t.name for t in stage.op.inputs)}",
        )  # fmt: skip
    try:
        distance = B.convert(offset)
    except ExprError:
        distance = None
    if distance is None or not dtype_info(distance.dtype).is_int:
        raise fail(stage, f"prefetch of {tensor.name} by {offset!r} steps", mark=iv, hint="a whole number of steps")
    stage.attr(iv).prefetches.append((tensor, distance))


def set_scope(stage: Stage, scope: Any) -> None:
    if scope not in SCOPES:
        raise fail(
            stage if not stage.is_group else stage.sch, f"unknown scope {scope!r} of {stage.name}", mark=stage,
            hint=", ".join(SCOPES),
        )  # fmt: skip
    check_has_loops(stage, "set_scope")
    if stage.is_output and scope != GLOBAL:
        raise fail(
            stage, f"{stage.name} is an output; it cannot live in {scope} memory", mark=stage,
            hint=f's.cache_write({stage.name}, "{scope}") computes it there and copies it out',
        )  # fmt: skip
    stage.scope = scope


def env_threads(stage: Stage, threads: list[Any]) -> None:
    check_has_loops(stage, "env_threads")
    if not isinstance(stage.op, ScanOp):
        raise fail(
            stage, f"env_threads: {stage.name} is no scan", mark=stage,
            hint="bind the loops of a compute with bind(axis, thread)",
        )  # fmt: skip
    for t in threads:
        if not isinstance(t, IterVar) or t.kind != IterKind.THREAD or t.dom is None:
            raise fail(
                stage, f"env_threads: {describe(t)} is no thread axis with an extent", mark=stage,
                hint='tec.thread_axis((0, 64), "threadIdx.x")',
            )  # fmt: skip
    if stage.env:
        raise fail(
            stage, f"env_threads of {stage.name} are set already", mark=stage, hint="give all of them in one call"
        )
    stage.env = list(threads)
    stage.leaf[:0] = threads
    stage.all[:0] = threads


def set_store_predicate(stage: Stage, predicate: Any) -> None:
    check_has_loops(stage, "set_store_predicate")
    try:
        e = B.convert(predicate)
    except ExprError as err:
        raise fail(
            stage,
            f"store predicate of {stage.name}: {err.message}",
            mark=stage,
            hint="write a comparison: thread_x.var.equal(0)",
        ) from None
    if e.dtype != "bool":
        raise fail(
            stage, f"the store predicate of {stage.name} is {e.dtype}, not bool: {e}", mark=stage,
            hint="write a comparison: thread_x.var.equal(0)",
        )  # fmt: skip
    stage.store_predicate = e


def storage_align(stage: Stage, axis: Any, factor: Any, offset: Any) -> None:
    check_has_loops(stage, "storage_align")
    if not isinstance(axis, IterVar) or not any(axis is a for a in stage.op.axis):
        raise fail(
            stage, f"storage_align: {describe(axis)} is no axis of {stage.name}", mark=stage,
            hint=f"its axes: {', '.join(a.name for a in stage.op.axis)}",
        )  # fmt: skip
    for value, label, least in ((factor, "factor", 1), (offset, "offset", 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise fail(
                stage, f"storage_align of {axis.name}: the {label} is {value!r}", mark=stage,
                hint="elements: storage_align(axis, 32, 4)",
            )  # fmt: skip
    stage.attr(axis).align = (factor, offset % factor)


def double_buffer(stage: Stage) -> None:
    check_has_loops(stage, "double_buffer")
    if stage.is_output:
        raise fail(
            stage, f"double_buffer of {stage.name}, an output", mark=stage, hint="use it on an intermediate tensor"
        )
    stage.double_buffered = True


__all__ = [
    "PlaceholderOp", "bind", "double_buffer", "env_threads", "pragma", "prefetch", "set_kind", "set_scope",
    "set_store_predicate", "storage_align", "tensorize",
]  # fmt: skip
