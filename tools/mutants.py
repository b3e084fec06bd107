"""Do the tests notice small errors? Plants drawn ones in a copy of the sources, runs the tests that reach the line, and lists those that nothing noticed.

    make mutants                                        # 100, drawn by the date
    python -m tools.mutants --count 30 --seed 7 --areas tec/ir/arith tec/ir/passes --tests tests/unit/ir tests/unit/passes

Which tests reach which lines is recorded once by coverage (a context a test) and kept in build/mutants; it is recorded again when a source has changed. Tests that
fail without an error planted are left out. What runs at import, such as a table's rows, is reached by all tests that run the file's functions (of a file of data, its folder's).
Exit code 1 where less than `--goal` of the mutants were noticed.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import hashlib
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.records import Maker, Record, append
from tools.mutations import Mutation, mutations

ROOT = Path(__file__).resolve().parents[1]
AREAS = (
    "tec/choices",
    "tec/ir/passes",
    "tec/ir/arith",
    "tec/runtime",
    "tec/emulator",
    "tec/graph",
    "frontends/tec_onnx",
)
COPIED = (
    "tec",
    "frontends",
    "tests",
    "tools",
    "benchmarks",
    "pyproject.toml",
    "docs",
    "tutorials",
    "README.md",
    "Makefile",
)
BUDGET_S = 60.0  # of tests for one mutant, by the seconds that they took alone; the quickest go first


_LOST = re.compile(r"(?m)^ERROR: not found: (?:.*/)?(tests/[^\s\[]+::\w+)")
_BROKEN = re.compile(r"(?m)^(?:ERROR tests/|_+ ERROR collecting)")


# ---- the map of tests and lines: a plugin of the recording run


class Recorder:
    """Switches coverage's context with the tests, and keeps the seconds of those that pass."""

    def __init__(self, out: Path, areas: list[str]) -> None:
        from coverage import Coverage

        self.out, self.seconds = out, dict[str, float]()
        self.coverage = Coverage(data_file=None, include=[f"{os.path.abspath(a)}/*" for a in areas], config_file=False)
        self.coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self.coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self.coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.seconds[report.nodeid] = report.duration
        elif report.failed:
            self.seconds.pop(report.nodeid, None)

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        data, lines = self.coverage.get_data(), {}
        for file in data.measured_files():
            reached = {n: [c for c in tests if c] for n, tests in data.contexts_by_lineno(file).items()}
            lines[os.path.relpath(file)] = {str(n): tests for n, tests in reached.items() if tests}
        self.out.write_text(json.dumps({"seconds": self.seconds, "lines": lines}))


def pytest_configure(config: pytest.Config) -> None:
    asked = os.environ.get("TEC_MUTANTS_MAP")
    if asked:
        config.pluginmanager.register(Recorder(Path(asked), os.environ["TEC_MUTANTS_AREAS"].split(os.pathsep)))


# ---- drawing and running


@dataclass(frozen=True)
class Mutant:
    file: str
    mutation: Mutation

    def __str__(self) -> str:
        return f"{self.file}:{self.mutation.line}: {self.mutation.what}"


@dataclass
class Outcome:
    mutant: Mutant
    noticed: bool
    tests: int  # that were run for it
    how: str
    change: list[str]  # the line before and after


def draw(root: Path, areas: list[str], count: int, seed: int) -> list[Mutant]:
    """Mutants of the areas in turn; in an area each line is as likely as any other, and each kind of error as any other of its file."""
    rng, drawn = random.Random(seed), dict[tuple[str, Mutation], Mutant]()
    files = {a: sorted(p for p in (root / a).rglob("*.py") if p.name != "__init__.py") for a in areas}
    files = {a: found for a, found in files.items() if found}
    if not files:
        raise SystemExit(f"no sources in {', '.join(areas)} under {root}")
    for attempt in range(50 * count):
        area = sorted(files)[attempt % len(files)]
        path = rng.choices(files[area], [p.stat().st_size + 1 for p in files[area]])[0]
        kinds = defaultdict(list)
        for m in mutations(path.read_text("utf-8")):
            kinds[m.what].append(m)
        if kinds:
            m = rng.choice(kinds[rng.choice(sorted(kinds))])
            name = path.relative_to(root).as_posix()
            drawn[name, m] = Mutant(name, m)
        if len(drawn) == count:
            break
    return list(drawn.values())


