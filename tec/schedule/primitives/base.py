"""What every primitive is: a record that can be checked, applied, printed and written down.

A record is made in one of two forms. With live arguments (a Stage, an IterVar, a Tensor, an expression) it can be checked and
applied. In a trace its arguments are data, the kinds below, so that it compares, prints and serialises without the schedule
that it came from; `tec.schedule.recorder` makes that form, `tec.schedule.replay` makes live arguments of it again.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from ...records import dataclass
from ..state import StageState

if TYPE_CHECKING:
    from ..schedule import Schedule


Given = TypeVar("Given", covariant=True)  # what the user's call returns


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor, loop, group, launch index or size, by its name in the trace."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class StageOf:
    """The stage of the tensor of that name."""

    name: str

    def __str__(self) -> str:
        return f"s[{self.name}]"


@dataclass(frozen=True, slots=True)
class Intrin:
    """A tensor intrinsic, by its name among the trace's."""

    name: str

    def __str__(self) -> str:
        return f"intrins[{self.name!r}]"


@dataclass(frozen=True, slots=True)
class Code:
    """An expression, or a function of indices, over names of the trace, in the part of Python that `replay` understands."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Primitive(Generic[Given]):
    """Base of the primitives. Fields are the arguments of the method that makes it, in its order and under its names.

    `out`, in a trace: the name of what it gives, or the names where it gives several things.
    """

    method: ClassVar[str]
    by_name: ClassVar[tuple[str, ...]] = ()  # arguments that are written by name, and left out where they are not given
    variadic: ClassVar[str] = ""  # the argument that takes any number of values, each written for itself
    lists: ClassVar[tuple[str, ...]] = ()  # arguments that are lists

    out: str | tuple[str, ...] | None = field(default=None, kw_only=True)

    def check(self, sch: Schedule) -> None:
        """Raise a ScheduleError that shows the loop nest where it cannot be applied; changes nothing."""

    def apply(self, sch: Schedule) -> Given:
        """Change the schedule, after `check`; returns what the user's call returns."""
        raise NotImplementedError

    def text(self) -> str:
        """The line of Python that a user would write."""
        parts, target = [], "s"
        for name in argument_names(type(self)):
            value = getattr(self, name)
            if name == "stage":
                target = value_text(value)
            elif name == self.variadic:
                parts += [value_text(v) for v in value]
            elif name not in self.by_name:
                parts.append(value_text(value))
            elif value is not None and value is not False:
                parts.append(f"{name}={value_text(value)}")
        return self._assigned(f"{target}.{self.method}({', '.join(parts)})")

    def _assigned(self, call: str) -> str:
        if isinstance(self.out, tuple):
            comma = "," if len(self.out) == 1 else ""
            return f"{', '.join(self.out)}{comma} = {call}" if self.out else call
        return call if self.out is None else f"{self.out} = {call}"

    def __str__(self) -> str:
        return self.text()


def flatten(*items: Any) -> tuple[Any, ...]:
    """Values given one by one or in lists."""
    out: list[Any] = []
    for x in items:
        out.extend(flatten(*x)) if isinstance(x, (list, tuple)) else out.append(x)
    return tuple(out)


def argument_names(kind: type[Any]) -> tuple[str, ...]:
    """The fields of a primitive that are arguments: all but `out`, which is given by name alone."""
    names: tuple[str, ...] = kind.__match_args__
    return names


def value_text(x: Any) -> str:
    """An argument as it is written; a live one by its own name."""
    if isinstance(x, (Ref, StageOf, Intrin, Code)):
        return str(x)
    if isinstance(x, (list, tuple)):
        return "[" + ", ".join(map(value_text, x)) + "]"
    if x is None or isinstance(x, (bool, int, float, str)):
        return repr(x)
    if isinstance(x, StageState):
        return x.name if x.is_group else f"s[{x.name}]"
    name = getattr(x, "name", None)
    return name if isinstance(name, str) else str(x)


@dataclass(frozen=True, slots=True)
class Define(Primitive[Any]):
    """A name in a trace for an axis of an operation or a launch index: `i = s[C].op.axis[0]`. Changes nothing."""

    method: ClassVar[str] = "define"

    value: Any

    def apply(self, sch: Schedule) -> Any:
        return self.value

    def text(self) -> str:
        return self._assigned(value_text(self.value))
