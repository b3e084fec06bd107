"""Computations as JSON and back: `te.save_json(tensors)` and `te.load_json(text)`, before any schedule.

The text is that of loop IR (`tec.ir.json_text`) with operations and tensors among its nodes, each once:

    {"tec_te": 1, "root": {"list": [{"node": 9}, ...]}, "nodes": [..., {"is": "ComputeOp", "name": "C", "axis": ..., "body": ...}, ...]}

A schedule's trace has a JSON of its own (`tec.schedule.Trace`), which replays on what is read here.
"""

from __future__ import annotations

from typing import Any

from ..errors import ExprError, Loc, kind_of
from ..ir.buffer import Buffer
from ..ir.expr import Expr, IterVar
from ..ir.json_text import Reader, Writer, read, write
from ..ir.stmt import Stmt
from ..ir.visit import deep_recursion
from .operation import ComputeOp, ExternOp, Operation, PlaceholderOp, ScanOp
from .tensor import Tensor

_LABELS: dict[str, Any] = {"tag": str, "attrs": dict, "loc": (Loc, type(None))}
# What each is made with, in the order of its constructor, and what that holds: [X] is a tuple of X.
_MADE_WITH: dict[type[Operation], dict[str, Any]] = {
    PlaceholderOp: {"name": str, "shape": [Expr], "dtype": str, "loc": (Loc, type(None))},
    ComputeOp: {"name": str, "axis": [IterVar], "body": [Expr], **_LABELS},
    ScanOp: {
        "name": str, "init": [Tensor], "update": [Tensor], "state_placeholder": [Tensor], "scan_inputs": [Tensor], **_LABELS, "scan_axis": IterVar,
    },
    ExternOp: {
        "name": str, "_inputs": [Tensor], "input_placeholders": [Buffer], "output_placeholders": [Buffer], "body": Stmt, **_LABELS, "axis": [IterVar],
    },
}  # fmt: skip
_OPERATIONS = {cls.__name__: cls for cls in _MADE_WITH}


@deep_recursion()
def save_json(x: Any, indent: int | None = None) -> str:
    """The JSON text of tensors and all that they are computed from.

    x: a tensor, an operation, an expression over tensors, or a list, tuple or dict of these; what two of them share is shared again when it is
    read, so that the parameters of a function go together: `te.save_json([A, B, C])`. Raises ExprError for anything else, and where an
    operation's `attrs` hold what no JSON has.

    >>> A = te.placeholder((64,), name="A")
    >>> B = te.compute((64,), lambda i: A[i] * 2.0, name="B")
    >>> text = te.save_json([A, B])
    >>> te.load_json(text)
    [Tensor(shape=[64], dtype=float32, op=A), Tensor(shape=[64], dtype=float32, op=B)]
    """
    if not _is_root(x):
        raise ExprError(f"save_json of {x!r}", hint="tensors, or a list of them: te.save_json([A, B, C])")
    return write(_Writer(), x, indent)


@deep_recursion()
def load_json(text: str) -> Any:
    """What `save_json` wrote: new tensors of new operations. Raises ExprError for a text that is damaged, or of
    another version.

    >>> A = tec.placeholder((64,), name="A")
    >>> B = tec.compute((64,), lambda i: A[i] * 2.0, name="B")
    >>> te.load_json(te.save_json([A, B]))
    [Tensor(shape=[64], dtype=float32, op=A), Tensor(shape=[64], dtype=float32, op=B)]
    """
    return read(_Reader, text, "te.save_json writes it; tec.ir.load_json reads what tec.ir.save_json wrote")


def _is_root(x: Any) -> bool:
    if isinstance(x, (list, tuple)) and not isinstance(x, Loc):
        return all(map(_is_root, x))
    if isinstance(x, dict):
        return all(isinstance(k, str) for k in x) and all(map(_is_root, x.values()))
    return isinstance(x, (Tensor, Operation, Expr, Buffer, IterVar))


class _Writer(Writer):
    key, what = "tec_te", "te computation"

    def entry(self, v: Any) -> dict[str, Any]:
        if isinstance(v, Tensor):
            return {"is": "Tensor", "op": self.value(v.op), "value_index": v.value_index}
        made_with = _MADE_WITH.get(type(v))
        if made_with is None:
            return super().entry(v)
        for key, note in v.attrs.items():
            try:
                self.value(note)
            except ExprError:
                raise ExprError(
                    f"save_json: attrs[{key!r}] of {v.name} is {kind_of(note)}, which JSON lacks",
                    hint="operators of tec.topi that have several ways keep such notes; write what they compute in te",
                ) from None
        return {"is": type(v).__name__, **{n.lstrip("_"): self.value(getattr(v, n)) for n in made_with}}


class _Reader(Reader):
    key, what = _Writer.key, _Writer.what

    def node(self, entry: dict[str, Any]) -> Any:
        if entry["is"] == "Tensor":
            return self.value(entry["op"]).output(self.value(entry["value_index"]))
        cls = _OPERATIONS.get(entry["is"])
        if cls is None:
            return super().node(entry)
        values = []
        for name, holds in _MADE_WITH[cls].items():
            values.append(self.value(entry[name.lstrip("_")]))
            _check(cls, name.lstrip("_"), values[-1], holds)
        return cls(*values)


def _check(cls: type, name: str, value: Any, holds: Any) -> None:
    """The constructors do not."""
    if isinstance(holds, list):
        fits = isinstance(value, tuple) and all(isinstance(v, holds[0]) for v in value)
    else:
        fits = isinstance(value, holds)
    if not fits:
        raise TypeError(f"{name} of {cls.__name__}")
