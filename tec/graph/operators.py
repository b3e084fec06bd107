"""One operator by itself: the types of its outputs, its te tensors, its values.

Frontends and passes hand over attributes that a model file gave, so whatever an operator raises about them becomes a
TecError that names the operator and what it was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import te
from ..errors import ImportModelError, TecError
from ..ops import OpDef, TensorType
from ..ops.dims import Dim, UndecidedSize, bind_hint
from ..ops.indices import check_index, index_sizes
from ..ops.registry import INDEXED
from ..te.numpy_dtype import np_dtype

# What operators raise where attributes are missing, of another type or out of range.
_MISFITS = (KeyError, IndexError, ValueError, TypeError, AttributeError, ArithmeticError, StopIteration, AssertionError)
_MOST_ELEMENTS = 1 << 48  # of one value: larger ones fit no machine, and their indices overflow


def infer_types(definition: OpDef, types: Sequence[TensorType], attrs: dict[str, Any]) -> list[TensorType]:
    """The types of an operator's outputs. ImportModelError where inputs or attributes do not fit it."""
    try:
        made = definition.infer(types, attrs)
        large = next((t for t in made if _misfit(t)), None)
    except ImportModelError:
        raise
    except (TecError, *_MISFITS) as e:
        given = ", ".join(map(str, types))
        if isinstance(e, KeyError) and e.args and isinstance(e.args[0], str) and e.args[0] not in attrs:
            raise ImportModelError(
                f"{definition.name}({given}) needs the attribute {e.args[0]!r}; it has {attrs}",
                hint=f"{definition.name}(..., {e.args[0]}=...)",
            ) from e
        if any(t.is_symbolic for t in types) and not isinstance(e, TecError):
            raise UndecidedSize(
                f"{definition.name}({given}) with {attrs} takes numbers: {_words(e)}",
                hint=bind_hint(*(t.shape for t in types)),
            ) from None
        raise ImportModelError(f"{definition.name}({given}) with {attrs}: {_words(e)}") from e
    if large is not None:
        given = ", ".join(map(str, types))
        raise ImportModelError(f"{definition.name}({given}) with {attrs} would give {large}")
    return made


def _misfit(t: TensorType) -> bool:
    """Whether no tensor has that type; symbolic sizes are checked when they are bound."""
    if t.is_symbolic:
        return any(n < 0 for n in t.shape if not isinstance(n, Dim))
    return t.size > _MOST_ELEMENTS or min(t.shape, default=0) < 0


def compute_op(
    definition: OpDef, attrs: dict[str, Any], tensors: list[Any], outs: Sequence[TensorType]
) -> Sequence[Any]:
    """The te tensors of an operator. ImportModelError where its attributes make no computation."""
    try:
        return definition.compute(attrs, tensors, list(outs))
    except _MISFITS as e:
        raise ImportModelError(f"{definition.name} with {attrs} cannot be computed: {_words(e)}") from e


def _words(e: Exception) -> str:
    return str(e) if isinstance(e, TecError) else f"{type(e).__name__} {e}"


def run_op(
    op: OpDef, attrs: dict[str, Any], arrays: Sequence[Any], types: Sequence[TensorType], outs: list[TensorType]
) -> list[Any]:
    """The values of one operator, by the meaning of its te definition, or the NumPy that it has in its place."""
    if INDEXED in op.traits:
        sizes = index_sizes(op.name, attrs, types[0].shape, types[1].shape)
        check_index(arrays[1], sizes, f"an index of {op.name}")
    if op.host is not None:
        return [np.asarray(a, np_dtype(t.dtype)) for a, t in zip(op.host(attrs, arrays, outs), outs)]
    tensors = [te.placeholder(t.shape, t.dtype, name=f"x{k}") for k, t in enumerate(types)]
    results = compute_op(op, attrs, tensors, outs)
    from ..te.evaluation import evaluate  # the interpreter, for constants alone

    got = evaluate(results, dict(zip(tensors, arrays)))
    return [np.asarray(a, np_dtype(t.dtype)) for a, t in zip(got, outs)]
