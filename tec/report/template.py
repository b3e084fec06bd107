"""What the pages share: a template filled with a title, a style, scripts and data, and how the data of a page is found again."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

from ..errors import printable
from ..notebook import escape

DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.S)


def asset(name: str) -> str:
    """The text of a file of `assets/`."""
    return files("tec.report").joinpath("assets", name).read_text(encoding="utf-8")


def assets(*names: str) -> str:
    """The texts of several, one behind the other."""
    return "\n".join(map(asset, names))


def filled(template: str, title: str, style: str, script: str, data: dict[str, Any]) -> str:
    """The page that a template of `assets/` makes; `data` cannot end its script, nor does a text of it
    hold what turns the text around it."""
    parts = {
        "TITLE": escape(title),
        "STYLE": style,
        "SCRIPT": script,
        "DATA": json.dumps(_shown(data), separators=(",", ":")).replace("<", "\\u003c"),
    }
    return re.sub(r"@@([A-Z]+)@@", lambda m: parts[m[1]], asset(template))


def _shown(data: Any) -> Any:
    """Data with `printable` texts."""
    if isinstance(data, str):
        return printable(data)
    if isinstance(data, dict):
        return {_shown(k): _shown(v) for k, v in data.items()}
    return [_shown(x) for x in data] if isinstance(data, (list, tuple)) else data
