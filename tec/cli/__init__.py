"""The `tec` command: compile, run, bench, verify, show, ops, doctor, cache, completion.

`main` is the entry point. Nothing but click is imported until a command runs, so `tec --help` is quick; without click
(the extra `cli`) it says in one line what to install. Exit codes stand in `tec.cli.errors`.
"""

from __future__ import annotations

import sys

from ..errors import install


def main() -> None:
    """Run the command line of this process; never returns."""
    try:
        from .app import app
    except ImportError as error:
        name = (error.name or "").partition(".")[0]
        if name not in ("click", "rich"):
            raise
        print(f"tec: the command line needs the package {name} ({install('cli')})", file=sys.stderr)
        sys.exit(1)
    app.main(prog_name="tec")


__all__ = ["main"]
