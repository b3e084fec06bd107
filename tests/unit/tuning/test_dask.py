"""Workers of a Dask cluster: separate processes, one killed in the middle, one joining late. Nothing is lost, nothing is kept twice."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tec.choices.store.database import Database
from tec.target import Target
from tec.tuning import make_tuner

from . import fake
from .test_search import records, scale, tuned


@pytest.fixture(scope="module")
def distributed() -> Any:
    """Imported by the worker that runs these tests: it takes 2 s of processor time, which each worker would pay at collection."""
    return pytest.importorskip("distributed")


def test_a_cluster_finds_what_one_process_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, distributed: Any
) -> None:
    tuned(tmp_path / "local.db", trials=28)
    log = tmp_path / "log"
    monkeypatch.setenv("TEC_FAKE_LOG", str(log))
    monkeypatch.setenv("TEC_FAKE_SLEEP", "0.02")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster, distributed.Client(cluster) as client:  # fmt: skip
        workers: list[int] = list(client.run(os.getpid).values())
        assert os.getpid() not in workers and len(set(workers)) == 2
        measured = 0

        def disturb(event: dict[str, Any]) -> None:
            nonlocal measured
            measured += 1
            if measured == 8:
                os.kill(workers[0], signal.SIGKILL)
            if measured == 14:
                cluster.scale(3)

        tuner = make_tuner(scale, (1024,), target="llvm", db=tmp_path / "dask.db", measure=fake.measure, trials=28,
                           executor=client.get_executor(), progress=disturb)  # fmt: skip
        tuner.run()
        tuner.database.close()
        assert measured > 22
    assert records(tmp_path / "dask.db") == records(tmp_path / "local.db") != []
    key = scale.task((1024,), Target("llvm")).key
    with Database(tmp_path / "dask.db") as there, Database(tmp_path / "local.db") as here:
        assert there.trials(key) == here.trials(key)
    lines = log.read_text().splitlines()
    # What the killed worker had begun, and results that it held and nobody had fetched yet: more where the machine is busy, a round at most.
    assert len(lines) - len(set(lines)) <= 8


def test_real_measurements_on_a_cluster(tmp_path: Path, distributed: Any) -> None:
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as cluster, distributed.Client(cluster) as client:  # fmt: skip
        tuner = make_tuner(
            scale, (1024,), target="llvm", db=tmp_path / "a.db", trials=4, executor=client.get_executor()
        )
        (found,) = tuner.run().found
        tuner.database.close()
    assert found.trials == 4 and found.failed == 0 and found.default_seconds > 0, found.errors
