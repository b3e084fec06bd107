"""Measuring a candidate in a process that may die: `measure(job)` is what an executor's workers run.

Each thread of the caller's keeps one worker process (`worker`). It has a time limit for building and one for running, and a limit of the memory that it
holds; when it dies, is too slow or holds more, it is ended and the job is a failed trial. Timings of one host take turns behind a file lock.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..folders import lock_folder

try:
    import fcntl
except ImportError:  # not on Windows: timings do not wait for another
    fcntl = None  # type: ignore[assignment]

Job = dict[str, Any]
Outcome = dict[str, Any]  # "ratio", "seconds", "rival_seconds"; or "error"

# How often a worker's memory is looked at: at 10 GB/s, what two cores can fill, it is 200 MB over its limit by then.
_LOOK_SECONDS = 0.02

_LOCAL = threading.local()
_CHILDREN: set[Child] = set()


class Gone(Exception):
    """The worker process died, was too slow, or held too much memory."""


class Child:
    """One worker process."""

    def __init__(self) -> None:
        path = json.dumps([p for p in sys.path if p] + [str(Path(__file__).resolve().parents[2])])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tec.tuning.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the search, which ends its workers itself
            env={
                **os.environ,
                "TEC_COMPILE_WORKERS": "0",  # it is a process that may die
                "TEC_TUNE_PATH": path,
                "PYTHONPATH": os.pathsep.join(
                    [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
                ).rstrip(os.pathsep),
            },
        )
        _CHILDREN.add(self)

    def send(self, message: Any) -> None:
        data = pickle.dumps(message)
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(struct.pack("<q", len(data)) + data)
            self.process.stdin.flush()
        except OSError:
            raise Gone(self.last_words()) from None

    def receive(self, seconds: float, what: str, memory_bytes: int) -> Any:
        """The next message, from a process that holds so much memory at most. Raises Gone."""
        end = time.monotonic() + seconds
        head = self._read(8, end, what, memory_bytes)
        return pickle.loads(self._read(struct.unpack("<q", head)[0], end, what, memory_bytes))

    def _read(self, n: int, end: float, what: str, memory_bytes: int) -> bytes:
        assert self.process.stdout is not None
        out = b""
        while len(out) < n:
            left = end - time.monotonic()
            if left <= 0:
                raise Gone(f"{what} took too long")
            if not select.select([self.process.stdout], [], [], min(left, _LOOK_SECONDS))[0]:
                held = resident_bytes(self.process.pid)
                if held > memory_bytes:
                    raise Gone(f"out of memory: {what} held {held:,} bytes, and the limit is {memory_bytes:,}")
                continue
            part = os.read(self.process.stdout.fileno(), n - len(out))
            if not part:
                raise Gone(self.last_words())
            out += part
        return out

    def last_words(self) -> str:
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            return "the worker hangs"
        if code < 0:
            return f"the worker died of {signal.Signals(-code).name}"
        return f"the worker ended with {code}"

    def end(self) -> None:
        _CHILDREN.discard(self)
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass


def resident_bytes(pid: int) -> int:
    """The memory that a process holds; 0 where the system does not say. What it maps and does not touch is none: a GPU's driver reserves terabytes of
    addresses when it starts, so that a limit of the address space would keep it from starting."""
    try:
        with open(f"/proc/{pid}/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def measure(job: Job) -> Outcome:
    """Build, check and time a job's candidate against its rival, in this thread's worker process. Never raises for what the job does."""
    child: Child | None = getattr(_LOCAL, "child", None)
    if child is None or child not in _CHILDREN:
        child = _LOCAL.child = Child()
    try:
        child.send(job)
        answer = child.receive(job["build_seconds"], "building and one run", job["memory_bytes"])
        if "ready" in answer:
            with _turn(job["is_timed"]):
                child.send("go")
                answer = child.receive(job["run_seconds"], "running", job["memory_bytes"])
        return dict(answer)
    except Gone as error:
        child.end()
        return {"error": str(error)}


def end_children() -> None:
    """End all worker processes of this process: those that wait for one get a failed trial."""
    for child in list(_CHILDREN):
        child.end()


atexit.register(end_children)


@contextmanager
def _turn(is_timed: bool) -> Iterator[None]:
    """One timing at a time on this host, whoever tunes."""
    if not is_timed or fcntl is None:
        yield
        return
    folder = lock_folder()
    if folder is None:
        yield
        return
    with open(folder / "measure.lock", "a") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield  # closing the file gives the lock back
