"""What searches found, kept in SQLite: read by every compilation, written by `tec.tune`.

A record is keyed by what is computed (a group's signature), the target, the machine and the version of the templates; trials under the same key make a
search that was cut off go on where it was. Several processes may read and write at once (write-ahead log). Records go to JSON lines and back, and are
merged by what they gain.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...errors import DeviceError, TecError
from ...records import dataclass
from ...runtime.devices.device import as_device
from ...target import Machine, Target, product_of_device
from ..space import Choice

_BUSY_SECONDS = 30.0  # a writer waits so long for another one
_SCHEMA = """
create table if not exists records (
    signature text, target text, machine text, version text, name text, choice text, seconds real, default_seconds real, how text, trials integer, at real,
    primary key (signature, target, machine, version));
create table if not exists trials (
    signature text, target text, machine text, version text, choice text, against text, ratio real, seconds real, error text, at real,
    primary key (signature, target, machine, version, choice, against));
"""


@dataclass(frozen=True, slots=True)
class Key:
    """What a record is about."""

    signature: str
    target: str
    machine: str
    version: str


@dataclass(frozen=True, slots=True)
class Record:
    """The best choice that a search found and its time beside the default's, in seconds. how: "measured", or "model-ranked" where the times are
    the software GPU's."""

    signature: str
    target: str
    machine: str
    version: str
    name: str
    choice: Choice
    seconds: float
    default_seconds: float
    how: str
    trials: int
    at: float = 0.0  # seconds since 1970

    @property
    def gain(self) -> float:
        """How many times as fast as the default."""
        return self.default_seconds / self.seconds


@dataclass(frozen=True, slots=True)
class Trial:
    """One measurement of a choice against another: the ratio of their times, seconds of the choice; or why it failed."""

    choice: str
    against: str
    ratio: float | None
    seconds: float | None
    error: str | None = None


def key_text(choice: Mapping[str, Any]) -> str:
    """A choice as one text, equal for equal choices."""
    return json.dumps(choice, sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=1)
def templates_version() -> str:
    """Names what choices mean: a digest of the sources of templates and their pieces. Records of other ones are left aside."""
    h, folder = hashlib.sha256(), Path(__file__).parents[1]
    for path in sorted(folder.rglob("*.py")):
        h.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return h.hexdigest()[:12]


def machine_text(machine: Machine) -> str:
    """The machine in a key: one kind of core with other counts of them is another machine."""
    return f"{machine.name} x {machine.units}"


def machine_key(target: Target) -> str:
    """The machine in the key of a target's records: what is timed. Where a GPU's target names an architecture alone, it is the GPU of that
    architecture in this host, and without one the product that the architecture stands for."""
    if target.is_gpu and not target.names_product:
        try:
            device = as_device(target.kind)
        except DeviceError:
            return machine_text(target.machine)
        if _architecture(device.arch) == _architecture(target.chip.name):
            product = product_of_device(device.name)
            return f"{product.name if product is not None else device.name} x {device.compute_units}"
    return machine_text(target.machine)


def _architecture(name: str) -> str:
    """Of a device or a target, without features: sm_90a -> sm_90, gfx942:xnack- -> gfx942."""
    base = name.partition(":")[0]
    return base.rstrip("af") if base.startswith("sm_") else base


def default_path() -> Path | None:
    """Where records lie: TEC_TUNE_DB ("off" for nowhere), else a file among the user's data."""
    text = os.environ.get("TEC_TUNE_DB")
    if text is not None:
        return None if text.strip().lower() in ("", "0", "off") else Path(text)
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "tec" / "tune.db"


