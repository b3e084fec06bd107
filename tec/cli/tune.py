"""`tec tune`: a search for quicker schedules of a model's groups, kept for every compilation after it; records in and out."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import click

from ..errors import install, one_line
from . import common
from .errors import INTERRUPTED, Refused, say


@click.command(
    cls=common.ModelCommand,
    epilog="""\b
Examples:
  tec tune model.onnx                                          # for this CPU
  tec tune model.onnx --trials 200 --workers 8 --report tuned.html
  tec tune model.onnx --target "rocm -mcpu=gfx942" --trials 16   # without hardware: model-ranked
  tec tune model.onnx --scheduler tcp://10.0.0.1:8786          # workers of a Dask cluster
  tec tune --export > records.jsonl; tec tune --import records.jsonl

A search goes on where it was cut off when it is started again with the same options; Ctrl-C keeps what was found. Records lie in
TEC_TUNE_DB, or in ~/.local/share/tec/tune.db.""",
)
@click.argument("model", type=click.Path(path_type=Path), required=False)
@click.option("--trials", "-n", type=click.IntRange(1), default=64, show_default=True, help="For each distinct group, on average.")  # fmt: skip
@click.option("--workers", "-w", type=click.IntRange(1), default=1, show_default=True, help="Processes that build and run; timings of one host take turns.")  # fmt: skip
@click.option("--scheduler", metavar="tcp://...", help="A Dask scheduler, whose workers measure.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the search.")
@click.option("--db", type=click.Path(path_type=Path), help="The file of records.")
@click.option("--report", type=click.Path(path_type=Path), help="Write a page that draws the search.")
@click.option("--ranker", type=click.Choice(["auto", "ridge", "lightgbm"]), default="auto", show_default=True, help="What learns from trials.")  # fmt: skip
@click.option("--time-limit", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, help="Seconds that building a trial may take.")  # fmt: skip
@click.option("--export", "is_export", is_flag=True, help="Print all records as JSON lines.")
@click.option("--import", "imported", type=click.Path(path_type=Path), help="Take in records; the better of two stays.")
@common.compile_options
@common.json_option
def command(
    model: Path | None, trials: int, workers: int, scheduler: str | None, seed: int, db: Path | None, report: Path | None, ranker: str,
    time_limit: float, is_export: bool, imported: Path | None, target: str | None, input_dim: tuple[str, ...], freeze: tuple[str, ...],
    dtype: str | None, no_cache: bool, as_json: bool,
) -> int | None:  # fmt: skip
    """Search for quicker schedules of a model."""
    if is_export or imported is not None:
        if model is not None:
            raise Refused("--export and --import are about the file of records, not about a model")
        _exchange(db, imported)
        return None
    if model is None:
        raise Refused("no MODEL to tune", "tec tune model.onnx")
    common.check_folder(report)
    common.share_stdout(as_json, report)
    wanted = common.target_of(target, None)
    graph = common.load_graph(model, input_dim, freeze)
    from ..tuning import make_tuner

    shown = None if as_json else _Progress()
    client, executor = _dask(scheduler)
    tuner = make_tuner(
        graph, target=wanted, trials=trials, workers=workers, seed=seed, db=db, executor=executor, ranker=ranker, build_seconds=time_limit,
        dtype=None if dtype in (None, "float32") else dtype, progress=shown,
    )  # fmt: skip
    tuner.report.what = model.name
    if shown is not None:
        groups = len(tuner.tasks)
        say(f"{groups} distinct groups, up to {trials} trials each on average; records in {tuner.database.path}; times are {tuner.report.how}")  # fmt: skip
    code = None
    try:
        tuner.run()
    except KeyboardInterrupt:
        code = INTERRUPTED
    finally:
        tuner.database.close()
        if client is not None:
            client.close()
    if shown is not None:
        shown.end()
    if report is not None:
        common.write_file(report, tuner.report.to_html())
    if as_json:
        common.print_json(tuner.report.to_json())
    else:
        _table(tuner.report)
        if code is not None:
            say("interrupted; what was found is kept, and the same command goes on")
    return code


def _dask(scheduler: str | None) -> tuple[Any, Any]:
    """A client of a Dask scheduler and its executor."""
    if scheduler is None:
        return None, None
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        raise Refused("--scheduler needs the package distributed", install("tune")) from None
    try:
        client = distributed.Client(scheduler, timeout=10)
    except (OSError, ValueError) as error:
        raise Refused(f"--scheduler {scheduler}: {error}") from None
    return client, client.get_executor()


def _exchange(db: Path | None, imported: Path | None) -> None:
    from ..choices.store.database import Database, default_path, from_lines, to_lines

    path = db if db is not None else default_path()
    if path is None:
        raise Refused("there is no file of records: TEC_TUNE_DB is off", "--db names one")
    if imported is None:
        if not path.exists():
            raise Refused(f"{path}: no such file of records")
        with Database(path, read_only=True) as database:
            for line in to_lines(database.records()):
                click.echo(line)  # JSON
        return
    try:
        lines = imported.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{imported}: {getattr(error, 'strerror', None) or 'not text'}") from None
    found = list(from_lines(lines, str(imported)))
    with Database(path) as database:
        taken = database.merge(found)
    common.echo(f"{taken} of {len(found)} records taken into {path}")


class _Progress:
    """A line that is written over on a terminal; elsewhere a line for each gain, and one now and then."""

    def __init__(self) -> None:
        self.failed = 0
        self.gains: dict[str, float] = {}
        self.is_terminal = sys.stderr.isatty()

    def __call__(self, event: dict[str, Any]) -> None:
        self.failed += event["error"] is not None
        better = event["gain"] > self.gains.get(event["task"], 1.0)
        self.gains[event["task"]] = event["gain"]
        text = f"{event['done']} timings"  # defaults, layouts and last comparisons too, so that there is no whole number of them to say
        text += f", {self.failed} failed" if self.failed else ""
        text += f"; {event['task'][:40]}: {event['gain']:.2f} times as fast as the default"
        if self.is_terminal:
            click.echo(f"\r\x1b[K{one_line(text)}", err=True, nl=better)
        elif better or event["done"] % 32 == 0:
            say(text)

    def end(self) -> None:
        if self.is_terminal:
            click.echo("\r\x1b[K", err=True, nl=False)


def _table(report: Any) -> None:
    from ..choices.space import text

    t = common.table("", "group", "calls", "default", "found", "times", "share", "trials", "choice", right=(1, 2, 3, 4, 5, 6))  # fmt: skip
    total = report.default_seconds
    for f in report.found:
        t.add_row(
            f.name, str(f.calls), common.duration(f.default_seconds), common.duration(f.default_seconds / f.gain), f"{f.gain:.2f}",
            f"{f.default_share_seconds / total:.1%}", str(f.trials), text(f.choice) if f.gain > 1 else "the default",
        )  # fmt: skip
    if report.found:
        common.console().print(t)
    common.echo(report.summary)
    for note in report.notes:
        common.echo(note)
