"""The choices that come with tec (`tec/choices/store/shipped`): searched, timed again, written.

python -m tools.shipped_records search mobilenet_v2 squeezenet --trials 24     on one thread, so that other work on the host does not decide; kept in build/shipped.db
python -m tools.shipped_records write mobilenet_v2 squeezenet                  of what was found, those that win on one thread and on all are written
python -m tools.shipped_records check mobilenet_v2                             what went stale: default, schedules or group
python -m tools.shipped_records search --target "rocm -mcpu=gfx942" resnet50:float16      by the software GPU's time model
python -m tools.shipped_records again --target "rocm -mcpu=gfx942" resnet50:float16       what is shipped timed once more (defaults or the model have changed): gains anew, losers dropped

A record that went stale is searched again, or dropped: `write` replaces what it was asked for and keeps the rest.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import tec
from tec.choices import Choice
from tec.choices.store.database import Database
from tec.choices.store.shipped import Shipped, digest, of_machine, without_threads, write
from tec.target import Target
from tec.tuning import make_tuner, measure
from tec.tuning.tasks import Task, graph_of_model, tasks_of_graph
from tec.tuning.tuner import device_for

from . import zoo

DATABASE = Path("build") / "shipped.db"
WORTH = 0.97  # of the default's time: what wins less on any number of threads is not shipped
KNOWN = ("mobilenet_v2", "squeezenet", "resnet50", "bert_layer")


def tasks(name: str, target: Target) -> list[Task]:
    """A network's tasks, `name` or `name:dtype`, with threads as the default has them."""
    path, _, dtype = name.partition(":")
    found, _ = tasks_of_graph(graph_of_model(str(zoo.get(path)), None, None), target, dtype or None)
    for task in found:
        fix_threads(task)
    return found


def fix_threads(task: Task) -> None:
    for space in task.spaces:
        for name in ("parallel",):
            if name in space.parameters:
                space.parameters[name] = (space.default[name],)


def search(names: Sequence[str], target: Target, trials: int, db: Path) -> None:
    for name in names:
        path, _, dtype = name.partition(":")
        tuner = make_tuner(str(zoo.get(path)), target=target, dtype=dtype or None, db=db, trials=trials, progress=_dot)
        for task in tuner.tasks:
            fix_threads(task)
            task.spaces = task.spaces[:1] if len(task.spaces[0].parameters) else task.spaces
        with closing(tuner.database), threads(1):
            report = tuner.run()
        for f in report.found:
            print(f"\n{name} {f.name} x{f.calls}: {f.default_seconds * 1e6:.1f} us, {f.gain:.3f}", end="")
        print(f"\n{name}: {report.seconds:.0f} s")


def _dot(event: object) -> None:
    print(".", end="", flush=True)


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Worker processes started inside run compiled code on so many threads; None: on all cores."""
    before = os.environ.pop("TEC_NUM_THREADS", None)
    if count is not None:
        os.environ["TEC_NUM_THREADS"] = str(count)
    try:
        yield
    finally:
        measure.end_children()
        os.environ.pop("TEC_NUM_THREADS", None)
        if before is not None:
            os.environ["TEC_NUM_THREADS"] = before


def timed(task: Task, choice: Choice, device: str, how: str) -> float | None:
    """The default's time over the choice's, by a long measurement in turn; None where it fails."""
    default = task.spaces[0].default
    programs = {"candidate": task.program(choice), "rival": task.program(default), "default": task.program(default)}
    outcome = measure.measure({
        "target": str(task.target), "machine": task.key.machine, "device": device, "is_timed": how == "measured", "kind": "duel", **programs,
        "seed": 0, "choices": (task.key.signature, choice, default), "build_seconds": 60.0, "run_seconds": 60.0, "memory_bytes": 8 << 30,
    })  # fmt: skip
    return 1.0 / outcome["ratio"] if "ratio" in outcome else None


def found(names: Sequence[str], target: Target, db: Path) -> list[Shipped]:
    """What a search found for networks, timed again on one thread and on all."""
    device, how = device_for(target)
    best: dict[str, tuple[Task, list[str], Choice]] = {}
    with Database(db, read_only=True) as database:
        # The newest of any version.
        known = {r.signature: r for r in sorted(database.records(str(target)), key=lambda r: r.at)}
    for name in names:
        for task in tasks(name, target):
            r = known.get(task.key.signature)
            if r is not None and _is_legal(task, r.choice):
                best.setdefault(r.signature, (task, [], r.choice))[1].append(name)
    gains: dict[str, list[float]] = {s: [] for s in best}
    for count in (1, None) if how == "measured" else (None,):
        with threads(count):
            for signature, (task, _, choice) in best.items():
                if not gains[signature] or gains[signature][0] * WORTH >= 1:
                    gains[signature].append(timed(task, choice, device, how) or 0.0)
    out = []
    for signature, (task, networks, choice) in best.items():
        gain = min(gains[signature])
        kept = gain * WORTH >= 1
        print(
            f"{task.name} ({', '.join(networks)}): {' '.join(f'{g:.3f}' for g in gains[signature])} {'' if kept else 'dropped'}"
        )
        if kept:
            out.append(record(task, networks, choice, gain, how))
    return out


def again(names: Sequence[str], target: Target) -> list[Shipped]:
    """The machine's records with what they gain now; without those that gain too little, or stand for nothing any more."""
    device, how = device_for(target)
    at = {task.key.signature: task for name in names for task in tasks(name, target)}
    out = []
    for r in of_machine(target.machine.name):
        task = at.get(r.signature)
        if task is None:
            out += [r] if not set(r.networks) <= set(names) else []
            continue
        # Against the default as it is now, which may be another one.
        choice = r.on(task.spaces) or _completed(task, r.choice)
        gain = timed(task, choice, device, how) or 0.0 if choice is not None else 0.0
        kept = choice is not None and gain * WORTH >= 1
        print(
            f"{r.name} ({', '.join(r.networks)}): {r.gain:.3f} before, {gain:.3f} {'' if kept else 'dropped'}",
            flush=True,
        )
        if kept and choice is not None:
            default = without_threads(task.spaces[0].default)
            out.append(
                replace(
                    r,
                    choice=without_threads(choice),
                    default=default,
                    gain=round(gain, 3),
                    traces=traces(task, choice),
                    against=None,
                )
            )
    return out


