"""Other forms of a computation: what te says one expression an element, and could be computed otherwise.

An operator's te definition is what it means, on any target, with any sizes. Where there are faster ways (a product whose operands pass through shared
memory as padded tiles, a sort, a running sum), the definition carries what such a way needs to know as a note on its tensors; the templates of
`tec.choices` make it, or leave the definition as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from ..records import dataclass
from ..te import Tensor
from .registry import TensorType


@dataclass(frozen=True, eq=False)
class Form:
    """kind: the family of ways ("product", "topk", "running", "scatter"); inputs: tensors read; outputs: types of what it makes, in the order of
    the tensors that carry it; attrs: what else a way needs."""

    kind: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[TensorType, ...]
    attrs: dict[str, Any] = field(default_factory=dict)


def carry(form: Form, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors, each with the note that `form` makes it too."""
    for k, t in enumerate(tensors):
        t.op.attrs["form"], t.op.attrs["form_output"] = form, k
    return list(tensors)
