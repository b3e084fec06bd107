"""Python functions that compiled CPU code calls: `tec.register_func("my.sort", f)`, and `te.call_packed("my.sort", a, n)` in an extern.

The code knows such a function by the symbol of a C function that does not exist; its name says what the function is called and how each argument is
passed (`symbol`, `parse`). When an object is loaded, each symbol of the kind becomes a C function that looks the Python function up by its name, makes
arrays of the pointers and sizes that it is given, and calls it. What it raises comes out of the call of the compiled function.
"""

from __future__ import annotations

import ctypes
import importlib
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any
from urllib.parse import quote, unquote

from ...errors import ArgumentError, PackageError
from ...records import dataclass
from ..arrays.dtypes import itemsize
from ..arrays.ndarray import NDArray
from ..devices.device import cpu
from ..devices.storage import Storage
from . import exprs

_PREFIX = "tec_packed:"
_LIBRARY = "tec.library."
_FUNCTIONS: dict[str, Callable[..., Any]] = {}


def register_func(name: Any, f: Any = None, override: bool = False) -> Any:
    """Let compiled CPU code call a Python function by `name`; a decorator where `f` is left out (`@register_func` takes the function's own name).

    `f(*args)` gets ints (an address for a pointer), floats, texts and NDArrays, which are the very memory of the code, and returns None or an int. `override`: replace one
    that is registered already. Raises ArgumentError for a name that is taken.

    >>> @tec.register_func("my.sort")
    ... def sort(a, out):
    ...     out.copyfrom(np.sort(a.numpy()))
    """
    if callable(name):
        return register_func(name.__name__, name, override)
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"a registered function has a name, not {name!r}", hint='tec.register_func("my.sort", f)')

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(function):
            raise ArgumentError(
                f"{name!r} is to be a function, not {function!r}",
                hint='tec.register_func("my.sort", f), or @tec.register_func("my.sort") above a def',
            )
        if name in _FUNCTIONS and not override:
            raise ArgumentError(f"a function {name!r} is registered already", hint="override=True replaces it")
        _FUNCTIONS[name] = function
        return function

    return add if f is None else add(f)


def get_global_func(name: str, allow_missing: bool = False) -> Callable[..., Any] | None:
    """The function that is registered as `name`; where there is none, None if `allow_missing`, else ArgumentError.

    >>> tec.register_func("my.twice", lambda x: 2 * x, override=True)(21)
    42
    >>> tec.get_global_func("my.twice")(4)
    8
    >>> tec.get_global_func("my.other", allow_missing=True) is None
    True
    """
    f = _FUNCTIONS.get(name)
    # What calls a vendor's library is registered when it is first asked for.
    if f is None and name.startswith(_LIBRARY):
        importlib.import_module("tec.runtime.vendor.calls")
        f = _FUNCTIONS.get(name)
    if f is None and not allow_missing:
        raise ArgumentError(f"no function {name!r} is registered", hint=_registered())
    return f


def remove_global_func(name: str) -> None:
    """Forget a registered function; none where there is none.

    >>> half = tec.register_func("my.half", lambda x: x // 2, override=True)
    >>> tec.remove_global_func("my.half")
    >>> tec.get_global_func("my.half", allow_missing=True) is None
    True
    """
    _FUNCTIONS.pop(name, None)


def _registered() -> str:
    return f"registered: {', '.join(sorted(_FUNCTIONS)) or 'none'}; tec.register_func(name, f)"


# ---- what a symbol says


@dataclass(frozen=True, slots=True)
class Argument:
    """How one argument is passed. kind: "int", "float" and "pointer", a value of 64 bits; "text", part of the symbol; "array", a pointer and `ndim` extents."""

    kind: str
    dtype: str = ""
    ndim: int = 0
    text: str = ""
    written: bool = True

    def __str__(self) -> str:
        if self.kind == "array":
            return f"{self.dtype}[{self.ndim}]{'w' if self.written else ''}"
        return f"'{quote(self.text, safe='')}" if self.kind == "text" else self.kind

    @property
    def slots(self) -> int:
        """Values of the C call that it takes."""
        return {"text": 0, "array": 1 + self.ndim}.get(self.kind, 1)


