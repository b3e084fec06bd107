"""A named pipe with a reader, for tests of what is written into it."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


def through_pipe(pipe: Path, call: Callable[[], Any]) -> tuple[Any, bytes]:
    """What `call()` gives, and what a reader of a pipe gets while it runs."""
    os.mkfifo(pipe)
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    thread.start()
    with open(pipe, "wb"):  # once the reader is there; without another writer it would be at the end at once
        result = call()
    thread.join(30)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    return result, got[0]
