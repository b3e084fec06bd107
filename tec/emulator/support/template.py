"""The library's LLVM IR lies in `.ll` files beside this one, in sections: `;;; name` begins one. `$name` stands for what its caller fills in, `$CTX.field`
(so `$PARAMS`, `$TRACE`) for an offset of `context`, and a name in capitals for a constant of `context` or of the race check's records.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from .. import context
from ..checks import fills, race_record

_FIELD = re.compile(r"\$(?:\{([\w.]+)\}|(\w+(?:\.\w+)?))")


@cache
def _sections(file: str) -> dict[str, str]:
    text = Path(__file__).with_name(f"{file}.ll").read_text("utf-8")
    parts = re.split(r"^;;; (\w+)\n", text, flags=re.M)
    return {name: body.strip("\n") + "\n" for name, body in zip(parts[1::2], parts[2::2])}


def _constant(name: str) -> object:
    table, _, field = name.partition(".")
    if field:
        return getattr(context, table)[field]
    for module in (context, race_record, fills):
        if hasattr(module, name) and name.isupper():
            return getattr(module, name)
    raise KeyError(name)


@cache
def _pieces(place: str) -> tuple[list[str], frozenset[str]]:
    """A section's text and the fields' names in turn, with the constants in their places; and the names."""
    file, _, section = place.partition(".")
    pieces, names, done = [""], [], 0
    text = _sections(file)[section]
    for m in _FIELD.finditer(text):
        pieces[-1] += text[done : m.start()]
        done = m.end()
        name = m[1] or m[2]
        if "." in name or name.isupper():
            pieces[-1] += str(_constant(name))
        else:
            names.append(name)
            pieces += [name, ""]
    pieces[-1] += text[done:]
    return pieces, frozenset(names)


def ir(place: str, /, **fields: object) -> str:
    """The section of "file.section", filled in. Raises KeyError for a name that nobody fills in, and for a field that is none of its names."""
    pieces, names = _pieces(place)
    if fields.keys() != names:
        raise KeyError(f"{place} has no {', '.join(sorted(fields.keys() ^ names))}")
    out = pieces.copy()
    out[1::2] = [str(fields[name]) for name in pieces[1::2]]
    return "".join(out)
