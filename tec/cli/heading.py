"""`tec header`: the C header of a network's or a module's native library."""

from __future__ import annotations

from pathlib import Path

import click

from ..runtime.outputs import is_stream
from . import common
from .errors import Refused
from .shapes import open_option


@click.command(
    cls=common.ModelCommand,
    epilog="""\b
Examples:
  tec header resnet50.onnx                            # to standard output
  tec header resnet50.tec -o resnet50.h
  tec header kernels.tecmod -o k.h --name k

`tec compile -o net.so` and `export_library` write the header beside the library. The sizes in a header are those
that the model was compiled with: give an .onnx file the options that tec compile gets.""",
)
@click.argument("model", type=click.Path(path_type=Path), metavar="MODEL")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), default=Path("-"), help="The header; standard output by default."
)
@click.option("--name", help="The library's name in C; MODEL's name by default.")
@common.compile_options
@open_option
def command(
    model: Path, output: Path, name: str | None, target: str | None, input_dim: tuple[str, ...], freeze: tuple[str, ...],
    dtype: str | None, no_cache: bool, keep: tuple[str, ...],
) -> None:  # fmt: skip
    """Print the C header of the library of a model, a package or a module."""
    from ..native.library import header_of
    from ..runtime.modules.module import load_module

    common.check_suffix("--output", output, (".h",), "a header's name ends in .h")
    common.share_stdout(False, output)
    if model.suffix == ".tecmod":
        if not model.exists():
            raise Refused(f"{model}: no such file")
        text = header_of(load_module(model), name or model.stem)
    else:
        net = common.open_network(model, target, None, input_dim, dtype, no_cache, freeze, keep=keep)
        text = header_of(net, name or model.stem)
    common.write_file(output, text)
    if not is_stream(output):
        common.echo(common.wrote(output))
