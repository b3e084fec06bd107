"""The stored results as Markdown: the newest row of each, a table a kind.

    python -m tools.results_page

`docs/results.md` says how results are kept; the site's hook puts the tables in the place of its mark.
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.records import Record, newest, read

MARK = "<!-- results -->"
TITLES = {
    "network": "Networks: modelled times, launches, reckoned clocks",
    "product": "Kernels on gfx942, modelled",
    "cliff": "Random operators",
    "cpu": "Networks beside ONNX Runtime on one thread",
    "h200": "One H200",
    "collective": "Several GPUs",
    "memory_bound": "Kernels that move data, modelled",
    "time_model": "The time model against results of others",
    "emulator": "Speed of the software GPU",
    "torch": "PyTorch models beside inductor",
    "lm": "Language models",
    "tile": "Tiles beside Triton",
    "compile": "Compilation",
    "suites": "Test suites",
    "tests": "Tests",
    "house": "Figures of the sources",
    "choices": "Choices that drawn operators use",
}
_LEFT_OUT = ("assembly", "instructions")  # measures for comparisons of trees: nobody reads a digest


def _cell(x: object) -> str:
    return str(x).replace("|", "\\|").replace("\n", " ")


def _line(r: Record) -> str:
    value = (
        f"error: {r.error}"
        if r.error
        else f"{r.value:g} {r.unit}"
        if isinstance(r.value, (int, float)) and abs(r.value) < 1e6
        else f"{r.value} {r.unit}"
    )
    peer = f"{r.peer} {'' if r.peer_value is None else format(r.peer_value, 'g')}" if r.peer else ""
    ratio = "" if r.ratio is None else f"{r.ratio:g}"
    where = r.host + (f", load {r.load:g}" if r.load is not None else "") + (f"; from {r.source}" if r.source else "")
    cells = (r.what, r.target, r.measure, value, peer, ratio, f"{r.commit}, {r.date}", where)
    return "| " + " | ".join(map(_cell, cells)) + " |"


def tables(rows: Iterable[Record]) -> str:
    """The newest rows, by kind."""
    found = [r for r in newest(rows).values() if r.measure not in _LEFT_OUT]
    out = []
    for kind in [*TITLES, *sorted({r.kind for r in found} - TITLES.keys())]:
        some = [r for r in found if r.kind == kind]
        if not some:
            continue
        out += [f"## {TITLES.get(kind, kind)}", ""]
        out += [f"Measured by `{c}`." for c in dict.fromkeys(r.command for r in some if not r.source)]
        carried = dict.fromkeys((r.command, r.source) for r in some if r.source)
        out += [f"Carried over from {source}, measured there by `{c}`." for c, source in carried]
        out += [
            f"Peer's settings, {p}: {s}."
            for p, s in dict.fromkeys((r.peer, r.peer_settings) for r in some if r.peer_settings)
        ]
        out += [
            "",
            "| what | target | measure | tec | peer | ratio | commit, date | host |",
            "| --- " * 8 + "|",
            *map(_line, some),
            "",
        ]
    return "\n".join(out)


def with_tables(markdown: str) -> str:
    """A page with the tables in the place of their mark."""
    return markdown.replace(MARK, tables(read())) if MARK in markdown else markdown


if __name__ == "__main__":
    print(tables(read()))
