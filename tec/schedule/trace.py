"""The trace of a schedule: the primitives that were applied, as records whose arguments are data.

It prints as the Python that makes the schedule again, compares, and goes to JSON and back; `Schedule.replay` applies it. The records
name tensors, loops and launch indices as the printed Python does, so a tuner can change one (`dataclasses.replace`) and replay
the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any

from ..errors import ScheduleError
from ..records import dataclass
from .primitives import SCHEDULE_PRIMITIVES, STAGE_PRIMITIVES, Code, Define, Intrin, Primitive, Ref, StageOf
from .primitives.base import argument_names

VERSION = 1
_KINDS: dict[str, type[Primitive[Any]]] = {**STAGE_PRIMITIVES, **SCHEDULE_PRIMITIVES, Define.method: Define}
_NAMED = {"ref": Ref, "stage": StageOf, "intrin": Intrin, "code": Code}
_KEYS = {kind: key for key, kind in _NAMED.items()}


@dataclass(slots=True)
class Trace:
    """Steps of one schedule.

    outputs: names of the tensors that the schedule was created for; symbols: the names that a trace begins with, of the
    computation's tensors in order and of the sizes in their shapes; records: the steps; intrins: the tensor intrinsics by name
    (objects, which JSON leaves out: give them to replay).

    >>> A = te.placeholder((8,), name="A")
    >>> B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
    >>> s = te.create_schedule(B.op)
    >>> outer, inner = s[B].split(B.op.axis[0], factor=4)
    >>> print(s.trace)
    s = tec.create_schedule([B])
    i = s[B].op.axis[0]
    i_outer, i_inner = s[B].split(i, factor=4)
    """

    outputs: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    records: list[Primitive[Any]] = field(default_factory=list)
    intrins: dict[str, Any] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        head = f"s = tec.create_schedule([{', '.join(self.outputs)}])"
        return "\n".join([head, *(r.text() for r in self.records)])

    __repr__ = __str__

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Primitive[Any]]:
        return iter(self.records)

    def __getitem__(self, index: int) -> Primitive[Any]:
        return self.records[index]

    def to_json(self) -> dict[str, Any]:
        """Data for json.dumps: versioned, readable by `from_json`.

        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
        >>> s = te.create_schedule(B.op)
        >>> s[B].parallel(B.op.axis[0])
        >>> sorted(s.trace.to_json())
        ['outputs', 'steps', 'symbols', 'version']
        """
        return {
            "version": VERSION, "outputs": list(self.outputs), "symbols": list(self.symbols),
            "steps": [_step_to_json(r) for r in self.records],
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Any, intrins: dict[str, Any] | None = None) -> Trace:
        """The trace that `to_json` gave. Raises ScheduleError where it did not.

        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
        >>> s = te.create_schedule(B.op)
        >>> s[B].parallel(B.op.axis[0])
        >>> print(tec.schedule.Trace.from_json(s.trace.to_json()))
        s = tec.create_schedule([B])
        i = s[B].op.axis[0]
        s[B].parallel(i)
        """
        if not isinstance(data, dict) or data.get("version") != VERSION:
            have = data.get("version") if isinstance(data, dict) else type(data).__name__
            raise ScheduleError(f"this is no trace of version {VERSION}: {have!r}", hint="made by Trace.to_json")
        heads = [data.get(k) for k in ("outputs", "symbols")]
        steps = data.get("steps")
        if not all(isinstance(h, list) and all(isinstance(n, str) for n in h) for h in heads) or not isinstance(
            steps, list
        ):
            raise ScheduleError(
                "a trace has lists of names, outputs and symbols, and a list of steps",
                hint="pass what Trace.to_json gave",
            )
        outputs, symbols = (tuple(h) for h in heads if h is not None)
        return cls(outputs, symbols, [_step_from_json(k, step) for k, step in enumerate(steps)], dict(intrins or {}))


def _step_to_json(r: Primitive[Any]) -> dict[str, Any]:
    args = {name: value for name in argument_names(type(r)) if (value := _to_json(getattr(r, name))) is not None}
    step: dict[str, Any] = {"do": r.method, "args": args}
    if r.out is not None:
        step["out"] = list(r.out) if isinstance(r.out, tuple) else r.out
    return step


def _to_json(x: Any) -> Any:
    key = _KEYS.get(type(x))
    if key is not None:
        return {key: x.text if isinstance(x, Code) else x.name}
    if isinstance(x, tuple):
        return [_to_json(v) for v in x]
    return x


def _step_from_json(k: int, step: Any) -> Primitive[Any]:
    def bad(why: str) -> ScheduleError:
        return ScheduleError(f"step {k} of the trace: {why}: {step!r}")

    if not isinstance(step, dict) or not isinstance(step.get("args"), dict):
        raise bad("not a step")
    kind, out = _KINDS.get(str(step.get("do"))), step.get("out")
    if kind is None:
        raise bad("unknown primitive")
    names = out if isinstance(out, list) else [] if out is None else [out]
    if not all(isinstance(n, str) for n in names):
        raise bad("names of what it gives are texts")
    try:
        args = {name: _from_json(value) for name, value in step["args"].items()}
        return kind(**args, out=tuple(out) if isinstance(out, list) else out)
    except (TypeError, ValueError) as e:
        raise bad(str(e)) from None


def _from_json(x: Any) -> Any:
    if isinstance(x, list):
        return tuple([_from_json(v) for v in x])
    if isinstance(x, dict):
        ((key, value),) = x.items()
        if key not in _NAMED or not isinstance(value, str):
            raise ValueError(f"not an argument of a trace: {x!r}")
        return _NAMED[key](value)
    return x
