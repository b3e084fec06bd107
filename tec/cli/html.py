"""The report page of `tec show --html`: one self-contained file.

In: a `Network` and, where there is one, a device to time its kernels on. Out: an HTML page with the graph of fused groups,
a roofline, a table of kernels and, for the kernel that is chosen, its operators, loop IR, LLVM IR and assembly side by
side. The template with its style and script is `page.html` beside this file; nothing is loaded from anywhere.
"""

from __future__ import annotations

import json
import math
import re
import sys
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..notebook import layered_svg
from . import common, listing, measure
from .errors import Refused, say

# A fact of `listing.resources` -> its words on the page.
_LABELS = {
    "vgprs": "VGPRs", "agprs": "AGPRs", "sgprs": "SGPRs", "lds_bytes": "LDS, bytes", "scratch_bytes": "scratch, bytes",
    "vgpr_spills": "VGPR spills", "sgpr_spills": "SGPR spills", "dynamic_shared_bytes": "dynamic LDS, bytes", "instructions": "instructions",
}  # fmt: skip


def write_report(net: Any, path: Path, title: str, device: str | None, timed: bool | None) -> None:
    """Write the page. timed: None times the kernels where a device for them is there or can be emulated."""
    common.write_file(path, page(net, title, device, timed))


def page(net: Any, title: str, device: str | None = None, timed: bool | None = None) -> str:
    """The page's text."""
    times, where = _times(net, device, timed)
    kernels = listing.kernels_of(net)
    steps = listing.steps_of(net)
    roofs = ceilings(net)
    rows = [_row(k, steps, times) for k in kernels]
    data = {
        "kernels": rows,
        "roofs": roofs,
        "where": where,
    }
    total = sum(r["us"] or 0.0 for r in rows)
    facts = [
        ("target", net.module.target),
        ("steps", str(len(steps))),
        ("kernels", str(len(kernels))),
        ("arithmetic", f"{net.report.flops / 1e9:.3f} GFLOP"),
        ("weights", common.size(sum(p.nbytes for p in net.params.values()))),
        ("working memory", common.size(net.plan.arena_bytes)),
        ("code", common.size(len(net.get_binary()))),
        ("time", f"{common.duration(total / 1e6)}, {where}" if times else "not measured"),
    ]
    template = files("tec.cli").joinpath("page.html").read_text(encoding="utf-8")
    graph = graph_svg(net, steps)
    found = re.search(r'viewBox="0 0 (\d+)', graph)
    filled = {
        "GRAPHWIDTH": str(int(int(found[1]) * 0.95)) if found else "0",
        "TITLE": escape(title),
        "FACTS": "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts),
        "GRAPH": graph,
        "ROOFLINE": roofline_svg(rows, roofs),
        "DATA": json.dumps(data).replace("<", "\\u003c"),
    }
    for key, text in filled.items():
        template = template.replace(f"@@{key}@@", text)
    return template


def _times(net: Any, device: str | None, timed: bool | None) -> tuple[dict[str, measure.KernelTime], str]:
    """Times by kernel name and what they are."""
    if timed is False:
        return {}, ""
    import tec

    try:
        dev = common.device_for(net, device)
    except (tec.DeviceError, Refused):
        if device is not None or net.module.device_kind != "rocm":
            if timed or device is not None:
                raise
            return {}, ""
        try:
            dev = common.device_for(net, "emu")
        except (tec.DeviceError, Refused):
            return {}, ""
    inputs = common.make_inputs(net.inputs, (), "random", 0)
    if dev.is_emulated:
        if sys.stderr.isatty():
            say("one run on the software GPU, for the kernels' times (--no-measure leaves it out) ...")
    else:
        net.run(inputs, device=dev)
    try:
        found = measure.kernel_times(net, inputs, dev)
    except tec.TecError:
        if timed:
            raise
        return {}, ""
    what = (
        f"estimated by the time model of the software GPU ({dev.arch})"
        if dev.is_emulated
        else f"measured on {dev.name}"
    )
    return {t.name: t for t in found}, what


