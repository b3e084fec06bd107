"""Loop IR as JSON and back: `save_json(x)` and `load_json(text)` for expressions, statements, functions and modules.

A node stands once, however often it is met, so that what was one variable, buffer or expression is one again:

    {"tec_ir": 1, "root": {"node": 3}, "nodes": [{"is": "Var", "name": "n", ...}, ...]}

A node has its kind and the fields that it is made with (`tec.ir.schema`). Other values stand as JSON has them; what it lacks is an object of one key:
{"node": place}, {"list": [...]}, {"dict": [[key, value], ...]}, {"set": [...]}, {"float": "nan"}. A JSON array is a tuple.
"""

from __future__ import annotations

import json
import operator
from typing import Any

import numpy as np

from ..errors import ExprError, Loc
from .buffer import Buffer
from .expr import CommReducer, IterVar, Range, TensorRead
from .func import Func, IRModule
from .notes import NOTES, Note
from .schema import EXPRS, STMTS, fields_of
from .stmt import StorageNotes
from .visit import deep_recursion

VERSION = 1

_KINDS: dict[str, type] = {
    cls.__name__: cls
    for cls in (*EXPRS, *STMTS, Buffer, Func, IRModule, IterVar, Range, CommReducer, StorageNotes, Loc)
}
# What the compiler keeps beside a lowered function: it can be made again, and holds what is no IR.
_LEFT_OUT = ("lowered_from",)


@deep_recursion()
def save_json(x: Any, indent: int | None = None) -> str:
    """The JSON text of an expression, a statement, a Func or an IRModule. Raises ExprError for what is none, and for te tensors within."""
    if not isinstance(x, (*EXPRS, *STMTS, Func, IRModule, Buffer)):
        raise ExprError(
            f"save_json of {x!r}", hint="expressions, statements, functions and modules of loop IR: tec.lower(s, args)"
        )
    return write(Writer(), x, indent)


@deep_recursion()
def load_json(text: str) -> Any:
    """What `save_json` wrote. Raises ExprError for a text that is damaged, or of another version."""
    return read(Reader, text, "tec.ir.save_json writes it; te.load_json reads what te.save_json wrote")


def write(writer: Writer, x: Any, indent: int | None) -> str:
    """The text of a value that stands in JSON or is made of the writer's kinds."""
    root = writer.value(x)
    return json.dumps({writer.key: VERSION, "root": root, "nodes": writer.nodes}, indent=indent)


def read(reader: type[Reader], text: str, hint: str) -> Any:
    """The value of a text. Raises ExprError, with this hint where it is of another kind or version."""
    try:
        data = json.loads(text)
    except ValueError as e:
        raise ExprError(f"load_json: the text is no JSON: {e}", hint="the text that save_json gave, whole") from None
    if not isinstance(data, dict) or data.get(reader.key) != VERSION:
        raise ExprError(f"load_json: the text is no {reader.what} of this version", hint=hint)
    try:
        return reader(data["nodes"]).value(data["root"])
    except ExprError:
        raise
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as e:
        raise ExprError(
            f"load_json: the text is damaged: {type(e).__name__}: {e}", hint="the text that save_json gave, unchanged"
        ) from None


class Writer:
    """Nodes of the IR; `tec.te.json_text` adds operations and tensors."""

    key, what = "tec_ir", "loop IR"

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.places: dict[int, int] = {}
        self.kept: list[Any] = []  # so that an id stays that of its object

    def value(self, v: Any) -> Any:
        if v is None or isinstance(v, (bool, str)):
            return v
        if isinstance(v, (int, np.integer)):
            return int(v)
        if isinstance(v, (float, np.floating)):
            return float(v) if np.isfinite(v) else {"float": repr(float(v))}
        if isinstance(v, tuple) and type(v) is not Loc:
            return [self.value(x) for x in v]
        if isinstance(v, list):
            return {"list": [self.value(x) for x in v]}
        if isinstance(v, (set, frozenset)):
            return {"set": sorted(self.value(x) for x in v)}
        if isinstance(v, dict):
            return {"dict": [[self.value(k), self.value(x)] for k, x in v.items() if k not in _LEFT_OUT]}
        return {"node": self.node(v)}

    def node(self, v: Any) -> int:
        place = self.places.get(id(v))
        if place is not None:
            return place
        entry = self.entry(v)
        place = self.places[id(v)] = len(self.nodes)
        self.nodes.append(entry)
        self.kept.append(v)
        return place

    def entry(self, v: Any) -> dict[str, Any]:
        if isinstance(v, TensorRead) and self.key == Writer.key:
            raise ExprError(
                f"save_json: {v} reads a te tensor",
                hint="lower the schedule first: tec.lower(s, args), or te.save_json",
            )
        if isinstance(v, Note):
            return {"is": f"note {v.word}", "values": self.value(v.values)}
        if _KINDS.get(type(v).__name__) is type(v):
            return {"is": type(v).__name__, **{n: self.value(getattr(v, n)) for n in _fields(type(v))}}
        raise ExprError(
            f"save_json: {v!r} ({type(v).__name__}) is no part of {self.what}",
            hint=f"save_json takes {self.what} alone",
        )


class Reader:
    """Nodes stand behind what they are made of, so that they are made in order."""

    key, what = Writer.key, Writer.what

    def __init__(self, nodes: list[dict[str, Any]]):
        self.made: list[Any] = []
        for entry in nodes:
            self.made.append(self.node(entry))

    def node(self, entry: dict[str, Any]) -> Any:
        kind = entry["is"]
        if kind.startswith("note "):
            return NOTES[kind[5:]](*self.value(entry["values"]))
        cls = _KINDS[kind]
        fields = {n: self.value(x) for n, x in entry.items() if n != "is"}
        if "annotations" in fields:  # of a loop or an allocation, in texts of before they were typed
            fields |= _typed(kind, fields.pop("annotations"))
        return cls(*[fields[n] for n in _fields(cls)])

    def value(self, v: Any) -> Any:
        if isinstance(v, list):
            return tuple(self.value(x) for x in v)
        if not isinstance(v, dict):
            return v
        ((kind, inside),) = v.items()
        if kind == "node":
            return self.made[operator.index(inside)]
        if kind == "float":
            return float(inside)
        items = [self.value(x) for x in inside]
        return {"list": list, "set": set, "dict": dict}[kind](items)


def _typed(kind: str, notes: dict[str, Any]) -> dict[str, Any]:
    """The fields of a For or an Alloc that its dictionary of notes stood for."""
    if kind == "For":
        return {"unroll": int(notes.get("unroll", 0)), "pipelined": bool(notes.get("pipelined"))}
    align = notes.get("storage_align", {})
    return {"notes": StorageNotes(**notes | {"storage_align": tuple((k, *v) for k, v in align.items())})}


def _fields(cls: type) -> tuple[str, ...]:
    if cls is Loc:
        return Loc._fields
    return tuple(f.name for f in fields_of(cls))
