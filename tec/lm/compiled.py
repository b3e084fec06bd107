"""Compiled language models: a network whose weights are deferred, with the recipes that make them; kept on the disk by sizes and formats.

In: a checkpoint, a target, options. Out: a `Network` whose weights are the checkpoint's. The key of the disk cache has the configuration, the shapes and
formats of all tensors, the target and the compiler's own sources, but no weight: a second model of the same shape compiles nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..disk_cache import trim
from ..errors import ImportModelError, InternalError, TecError
from ..folders import cache_part, is_own
from ..graph.cache import NETWORK_CACHE_BYTES, machine_key, offer_assembly
from ..graph.compiler import compile_graph
from ..graph.deferred import Deferred
from ..graph.progress import default_progress
from ..llvmworker import client
from ..runtime.modules.module import Module
from ..runtime.modules.package import read_package, write_package
from ..runtime.networks.network import Network
from ..runtime.networks.report import Report
from ..runtime.plans.plan import Plan
from ..target import Target
from .architectures import find
from .checkpoint import Checkpoint
from .config import Config
from .layers import Layers
from .weights import Recipe

_PART = "networks"
_KIND = "language model"


@dataclass
class Compiled:
    """A network with deferred weights, and what makes them. slow: formats of tensors that became floats."""

    network: Network
    recipes: list[Recipe]
    slow: list[str] = field(default_factory=list)
    from_cache: bool = False


@dataclass(frozen=True)
class Form:
    """What code is compiled for, beside the checkpoint: the target, the type of activations, whether logits of all tokens are wanted, and the most tokens of a
    text, where frequencies of rotary positions depend on it (else 0)."""

    target: Target
    dtype: str
    all_logits: bool = False
    context: int = 0


def build(checkpoint: Checkpoint, form: Form) -> tuple[Any, list[Recipe], list[str]]:
    """The graph of a checkpoint, the recipes of its constants, and the formats that became floats. Raises ImportModelError."""
    config = Config(checkpoint.config, checkpoint.architecture)
    with form.target:
        layers = Layers(config, checkpoint.tensors, form.target, form.dtype, form.all_logits, form.context)
        graph = layers.finish(find(checkpoint.architecture)(layers))
    return graph, layers.w.recipes, sorted(layers.w.slow)


def compiled(checkpoint: Checkpoint, form: Form, cache: bool = True, progress: Any = None) -> Compiled:
    """The code for a checkpoint, from the disk where it is kept. Raises ImportModelError, LoweringError, CodegenError."""
    key = key_of(checkpoint, form) if cache else None
    found = _read(key) if key is not None else None
    if found is not None:
        return found
    client.start()
    graph, recipes, slow = build(checkpoint, form)
    net = compile_graph(graph, form.target, progress=progress or default_progress(), state=graph.state)
    made = Compiled(net, recipes, slow)
    _check_recipes(made)
    if key is not None:
        _write(key, made)
    return made


def _check_recipes(made: Compiled) -> None:
    """No pass may have made a constant of one that has no numbers yet."""
    known = {name for r in made.recipes for name in r.params.values()}
    strange = [n for n, v in made.network.params.items() if isinstance(v, Deferred) != (n in known)]
    large = [n for n, v in made.network.params.items() if n not in known and v.nbytes > 1 << 20]
    if strange or large:
        raise InternalError(f"constants without a recipe: {', '.join([*strange, *large][:4])}")


# ---- the disk


def key_of(checkpoint: Checkpoint, form: Form) -> str | None:
    """The name of what is kept for a checkpoint; None where nothing is."""
    machine = machine_key(form.target)
    if machine is None:
        return None
    tensors = sorted((n, list(t.shape), t.format.name) for n, t in checkpoint.tensors.items())
    facts = [
        checkpoint.architecture,
        _plain(checkpoint.config),
        tensors,
        form.dtype,
        form.all_logits,
        form.context,
        machine,
    ]
    return hashlib.sha256(json.dumps(facts, default=str).encode()).hexdigest()


def _plain(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    return sorted((k, repr(v)) for k, v in config.items())


def _read(key: str) -> Compiled | None:
    folder = cache_part(_PART)
    if folder is None:
        return None
    path = folder / f"{key}.tec"
    try:
        if not is_own(os.stat(path)):
            return None
        with read_package(path, _KIND) as package:
            meta = package.meta
            plan, report = Plan.from_json(meta["plan"]), Report.from_json(meta["report"])
            module = Module.from_data(meta["module"], package.blob)
            recipes = [Recipe.from_json(r) for r in meta["recipes"]]
            params: dict[str, Any] = {n: package.array(n) for n in package.array_names}
            for r in recipes:
                for name in r.params.values():
                    value = plan.values[name]
                    params[name] = Deferred.of(value.dtype, [d for d in value.shape if isinstance(d, int)])
        os.utime(path)
        offer_assembly(module)
        return Compiled(Network(module, plan, params, report), recipes, list(meta["slow"]), True)
    except (OSError, TecError, KeyError, TypeError, ValueError):
        return None


def _write(key: str, made: Compiled) -> None:
    folder = cache_part(_PART, make=True)
    if folder is None:
        return
    blobs: dict[str, bytes] = {}
    net = made.network
    meta = {
        "plan": net.plan.to_json(), "module": net.module.to_data(blobs, unmade=False), "report": net.report.to_json(),
        "recipes": [r.to_json() for r in made.recipes], "slow": made.slow,
    }  # fmt: skip
    small = {n: v for n, v in net.params.items() if not isinstance(v, Deferred)}
    path = folder / f"{key}.tec"
    try:
        write_package(path, _KIND, meta, blobs, small, durable=False)
        path.chmod(0o600)
    except (OSError, TecError):
        return  # a cache that cannot be written costs time, not the result
    trim(folder, NETWORK_CACHE_BYTES)


def bytes_of(made: Compiled, names: Sequence[str] | None = None) -> int:
    """Bytes that the weights take."""
    wanted = names if names is not None else [n for r in made.recipes for n in r.params.values()]
    return sum(int(made.network.params[n].nbytes) for n in wanted)


__all__ = ["Compiled", "Form", "ImportModelError", "build", "compiled", "key_of"]
