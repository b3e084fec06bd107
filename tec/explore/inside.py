"""The worker's program: runs a text in a fresh namespace and says what becomes of it. `python -m tec.explore.inside FOLDER`.

A line of JSON comes in, {"code", "target"}, and one goes out: {"answer"} or {"error": {"message", "hint", "line"}}, each with "printed". What a program prints does not
reach the line out, and it reads nothing from the line in.
"""

from __future__ import annotations

import contextlib
import io
import json
import linecache
import os
import resource
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any, TextIO

from ..errors import TecError
from .answer import answer
from .subject import Subject, found, subject_of

_MOST_PRINTED = 20_000  # letters that are kept
_BYTES = 12 << 30  # of address space: what LLVM and NumPy map is some 2 GB, and a program's mistake is to end here


class _Kept(io.StringIO):
    """Keeps the first letters that are written."""

    def write(self, text: str) -> int:
        room = _MOST_PRINTED - self.tell()
        super().write(text[: max(0, room)])
        return len(text)


def explain(code: str, target: str, file: str) -> dict[str, Any]:
    """What becomes of a program for a target; never raises what the program does."""
    printed = _Kept()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), warnings.catch_warnings():
            warnings.simplefilter("always")
            said = {"answer": _answer(code, target, file)}
    except BaseException as error:  # SystemExit and KeyboardInterrupt of a program are its own
        said = {"error": _told(error, file)}
    return {**said, "printed": printed.getvalue()}


def _answer(code: str, target: str, file: str) -> dict[str, Any]:
    shown: list[Subject] = []

    def show(what: Any, *args: Any, **options: Any) -> None:
        """Show this: a schedule with its tensors, or a kernel with (shape, dtype) pairs, numbers, grid= and block=."""
        shown.append(subject_of(what, args, **options))

    Path(file).write_text(code, encoding="utf-8")
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": "__main__", "__file__": file, "show": show}
    exec(compile(code, file, "exec"), namespace)
    return answer(shown[-1] if shown else found(namespace), target, file)


def _told(error: BaseException, file: str) -> dict[str, Any]:
    """An error with the program's line that it is of, 0 where it is of none."""
    lines = [f.lineno or 0 for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    line = lines[-1] if lines else 0
    if isinstance(error, TecError):
        where = error.where
        return {
            "message": error.message,
            "hint": error.hint or "",
            "line": where.line if where is not None and where.file == file else line,
        }
    if isinstance(error, SyntaxError) and error.filename == file:
        return {"message": f"SyntaxError: {error.msg}", "hint": "", "line": error.lineno or 0}
    text = str(error) or "(no message)"
    return {"message": f"{type(error).__name__}: {text}"[:4000], "hint": "", "line": line}


def serve(into: TextIO, out: TextIO, folder: Path) -> None:
    """Answer each line until there is none."""
    for number, line in enumerate(into):
        asked = json.loads(line)
        # A name of its own for each, so that nothing kept of the one before is taken for this one.
        said = explain(asked["code"], asked["target"], str(folder / f"program{number}.py"))
        out.write(json.dumps(said) + "\n")
        out.flush()


def main() -> None:
    into = open(os.dup(0), encoding="utf-8")
    out = open(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDWR)
    for n in (0, 1, 2):
        os.dup2(nothing, n)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    folder = sys.argv[1]  # for the texts of programs and what they write; the worker's, which removes it
    os.chdir(folder)
    sys.path.insert(0, folder)
    serve(into, out, Path(folder).resolve())


if __name__ == "__main__":
    main()
