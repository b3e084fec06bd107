"""Models by name and version: loading, compiling, unloading, readiness.

A model is a `.tec` package or an ONNX file, which is compiled for a target. A folder of models is laid out as Triton's: `NAME/VERSION/model.tec`,
`NAME/model.tec`, or `NAME.tec`; likewise `.onnx`. A model that is loaded again serves its old network until the new one is there; what waits for the old one is
answered by it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import TecError
from ..runtime.networks.network import Network, load
from .batching import Batcher, Closing, Inputs, Sequence, shown
from .budget import Budget
from .errors import Refusal
from .metrics import Metrics
from .tensors import TYPES, Array

SUFFIXES = (".tec", ".onnx")
_UNLOADED = "unloaded"


@dataclass(slots=True)
class Model:
    """A version of a model. state: LOADING, READY or UNAVAILABLE, and why."""

    name: str
    version: str
    path: Path | None = None
    state: str = "LOADING"
    reason: str = ""
    batcher: Batcher | None = None

    @property
    def network(self) -> Network:
        assert self.batcher is not None
        return self.batcher.network

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """The inputs that requests bring: states are none."""
        return self.current().inputs

    @property
    def outputs(self) -> list[dict[str, Any]]:
        return self.current().outputs

    def current(self) -> Batcher:
        """What runs its requests now. Refusal (503) where it is unloaded."""
        batcher = self.batcher
        if batcher is None:
            raise Refusal(503, f"model {self.name!r} is unloaded")
        return batcher

    def start(self, inputs: Inputs, sequence: Sequence | None, alone: bool = False) -> Started:
        """Run a request here, or queue it (see `Batcher.run_here`). A reload that comes in between drops nothing: the new network answers."""
        while True:
            batcher = self.current()
            try:
                made = batcher.run_here(inputs, alone)
                return Started(batcher, made, None if made is not None else batcher.submit(inputs, sequence))
            except Closing:
                if self.batcher is batcher:
                    raise


@dataclass(frozen=True, slots=True)
class Started:
    """A request that was taken: its results, or the future of them, and what has taken it."""

    batcher: Batcher
    made: list[Array] | None
    future: Future[list[Array]] | None


@dataclass
class Settings:
    """How models are run: see `Batcher`. target: what ONNX files are compiled for. memory_bytes: of a model's code, weights and working memory, the most (`Budget`)."""

    target: str = "llvm"
    max_batch: int = 32
    delay_s: float = 0.0
    queue: int = 256
    threads: int = 1
    memory_bytes: int | None = None
    compile: Callable[[Path, str], Network] | None = None


class Count:
    """How many blocks are inside of it."""

    def __init__(self) -> None:
        self.now = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Count:
        with self._lock:
            self.now += 1
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self.now -= 1


