"""`tec tune`: searches, goes on, keeps what was found at Ctrl-C, and exchanges records."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import tec
from tec.choices.store.database import Database, Record, from_lines

ROOT = Path(__file__).resolve().parents[3]


def record(**more: Any) -> Record:
    return Record(**{"signature": "s", "target": "llvm", "machine": "m x 1", "version": "v", "name": "f", "choice": {"template": "t", "rows": 2},
                     "seconds": 1.0, "default_seconds": 2.0, "how": "measured", "trials": 8, **more})  # fmt: skip


def test_a_model_is_tuned_drawn_and_compiled(tec_cli: Any, tiny: Path, tmp_path: Path, monkeypatch: Any) -> None:
    db, page = tmp_path / "a.db", tmp_path / "page.html"
    done = tec_cli("tune", tiny, "--input-dim", "batch", 1, "-n", 2, "--db", db, "--report", page, "--json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert facts["how"] == "measured" and sum(f["trials"] for f in facts["found"]) <= 2 * len(facts["found"])
    assert all(f["seconds"] > 0 for f in facts["found"]) and facts["tuned_seconds"] <= facts["default_seconds"]
    text = page.read_text()
    assert text.count("<svg") == 2 and all(f["name"] in text for f in facts["found"])
    again = tec_cli("tune", tiny, "--input-dim", "batch", 1, "-n", 2, "--db", db)
    assert again.exit_code == 0 and "times as fast" in again.stdout and "times are measured" in again.stderr
    net = tec.compile(str(tiny), "llvm", {"batch": 1}, cache=False, tuned=db)
    chosen = {c["signature"]: c["choice"] for c in net.report.choices.values()}
    with Database(db) as kept:
        found = kept.records()
        layouts = [r for r in found if r.choice["template"] == "convolution layout"]  # the seconds that a layout takes
        assert len(layouts) > 1
        for r in (r for r in found if r not in layouts):
            assert chosen[r.signature] == r.choice


def test_ctrl_c_keeps_what_was_found_and_the_search_goes_on(tiny: Path, tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    command = [sys.executable, "-m", "tec.cli", "tune", str(tiny), "--input-dim", "batch", "1", "--db", str(db), "-n", "500"]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=ROOT)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (not db.exists() or count(db) < 6):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "times as fast" in out and "interrupted; what was found is kept" in err
    assert count(db) >= 6


def count(path: Path) -> int:
    import sqlite3

    db = sqlite3.connect(path)
    try:
        return int(db.execute("select count(*) from trials").fetchone()[0])
    except sqlite3.Error:
        return 0
    finally:
        db.close()


def test_records_go_out_and_in(tec_cli: Any, tmp_path: Path) -> None:
    one, two = tmp_path / "one.db", tmp_path / "two.db"
    with Database(one) as db:
        db.put(record())
        db.put(record(signature="other", seconds=0.5))
    out = tec_cli("tune", "--export", "--db", one)
    assert out.exit_code == 0
    (tmp_path / "r.jsonl").write_text(out.stdout)
    with Database(two) as db:
        db.put(record(seconds=0.1))
    done = tec_cli("tune", "--import", tmp_path / "r.jsonl", "--db", two)
    assert done.exit_code == 0 and done.stdout.startswith("1 of 2 records taken")
    got = list(from_lines(tec_cli("tune", "--export", "--db", two).stdout.splitlines()))
    assert [(r.signature, r.seconds) for r in got] == [("other", 0.5), ("s", 0.1)]


def test_mistakes_are_one_line(tec_cli: Any, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("{\n")
    for args, says in (
        ([], "no MODEL to tune"),
        ([tiny, "--export"], "not about a model"),
        (["--export", "--db", tmp_path / "none.db"], "no such file of records"),
        (["--import", tmp_path / "bad.jsonl", "--db", tmp_path / "a.db"], "bad.jsonl:1: no tuning record"),
        (["--import", tmp_path / "none", "--db", tmp_path / "a.db"], "No such file"),
        ([tiny, "--target", "llvm -mcpu=neoverse-v1", "--input-dim", "batch", 1, "--db", tmp_path / "a.db"], "is not this host"),
        ([tiny, "--report", tmp_path / "no" / "r.html"], "no folder"),
        ([tiny, "--input-dim", "batch", 1], "TEC_TUNE_DB is off"),
    ):  # fmt: skip
        done = tec_cli("tune", *args)
        assert done.exit_code in (2, 4, 5) and says in done.stderr and done.stderr.strip().count("\n") == 0, done.output
