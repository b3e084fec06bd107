"""Real measurements in worker processes: what dies, hangs, takes too much or computes something else is a failed trial, and the next one goes on."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.choices.store.database import machine_text
from tec.schedule import to_loops
from tec.target import Target
from tec.tuning import measure as measuring

N = 4096


def program(body: Any = None, parallel: bool = False, rows: int = N, name: str = "f") -> bytes:
    x = te.placeholder((rows,), name="x")
    y = te.compute((rows,), lambda i: (body or (lambda e: e * 2.0))(x[i]), name="y")
    s = tec.create_schedule(y.op)
    outer, inner = s[y].split(y.op.axis[0], 64)
    s[y].vectorize(inner)
    if parallel:
        s[y].parallel(outer)
    return pickle.dumps(to_loops(s, [x, y], name=name))


def job(candidate: bytes, **more: Any) -> dict[str, Any]:
    default = program()
    return {
        "target": "llvm", "machine": machine_text(Target("llvm").machine), "device": "cpu", "is_timed": True, "kind": "trial", "candidate": candidate,
        "rival": default, "default": default, "seed": 0, "build_seconds": 60.0, "run_seconds": 30.0, "memory_bytes": 8 << 30, **more,
    }  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def ended() -> Iterator[None]:
    """Tests share a worker as the trials of a search do: a start is a second of the processor's time."""
    yield
    measuring.end_children()


def test_a_candidate_is_timed_beside_its_rival() -> None:
    first = measuring.measure(job(program(parallel=True)))
    child = measuring._LOCAL.child.process.pid
    again = measuring.measure(job(program(), kind="duel"))
    assert set(first) == set(again) == {"ratio", "seconds", "rival_seconds"}
    assert first["seconds"] > 0 and again["ratio"] == pytest.approx(again["seconds"] / again["rival_seconds"])
    assert measuring._LOCAL.child.process.pid == child  # warm


def test_another_result_is_a_failed_trial() -> None:
    outcome = measuring.measure(job(program(lambda e: e * 2.001)))
    assert outcome["error"].startswith("wrong result: results differ")


def test_a_hang_is_ended_and_the_next_goes_on() -> None:
    measuring.end_children()  # a worker that starts is slow
    start = time.monotonic()
    slow = program(lambda e: e * 2.0, rows=N)
    outcome = measuring.measure(job(slow, build_seconds=0.01))
    assert outcome == {"error": "building and one run took too long"} and time.monotonic() - start < 20
    assert "ratio" in measuring.measure(job(program()))


def test_a_worker_that_dies_is_a_failed_trial() -> None:
    measuring.measure(job(program()))
    measuring._LOCAL.child.process.kill()
    assert measuring.measure(job(program())) == {"error": "the worker died of SIGKILL"}
    assert "ratio" in measuring.measure(job(program()))


def test_memory_has_a_limit() -> None:
    huge = program(rows=1 << 28)  # a gigabyte an array
    outcome = measuring.measure(job(huge, memory_bytes=600 << 20))
    assert "memory" in outcome["error"].lower(), outcome
    assert "ratio" in measuring.measure(job(program(), memory_bytes=600 << 20))


def test_addresses_that_are_reserved_are_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's driver reserves far more than any limit when it starts."""
    reserve = "import mmap, sys\nkept = mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=0)\n"
    started = subprocess.Popen

    def popen(args: list[str], **more: Any) -> Any:
        return started([sys.executable, "-c", reserve + "from tec.tuning import worker; worker.main()"], **more)

    measuring.end_children()
    monkeypatch.setattr(subprocess, "Popen", popen)
    assert "ratio" in measuring.measure(job(program(), memory_bytes=600 << 20))
    measuring.end_children()


def test_what_cannot_be_built_is_a_failed_trial() -> None:
    assert "error" in measuring.measure(job(pickle.dumps("no function")))
    assert "ratio" in measuring.measure(job(program()))


def test_times_of_another_machine_are_refused() -> None:
    outcome = measuring.measure(job(program(), machine="cray-1 x 1"))
    assert "WrongMachine" in outcome["error"] and "cray-1" in outcome["error"]


def test_workers_end_with_their_search() -> None:
    code = "from tests.unit.tuning.test_measure import job, program; from tec.tuning import measure as m; import os, signal; m.measure(job(program())); print(m._LOCAL.child.process.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[3])
    worker = Path(f"/proc/{int(done.stdout)}")
    deadline = time.monotonic() + 10
    while worker.exists() and "Z" not in (worker / "stat").read_text().split()[2] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not worker.exists() or "Z" in (worker / "stat").read_text().split()[2]


@tec.template
def product(c: Any, n: int) -> Any:
    a, b = te.placeholder((n, n), name="a"), te.placeholder((n, n), name="b")
    k = te.reduce_axis((0, n), "k")
    y = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="y")
    s = tec.create_schedule(y.op)
    i, j = s[y].op.axis
    jo, ji = s[y].split(j, c.tile("columns", n, max=64))
    order = c.choose("order", ["columns last", "sum last"])
    s[y].reorder(*((i, jo, k, ji) if order == "columns last" else (i, jo, ji, k)))
    if order == "columns last":
        s[y].vectorize(ji)
    return s, [a, b, y]


def test_a_template_is_tuned_and_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEC_TUNE_DB", str(tmp_path / "a.db"))
    report = tec.tune(product, (128,), target="llvm", trials=8)
    (found,) = report.found
    assert found.trials == 8 and found.failed == 0, found.errors
    f = tec.build(product, (128,), target="llvm")
    x = np.random.default_rng(0).standard_normal((128, 128), np.float32)
    out = tec.nd.array(np.zeros_like(x))
    f(tec.nd.array(x), tec.nd.array(x), out)
    np.testing.assert_allclose(out.numpy(), x @ x, rtol=1e-3, atol=1e-3)
    assert found.gain == 1.0 or "columns" in found.choice


def test_amd_without_hardware_is_ranked_by_the_model(tmp_path: Path) -> None:
    @tec.template
    def doubled(c: Any, n: int) -> Any:
        x = te.placeholder((n,), name="x")
        y = te.compute((n,), lambda i: x[i] * 2.0, name="y")
        s = tec.create_schedule(y.op)
        outer, inner = s[y].split(y.op.axis[0], c.choose("threads", [1, 64, 256]))
        s[y].bind(outer, te.thread_axis("blockIdx.x"))
        s[y].bind(inner, te.thread_axis("threadIdx.x"))
        return s, [x, y]

    try:
        tec.device("rocm")
    except tec.DeviceError:
        pass
    else:
        pytest.skip("an AMD GPU is here")
    report = tec.tune(doubled, (1 << 16,), target="rocm -mcpu=gfx942", trials=4, db=tmp_path / "a.db")
    assert report.how == "model-ranked" and "model-ranked" in str(report) and "model-ranked" in report.to_html()
    assert report.found[0].choice["threads"] != 1 and report.found[0].gain > 1.1, report.found[0].errors