def _is_legal(task: Task, choice: Choice) -> bool:
    space = next((s for s in task.spaces if s.template == choice["template"]), None)
    return space is not None and space.is_legal(choice)


def _completed(task: Task, choice: Choice) -> Choice | None:
    """The choice with what the default says of threads, and with neutral values of parameters that are newer than it, else the default's; None where it is not legal."""
    space = next((s for s in task.spaces if s.template == choice["template"]), None)
    if space is None:
        return None
    full = {**space.default, **space.filled(choice)}
    return full if space.is_legal(full) else None


def record(task: Task, networks: Sequence[str], choice: Choice, gain: float, how: str) -> Shipped:
    default = task.spaces[0].default
    units = task.target.machine.units
    return Shipped(
        task.key.signature, task.name.partition("_")[2], tuple(networks), units, without_threads(default), without_threads(choice),
        traces(task, choice), round(gain, 3), how,
    )  # fmt: skip


def traces(task: Task, choice: Choice) -> tuple[str, str]:
    """Digests of the schedules of a task's default and of a choice."""
    space = next(s for s in task.spaces if s.template == choice["template"])
    with task.target:
        return digest(task.spaces[0].apply()), digest(space.apply(choice))


def stale(name: str, target: Target) -> list[str]:
    """What no longer holds of a network's shipped records, in words."""
    at = {task.key.signature: task for task in tasks(name, target)}
    out = []
    for r in of_machine(target.machine.name):
        if name not in r.networks:
            continue
        label = f"{r.name} ({r.signature}) of {name} on {target.machine.name}"
        task = at.get(r.signature)
        if task is None:
            out.append(f"{label}: the network has no such group any more")
            continue
        choice = r.on(task.spaces)
        if choice is None:
            default = without_threads(task.spaces[0].default)
            out.append(f"{label}: the default is {default}, it was {r.default}, or {r.choice} is not legal any more")
        elif traces(task, choice) != r.traces:
            out.append(f"{label}: default or choice make another schedule than the ones that were timed")
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("search", "write", "check", "again"))
    parser.add_argument("networks", nargs="*", default=KNOWN)
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--db", type=Path, default=DATABASE)
    args = parser.parse_intermixed_args()  # names may stand behind options
    target = tec.Target(args.target)
    machine = target.machine.name
    if args.what == "search":
        search(args.networks, target, args.trials, args.db)
    elif args.what == "again":
        write(machine, again(args.networks, target))
    elif args.what == "write":
        kept = [r for r in (left(r, args.networks) for r in of_machine(machine)) if r is not None]
        new = found(args.networks, target, args.db)
        names = {s.signature: s for s in kept}
        write(
            machine,
            [
                *(r for r in kept if r.signature not in {n.signature for n in new}),
                *(merged(n, names.get(n.signature)) for n in new),
            ],
        )
    else:
        wrong = [w for name in args.networks for w in stale(name, target)]
        print("\n".join(wrong) or "all hold")
        sys.exit(1 if wrong else 0)


def left(r: Shipped, names: Sequence[str]) -> Shipped | None:
    """A record without some networks; None where none is left."""
    networks = tuple(n for n in r.networks if n not in names)
    return replace(r, networks=networks) if networks else None


def merged(new: Shipped, old: Shipped | None) -> Shipped:
    return replace(new, networks=tuple(dict.fromkeys((*(old.networks if old else ()), *new.networks))))


if __name__ == "__main__":
    main()
