"""Compiled language models on the disk, by sizes and formats, and their weights as kernels read them: a second start maps both.

The key of code has the configuration, the shapes and formats of all tensors, the target and the compiler's own sources, but no weight: a second model of the
same shape compiles nothing. The key of weights has that of the code, and where, how large and how old the model's files are. Nothing here imports the compiler.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..disk_cache import trim
from ..errors import TecError
from ..folders import cache_part, cache_root, is_own
from ..late_assembly import offer_assembly
from ..runtime.arrays.dtypes import numpy_dtype
from ..runtime.modules.module import Module
from ..runtime.modules.package import read_package, write_package
from ..runtime.networks.network import Network
from ..runtime.networks.report import Report
from ..runtime.plans.plan import Plan
from ..source_stamp import llvm_stamp, source_stamp
from ..target import Target, host_features
from .checkpoint import Checkpoint
from .container import Specs, Writer, identity, kept
from .recipes import Recipe, placed

NETWORK_CACHE_BYTES = 4 << 30
_PART = "networks"
_KIND = "language model"
_FRONTENDS = ("tec_gguf", "tec_hf")


@dataclass(frozen=True)
class Form:
    """What code is compiled for, beside the checkpoint: the target, the type of activations, whether logits of all tokens are wanted, or in place of
    logits the features of all tokens; how many tokens a run has, 0 for any; whether an input says where they stand (`Layers.place_rows`); and the tokens of a
    block where many texts go on together (`paged`), else 0."""

    target: Target
    dtype: str
    all_logits: bool = False
    features: bool = False
    tokens: int = 0
    placed: bool = False
    block: int = 0


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

    @property
    def missing(self) -> Specs:
        """The constants that recipes make."""
        values = self.plan.values
        names = [n for r in self.recipes for n in r.params.values()]
        return {n: (values[n].dtype, [d for d in values[n].shape if isinstance(d, int)]) for n in names}

    def network(self, weights: Mapping[str, Any]) -> Network:
        """The network with these weights, which a CPU reads in place."""
        net = Network(self.module, self.plan, {**self.constants, **weights}, self.report, trusted=self.from_cache)
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
        sorted((n, list(t.shape), t.format.name, t.bits, t.group) for n, t in checkpoint.tensors.items()),
        form.dtype,
        form.all_logits,
        form.features,
        form.tokens,
        form.placed,
        form.block,
        repr((str(form.target), host, source_stamp(_FRONTENDS), llvm_stamp())),
    ]
    return hashlib.sha256(json.dumps(facts, default=str).encode()).hexdigest()


def read(key: str) -> Compiled | None:
    """The code under a key; None where none is, or what is there cannot be read."""
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
            constants = {n: package.array(n) for n in package.array_names}
            made = Compiled(module, plan, report, recipes, constants, list(meta["slow"]), True)
            if set(made.missing) & set(constants):
                return None
        os.utime(path)
        offer_assembly(module)
        return made
    except (OSError, TecError, KeyError, TypeError, ValueError):
        return None


def write(key: str, made: Compiled) -> None:
    """Keep code; where that fails, it costs time at the next start."""
    folder = cache_part(_PART, make=True)
    if folder is None:
        return
    blobs: dict[str, bytes] = {}
    meta = {
        "plan": made.plan.to_json(), "module": made.module.to_data(blobs, unmade=False), "report": made.report.to_json(),
        "recipes": [r.to_json() for r in made.recipes], "slow": made.slow,
    }  # fmt: skip
    path = folder / f"{key}.tec"
    try:
        write_package(path, _KIND, meta, blobs, made.constants, durable=False)
        path.chmod(0o600)
    except (OSError, TecError):
        return
    trim(folder, NETWORK_CACHE_BYTES)


# ---- weights


def weights_of(made: Compiled, checkpoint: Checkpoint, key: str | None, threads: int) -> dict[str, Any]:
    """The constants of all recipes: mapped where they are kept, else made, and kept for the next start."""
    specs, name = made.missing, _weights_key(checkpoint, key)
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
        fill(made.recipes, checkpoint.tensors, out, threads)
    except BaseException:
        if writer is not None:
            writer.drop()
        raise
    if writer is not None:
        writer.finish(later=True)
    return out


def _weights_key(checkpoint: Checkpoint, key: str | None) -> str | None:
    files = identity(checkpoint.files)
    if key is None or files is None:
        return None
    return hashlib.sha256(json.dumps([key, files]).encode()).hexdigest()


def _fits(arrays: Mapping[str, Any], specs: Specs) -> bool:
    return all(
        n in arrays and (arrays[n].dtype, arrays[n].shape) == (numpy_dtype(dtype), tuple(shape))
        for n, (dtype, shape) in specs.items()
    )