class Repository:
    """See the module. Its methods may be called by any thread."""

    def __init__(self, settings: Settings | None = None, metrics: Metrics | None = None):
        self.settings, self.metrics = settings or Settings(), metrics or Metrics()
        self.active = Count()  # requests for inference, of all models
        self._models: dict[str, dict[str, Model]] = {}
        self._lock = threading.Lock()

    # ---- what there is

    def index(self) -> list[Model]:
        """All versions of all models."""
        with self._lock:
            return [m for versions in self._models.values() for m in versions.values()]

    def get(self, name: str, version: str = "") -> Model:
        """A version of a model, the latest by default. Refusal (404) where there is none."""
        with self._lock:
            versions = self._models.get(name)
            if not versions:
                raise Refusal(404, f"no model {name!r}")
            if not version:
                ready = [m for m in versions.values() if m.state == "READY"]
                return max(ready or versions.values(), key=lambda m: _order(m.version))
            if version not in versions:
                raise Refusal(404, f"model {name!r} has no version {version!r}; it has {', '.join(versions)}")
            return versions[version]

    def ready(self, name: str, version: str = "") -> Model:
        """As `get`; Refusal (503) where it cannot run yet."""
        model = self.get(name, version)
        if model.state != "READY":
            why = f": {model.reason}" if model.reason else ""
            raise Refusal(503, f"model {name!r} is {model.state.lower()}{why}", retry_s=1)
        return model

    @property
    def is_ready(self) -> bool:
        """Whether every model that was asked for can run."""
        return all(m.state == "READY" or m.reason == _UNLOADED for m in self.index())

    # ---- loading

    def add(self, name: str, network: Network, version: str = "1") -> Model:
        """Serve a network that is there."""
        model = self.expect(name, version, None)
        self._check(network)
        self._take(model, network, self._budget(network))
        return model

    def open(self, name: str, path: Path, version: str = "1") -> Model:
        """Read or compile a model. It is entered at once and ready when this returns; Refusal where it cannot be taken in."""
        model = self.expect(name, version, path)
        try:
            network = load(path) if path.suffix == ".tec" else self._compiled(path)
            self._check(network)
            budget = self._budget(network)
        except (TecError, Refusal) as error:
            text = getattr(error, "message", None) or str(error)
            if model.batcher is None:
                model.state, model.reason = "UNAVAILABLE", text
            raise Refusal(400, f"model {name!r} cannot be loaded: {text}") from None
        self._take(model, network, budget)
        return model

    def reload(self, name: str) -> None:
        """Load all versions of a model again, from their files. Requests go on being answered."""
        paths = [(m.version, m.path) for m in self.index() if m.name == name and m.path is not None]
        if not paths:
            raise Refusal(404, f"no model {name!r} that was read from a file")
        for version, path in paths:
            assert path is not None
            self.open(name, path, version)

    def unload(self, name: str) -> None:
        """Take a model out; what waits is answered first."""
        with self._lock:
            versions = self._models.get(name)
            if not versions:
                raise Refusal(404, f"no model {name!r}")
            gone = [m for m in versions.values() if m.batcher is not None]
            for m in versions.values():
                m.state, m.reason = "UNAVAILABLE", _UNLOADED
        for m in gone:
            if m.batcher is not None:
                m.batcher.close()
                m.batcher = None

    def scan(self, folder: Path) -> list[tuple[str, str, Path]]:
        """(name, version, file) of the models in a folder."""
        found: list[tuple[str, str, Path]] = []
        for entry in sorted(folder.iterdir()):
            if entry.suffix in SUFFIXES and entry.is_file():
                found.append((entry.stem, "1", entry))
            elif entry.is_dir():
                for file in sorted([*entry.glob("model.*"), *entry.glob("*/model.*")]):
                    if file.suffix in SUFFIXES:
                        found.append((entry.name, file.parent.name if file.parent != entry else "1", file))
        return found

    def close(self) -> None:
        """Answer what waits, then end."""
        for m in self.index():
            if m.batcher is not None:
                m.batcher.close()

    def expect(self, name: str, version: str, path: Path | None) -> Model:
        """Enter a model that will be loaded: until then it, and so the server, is not ready."""
        with self._lock:
            versions = self._models.setdefault(name, {})
            model = versions.setdefault(version, Model(name, version))
            model.path = path if path is not None else model.path
            if model.batcher is None:
                model.state, model.reason = "LOADING", ""
            return model

    def _compiled(self, path: Path) -> Network:
        if self.settings.compile is None:
            raise Refusal(400, f"{path.name} is not compiled, and this server reads packages alone")
        return self.settings.compile(path, self.settings.target)

    def _check(self, network: Network) -> None:
        ports = [*shown(network, network.inputs), *shown(network, network.outputs)]
        kinds = {p["dtype"] for p in ports} - TYPES.keys()
        if kinds:
            raise Refusal(400, f"the protocol has no type for {', '.join(sorted(kinds))}")

    def _budget(self, network: Network) -> Budget | None:
        limit = self.settings.memory_bytes
        return None if limit is None else Budget(network, limit, self.settings.threads)

    def _take(self, model: Model, network: Network, budget: Budget | None) -> None:
        s, labels = self.settings, (model.name, model.version)
        made = Batcher(
            network, max_batch=s.max_batch, delay_s=s.delay_s, queue=s.queue, threads=s.threads, budget=budget,
            ran=lambda requests, rows, seconds: self.metrics.ran(labels, requests, rows, seconds),
        )  # fmt: skip
        with self._lock:
            old, model.batcher = model.batcher, made
            model.state, model.reason = "READY", ""
        if old is not None:
            old.close()


def _order(version: str) -> tuple[int, str]:
    return (int(version), "") if version.isdecimal() else (-1, version)
