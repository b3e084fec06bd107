"""The explorer's page: its template with the program, the targets, and the answers that are known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from ..report.template import assets, filled
from ..target import MACHINES

EXAMPLE = """import tec
from tec import te

# B = 2 A, four elements of a row for each thread.
A = te.placeholder((64, 128), name="A")
B = te.compute((64, 128), lambda i, j: A[i, j] * 2.0, name="B")
s = tec.create_schedule(B.op)

i, j = s[B].op.axis
t, v = s[B].split(j, factor=4)
s[B].bind(i, te.thread_axis("blockIdx.x"))
s[B].bind(t, te.thread_axis("threadIdx.x"))
s[B].vectorize(v)
"""


def targets() -> list[dict[str, str]]:
    """{"text", "name"} of what a program can be compiled for: this CPU, and each GPU of the table of machines."""
    found = [{"text": "llvm", "name": "this CPU"}]
    for key, m in MACHINES.items():
        option = "rocm -mcpu" if m.chip.startswith("gfx") else "cuda -arch"
        found.append({"text": f"{option}={key}", "name": f"{m.name} ({m.chip})"})
    return found


def live_page(code: str, target: str) -> str:
    """The page of a server."""
    return _filled({"code": code, "target": target, "targets": targets(), "live": True, "answers": {}}, "tec explore")


def exported(code: str, answers: Sequence[tuple[str, dict[str, Any]]], title: str) -> str:
    """A page that needs no server: a program, and what became of it for some targets, (text, answer) each."""
    names = {t["text"]: t["name"] for t in targets()}
    known = [{"text": t, "name": names.get(t, t)} for t, _ in answers]
    return _filled(
        {
            "code": code,
            "target": next((t for t, said in answers if "error" not in said), answers[0][0]),
            "targets": known,
            "live": False,
            "answers": dict(answers),
        },
        title,
    )


def _filled(data: dict[str, Any], title: str) -> str:
    style, script = assets("palette.css", "explore.css", "listing.css"), assets("words.js", "explore.js")
    return filled("explore.html", title, style, script, data)


def program(path: Path) -> str:
    """The text of a program. Raises ArgumentError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path}: cannot be read: {error}", locate=False) from None
