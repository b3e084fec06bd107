"""NumPy's functions that the standard leaves out, and its names for those that the standard calls otherwise; and methods of arrays.

`tec.array.NAME` finds them (`__getattr__` of the namespace), and `Array` has the methods. Each is written in functions of the standard, so it is an expression like any
other. Arguments are NumPy's; those that are not there raise TypeError.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from ..likeness import meant
from ..runtime.arrays.dtypes import itemsize
from . import (
    creation,
    elementwise,
    inspection,
    manipulation,
    numpy_calculus,
    numpy_elementwise,
    numpy_padding,
    numpy_picking,
    numpy_shapes,
    numpy_statistics,
    numpy_ufuncs,
    searching,
    sorting,
)
from .arguments import checked
from .array import Array, node_of
from .elsewhere import OF_ARRAYS, OF_NAMESPACES
from .numbers import of_numbers

# NumPy's names for functions of the namespace with the same arguments.
ALIASES = {
    "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh",
    "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift", "invert": "bitwise_invert", "bitwise_not": "bitwise_invert",
    "absolute": "abs", "power": "pow", "true_divide": "divide", "conjugate": "conj", "mod": "remainder",
    "around": "round", "asanyarray": "asarray", "ascontiguousarray": "asarray",
}  # fmt: skip


_MODULES = (
    numpy_shapes,
    numpy_statistics,
    numpy_elementwise,
    numpy_calculus,
    numpy_padding,
    numpy_picking,
    numpy_ufuncs,
)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: of_numbers(f) if m is numpy_elementwise else f
    for m in _MODULES
    for name, f in vars(m).items()
    if getattr(f, "__module__", None) == m.__name__ and not name.startswith("_")
}


def near(name: str, names: Any) -> str:
    """What to write instead of a name that is not there, as the end of a message; "" where nothing is near."""
    if name in OF_NAMESPACES:
        return f": {OF_NAMESPACES[name]}"
    for part in ("nn", "linalg", "random", "fft"):
        if name in dir(import_module(f"tec.array.{part}")):
            return f": tec.array.{part}.{name}"
    if callable(getattr(np, name, None)) and not name.startswith("_"):
        return f": np.{name}(x.numpy()) computes it on the host"
    question = meant(name, [*names, *FUNCTIONS, *ALIASES])
    return f": {question}" if question else ""


def _save(file: Any, x: Array) -> None:
    """`np.save` of a copy on the host."""
    np.save(file, x.numpy())


def _load(file: Any, device: Any = None) -> Array:
    """The array that `save` or `np.save` wrote, on a device."""
    return creation.asarray(np.load(file), device=device)


FUNCTIONS |= {"save": _save, "load": _load}


# ---- methods


def _reshape(x: Array, *shape: Any) -> Array:
    """`x.reshape(2, 3)`, `x.reshape((2, 3))`."""
    return manipulation.reshape(
        x, tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)) else shape
    )


def _permuted(x: Array, *axes: Any) -> Array:
    """`x.transpose()`, `x.transpose(1, 0)`, `x.transpose((1, 0))`."""
    given = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
    return numpy_shapes.transpose(x, given)


def _copy(x: Array) -> Array:
    """Another array of the same elements."""
    return creation.asarray(x, copy=True)


def _astype(x: Array, dtype: Any, copy: bool = True) -> Array:
    """Return the elements in another type."""
    return manipulation.astype(x, dtype, copy=copy)


def _clip(x: Array, min: Any = None, max: Any = None) -> Array:
    """Return the elements, limited to bounds."""
    return elementwise.clip(x, min, max)


def _extreme_index(f: Any) -> Any:
    def method(x: Array, axis: int | None = None, keepdims: bool = False) -> Array:
        return f(x, axis=axis, keepdims=keepdims)  # type: ignore[no-any-return]

    method.__doc__ = f.__doc__
    return method


def _argsort(x: Array, axis: int | None = -1, kind: str | None = None) -> Array:
    """The order in which its elements ascend."""
    return sorting.argsort(x, axis=axis)


def _sort(x: Array, axis: int = -1, kind: str | None = None) -> None:
    """Sort the elements in ascending order, in place."""
    x._become(node_of(sorting.sort(x, axis=axis)))


def _fill(x: Array, value: Any) -> None:
    """Sets all elements."""
    x[...] = value


def _take(x: Array, indices: Any, axis: int | None = None) -> Array:
    """The elements at indices (an array, or a list of integers) along an axis, by default of all in order."""
    if isinstance(indices, (list, tuple)):
        indices = creation.asarray(indices, device=x.device)
    return manipulation.take(numpy_shapes.ravel(x) if axis is None else x, indices, axis=0 if axis is None else axis)


METHODS: dict[str, Callable[..., Any]] = {
    "reshape": _reshape, "transpose": _permuted, "squeeze": manipulation.squeeze, "copy": _copy, "astype": _astype, "clip": _clip, "round": elementwise.round,
    "argmax": _extreme_index(searching.argmax), "argmin": _extreme_index(searching.argmin), "argsort": _argsort, "sort": _sort, "fill": _fill,
    "take": _take, "repeat": manipulation.repeat, "flatten": numpy_shapes.ravel, "nonzero": searching.nonzero, "conj": elementwise.conj,
    "conjugate": elementwise.conj, "searchsorted": searching.searchsorted, "partition": numpy_picking._partition_in_place, "argpartition": numpy_picking.argpartition,
    "compress": numpy_picking._compressed,
    **{name: FUNCTIONS[name] for name in ("ravel", "swapaxes", "diagonal", "trace", "dot", "cumsum", "cumprod", "ptp")},
}  # fmt: skip

for _name, _f in METHODS.items():
    setattr(Array, _name, checked(f"Array.{_name}", _f))
for _name, _g in (
    ("real", elementwise.real),
    ("imag", elementwise.imag),
    ("itemsize", lambda x: itemsize(x.dtype.name)),
):
    setattr(Array, _name, property(_g))


def _missing(self: Array, name: str) -> Any:
    if not name.startswith("__"):
        hint = OF_ARRAYS.get(name)
        if hint is None and callable(getattr(inspection.namespace(None), name, None)):
            hint = f"tec.array.{name}(x)"
        if hint is None and name.endswith("_") and not name.startswith("_"):
            hint = f"x = x.{name[:-1]}(...): methods give new arrays"
        if hint is None:
            hint = near(name, dir(Array)).removeprefix(": ") or None
        if hint is not None:
            raise AttributeError(f"an array has no attribute {name!r}: {hint}")
    raise AttributeError(f"an array has no attribute {name!r}")


Array.__getattr__ = _missing  # type: ignore[attr-defined]
