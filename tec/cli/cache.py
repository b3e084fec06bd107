"""`tec cache`: the compiled objects and networks that are kept on the disk."""

from __future__ import annotations

import os
from pathlib import Path

import click

from . import common


@click.command(epilog="\b\nExamples:\n  tec cache\n  tec cache path\n  tec cache clear")
@click.argument("action", type=click.Choice(["info", "path", "clear"]), default="info")
@common.json_option
def command(action: str, as_json: bool) -> None:
    """Size and place of the compile cache; clear it."""
    parts = folders()
    if action == "path":
        click.echo("\n".join(str(p) for p in parts.values()))
        return
    rows = {name: _files(p) for name, p in parts.items()}
    facts = {n: {"path": str(parts[n]), "files": len(f), "bytes": sum(s for _, s in f)} for n, f in rows.items()}
    if action == "clear":
        for files in rows.values():
            for path, _ in files:
                path.unlink(missing_ok=True)
    if as_json:
        common.print_json({"action": action, **facts})
        return
    if not facts:
        click.echo("the cache is off")
    for name, f in facts.items():
        done = "removed " if action == "clear" else ""
        click.echo(f"{name:9} {done}{f['files']} files, {common.size(float(str(f['bytes'])))}  {f['path']}")


def folders() -> dict[str, Path]:
    """The cache's folders by what they hold."""
    from ..codegen import cache as objects

    out = {}
    if (folder := objects.directory()) is not None:
        out["objects"] = folder
    if not os.environ.get("TEC_CACHE_DISABLE"):
        from ..graph.cache import cache_path

        out["networks"] = Path(cache_path("x")).parent
    return out


def _files(folder: Path) -> list[tuple[Path, int]]:
    """Cache entries below a folder: only names that the cache gives."""
    found = []
    for root, _, names in os.walk(folder):
        for name in names:
            path = Path(root, name)
            stem = name.removesuffix(".tec")
            if name.startswith(".new-") or (len(stem) >= 32 and all(c in "0123456789abcdef" for c in stem)):
                found.append((path, path.stat().st_size))
    return found
