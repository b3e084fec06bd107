"""Examples of functions on tiles, for their docstrings: sessions that differ in a call and its result are written here, and `tests/docs` runs them.

@of_four("tl.max(x, 0)", "3", is_one=True)
def max(...):
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def _example(parameters: str, body: Sequence[str], arrays: str, shows: str, gives: str) -> Callable[[F], F]:
    """Adds a session to a docstring: a kernel `show`, the arrays that it takes, and what is seen afterwards."""
    session = [
        ">>> @tl.jit", f"... def show({parameters}):", *(f"...     {line}" for line in body),
        f">>> {arrays}", f">>> show[(1,)]({parameters})", f">>> {shows}", gives,
    ]  # fmt: skip

    def with_session(function: F) -> F:
        function.__doc__ = f"{(function.__doc__ or '').rstrip()}\n\n" + "".join(f"    {line}\n" for line in session)
        return function

    return with_session


def _array(values: str, dtype: str = "int32") -> str:
    return f"array([{values}], dtype={dtype})"


def of_four(call: str, gives: str, is_one: bool = False) -> Callable[[F], F]:
    """x: 3, 1, 2, 3. gives: the elements as NumPy prints them. is_one: the call makes one number."""
    body = ["i = tl.arange(0, 4)", "x = tl.load(a + i)", f"tl.store(out{'' if is_one else ' + i'}, {call})"]
    arrays = 'a, out = np.int32([3, 1, 2, 3]), np.zeros(4, "int32")'
    return _example("a, out", body, arrays, "int(out[0])" if is_one else "out", gives if is_one else _array(gives))


def of_places(
    call: str, gives: str, count: int = 8, dtype: str = "int32", decimals: int | None = None
) -> Callable[[F], F]:
    """i: 0, 1, 2 and so on. decimals: to which the result is shown."""
    body = [f"i = tl.arange(0, {count})", f"tl.store(out + i, {call})"]
    shows = "out" if decimals is None else f"out.round({decimals})"
    return _example("out", body, f'out = np.zeros({count}, "{dtype}")', shows, _array(gives, dtype))


def of_rows(call: str, first: str, second: str) -> Callable[[F], F]:
    """i: 0 to 3; the call makes two rows of four."""
    body = ["i = tl.arange(0, 4)", "at = 4 * tl.arange(0, 2)[:, None] + i[None, :]", f"tl.store(out + at, {call})"]
    gives = _array(f"[{first}],\n           [{second}]")
    return _example("out", body, 'out = np.zeros((2, 4), "int32")', "out", gives)
