"""Tensor intrinsics in place of loops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import LoweringError
from ..ir import stmt as S
from ..te.operation import ComputeOp
from .stage import Stage

if TYPE_CHECKING:
    from .to_loops import Lowering


def tensorized_at(stage: Stage) -> int | None:
    """The place of the tensorized loop, None where there is none."""
    for k, iv in enumerate(stage.leaf):
        a = stage.attrs.get(iv)
        if a is not None and a.kind == "tensorized":
            return k
    return None


def lower_tensorized(low: Lowering, stage: Stage, op: ComputeOp, at: int) -> S.Stmt:
    raise LoweringError("tensorize is not there yet")
