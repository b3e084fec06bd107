"""How far a compilation is: a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

from ..errors import one_line

_BAR = 24
_LINE_SECONDS = 10.0


def default_progress(stream: Any = None, clock: Any = time.monotonic) -> Any:
    """What shows how far a long compilation is: a bar that grows on a terminal, now and then a line in a log."""
    out = sys.stderr if stream is None else stream
    last = clock()

    def bar(done: int, total: int, what: str) -> None:
        full = _BAR * done // max(total, 1)
        end = "\n" if done == total else ""
        print(
            f"\r\x1b[Kcompiling [{'#' * full:<{_BAR}}] {done}/{total} {one_line(what[:50])}",
            end=end,
            file=out,
            flush=True,
        )

    def line(done: int, total: int, what: str) -> None:
        nonlocal last
        now = clock()
        if now - last >= _LINE_SECONDS:
            last = now
            print(f"compiling {done}/{total} {one_line(what[:80])}", file=out, flush=True)

    return bar if out.isatty() else line
