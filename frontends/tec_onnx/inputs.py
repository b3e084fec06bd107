"""A model's inputs: their types, and the shapes that a caller gives for what the model leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx

from tec import ImportModelError
from tec.ops.dims import Dim, Size, as_size

from . import reader


def input_info(model: onnx.ModelProto) -> dict[str, tuple[str, list[int | str | None]] | None]:
    """{name: (dtype, dims)} of the inputs that are no initializers; dims are ints, names or None; None for non-tensors."""
    given = {t.name for t in model.graph.initializer} | {t.values.name for t in model.graph.sparse_initializer}
    out: dict[str, tuple[str, list[int | str | None]] | None] = {}
    for i in model.graph.input:
        if i.name in given:
            continue
        if not i.type.HasField("tensor_type"):
            out[i.name] = None
            continue
        t = i.type.tensor_type
        dims: list[int | str | None] = []
        for d in t.shape.dim:
            # Some exporters write -1 for a dimension that they do not know.
            known = d.HasField("dim_value") and d.dim_value >= 0
            dims.append(d.dim_value if known else d.dim_param or None)
        out[i.name] = (reader.dtype_name(t.elem_type), dims)
    return out


def bind_shapes(model: onnx.ModelProto, shapes: Mapping[str, Any] | None) -> dict[str, tuple[Size, ...]]:
    """The shape of every tensor input: the model's, with `shapes` and named dimensions filled in.

    `shapes` has shapes of ints and names by input, and numbers or names by a dimension's name. Dimensions with a name and no
    number stay symbolic under that name.
    """
    info = input_info(model)
    shapes = dict(shapes or {})
    dims: dict[str, Size] = {}
    for name, given in list(shapes.items()):
        if name not in info:
            # A dimension by its name: shapes={"batch": 4}; or under another name: {"width": "n"}.
            if isinstance(given, (int, str)) and any(e and name in e[1] for e in info.values()):
                dims[name] = _size(name, given)
                del shapes[name]
                continue
            raise ImportModelError(f"the model has no input {name!r}", hint=f"inputs: {', '.join(info)}")
    for name, given in shapes.items():
        entry = info[name]
        if entry is None:
            raise ImportModelError(f"input {name!r} is no tensor")
        if isinstance(given, (str, int)):
            raise ImportModelError(f"input {name!r}: the shape {given!r} is no tuple of sizes")
        given = shapes[name] = tuple(_size(name, n) for n in given)
        if len(entry[1]) != len(given):
            raise ImportModelError(
                f"input {name!r} has {len(entry[1])} dimensions {entry[1]}, the shape given {len(given)}"
            )
        for d, n in zip(entry[1], given):
            if not isinstance(n, Dim) and n < 0:
                raise ImportModelError(f"input {name!r}: shape {tuple(given)} has a negative dimension")
            if isinstance(d, int) and d != n:
                raise ImportModelError(f"input {name!r} has shape {entry[1]}, not {tuple(given)}")
            if isinstance(d, str) and d.strip("?") and dims.setdefault(d, n) != n:
                raise ImportModelError(f"dimension {d!r} is {dims[d]} and {n}")
    out: dict[str, tuple[Size, ...]] = {}
    for name, entry in info.items():
        if entry is None:
            continue
        if name in shapes:
            out[name] = shapes[name]
            continue
        known = [d if isinstance(d, int) else _named(d, dims) for d in entry[1]]
        if any(n is None for n in known):
            raise ImportModelError(
                f"input {name!r} has shape {entry[1]}: some dimensions are not known",
                hint=f'give them, as sizes or as names that stay open: shapes={{"{name}": (...)}}',
            )
        out[name] = tuple(n for n in known if n is not None)
    return out


def _named(d: str | None, dims: Mapping[str, Size]) -> Size | None:
    """The size of a dimension by its name; None for one without a name."""
    return dims.get(d, Dim(d)) if d and d.strip("?") else None


def _size(what: str, n: Any) -> Size:
    if isinstance(n, str):
        if not n.strip("? "):
            raise ImportModelError(f"{what!r}: {n!r} is no name of a dimension")
        return Dim(n)
    try:
        return as_size(n)
    except (TypeError, ValueError):
        raise ImportModelError(
            f"{what!r}: {n!r} is no size", hint="an int, or a name for one that stays open"
        ) from None
