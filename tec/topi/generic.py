"""Schedules for operators.

`schedule` is tec's own choice: the template that fits what the tensors compute, for any target. The `schedule_*` functions take te's users' names
for it: each gives a Schedule of the very operators, which its caller may go on with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from .. import choices
from ..errors import listed
from ..schedule import AutoInlineInjective, Schedule, create_schedule
from ..target import Target
from ..te import Tensor, thread_axis

_THREADS, _LANES = 256, 16  # a work-group that fills every chip's units, and a line of a CPU's cache in float32

__all__ = [
    "default_schedule", "schedule", "schedule_adaptive_pool", "schedule_argsort", "schedule_batch_matmul", "schedule_batch_norm",
    "schedule_conv1d_ncw", "schedule_conv1d_nwc", "schedule_conv2d_hwcn", "schedule_conv2d_nchw", "schedule_conv2d_nhwc",
    "schedule_conv2d_transpose_nchw", "schedule_conv3d_ncdhw", "schedule_dense", "schedule_depthwise_conv2d_nchw", "schedule_depthwise_conv2d_nhwc",
    "schedule_einsum", "schedule_extern", "schedule_fast_softmax", "schedule_group_conv2d_nchw", "schedule_injective",
    "schedule_injective_from_existing", "schedule_get_valid_counts", "schedule_lrn", "schedule_matmul", "schedule_multibox_detection", "schedule_multibox_prior",
    "schedule_multibox_transform_loc", "schedule_nms", "schedule_pool", "schedule_proposal", "schedule_reduce", "schedule_reorg", "schedule_roi_align", "schedule_roi_pool",
    "schedule_softmax", "schedule_sort", "schedule_sparse_dense", "schedule_topk",
]  # fmt: skip


def schedule(outs: Tensor | Sequence[Tensor], target: Target | str | None = None) -> choices.Scheduled:
    """A schedule for what computes `outs` on `target` (the current one by default), by what is recorded for it or by tec's default.

    Returns a `Scheduled`, which `tec.build` and `tec.lower` take with the parameters that they compute `outs` of. Its `.schedule` computes `.outputs` in
    place of `outs` (a template may compute an operator in another form, of the same values). Raises TecError.

    >>> A = te.placeholder((64,), name="A")
    >>> B = te.compute((64,), lambda i: A[i] + 1.0, name="B")
    >>> found = topi.schedule(B, "llvm")
    >>> found.outputs
    [Tensor(shape=[64], dtype=float32, op=B)]
    """
    given = [outs] if isinstance(outs, Tensor) else list(outs)
    return replace(choices.schedule(given, target), given=given)


def _own(outs: Tensor | Sequence[Tensor]) -> Schedule:
    """The first candidate that lowers and computes `outs` themselves, in no other form: what `outs` are is what the caller builds."""
    return choices.schedule([outs] if isinstance(outs, Tensor) else outs, keep_form=True).schedule


def _named(what: str) -> Callable[..., Schedule]:
    def function(outs: Tensor | Sequence[Tensor], *args: Any) -> Schedule:
        return _own(outs)

    function.__name__ = function.__qualname__ = f"schedule_{what}"
    function.__doc__ = (
        f"A schedule of `outs`, which end in {what.replace('_', ' ')}, for the current target (`with tec.Target(...)`)."
    )
    return function


# What a template fits follows from the definition, whatever the schedule is named after.
schedule_adaptive_pool = _named("adaptive_pool")
schedule_argsort = _named("argsort")
schedule_batch_matmul = _named("batch_matmul")
schedule_batch_norm = _named("batch_norm")
schedule_conv1d_ncw = _named("conv1d_ncw")
schedule_conv1d_nwc = _named("conv1d_nwc")
schedule_conv2d_hwcn = _named("conv2d_hwcn")
schedule_conv2d_nchw = _named("conv2d_nchw")
schedule_conv2d_nhwc = _named("conv2d_nhwc")
schedule_conv2d_transpose_nchw = _named("conv2d_transpose_nchw")
schedule_conv3d_ncdhw = _named("conv3d_ncdhw")
schedule_dense = _named("dense")
schedule_depthwise_conv2d_nchw = _named("depthwise_conv2d_nchw")
schedule_depthwise_conv2d_nhwc = _named("depthwise_conv2d_nhwc")
schedule_einsum = _named("einsum")
schedule_extern = _named("extern")
schedule_fast_softmax = _named("fast_softmax")
schedule_get_valid_counts = _named("get_valid_counts")
schedule_group_conv2d_nchw = _named("group_conv2d_nchw")
schedule_injective = _named("injective")
schedule_lrn = _named("lrn")
schedule_matmul = _named("matmul")
schedule_multibox_detection = _named("multibox_detection")
schedule_multibox_prior = _named("multibox_prior")
schedule_multibox_transform_loc = _named("multibox_transform_loc")
schedule_nms = _named("nms")
schedule_pool = _named("pool")
schedule_proposal = _named("proposal")
schedule_reduce = _named("reduce")
schedule_reorg = _named("reorg")
schedule_roi_align = _named("roi_align")
schedule_roi_pool = _named("roi_pool")
schedule_softmax = _named("softmax")
schedule_sort = _named("sort")
schedule_sparse_dense = _named("sparse_dense")
schedule_topk = _named("topk")


def default_schedule(outs: Tensor | Sequence[Tensor], auto_inline: bool) -> Schedule:
    """A schedule with nothing but, where `auto_inline` asks for it, each elementwise stage inlined where it is read, and the loops of the output as one."""
    given = [outs] if isinstance(outs, Tensor) else list(outs)
    made = create_schedule([t.op for t in given])
    if auto_inline:
        AutoInlineInjective(made)
        made[given[0]].fuse(*made[given[0]].op.axis)
    return made


def schedule_injective_from_existing(sch: Schedule, out: Tensor) -> Schedule:
    """The loops of an injective stage bound to threads on a GPU; on a CPU run in parallel, the last of them by vectors. Gives the schedule that it was given."""
    stage, target = sch[out], Target.current()
    if target is not None and target.is_gpu:
        block, thread = stage.split(stage.fuse(*out.op.axis), factor=_THREADS)
        stage.bind(block, thread_axis("blockIdx.x"))
        stage.bind(thread, thread_axis("threadIdx.x"))
        return sch
    *outer, last = out.op.axis
    if outer:
        stage.parallel(stage.fuse(*outer))
    stage.vectorize(stage.split(last, factor=_LANES)[1])
    return sch


__dir__ = listed(__name__)
