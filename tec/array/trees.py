"""Arrays in nested dicts, lists and tuples: parameters of a model, and what belongs to each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import kind_of
from .array import Array
from .errors import ArrayTypeError


def leaves(tree: Any) -> list[Array]:
    """The arrays of a tree, in order; of dicts by their keys' order."""
    if type(tree) is Array:
        return [tree]
    if isinstance(tree, dict):
        return [x for k in sorted(tree) for x in leaves(tree[k])]
    if isinstance(tree, (list, tuple)):
        return [x for v in tree for x in leaves(v)]
    if tree is None:
        return []
    raise ArrayTypeError(
        f"{kind_of(tree)} among arrays",
        hint="arrays, and dicts, lists and tuples of them; tec.array.asarray(x)",
    )


def rebuilt(tree: Any, arrays: list[Any]) -> Any:
    """A tree of the same form with these in the places of its arrays."""
    rest = iter(arrays)

    def build(t: Any) -> Any:
        if type(t) is Array:
            return next(rest)
        if isinstance(t, dict):
            made = {k: build(t[k]) for k in sorted(t)}
            return {k: made[k] for k in t}
        if isinstance(t, tuple) and hasattr(t, "_fields"):
            return type(t)(*[build(v) for v in t])
        if isinstance(t, (list, tuple)):
            return type(t)(build(v) for v in t)
        return t

    return build(tree)


def mapped(f: Callable[[Array], Any], tree: Any) -> Any:
    """f of each array of a tree."""
    return rebuilt(tree, [f(x) for x in leaves(tree)])


def placed(tree: Any, at: str = "") -> dict[str, Array]:
    """The arrays of a tree by where they stand, `["w"][0]`, in the order of `leaves`. A list and a tuple of the same arrays are alike."""
    if isinstance(tree, dict):
        return {k: x for key in sorted(tree) for k, x in placed(tree[key], f"{at}[{key!r}]").items()}
    if isinstance(tree, (list, tuple)):
        return {k: x for i, v in enumerate(tree) for k, x in placed(v, f"{at}[{i}]").items()}
    return dict.fromkeys([at], tree) if leaves(tree) else {}
