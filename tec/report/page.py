"""The page: a network as data, and the template with its style and scripts around it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArgumentError, DeviceError, TecError
from ..graph.graph import Graph
from ..target import CHIPS, Target
from . import listing
from .considered import FUNCTIONS, considered
from .graph import graph_of
from .launches import Launches, launches_of, units_of, words_of
from .limits import ceilings, dots, limit_of
from .listing import main_operator
from .measure import KernelTime, device_of, kernel_times, random_array
from .memory import memory_of
from .template import DATA, assets, filled
from .texts import texts_of
from .words import duration, size

SCRIPTS = ("data", "graph", "table", "roofline", "timeline", "sources", "words", "code", "compare", "main")

_LAYOUT = re.compile(r"Layout\(name='([^']*)'\)")  # of an operator's attributes; the letters say it
# A fact of `listing.resources` -> its words on the page.
_LABELS = {
    "vgprs": "VGPRs", "agprs": "AGPRs", "sgprs": "SGPRs", "lds_bytes": "LDS, bytes", "scratch_bytes": "scratch, bytes",
    "vgpr_spills": "VGPR spills", "sgpr_spills": "SGPR spills", "dynamic_shared_bytes": "dynamic LDS, bytes", "instructions": "instructions",
}  # fmt: skip


def page(
    net: Any,
    title: str,
    device: Any = None,
    timed: bool | None = None,
    against: str | Path | None = None,
    graph: Graph | None = None,
    dtype: str | None = None,
    facts: Sequence[tuple[str, str]] = (),
) -> str:
    """The page's text. timed: None times the kernels where a device for them is there or can be modelled; against: a page to compare with;
    graph: what the network was compiled of, with `dtype`, for the choices that were considered; facts: more of what stands at its head."""
    other = read_page(against) if against is not None else None
    data = data_of(net, title, device, timed, graph, dtype)
    data["facts"] += facts
    if other is not None:
        data["against"] = slim(other)
    return filled(
        "page.html",
        title,
        assets("palette.css", "page.css", "listing.css"),
        assets(*(f"{name}.js" for name in SCRIPTS)),
        data,
    )


def data_of(
    net: Any,
    title: str,
    device: Any = None,
    timed: bool | None = None,
    graph: Graph | None = None,
    dtype: str | None = None,
) -> dict[str, Any]:
    """What the page shows, as plain data."""
    times, where = _times(net, device, timed)
    kernels, steps, roofs = listing.kernels_of(net), listing.steps_of(net), ceilings(net)
    calls: dict[str, list[listing.Step]] = {}
    for s in steps:
        calls.setdefault(s.function, []).append(s)
    launched, units = launches_of(net), units_of(net)
    rows = [_row(k, calls.get(k.function, []), times.get(k.name), roofs) for k in kernels]
    for k, row in zip(kernels, rows):
        row |= _launches(k, launched.get(k.name), units, row)
    longest = dict.fromkeys(r["function"] for r in sorted(rows, key=lambda r: (-(r["us"] or 0.0), -r["flops"])))
    asked = considered(graph, net, list(longest)[:FUNCTIONS], dtype) if graph is not None else {}
    for row in rows:
        row["considered"] = asked.get(row["function"])
    for k, row in zip(kernels, rows):
        row["facts"] += [("choice refused", line) for line in listing.refusals_of(net, k.function)]
    stalls = {name: t.held for name, t in times.items() if t.held}
    for row, text in zip(rows, texts_of(net, kernels, stalls)):
        row |= text
    total = sum(r["us"] or 0.0 for r in rows)
    facts = [
        ("target", net.module.target),
        ("steps", str(len(steps))),
        ("kernels", str(len(kernels))),
        ("arithmetic", f"{net.report.flops / 1e9:.3f} GFLOP"),
        ("weights", size(sum(p.nbytes for p in net.params.values()))),
        ("working memory", size(net.plan.arena_bytes)),
        ("code", size(len(net.get_binary()))),
        ("time", f"{duration(total / 1e6)}, {where}" if times else "not measured"),
    ]
    if net.report.refused:
        facts.append(
            ("choices refused", f"{sum(map(len, net.report.refused.values()))}, of {len(net.report.refused)} functions")
        )
    return {
        "title": title, "facts": facts, "kernels": rows, "roofs": roofs, "where": where, "graph": graph_of(net, steps),
        "steps": [{"function": s.function, "origin": s.origin, "main": main_operator(s.ops)} for s in steps],
        "units": units, "memory": memory_of(net),
    }  # fmt: skip


def read_page(path: str | Path) -> dict[str, Any]:
    """The data of a page that was written before. Raises ArgumentError where it is none."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ArgumentError(f"{path}: cannot be read: {error.strerror}") from None
    found = DATA.search(text)
    try:
        data = json.loads(found[1]) if found else None
    except ValueError:
        data = None
    if not isinstance(data, dict) or "kernels" not in data or "graph" not in data:
        raise ArgumentError(f"{path}: not a report of this version", hint="write it with tec show MODEL --html FILE")
    return data


