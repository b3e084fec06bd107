"""What the compiler's own sources look like, as a key: a changed compiler never serves old code. Reads no source and imports nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec

from .digest import sha256

_READ = (".py", ".jsonl")  # rules decide what code is made, too


def source_stamp(packages: Iterable[str] = ()) -> str:
    """The stamp of tec's sources and those of other packages, by name; of one that is not installed nothing."""
    roots = [os.path.dirname(os.path.abspath(__file__))]
    for name in packages:
        spec = find_spec(name.partition(".")[0])
        roots += sorted(spec.submodule_search_locations or ()) if spec is not None else ()
    h = sha256()
    for root in roots:
        for fact in _facts(root):
            h.update(fact.encode())
    return h.hexdigest()


def _facts(folder: str) -> Iterator[str]:
    """Names, sizes and times of a folder's sources, in an order that does not depend on the disk."""
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda e: e.name)
    for entry in entries:
        if entry.name.endswith(_READ):
            facts = entry.stat()
            yield f"{entry.name} {facts.st_size} {facts.st_mtime_ns};"
        elif entry.is_dir(follow_symlinks=False) and entry.name != "__pycache__":
            yield from _facts(entry.path)


@cache
def llvm_stamp() -> str:
    """The LLVM that compiles, by its package's version, which is read as text: importing it takes longer than starting."""
    spec = find_spec("llvmlite")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        try:
            with open(os.path.join(folder, "_version.py"), "rb") as f:
                return sha256(f.read()).hexdigest()
        except OSError:
            break
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("llvmlite")
    except PackageNotFoundError:
        return ""  # only compiled code is run
