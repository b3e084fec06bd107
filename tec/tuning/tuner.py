"""The search over all tasks: who gets the next round, what is measured, what is believed, what is kept.

Trials go to the database as they end, and a search asks it before it measures: one that was cut off, by Ctrl-C or worse, goes on where it was when it is
started again. The order of proposals depends on the seed and on what was measured, never on how many workers there are or who is done first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

from ..choices import Choice
from ..choices.layout_options import TEMPLATE
from ..choices.store import records
from ..choices.store.database import Database, Key, Record, Trial, Tuned, machine_key, templates_version
from ..errors import ArgumentError, DeviceError, TecError
from ..runtime.devices.device import as_device
from ..target import Target
from . import measure as measuring
from .candidates import Candidate
from .layouts import LayoutTask
from .measure import Job, Outcome
from .ranker import make_ranker
from .report import Found, TuneReport
from .search import WORTH, Search
from .tasks import Task

_DUELS = 2  # of a round's best, each remeasured against the incumbent


@dataclass(frozen=True)
class Options:
    """trials: for each task, on average. batch: proposals of a round. Seconds and bytes are limits of one trial."""

    trials: int = 64
    batch: int = 8
    seed: int = 0
    ranker: str = "auto"
    build_seconds: float = 60.0
    run_seconds: float = 30.0
    memory_bytes: int = 8 << 30

    def __post_init__(self) -> None:
        for name in ("trials", "batch", "build_seconds", "run_seconds", "memory_bytes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
                raise ArgumentError(f"tune: {name} is {value!r}, a number above 0 is wanted", hint="such as trials=64")


@dataclass
class _State:
    """A task's search, and what was measured of it before."""

    task: Task
    search: Search
    known: dict[tuple[str, str], Trial]
    found: Found

    @property
    def weight(self) -> float:
        """Seconds of a run that its calls take, as they are now."""
        return self.found.calls * self.found.default_seconds / self.found.gain