def slim(data: Mapping[str, Any]) -> dict[str, Any]:
    """What a comparison needs of a page."""
    wanted = ("name", "key", "calls", "us", "flops", "bytes", "limit", "vgprs", "lds")
    return {
        "title": data["title"],
        "where": data["where"],
        "facts": data["facts"],
        "kernels": [{k: row.get(k) for k in wanted} for row in data["kernels"]],
    }


def _times(net: Any, device: Any, timed: bool | None) -> tuple[dict[str, KernelTime], str]:
    """Times by kernel name and what they are."""
    if timed is False:
        return {}, ""
    try:
        dev = device_of(net, device)
        rng = np.random.default_rng(0)
        inputs = {i["name"]: random_array(rng, tuple(i["shape"]), i["dtype"]) for i in net.inputs}
        if not dev.is_emulated:
            net.run(inputs, device=dev)
        product = Target(net.module.target).machine.name if dev.is_emulated else ""
        found = kernel_times(net, inputs, dev, run=False, product=product)
    except TecError as error:  # no such device, or inputs that random numbers do not make
        if timed or (device is not None and isinstance(error, DeviceError)):
            raise
        return {}, ""
    what = (
        f"estimated by the time model of the {product} ({dev.arch})" if dev.is_emulated else f"measured on {dev.name}"
    )
    return {t.name: t for t in found}, what


def _row(
    k: listing.KernelListing, mine: Sequence[listing.Step], t: KernelTime | None, roofs: dict[str, Any]
) -> dict[str, Any]:
    facts = listing.resources(k)
    row: dict[str, Any] = {
        "name": k.name, "function": k.function, "ops": k.ops, "origins": k.origins, "source": _LAYOUT.sub(r"\1", k.source), "key": signature(k),
        "calls": len(mine), "us": t.us if t else None, "limit": t.limit if t else "",
        "flops": sum(s.flops for s in mine), "bytes": sum(s.bytes for s in mine), "traffic": t.traffic if t else {},
        "vgprs": facts.get("vgprs"), "lds": facts.get("lds_bytes"), "waves": facts.get("occupancy_waves"),
    }  # fmt: skip
    limit, share = limit_of(row, roofs, t.parts if t else {})
    row |= {"limit": limit, "share": share, "dots": dots(row, limit)}
    row["facts"] = _facts(facts, mine, t)
    return row


def _launches(
    k: listing.KernelListing, mine: Launches | None, units: dict[str, Any] | None, row: dict[str, Any]
) -> dict[str, Any]:
    """{"groups", "busy"}: work-groups of a launch, and the share of the chip's units that have one; and its words among the facts."""
    if mine is None or units is None:
        return {"groups": None, "busy": None}
    resident = None
    if row["waves"]:
        x, y, z = (int(n) or 1 for n in k.facts.get("threads", (1, 1, 1)))
        resident = row["waves"] * CHIPS[k.chip].simds // max(1, -(-(x * y * z) // k.wave)) or None
    row["facts"][:0] = words_of(mine, units["units"], resident)
    return {"groups": mine.groups, "busy": min(1.0, mine.groups / units["units"])}


def _facts(facts: dict[str, Any], mine: Sequence[listing.Step], t: KernelTime | None) -> list[tuple[str, str]]:
    """What the page says of a kernel, in words."""
    shown = [(label, f"{facts[key]:,}") for key, label in _LABELS.items() if key in facts]
    if "threads" in facts:
        shown.insert(0, ("threads per group", " x ".join(str(n) for n in facts["threads"])))
    if "occupancy_waves" in facts:
        shown.append(("waves per SIMD", f"{facts['occupancy_waves']} (limited by {facts['occupancy_limit']})"))
    loop = facts.get("main_loop")
    if loop:
        matrix = f"{loop['matrix']} {loop['matrix_kind'] or 'matrix'}"
        shown.append(("main loop", f"{matrix}, {loop['valu']} VALU, {loop['salu']} SALU, {loop['barriers']} barriers"))
    for s in mine[:1]:
        shown += [("arithmetic per call", f"{s.flops / 1e6:.3f} MFLOP"), ("argument bytes per call", size(s.bytes))]
    if t is not None:
        calls = max(1, t.calls)
        shown.append(("time per call", duration(t.us / calls / 1e6)))
        if t.parts:
            shown.append(("where the time goes", t.made_of()))
        shown += [(f"from {level}, per call", size(n / calls)) for level, n in t.traffic.items()]
        shown += [(key.replace("_", " "), f"{n:,}") for key, n in t.counters.items()]
    return shown


def signature(k: listing.KernelListing) -> str:
    """A kernel by what it computes: its operators with their shapes, without the names of values and layers."""
    return re.sub(r"%[\w.]+", "%", k.source) + re.sub(r"^.*?(_kernel\d+)?$", r" \1", k.name)
