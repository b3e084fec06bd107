"""Tuning: which of a template's choices is the quickest, found by trying.

    tec.tune("model.onnx", target="llvm", trials=64)      # a network: its distinct groups
    tec.tune(matmul, (1024, 1024, 1024), target="llvm")   # a template of one's own

`tasks` says what is tuned, `search` proposes, `measure` and `worker` time it in processes that may die, `tuner` deals out the trials and keeps what
was found, `report` draws it. Records are `tec.choices.store.database`'s; `tec.compile` and `tec.build` read them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from typing import TYPE_CHECKING, Any

from ..door import of_tec
from ..errors import ArgumentError

if TYPE_CHECKING:
    from ..target import Target
    from .report import TuneReport
    from .templates import Holes, Template, template
    from .tuner import Tuner


@of_tec(ArgumentError).named("tec.tune")
def tune(
    what: Any,
    args: Sequence[Any] | None = None,
    *,
    target: str | Target | None = None,
    trials: int = 64,
    workers: int = 1,
    seed: int = 0,
    db: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    shapes: Mapping[str, Any] | None = None,
    dtype: str | None = None,
    freeze: Mapping[str, Any] | None = None,
    progress: Callable[[dict[str, Any]], None] | None = None,
    libraries: bool = False,
    **limits: Any,
) -> TuneReport:
    """Search for quicker schedules, and keep what is found for `tec.compile` and `tec.build`.

    what: a network as `tec.compile` takes it (with `shapes`, `dtype`, `freeze`), or a `tec.template` with `args`. target: text or Target. On a
    CPU, trials are timed on this host; on an AMD GPU that is not there, the software GPU's time model ranks them, and the result says "model-ranked".
    trials: for each distinct group on average; groups get theirs by the time that they take and what was gained lately, and one that gained nothing in
    64 is done. workers: processes that build and run; timings of one host take turns. seed: the same seed and the same times make the same search.
    db: the file of records (`TEC_TUNE_DB` by default): a search that was cut off goes on from it. executor: any `concurrent.futures.Executor`
    in place of local workers, a Dask client's `get_executor()` for one. progress: called with a dict after each trial. limits: `build_seconds`, `run_seconds`,
    `memory_bytes` that one trial may hold, `batch` (proposals of a round), `ranker` ("auto", "ridge", "lightgbm").
    libraries: products by vendor libraries are tried too, and kept where they win: `tec.compile(..., libraries=True)` then takes them.
    Returns a TuneReport. Raises ArgumentError, DeviceError where nothing can run the target's code or no default gave a time, and what
    `tec.compile` raises.
    """
    from ..choices.families.libraries import using

    with using(libraries):
        tuner = make_tuner(
            what, args, target=target, trials=trials, workers=workers, seed=seed, db=db, executor=executor, shapes=shapes, dtype=dtype, freeze=freeze,
            progress=progress, **limits,
        )  # fmt: skip
        with closing(tuner.database):
            return tuner.run()


def make_tuner(
    what: Any,
    args: Sequence[Any] | None = None,
    *,
    target: str | Target | None = None,
    db: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    workers: int = 1,
    shapes: Mapping[str, Any] | None = None,
    dtype: str | None = None,
    freeze: Mapping[str, Any] | None = None,
    progress: Callable[[dict[str, Any]], None] | None = None,
    measure: Any = None,
    **options: Any,
) -> Tuner:
    """The search that `tune` runs; see there. The caller closes its database."""
    from dataclasses import fields

    from ..choices.store.database import Database, default_path
    from ..errors import ArgumentError
    from ..target import as_target
    from .layouts import LayoutTask, layout_tasks
    from .tasks import Task, graph_of_model, tasks_of_graph
    from .templates import Template
    from .tuner import Options, Tuner

    known = [f.name for f in fields(Options)]
    for name in options:
        if name not in known:
            raise ArgumentError(f"tune has no option {name!r}", hint="limits: " + ", ".join(known))
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise ArgumentError(f"tune: workers is {workers!r}, a number of at least 1 is wanted")
    checked = Options(**options)
    tgt = as_target(target)
    path = db if db is not None else default_path()
    if path is None:
        raise ArgumentError(
            "tune has no file for its records: TEC_TUNE_DB is off", hint='db="records.db", or set TEC_TUNE_DB'
        )
    notes: list[str] = []
    layouts: list[LayoutTask] = []
    again: Callable[[], Sequence[Task]] | None = None
    if isinstance(what, Template):
        if args is None:
            raise ArgumentError(f"tune: {what.name} is a template and needs arguments", hint="tec.tune(template, (1024, 1024, 1024))")  # fmt: skip
        tasks, name = [what.task(tuple(args), tgt)], f"{what.name}{tuple(args)}"
    else:
        if args is not None:
            raise ArgumentError(
                "tune: arguments are for a template; a network has shapes=",
                hint="@tec.template above the function makes one" if callable(what) else None,
            )
        graph = graph_of_model(what, shapes, freeze)
        tasks, notes = tasks_of_graph(graph, tgt, dtype)
        layouts = layout_tasks(graph, tgt, dtype)
        again = lambda: tasks_of_graph(graph, tgt, dtype)[0]  # noqa: E731
        name = os.path.basename(os.fspath(what)) if isinstance(what, (str, os.PathLike)) else graph.name
    tuner = Tuner(name, tasks, tgt, Database(path), checked, executor, workers, progress, measure, layouts, again)
    tuner.report.notes += notes
    return tuner


def __getattr__(name: str) -> Any:
    if name in ("Template", "Holes", "template"):
        from . import templates

        return getattr(templates, name)
    if name == "TuneReport":
        from .report import TuneReport

        return TuneReport
    raise AttributeError(f"module 'tec.tuning' has no attribute {name!r}")


__all__ = ["Holes", "Template", "TuneReport", "make_tuner", "template", "tune"]
