"""Arguments that are several to compiled code: complex numbers and arrays, arrays of structs, and tuples and dataclasses that hold arrays.

Compiled code takes arrays of plain numbers and plain numbers. A `Pack` says which of them an argument is (`leaves`), and its type (`Argument` of kind
"group") how a kernel puts them together again. A tuple without arrays stays a constant, as ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from ..errors import KernelError
from ..kernels.translate import Argument
from ..kernels.values import identity
from ..runtime.arrays.complexes import as_parts
from ..runtime.arrays.ndarray import NDArray, from_dlpack, from_numpy
from ..runtime.arrays.records import Records, records_of
from ..runtime.devices.device import Device


class Pack:
    """An argument taken apart. `form`: how the parts come together again, as in `Argument`; `key`: what tells its type from others."""

    __slots__ = ("form", "key", "parts")

    def __init__(self, form: tuple[Any, ...], parts: list[Any]):
        self.form, self.parts = form, parts
        self.key: tuple[Any, ...] = (
            form,
            tuple([p.key if type(p) is Pack else p.layout if type(p) is NDArray else key_of(p) for p in parts]),
        )

    @property
    def leaves(self) -> Iterator[Any]:
        """The arrays and numbers that compiled code gets."""
        for p in self.parts:
            if type(p) is Pack:
                yield from p.leaves
            else:
                yield as_pairs(p) if type(p) is NDArray else p


class Foreign(Exception):
    """Internal: an argument that is to be made an NDArray first."""


# What a kernel may be given beside arrays, numbers and tuples, each a constant: text, functions that it calls, types.
_FIXED = (str, type, np.dtype, FunctionType, BuiltinFunctionType, MethodType, partial, np.ufunc)


def is_fixed(a: Any) -> bool:
    """Whether an argument of a launch is text, a function or a type, which are part of the code."""
    return isinstance(a, _FIXED)


def key_of(a: Any) -> Any:
    """What tells an argument that is no array from those for which there is other code. Raises Foreign."""
    kind = type(a)
    if kind is int:
        return int if -0x80000000 <= a < 0x80000000 else ("wide", -0x8000000000000000 <= a < 0x8000000000000000)
    if kind is float or kind is bool:
        return kind
    if isinstance(a, np.generic):
        return kind
    if a is None:
        return a
    if isinstance(a, tuple) or is_dataclass(kind) or is_fixed(a):
        try:
            return identity(a)
        except TypeError:
            raise Foreign from None
    raise Foreign


def as_pairs(a: NDArray) -> NDArray:
    """A complex array as one of reals with one dimension more; another array as it is."""
    return as_parts(a)


def packed(a: Any) -> Any:
    """An argument as arrays of the runtime, numbers, constants and `Pack`s of them."""
    if isinstance(a, NDArray) or is_fixed(a):
        return a
    if isinstance(a, np.ndarray):
        return of_records(records_of(a)) if a.dtype.names else from_numpy(a)
    if isinstance(a, Records):
        return of_records(a)
    if isinstance(a, (complex, np.complexfloating)):
        return Pack(("complex",), [a.real, a.imag])
    if isinstance(a, np.void) and a.dtype.names:
        return Pack(("struct", a.dtype.names), [packed(a[n]) for n in a.dtype.names])
    if isinstance(a, tuple):
        return Pack(("tuple", type(a), len(a)), [_part(x) for x in a]) if _holds_arrays(a) else a
    if is_dataclass(a):
        if not _holds_arrays(a):
            return a
        names = tuple(f.name for f in fields(a))
        return Pack(("dataclass", type(a), names), [_part(getattr(a, n)) for n in names])
    return from_dlpack(a) if hasattr(a, "__dlpack__") else a


def _part(a: Any) -> Any:
    found = packed(a)
    if found is None or isinstance(found, tuple) or is_dataclass(found) or is_fixed(found):
        return Pack(("constant", found), [])
    return found


def _holds_arrays(a: Any) -> bool:
    if isinstance(a, (np.ndarray, NDArray, Records, np.void)):
        return True
    if isinstance(a, tuple):
        return any(map(_holds_arrays, a))
    if is_dataclass(a) and not isinstance(a, type):
        return any(_holds_arrays(getattr(a, f.name)) for f in fields(a))
    return hasattr(a, "__dlpack__")


def of_records(a: Records) -> Pack:
    """An array of structs: an array for each field."""
    names = tuple(a.dtype.names or ())
    parts: list[Any] = []
    for n in names:
        f = a.field(n, parts=True)
        if isinstance(f, Records):
            parts.append(of_records(f))
        else:
            kind = "whole" if a.dtype[n].base.kind == "c" else "field"
            parts.append(Pack((kind, f.shape[a.ndim :]), [f]))
    return Pack(("records", names, a.ndim), parts)


def type_of_pack(p: Pack, name: str, plain: Any) -> Argument:
    """The type of a pack; `plain(value, name)` gives that of an array or a number."""
    if p.form[0] == "constant":
        return Argument("constant", value=p.form[1])
    parts = tuple(type_of_pack(x, name, plain) if type(x) is Pack else plain(x, name) for x in p.parts)
    if p.form[0] in ("field", "whole"):
        parts = (replace(parts[0], trailing=p.form[1]),)
    return Argument("group", form=p.form, parts=parts)


def flattened(args: Sequence[Any]) -> list[Any]:
    """What compiled code is given for arguments of a launch."""
    out: list[Any] = []
    for a in args:
        if type(a) is Pack:
            out += a.leaves
        else:
            out.append(as_pairs(a) if type(a) is NDArray else a)
    return out


def arrays_in(args: Sequence[Any]) -> Iterator[NDArray]:
    """The arrays among the arguments of a launch."""
    for a in args:
        if type(a) is NDArray:
            yield a
        elif type(a) is Pack:
            yield from arrays_in(a.parts)


def device_of(name: str, args: Sequence[Any]) -> Device | None:
    """The device of the arrays among the arguments; None where there are none. Raises KernelError for two."""
    found: Device | None = None
    for a in arrays_in(args):
        if found is not None and a.device is not found:
            raise KernelError(
                f"{name}: arrays on {found} and on {a.device}",
                hint="tec.nd.array(x, dev) puts an array on a device; NumPy's are on the CPU",
            )
        found = a.device
    return found
