"""`tec ops`: the operators that the ONNX frontend takes, and those that a model lacks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from . import common
from .errors import NO, Refused


@click.command(
    epilog="\b\nExamples:\n  tec ops                    # all operators\n  tec ops --match Resize\n  tec ops model.onnx         # exit code 1 where one is missing"
)
@click.argument("model", required=False, type=click.Path(path_type=Path))
@click.option("--match", default="", help="Only names that contain this.")
@common.json_option
def command(model: Path | None, match: str, as_json: bool) -> int:
    """Which ONNX operators are supported, and what a model lacks."""
    front = common.frontend()
    if model is None:
        return _all(front, match, as_json)
    common.check_model(model)
    if model.suffix == ".tec":
        raise Refused(f"{model} is compiled already", "give the .onnx file")
    proto = front.load_model(str(model))
    missing = front.unsupported(proto)
    used: Counter[str] = Counter(
        f"{n.domain + '.' if n.domain not in ('', 'ai.onnx') else ''}{n.op_type}" for n in proto.graph.node
    )
    for name, count in missing.items():
        used.setdefault(name, count)
    rows = [
        {"op": name, "count": count, "supported": name not in missing}
        for name, count in used.most_common()
        if match.lower() in name.lower()
    ]
    if as_json:
        common.print_json({"model": str(model), "ops": rows, "missing": dict(missing)})
    else:
        t = common.table("", "operator", "nodes", "supported", right=(1,))
        for r in rows:
            t.add_row(r["op"], str(r["count"]), "yes" if r["supported"] else common.coloured("no", "red"))
        common.console().print(t)
        common.echo(
            f"{len(proto.graph.node)} nodes; "
            + (
                f"missing: {', '.join(f'{n} ({c}x)' for n, c in missing.items())}"
                if missing
                else "all operators are supported"
            )
        )
    return NO if missing else 0


def _all(front: Any, match: str, as_json: bool) -> int:
    rows = [{"op": name, "how": how} for name, how in front.operators().items() if match.lower() in name.lower()]
    if as_json:
        common.print_json(rows)
        return 0
    t = common.table("", "operator", "how")
    for r in rows:
        t.add_row(r["op"], r["how"] if r["how"] != "no" else common.coloured("no", "red"))
    common.console().print(t)
    common.echo(f"{sum(r['how'] != 'no' for r in rows)} of {len(rows)} operators")
    return 0
