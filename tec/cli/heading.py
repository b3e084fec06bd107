"""`tec header`: the C header of a network's or a module's native library."""

from __future__ import annotations

from pathlib import Path

import click

from ..runtime.outputs import is_stream
from . import common
from .errors import Refused


@click.command(
    epilog="""\b
Examples:
  tec header resnet50.tec                             # to standard output
  tec header kernels.tecmod -o k.h --name k

`tec compile -o net.so` and `export_library` write the header beside the library; this prints it for a package."""
)
@click.argument("package", type=click.Path(path_type=Path), metavar="PACKAGE")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), default=Path("-"), help="The header; standard output by default."
)
@click.option("--name", help="The library's name in C; PACKAGE's name by default.")
def command(package: Path, output: Path, name: str | None) -> None:
    """Print the C header of a model's or a module's native library."""
    from ..native.library import header_of
    from ..runtime.modules.module import load_module
    from ..runtime.networks.network import load

    if package.suffix not in (".tec", ".tecmod"):
        raise Refused(f"{package}: not a package by its name", "expected .tec or .tecmod")
    if not package.exists():
        raise Refused(f"{package}: no such file")
    common.check_suffix("--output", output, (".h",), "a header's name ends in .h")
    common.share_stdout(False, output)
    text = header_of(load(package) if package.suffix == ".tec" else load_module(package), name or package.stem)
    common.write_file(output, text)
    if not is_stream(output):
        common.echo(common.wrote(output))