def _row(k: listing.Kernel, steps: list[listing.Step], times: dict[str, measure.KernelTime]) -> dict[str, Any]:
    mine = [s for s in steps if s.function == k.function]
    t = times.get(k.name)
    facts = listing.resources(k)
    shown: list[tuple[str, str]] = [(label, f"{facts[key]:,}") for key, label in _LABELS.items() if key in facts]
    if "threads" in facts:
        shown.insert(0, ("threads a group", " x ".join(str(n) for n in facts["threads"])))
    if "occupancy_waves" in facts:
        shown.append(("waves a SIMD", f"{facts['occupancy_waves']} (limited by {facts['occupancy_limit']})"))
    loop = facts.get("main_loop")
    if loop:
        shown.append(("main loop", f"{loop['matrix']} {loop['matrix_kind'] or 'matrix'}, {loop['valu']} VALU, {loop['salu']} SALU, {loop['barriers']} barriers"))  # fmt: skip
    for s in mine[:1]:
        shown += [
            ("arithmetic a call", f"{s.flops / 1e6:.3f} MFLOP"),
            ("memory a call, at least", common.size(s.bytes)),
        ]
    if t is not None:
        shown.append(("time a call", common.duration(t.us / max(1, t.calls) / 1e6)))
        if t.parts:
            shown.append(("made of", t.made_of()))
        shown += [(f"from {level}", common.size(int(n))) for level, n in t.traffic.items()]
        shown += [(key.replace("_", " "), f"{n:,}") for key, n in t.counters.items()]
    return {
        "name": k.name, "function": k.function, "ops": k.ops, "origins": k.origins, "source": k.source, "ir": k.ir, "llvm": k.llvm, "asm": k.asm,
        "calls": len(mine), "us": t.us if t else None, "limit": t.limit if t else "",
        "flops": sum(s.flops for s in mine), "bytes": sum(s.bytes for s in mine), "traffic": t.traffic if t else {},
        "vgprs": facts.get("vgprs"), "lds": facts.get("lds_bytes"), "waves": facts.get("occupancy_waves"), "facts": shown,
    }  # fmt: skip


# ---- ceilings


def ceilings(net: Any) -> dict[str, Any]:
    """{"gbps", "peaks": {name: GFLOP/s}, "source"} of the target's chip; empty where it is not known."""
    from ..target import Target

    target = Target(net.module.target)
    if target.is_gpu:
        m = target.machine
        peaks = {"vector f32": 1e3 * m.peak_tflops("float32", matrix=False)}
        for kind, dtype in (("f32", "float32"), ("f16", "float16")):
            if dtype in m.matrix_macs:
                peaks[f"matrix {kind}"] = 1e3 * m.peak_tflops(dtype)
        levels = {x.name: x.gbps for x in m.levels if x.gbps is not None}
        return {
            "gbps": m.memory_gbps,
            "peaks": peaks,
            "levels": levels,
            "source": f"{m.name}: peaks by its data sheet, memory as measured",
        }
    if target.is_host:
        return _host_ceilings()
    return {}


def _host_ceilings() -> dict[str, Any]:
    """What the cores reach in FMAs (`host_peak`) and a copy in NumPy in memory: measured here."""
    import time

    import numpy as np

    import tec

    from .host_peak import fma_gflops

    source = np.ones(1 << 24, np.float32)
    target = np.empty_like(source)
    best = math.inf
    for _ in range(8):
        start = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - start)
    cores = tec.cpu().compute_units
    return {
        "gbps": 2 * source.nbytes / best / 1e9,
        "peaks": {"vector f32": cores * fma_gflops()},
        "source": f"measured: FMAs in registers on one core, times {cores}; memory by a copy in NumPy",
    }


# ---- pictures


