"""`tec bench`: how long a model takes, whole runs by percentiles and one run kernel by kernel."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

import click

from ..report import measure
from . import common
from .errors import say


@click.command(
    cls=common.ModelCommand,
    epilog="""\b
Examples:
  tec bench model.onnx                      # this CPU
  tec bench model.tec --runs 100 --json
  tec bench model.onnx --device emu:gfx90a  # the software GPU's time model, kernel by kernel
  tec bench model.onnx --device rocm:0 --trace trace.json
  tec bench model.onnx --html report.html   # the page of tec show --html, with these times

On the software GPU the kernels' times are those of its time model of the chip; whole runs are the simulation's own time.""",
)
@common.model_argument
@click.option("--runs", "-n", type=click.IntRange(1), default=None, help="Timed runs (50; 1 on the software GPU).")
@click.option("--warmup", "-w", type=click.IntRange(0), default=None, help="Runs before (5; 0 on the software GPU).")
@click.option("--no-kernels", is_flag=True, help="Whole runs only.")
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="Kernels in the table.")
@click.option("--trace", type=click.Path(path_type=Path), help="Write a Chrome trace of one run.")
@click.option(
    "--html", type=click.Path(path_type=Path), metavar="FILE", help="Write the report as one self-contained page."
)
@common.input_options
@common.device_option
@common.compile_options
@common.json_option
def command(
    model: Path, runs: int | None, warmup: int | None, no_kernels: bool, top: int, trace: Path | None, html: Path | None, files: tuple[str, ...],
    fill: str, seed: int, device: str | None, target: str | None, input_dim: tuple[str, ...], freeze: tuple[str, ...], dtype: str | None,
    no_cache: bool, as_json: bool,
) -> None:  # fmt: skip
    """Time a model: percentiles, and each kernel."""
    common.check_model(model)
    common.check_folder(trace)
    if html is not None:
        common.check_suffix("--html", html, (".html", ".htm"), "a page's name ends in .html")
        common.check_folder(html)
    common.share_stdout(as_json, trace, html)
    net = common.open_network(model, target, device, input_dim, dtype, no_cache, freeze, files)
    dev = common.device_for(net, device)
    inputs = common.make_inputs(net.inputs, files, fill, seed)
    emulated = dev.is_emulated
    if emulated and sys.stderr.isatty():
        say("running on the software GPU; its first run of a kernel translates it ...")
    times = sorted(
        measure.run_times(
            net, inputs, dev, runs if runs is not None else (1 if emulated else 50), warmup if warmup is not None else (0 if emulated else 5)
        )
    )  # fmt: skip
    kernels = [] if no_kernels else measure.kernel_times(net, inputs, dev)
    if trace is not None:
        measure.trace(net, inputs, dev, trace)
    if html is not None:
        from ..report.page import page

        graph = None if model.suffix == ".tec" else common.load_graph(model, input_dim, freeze, files)
        runs_told = [] if emulated else [(f"median of {len(times)} runs", common.duration(statistics.median(times)))]
        common.write_file(html, page(net, model.name, dev, not no_kernels, None, graph, dtype, runs_told))
        common.echo(common.wrote(html), err=as_json)
    facts = _facts(model, net, dev, times, kernels)
    if as_json:
        common.print_json(facts)
    else:
        _show(model.name, dev, facts, kernels, top)


def _facts(model: Path, net: Any, dev: Any, times: list[float], kernels: list[Any]) -> dict[str, Any]:
    """What was measured, as plain data; `times` in seconds, sorted."""
    total = sum(k.us for k in kernels)
    flops = int(net.report.flops)
    return {
        "model": str(model), "target": net.module.target, "device": str(dev), "device_name": dev.name, "emulated": dev.is_emulated,
        "runs": len(times), "flops": flops,
        "seconds": {
            "min": times[0], **{f"p{p}": measure.percentile(times, p) for p in (50, 90, 95, 99)}, "max": times[-1],
            "mean": statistics.fmean(times), "std": statistics.pstdev(times),
        },
        "kernels_us": total,
        "kernels": [
            {"name": k.name, "calls": k.calls, "us": k.us, "share": k.us / total if total else 0.0, "limit": k.limit, **k.counters}
            for k in kernels
        ],
    }  # fmt: skip


def _show(name: str, dev: Any, facts: dict[str, Any], kernels: list[Any], top: int) -> None:
    emulated, flops, total = dev.is_emulated, facts["flops"], facts["kernels_us"]
    out = common.console()
    s = facts["seconds"]
    what = "simulating one run" if emulated else f"{facts['runs']} runs"
    common.echo(f"{name} on {dev} ({dev.name}), {facts['target']}")
    common.echo(
        f"{what}: median {common.duration(s['p50'])}, min {common.duration(s['min'])}, p90 {common.duration(s['p90'])}, "
        f"p99 {common.duration(s['p99'])}, std {common.duration(s['std'])}"
        + ("" if emulated or not flops else f"; {flops / s['p50'] / 1e9:.1f} GFLOP/s")
    )
    if kernels:
        model_word = "modelled time" if emulated else "time"
        t = common.table(
            "", "kernel", "calls", model_word, "share", *(["limited by"] if emulated else []), right=(1, 2, 3)
        )
        for k in kernels[:top]:
            t.add_row(
                k.name,
                str(k.calls),
                common.duration(k.us / 1e6),
                f"{k.us / total:.1%}" if total else "",
                *([k.limit] if emulated else []),
            )
        out.print(t)
        rest = f", {len(kernels) - top} more" if len(kernels) > top else ""
        best = "" if emulated else ", each the best of 5 runs"
        common.echo(f"kernels: {common.duration(total / 1e6)} in all{best}{rest}")
