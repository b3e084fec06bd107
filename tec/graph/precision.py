"""Which types a network computes in, as `tec.compile(dtype=...)` takes them: one for all of it, others for nodes by name.

Between the parts of the compiler it is text, "float16;/head/*=float32": a type for all ("" for each node's own), then patterns of nodes' names
(`fnmatch`'s; the last that fits counts).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from fnmatch import fnmatchcase

from ..errors import ImportModelError
from ..records import dataclass
from .graph import Graph
from .regions import bodies, is_region

DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class Precision:
    """`default`: of nodes that no pattern fits. A node that is named computes in its type whatever it is; others where that is safe."""

    default: str = ""
    nodes: tuple[tuple[str, str], ...] = ()

    def named(self, origin: str) -> str | None:
        """The type of a node that a pattern fits."""
        return next((t for p, t in reversed(self.nodes) if fnmatchcase(origin, p)), None)

    @property
    def text(self) -> str:
        return ";".join([self.default, *(f"{p}={t}" for p, t in self.nodes)])


def precision_of(dtype: str | Mapping[str, str] | None, types: tuple[str, ...] = DTYPES) -> Precision:
    """Read what a user or a part of the compiler gave. ImportModelError for a type that is none of `types`.

    A mapping has patterns of nodes' names, and the type of all others under "".
    """
    if dtype is None:
        return Precision()
    if isinstance(dtype, Mapping):
        default, named = dtype.get("", ""), tuple((str(k), str(v)) for k, v in dtype.items() if k)
    else:
        first, *rest = dtype.split(";")
        parts = [(p, t) for p, _, t in (r.rpartition("=") for r in rest)]
        default, named = first, tuple(parts)
    for t in (default, *(t for _, t in named)):
        if t not in ("", *types):
            raise ImportModelError(f"no mixed precision in {t!r}", hint=f"{', '.join(types[:-1])} or {types[-1]}")
    return Precision(default, named)


def check_names(precision: Precision, graph: Graph) -> None:
    """ImportModelError for a pattern that fits no node of the graph, with names that are close."""
    if precision.nodes:
        check_patterns(precision, _names(graph))


def check_patterns(precision: Precision, names: set[str]) -> None:
    """The same, for names that are known."""
    for p, _ in precision.nodes:
        if not any(fnmatchcase(n, p) for n in names):
            close = difflib.get_close_matches(p, names, 3) or sorted(names)[:5]
            raise ImportModelError(f"dtype: no node's name fits {p!r}", hint=f"names: {', '.join(close)}, ...")


def within(dtype: str | None, graph: Graph) -> str | None:
    """The same for a part of a network: without what fits none of its nodes."""
    if dtype is None:
        return None
    precision, names = precision_of(dtype), _names(graph)
    return Precision(
        precision.default, tuple(x for x in precision.nodes if any(fnmatchcase(n, x[0]) for n in names))
    ).text  # fmt: skip


def _names(graph: Graph) -> set[str]:
    names = {n.origin for n in graph.nodes if n.origin}
    for n in filter(is_region, graph.nodes):
        for _, body in bodies(n):
            names |= _names(body)
    return names