class Tuner:
    """Tunes tasks on the device that `device_for` finds. `measure` is what workers run; tests give one that knows the times."""

    def __init__(
        self,
        what: str,
        tasks: Sequence[Task],
        target: Target,
        database: Database,
        options: Options,
        executor: Executor | None = None,
        workers: int = 1,
        progress: Callable[[dict[str, Any]], None] | None = None,
        measure: Callable[[Job], Outcome] | None = None,
        layouts: Sequence[LayoutTask] = (),
        again: Callable[[], Sequence[Task]] | None = None,
    ):
        """layouts: to be timed first; `again` then finds the tasks under what they say."""
        self.target, self.database, self.options = target, database, options
        self.progress = progress or (lambda event: None)
        self.device, how = ("none", "measured") if measure is not None else device_for(target)
        self.measure = measure or measuring.measure
        self.executor, self.workers = executor, workers
        self.report = TuneReport(what, str(target), machine_key(target), how)
        self.tasks, self.layouts, self.again = tasks, layouts, again
        self._states: list[_State] = []
        self._done = 0
        self._measured = 0  # by this process

    def run(self) -> TuneReport:
        """Search until the trials are used up or nothing is left to gain. KeyboardInterrupt passes; `report` then has what was found so far."""
        start = time.perf_counter()
        own = self.executor is None
        pool = self.executor or ThreadPoolExecutor(self.workers, "tec-tune")
        try:
            if self.layouts and self.again is not None:
                self._time_layouts(pool)
                with records.using(
                    Tuned(self.database.records(str(self.target), self.report.machine), templates_version())
                ):
                    self.tasks = self.again()
            self._start(pool)
            left = self.options.trials * len(self._states)
            while left > 0:
                open_ = [s for s in self._states if not s.search.is_spent]
                if not open_:
                    break
                state = max(open_, key=lambda s: s.weight * s.search.promise)
                used = self._round(pool, state, left)
                if not used:
                    break
                left -= used
        except BaseException:
            if own:
                pool.shutdown(wait=False, cancel_futures=True)
            measuring.end_children()
            raise
        finally:
            self.report.seconds = time.perf_counter() - start
            self.report.found = sorted((s.found for s in self._states), key=lambda f: -f.default_share_seconds)
        if own:
            pool.shutdown()
            measuring.end_children()
        return self.report

    # ---- one round

    def _time_layouts(self, pool: Executor) -> None:
        """Times of layouts, each alone, kept as records; those that are known are not measured again."""
        known = {
            r.signature
            for r in self.database.records(str(self.target), self.report.machine)
            if r.version == templates_version()
        }
        waiting: dict[Future[Outcome], LayoutTask] = {}
        for task in self.layouts:
            if task.key.signature not in known:
                program = task.program()
                waiting[
                    pool.submit(
                        self.measure, self._job(task.key, (task.words, task.words), (program, program, program), "duel")
                    )
                ] = task
        for future in as_completed(waiting):
            task = waiting[future]
            trial = _trial(future, "", "")
            if trial.seconds is None:
                self.report.notes.append(f"{task.name} gave no time: {trial.error}")
                continue
            key, s = task.key, trial.seconds
            self.database.put(
                Record(key.signature, key.target, key.machine, key.version, task.name, {"template": TEMPLATE, "seconds": s}, s, s, self.report.how, 1, time.time())
            )  # fmt: skip
            self._measured += 1
            self._done += 1
            self.progress({
                "done": self._done, "measured": self._measured, "task": task.name, "choice": task.words, "ratio": 1.0, "seconds": s, "error": None,
                "best": s, "gain": 1.0, "how": self.report.how,
            })  # fmt: skip
        self.report.notes.append(f"{len(self.layouts)} layouts of convolutions were timed, and chosen together")

    def _start(self, pool: Executor) -> None:
        """Every task's default, timed: its share of a run decides what gets trials."""
        states = []
        for k, task in enumerate(self.tasks):
            search = Search(
                task.spaces,
                make_ranker(self.options.ranker),
                self.options.seed * 7919 + k,
                self.options.batch,
            )
            found = Found(
                task.name, task.key.signature, task.calls, search.default.choice, search.default.choice, 0.0, 0.0
            )
            states.append(_State(task, search, self.database.trials(task.key), found))
        timed = self._trials(pool, [(s, s.search.default, s.search.default, "trial") for s in states])
        if states and all(t.seconds is None for t in timed):
            raise DeviceError(
                f"no default of {self.report.what} gave a time on {self.report.machine}, of {len(states)} groups: {timed[0].error}",
                hint="a search needs one default that runs; build_seconds=, run_seconds= and memory_bytes= are a trial's limits",
                locate=False,
            )
        for state, trial in zip(states, timed):
            if trial.seconds is None:
                self.report.notes.append(f"{state.task.name} is left out: its default gave no time: {trial.error}")
                continue
            state.found.default_seconds = state.found.seconds = trial.seconds
            self._states.append(state)

    def _round(self, pool: Executor, state: _State, left: int) -> int:
        """Propose, measure, learn, remeasure what looks better. Returns how many trials it took."""
        search, found = state.search, state.found
        batch = search.propose(left)
        trials = self._trials(pool, [(state, c, search.incumbent, "trial") for c in batch])
        before = 1.0 / found.gain
        for candidate in search.learn(batch, [t.ratio for t in trials])[:_DUELS]:
            self._duel(pool, state, candidate)
        found.trials += len(batch)
        found.failed += sum(t.ratio is None for t in trials)
        found.errors += [t.error for t in trials if t.error is not None and t.error not in found.errors]
        found.history += [before] * (len(batch) - 1) + [1.0 / found.gain] if batch else []
        return len(batch)

    def _duel(self, pool: Executor, state: _State, candidate: Candidate) -> None:
        """Take a candidate as the incumbent if it beats that one, and the default, in longer measurements in turn."""
        search = state.search
        (duel,) = self._trials(pool, [(state, candidate, search.incumbent, "duel")])
        first = duel
        if duel.ratio is not None and duel.ratio < 1 - WORTH and search.incumbent is not search.default:
            (first,) = self._trials(pool, [(state, candidate, search.default, "duel")])
        if duel.ratio is None or first.ratio is None or first.seconds is None or max(duel.ratio, first.ratio) >= 1 - WORTH:  # fmt: skip
            search.refute(candidate, duel.ratio)
            return
        search.accept(candidate, duel.ratio)
        found, key = state.found, state.task.key
        found.choice, found.seconds, found.default_seconds = candidate.choice, first.seconds, first.seconds / first.ratio  # fmt: skip
        self.database.merge([
            Record(
                key.signature, key.target, key.machine, key.version, state.task.name, candidate.choice, found.seconds, found.default_seconds,
                self.report.how, search.trials, time.time(),
            )
        ])  # fmt: skip

    # ---- measuring

    def _trials(self, pool: Executor, pairs: Sequence[tuple[_State, Candidate, Candidate, str]]) -> list[Trial]:
        """Trials in the order of `pairs` (task, candidate, rival, kind): those known already, and the others by the executor's workers."""
        out: list[Trial | None] = [None] * len(pairs)
        waiting: dict[Future[Outcome], int] = {}
        made: dict[tuple[str, str], bytes] = {}  # a round's trials have the default and most often the rival in common

        def program(task: Task, c: Candidate) -> bytes:
            key = task.key.signature, c.key
            if key not in made:
                made[key] = task.program(c.choice)
            return made[key]

        for k, (state, candidate, rival, kind) in enumerate(pairs):
            against = f"{kind} {rival.key}"
            known = state.known.get((candidate.key, against))
            if known is not None:
                out[k] = known
                self._tell(state, candidate, known)
                continue
            try:
                three = [program(state.task, c) for c in (candidate, rival, state.search.default)]
                job = self._job(state.task.key, (candidate.choice, rival.choice), three, kind)
            except TecError as error:
                out[k] = self._keep(state, candidate, Trial(candidate.key, against, None, None, error.message))
                continue
            waiting[pool.submit(self.measure, job)] = k
        for future in as_completed(waiting):
            k = waiting[future]
            state, candidate, rival, kind = pairs[k]
            out[k] = self._keep(state, candidate, _trial(future, candidate.key, f"{kind} {rival.key}"))
        return [t for t in out if t is not None]

    def _job(self, key: Key, choices: tuple[Choice, Choice], programs: Sequence[bytes], kind: str) -> Job:
        """A measurement of a choice against a rival; `programs` are theirs and the one that knows the results."""
        o = self.options
        return {
            "target": str(self.target), "machine": key.machine, "device": self.device, "is_timed": self.report.how == "measured", "kind": kind,
            **dict(zip(("candidate", "rival", "default"), programs)), "seed": o.seed, "choices": (key.signature, *choices),
            "build_seconds": o.build_seconds, "run_seconds": o.run_seconds, "memory_bytes": o.memory_bytes,
        }  # fmt: skip

    def _keep(self, state: _State, candidate: Candidate, trial: Trial) -> Trial:
        self.database.add_trial(state.task.key, trial)
        state.known[trial.choice, trial.against] = trial
        self._measured += 1
        self._tell(state, candidate, trial)
        return trial

    def _tell(self, state: _State, candidate: Candidate, trial: Trial) -> None:
        self._done += 1
        self.progress({
            "done": self._done, "measured": self._measured, "task": state.task.name, "choice": candidate.choice, "ratio": trial.ratio,
            "seconds": trial.seconds, "error": trial.error, "best": state.found.seconds, "gain": state.found.gain, "how": self.report.how,
        })  # fmt: skip