def graph_svg(net: Any, steps: list[listing.Step]) -> str:
    """The steps as boxes in layers, inputs above, outputs below; each box has its function in `data-function`."""
    makers: dict[str, int] = {}
    edges: set[tuple[int, int]] = set()
    count = len(steps)
    inputs = {i["name"]: count + k for k, i in enumerate(net.inputs)}
    labels: dict[int, tuple[str, str, str]] = {
        count + k: (i["name"], f"{i['dtype']} {'x'.join(map(str, i['shape']))}", "") for k, i in enumerate(net.inputs)
    }
    for s in steps:
        for name in s.reads:
            for at in net.plan.made_of(name):
                source = makers.get(at, inputs.get(at))
                if source is not None:
                    edges.add((source, s.number))
        for name in s.writes:
            makers[net.plan.root(name)] = s.number
        shape = "x".join(map(str, net.plan.values[s.writes[-1]].shape)) if s.writes else ""
        labels[s.number] = (" → ".join(s.ops) or s.function, f"{s.origin}  {shape}".strip(), s.function)
    base = count + len(inputs)
    shown = [o for o in net.plan.outputs if o.check is None]
    for k, o in enumerate(shown):
        v = net.plan.values[o.value]
        labels[base + k] = (o.name, f"{v.dtype} {'x'.join(map(str, v.shape))}", "")
        for at in net.plan.made_of(o.value):
            if at in makers:
                edges.add((makers[at], base + k))
    ranked = [*inputs.values(), *range(count), *range(base, base + len(shown))]
    return layered_svg({n: labels[n] for n in ranked}, edges)


def _points(rows: list[dict[str, Any]], roofs: dict[str, Any]) -> list[tuple[str, float, float, float, str]]:
    """(kernel, FLOP a byte, GFLOP/s, microseconds, of which level the bytes are) of the kernels that compute."""
    points = []
    top = max(roofs["peaks"].values())
    for r in rows:
        if not r["flops"] or not r["bytes"]:
            continue
        # By the bytes of the level that limits it, where the time model says; of memory's else.
        limit = r["limit"] if r["limit"] in r["traffic"] else "memory"
        ai = r["flops"] / (r["traffic"].get(limit) or r["bytes"])
        rate = r["flops"] / r["us"] / 1e3 if r["us"] else min(top, ai * roofs["gbps"])
        points.append((r["name"], ai, rate, r["us"] or 0.0, f", by the bytes of {limit}" if r["traffic"] else ""))
    return points


def _level_roofs(roofs: dict[str, Any], top: float, corner: tuple[float, float], sx: Any, sy: Any) -> list[str]:
    """The slopes of the caches between L1 and memory."""
    out = []
    for level, gbps in roofs.get("levels", {}).items():
        if level in ("L2", "MALL"):
            low, knee = max(corner[0], corner[1] / gbps), top / gbps
            at = f"{sx(low):.1f} {sy(low * gbps):.1f}"
            out.append(f'<path class="roof level" d="M{at} L{sx(knee):.1f} {sy(top):.1f}"/>')
            x, y = sx(low) + 4, sy(low * gbps) - 8
            out.append(f'<text class="rooftext start" x="{x:.1f}" y="{y:.1f}">{level} {gbps:.0f} GB/s</text>')
    return out


