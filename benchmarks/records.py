"""Results as data: rows of JSON under benchmarks/results, one file a kind, each with what is needed to repeat and to judge it.

A row is appended and never changed; the newest row of a key (kind, what, target, measure, and the host where a clock was read) is the one that counts.
`compare` holds rows of a working tree against those; `python -m benchmarks.baseline` measures them.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import math
import os
import platform
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"
MODELLED, COUNTED = "modelled", "counted"  # hosts of rows that no clock was read for: the same on every machine
BAND = 1.02  # of such rows: the modelled time that a change may cost unnoticed
CLOCKED_BAND = 1.15  # of ratios of processor times taken in turn, on a machine with other work
# What the time model is made of: a modelled time compares with another one of the same model.
_MODEL = [
    *(f"tec/emulator/time/{n}.py" for n in ("unit", "model", "traffic", "issue", "trace")),
    "tec/emulator/analyses/skeleton.py",
    "tec/emulator/checks/order.py",
    "tec/target/machines.py",
    "tec/target/fitted.py",
    "tec/target/chips.py",
]
GPU_BAND = 1.05  # of ratios of medians of bursts in turn: two runs on one H200 differed by up to 4 %
_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16")


@dataclass(frozen=True)
class Record:
    """One result.

    value: a number, or a digest of a text (`better` "same"); None with `error` where it could not be measured.
    band: how many times worse a later value may be and still pass; None: it is only told.
    ratio: tec's time over the peer's, both taken in turn; below 1 tec is faster, also where the unit is a rate.
    model: the commit that last changed the time model, of modelled rows. load: the machine's mean load in the last minute, of clocked rows.
    source: where the row was read, if it was not measured by `command` for this file.
    """

    kind: str
    what: str
    measure: str
    value: float | str | None
    unit: str
    host: str
    commit: str
    date: str
    command: str
    target: str = ""
    better: str = "less"
    band: float | None = BAND
    load: float | None = None
    model: str = ""
    peer: str = ""
    peer_settings: str = ""
    peer_value: float | None = None
    ratio: float | None = None
    source: str = ""
    error: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        problems = list(_problems(self))
        if problems:
            raise ValueError(f"{self.kind}, {self.what}, {self.measure}: {'; '.join(problems)}")

    @property
    def is_clocked(self) -> bool:
        return self.host not in (MODELLED, COUNTED)

    @property
    def key(self) -> tuple[str, ...]:
        return (self.kind, self.what, self.target, self.measure, self.host if self.is_clocked else "")

    def to_json(self) -> str:
        """One line, without what is empty."""
        fields = {f.name: (getattr(self, f.name), f.default) for f in dataclasses.fields(self)}
        return json.dumps({k: v for k, (v, default) in fields.items() if v != default}, ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> Record:
        """Raises ValueError for a line that is no row."""
        data = json.loads(line)
        known = {f.name for f in dataclasses.fields(cls)}
        if not isinstance(data, dict) or not data.keys() <= known:
            raise ValueError(f"no row of results: {line[:120]}")
        try:
            return cls(**data)
        except TypeError as e:
            raise ValueError(f"{e}: {line[:120]}") from None


def _problems(r: Record) -> Iterable[str]:
    """What is wrong with a row."""
    for name in ("kind", "what", "measure", "host", "commit", "date", "command"):
        if not isinstance(getattr(r, name), str) or not getattr(r, name):
            yield f"{name} is missing"
    if not re.fullmatch(r"\d{4}-\d\d-\d\d( \d\d:\d\d)?", str(r.date)):
        yield f"date {r.date!r} is not YYYY-MM-DD or YYYY-MM-DD HH:MM"
    if r.better not in ("less", "more", "same"):
        yield f"better is {r.better!r}: less, more or same"
    if (r.value is None) != bool(r.error):
        yield "either a value or an error"
    if isinstance(r.value, str) != (r.better == "same") and r.value is not None:
        yield 'a text is a value of which "same" is better'
    for name in ("value", "peer_value", "ratio", "load", "band"):
        x = getattr(r, name)
        if isinstance(x, float) and not math.isfinite(x):
            yield f"{name} is {x}"
    if r.band is not None and r.band < 1:
        yield f"band {r.band} is below 1"
    if (r.peer_value is not None or r.ratio is not None) and not r.peer:
        yield "a ratio to no peer"
    if r.host == MODELLED and not r.model:
        yield "a modelled row names its model"
    if r.is_clocked and not r.source and r.load is None:
        yield "a clocked row names the load"


def read(folder: Path = RESULTS) -> list[Record]:
    """All rows, in the order in which they were appended. Raises ValueError, which names the file and the line."""
    rows = []
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            try:
                rows.append(Record.from_json(line))
            except ValueError as e:
                raise ValueError(f"{path.name}:{number}: {e}") from None
            if rows[-1].kind != path.stem:
                raise ValueError(f"{path.name}:{number}: a row of kind {rows[-1].kind}")
    return rows


def newest(rows: Iterable[Record]) -> dict[tuple[str, ...], Record]:
    """The last row of each key."""
    return {r.key: r for r in rows}


def append(rows: Iterable[Record], folder: Path = RESULTS) -> int:
    """Add rows to their kinds' files, but for counted and modelled ones that say what the newest one does. How many were added."""
    last, added = newest(read(folder)), 0
    folder.mkdir(exist_ok=True)
    for r in rows:
        before = last.get(r.key)
        if before and not r.is_clocked and _says(before) == _says(r):
            continue
        with (folder / f"{r.kind}.jsonl").open("a", encoding="utf-8") as f:
            f.write(r.to_json() + "\n")
        last[r.key], added = r, added + 1
    return added


def _says(r: Record) -> tuple[Any, ...]:
    return r.value, r.error, r.model, r.peer_value, r.band


