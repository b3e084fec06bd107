"""Layouts of convolutions by measured times: timed once before the search, kept, and what compilations choose by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tec
from tec.choices.layout_options import TEMPLATE
from tec.choices.store.database import Database, Tuned
from tec.graph.graph import Graph
from tec.target import Target
from tec.tuning import make_tuner
from tec.tuning.layouts import layout_tasks


def network() -> Graph:
    g = Graph("g")
    v = g.input("x", "float32", (1, 24, 28, 28))
    rng = np.random.default_rng(0)
    for _ in range(2):
        w = g.constant(rng.standard_normal((24, 24, 3, 3)).astype(np.float32) * 0.1)
        window = {"strides": (1, 1), "dilations": (1, 1), "before": (1, 1), "after": (1, 1), "groups": 1}
        (v,) = g.add("conv", [v, w], window)
    g.set_outputs([v])
    return g


class Clock:
    """Times by the layouts' names alone: those that read and write `quick` take a hundredth."""

    def __init__(self, quick: str):
        self.quick, self.jobs = quick, 0

    def __call__(self, job: dict[str, Any]) -> dict[str, float]:
        choice = job["choices"][1]
        self.jobs += choice["template"] == TEMPLATE
        seconds = 1e-3 if choice.get("y") == choice.get("x") == self.quick else 1e-1
        return {"ratio": 1.0, "seconds": seconds, "rival_seconds": seconds}


def tune(path: Path, clock: Clock) -> Any:
    tuner = make_tuner(network(), target="llvm -mcpu=znver4", db=path, measure=clock, trials=1)
    try:
        return tuner.run()
    finally:
        tuner.database.close()


def layouts_of(net: Any) -> set[str]:
    return {word for text in net.report.sources.values() for word in ("NCHW8c", "NCHW16c") if word in text}


@pytest.mark.parametrize("quick", ["NCHW8c", "NCHW16c"])
def test_what_is_quick_is_taken(quick: str, tmp_path: Path) -> None:
    clock = Clock(quick)
    report = tune(tmp_path / "a.db", clock)
    assert clock.jobs == len(layout_tasks(network(), Target("llvm -mcpu=znver4"))) > 1
    assert any("layouts" in note for note in report.notes)
    net = tec.compile(network(), target="llvm -mcpu=znver4", tuned=tmp_path / "a.db", cache=False)
    assert layouts_of(net) == {quick}
    again = Clock(quick)
    tune(tmp_path / "a.db", again)
    assert again.jobs == 0  # nothing is measured twice


def test_they_are_timed_in_workers(tmp_path: Path) -> None:
    """The real thing: each layout builds and runs."""
    path = tmp_path / "a.db"
    report = tec.tune(network(), target="llvm", db=path, trials=1)
    assert not [n for n in report.notes if "gave no time" in n]
    with Database(path, read_only=True) as db:
        times = [r for r in db.records() if r.choice["template"] == TEMPLATE]
    assert len(times) == len(layout_tasks(network(), Target("llvm")))
    assert all(0 < r.choice["seconds"] < 1 for r in times)
    assert Tuned(times, times[0].version if times else "").choices.keys() == {r.signature for r in times}
