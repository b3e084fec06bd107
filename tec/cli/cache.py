"""`tec cache`: the compiled objects and networks that are kept on the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .. import folders as own
from ..disk_cache import clear, entries
from . import common


@click.command(epilog="\b\nExamples:\n  tec cache\n  tec cache path\n  tec cache clear")
@click.argument("action", type=click.Choice(["info", "path", "clear"]), default="info")
@common.json_option
def command(action: str, as_json: bool) -> None:
    """Size and place of the compile cache; clear it."""
    parts = folders()
    if action == "path":
        common.echo_text("\n".join(str(p) for p in parts.values()))
        return
    facts = {name: facts_of(name, path) for name, path in parts.items()}
    if action == "clear":
        for name, path in parts.items():
            if not facts[name]["not_used"]:
                clear(path)
    if as_json:
        common.print_json({"action": action, **facts})
        return
    if not facts:
        common.echo("the cache is off")
    for name, f in facts.items():
        done = "removed " if action == "clear" and not f["not_used"] else ""
        why_not = f"  not used: {f['not_used']}" if f["not_used"] else ""
        common.echo(f"{name:9} {done}{f['files']} files, {common.size(float(f['bytes']))}  {f['path']}{why_not}")


def folders() -> dict[str, Path]:
    """The cache's folders by what they hold; none where it is off."""
    root = own.cache_root()
    return {} if root is None else {name: root / name for name in own.PARTS}


def facts_of(name: str, folder: Path) -> dict[str, Any]:
    """Place and size of one part, and why it is not used, if so."""
    files = list(entries(folder))
    return {
        "path": str(folder), "files": len(files), "bytes": sum(p.lstat().st_size for p in files), "not_used": own.why_not_used(name),
    }  # fmt: skip
