"""Records of tuning: kept, exchanged and merged by several processes at once, consulted by compilations, left aside where they do not fit."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tec
from tec.choices.store import database
from tec.choices.store.database import (
    Database,
    Key,
    Record,
    Trial,
    from_lines,
    machine_text,
    templates_version,
    to_lines,
    tuned,
)
from tec.errors import DeviceError, TecError
from tec.graph.graph import Graph
from tec.target import Target


def record(signature: str = "s", seconds: float = 1.0, **more: Any) -> Record:
    fields = {"target": "llvm", "machine": "m x 2", "version": "v", "name": "f", "choice": {"template": "t", "rows": 4}, "how": "measured"}  # fmt: skip
    return Record(**{"signature": signature, **fields, "seconds": seconds, "default_seconds": 2.0, "trials": 8, **more})


def network() -> Graph:
    g = Graph("g")
    x = g.input("x", "float32", (1, 64))
    w = g.constant(np.random.default_rng(0).standard_normal((64, 128), np.float32))
    g.set_outputs(g.add("matmul", [x, w]))
    return g


def test_records_go_to_lines_and_back(tmp_path: Path) -> None:
    with Database(tmp_path / "a.db") as db:
        db.put(record("a"))
        db.put(record("a", 0.5))
        db.put(record("b", target="cuda"))
        assert [r.seconds for r in db.records("llvm")] == [0.5]
        lines = list(to_lines(db.records()))
        assert list(from_lines(lines)) == db.records()
    for bad in ("{", "[]", '{"signature": 1}', lines[0].replace("0.5", "-1")):
        with pytest.raises(TecError, match="here:2"):
            list(from_lines(["", bad], "here"))


def test_a_merge_keeps_what_gains_more(tmp_path: Path) -> None:
    with Database(tmp_path / "a.db") as db:
        db.put(record("a", 1.0))
        assert db.merge([record("a", 1.5), record("b")]) == 1
        assert db.merge([record("a", 0.5)]) == 1
        assert [r.seconds for r in db.records()] == [0.5, 1.0]


WRITER = """
import sys
from tec.choices.store.database import Database, Key, Trial
with Database(sys.argv[1]) as db:
    for k in range(40):
        db.add_trial(Key("s", "llvm", "m", "v"), Trial(f"{sys.argv[2]} {k}", "a", 1.0, 1.0))
"""


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(k)]) for k in range(3)]
    assert [w.wait(120) for w in writers] == [0, 0, 0]
    with Database(path) as db:
        assert len(db.trials(Key("s", "llvm", "m", "v"))) == 120
        assert db.trials(Key("other", "llvm", "m", "v")) == {}
        db.add_trial(Key("s", "llvm", "m", "v"), Trial("x", "a", None, None, "died"))
        assert db.trials(Key("s", "llvm", "m", "v"))["x", "a"].error == "died"


def test_what_is_no_database_is_an_error(tmp_path: Path) -> None:
    bad = tmp_path / "bad.db"
    bad.write_text("no database " * 100)
    with pytest.raises(TecError, match=r"bad\.db: no database of tuning records"):
        tuned(bad, Target("llvm"))
    with pytest.raises(TecError, match="no such file"):
        tec.compile(network(), "llvm", tuned=tmp_path / "none.db")


def test_a_broken_default_database_does_not_stop_a_compilation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = tmp_path / "bad.db"
    bad.write_text("no database " * 100)
    monkeypatch.setenv("TEC_TUNE_DB", str(bad))
    with pytest.warns(UserWarning, match="the defaults stand in"):
        tec.compile(network(), "llvm")


def test_compilations_take_recorded_choices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEC_TUNE_DB", str(tmp_path / "tune.db"))
    target = Target("llvm")
    g = network()
    (chosen,) = tec.compile(g, target).report.choices.values()
    other = {**chosen["choice"], "parallel": not chosen["choice"]["parallel"]}
    place = {"target": str(target), "machine": machine_text(target.machine)}

    def taken(**options: Any) -> dict[str, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            (now,) = tec.compile(g, target, **options).report.choices.values()
        return dict(now["choice"])

    with Database(tmp_path / "tune.db") as db:
        db.put(record(chosen["signature"], choice=other, version=templates_version(), **place))
        assert taken() == other
        assert taken(tuned=tmp_path / "tune.db") == other
        assert taken(tuned=False) == chosen["choice"]
        # What is asked for comes first.
        assert taken(choices={chosen["signature"]: chosen["choice"]}) == chosen["choice"]
        # A choice that its template no longer has.
        db.put(record(chosen["signature"], choice={**other, "no such hole": 1}, version=templates_version(), **place))
        with pytest.warns(UserWarning, match="does not fit, and the default stands in"):
            tec.compile(g, target)


def test_records_of_other_templates_are_left_aside_with_a_note(tmp_path: Path) -> None:
    target = Target("llvm")
    g = network()
    (chosen,) = tec.compile(g, target).report.choices.values()
    with Database(tmp_path / "tune.db") as db:
        db.put(record(chosen["signature"], version="old", target=str(target), machine=machine_text(target.machine)))
    with pytest.warns(UserWarning, match="made with other templates"):
        (now,) = tec.compile(g, target, tuned=tmp_path / "tune.db").report.choices.values()
    assert now == chosen


@pytest.mark.parametrize(
    ("arch", "name", "units", "target", "key"),
    [
        ("sm_90", "NVIDIA H200", 132, "cuda -arch=sm_90a", "H200 x 132"),
        ("sm_90", "NVIDIA H100 PCIe", 114, "cuda -arch=sm_90", "H100 x 114"),
        ("sm_80", "NVIDIA A100-SXM4-80GB", 108, "cuda -arch=sm_80", "A100 x 108"),
        (
            "sm_90",
            "NVIDIA H200",
            132,
            "cuda -arch=sm_80",
            "A100 x 108",
        ),  # another architecture than the one in this host
        ("sm_90", "NVIDIA H200", 132, "cuda -mcpu=h100", "H100 x 132"),  # the target says which
        ("gfx942", "AMD Instinct MI325X", 304, "rocm -mcpu=gfx942", "MI325X x 304"),
        ("gfx942", "a board nobody knows", 80, "rocm -mcpu=gfx942", "a board nobody knows x 80"),
    ],
)
def test_records_are_of_the_gpu_in_this_host(
    arch: str, name: str, units: int, target: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "as_device", lambda kind: SimpleNamespace(arch=arch, name=name, compute_units=units))
    assert database.machine_key(Target(target)) == key


def test_records_without_a_gpu_are_of_the_product_that_the_architecture_stands_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none(kind: str) -> Any:
        raise DeviceError("none here")

    monkeypatch.setattr(database, "as_device", none)
    assert database.machine_key(Target("cuda -arch=sm_90a")) == "H100 x 132"
