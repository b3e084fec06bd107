"""Parameters that are computed inside of concurrent loops of another stage.

Threads that computed such a tensor in the parameter's own memory would each begin it anew (its start value, its sums) while others read it. So each
computes it in storage of its own, and copies what it computed to the parameter.
"""

from __future__ import annotations

from ..errors import LoweringError
from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.buffer import Buffer
from ..ir.visit import walk_exprs
from ..te.operation import ComputeOp
from .schedule import Schedule
from .show import fail
from .stage import Stage
from .state import AttachKind
from .storage import Storage

Tensors = dict[tuple[int, int], Buffer]


def split_off(sch: Schedule, tensors: Tensors) -> Tensors:
    """Takes those parameters out of `tensors`. Raises ScheduleError where what the threads compute might not be all of one."""
    found: Tensors = {}
    for stage in sch.stages:
        if not _in_concurrent_loops(stage):
            continue
        for k in range(stage.op.num_outputs):
            buffer = tensors.pop((id(stage), k), None)
            if buffer is None:
                continue
            if stage.layout is not None or not _read_at_each_place(sch, stage, k):
                raise fail(
                    sch, f"parameter {stage.name} is computed inside of loops that run at once, and not element by element with what they compute",
                    mark=stage, hint=f"compute it before: s[{stage.name}].compute_root()",
                )  # fmt: skip
            found[id(stage), k] = buffer
    return found


def _in_concurrent_loops(stage: Stage) -> bool:
    at = stage.placement
    while at.attach == AttachKind.SCOPE:
        parent, loop = at.attach_stage, at.attach_ivar
        assert parent is not None
        around = parent.leaf[: next((k + 1 for k, x in enumerate(parent.leaf) if x is loop), 0)]
        if any(parent.thread_of(x) or parent.attr(x).kind == "parallel" for x in around):
            return True
        at = parent.placement
    return False


def _read_at_each_place(sch: Schedule, stage: Stage, k: int) -> bool:
    """Whether an output of the schedule reads each element at its own index."""
    tensor = stage.op.output(k)
    for reader in sch.stages:
        op = reader.op
        if not reader.is_output or not isinstance(op, ComputeOp) or reader.placement.attach != AttachKind.ROOT:
            continue
        own = [a.var for a in op.axis]
        for e in (e for body in op.body for e in walk_exprs(body)):
            if (
                isinstance(e, E.TensorRead)
                and sch.stage_map.get(e.tensor.op) is stage
                and e.tensor.value_index == tensor.value_index
                and len(e.indices) == len(own)
                and all(i is v or B.is_const(n, 1) for i, v, n in zip(e.indices, own, tensor.shape))
            ):
                return True
    return False


def copy_out(storage: Storage, buffer: Buffer) -> S.Stmt:
    """The stores of what `storage` holds to the parameter `buffer`. Raises LoweringError where it holds it in another order."""
    if storage.layout is not None or storage.rolling is not None:
        raise LoweringError(
            f"{buffer.name} is computed inside of concurrent loops in a layout of its own",
            hint="compute it at the root, or leave its layout as it is",
        )
    held = storage.buffer
    places = [E.Var(f"c{d}", low.dtype, True) for d, low in enumerate(storage.mins)]
    at = [B.add(low, v) for low, v in zip(storage.mins, places)]
    body: S.Stmt = S.BufferStore(buffer, E.BufferLoad(held, tuple(places) or (B.const(0),)), tuple(at) or (B.const(0),))
    inside = B.all_of(*(B.compare("lt", i, B.cast(i.dtype, n)) for i, n in zip(at, buffer.shape)))
    if not B.is_const(inside, 1):
        body = S.IfThenElse(inside, body)
    for v, n in reversed(list(zip(places, held.shape))):
        body = S.For(v, B.const(0, v.dtype), B.cast(v.dtype, n), body)
    return body
