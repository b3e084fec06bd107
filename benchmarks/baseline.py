"""Measures a working tree and compares it with the stored results (benchmarks/results). Exit code 1 where something is worse beyond its row's band.

    python -m benchmarks.baseline [--kind network,house] [--quick] [--only word]... [--tree PATH] [--write]

--quick      what a few minutes of two cores allow, of counted and modelled rows alone
--only       rows whose name holds the word
--tree       another checkout's compiler (its tec and frontends), by this checkout's measures
--write      appends what was measured to the results, and draws README's table of them anew

Kinds: network (12 networks on 5 targets), product (gfx942's table), cliff (random operators), compile (calls and processor time of the compiler), house (lines
and other figures of the sources); cpu (networks beside ONNX Runtime by processor time) is clocked, and measured only where it is asked for by name.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.records import RESULTS, ROOT, Change, Maker, Record, append, compare, newest, read
from tools import readme_figures

# What each kind is measured by: a module with `measure(make, quick, only)`, which yields rows.
KINDS = {
    "house": "tools.house_figures",
    "network": "benchmarks.baseline_networks",
    "product": "benchmarks.baseline_products",
    "cliff": "benchmarks.cliffs",
    "compile": "benchmarks.baseline_compile",
    "cpu": "benchmarks.baseline_cpu",
}
ASKED = ("cpu",)  # by name alone: clocks say little on a machine with other work


def use_tree(tree: Path) -> None:
    """Have `tec` and its frontends imported from a checkout. Raises ValueError where another is imported already."""
    for mine in ("tools", "tests"):  # this checkout's, whatever the other one has
        importlib.import_module(mine)
    sys.path[:0] = [str(tree), str(tree / "frontends")]
    import tec

    if not Path(tec.__file__).resolve().is_relative_to(tree.resolve()):
        raise ValueError(f"tec is imported from {tec.__file__}, not from {tree}")


def command_of(kind: str) -> str:
    return f"python -m benchmarks.baseline --kind {kind}"


def measured(kinds: list[str], tree: Path, quick: bool, only: list[str]) -> Iterator[Record]:
    for kind in kinds:
        source: Callable[..., Iterator[Record]] = importlib.import_module(KINDS[kind]).measure
        yield from source(Maker(kind, command_of(kind), tree), quick, only)


def changes(rows: list[Record], stored: list[Record]) -> list[Change]:
    """What differs from the newest stored rows, the worst first."""
    before = newest(stored)
    found = [c for r in rows if r.key in before and (c := compare(before[r.key], r))]
    return sorted(found, key=lambda c: (not c.is_worse, -(c.factor or 0.0)))


def missing(rows: list[Record], stored: list[Record]) -> list[Record]:
    """Stored rows of the measured names and targets that were not measured again: what broke, or what was renamed."""
    there, names = {r.key for r in rows}, {(r.kind, r.what, r.target) for r in rows}
    return [
        r
        for k, r in newest(stored).items()
        if k not in there and (r.kind, r.what, r.target) in names and not r.source and not r.is_clocked
    ]


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", default=",".join(k for k in KINDS if k not in ASKED), help=", ".join(KINDS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--tree", type=Path, default=ROOT)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args(words)
    kinds = [k for k in args.kind.split(",") if k]
    if unknown := [k for k in kinds if k not in KINDS]:
        parser.error(f"no such kind: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    os.environ["TEC_CACHE_DISABLE"] = "1"
    os.environ.setdefault("TEC_NUM_THREADS", "1")
    use_tree(args.tree.resolve())
    stored, rows = read(RESULTS), []
    for row in measured(kinds, args.tree.resolve(), args.quick, args.only):
        rows.append(row)
        if args.write:
            append([row])
    if args.write:
        readme_figures.write()
    return report(rows, stored)


def report(rows: list[Record], stored: list[Record]) -> int:
    """Print what moved; the exit code."""
    known: set[Any] = newest(stored).keys()
    moved, gone = changes(rows, stored), missing(rows, stored)
    for c in moved:
        print(c.line())
    for r in gone:
        print(f"GONE    {', '.join(filter(None, (r.kind, r.what, r.target, r.measure)))}: was {r.value} {r.unit}")
    new = [r for r in rows if r.key not in known]
    # A clock's figure says nothing of another host's: such rows are counted apart, not compared.
    elsewhere = {r.key[:-1] for r in newest(stored).values() if r.is_clocked}
    foreign = [r for r in new if r.is_clocked and r.key[:-1] in elsewhere]
    worse = sum(c.is_worse for c in moved)
    print(
        f"{len(rows)} rows: {len(rows) - len(moved) - len(new)} as stored, {len(moved)} moved ({worse} worse beyond their band), {len(new) - len(foreign)} new, "
        f"{len(foreign)} timed on other hosts alone and not compared, {len(gone)} gone"
    )
    return int(bool(worse or gone))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
