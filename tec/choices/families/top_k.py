"""What all ways to the largest elements in order are asked (`sorts`, `insertions`, `selection`, `word_sorts`)."""

from __future__ import annotations

from ...ops.forms import Form
from ...ops.registry import static_shape
from ...records import dataclass
from ...target import Target
from ..parts import loops


@dataclass(frozen=True, slots=True)
class TopK:
    """The k largest (or smallest) of each of `lines` in order, and their places, into `kept`; of equals the first comes first."""

    target: Target
    dtype: str
    lines: loops.Lines
    kept: loops.Lines
    k: int
    largest: bool

    @classmethod
    def of(cls, form: Form, target: Target) -> TopK:
        x, axis = form.inputs[0], form.attrs["axis"]
        lines, kept = (loops.Lines(shape, axis) for shape in (static_shape(x), form.outputs[0].shape))
        return cls(target, x.dtype, lines, kept, form.attrs["k"], form.attrs["largest"])
