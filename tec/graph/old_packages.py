"""Packages of the format version before, as packages of this one: `convert(old, new)`.

What changed from version 2 to 3 (docs/packages.md): a module had a module of its own for each function or kernel, which it imported; now it has
one image of all CPU functions, and texts by function. Machine code, plans and weights stay as they are. CPU code brings the thread pool that
it was compiled against. Version 1 had plans without kinds of steps: it is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ..codegen import merge_objects
from ..errors import CodegenError, PackageError
from ..runtime.modules.module import Module
from ..runtime.modules.package import VERSION, Package, damaged
from ..runtime.networks.network import Network
from ..runtime.networks.report import Report
from ..runtime.plans.plan import Plan

OLD = 2

Blob = Callable[[str], bytes]


def convert(old: str | os.PathLike[str], new: str | os.PathLike[str]) -> int:
    """Write the package `old`, of a module or a network, as one of this version; returns the version that it had.

    Raises PackageError for a version that cannot be converted, for a damaged file, and for one that cannot be written.
    """
    with Package(os.fspath(old), None, (OLD, VERSION)) as package:
        meta = package.meta
        blob: Blob = package.blob
        is_network = package.kind == "network"
        record = meta.get("module") if is_network else meta.get("module", meta)
        if package.version == OLD:
            record, blob = _upgraded(record, blob)
        module = Module.from_data(record, blob)
        if not is_network:
            module.save(os.fspath(new))
            return package.version
        plan, report = Plan.from_json(meta.get("plan")), Report.from_json(meta.get("report"))
        Network(module, plan, {n: package.array(n) for n in package.array_names}, report).save(os.fspath(new))
        return package.version


def _upgraded(record: Any, blob: Blob) -> tuple[dict[str, Any], Blob]:
    """A module's record of version 2 as one of version 3, and its blobs."""
    made: dict[str, bytes] = {}

    def read(name: str) -> bytes:
        return made[name] if name in made else blob(name)

    try:
        inner = [dict(m) for m in record["imported"]]
        if record["kind"] == "llvm" and not record["image"] and inner and all(m["kind"] == "llvm" for m in inner):
            # Each function's object and texts: one image, and texts by function.
            made["image"] = merge_objects([blob(m["image"]) for m in inner])
            support = {blob(s): s for m in (record, *inner) for s in m["support"]}
            texts = {m["entry_name"]: m["sources"] for m in inner}
            return {**record, "image": "image", "support": list(support.values()), "imported": [], "texts": texts}, read
        return {**record, "texts": {}, "imported": [_device(m) for m in inner]}, read
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged(f"{type(error).__name__}: {error}") from None
    except CodegenError as error:
        raise PackageError(f"its objects cannot be joined: {error.message}", hint="compile the model again") from None


def _device(m: dict[str, Any]) -> dict[str, Any]:
    """The module of one function's kernels: its texts are theirs, and they know their function."""
    attrs = dict(m["attrs"])
    function = attrs.pop("function", "")
    attrs["kernels"] = {n: {**k, "function": function} for n, k in attrs.get("kernels", {}).items()}
    names = list(attrs["kernels"])
    if len(names) != 1:  # the text of several kernels is of them all
        return {**m, "attrs": attrs, "texts": {}}
    return {**m, "attrs": attrs, "texts": {names[0]: m["sources"]}, "sources": {}}
