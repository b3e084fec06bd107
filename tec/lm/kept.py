"""Compiled language models on the disk, by sizes and formats, and their weights as kernels read them: a second start maps both.

The key of code has the configuration, the shapes and formats of all tensors, the target and the compiler's own sources, but no weight: a second model of the
same shape compiles nothing. The key of weights has that of the code, and where, how large and how old the model's files are. Nothing here imports the compiler.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from threading import Event, Thread
from typing import Any

import numpy as np

from ..digest import sha256
from ..errors import TecError
from ..folders import cache_root
from ..late_assembly import offer_assembly
from ..records import dataclass
from ..runtime.arrays.dtypes import dtype_name, numpy_dtype
from ..runtime.modules.module import Module
from ..runtime.networks.network import Network
from ..runtime.networks.report import Report
from ..runtime.plans import kept_layout
from ..runtime.plans.layout import PlanLayout
from ..runtime.plans.plan import Plan
from ..source_stamp import llvm_stamp, source_stamp
from ..target import Target, host_features
from .checkpoint import Checkpoint
from .container import Specs, Writer, identity, keep, kept
from .recipes import Recipe, placed

NETWORK_CACHE_BYTES = 4 << 30
_BESIDE_BYTES = 256 << 20  # of weights that a thread makes in the time that a small model's code takes
_PART = "networks"
_KIND = "language model"
_BLOB = "blob/"  # what arrays of a module's bytes are called
_IMAGE = "code/image"
_FRONTENDS = ("tec_gguf", "tec_hf")


@dataclass(frozen=True)
class Form:
    """What code is compiled for, beside the checkpoint: the target, the type of activations, whether logits of all tokens are wanted, or in place of
    logits the features of all tokens; how many tokens a run has, 0 for any; whether an input says where they stand (`Layers.place_rows`); and the tokens of a
    block where many texts go on together (`paged`), else 0; the type of caches (`caches`), "" for that of activations; and whether caches of layers with a window may
    hold what it sees alone (`Layers.forget_beyond_windows`)."""

    target: Target
    dtype: str
    all_logits: bool = False
    features: bool = False
    tokens: int = 0
    placed: bool = False
    block: int = 0
    cache: str = ""
    forgets: bool = False


@dataclass
class Compiled:
    """Code and a plan, constants that are there, and the recipes of the others (`missing`: their types and shapes). slow: formats of tensors that became
    floats."""

    module: Module
    plan: Plan
    report: Report
    recipes: list[Recipe]
    constants: dict[str, Any]
    slow: list[str] = field(default_factory=list)
    from_cache: bool = False
    layout: PlanLayout | None = None
    seconds: float = 0.0  # until it was there

    @property
    def missing(self) -> Specs:
        """The constants that recipes make."""
        values = self.plan.values
        names = [n for r in self.recipes for n in r.params.values()]
        return {n: (values[n].dtype, [d for d in values[n].shape if isinstance(d, int)]) for n in names}

    def network(self, weights: Mapping[str, Any]) -> Network:
        """The network with these weights, which a CPU reads in place."""
        params = {**self.constants, **weights}
        net = Network(self.module, self.plan, params, self.report, trusted=self.from_cache, layout=self.layout)
        net.provide(weights)
        return net


def key_of(checkpoint: Checkpoint, form: Form) -> str | None:
    """The name of what is kept for a checkpoint; None where nothing is."""
    if os.environ.get("TEC_CACHE_DISABLE") or cache_root() is None:
        return None
    host = (host_features(), form.target.machine) if form.target.is_host else ""
    facts = [
        checkpoint.architecture,
        sorted((k, repr(v)) for k, v in checkpoint.config.items()),
        sorted(
            (n, list(t.shape), t.format.name, t.bits, t.group, t.codes is not None)
            for n, t in checkpoint.tensors.items()
        ),
        form.dtype,
        form.all_logits,
        form.features,
        form.tokens,
        form.placed,
        form.block,
        form.cache,
        form.forgets,
        repr((str(form.target), host, source_stamp(_FRONTENDS), llvm_stamp())),
    ]
    return sha256(json.dumps(facts, default=str).encode()).hexdigest()


def read(key: str) -> Compiled | None:
    """The code under a key; None where none is, or what is there cannot be read."""
    found = kept(key, numpy_dtype, _PART)
    try:
        return None if found is None or found.facts["kind"] != _KIND else _read(found.facts, found.arrays)
    except (TecError, KeyError, TypeError, ValueError, AttributeError):
        return None


def _read(facts: Mapping[str, Any], arrays: Mapping[str, Any]) -> Compiled | None:
    if sha256(arrays[_BLOB + _IMAGE] if _BLOB + _IMAGE in arrays else b"").hexdigest() != facts["image"]:
        return None  # code with a flipped bit is not run
    plan, report = Plan.from_own(facts["plan"]), Report.from_json(facts["report"])
    module = Module.from_data(facts["module"], lambda name: arrays[_BLOB + name].tobytes(), late_texts=True)
    constants = {n: a for n, a in arrays.items() if not n.startswith(_BLOB) and not kept_layout.is_layout(n)}
    layout = kept_layout.of_data(plan, facts["layout"], arrays) if facts["layout"] is not None else None
    recipes = [Recipe.from_json(r) for r in facts["recipes"]]
    made = Compiled(module, plan, report, recipes, constants, list(facts["slow"]), True, layout)
    offer_assembly(module)
    return None if set(made.missing) & set(constants) else made


def write(key: str, made: Compiled) -> None:
    """Keep code; where that fails, it costs time at the next start."""
    blobs: dict[str, bytes] = {}
    laid = kept_layout.to_data(made.layout) if made.layout is not None else None
    facts = {
        "kind": _KIND, "plan": made.plan.to_json(), "module": made.module.to_data(blobs, unmade=False), "report": made.report.to_json(),
        "recipes": [r.to_json() for r in made.recipes], "slow": made.slow, "layout": None if laid is None else laid[0],
        "image": sha256(blobs.get(_IMAGE, b"")).hexdigest(),
    }  # fmt: skip
    arrays = {_BLOB + n: np.frombuffer(b, np.uint8) for n, b in blobs.items()}
    keep(
        key,
        facts,
        {**made.constants, **(laid[1] if laid is not None else {}), **arrays},
        numpy_dtype,
        dtype_name,
        _PART,
        NETWORK_CACHE_BYTES,
    )


# ---- weights


def weights_of(made: Compiled, checkpoint: Checkpoint, key: str | None, threads: int) -> dict[str, Any]:
    """The constants of all recipes: mapped where they are kept, else made, and kept for the next start."""
    return _weights(made.recipes, made.missing, checkpoint, key, threads)


def _weights(
    recipes: Sequence[Recipe],
    specs: Specs,
    checkpoint: Checkpoint,
    key: str | None,
    threads: int,
    stop: Event | None = None,
) -> dict[str, Any]:
    name = _weights_key(checkpoint, key)
    found = kept(name, numpy_dtype) if name is not None else None
    if found is not None and _fits(found.arrays, specs):
        return found.arrays
    writer = None
    if name is not None:
        try:
            writer = Writer(name, {"weights of": checkpoint.path}, specs, numpy_dtype)
        except OSError:
            writer = None  # no room, or no cache: memory that is not the disk's
    from .filling import fill

    out = placed(specs) if writer is None else writer.arrays
    try:
        fill(recipes, checkpoint.tensors, out, threads, stop)
    except BaseException:
        if writer is not None:
            writer.drop()
        raise
    if writer is not None:
        writer.finish(later=True)
    return out


class Making:
    """Weights that are made beside the compiler's work: `begin` as soon as it is known which there are, `of` what became code. A context: where the
    compiler fails, nothing more is made."""

    def __init__(self, checkpoint: Checkpoint, key: str | None, threads: int):
        self._checkpoint, self._key, self._threads = checkpoint, key, threads
        self._threads_beside = threads
        self._stop = Event()
        self._asked: tuple[Sequence[Recipe], Specs] | None = None
        self._thread: Thread | None = None
        self._found: dict[str, Any] = {}
        self._error: BaseException | None = None

    def begin(self, recipes: Sequence[Recipe], specs: Specs) -> None:
        """Make these beside the compiler, whose threads and these hold each other up: by as many as make a few hundred MB each, and one core is left."""
        nbytes = sum(numpy_dtype(dtype).itemsize * math.prod(shape) for dtype, shape in specs.values())
        self._threads_beside = min(max(1, self._threads - 1), 1 + nbytes // _BESIDE_BYTES)
        self._asked = list(recipes), specs
        self._thread = Thread(target=self._make, args=self._asked, name="tec-weights")
        self._thread.start()

    def _make(self, recipes: Sequence[Recipe], specs: Specs) -> None:
        try:
            self._found = _weights(recipes, specs, self._checkpoint, self._key, self._threads_beside, self._stop)
        except BaseException as error:
            self._error = error

    def of(self, made: Compiled) -> dict[str, Any]:
        """The constants of all recipes of what was compiled."""
        if self._thread is None or self._asked != (made.recipes, made.missing):
            return weights_of(made, self._checkpoint, self._key, self._threads)
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._found

    def __enter__(self) -> Making:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()


def _weights_key(checkpoint: Checkpoint, key: str | None) -> str | None:
    files = identity(checkpoint.files)
    if key is None or files is None:
        return None
    return sha256(json.dumps([key, files]).encode()).hexdigest()


def _fits(arrays: Mapping[str, Any], specs: Specs) -> bool:
    return all(
        n in arrays and (arrays[n].dtype, arrays[n].shape) == (numpy_dtype(dtype), tuple(shape))
        for n, (dtype, shape) in specs.items()
    )