@dataclass(frozen=True)
class Change:
    """A row that differs from the one stored. factor: how many times worse it is, below 1 where it is better; None where no number says it."""

    before: Record
    after: Record
    factor: float | None
    is_worse: bool  # beyond the stored row's band

    def line(self) -> str:
        b, a = self.before, self.after
        name = ", ".join(filter(None, (b.kind, b.what, b.target, b.measure)))
        verdict = (
            "WORSE "
            if self.is_worse
            else "changed"
            if self.factor is None
            else "better"
            if self.factor < 1
            else "worse, within its band"
        )
        models = f"; time models {b.model} and {a.model}" if b.model != a.model else ""
        by = "" if self.factor is None else f" ({self.factor:.3f} of before, band {b.band})"
        return f"{verdict:7s} {name}: {_said(b)} -> {_said(a)}{by}{models}"


def _said(r: Record) -> str:
    if r.error:
        return f"error ({r.error[:100]})"
    ratio = f", {r.ratio:.3f} of {r.peer}" if r.is_clocked and r.ratio is not None else ""
    return f"{r.value:.6g} {r.unit}{ratio}" if isinstance(r.value, (int, float)) else f"{r.value}"


def compare(before: Record, after: Record) -> Change | None:
    """How a row differs from the stored one of its key; None where it says the same. Clocked rows with a peer are compared by their ratios."""
    if before.error or after.error:
        broke = bool(after.error and not before.error)
        return Change(before, after, None, broke) if bool(before.error) != bool(after.error) else None
    old, new = before.value, after.value
    if before.is_clocked and before.ratio is not None and after.ratio is not None:
        old, new = before.ratio, after.ratio
    if old == new:
        return None
    if not isinstance(old, (int, float)) or not isinstance(new, (int, float)):
        return Change(before, after, None, False)
    worse, better = (old, new) if before.better == "more" and old is before.value else (new, old)
    factor = worse / better if better else math.inf
    return Change(before, after, factor, before.band is not None and factor > before.band)


# ---- what a row says of where it comes from


@functools.cache
def git(*words: str, tree: Path = ROOT) -> str:
    """What git says of a tree; "" where it says nothing."""
    done = subprocess.run(["git", "-C", str(tree), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip()


@functools.cache
def commit(tree: Path = ROOT) -> str:
    """The commit of a working tree, with a "+" where the compiler's files differ from it; what TEC_COMMIT says of a copy that git does not know."""
    if said := os.environ.get("TEC_COMMIT"):
        return said
    changed = git("status", "--porcelain", "--", "tec", "frontends", tree=tree)
    return git("rev-parse", "--short=7", "HEAD", tree=tree) + ("+" if changed else "")


@functools.cache
def model_commit(tree: Path = ROOT) -> str:
    """The commit that last changed the time model."""
    changed = git("status", "--porcelain", "--", *_MODEL, tree=tree)
    return git("log", "-1", "--format=%h", "--abbrev=7", "--", *_MODEL, tree=tree) + ("+" if changed else "")


@functools.cache
def this_host() -> str:
    """The processor's make, the features that code for it differs by, its cores."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    make = re.search(r"^model name\s*:\s*(.*)$", text, re.M)
    flags = set((re.search(r"^flags\s*:\s*(.*)$", text, re.M) or [""])[0].split())
    has = " ".join(f for f in _FEATURES if f in flags)
    return f"{make[1] if make else platform.machine()}, {has}, {os.cpu_count()} cores"


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M")


def load() -> float:
    """Mean number of processes that ran or waited to run in the last minute."""
    return round(os.getloadavg()[0], 1)


def four_digits(x: float) -> float:
    """Four digits that count, and all of those before the point."""
    return round(x) if abs(x) >= 1000 else float(f"{x:.4g}")


@dataclass(frozen=True)
class Maker:
    """Makes rows of one kind, measured now by one command for the compiler of one working tree."""

    kind: str
    command: str
    tree: Path = ROOT

    def counted(self, what: str, measure: str, value: float, unit: str, **more: Any) -> Record:
        """A count that does not depend on the machine or its load."""
        return self._row(what, measure, value, unit, COUNTED, **more)

    def modelled(self, what: str, measure: str, value: float, unit: str, **more: Any) -> Record:
        """A figure of the software GPU's time model."""
        return self._row(what, measure, value, unit, MODELLED, model=model_commit(self.tree), **more)

    def digest(self, what: str, measure: str, value: str, **more: Any) -> Record:
        """The digest of a text that should stay as it is."""
        return self._row(what, measure, value, "sha256", COUNTED, better="same", **more)

    def clocked(self, what: str, measure: str, value: float, unit: str, **more: Any) -> Record:
        """A time of this machine."""
        return self._row(what, measure, value, unit, this_host(), load=load(), **{"band": CLOCKED_BAND, **more})

    def on_gpu(self, host: str, what: str, measure: str, value: float, unit: str, **more: Any) -> Record:
        """A time of a GPU, which `host` names with its driver and the peer's version."""
        return self._row(what, measure, value, unit, host, load=load(), **{"band": GPU_BAND, **more})

    def failed(
        self, what: str, measure: str, unit: str, error: str, *, is_modelled: bool = False, **more: Any
    ) -> Record:
        """A row in the place of one that could not be measured."""
        model = model_commit(self.tree) if is_modelled else ""
        return self._row(
            what, measure, None, unit, MODELLED if is_modelled else COUNTED, error=error, model=model, **more
        )

    def _row(self, what: str, measure: str, value: Any, unit: str, host: str, **more: Any) -> Record:
        if isinstance(value, float):
            value = four_digits(value)
        return Record(self.kind, what, measure, value, unit, host, commit(self.tree), now(), self.command, **more)
