"""`tec doctor --report FILE -- COMMAND...`: what a report of a fault needs, in one file of JSON that is fit to be sent.

The command runs once more, with tracebacks. Of models there go the operators, their versions and the types of inputs and outputs, no weights, no
names of nodes; the user's home folder is written `~`.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from ..runtime.outputs import write_output
from . import common
from .errors import Refused

_MOST = 40_000  # letters kept of what the command printed, from the end: a traceback stands there


def write(path: Path, checks: list[dict[str, str]], command: tuple[str, ...], names: frozenset[str]) -> dict[str, Any]:
    """Write the report; `command` is one of tec's own (`names`) or any program. Raises ArgumentError where FILE cannot be written."""
    facts: dict[str, Any] = {
        "platform": platform.platform(),
        "machine": platform.machine(),
        "checks": checks,
        "settings": {k: v for k, v in sorted(os.environ.items()) if k.startswith("TEC_")},
    }
    if command:
        facts["command"] = list(command)
        facts.update(_run(command, names))
        facts["models"] = [_model(Path(a)) for a in command if a.endswith(".onnx") and Path(a).is_file()]
    text = json.dumps(facts, indent=1).replace(os.path.expanduser("~") + os.sep, "~" + os.sep)
    write_output(path, text + "\n")
    return facts


def _run(command: tuple[str, ...], names: frozenset[str]) -> dict[str, Any]:
    own = command[0] in names
    argv = [sys.executable, "-m", "tec.cli", *command] if own else list(command)
    try:
        done = subprocess.run(
            argv,
            env={**os.environ, "TEC_TRACEBACK": "1"},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise Refused(f"{command[0]}: {error.strerror or error}", "a command of tec, or a program") from None
    return {"exit_code": done.returncode, "stdout": done.stdout[-_MOST:], "stderr": done.stderr[-_MOST:]}


def _model(path: Path) -> dict[str, Any]:
    """A model's operators without its weights, as the frontend describes it."""
    facts: dict[str, Any] = {"bytes": path.stat().st_size}
    try:
        found: dict[str, Any] = common.frontend().describe(str(path))
    except Exception as error:  # a model that cannot be read may be the fault
        return {**facts, "error": f"{type(error).__name__}: {error}"}
    return {**facts, **found}