def _trial(future: Future[Outcome], choice: str, against: str) -> Trial:
    try:
        outcome = future.result()
    except CancelledError:
        raise KeyboardInterrupt from None
    except Exception as error:  # of the executor: its worker was killed more often than it tries
        return Trial(choice, against, None, None, f"{type(error).__name__}: {error}")
    if "error" in outcome:
        return Trial(choice, against, None, None, outcome["error"])
    return Trial(choice, against, outcome["ratio"], outcome["seconds"])


def device_for(target: Target) -> tuple[str, str]:
    """The device that runs a target's code, and what its times are: "measured", or "model-ranked" by the software GPU. Raises DeviceError where
    nothing can run it."""
    if target.kind == "llvm":
        if not target.is_host:
            raise DeviceError(
                f"{target} is not this host, and its code is not timed here",
                hint='target="llvm" tunes for this host; a record can be imported from where it was made',
            )
        return "cpu", "measured"
    try:
        is_there = target.kind != "rocm" or as_device("rocm").arch.partition(":")[0] == target.mcpu
        if target.kind == "cuda":
            as_device("cuda")
    except DeviceError:
        if target.kind != "rocm":
            raise
        is_there = False
    return (target.kind, "measured") if is_there else (f"rocm_emu:{target.mcpu}", "model-ranked")