class Laboratory:
    """A copy of the checkout in which errors are planted, one after another."""

    def __init__(self, root: Path, areas: list[str], tests: list[str], work: Path, options: list[str]) -> None:
        self.root, self.areas, self.tests, self.work, self.options = root, areas, tests, work, options
        self.copy = work / "checkout"
        shutil.rmtree(self.copy, ignore_errors=True)
        self.copy.mkdir(parents=True)
        for name in COPIED:
            if (root / name).is_dir():
                shutil.copytree(root / name, self.copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif (root / name).exists():
                shutil.copy2(root / name, self.copy / name)
        self.map = self._map()

    def _run(self, tests: list[str], seconds: float | None, **more: str) -> tuple[int | None, str]:
        """pytest's exit code, None where it took too long, and the end of what it said."""
        # Without bytecode: a mutant's file may have the time and the size of the one before it.
        folders = (self.copy, self.copy / "frontends", ROOT, *filter(None, [os.environ.get("PYTHONPATH")]))
        path = os.pathsep.join(str(folder) for folder in folders)
        env = {**os.environ, "PYTHONPATH": path, "TEC_CACHE_DIR": str(self.work / "cache"), **more}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            *self.options,
            *tests,
        ]
        process = subprocess.Popen(command, cwd=self.copy, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)  # fmt: skip
        try:
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            return None, "it takes too long"
        return process.returncode, said

    def _map(self) -> dict[str, Any]:
        """{"seconds": {test: seconds}, "lines": {file: {line: [test]}}}, from the folder where it is known for these sources."""
        h = hashlib.sha256(json.dumps([self.areas, self.tests, self.options]).encode())
        for area in [*self.areas, *self.tests]:
            base = self.copy / area
            for p in sorted(base.rglob("*.py")) if base.is_dir() else [base]:
                h.update(p.read_bytes())
        kept = self.work / f"map-{h.hexdigest()[:16]}.json"
        if not kept.exists():
            made = self.work / "map.json"
            made.unlink(missing_ok=True)
            areas = os.pathsep.join(str(self.copy / a) for a in self.areas)
            code, said = self._run(
                ["-p", "tools.mutants", *self.tests], None, TEC_MUTANTS_MAP=str(made), TEC_MUTANTS_AREAS=areas
            )
            if not made.exists():
                raise SystemExit(f"the tests could not be run ({code}):\n{said[-3000:]}")
            made.rename(kept)
        found: dict[str, Any] = json.loads(kept.read_text())
        return found

    def reach(self, mutant: Mutant) -> list[str]:
        """The tests that reach a mutant's line, the quickest first, as many as the budget holds; with what is left of it, those that reach its file.

        What runs once for many tests, such as a fixture of a module or a function whose results are kept, is recorded for the first of them alone, while the
        assertion may be another's.
        """
        lines = self.map["lines"].get(mutant.file, {})
        m = mutant.mutation
        tests = {t for n in range(m.line, m.end_line + 1) for t in lines.get(str(n), ())} or set(
            lines.get(str(m.statement), ())
        )
        if not tests:  # what runs at import
            tests = {t for found in lines.values() for t in found}
        if not tests:  # a file of data alone: who runs the files beside it
            folder = os.path.dirname(mutant.file)
            beside = (v for f, v in self.map["lines"].items() if os.path.dirname(f) == folder)
            tests = {t for found in beside for reached in found.values() for t in reached}
        seconds, spent, chosen = self.map["seconds"], 0.0, []
        near = {t for found in lines.values() for t in found} - tests
        for some in (tests, near):
            for t in sorted((t for t in some if t in seconds), key=lambda t: (seconds[t], t)):
                spent += seconds[t]
                if chosen and spent > BUDGET_S:
                    break
                chosen.append(t)
        return chosen[:400]

    def plant(self, mutant: Mutant) -> Outcome:
        path = self.copy / mutant.file
        before = path.read_text("utf-8")
        after = mutant.mutation.apply(before)
        n = mutant.mutation.line - 1
        change = [before.split("\n")[n].strip(), after.split("\n")[n].strip()]
        tests = self.reach(mutant)
        if not tests:
            return Outcome(mutant, False, 0, "no test reaches it", change)
        path.write_text(after, "utf-8")
        try:
            while True:
                code, said = self._run(["-x", *tests], 3 * BUDGET_S + 60, PYTHONDONTWRITEBYTECODE="1")
                # A name that is not there, where its file could be read, is a test that depends on what else runs: it says nothing of the error.
                lost = set(_LOST.findall(said)) if code == 4 and not _BROKEN.search(said) else set()
                left = [t for t in tests if t.partition("[")[0] not in lost]
                if left == tests:
                    break
                tests = left
                if not tests:
                    return Outcome(mutant, False, 0, "no test reaches it by itself", change)
        finally:
            path.write_text(before, "utf-8")
        how = next((s for s in said.splitlines() if s.startswith(("FAILED", "ERROR"))), "") if code else "all pass"
        return Outcome(mutant, code != 0, len(tests), (how or said.strip()[-120:])[:200], change)


