"""`net.show()`: the page, written and opened."""

from __future__ import annotations

import tempfile
import webbrowser
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from ..runtime.outputs import is_stream, write_output
from .page import page


class Shown:
    """A page that was written: `path`. Notebooks show it in the cell."""

    def __init__(self, path: Path, text: str):
        self.path, self._text = path, text

    def __repr__(self) -> str:
        return f"<tec report {self.path}>"

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self._text)}" style="width:100%;height:85vh;border:1px solid #8888" title="report"></iframe>'


def show(
    net: Any,
    path: str | Path | None = None,
    *,
    device: Any = None,
    measure: bool | None = None,
    against: str | Path | None = None,
    sizes: Mapping[str, int] | None = None,
    open_browser: bool | None = None,
) -> Shown:
    """Write the page of a network, and open it in a browser (in a notebook: in the cell).

    path: the file, a temporary one by default. device: to time kernels on; the target's own by default, where there is none the time model of the
    software GPU. measure: False takes no times. against: an earlier page, to compare with. sizes: of an open network, 1 for those that are
    not named. open_browser: by default unless a notebook shows it. Raises ArgumentError for a path that is no page's.
    """
    file = Path(tempfile.mkdtemp(prefix="tec-")) / "report.html" if path is None else Path(path)
    if file.suffix not in (".html", ".htm") and not is_stream(file):
        raise ArgumentError(f"{file}: a page's name ends in .html", hint="--html report.html")
    title = "network"
    if net.open_sizes:
        bound = {**dict.fromkeys(net.open_sizes, 1), **(sizes or {})}
        net = net.bind(bound)
        title += " with " + ", ".join(f"{name} = {n}" for name, n in bound.items())
    elif sizes:
        raise ArgumentError(
            f"the network has no open size {next(iter(sizes))!r}",
            hint="`tec show` lists the inputs' sizes; name one of them",
        )
    text = page(net, title, device, measure, against)
    write_output(file, text)
    if open_browser is None:
        open_browser = not _in_notebook() and not is_stream(file)
    if open_browser:
        webbrowser.open(file.resolve().as_uri())
    return Shown(file, text)


def _in_notebook() -> bool:
    try:
        return type(get_ipython()).__name__ == "ZMQInteractiveShell"  # type: ignore[name-defined]
    except NameError:
        return False