class Database:
    """A file of records and trials. Each method is one transaction; one object serves one thread."""

    def __init__(self, path: str | os.PathLike[str], read_only: bool = False):
        self.path = Path(path)
        try:
            if read_only:
                self._db = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", timeout=_BUSY_SECONDS, uri=True)
            else:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._db = sqlite3.connect(self.path, timeout=_BUSY_SECONDS)
                self._db.execute("pragma journal_mode=wal")
                self._db.executescript(_SCHEMA)
            self._db.execute("select 1 from records limit 1")
        except (sqlite3.Error, OSError) as error:
            raise TecError(
                f"{path}: no database of tuning records: {error}", hint="TEC_TUNE_DB names the file", locate=False
            ) from None

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # ---- records

    def put(self, record: Record) -> None:
        """Keep a record in place of the one of its key."""
        row = {**asdict(record), "choice": key_text(record.choice)}
        self._write("records", [row])

    def records(self, target: str | None = None, machine: str | None = None) -> list[Record]:
        """All records, or those of a target and a machine, in a fixed order."""
        where = "where (:target is null or target = :target) and (:machine is null or machine = :machine)"
        rows = self._read(f"select {_COLUMNS} from records {where} order by signature, target, machine, version", {"target": target, "machine": machine})  # fmt: skip
        return [Record(**{**dict(zip(_NAMES, row)), "choice": json.loads(row[_NAMES.index("choice")])}) for row in rows]

    def merge(self, records: Iterable[Record]) -> int:
        """Take in records from elsewhere; of two with one key the one that gains more stays. Returns how many were taken."""
        have = {_key(r): r for r in self.records()}
        taken = 0
        for r in records:
            old = have.get(_key(r))
            if old is None or r.gain > old.gain:
                self.put(r)
                have[_key(r)] = r
                taken += 1
        return taken

    # ---- trials

    def add_trial(self, key: Key, trial: Trial) -> None:
        self._write("trials", [{**asdict(key), **asdict(trial), "at": time.time()}])

    def trials(self, key: Key) -> dict[tuple[str, str], Trial]:
        """{(choice, against): trial} of a search."""
        rows = self._read(
            "select choice, against, ratio, seconds, error from trials "
            "where signature = ? and target = ? and machine = ? and version = ?",
            (key.signature, key.target, key.machine, key.version),
        )
        return {(row[0], row[1]): Trial(*row) for row in rows}

    # ---- SQL

    def _write(self, table: str, rows: list[dict[str, Any]]) -> None:
        names = list(rows[0])
        text = f"insert or replace into {table} ({', '.join(names)}) values ({', '.join(':' + n for n in names)})"
        try:
            with self._db:
                self._db.executemany(text, rows)
        except sqlite3.Error as error:
            raise TecError(f"{self.path} cannot be written: {error}", locate=False) from None

    def _read(self, text: str, values: tuple[Any, ...] | dict[str, Any]) -> list[Any]:
        try:
            return self._db.execute(text, values).fetchall()
        except sqlite3.Error as error:
            raise TecError(f"{self.path} cannot be read: {error}", locate=False) from None


_NAMES = [f.name for f in fields(Record)]
_COLUMNS = ", ".join(_NAMES)


def _key(r: Record) -> Key:
    return Key(r.signature, r.target, r.machine, r.version)


# ---- JSON lines


def to_lines(records: Iterable[Record]) -> Iterator[str]:
    """A line of JSON a record."""
    for r in records:
        yield json.dumps(asdict(r), sort_keys=True)


def from_lines(lines: Iterable[str], origin: str = "records") -> Iterator[Record]:
    """Records of JSON lines. Raises TecError, which says the line."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = Record(**json.loads(line))
            if not isinstance(record.choice, dict) or not (record.seconds > 0 and record.default_seconds > 0):
                raise ValueError("a choice and times are wanted")
        except (ValueError, TypeError) as error:
            raise TecError(f"{origin}:{number}: no tuning record: {error}", locate=False) from None
        yield record


# ---- for a compilation


class Tuned:
    """The records of a target and its machine, as a lookup for `records.using`."""

    def __init__(self, found: Iterable[Record], version: str):
        self.version = version
        self.choices: dict[str, Choice] = {}
        self.stale: set[str] = set()
        for r in found:
            if r.version == version:
                self.choices[r.signature] = r.choice
            else:
                self.stale.add(r.signature)
        self.stale -= set(self.choices)
        self._said = False

    @property
    def stamp(self) -> str:
        """Names the records: other ones make other code."""
        return hashlib.sha256(repr(sorted((s, key_text(c)) for s, c in self.choices.items())).encode()).hexdigest()

    def __call__(self, signature: str, target: Target, machine: Machine) -> Choice | None:
        if signature in self.stale and not self._said:
            self._said = True
            warnings.warn(
                "tuning records of this network were made with other templates and are left aside: `tec tune` makes new ones",
                stacklevel=2,
            )
        return self.choices.get(signature)


def tuned(which: bool | str | os.PathLike[str], target: Target, version: str | None = None) -> Tuned | None:
    """The records for a target: of the default file for True, of a file that must be there for its path; None without any. Raises TecError for a
    file that is none."""
    if which is False:
        return None
    path = default_path() if which is True else Path(which)
    if path is None or (which is True and not path.exists()):
        return None
    if not path.exists():
        raise TecError(
            f"{path}: no such file of tuning records",
            hint="`tec tune --db` or tec.tune(db=...) makes one",
            locate=False,
        )
    try:
        with Database(path, read_only=True) as db:
            found = db.records(str(target), machine_key(target))
    except TecError as error:
        if which is not True:
            raise
        warnings.warn(f"the defaults stand in: {error.message}", stacklevel=3)
        return None
    return Tuned(found, version or templates_version()) if found else None