def rows(outcomes: list[Outcome], seed: int, make: Maker) -> list[Record]:
    """The share that was noticed and a row for each survivor, for benchmarks/results."""
    noticed = sum(o.noticed for o in outcomes)
    share, note = 100.0 * noticed / len(outcomes), f"{noticed} of {len(outcomes)} drawn by seed {seed}"
    out = [make.counted("planted errors", "noticed", share, "%", better="more", band=None, note=note)]
    for o in (o for o in outcomes if not o.noticed):
        change = " becomes ".join(o.change)
        out.append(make.counted(str(o.mutant), "unnoticed", 1, "errors", band=None, note=f"{o.how}: {change}"))
    return out


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--root", type=Path, default=ROOT, help="the checkout")
    p.add_argument("--areas", nargs="+", default=list(AREAS), help="folders in which errors are planted")
    p.add_argument("--tests", nargs="+", default=["tests"], help="the tests that may notice them")
    p.add_argument("--options", default="-m 'not slow and not gpu'", help="more words for pytest")
    p.add_argument("--count", type=int, default=100)
    p.add_argument(
        "--seed", type=int, default=int(os.environ.get("TEC_SEED") or datetime.date.today().strftime("%Y%m%d"))
    )
    p.add_argument("--goal", type=float, default=0.9, help="the share that should be noticed")
    p.add_argument("--write", action="store_true", help="append the share and the survivors to benchmarks/results")
    p.add_argument("--work", type=Path, default=None, help="default: build/mutants of the checkout")
    args = p.parse_args(argv)
    work = (args.work or args.root / "build" / "mutants").resolve()
    begin = time.monotonic()
    lab = Laboratory(args.root.resolve(), args.areas, args.tests, work, shlex.split(args.options))
    print(
        f"{args.count} mutants, --seed {args.seed}; {len(lab.map['seconds'])} tests, {time.monotonic() - begin:.0f} s",
        flush=True,
    )
    outcomes = []
    for mutant in draw(args.root.resolve(), args.areas, args.count, args.seed):
        o = lab.plant(mutant)
        outcomes.append(o)
        print(f"{'noticed ' if o.noticed else 'SURVIVED'} {mutant} ({o.tests} tests; {o.how})", flush=True)
        if not o.noticed:
            print(f"    - {o.change[0]}\n    + {o.change[1]}", flush=True)
    (work / f"outcomes-{args.seed}.json").write_text(json.dumps([dataclasses.asdict(o) for o in outcomes], indent=1))
    noticed = sum(o.noticed for o in outcomes)
    if args.write:
        append(rows(outcomes, args.seed, Maker("mutants", f"python -m tools.mutants --seed {args.seed}", args.root)))
    print(f"{noticed} of {len(outcomes)} were noticed; survivors stand above as SURVIVED")
    return int(noticed < args.goal * len(outcomes))


if __name__ == "__main__":
    sys.exit(main())
