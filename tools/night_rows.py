"""Which rows of parametrized tests can wait for the night: those whose lines of tec other tests reach too, while half of each test's rows stay.

    TEC_LINES=build/lines python -m pytest -n 2 -p tools.night_rows -m "not slow and not gpu"      # CPython 3.12 or later
    python -m tools.night_rows build/lines            # writes tests/night_rows.txt

The first command notes the lines of tec and its frontends that each test reaches, and its processor seconds. The second goes through the rows from the longest
on, and leaves out a row where each of its lines is reached by REACHED tests that stay, each target and type that its name says by another row of its test, and
at least half of the test's rows stay. Tests whose rows start processes are left alone, since lines that are reached there are not seen, and so are rows of less
than SHORT_S and the folders of DATA, whose rows differ in the data that the same lines read.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.thinned import NIGHT_ROWS
from tools.test_seconds import spent

ROOT = Path(__file__).resolve().parents[1]
SHORT_S = 0.1  # four of five tests take less, and all of them together a tenth of the time
REACHED = 2  # with 3 it is 352 s of 2,871 that wait in place of 405, and with 5 231
# Opcodes, instructions and operators stand in tables: a row each, which the same lines read.
DATA = (
    "tests/conformance/",
    "tests/docs/",
    "tests/errors/",
    "tests/fuzz/",
    "tests/unit/emulator/test_rows",
    "tests/unit/emulator/test_matrix",
    "tests/unit/emulator/test_planted",
)
# What a row's name may say that lines do not: LLVM selects other instructions for another chip or type, and NumPy computes otherwise.
_NAMED = re.compile(r"gfx\d\w*|sm_\w+|llvm|cuda|rocm|complex\d+|(?:bf|f|mxf)(?:loat|p)\d\w*|u?int\d+|bool|Format[.]\w+")
_OF_TEC = (f"{ROOT}/tec/", f"{ROOT}/frontends/")
_LLVM = "jobs.main()"  # in the command of a process that runs no line of tec but LLVM's jobs
_TOOL = 4  # one of the two numbers that sys.monitoring leaves to whoever wants them


Line = tuple[str, int]  # of a file


class Row(NamedTuple):
    name: str  # of a test, its row's behind it in brackets
    seconds: float
    started: int  # processes
    lines: np.ndarray  # their numbers, in order

    @property
    def test(self) -> str:
        return self.name.partition("[")[0]

    @property
    def words(self) -> set[str]:
        return set(_NAMED.findall(self.name.partition("[")[2]))


# ---- noting: a plugin of pytest


class Recorder:
    """Appends a line a test: its seconds, the processes that it started, and what its lines differ in from those of the test before it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.out = open(folder / f"{os.getpid()}.jsonl", "w", encoding="utf-8")
        self.reached: set[Line] = set()
        self.numbers: dict[Line, int] = {}  # a new line is told before the first test that reaches it
        self.before: set[int] = set()
        self.started, self.owner = 0, os.getpid()
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
        self.monitoring, self.is_tec = monitoring, dict[str, bool]()
        monitoring.use_tool_id(_TOOL, "lines by test")
        monitoring.register_callback(_TOOL, monitoring.events.LINE, self._line)
        sys.addaudithook(self._audit)

    def _line(self, code: CodeType, number: int) -> Any:
        file = code.co_filename
        if file not in self.is_tec:
            self.is_tec[file] = file.startswith(_OF_TEC)
        if self.is_tec[file]:
            self.reached.add((file, number))
        return self.monitoring.DISABLE  # once a test

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event in ("os.fork", "os.posix_spawn") or (event == "subprocess.Popen" and _LLVM not in str(args[1])):
            self.started += 1

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        before, self.reached, self.started = spent(), set(), 0
        self.monitoring.set_events(_TOOL, self.monitoring.events.LINE)
        self.monitoring.restart_events()
        try:
            return (yield)
        finally:
            self.monitoring.set_events(_TOOL, 0)
            if os.getpid() == self.owner:
                self._note(item.nodeid, round(spent() - before, 3))

    def _note(self, test: str, seconds: float) -> None:
        lines = set()
        for file, number in list(self.reached):
            if (file, number) not in self.numbers:
                self.numbers[file, number] = len(self.numbers)
                self.out.write(json.dumps([file.removeprefix(f"{ROOT}/"), number]) + "\n")
            lines.add(self.numbers[file, number])
        self.out.write(json.dumps([test, seconds, self.started, sorted(lines ^ self.before)]) + "\n")
        self.out.flush()
        self.before = lines


def pytest_configure(config: pytest.Config) -> None:
    folder = os.environ.get("TEC_LINES")
    if folder and not hasattr(config, "workerinput") and getattr(config.option, "numprocesses", None):
        return  # the workers note
    if folder:
        config.pluginmanager.register(Recorder(Path(folder)))


# ---- choosing


def noted(folder: Path) -> list[Row]:
    """What the processes of a run noted."""
    numbers: dict[Line, int] = {}  # of all processes
    rows = []
    for file in sorted(folder.glob("*.jsonl")):
        known: list[int] = []
        lines: set[int] = set()
        for text in file.read_text("utf-8").splitlines():
            match json.loads(text):
                case [name, number]:
                    known.append(numbers.setdefault((name, number), len(numbers)))
                case [test, seconds, started, differ]:
                    lines.symmetric_difference_update([known[k] for k in differ])
                    rows.append(Row(test, seconds, started, np.sort(np.fromiter(lines, np.int32, len(lines)))))
    return rows


def waiting(rows: list[Row]) -> list[Row]:
    """The rows of all tests that can wait."""
    of_test = defaultdict[str, list[Row]](list)
    for row in rows:
        of_test[row.test].append(row)
    reached = np.zeros(max((int(r.lines[-1]) + 1 for r in rows if len(r.lines)), default=0), np.int32)
    for row in rows:
        reached[row.lines] += 1
    named = {test: Counter(w for r in some for w in r.words) for test, some in of_test.items()}
    stay = Counter({test: len(some) for test, some in of_test.items()})
    found = []
    for row in sorted(rows, key=lambda r: (-r.seconds, r.name)):
        some = of_test[row.test]
        if row.seconds < SHORT_S or row.name.startswith(DATA) or any(r.started for r in some):
            continue
        others = all(named[row.test][w] > 1 for w in row.words) and bool((reached[row.lines] > REACHED).all())
        if others and stay[row.test] > (len(some) + 1) // 2:
            found.append(row)
            reached[row.lines] -= 1
            named[row.test].subtract(row.words)
            stay[row.test] -= 1
    return found


def text_of(rows: Iterable[Row]) -> str:
    """The file: a line for each test, and one for each of its rows behind it."""
    of_test = defaultdict[str, list[str]](list)
    for row in rows:
        of_test[row.test].append(f"    {row.name.partition('[')[2].removesuffix(']')}\n")
    return "".join(f"{test}\n{''.join(sorted(names))}" for test, names in sorted(of_test.items()))


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    rows = noted(Path(sys.argv[1]))
    found = waiting(rows)
    NIGHT_ROWS.write_text(text_of(found), "utf-8")
    seconds, of = (sum(r.seconds for r in some) for some in (found, rows))
    print(f"{len(found)} rows of {len({r.test for r in found})} tests wait, {seconds:.0f} s of {of:.0f}")


if __name__ == "__main__":
    main()
