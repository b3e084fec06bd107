"""`tec show`: what a model becomes: operators, graph, loop IR, LLVM, assembly, resources; or all of it as an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

import tec

from ..report import measure
from ..target import Target
from . import common
from .errors import Refused

KINDS = ("ops", "graph", "ir", "llvm", "asm", "resources", "time")


@click.command(
    cls=common.ModelCommand,
    epilog="""\b
Examples:
  tec show model.onnx                                   # steps, operators, sizes
  tec show model.onnx graph --dot | dot -Tsvg > g.svg
  tec show model.onnx asm --target "rocm -mcpu=gfx942" --kernel f0
  tec show model.tec resources --json
  tec show model.onnx time --target "rocm -mcpu=mi325x"
  tec show model.onnx --html report.html --target "rocm -mcpu=gfx942"
  tec show model.onnx --html new.html --against old.html

WHAT is ops (the default), graph, ir, llvm, asm, resources or time (of AMD GPUs' kernels, by the time model).""",
)
@click.argument(
    "words",
    nargs=-1,
    required=True,
    metavar="MODEL [WHAT]",
    shell_complete=lambda ctx, param, incomplete: _complete_words(ctx, incomplete),
)
@click.option("--kernel", "-k", default="", help="Only kernels whose name contains this (ir, llvm, asm, resources).")
@click.option("--dot", is_flag=True, help="graph: in the DOT language.")
@click.option("--host", is_flag=True, help="ir: of the host's side, not of the kernels.")
@click.option(
    "--html", type=click.Path(path_type=Path), metavar="FILE", help="Write everything to one self-contained page."
)
@click.option(
    "--against", type=click.Path(path_type=Path), metavar="FILE", help="html: an earlier page, to compare with."
)
@click.option(
    "--measure/--no-measure",
    "timed",
    default=None,
    help="html: run the network once for the kernels' times (where a device is there).",
)
@common.device_option
@common.compile_options
@common.json_option
def command(
    words: tuple[str, ...], kernel: str, dot: bool, host: bool, html: Path | None, against: Path | None, timed: bool | None, device: str | None,
    target: str | None, input_dim: tuple[str, ...], freeze: tuple[str, ...], dtype: str | None, no_cache: bool, as_json: bool,
) -> None:  # fmt: skip
    """Operators, graph, loop IR, LLVM, assembly, resources; or all of it as one HTML page."""
    model, what = _words(words)
    common.check_model(model)
    if against is not None and html is None:
        raise Refused(f"--against {against}: only a page compares", "--html FILE writes one")
    if html is not None:
        common.check_suffix("--html", html, (".html", ".htm"), "a page's name ends in .html")
        common.check_folder(html)
        common.share_stdout(as_json, html)
        net = common.open_network(model, target, device, input_dim, dtype, no_cache, freeze)
        from ..report.page import page

        graph = None if model.suffix == ".tec" else common.load_graph(model, input_dim, freeze)
        common.write_file(html, page(net, model.name, _device(net, device), timed, against, graph, dtype))
        common.echo(common.wrote(html))
        return
    if what == "graph":
        graph = common.load_graph(model, input_dim, freeze)
        common.echo_text(graph.dot() if dot else str(graph))
        return
    net = common.open_network(model, target, device, input_dim, dtype, no_cache, freeze)
    if what == "ops":
        _steps(net, as_json)
    elif what == "resources":
        _resources(net, kernel, as_json)
    elif what == "time":
        _time(net, kernel, as_json)
    elif what == "ir" and host:
        common.echo_text(net.get_source("ir"))
    elif not kernel:
        common.echo_text("\n\n".join(m.get_source(what) for m in net.module.imported_modules or [net.module]))
    else:
        from ..report import listing

        some = _some(listing.kernels_of(net), kernel)
        common.echo_text("\n\n".join(getattr(k, what) for k in some))


def _device(net: Any, text: str | None) -> Any:
    """The device that is asked for, None where the page may take the one there is."""
    return None if text is None else common.device_for(net, text)


