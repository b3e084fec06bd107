"""`tec compile`: an ONNX model to one package that runs with NumPy and tec.runtime alone, or to a native library with a C header."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from ..errors import PackageError
from ..runtime.modules.package import LIBRARIES, is_native
from ..runtime.outputs import is_stream
from . import common
from .errors import Refused
from .shapes import open_option


def _save(net: Any, out: Path) -> None:
    try:
        net.save(str(out))
    except PackageError as error:
        if isinstance(error.__context__, OSError):  # the place to write to, not the package
            raise Refused(error.summary) from None
        raise


@click.command(
    cls=common.ModelCommand,
    epilog="""\b
Examples:
  tec compile resnet50.onnx                                  # for this CPU, to resnet50.tec
  tec compile resnet50.onnx -o r.tec --target "rocm -mcpu=gfx942"
  tec compile resnet50.onnx -o resnet50.so                   # a library for C, with resnet50.h
  tec compile resnet50.onnx -o resnet50.so --target "cuda -arch=sm_90" --also llvm
  tec compile resnet50.onnx -o - | ssh board 'cat > r.tec'
  tec compile model.onnx --input-dim input 1 3 224 224 --dtype float16
  tec compile model.onnx --target "rocm -mcpu=gfx1100" --dump-ir dump/""",
)
@common.model_argument
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    help="The package; MODEL's name with .tec by default, - for standard output. Or a library: .so, .a, .o.",
)
@click.option(
    "--weights",
    type=click.Choice(["inside", "beside"]),
    help="Of a library: in it (the default), or in a file beside it that is mapped.",
)
@click.option(
    "--linker", metavar="PROGRAM", help="Of a .so: a compiler driver that links it, such as cc; tec does by default."
)
@click.option(
    "--also",
    multiple=True,
    metavar="TARGET",
    help="Of a library: code for this target too. It runs where the machine cannot run those before it.",
)
@click.option(
    "--dump-ir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write graph, loop IR, LLVM, assembly and code there.",
)
@common.compile_options
@open_option
@common.json_option
def command(
    model: Path, output: Path | None, dump_ir: Path | None, target: str | None, input_dim: tuple[str, ...], freeze: tuple[str, ...], dtype: str | None,
    no_cache: bool, keep: tuple[str, ...], as_json: bool, weights: str | None, linker: str | None, also: tuple[str, ...],
) -> None:  # fmt: skip
    """Compile an ONNX model to one package, or to a library with a C header, for a target."""
    common.check_model(model)
    if model.suffix == ".tec":
        raise Refused(f"{model} is compiled already")
    out = output or Path(model.with_suffix(".tec").name)
    common.check_suffix(
        "--output", out, (".tec", *LIBRARIES), "a package's name ends in .tec, a library's in .so, .a or .o"
    )
    native = is_native(out) and not is_stream(out)
    if not native and (weights or linker or also):
        given = "--weights" if weights else "--linker" if linker else "--also"
        raise Refused(f"{given} is for libraries", "an --output that ends in .so, .a or .o")
    common.check_folder(out)
    common.share_stdout(as_json, out)
    start = time.perf_counter()
    net = common.open_network(model, target, None, input_dim, dtype, no_cache, freeze, keep=keep)
    if native:
        others = [common.open_network(model, t, None, input_dim, dtype, no_cache, freeze, keep=keep) for t in also]
        net.export_library(str(out), weights=weights or "inside", linker=linker, others=others)
    else:
        _save(net, out)
    seconds = time.perf_counter() - start
    dumped = dump(net, dump_ir, model, input_dim, freeze, keep) if dump_ir is not None else []
    facts: dict[str, Any] = {
        "output": str(out),
        "target": ", ".join([net.module.target, *also]),
        "seconds": seconds,
        "steps": len(net.plan.steps),
        "functions": len(net.report.functions),
        "code_bytes": len(net.get_binary()),
        "weights_bytes": sum(p.nbytes for p in net.params.values()),
        "arena_bytes": net.plan.arena_bytes,
        "open": net.open_sizes,
        "file_bytes": None if is_stream(out) else out.stat().st_size,
        "header": str(out.with_suffix(".h")) if native else None,
        "dumped": [str(p) for p in dumped],
    }
    if as_json:
        common.print_json(facts)
        return
    common.echo(
        f"{out}: {facts['target']}, {facts['steps']} steps, {facts['functions']} functions, "
        f"{common.size(facts['code_bytes'])} of code, {common.size(facts['weights_bytes'])} of weights, "
        + (
            f"any {', '.join(net.open_sizes)}"
            if net.open_sizes
            else f"{common.size(facts['arena_bytes'])} of working memory"
        )
        + f"; {common.duration(seconds)}"
    )
    for p in [out.with_suffix(".h")] * native + [out.with_suffix(".weights")] * (weights == "beside") + dumped:
        common.echo(f"  {p}")


def dump(
    net: Any, folder: Path, model: Path, dims: tuple[str, ...], freeze: tuple[str, ...], keep: tuple[str, ...] = ()
) -> list[Path]:
    """Write everything that the compiler made on the way; the files' paths. `code.s` is all functions' assembly one behind the other, to be read: each
    numbers its labels from 0. Those in functions/ are whole files, which an assembler takes."""
    import json

    from ..report.listing import kernels_of, resources

    written = []

    def put(name: str, data: str | bytes) -> None:
        common.write_file(folder / name, data)
        written.append(folder / name)

    graph = common.load_graph(model, dims, freeze, keep=keep)
    put("graph.txt", str(graph))
    put("graph.dot", graph.dot())
    kind = net.module.device_kind
    put("host.ir" if kind != "cpu" else "loops.ir", net.get_source("ir"))
    if kind != "cpu":
        put("kernels.ir", "\n\n".join(m.get_source("ir") for m in net.module.imported_modules))
    put("code.ll", net.get_source("llvm"))
    put({"cuda": "code.ptx"}.get(kind, "code.s"), net.get_source("asm"))
    if kind != "cuda":
        put({"rocm": "code.hsaco"}.get(kind, "code.o"), net.get_binary())
    suffixes = {"ir": "ir", "llvm": "ll", "asm": "ptx" if kind == "cuda" else "s"}
    for module in (net.module, *net.module.imported_modules):
        for name, text, suffix in (
            (n, t, s) for n in module.texts for t, s in suffixes.items() if t in module.texts[n]
        ):
            common.write_file(folder / "functions" / f"{name}.{suffix}", module.get_source(text, name))
    written.append(folder / "functions")
    put("resources.json", json.dumps([resources(k) for k in kernels_of(net)], indent=1))
    return written
