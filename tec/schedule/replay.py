"""Traces applied to a schedule: records, or the text that a trace prints as.

Text is read, never executed (`tracecode`), so a trace from elsewhere cannot do anything but schedule.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from ..errors import ScheduleError
from .primitives import SCHEDULE_PRIMITIVES, STAGE_PRIMITIVES, Code, Define, Intrin, Primitive, Ref, StageOf
from .primitives.base import argument_names, flatten
from .trace import Trace
from .tracecode import CodeReader

if TYPE_CHECKING:
    from .schedule import Schedule


def apply_trace(sch: Schedule, trace: Trace | str, intrins: dict[str, Any] | None) -> None:
    """Apply every step of `trace` to `sch`, a schedule of a computation like the trace's."""
    if isinstance(trace, str):
        trace = parse(trace)
    names = _first_names(sch, trace)
    names["intrins"] = {**trace.intrins, **(intrins or {})}
    for k, record in enumerate(trace.records):
        _Step(sch, names, f"line {k + 2} of the trace").run(record)


def _first_names(sch: Schedule, trace: Trace) -> dict[str, Any]:
    """What the names that a trace begins with stand for in `sch`: tensors and sizes of these names.

    Where the names are others, in a computation with as many tensors and sizes, the order decides.
    """
    assert sch.recorder is not None
    own = sch.recorder.symbols
    if trace.symbols and not set(trace.symbols) & own.keys() and len(trace.symbols) == len(own):
        return dict(zip(trace.symbols, own.values()))
    return dict(own)


class _Step:
    """One step: its arguments made live, applied, what it gives named."""

    def __init__(self, sch: Schedule, names: dict[str, Any], where: str):
        self.sch = sch
        self.names = names
        self.where = where
        self.reader = CodeReader(sch, names, where)

    def run(self, record: Primitive[Any]) -> None:
        args = {name: self.live(getattr(record, name)) for name in argument_names(type(record))}
        for name in record.lists:
            args[name] = flatten(args[name])
        if isinstance(record, Define):
            given = args["value"]
        else:
            given = self.sch.apply(type(record)(**args))
        if isinstance(record.out, str):
            self.names[record.out] = given
        elif record.out is not None:
            items = list(given) if isinstance(given, (tuple, list)) else None
            if items is None or len(items) != len(record.out):
                raise ScheduleError(
                    f"{self.where}: {len(record.out)} names for what it gives: {record}",
                    hint="name each result, as print(s.trace) does",
                )
            self.names.update(zip(record.out, items))

    def live(self, x: Any) -> Any:
        if isinstance(x, Ref):
            return self._named(x.name)
        if isinstance(x, StageOf):
            return self.sch[self._named(x.name)]
        if isinstance(x, Code):
            return self.reader.read(x.text)
        if isinstance(x, Intrin):
            found = self.names["intrins"].get(x.name)
            if found is None:
                hint = f"replay(..., intrins={{{x.name!r}: ...}})"
                raise ScheduleError(f"{self.where}: there is none: {x}", hint=hint)
            return found
        if isinstance(x, tuple):
            return [self.live(v) for v in x]
        return x

    def _named(self, name: str) -> Any:
        if name not in self.names:
            raise ScheduleError(
                f"{self.where}: unknown name: {name}", hint="a trace names tensors, and what its earlier lines gave"
            )
        return self.names[name]


# ---- text


def parse(text: str) -> Trace:
    """The records of a trace's text. Raises ScheduleError on text that is no trace."""
    try:
        tree = ast.parse(text)
    except SyntaxError as e:
        raise ScheduleError(
            f"the trace is no Python: {e.msg} in line {e.lineno}", hint="a trace is text that print(s.trace) wrote"
        ) from None
    return Trace(records=[r for node in tree.body if (r := _statement(node)) is not None])


def _error(node: ast.AST, what: str) -> ScheduleError:
    return ScheduleError(
        f"line {getattr(node, 'lineno', '?')} of the trace: {what}: {ast.unparse(node)}",
        hint="a trace is text that print(s.trace) wrote: calls of primitives with names and constants",
    )


def _statement(node: ast.stmt) -> Primitive[Any] | None:
    """The record of a line; None for the one that creates the schedule."""
    out: str | tuple[str, ...] | None = None
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
        if isinstance(target, ast.Name):
            out = target.id
        elif isinstance(target, ast.Tuple) and all(isinstance(t, ast.Name) for t in target.elts):
            out = tuple([t.id for t in target.elts if isinstance(t, ast.Name)])
        else:
            raise _error(node, "not a step of a trace")
    elif not isinstance(node, ast.Expr):
        raise _error(node, "not a step of a trace")
    value = node.value
    if not isinstance(value, ast.Call):
        return Define(Code(ast.unparse(value)), out=out)
    if not isinstance(value.func, ast.Attribute):
        raise _error(node, "not a primitive")
    base = value.func.value
    if isinstance(base, ast.Name) and base.id == "tec":
        return None if value.func.attr == "create_schedule" else Define(Code(ast.unparse(value)), out=out)
    return _primitive(value, value.func.attr, base, out)


def _primitive(node: ast.Call, method: str, base: ast.expr, out: str | tuple[str, ...] | None) -> Primitive[Any]:
    of_schedule = isinstance(base, ast.Name) and base.id == "s"
    kind = (SCHEDULE_PRIMITIVES if of_schedule else STAGE_PRIMITIVES).get(method)
    if kind is None:
        raise _error(node, "not a primitive")
    names = list(argument_names(kind))
    values: list[Any] = [_value(a) for a in node.args]
    if not of_schedule:
        values.insert(0, _value(base))
    if kind.variadic:
        at = names.index(kind.variadic)
        values[at:] = [tuple(values[at:])]
    if len(values) > len(names):
        raise _error(node, f"too many arguments, {len(values)} for {', '.join(names)}")
    args = dict(zip(names, values))
    for k in node.keywords:
        if k.arg not in names or k.arg in args:
            raise _error(node, f"argument {k.arg} is unknown or given twice")
        args[k.arg] = _value(k.value)
    try:
        return kind(**args, out=out)
    except TypeError as e:
        raise _error(node, str(e).removeprefix(f"{kind.__name__}.__init__() ")) from None


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=None | bool() | int() | float() | str()):
            return node.value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
            return ast.literal_eval(node)
        case ast.Name():
            return Ref(node.id)
        case ast.List() | ast.Tuple():
            return tuple([_value(e) for e in node.elts])
        case ast.Subscript(value=ast.Name(id="s"), slice=ast.Name(id=name)):
            return StageOf(name)
        case ast.Subscript(value=ast.Name(id="intrins"), slice=ast.Constant(value=str() as name)):
            return Intrin(name)
    return Code(ast.unparse(node))
