"""The process in which programs run. One that does not answer in time, or dies, is ended with all that it started, and the next question gets a new one."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

_START_SECONDS = 60.0  # a cold import on a loaded machine; a program's own limit begins when the worker is there


class Worker:
    """Runs programs one after the other. seconds: the limit of one. Use it as a context, or `close` it."""

    def __init__(self, seconds: float = 20.0):
        self.seconds = seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        # Held here, since a process that is killed removes nothing.
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._is_warm = False

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def ask(self, code: str, target: str) -> dict[str, Any]:
        """What `inside.explain` says of a program; an {"error"} of its own where it takes too long, or its process ends. Any thread may ask; they wait for each
        other."""
        with self._lock:
            start = time.perf_counter()
            said = self._ask(json.dumps({"code": code, "target": target}).encode() + b"\n")
            said["seconds"] = round(time.perf_counter() - start, 3)
            return said

    def start(self) -> None:
        """Begin a process ahead of the first question."""
        with self._lock:
            self._running()

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._is_warm = False
            self._folder = tempfile.TemporaryDirectory(prefix="tec-explore-", ignore_cleanup_errors=True)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tec.explore.inside", self._folder.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                start_new_session=True,  # so that what it starts ends with it
            )  # fmt: skip
        return self._process

    def _ask(self, line: bytes) -> dict[str, Any]:
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        limit = self.seconds if self._is_warm else self.seconds + _START_SECONDS
        try:
            process.stdin.write(line)
            process.stdin.flush()
            found = _line(process.stdout.fileno(), time.monotonic() + limit)
        except OSError:
            found = b""
        if found is None:
            self._end()
            return _error(
                f"the program was ended: it took more than {limit:g} seconds",
                "a loop that never ends? tec explore --seconds N allows more",
            )
        if not found:
            status = process.wait()
            self._end()
            how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
            return _error(f"the program ended its process ({how})", "")
        self._is_warm = True
        said: dict[str, Any] = json.loads(found)
        return said

    def _end(self) -> None:
        process, self._process = self._process, None
        folder, self._folder = self._folder, None
        if process is not None:
            _end_with_children(process)
        if folder is not None:
            folder.cleanup()


def _end_with_children(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for end in (process.stdin, process.stdout):
        if end is not None:
            with contextlib.suppress(OSError):
                end.close()


def _line(source: int, until: float) -> bytes | None:
    """The next line of a pipe; b"" where it ends, None where the time is over."""
    parts: list[bytes] = []
    while True:
        if not select.select([source], [], [], max(0.0, until - time.monotonic()))[0]:
            return None
        got = os.read(source, 1 << 16)
        if not got:
            return b""
        parts.append(got)
        if got.endswith(b"\n"):
            return b"".join(parts)


def _error(message: str, hint: str) -> dict[str, Any]:
    return {"error": {"message": message, "hint": hint, "line": 0}, "printed": ""}
