"""The picture of figures in README.md, drawn from the stored results (benchmarks/results), so that no figure there is older than its row.

    python -m tools.readme_figures          # writes docs/pictures/figures.svg; a test compares it with the results

Each row is a point on a logarithmic axis: tec's time over the peer's. docs/results.md lists the
same rows with their hosts, commands and peers' settings.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from html import escape

from benchmarks.records import COUNTED, MODELLED, ROOT, Record, newest, read

PICTURE = ROOT / "docs" / "pictures" / "figures.svg"
MARK = "<!-- figures of the README -->"
# Kind, what, target, measure of the rows that are shown, by device. Rows that are not stored are left out.
# They are of every kind of program that the page names; each device has rows on both sides of 1.
SHOWN = {
    "CPU": [
        ("cpu", "resnet50", "llvm", "processor time"),
        ("cpu", "bert_layer", "llvm", "processor time"),
        ("cpu", "shufflenet", "llvm", "processor time"),
        ("lm", "SmolLM2-135M Q8_0", "llvm", "write 64 tokens, one thread"),
        ("cpu", "kernel: n-body of 1024", "llvm", "processor time"),
        ("cpu", "kernel: stencil 1024 x 1024", "llvm", "processor time"),
    ],
    "NVIDIA GPU": [
        ("h200", "matmul f16 8192", "sm_90a", "rate"),
        ("h200", "attention f16 d 128 4096", "sm_90a", "rate"),
        ("h200", "ResNet-50 f16 b1", "sm_90a", "time"),
        ("h200", "GPT-2 s128 f16 b1", "sm_90a", "time"),
        ("h200", "GPT-2 s128 f16 b32", "sm_90a", "time"),
        ("tile", "tutorial 03, matmul f16 4096", "sm_90a", "time"),
        ("tile", "tutorial 02, softmax f32 4096 x 4096", "sm_90a", "time"),
    ],
    "AMD GPU": [
        ("product", "product f16 4096", "gfx942", "time"),
        ("product", "attention f16 d 64", "gfx942", "time"),
        ("product", "softmax f16 4096 x 4096", "gfx942", "time"),
        ("product", "product f32 4096", "gfx90a", "time"),
        ("product", "product f16 4096", "gfx1100", "time"),
    ],
}
_HOSTS = {MODELLED: "times of the time model, not of a GPU", COUNTED: "a count in the code"}

# Pixels. On a phone of 390 px the picture has 0.6 of its width: letters of 15 px are then 9 px high.
WIDTH, _LEFT, _RIGHT = 600, 300, 592
_ROW, _HEAD, _TOP, _BOTTOM = 40, 34, 44, 30
_LINES = 16  # between the lines that say where a device's rows were measured
_STYLE = """
text { font: 15px ui-sans-serif, system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1c1f24; }
.device { font-weight: 700; font-size: 16px; } .small { font-size: 13.5px; fill: #565d67; }
.end { text-anchor: end; } .mid { text-anchor: middle; }
.page { fill: #fff; stroke: #d5d8dc; } .grid { stroke: #e3e5e8; } .equal { stroke: #565d67; stroke-dasharray: 4 3; }
.less { fill: #1d5c93; } .more { fill: #a8371f; } line.less { stroke: #1d5c93; } line.more { stroke: #a8371f; }
line.less, line.more { stroke-width: 3; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e8eb; } .small { fill: #aab1bb; } .page { fill: #16191e; stroke: #3a3f47; } .grid { stroke: #2c3138; }
  .equal { stroke: #aab1bb; } .less { fill: #6db3e8; } .more { fill: #f0907a; } line.less { stroke: #6db3e8; } line.more { stroke: #f0907a; }
}
"""


def shown(rows: Iterable[Record]) -> dict[str, list[Record]]:
    """The rows of the picture by device: of each the newest on any machine (docs/results.md has the others)."""
    by_name: dict[tuple[str, ...], Record] = {}
    for r in sorted(newest(rows).values(), key=lambda r: r.date):
        if r.ratio is not None:
            by_name[r.kind, r.what, r.target, r.measure] = r
    return {device: [by_name[key] for key in keys if key in by_name] for device, keys in SHOWN.items()}


def _number(value: float | str | None) -> str:
    """Four digits, without an exponent."""
    return f"{float(f'{value:.4g}'):,.10g}" if isinstance(value, (int, float)) else "not measured"


def _name(r: Record) -> str:
    """What was measured. The target where a device has several, the measure where it is no plain time or rate."""
    measure = "" if r.measure in ("time", "processor time", "rate") else f", {r.measure}"
    before = f"{r.target}: " if r.target.startswith("gfx") else "Triton's " if r.kind == "tile" else ""
    return f"{before}{r.what}{measure}"


def _values(r: Record) -> str:
    peer = "" if r.peer_value is None else f"; {r.peer} {_number(r.peer_value)}"
    return f"tec {_number(r.value)} {r.unit}{peer}"


def _origin(r: Record) -> str:
    return f"{_HOSTS.get(r.host, r.host)}; {r.source or f'commit {r.commit}'}, {r.date[:10]}"


def _where(rows: list[Record]) -> list[str]:
    """The hosts of a device's rows, each with its commits and dates, in lines that fit the picture."""
    found: dict[str, dict[str, None]] = {}
    for r in rows:
        commit = "commit not stated" if r.commit == "not stated" else r.commit[:7]
        found.setdefault(_HOSTS.get(r.host, r.host), {})[f"{commit}, {r.date[:10]}"] = None
    text = ". ".join(f"{host} ({'; '.join(commits)})" for host, commits in found.items())
    return textwrap.wrap(f"{text}.", 74, break_long_words=False)


def _ticks(low: float, high: float) -> list[float]:
    """The powers of two between two bounds."""
    return [2.0**k for k in range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)]


def picture(rows: Iterable[Record]) -> str:
    """The rows as SVG, light or dark as the reader has it. Raises ValueError where no row is stored."""
    devices = {device: some for device, some in shown(rows).items() if some}
    ratios = [r.ratio for some in devices.values() for r in some if r.ratio]
    if not ratios:
        raise ValueError("none of the rows of SHOWN is in benchmarks/results")
    low, high = min(0.5, *ratios) / 1.4, max(2.0, *ratios) * 1.6  # room for a number beside the outermost points

    def x(ratio: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * math.log(ratio / low) / math.log(high / low)

    def text(at: float, y: float, words: str, style: str = "") -> str:
        return f'<text x="{at:.1f}" y="{y:.1f}"{f" class={chr(34)}{style}{chr(34)}" if style else ""}>{escape(words)}</text>'

    def line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
        return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>'

    marks: list[str] = []
    y = float(_TOP)
    for device, some in devices.items():
        where = _where(some)
        marks.append(text(12, y + 20, device, "device"))
        marks += [text(12, y + 20 + _LINES * k, words, "small") for k, words in enumerate(where, 1)]
        y += _HEAD + _LINES * len(where)
        for r in some:
            assert r.ratio is not None
            style, middle = "less" if r.ratio < 1 else "more", y + 27  # beside the values, below a long name
            marks += [
                text(12, y + 15, _name(r)),
                text(12, y + 32, _values(r), "small"),
                *(line(x(t), y, x(t), y + _ROW, "grid") for t in _ticks(low, high)),
                line(x(1), y, x(1), y + _ROW, "equal"),
                line(x(1), middle, x(r.ratio), middle, style),
                f'<circle cx="{x(r.ratio):.1f}" cy="{middle:.1f}" r="5" class="{style}"/>',
                text(x(r.ratio) + 10, middle + 4.5, f"{r.ratio:.2f}", style)
                if r.ratio >= 1
                else text(x(r.ratio) - 10, middle + 4.5, f"{r.ratio:.2f}", f"{style} end"),
            ]
            y += _ROW
    height = y + _BOTTOM
    axis = [text(x(t), y + 18, f"{t:g}", "small mid") for t in _ticks(low, high)]
    title = "Time of tec / time of the peer"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" '
        f'role="img" aria-label="{title}, by program and device"><style>{_STYLE}</style>'
        f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:.0f}" rx="9"/>'
        f"{text(12, 26, title, 'device')}{text(x(1) - 8, 34, 'tec is faster', 'less end')}{text(x(1) + 8, 34, 'peer is faster', 'more')}"
        f"{''.join(marks)}{''.join(axis)}</svg>\n"
    )


def table(rows: Iterable[Record]) -> str:
    """The rows of the picture as Markdown, with where each was measured and how its peer ran below."""
    found = [r for some in shown(rows).values() for r in some]
    settings: dict[str, dict[str, list[str]]] = {}
    for r in found:
        peers = settings.setdefault(_origin(r), {})
        if r.peer_settings and r.peer not in peers.setdefault(r.peer_settings, []):
            peers[r.peer_settings].append(r.peer)
    numbers = {origin: k for k, origin in enumerate(settings, 1)}
    lines = [
        f"| {r.what}, {r.measure} | {r.target} | {_number(r.value)} {r.unit} | {r.peer}: {_number(r.peer_value)} {r.unit} | "
        f"{r.ratio:.2f} | {numbers[_origin(r)]} |"
        for r in found
    ]
    notes = [
        ". ".join([f"{numbers[origin]}. {origin}", *(f"{', '.join(names)}: {text}" for text, names in peers.items())])
        for origin, peers in settings.items()
    ]
    head = ["| what | target | tec | peer | ratio | measured |", "| --- | --- | --- | --- | --- | --- |"]
    return "\n".join([*head, *lines, "", *(f"{n}." for n in notes)])


def with_table(markdown: str) -> str:
    """A page with the table in the place of its mark."""
    return markdown.replace(MARK, table(read())) if MARK in markdown else markdown


def write() -> None:
    """Draw the picture of the rows that are stored."""
    PICTURE.write_text(picture(read()), encoding="utf-8")


if __name__ == "__main__":
    write()
    print(PICTURE)
