"""A model's inputs: their types, and the shapes that a caller gives for what the model leaves open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import onnx

from tec import ImportModelError
from tec.ops.dim_bounds import Empty
from tec.ops.dims import Dim, Size, as_size
from tec.ops.size_text import names_in, parse_size

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


def bind_shapes(
    model: onnx.ModelProto, shapes: Mapping[str, Any] | None, state: Iterable[str] = ()
) -> dict[str, tuple[Size, ...]]:
    """The shape of every tensor input: the model's, with `shapes` and named dimensions filled in.

    `shapes` has shapes of ints and names by input, and numbers or names by a dimension's name. Dimensions with a name and no
    number stay symbolic under that name; "past + seq" is the sum of two such sizes, where each is a dimension of some input. A name that only
    inputs in `state` have for a dimension may be 0.
    """
    info = input_info(model)
    shapes = dict(shapes or {})
    dims: dict[str, Size] = {}
    alone = _alone(info, shapes, set(state))
    for name, given in list(shapes.items()):
        if name not in info:
            # A dimension by its name: shapes={"batch": 4}; or under another name: {"width": "n"}.
            if isinstance(given, (int, str)) and name in alone:
                dims[name] = _size(name, given, alone)
                del shapes[name]
                continue
            raise ImportModelError(f"the model has no input {name!r}", hint=f"inputs: {', '.join(info)}")
    for name, given in shapes.items():
        entry = info[name]
        if entry is None:
            raise ImportModelError(f"input {name!r} is no tensor")
        if isinstance(given, (str, int)):
            raise ImportModelError(f"input {name!r}: the shape {given!r} is no tuple of sizes")
        given = shapes[name] = tuple(_size(name, n, alone) for n in given)
        if len(entry[1]) != len(given):
            raise ImportModelError(
                f"input {name!r} has {len(entry[1])} dimensions {entry[1]}, the shape given {len(given)}"
            )
        for d, n in zip(entry[1], given):
            if not isinstance(n, Dim) and n < 0:
                raise ImportModelError(f"input {name!r}: shape {tuple(given)} has a negative dimension")
            if isinstance(d, int) and d != n:
                raise ImportModelError(f"input {name!r} has shape {entry[1]}, not {tuple(given)}")
            if isinstance(d, str) and d.strip("?") and not (names_in(d) and names_in(d) <= alone.keys()):
                if dims.setdefault(d, n) != n:
                    raise ImportModelError(f"dimension {d!r} is {dims[d]} and {n}")
    out: dict[str, tuple[Size, ...]] = {}
    for name, entry in info.items():
        if entry is None:
            continue
        if name in shapes:
            out[name] = shapes[name]
            continue
        known = [d if isinstance(d, int) else _named(d, dims, alone) for d in entry[1]]
        if any(n is None for n in known):
            raise ImportModelError(
                f"input {name!r} has shape {entry[1]}: some dimensions are not known",
                hint=f'give them, as sizes or as names that stay open: shapes={{"{name}": (...)}}',
            )
        out[name] = tuple(n for n in known if n is not None)
    _known(out)
    return out


def with_size(shape: Any, name: str, size: int) -> Any:
    """A shape that a caller gave, with a number for a dimension's name."""
    return tuple(size if d == name else d for d in shape) if isinstance(shape, (tuple, list)) else shape


def _known(shapes: Mapping[str, tuple[Size, ...]]) -> None:
    """Every name is a whole dimension somewhere: a run learns it there."""
    open_sizes = [(name, n) for name, shape in shapes.items() for n in shape if isinstance(n, Dim)]
    given = {str(n) for _, n in open_sizes}
    for name, n in open_sizes:
        for missing in sorted(n.names() - given):
            raise ImportModelError(
                f"input {name!r}: the size {n} needs {missing!r}, which no input has for a whole dimension",
                hint="give the dimension a name of its own, or a number",
            )


def _alone(
    info: Mapping[str, tuple[str, list[int | str | None]] | None], shapes: Mapping[str, Any], state: set[str]
) -> dict[str, Dim]:
    """The sizes that some dimension of an input is, by name."""
    found: dict[str, set[bool]] = {}  # whether the inputs that have it are state
    for name, entry in info.items():
        if entry is None:
            continue
        given = shapes.get(name)
        if isinstance(given, (tuple, list)):
            for d in given:
                if isinstance(d, str) and not names_in(d):
                    found.setdefault(d, set()).add(name in state)
        for d in entry[1]:
            if isinstance(d, str) and d.strip("?"):
                found.setdefault(d, set()).add(name in state)
    return {n: Dim(Empty(n)) if where == {True} else Dim(n) for n, where in found.items()}


def _named(d: str | None, dims: Mapping[str, Size], alone: Mapping[str, Dim]) -> Size | None:
    """The size of a dimension by its name; None for one without a name."""
    if not d or not d.strip("?"):
        return None
    if d in dims:
        return dims[d]
    names = names_in(d)
    if names and names <= alone.keys() - {d}:
        size = parse_size(d, lambda n: dims.get(n, alone[n]))
        if size is not None:
            return size
    return alone.get(d, Dim(d))


def _size(what: str, n: Any, alone: Mapping[str, Dim]) -> Size:
    if isinstance(n, str):
        if not n.strip("? "):
            raise ImportModelError(f"{what!r}: {n!r} is no name of a dimension")
        size = parse_size(n, lambda name: alone.get(name, Dim(name))) if names_in(n) else None
        return alone.get(n, Dim(n)) if size is None else size
    try:
        return as_size(n)
    except (TypeError, ValueError):
        raise ImportModelError(
            f"{what!r}: {n!r} is no size", hint="an int, or a name for one that stays open"
        ) from None
