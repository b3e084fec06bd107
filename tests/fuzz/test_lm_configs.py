"""Mutated config.json files of language models: each is taken as it is or refused with a TecError, and what cannot be meant is refused by its key's name.

A key is taken out, or holds what it cannot: another type, a number of no size, 2^60 layers. Nothing is compiled: a file is opened and its graph built.
"""

from __future__ import annotations

import copy
import json
import math
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tec.lm
from tec.errors import TecError
from tec.lm.compiled import build
from tec.lm.config import Config
from tec.lm.kept import Form
from tec.lm.kinds import _KINDS, _ROPE
from tec.lm.lookup import Lookup
from tec.lm.rope import boundary
from tec.target import as_target
from tests import seeds
from tests.unit.lm.families import FAMILIES, references
from tests.unit.lm.test_families import folder_of

CASES = 30
BAD: list[Any] = [
    None, "x", "", True, -1, 0, 1.5, 1 << 60, [], [1], {}, {"a": 1}, math.nan, math.inf, "1e400", [[1]], -3.0, "4", ["full_attention"], 1, 3, 1e300, 1e-300,
]  # fmt: skip
SIZES = ("hidden_size", "num_hidden_layers", "vocab_size", "max_position_embeddings")  # that all architectures read


def _paths(d: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for k, v in d.items():
        yield (*at, k)
        if isinstance(v, dict):
            yield from _paths(v, (*at, k))


def _opened(folder: Path) -> None:
    """All of a start that comes before compiling."""
    checkpoint = tec.lm.open(folder)
    config = Config(checkpoint.config, checkpoint.architecture)
    assert config.vocabulary and config.context
    boundary(config)
    Lookup(checkpoint.tensors)
    build(checkpoint, Form(as_target("llvm"), "float32"))


def _must_be_refused(path: tuple[str, ...], value: Any) -> bool:
    """Whether a key that architectures read holds what is none of its kind."""
    name = path[-1]
    kinds = _KINDS if len(path) == 1 else _ROPE
    if name in SIZES and len(path) == 1:
        return value is not None and (type(value) is not int or not 0 < value < 1 << 31)
    return value is not None and name in kinds and not kinds[name][0](value)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    known, made = references(), dict[str, tuple[Path, Any]]()

    def of(name: str) -> tuple[Path, Any]:
        if name not in made:
            made[name] = folder_of(known[name], tmp_path_factory.mktemp("model")), known[name]["config"]
        return made[name]

    return of


def _one(folders: Any, k: int) -> None:
    rng = random.Random(k)
    kind = rng.choice(sorted(FAMILIES))
    folder, config = folders(f"{kind} {rng.randrange(len(FAMILIES[kind]))}")
    mutated = copy.deepcopy(config)
    read = [p for p in _paths(config) if len(p) > 1 or p[0] in _KINDS or p[0] in SIZES or p[0].startswith("rope")]
    path = rng.choice(read if rng.random() < 0.8 else list(_paths(config)))
    table = mutated
    for part in path[:-1]:
        table = table[part]
    if rng.random() < 0.15:
        value, refused = "taken out", False
        del table[path[-1]]
    else:
        value = table[path[-1]] = rng.choice(BAD)
        # Nemotron-H has a range of its own in place of this one.
        refused = _must_be_refused(path, value) and (kind, path[-1]) != ("nemotron_h", "time_step_limit")
    (folder / "config.json").write_text(json.dumps(mutated))
    what = f"seed {k}: {kind}, {'.'.join(path)} = {value!r}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            _opened(folder)
    except TecError as error:
        # One kind of layers' base is told by its older name.
        names = (path[-1], "rope_local_base_freq") if path[-1] == "rope_theta" else (path[-1],)
        assert not refused or any(n in str(error) for n in names), f"{what}: {error}"
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__} {error}") from error
    else:
        assert not refused, f"{what} was taken"


def test_configurations_are_taken_or_refused(folders: Any) -> None:
    for k in seeds.some(CASES):
        _one(folders, k)


@pytest.mark.slow
def test_many_configurations(folders: Any) -> None:
    for k in seeds.some(600, 1000):
        _one(folders, k)


@pytest.mark.parametrize(
    "key, value", [("num_hidden_layers", 2), ("num_hidden_layers", 4), ("vocab_size", 127), ("hidden_size", 32)]
)
def test_sizes_that_do_not_fit_the_tensors_are_told(folders: Any, key: str, value: int) -> None:
    folder, config = folders("llama 1")
    (folder / "config.json").write_text(json.dumps({**config, key: value}))
    with pytest.raises(TecError, match=f"{key}|model.layers.3|{value}"):
        _opened(folder)


def test_a_head_that_is_missing_is_told(folders: Any) -> None:
    folder, config = folders("llama 2")  # whose head is its embedding table
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    with pytest.raises(TecError, match="tie_word_embeddings"):
        _opened(folder)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("gemma3n_text 0", {"num_kv_shared_layers": 5}, "num_kv_shared_layers = 5"),
        ("gemma3n_text 0", {"altup_active_idx": 4}, "altup_active_idx = 4 of 4"),
        ("gemma3n_text 0", {"activation_sparsity_pattern": [1.0] * 5}, "activation_sparsity_pattern"),
        ("phimoe 0", {"num_experts_per_tok": 3}, "num_experts_per_tok = 3"),
        ("falcon_h1 0", {"time_step_limit": "4"}, "time_step_limit"),
    ],
)  # fmt: skip
def test_what_an_architecture_has_not(folders: Any, name: str, change: dict[str, Any], said: str) -> None:
    folder, config = folders(name)
    (folder / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(TecError, match=said):
        _opened(folder)
