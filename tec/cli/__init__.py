"""The `tec` command: compile, run, bench, verify, show, ops, doctor, cache, completion.

`main` is the entry point. Nothing but click is imported until a command runs, so `tec --help` is quick; without click
(the extra `cli`) it says in one line what to install. Exit codes stand in `tec.cli.errors`.
"""

from __future__ import annotations

import gc
import os
import sys

from ..errors import install

# New objects before Python looks for cycles; `tec.collector` says why rarely. A start from the disk makes some 100,000 that stay, and every look walks through them: with
# Python's own 700 that was a thirtieth of its instructions.
_YOUNG_OBJECTS = 100_000


def main() -> None:
    """Run the command line of this process; never returns."""
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])
    _open_streams()
    try:
        from .app import app
    except ImportError as error:
        name = (error.name or "").partition(".")[0]
        if name not in ("click", "rich"):
            raise
        print(f"tec: the command line needs the package {name} ({install('cli')})", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:  # while the command line itself is loaded
        print("tec: interrupted", file=sys.stderr)
        sys.exit(130)
    app.main(prog_name="tec")


def _open_streams() -> None:
    """Standard streams that the caller closed (`tec ops >&-`) are the null device. Python has None for them, and the next file would get their number."""
    while (handle := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(handle)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", errors="replace", closefd=False))


__all__ = ["main"]
