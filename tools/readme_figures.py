"""The table of figures in README.md, drawn from the stored results (benchmarks/results), so that no figure there is older than its row.

python -m tools.readme_figures          # writes the table between its marks; a test holds README.md against it
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from benchmarks.records import COUNTED, MODELLED, Record, newest, read

PAGE = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- figures: python -m tools.readme_figures -->", "<!-- end of figures -->"
# Kind, what, target, measure of the rows that are shown, in order. Ones that are not stored are left out.
SHOWN = [
    ("cpu", "resnet50", "llvm", "processor time"),
    ("cpu", "shufflenet", "llvm", "processor time"),
    ("cpu", "bert_layer", "llvm", "processor time"),
    ("h200", "matmul f16 8192", "sm_90a", "rate"),
    ("h200", "attention f16 d 128 4096", "sm_90a", "rate"),
    ("h200", "ResNet-50 f16 b1", "sm_90a", "time"),
    ("h200", "GPT-2 s128 f16 b1", "sm_90a", "time"),
    ("h200", "GPT-2 s128 f16 b32", "sm_90a", "time"),
    ("product", "product f16 4096", "gfx942", "time"),
    ("product", "attention f16 d 64", "gfx942", "time"),
    ("product", "softmax f16 4096 x 4096", "gfx942", "time"),
]
_HOSTS = {MODELLED: "the time model", COUNTED: "a count in the code"}


def _rounded(value: float) -> str:
    """Four digits, without an exponent."""
    return f"{float(f'{value:.4g}'):,.10g}"


def _number(value: float | str | None, unit: str) -> str:
    return f"{_rounded(value)} {unit}" if isinstance(value, (int, float)) else "not measured"


def _row(r: Record, note: int) -> str:
    peer = f"{r.peer}: {_number(r.peer_value, r.unit)}" if r.peer_value is not None else ""
    return f"| {r.what}, {r.measure} | {r.target} [{note}] | {_number(r.value, r.unit)} | {peer} |"


def _origin(r: Record) -> str:
    """Where a row was measured, and of which commit."""
    return f"{_HOSTS.get(r.host, r.host)}; {r.source or f'commit {r.commit}'}, {r.date[:10]}"


def _notes(shown: list[Record]) -> list[str]:
    """Each origin, with how the peers of its rows were run: every setting once."""
    settings: dict[str, dict[str, list[str]]] = {}
    for r in shown:
        peers = settings.setdefault(_origin(r), {})
        if r.peer_settings and r.peer not in peers.setdefault(r.peer_settings, []):
            peers[r.peer_settings].append(r.peer)
    return [
        ". ".join([origin, *(f"{', '.join(names)}: {text}" for text, names in peers.items())])
        for origin, peers in settings.items()
    ]


def table(rows: list[Record]) -> str:
    """The table of the rows that are shown, the newest of each on any machine (the page of results has the others). Below it, each host with its peers' settings."""
    by_name: dict[tuple[str, ...], Record] = {}
    for r in sorted(newest(rows).values(), key=lambda r: r.date):
        by_name[r.kind, r.what, r.target, r.measure] = r
    shown = [by_name[key] for key in SHOWN if key in by_name]
    origins = list(dict.fromkeys(map(_origin, shown)))
    lines = [_row(r, origins.index(_origin(r)) + 1) for r in shown]
    below = "\n".join(
        textwrap.fill(f"{n}. {text}.", 98, subsequent_indent="   ", break_long_words=False)
        for n, text in enumerate(_notes(shown), 1)
    )
    return "\n".join(["| what | where | tec | peer |", "| --- | --- | --- | --- |", *lines, "", below])


def drawn(page: str, rows: list[Record]) -> str:
    """The page with its table drawn anew. Raises ValueError for a page without the marks."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no table of figures between {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{table(rows)}\n\n{END}{tail}"


def write() -> None:
    """Draws README.md's table anew."""
    PAGE.write_text(drawn(PAGE.read_text("utf-8"), read()), encoding="utf-8")


if __name__ == "__main__":
    write()
