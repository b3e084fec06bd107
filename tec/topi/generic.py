"""Schedules for operators.

`schedule` is tec's own choice: the template that fits what the tensors compute, for any target. The `schedule_*` functions take te's users' names
for it: each gives a Schedule of the very operators, which its caller may go on with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from .. import choices
from ..schedule import Schedule
from ..target import Target
from ..te import Tensor

__all__ = [
    "schedule", "schedule_batch_matmul", "schedule_conv2d_nchw", "schedule_dense", "schedule_extern", "schedule_injective",
    "schedule_pool", "schedule_reduce", "schedule_softmax",
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


schedule_injective = _named("injective")
schedule_reduce = _named("reduce")
schedule_softmax = _named("softmax")
schedule_dense = _named("dense")
schedule_batch_matmul = _named("batch_matmul")
schedule_conv2d_nchw = _named("conv2d_nchw")
schedule_pool = _named("pool")
schedule_extern = _named("extern")
