"""A model whose shapes depend on values, on the command line: networks are made as values come, by the frontend's session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..target import Target


class SessionNetwork:
    """What `tec run` asks of a network: its inputs and outputs, the code's kind of device, and to run."""

    def __init__(self, front: Any, path: Path, target: str, shapes: Mapping[str, Any] | None, dtype: str | None):
        self._front, self._path, self._dtype = front, path, dtype
        model = front.load_model(str(path))
        sizes = front.bind_shapes(model, dict(shapes or {}))
        self.inputs = [
            {"name": n, "dtype": entry[0], "shape": list(sizes[n])}
            for n, entry in front.input_info(model).items()
            if entry
        ]
        self._names: list[str] = [o.name for o in model.graph.output]
        self.outputs = [{"name": n} for n in self._names]
        kind = Target(target).kind
        self.module = SimpleNamespace(device_kind="cpu" if kind == "llvm" else kind, target=target)
        self._sessions: dict[Any, Any] = {}

    def run(self, inputs: Mapping[str, Any], device: Any = None) -> list[Any]:
        """The outputs as arrays; one that is a sequence becomes several, and one that is empty none."""
        session = self._sessions.get(device)
        if session is None:
            session = self._front.session(str(self._path), self.module.target, device, self._dtype)
            self._sessions[device] = session
        outputs: list[Any] = []
        names: list[str] = []
        for name, value in zip(self._names, session.run(inputs)):
            _flatten(name, value, names, outputs)
        self.outputs = [{"name": n} for n in names]
        return outputs


def _flatten(name: str, value: Any, names: list[str], outputs: list[Any]) -> None:
    if isinstance(value, (list, tuple)):
        for k, v in enumerate(value):
            _flatten(f"{name}.{k}", v, names, outputs)
    elif value is not None:
        names.append(name)
        outputs.append(value)


def unsettled(error: Any, given: Sequence[str], infos: Mapping[str, Any]) -> bool:
    """Whether a network that needs values can run by what there is: integers that were not given, a shape's say, are not made up."""
    needed = getattr(error, "inputs", ())
    return any(n not in given and infos.get(n) is not None and "int" in infos[n][0] for n in needed)