def roofline_svg(rows: list[dict[str, Any]], roofs: dict[str, Any]) -> str:
    """GFLOP/s over FLOP/byte, both logarithmic, with the chip's ceilings and a dot a kernel."""
    if not roofs:
        return "<p>No ceilings are known for this target.</p>"
    timed = any(r["us"] for r in rows)
    top = max(roofs["peaks"].values())
    points = _points(rows, roofs)
    lows = [p[1] for p in points] or [1.0]
    x0, x1 = math.floor(math.log10(min(*lows, 0.1))), math.ceil(math.log10(max(*lows, 10 * top / roofs["gbps"])))
    y1 = math.ceil(math.log10(max([top, *(p[2] for p in points)])))
    y0 = min(math.floor(math.log10(min([p[2] for p in points] or [1.0]))), y1 - 2)
    w, h, left, bottom, right, head = 560, 460, 56, 42, 12, 14

    def sx(v: float) -> float:
        return left + (math.log10(v) - x0) / (x1 - x0) * (w - left - right)

    def sy(v: float) -> float:
        return head + (y1 - math.log10(v)) / (y1 - y0) * (h - head - bottom)

    out = [f'<svg id="roofline" viewBox="0 0 {w} {h}" role="img" aria-label="roofline">']
    for e in range(x0, x1 + 1):
        out.append(f'<line class="grid" x1="{sx(10**e):.1f}" x2="{sx(10**e):.1f}" y1="{head}" y2="{h - bottom}"/><text class="tick" x="{sx(10**e):.1f}" y="{h - bottom + 16}">{_number(e)}</text>')  # fmt: skip
    for e in range(y0, y1 + 1):
        out.append(f'<line class="grid" x1="{left}" x2="{w - right}" y1="{sy(10**e):.1f}" y2="{sy(10**e):.1f}"/><text class="tick left" x="{left - 6}" y="{sy(10**e) + 4:.1f}">{_number(e)}</text>')  # fmt: skip
    slope = roofs["gbps"]
    modelled = any(r["traffic"] for r in rows)
    out += _level_roofs(roofs if modelled else {}, top, (10.0**x0, 10.0**y0), sx, sy)
    start = max(10.0**x0, 10.0**y0 / slope)
    for k, (name, peak) in enumerate(sorted(roofs["peaks"].items(), key=lambda p: -p[1])):
        knee = peak / slope
        if k == 0:
            out.append(
                f'<path class="roof" d="M{sx(start):.1f} {sy(start * slope):.1f} L{sx(knee):.1f} {sy(peak):.1f}"/>'
            )
        out.append(f'<path class="roof" d="M{sx(knee):.1f} {sy(peak):.1f} L{w - right} {sy(peak):.1f}"/>')
        # A name stands above its line; below where the next line above is close.
        under = any(peak < other < 4 * peak for other in roofs["peaks"].values())
        out.append(
            f'<text class="rooftext" x="{w - right - 4}" y="{sy(peak) + (14 if under else -5):.1f}">{escape(name)} {_rate(peak)}</text>'
        )
    out.append(
        f'<text class="rooftext start" x="{sx(start) + 46:.1f}" y="{sy(start * slope) + 4:.1f}">memory {slope:.0f} GB/s</text>'
    )
    longest = max((p[3] for p in points), default=0.0) or 1.0
    for name, ai, rate, us, by in points:
        out.append(
            f'<circle class="dot" data-kernel="{escape(name)}" cx="{sx(ai):.1f}" cy="{sy(max(rate, 10.0**y0)):.1f}" r="{4 + 7 * math.sqrt(us / longest):.1f}" tabindex="0">'
            f"<title>{escape(name)}\n{ai:.2f} FLOP/byte{by}, {rate:.1f} GFLOP/s{'' if us else ' at most'}</title></circle>"
        )  # fmt: skip
    out.append(
        f'<text class="axis" x="{(left + w - right) / 2:.0f}" y="{h - 6}">FLOP a byte{" of the level that limits" if any(r["traffic"] for r in rows) else " of arguments"}</text>'
    )
    out.append(f'<text class="axis" transform="translate(14 {(h - bottom) / 2:.0f}) rotate(-90)">GFLOP/s</text></svg>')
    note = (
        "The area of a dot is its kernel's share of the time."
        if timed
        else "No times were taken: a dot stands where its roof is."
    )
    return "".join(out) + f"<p class='note'>Ceilings: {escape(roofs['source'])}. {note}</p>"


def _rate(gflops: float) -> str:
    return f"{gflops / 1e3:.1f} TFLOP/s" if gflops >= 1e3 else f"{gflops:.0f} GFLOP/s"


def _number(e: int) -> str:
    return (
        str(10**e) if 0 <= e <= 3 else f"{10.0**e:g}" if -3 <= e < 0 else f"10<tspan dy='-4' font-size='8'>{e}</tspan>"
    )