def _complete_words(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Files for the first word, what can be shown after it."""
    if not ctx.params.get("words"):
        return [CompletionItem(incomplete, type="file")]
    return [CompletionItem(k) for k in KINDS if k.startswith(incomplete)]


def _words(words: tuple[str, ...]) -> tuple[Path, str]:
    """MODEL and WHAT, in either order."""
    if len(words) == 1:
        return Path(words[0]), "ops"
    if len(words) == 2:
        a, b = words
        if a in KINDS and not Path(a).exists():
            return Path(b), a
        if b in KINDS:
            return Path(a), b
        raise Refused(f"{b!r} cannot be shown", f"one of: {', '.join(KINDS)}")
    raise Refused(f"one MODEL and one of {', '.join(KINDS)} are wanted, not {len(words)} words")


def _some(kernels: list[Any], part: str) -> list[Any]:
    some = [k for k in kernels if part in k.name]
    if not some:
        names = ", ".join(k.name for k in kernels[:8]) + (", ..." if len(kernels) > 8 else "")
        raise Refused(f"no kernel's name contains {part!r}", f"kernels: {names}")
    return some


def _steps(net: Any, as_json: bool) -> None:
    """The steps of a network in order, as a table or as JSON."""
    from ..report import listing

    steps = listing.steps_of(net)
    if as_json:
        common.print_json(
            {
                "target": net.module.target,
                "inputs": net.inputs,
                "outputs": net.outputs,
                "steps": [vars(s) for s in steps],
                "refused": net.report.refused,
            }
        )
        return
    t = common.table("", "step", "function", "operators", "node", "GFLOP", "MB", right=(0, 4, 5))
    for s in steps:
        t.add_row(
            str(s.number),
            s.function,
            " ".join(s.ops),
            s.origin,
            f"{s.flops / 1e9:.3f}" if s.flops else "",
            f"{s.bytes / 1e6:.2f}",
        )
    common.console().print(t)
    common.echo(
        f"{net.module.target}: {len(steps)} steps, {len(net.module.specs)} functions, {net.report.flops / 1e9:.3f} GFLOP, "
        f"{common.size(sum(p.nbytes for p in net.params.values()))} of weights, {common.size(net.plan.arena_bytes)} of working memory"
    )
    for line in listing.refusals_of(net):
        common.echo(line)


def _time(net: Any, part: str, as_json: bool) -> None:
    """Kernels by the time model, which runs nothing."""
    if net.module.device_kind != "rocm":
        raise Refused(f"the time model is of AMD GPUs, not of {net.module.target}", "tec bench takes times on a device")
    from ..emulator.chips import CHIPS

    target = Target(net.module.target)
    if target.mcpu not in CHIPS:
        raise Refused(f"the time model knows no {target.mcpu}", f"one of: {', '.join(CHIPS)}")
    inputs = common.make_inputs(net.inputs, (), "random", 0)
    rows = [
        t
        for t in measure.kernel_times(net, inputs, tec.rocm_emu(target.mcpu), run=False, product=target.machine.name)
        if part in t.name
    ]
    flops = net.report.function_flops
    total = sum(t.us for t in rows) or 1.0
    if as_json:
        common.print_json([vars(t) for t in rows])
        return
    table = common.table(
        "",
        "kernel",
        "calls",
        "us",
        "share",
        "TFLOP/s",
        "MB of memory",
        "limit",
        "where the time goes",
        right=(1, 2, 3, 4, 5),
    )
    for t in rows:
        done = t.calls * flops.get(t.name.rpartition("_kernel")[0], 0)
        table.add_row(
            t.name, str(t.calls), f"{t.us:.1f}", f"{t.us / total:.0%}", f"{done / t.us / 1e6:.1f}" if done else "",
            f"{t.traffic.get('memory', 0.0) / 1e6:.1f}", t.limit, t.made_of(),
        )  # fmt: skip
    common.console().print(table)
    common.echo(
        f"{net.module.target}: {total:.0f} us by the time model of the {target.machine.name}, launches included"
    )


def _resources(net: Any, part: str, as_json: bool) -> None:
    """What each kernel takes of its device: registers, memory, occupancy; as a table or as JSON."""
    from ..report import listing

    kernels = _some(listing.kernels_of(net), part)
    rows = [listing.resources(k) for k in kernels]
    if as_json:
        common.print_json(rows)
        return
    out = common.console()
    if net.module.device_kind == "rocm":
        t = common.table(
            "",
            "kernel",
            "threads",
            "VGPR",
            "AGPR",
            "SGPR",
            "LDS",
            "spills",
            "scratch",
            "waves/SIMD",
            "main loop",
            right=tuple(range(1, 9)),
        )
        for r in rows:
            loop = r.get("main_loop", {})
            matrix = f"{loop['matrix']} {loop['matrix_kind']}, " if loop.get("matrix") else ""
            t.add_row(
                r["kernel"], "x".join(str(n) for n in r["threads"]), str(r["vgprs"]), str(r["agprs"]), str(r["sgprs"]), str(r["lds_bytes"]),
                str(r["vgpr_spills"] + r["sgpr_spills"]), str(r["scratch_bytes"]), f"{r['occupancy_waves']} ({r['occupancy_limit']})",
                f"{matrix}{loop.get('valu', 0)} VALU, {loop.get('salu', 0)} SALU" + (f", {loop['barriers']} barriers" if loop.get("barriers") else ""),
            )  # fmt: skip
    elif net.module.device_kind == "cuda":
        t = common.table("", "kernel", "threads", "shared", "dynamic shared", right=(1, 2, 3))
        for r in rows:
            t.add_row(
                r["kernel"], "x".join(str(n) for n in r["threads"]), str(r["lds_bytes"]), str(r["dynamic_shared_bytes"])
            )
    else:
        t = common.table("", "function", "operators", "instructions", right=(2,))
        for r in rows:
            t.add_row(r["kernel"], " ".join(r["ops"]), str(r["instructions"]))
    out.print(t)
