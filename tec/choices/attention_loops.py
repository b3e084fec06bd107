"""What loops of attention share on every target: sizes, reading operands through their order, the range of keys that a tile sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import te
from ..ops.attention import LOWEST, Geometry, Scores, geometry, order_of, scores_of, stored
from ..ops.forms import Form
from .group import extent


@dataclass
class Kernel:
    """What the loops of one attention share: its sizes, and reading operands by their logical index."""

    form: Form
    ib: Any
    sources: dict[str, Any]
    out: Any

    def __post_init__(self) -> None:
        self.g = self.sizes_of(self.form)
        self.scores: Scores = scores_of(self.form.inputs, self.form.attrs)
        self.acc = self.scores.acc

    @staticmethod
    def sizes_of(form: Form) -> Geometry:
        """Sizes as numbers, or as expressions where they are open."""
        return geometry([[_size(d) for d in t.shape] for t in form.inputs[:3]], form.attrs)

    @classmethod
    def of(cls, form: Form, ib: Any, sources: list[Any], out: Any) -> Kernel:
        names = ("q", "k", "v", *form.attrs.get("extras", ()))
        return cls(form, ib, dict(zip(names, sources)), out)

    def at(self, operand: str, *index: Any) -> Any:
        """An element of q, k or v by (batch, head, place, element), in the accumulator's type."""
        return self.stored_at(operand, *index).astype(self.acc)

    def stored_at(self, operand: str, *index: Any) -> Any:
        """The same in its own type."""
        return self.sources[operand][stored(order_of(self.form.attrs, operand), index)]

    def extra(self, name: str, index: Sequence[Any]) -> Any:
        return self.sources[name][tuple(index)]

    def write(self, index: Sequence[Any], value: Any) -> None:
        self.out[stored(order_of(self.form.attrs, "out"), index)] = value.astype(self.out.dtype)

    def const(self, value: float) -> Any:
        return te.const(value, self.acc)

    @property
    def lowest(self) -> Any:
        return self.const(LOWEST[self.acc])

    def key_range(self, b: Any, first: Any, last: Any, block: int) -> tuple[Any, Any]:
        """The blocks of keys, begin and end, that queries first to last of batch entry b see anything of."""
        attrs, keys = self.form.attrs, self.g.keys
        begin: Any = 0
        end: Any = keys
        offset = self.scores.offset(self.extra, b) if self.scores.has_range else 0
        if attrs.get("right") is not None:
            end = te.min(end, last + offset + (attrs["right"] + 1))
        if "length" in self.scores.shapes:
            end = te.min(end, self.extra("length", (b,)).astype("int32"))
        if attrs.get("left") is not None:
            begin = te.max(te.indexdiv(te.max(first + offset - attrs["left"], 0), block), 0)
        if isinstance(end, int):
            return begin, -(-end // block)
        return begin, te.indexdiv(te.max(end, 0) + (block - 1), block)


def _size(d: Any) -> Any:
    n = extent(d)
    return d if n is None else n
