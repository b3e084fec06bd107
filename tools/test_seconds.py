"""Processor seconds of each test, its child processes' included, whatever else the machine does.

    TEC_SECONDS=build/seconds.jsonl python -m pytest -p tools.test_seconds -m "not slow and not gpu"
    python -m tools.test_seconds build/seconds.jsonl [TREE]     # the 50 slowest into benchmarks/results; TREE: the checkout that ran

A row of the file is {"test", "seconds"}; what lies between tests (fixtures of a module that end, collection) is "(collection)" and "(between)". Run it without xdist.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.records import Maker, append

ROOT = Path(__file__).resolve().parents[1]
_TICK = os.sysconf("SC_CLK_TCK")


def _of_living(pid: int) -> float:
    """Processor seconds of a process's descendants that have not ended, and of those that they waited for."""
    total = 0.0
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:  # it ended meanwhile
            continue
        for child in children:
            try:
                fields = Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            total += sum(int(v) for v in fields[11:15]) / _TICK + _of_living(int(child))
    return total


def spent() -> float:
    """Processor seconds of this process and all that it started."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system + _of_living(os.getpid())


class Recorder:
    def __init__(self, path: str) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self.file = open(path, "w", encoding="utf-8")
        self.last = 0.0

    def write(self, test: str, until: float) -> None:
        self.file.write(json.dumps({"test": test, "seconds": round(until - self.last, 4)}) + "\n")
        self.file.flush()
        self.last = until

    def pytest_collection_finish(self) -> None:
        self.write("(collection)", spent())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.write("(between)", spent())
        result: Any = yield
        self.write(item.nodeid, spent())
        return result


def pytest_configure(config: pytest.Config) -> None:
    path = os.environ.get("TEC_SECONDS")
    if path:
        config.pluginmanager.register(Recorder(path))


def slowest(path: str, n: int = 50) -> tuple[float, list[tuple[str, float]]]:
    """(seconds of the whole run, the `n` slowest tests)."""
    rows = [json.loads(line) for line in Path(path).read_text("utf-8").splitlines()]
    tests = sorted(((r["test"], r["seconds"]) for r in rows if r["test"][0] != "("), key=lambda t: -t[1])
    return sum(r["seconds"] for r in rows), tests[:n]


def main() -> None:
    """Append the slowest tests of a run, and its sum, to benchmarks/results."""
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    total, tests = slowest(sys.argv[1])
    make = Maker("tests", "python -m pytest -p tools.test_seconds", Path(sys.argv[2]) if len(sys.argv) == 3 else ROOT)
    rows = [make.clocked("make test", "processor time", round(total, 1), "s", band=None)]
    rows += [make.clocked(name, "processor time", round(s, 2), "s", band=None) for name, s in tests]
    append(rows)


if __name__ == "__main__":
    main()
