"""Frontends: what makes operator graphs of models that others wrote. Each has a name and says what it takes.

A package names its frontend under the entry point group "tec.frontends", as a module (or an object) with

    accepts(source) -> bool        whether it takes such a thing; quick, and without an error
    load(source, shapes, freeze=...) -> Graph; `state=` and `args=` where it has a use for them
    interface(source) -> Interface  if it likes: inputs and outputs, without making a graph
    quantize(source, samples, **options) -> Any  if it can: a model of its own kind with products in bytes

`register` does the same within a process. `tec.compile` asks one after the other, by name, those of the process first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from inspect import signature
from types import FunctionType
from typing import Any, NamedTuple, Protocol

from ..errors import ImportModelError, install
from .graph import Graph

GROUP = "tec.frontends"


class Frontend(Protocol):
    """What a frontend gives."""

    def accepts(self, source: Any) -> bool: ...

    def load(
        self, source: Any, shapes: Mapping[str, Any] | None = None, *, freeze: Mapping[str, Any] | None = None
    ) -> Graph: ...


class Interface(NamedTuple):
    """A model's inputs, (dtype, dimensions) by name, a dimension being a number, a name or None; and its outputs' names."""

    inputs: Mapping[str, tuple[str, Sequence[int | str | None]]]
    outputs: Sequence[str]


_registered: dict[str, Frontend] = {}


def register(name: str, frontend: Frontend) -> None:
    """Make a frontend known under a name, in place of one that is installed under it."""
    _registered[name] = frontend


def registered() -> list[str]:
    """The names of those that `register` made known; what they make of a file is no matter of the disk cache."""
    return sorted(_registered)


def modules() -> list[str]:
    """The modules that installed frontends lie in; none of them is imported."""
    return sorted({point.module for point in entry_points(group=GROUP)})


def graph_of(
    source: Any,
    shapes: Mapping[str, Any] | None = None,
    freeze: Mapping[str, Any] | None = None,
    state: Mapping[str, str] | bool = True,
    args: Any = None,
) -> Graph:
    """The graph of a model, by the first frontend that takes it. ImportModelError where none does. A frontend is told of `state` and `args`
    where they are anything but the default."""
    more: dict[str, Any] = {} if state is True else {"state": state}
    if args is not None:
        more["args"] = args
    frontend = _frontend_of(source)
    unknown = [name for name in more if name not in signature(frontend.load).parameters]
    if unknown:
        raise ImportModelError(
            f"a model of type {type(source).__name__} takes no {' and no '.join(unknown)}",
            hint="leave it out: it is for models of another kind",
        )
    return frontend.load(source, shapes, freeze=freeze, **more)


def interface_of(source: Any) -> Interface:
    """The inputs and outputs of a model, by the first frontend that takes it. ImportModelError where none does, or it cannot say."""
    frontend = _frontend_of(source)
    say = getattr(frontend, "interface", None)
    if say is None:
        raise ImportModelError(
            f"the frontend of {source!r} does not tell inputs and outputs",
            hint="a frontend has `interface(source)`, which gives both",
        )
    inputs, outputs = say(source)
    return Interface(inputs, outputs)


def quantizer_of(source: Any) -> Any:
    """The function of a model's frontend that quantizes such models. ImportModelError where no frontend takes it, or it has none."""
    found = getattr(_frontend_of(source), "quantize", None)
    if found is None:
        raise ImportModelError(f"the frontend of {source!r} does not quantize", hint="ONNX models are quantized")
    return found


def _frontend_of(source: Any) -> Frontend:
    names: list[str] = []
    absent: dict[str, str] = {}
    for name, frontend in _frontends(absent):
        names.append(name)
        if frontend.accepts(source):
            return frontend
    what = repr(str(source)) if isinstance(source, str) or hasattr(source, "__fspath__") else type(source).__name__
    if absent:
        missing = ", ".join(f"{name} needs the package {package}" for name, package in absent.items())
        raise ImportModelError(f"no frontend takes {what}: {missing}", hint=" or ".join(map(install, absent)))
    if not names:
        raise ImportModelError("no frontend is installed", hint=install("onnx"))
    hint = f"frontends: {', '.join(names)}"
    if isinstance(source, FunctionType):
        hint = (
            f"expressions of tec.array are compiled when a value is needed, and @tec.kernel is a kernel by hand; {hint}"
        )
    raise ImportModelError(f"not a model: no frontend takes {what}", hint=hint)


def _frontends(absent: dict[str, str]) -> Iterator[tuple[str, Frontend]]:
    """The frontends by name; those whose packages are not installed go to `absent`, with the package's name."""
    yield from sorted(_registered.items())
    points = {point.name: point for point in entry_points(group=GROUP) if point.name not in _registered}
    for name, point in sorted(points.items()):
        try:
            found: Any = import_module(point.module)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] == point.module.partition(".")[0]:
                raise
            absent[name] = error.name.partition(".")[0]
            continue
        named: Any = getattr(found, point.attr, None) if point.attr else None
        yield name, named if hasattr(named, "accepts") else found
