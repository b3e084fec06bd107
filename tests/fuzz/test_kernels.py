"""Random te programs with random schedules: interpreter, CPU and emulated AMD GPUs against te.evaluate.

Seeds run in worker processes: LLVM may end a process, and then the seed that did it is named and the rest go on.
`TEC_FUZZ_SEEDS=n` sets how many run (20 in the normal tests, 2,000 under `make fuzz`), `TEC_FUZZ_FIRST` the first, and
`TEC_FUZZ_JOBS` the workers beside each other. One seed alone: `python -m tests.fuzz.kernel_worker SEED SEED+1`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

from tests import seeds

ROOT = Path(__file__).resolve().parents[2]
FIRST = int(os.environ.get("TEC_FUZZ_FIRST", seeds.first()))
JOBS = int(os.environ.get("TEC_FUZZ_JOBS", "1"))
WORKER = (sys.executable, "-m", "tests.fuzz.kernel_worker")
SECONDS = 120.0  # for one seed: the slowest takes 10 on a busy machine


def fuzz(first: int, last: int, worker: Sequence[str] = WORKER, seconds: float = SECONDS, step: int = 1) -> list[Any]:
    """The reports of the seeds; a seed that ends its process or takes too long counts as failed, and the next one goes on."""
    reports: list[Any] = []
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    while first < last:
        command = [*worker, str(first), str(last), str(step)]
        process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        lines: Queue[str | None] = Queue()
        errors: list[str] = []
        readers = [
            threading.Thread(target=_feed, args=(process.stdout, lines.put, lambda lines=lines: lines.put(None))),
            threading.Thread(target=_feed, args=(process.stderr, errors.append, lambda: None)),
        ]
        for reader in readers:
            reader.start()
        seed, why = first, ""
        while True:
            try:
                line = lines.get(timeout=seconds)
            except Empty:
                why = f"no answer within {seconds:.0f} s"
                break
            if line is None:
                break
            report = json.loads(line)
            if "start" in report:
                seed = report["start"]
            else:
                reports.append(report)
                seed += step
        process.kill()
        code = process.wait()
        for reader in readers:
            reader.join()
        if seed < last:
            why = why or f"the process ended with {code}: {''.join(errors)[-1500:]}"
            failed = [{"where": "worker", "error": why, "trace": ""}]
            reports.append({"seed": seed, "kind": "?", "refused": [], "failed": failed})
        first = seed + step
    return reports


def _feed(stream: Any, put: Any, end: Any) -> None:
    for line in stream:
        put(line)
    end()


def check(first: int, seeds: int, worker: Sequence[str] = WORKER) -> None:
    results: list[list[Any]] = [[] for _ in range(JOBS)]

    def work(k: int) -> None:
        results[k] = fuzz(first + k, first + seeds, worker, step=JOBS)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(JOBS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    reports = [r for part in results for r in part]
    assert len(reports) == seeds
    told = [
        f"seed {r['seed']} ({r['kind']}) on {f['where']}:\n{f['error']}\n{f['trace']}"
        for r in reports
        for f in r["failed"]
    ]
    assert not told, f"{len(told)} failures\n" + "\n\n".join(told[:10])
    # A schedule may be refused (by the compiler, with a line of the user's); too many would mean that little is tested.
    refused = sum(bool(r["refused"]) for r in reports)
    assert refused <= 0.5 * seeds, f"{refused} of {seeds} seeds had a schedule refused"


def test_random_kernels() -> None:
    check(FIRST, int(os.environ.get("TEC_FUZZ_SEEDS", "6")))


@pytest.mark.slow
def test_many_random_kernels() -> None:
    check(FIRST + 1000, int(os.environ.get("TEC_FUZZ_SEEDS", "2000")))


_BREAKS = """
import json, os, sys, time
for seed in range(int(sys.argv[1]), int(sys.argv[2])):
    print(json.dumps({"start": seed}), flush=True)
    if seed == 2:
        os.abort()
    if seed == 4:
        time.sleep(60)
    print(json.dumps({"seed": seed, "kind": "", "refused": [], "failed": []}), flush=True)
"""


def test_the_seeds_after_a_crash_go_on() -> None:
    reports = fuzz(0, 6, (sys.executable, "-c", _BREAKS), seconds=2)
    assert [r["seed"] for r in reports] == list(range(6))
    failed = {r["seed"]: r["failed"][0]["error"] for r in reports if r["failed"]}
    assert sorted(failed) == [2, 4]
    assert "-6" in failed[2] and "2 s" in failed[4]


def test_a_wrong_result_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from . import kernel_worker

    def off_by_one(p: Any) -> list[Any]:
        want = reference(p)
        want[0].reshape(-1)[-1] += 1
        return want

    reference = kernel_worker.reference
    monkeypatch.setattr(kernel_worker, "reference", off_by_one)
    failed = kernel_worker.check(0)["failed"]
    # Every path reports it; a CPU's loops go through the interpreter only where they are few.
    paths = 3 + (kernel_worker.program(0).work < kernel_worker.SCALAR_STEPS)
    assert len(failed) == paths and all("Mismatch" in f["error"] for f in failed)
