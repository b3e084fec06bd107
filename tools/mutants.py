"""Do the tests notice small errors? Plants drawn ones in a copy of the sources, runs the tests for which they change a value, and lists those that nothing noticed.

    make mutants                                        # 100, drawn by the date
    python -m tools.mutants --jobs 16 --seconds 1200     # 16 at once, of which those count that end in 20 minutes
    python -m tools.mutants --count 30 --seed 7 --areas tec/ir/arith tec/ir/passes --tests tests/unit/ir tests/unit/passes

The tests run once with a probe in the place of each drawn error (`tools.probes`), which costs no more than the tests themselves; what it found is kept in build/mutants.
It tells which tests come to the place, and for which of them the error changes a value there. Those run with the error planted, the quickest of each file in turn.
Where the error changes a value in no test that comes to its place, none can notice it: nothing runs. What runs at import, such as a table's rows or a default
value, is reached by all tests that come into the function, or into the file's functions. Tests that fail without an error planted are left out.
Exit code 1 where less than `--goal` of the mutants were noticed.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import hashlib
import json
import math
import os
import queue
import random
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.records import Maker, Record, append
from tools import probes
from tools.mutations import Mutation, mutations
from tools.test_seconds import spent

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
BUDGET_S = 60.0  # of tests for one mutant, by the processor seconds that they took alone


_LOST = re.compile(r"(?m)^ERROR: not found: (?:.*/)?(tests/[^\s\[]+::\w+)")
_BROKEN = re.compile(r"(?m)^(?:ERROR tests/|_+ ERROR collecting)")


# ---- the seconds of tests: a plugin of the recording run


class Recorder:
    """Appends the processor seconds of each test, its child processes' included, or null where it did not pass."""

    def __init__(self, out: Path) -> None:
        self.out, self.passed = out, False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        before, self.passed = spent(), False
        try:
            return (yield)
        finally:
            seconds = spent() - before if self.passed else None
            with open(self.out, "a", encoding="utf-8") as f:
                f.write(json.dumps([item.nodeid, seconds]) + "\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.passed = (report.passed if report.when == "call" else self.passed) and not report.failed


def pytest_configure(config: pytest.Config) -> None:
    asked = os.environ.get("TEC_MUTANTS_SECONDS")
    if asked:
        config.pluginmanager.register(Recorder(Path(asked)))


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


def _in_turn(tests: list[str], seconds: dict[str, float]) -> list[str]:
    """Tests in the order of their seconds, the first of each file before the second of any: tests of one file assert much the same."""
    of_file, order = defaultdict[str, int](int), []
    for t in sorted(tests, key=lambda t: (seconds[t], t)):
        file = t.partition("::")[0]
        order.append((of_file[file], seconds[t], t))
        of_file[file] += 1
    return [t for *_, t in sorted(order)]


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
    """Copies of the checkout, one for each error that is planted at a time."""

    def __init__(
        self, root: Path, mutants: list[Mutant], tests: list[str], work: Path, options: list[str], jobs: int = 1
    ) -> None:
        self.root, self.mutants, self.tests, self.work, self.options = root, mutants, tests, work, options
        self.copies = [work / f"checkout-{n}" for n in range(jobs)]
        self.copy = self.copies[0]
        for copy in self.copies:
            shutil.rmtree(copy, ignore_errors=True)
            copy.mkdir(parents=True)
            for name in COPIED:
                if (root / name).is_dir():
                    shutil.copytree(root / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
                elif (root / name).exists():
                    shutil.copy2(root / name, copy / name)
        self.seconds, self.seen = self._record()

    def _run(self, tests: list[str], seconds: float | None, copy: Path, **more: str) -> tuple[int | None, str]:
        """pytest's exit code in a copy, None where it took too long, and the end of what it said."""
        # Without bytecode: a mutant's file may have the time and the size of the one before it.
        folders = (copy, copy / "frontends", ROOT, *filter(None, [os.environ.get("PYTHONPATH")]))
        path = os.pathsep.join(str(folder) for folder in folders)
        env = {**os.environ, "PYTHONPATH": path, "TEC_CACHE_DIR": str(self.work / "cache"), **more}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *self.options, *tests]
        process = subprocess.Popen(command, cwd=copy, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)  # fmt: skip
        try:
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            return None, "it takes too long"
        return process.returncode, said

    def _record(self) -> tuple[dict[str, float], dict[str, dict[str, list[str]]]]:
        """The seconds of the tests that pass, and what the probes saw; from the folder where it is known for these mutants and sources."""
        h = hashlib.sha256(json.dumps([[str(m) for m in self.mutants], self.tests, self.options]).encode())
        for area in ["tec", "frontends", *self.tests]:
            base = self.copy / area
            for p in sorted(base.rglob("*.py")) if base.is_dir() else [base]:
                h.update(p.read_bytes() if p.is_file() else str(p).encode())
        kept = self.work / f"seen-{h.hexdigest()[:16]}"
        if not (kept / "whole").exists():
            shutil.rmtree(kept, ignore_errors=True)
            kept.mkdir()
            self._probe(kept)
        seconds = dict(json.loads(line) for line in (kept / "seconds").read_text("utf-8").splitlines())
        return {t: s for t, s in seconds.items() if s is not None}, probes.read(kept / "reached")

    def _probe(self, kept: Path) -> None:
        """Run all tests on sources with probes, and put the sources back."""
        by_file = defaultdict[str, dict[str, Mutation]](dict)
        for n, mutant in enumerate(self.mutants):
            by_file[mutant.file][str(n)] = mutant.mutation
        for beside in {
            p.relative_to(self.copy).as_posix() for f in by_file for p in (self.copy / f).parent.glob("*.py")
        }:
            by_file.setdefault(beside, {})  # whoever runs the files beside one of data alone
        before = {file: (self.copy / file).read_text("utf-8") for file in by_file}
        module = self.copy / probes.MODULE
        try:
            for file, text in before.items():
                (self.copy / file).write_text(probes.probed(text, by_file[file], file), "utf-8")
            module.write_text(probes.RUNTIME, "utf-8")
            # A file that cannot be collected here, for a package that is missing, is left out as a test is that fails.
            words = ["-p", "tools.mutants", "--continue-on-collection-errors", *self.tests]
            if len(self.copies) > 1:
                words += ["-n", str(len(self.copies)), "--dist", "worksteal"]
            where = {"TEC_MUTANTS_SECONDS": str(kept / "seconds"), "TEC_REACHED": str(kept / "reached")}
            code, said = self._run(words, None, self.copy, **where)
        finally:
            module.unlink(missing_ok=True)
            for file, text in before.items():
                (self.copy / file).write_text(text, "utf-8")
        if not (kept / "seconds").exists():
            raise SystemExit(f"the tests could not be run ({code}):\n{said[-3000:]}")
        (kept / "whole").touch()

    def reach(self, n: int) -> list[str]:
        """The tests that may notice a mutant, those first for which it changes a value; of each test file the quickest in turn, as many as the budget holds.

        What runs once for many tests, such as a fixture of a module or a function whose results are kept, is recorded for the first of them alone, while the
        assertion may be another's: what is left of the budget goes to tests that come into the function, then into the file's functions.
        """
        mutant, (reached, differs) = self.mutants[n], (self.seen["reached"], self.seen["differs"])
        m = mutant.mutation
        text = (self.copy / mutant.file).read_text("utf-8")
        function = probes.function_of(text, m.line)
        # What runs at import a probe sees in whichever test imports it first.
        at_import = function is None or probes.is_default(text, m)
        here = [] if at_import else reached.get(str(n), [])
        changed = [] if at_import else differs.get(str(n), [])
        if here and not changed and m.new != "pass" and probes.is_pure(m.new):
            return []  # the same value each time
        folder = os.path.dirname(mutant.file)
        of_function = reached.get(f"{mutant.file}:{function}", [])
        of_file = [t for key, tests in reached.items() if key.startswith(f"{mutant.file}:") for t in tests]
        beside = [
            t for key, tests in reached.items() if os.path.dirname(key.partition(":")[0]) == folder for t in tests
        ]
        readers = (
            [] if here or of_function else self._tests_that_import(folder.removeprefix("frontends/").replace("/", "."))
        )
        chosen = dict[str, None]()
        spent = 0.0
        for some in (changed, here, of_function, readers, of_file or beside):
            for t in _in_turn([t for t in dict.fromkeys(some) if t in self.seconds and t not in chosen], self.seconds):
                spent += self.seconds[t]
                if chosen and spent > BUDGET_S:
                    break
                chosen[t] = None
        return list(chosen)[:400]

    def _tests_that_import(self, package: str) -> list[str]:
        """Tests of files that import a package: they may read its tables and come into none of its functions."""
        files = dict.fromkeys(t.partition("::")[0] for t in self.seconds)
        reads = {
            f for f in files if re.search(rf"(from|import) {re.escape(package)}\b", (self.copy / f).read_text("utf-8"))
        }
        return [t for t in self.seconds if t.partition("::")[0] in reads]

    def plant(self, number: int, copy: Path, end: float = math.inf) -> Outcome | None:
        """What the tests say of an error in a copy; None where they had not ended by `end`, of the monotonic clock."""
        mutant = self.mutants[number]
        path = copy / mutant.file
        before = path.read_text("utf-8")
        after = mutant.mutation.apply(before)
        n = mutant.mutation.line - 1
        change = [before.split("\n")[n].strip(), after.split("\n")[n].strip()]
        tests = self.reach(number)
        if not tests:
            reached = str(number) in self.seen["reached"]
            how = "in each test its value is the same" if reached else "no test reaches it"
            return Outcome(mutant, False, 0, how, change)
        path.write_text(after, "utf-8")
        try:
            while True:
                long = (
                    10 * sum(self.seconds[t] for t in tests) + 60
                )  # ten times what they take, and what pytest takes to begin
                left_s = end - time.monotonic()
                code, said = self._run(["-x", *tests], min(long, left_s), copy, PYTHONDONTWRITEBYTECODE="1")
                if code is None and left_s < long:
                    return None
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

    def outcomes(self, end: float = math.inf) -> Iterator[Outcome]:
        """Of all mutants, each printed as it comes; at `end` those that have not ended are left out."""
        free = queue.SimpleQueue[Path]()
        for copy in self.copies:
            free.put(copy)

        def one(number: int) -> Outcome | None:
            if time.monotonic() > end:
                return None
            copy = free.get()
            try:
                return self.plant(number, copy, end)
            finally:
                free.put(copy)

        with ThreadPoolExecutor(len(self.copies)) as pool:
            for done in as_completed([pool.submit(one, n) for n in range(len(self.mutants))]):
                o = done.result()
                if o is None:
                    continue
                print(f"{'noticed ' if o.noticed else 'SURVIVED'} {o.mutant} ({o.tests} tests; {o.how})", flush=True)
                if not o.noticed:
                    print(f"    - {o.change[0]}\n    + {o.change[1]}", flush=True)
                yield o


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
    p.add_argument(
        "--jobs", type=int, default=1, help="how many mutants are planted at once, each in a copy of its own"
    )
    p.add_argument(
        "--seconds",
        type=float,
        default=math.inf,
        help="stop after so many; those that have not ended count as not drawn",
    )
    p.add_argument("--goal", type=float, default=0.9, help="the share that should be noticed")
    p.add_argument("--write", action="store_true", help="append the share and the survivors to benchmarks/results")
    p.add_argument("--work", type=Path, default=None, help="default: build/mutants of the checkout")
    args = p.parse_args(argv)
    work = (args.work or args.root / "build" / "mutants").resolve()
    begin = time.monotonic()
    drawn = draw(args.root.resolve(), args.areas, args.count, args.seed)
    lab = Laboratory(args.root.resolve(), drawn, args.tests, work, shlex.split(args.options), args.jobs)
    print(
        f"{args.count} mutants, --seed {args.seed}; {len(lab.seconds)} tests, {time.monotonic() - begin:.0f} s",
        flush=True,
    )
    outcomes = list(lab.outcomes(begin + args.seconds))
    (work / f"outcomes-{args.seed}.json").write_text(json.dumps([dataclasses.asdict(o) for o in outcomes], indent=1))
    noticed = sum(o.noticed for o in outcomes)
    if len(outcomes) < len(drawn):
        print(f"{len(drawn) - len(outcomes)} had not ended after {args.seconds:.0f} s")
    if args.write:
        append(rows(outcomes, args.seed, Maker("tests", f"python -m tools.mutants --seed {args.seed}", args.root)))
    print(f"{noticed} of {len(outcomes)} were noticed; survivors stand above as SURVIVED")
    return int(noticed < args.goal * len(outcomes))


if __name__ == "__main__":
    sys.exit(main())
