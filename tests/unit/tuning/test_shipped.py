"""The choices that come with tec: taken where the default is what it was, refused elsewhere, and still what was timed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tec
from tec.choices.space import Space
from tec.choices.store import shipped
from tec.choices.store.shipped import Shipped, of_machine, without_threads, write
from tec.graph.graph import Graph
from tec.target import Target
from tec.tuning.ranker import make_ranker
from tec.tuning.search import Search
from tec.tuning.tasks import tasks_of_graph
from tools.shipped_records import stale

MACHINES = sorted(p.stem for p in shipped.FOLDER.glob("*.jsonl"))
TARGETS = {
    "znver4": "llvm -mcpu=znver4",
    "sapphirerapids": "llvm -mcpu=sapphirerapids",
    "MI300X": "rocm -mcpu=gfx942",
    "MI250X": "rocm -mcpu=gfx90a",
    "RX 7900 XTX": "rocm -mcpu=gfx1100",
    "RX 9070 XT": "rocm -mcpu=gfx1201",
}
TARGET = "llvm -mcpu=znver4"
MOST_BYTES = 200_000  # of all records: they travel with every installation


def network(channels: int = 32, side: int = 14) -> Graph:
    g = Graph("g")
    x = g.input("x", "float32", (1, channels, side, side))
    w = g.constant(np.random.default_rng(0).standard_normal((channels, channels, 3, 3)).astype(np.float32))
    window = {"strides": (1, 1), "dilations": (1, 1), "before": (1, 1), "after": (1, 1), "groups": 1}
    g.set_outputs(g.add("conv", [x, w], window))
    return g


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shipped]:
    """A record of the convolution: another tile than the default's."""
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    of_machine.cache_clear()
    (task,) = [t for t in tasks_of_graph(network(), Target(TARGET))[0] if "conv" in t.name]
    default = task.spaces[0].default
    r = Shipped(
        task.key.signature, "conv", ("g",), 2, without_threads(default), without_threads({**default, "columns": 5}), ("", ""), 1.5, "measured"
    )  # fmt: skip
    write("znver4", [r], tmp_path)
    yield r
    of_machine.cache_clear()


def chosen(**options: Any) -> dict[str, Any]:
    net = tec.compile(network(), target=TARGET, **options)
    (found,) = [c for name, c in net.report.choices.items() if "conv" in name]
    return dict(found["choice"])


def test_a_record_stands_in_the_defaults_place(made: Shipped) -> None:
    assert chosen()["columns"] == 5
    assert chosen()["parallel"] == chosen(tuned=False)["parallel"]
    assert chosen(tuned=False)["columns"] == made.default["columns"] != 5
    mine = {made.signature: {**chosen(tuned=False), "columns": 3}}
    assert chosen(choices=mine)["columns"] == 3  # what a user says goes first


@pytest.mark.parametrize(
    "what", [{"default": "another"}, {"units": 1}, {"choice": "illegal"}, {"choice": "template"}], ids=str
)
def test_a_record_that_does_not_hold_is_left_aside_in_silence(made: Shipped, what: Any, tmp_path: Path) -> None:
    """The default has changed, the machine has many more cores than the one that was timed, the choice is none of the template's."""
    changed = {
        "another": {**made.default, "columns": 13}, "illegal": {**made.choice, "columns": 28, "blocks": 4}, "template": {**made.choice, "template": "gone"},
    }  # fmt: skip
    write("znver4", [replace(made, **{k: changed.get(v, v) for k, v in what.items()})], tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert chosen()["columns"] == made.default["columns"]


def test_a_search_tries_it_first(made: Shipped) -> None:
    (task,) = [t for t in tasks_of_graph(network(), Target(TARGET))[0] if "conv" in t.name]
    search = Search(task.spaces, make_ranker("ridge"), 0, hints=task.hints)
    batch = search.propose(8)
    assert batch[0].choice["columns"] == 5 and len(batch) == len({c.key for c in batch}) == 8


def test_they_are_small() -> None:
    assert sum(p.stat().st_size for p in shipped.FOLDER.glob("*")) < MOST_BYTES


@pytest.mark.parametrize("machine", MACHINES)
def test_they_are_well_formed(machine: str) -> None:
    """A file's name is a machine's, each group stands once, and what is shipped wins."""
    assert Target(TARGETS[machine]).machine.name == machine
    found = of_machine(machine)
    assert len({r.signature for r in found}) == len(found) > 0
    for r in found:
        assert r.gain > 1.02 and r.how in ("measured", "model-ranked") and r.networks and r.default != r.choice
        assert r.against not in (r.default, r.choice)


def convolution(target: Target) -> list[Space]:
    """The spaces of a convolution such as records are of, float16 on GPUs."""
    dtype = "float16" if target.is_gpu else None
    found, _ = tasks_of_graph(network(256, 28), target, dtype)
    (task,) = [t for t in found if "conv" in t.name]
    return task.spaces


@pytest.mark.parametrize("machine", MACHINES)
def test_templates_take_them(machine: str) -> None:
    """A parameter that a template gained without a neutral value, or an option that it lost, would leave records aside in silence. (`test_they_are_what_was_timed` wants the networks.)"""
    at = {s.template: s for s in convolution(Target(TARGETS[machine]))}
    for r in of_machine(machine):
        for choice in (r.default, r.choice):
            space = at[choice["template"]]
            full = space.filled(choice)
            assert full.keys() - {"template"} == space.parameters.keys() - set(shipped.THREADS)
            assert all(full[k] in o for k, o in space.parameters.items() if k in full), space


def test_a_record_of_before_a_parameter_came_means_its_neutral_value(monkeypatch: pytest.MonkeyPatch) -> None:
    spaces = convolution(Target(TARGETS["MI300X"]))
    template = type(spaces[0])
    full = spaces[0].default
    gone = set(template.neutral)
    other = next(c for c in spaces[0].drafts() if all(c[k] == template.neutral[k] for k in gone) and c != full)
    old = {k: v for k, v in other.items() if k not in gone}
    monkeypatch.setattr(template, "default", other)  # the machine's default was one that did without
    r = Shipped("s", "conv", ("g",), 304, old, old, ("", ""), 1.5, "model-ranked")
    assert gone and r.on(spaces) == other == spaces[0].check(old)
    monkeypatch.setattr(template, "neutral", {})
    assert r.on(spaces) is None  # not a KeyError, nor a choice with a hole


NETWORKS = sorted({(m, n) for m in MACHINES for r in of_machine(m) for n in r.networks})


@pytest.mark.parametrize(
    "machine, name", [pytest.param(m, n, marks=[pytest.mark.slow] if n != "resnet50" else []) for m, n in NETWORKS]
)
def test_they_are_what_was_timed(machine: str, name: str) -> None:
    """Groups, defaults and schedules are those of the record. Where a change of tec's was meant: `python -m tools.shipped_records` makes new ones."""
    pytest.importorskip("onnx")
    assert stale(name, Target(TARGETS[machine])) == []
