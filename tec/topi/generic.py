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

# What a template fits follows from the definition, whatever the schedule is named after.
_NAMED = """
adaptive_pool argsort batch_matmul batch_norm binarize_pack binary_dense concatenate conv1d_ncw conv1d_nwc conv1d_transpose_ncw conv2d_NCHWc conv2d_hwcn conv2d_nchw
conv2d_nhwc conv2d_transpose_nchw conv3d_ncdhw conv3d_ndhwc conv3d_transpose_ncdhw correlation_nchw deformable_conv2d_nchw deformable_conv2d_nhwc
dense dense_nopack dense_pack depthwise_conv2d_NCHWc depthwise_conv2d_nchw depthwise_conv2d_nhwc dilation2d_nchw dilation2d_nhwc einsum extern
fast_softmax get_valid_counts group_conv1d_ncw group_conv1d_nwc group_conv2d_nchw group_conv2d_nhwc group_conv2d_transpose_nchw injective lrn lstm
matmul multibox_detection multibox_prior multibox_transform_loc nms pool pool_grad proposal reduce reorg roi_align roi_pool scan softmax sort sparse_dense
sparse_transpose topk transpose
""".split()

__all__ = ["default_schedule", "schedule", "schedule_injective_from_existing", *(f"schedule_{n}" for n in _NAMED)]


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


for _name in _NAMED:
    globals()[f"schedule_{_name}"] = _named(_name)


def __getattr__(name: str) -> Callable[..., Schedule]:
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}: topi.schedule(outs, target) takes any operators"
    )


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