def symbol(name: str, arguments: Sequence[Argument]) -> str:
    """The C symbol by which code calls function `name` with such arguments."""
    return f"{_PREFIX}{quote(name, safe='')}({','.join(map(str, arguments))})"


def parse(text: str) -> tuple[str, tuple[Argument, ...]] | None:
    """The name and the arguments that a symbol stands for; None for a symbol of another kind."""
    if not text.startswith(_PREFIX) or not text.endswith(")"):
        return None
    name, _, rest = text[len(_PREFIX) : -1].partition("(")
    return unquote(name), tuple(_argument(a) for a in rest.split(",") if a)


def _argument(a: str) -> Argument:
    if a.startswith("'"):
        return Argument("text", text=unquote(a[1:]))
    if a.endswith(("]", "]w")):
        dtype, _, rest = a.partition("[")
        return Argument("array", dtype, int(rest.partition("]")[0]), written=a.endswith("w"))
    return Argument(a)


# ---- calls


def call(name: str, arguments: Sequence[Argument], values: Sequence[Any], array: Callable[..., Any]) -> int:
    """Call the registered function. `array(pointer, shape, dtype, written)` makes an array of what was passed for one."""
    f = get_global_func(name)
    assert f is not None
    args: list[Any] = []
    at = 0
    for a in arguments:
        mine = values[at : at + a.slots]
        at += a.slots
        if a.kind == "array":
            args.append(array(mine[0], tuple(int(n) for n in mine[1:]), a.dtype, a.written))
        else:
            args.append(a.text if a.kind == "text" else mine[0])
    answer = f(*args)
    if answer is None or any(answer is a for a in args):  # `lambda x, out: out.copyfrom(...)` gives what it wrote
        return 0
    if not isinstance(answer, int):
        raise ArgumentError(f"registered function {name!r} returned {answer!r}", hint="None or an int")
    return answer


class _Borrowed:
    """Memory that the compiled function's caller keeps."""


def _array(pointer: int | None, shape: tuple[int, ...], dtype: str, written: bool) -> NDArray:
    storage = Storage(cpu(), prod(shape) * itemsize(dtype), pointer or 0, _Borrowed())
    return NDArray(storage, pointer or 0, shape, dtype, None, written)


_C_TYPES = {"int": ctypes.c_int64, "float": ctypes.c_double, "pointer": ctypes.c_uint64}


class Thunks:
    """The C functions of one loaded object, and what they raised that no call has reported yet."""

    def __init__(self) -> None:
        self.raised: deque[BaseException] = deque()
        self._made: dict[str, Any] = {}

    def __bool__(self) -> bool:
        return bool(self._made)

    def resolve(self, name: str) -> int | None:
        """The address of the C function for a symbol; None where the symbol is of another kind."""
        made = self._made.get(name)
        if made is None:
            found = _parsed(name)
            if found is None:
                return None
            made = self._made[name] = self._thunk(*found)
        return ctypes.cast(made, ctypes.c_void_p).value

    def _thunk(self, name: str, arguments: tuple[Argument, ...]) -> Any:
        types: list[Any] = []
        for a in arguments:
            if a.kind == "array":
                types += [ctypes.c_void_p, *[ctypes.c_int64] * a.ndim]
            elif a.kind != "text":
                if a.kind not in _C_TYPES:
                    raise PackageError(
                        f"an argument of kind {a.kind!r} of function {name!r}", hint=exprs.DAMAGED, locate=False
                    )
                types.append(_C_TYPES[a.kind])

        def thunk(*values: Any) -> int:
            try:
                return call(name, arguments, values, _array)
            except BaseException as e:
                self.raised.append(e)
                return -1

        return ctypes.CFUNCTYPE(ctypes.c_int32, *types)(thunk)

    def report(self) -> None:
        """Raise what a function raised."""
        if self.raised:
            first = self.raised.popleft()
            self.raised.clear()
            raise first


@lru_cache(maxsize=1024)
def _parsed(name: str) -> tuple[str, tuple[Argument, ...]] | None:
    return parse(name)
