"""`tec convert`: a package of the format version before becomes one of this version."""

from __future__ import annotations

from pathlib import Path

import click

from . import common
from .errors import Refused


@click.command(
    epilog="""\b
Examples:
  tec convert old.tec -o new.tec
  tec convert kernels.tecmod                          # kernels-new.tecmod

Machine code, plans and weights stay as they are: nothing is compiled. What a newer tec would compile better, compile again."""
)
@click.argument("package", type=click.Path(path_type=Path), metavar="PACKAGE")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="The package to write; PACKAGE-new by default.")
def command(package: Path, output: Path | None) -> None:
    """Rewrite a package of the format version before."""
    from ..graph.old_packages import convert
    from ..runtime.modules.package import VERSION

    if package.suffix not in (".tec", ".tecmod"):
        raise Refused(f"{package}: not a package by its name", "expected .tec or .tecmod")
    if not package.exists():
        raise Refused(f"{package}: no such file")
    target = output or package.with_name(f"{package.stem}-new{package.suffix}")
    common.check_suffix("--output", target, (package.suffix,), f"a {package.suffix} file is wanted")
    common.share_stdout(False, target)
    if target.exists() and target.samefile(package):
        raise Refused(f"{target} is the package itself", "give another file with --output")
    common.check_folder(target)
    version = convert(package, target)
    common.echo(f"{common.wrote(target)}, version {VERSION}, was {version}")
