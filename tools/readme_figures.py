"""The table of figures in README.md, drawn from the stored results (benchmarks/results), so that no figure there is older than its row.

python -m tools.readme_figures          # writes the table between its marks; a test holds README.md against it
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.records import COUNTED, MODELLED, Record, newest, read

PAGE = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- figures: python -m tools.readme_figures -->", "<!-- end of figures -->"
# Kind, what, target, measure of the rows that are shown, in order. Ones that are not stored are left out.
SHOWN = [
    ("cpu", "resnet50", "llvm", "processor time"),
    ("cpu", "mobilenetv2", "llvm", "processor time"),
    ("cpu", "bert_layer", "llvm", "processor time"),
    ("product", "product f16 4096", "gfx942", "time"),
    ("product", "product f16 4096", "gfx942", "registers"),
    ("product", "product int8 4096", "gfx942", "time"),
    ("product", "product f32 4096", "gfx942", "time"),
    ("product", "attention f16 d 64", "gfx942", "time"),
    ("product", "attention f16 d 128", "gfx942", "time"),
    ("product", "softmax f16 4096 x 4096", "gfx942", "time"),
    ("product", "layer norm f16 4096 x 4096", "gfx942", "time"),
    ("network", "resnet50 float16", "gfx942", "time"),
    ("network", "bert_layer float16", "gfx942", "time"),
]
_HOSTS = {MODELLED: "by the time model", COUNTED: "counted in the code"}


def _rounded(value: float) -> str:
    """Four digits, without an exponent."""
    return f"{float(f'{value:.4g}'):,.10g}"


def _number(value: float | str | None, unit: str) -> str:
    return f"{_rounded(value)} {unit}" if isinstance(value, (int, float)) else "not measured"


def _row(r: Record) -> str:
    peer = f"{r.peer}: {_number(r.peer_value, r.unit)} ({r.peer_settings})" if r.peer_value is not None else ""
    on = f"{r.target}, {_HOSTS.get(r.host, r.host)}"
    return f"| {r.what}, {r.measure} | {on} | {_number(r.value, r.unit)} | {peer} | {r.commit} |"


def table(rows: list[Record]) -> str:
    """The table of the rows that are shown; of a clocked figure, that of every host."""
    by_name: dict[tuple[str, ...], list[Record]] = {}
    for r in newest(rows).values():
        by_name.setdefault((r.kind, r.what, r.target, r.measure), []).append(r)
    shown = [_row(r) for key in SHOWN for r in sorted(by_name.get(key, []), key=lambda r: r.host)]
    return "\n".join(["| what | where | tec | beside it | commit |", "| --- | --- | --- | --- | --- |", *shown])


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
