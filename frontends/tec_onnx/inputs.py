"""A model's inputs: their types, and the shapes that a caller gives for what the model leaves open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx

from tec import ImportModelError
from tec.ops.dim_bounds import Empty
from tec.ops.dims import Dim, Size, as_size, names_of
from tec.ops.size_text import names_in, parse_size

from . import reader
from .call import identifier

# An input's type and dimensions, which are ints, names or None; None for what is no tensor.
Entry = tuple[str, list[int | str | None]] | None


def input_info(model: onnx.ModelProto) -> dict[str, Entry]:
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


def _with_names(info: dict[str, Entry]) -> dict[str, Entry]:
    """Dimensions without a name are called by their input and place: "x_0"."""
    taken = {d for entry in info.values() if entry for d in entry[1] if isinstance(d, str)}

    def name(base: str) -> str:
        while base in taken:
            base += "_"
        taken.add(base)
        return base

    return {
        k: entry and (entry[0], [name(f"{identifier(k)}_{n}") if _nameless(d) else d for n, d in enumerate(entry[1])])
        for k, entry in info.items()
    }


def _nameless(d: int | str | None) -> bool:
    return d is None or (isinstance(d, str) and not d.strip("? "))


def bind_shapes(
    model: onnx.ModelProto, shapes: Mapping[str, Any] | None, state: Iterable[str] = ()
) -> dict[str, tuple[Size, ...]]:
    """The shape of every tensor input: the model's, with `shapes` and named dimensions filled in.

    `shapes` has shapes of ints and names by input, and numbers or names by a dimension's name. Dimensions with a name and no
    number stay symbolic under that name; "past + seq" is the sum of two such sizes, where each is a dimension of some input. A name that only
    inputs in `state` have for a dimension may be 0.
    """
    info = _with_names(input_info(model))
    shapes = dict(shapes or {})
    ranks_open = {i.name for i in model.graph.input if not i.type.tensor_type.HasField("shape")}
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
            raise ImportModelError(
                f"input {name!r} is no tensor",
                hint="a sequence or an optional takes no shape: leave it out of shapes=, and run the model through tec_onnx.session(model)",
            )
        if isinstance(given, (str, int)):
            raise ImportModelError(
                f"input {name!r}: the shape {given!r} is no tuple of sizes",
                hint=f"shapes={{{name!r}: {tuple(entry[1])}}}",
            )
        given = shapes[name] = tuple(_size(name, n, alone) for n in given)
        if name in ranks_open:
            continue
        if len(entry[1]) != len(given):
            raise ImportModelError(
                f"input {name!r} has {len(entry[1])} dimensions {entry[1]}, the shape given {len(given)}",
                hint=f"give a size or a name for each: shapes={{{name!r}: {tuple(entry[1])}}}",
            )
        _match_sizes(name, entry[1], given, dims, alone)
    out: dict[str, tuple[Size, ...]] = {}
    for name, entry in info.items():
        if entry is None:
            continue
        if name in shapes:
            out[name] = shapes[name]
            continue
        if name in ranks_open:
            raise ImportModelError(
                f"the model does not say how many dimensions input {name!r} has",
                hint=f'give its shape, of sizes or of names that stay open: shapes={{"{name}": (...)}}',
            )
        out[name] = tuple(d if isinstance(d, int) else _named(d, dims, alone) for d in entry[1] if d is not None)
    _known(out)
    return out


def with_equal(
    model: onnx.ModelProto, shapes: Mapping[str, Any], pairs: Iterable[tuple[Size, Size]]
) -> dict[str, Any] | None:
    """The shapes that a caller gave, and for the first of `pairs` that has a name of a dimension alone what that name stands for, so that both are
    equal; None where no pair has one, or where the name stands for something already.

    Of two names the one that comes later in the model's inputs gives way. (Two sizes that broadcast may also be different, one of them 1. A run with such
    inputs is refused, which tells of the size.)
    """
    own = {d: None for entry in _with_names(input_info(model)).values() if entry for d in entry[1]}
    order = [*own, *(d for given in shapes.values() if isinstance(given, (tuple, list)) for d in given)]
    for pair in pairs:
        names = [n for n in pair if isinstance(n, Dim) and str(n) in n.names()]
        for size in sorted(names, key=lambda n: order.index(str(n)) if str(n) in order else -1, reverse=True):
            name, other = str(size), pair[0] if size == pair[1] else pair[1]
            if name in shapes or name not in order or name in names_of([other]):
                continue
            value = str(other) if isinstance(other, Dim) else other
            if isinstance(other, Dim) and str(other) not in other.names() and not names_in(str(other)):
                continue  # a size that is no expression in text
            more = {k: _replaced(v, name, value) for k, v in shapes.items()}
            return more | {name: value} if name in own else more
    return None


def _replaced(given: Any, name: str, value: int | str) -> Any:
    """What a caller gave for a shape or a name, with `value` for a dimension's name."""
    if isinstance(given, (tuple, list)):
        return tuple(value if d == name else d for d in given)
    return value if given == name else given


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


def _alone(info: Mapping[str, Entry], shapes: Mapping[str, Any], state: set[str]) -> dict[str, Dim]:
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
            if isinstance(d, str):
                found.setdefault(d, set()).add(name in state)
    return {n: Dim(Empty(n)) if where == {True} else Dim(n) for n, where in found.items()}


def _named(d: str, dims: Mapping[str, Size], alone: Mapping[str, Dim]) -> Size:
    """The size of a dimension by its name."""
    if d in dims:
        return dims[d]
    names = names_in(d)
    if names and names <= alone.keys() - {d}:
        size = parse_size(d, lambda n: dims.get(n, alone[n]))
        if size is not None:
            return size
    return alone.get(d, Dim(d))


def _match_sizes(
    name: str, own: Sequence[int | str], given: Sequence[Size], dims: dict[str, Size], alone: Mapping[str, Dim]
) -> None:
    """Hold a shape given for an input against the model's, and keep the sizes that it gives to names, in `dims`."""
    for d, n in zip(own, given):
        if not isinstance(n, Dim) and n < 0:
            raise ImportModelError(
                f"input {name!r}: shape {tuple(given)} has a negative dimension",
                hint=f"a size that is to stay open is a name, not {n}: shapes={{{name!r}: ('batch', ...)}}",
            )
        if isinstance(d, int) and d != n:
            raise ImportModelError(
                f"input {name!r} has shape {own}, not {tuple(given)}",
                hint=f"the model fixes {d}: feed arrays of {d} there, or export the model with a named dimension in its place",
            )
        if isinstance(d, str) and not (names_in(d) and names_in(d) <= alone.keys()):
            if dims.setdefault(d, n) != n:
                raise ImportModelError(
                    f"dimension {d!r} is {dims[d]} and {n}",
                    hint=f"inputs that share the dimension {d!r} have one size there: give both {dims[d]}, or both {n}",
                )


def _size(what: str, n: Any, alone: Mapping[str, Dim]) -> Size:
    if isinstance(n, str):
        if not n.strip("? "):
            raise ImportModelError(
                f"{what!r}: {n!r} is no name of a dimension",
                hint="a name has letters, such as 'batch'; leave the entry out of shapes= and the dimension stays as the model has it",
            )
        size = parse_size(n, lambda name: alone.get(name, Dim(name))) if names_in(n) else None
        return alone.get(n, Dim(n)) if size is None else size
    try:
        return as_size(n)
    except (TypeError, ValueError):
        raise ImportModelError(
            f"{what!r}: {n!r} is no size", hint="an int, or a name for one that stays open"
        ) from None
