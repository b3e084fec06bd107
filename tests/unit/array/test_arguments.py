"""Wrong arguments of array functions: a TecError of the Python type that array libraries raise, which names the function and the argument."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tec

xp = tec.array
_FILES = ("load", "save")  # errors of files are the system's


def functions() -> dict[str, Callable[..., Any]]:
    """What the namespaces have, by name; each once."""
    found: dict[int, tuple[str, Callable[..., Any]]] = {}
    for part in (xp, xp.linalg, xp.fft, xp.nn, xp.random):
        for name in dir(part):
            f = getattr(part, name)
            if callable(f) and not inspect.isclass(f) and not name.startswith("_") and name not in _FILES:
                found.setdefault(id(f), (f"{part.__name__}.{name}", f))
    return dict(found.values())


def wrong_calls(f: Callable[..., Any]) -> Iterator[list[Any]]:
    places = inspect.signature(f).parameters.values()
    required = max(
        1, sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in places)
    )
    x = xp.ones((3, 3))
    for value in (None, "a", 3, 2.5, [1, 2], (), {}, 1j, object(), np.zeros(2, "O")):
        for arrays in range(required + 1):
            yield [*[x] * arrays, *[value] * max(1, required - arrays)]
    for rank in (0, 1, 3):
        yield [xp.ones((3,) * rank)] * required
    yield []


def test_a_wrong_call_is_a_tec_error() -> None:
    for name, f in functions().items():
        for args in wrong_calls(f):
            try:
                f(*args)
            except tec.TecError as e:
                assert not isinstance(e, tec.InternalError), f"{name}{args}"
            except Exception as e:
                raise AssertionError(f"{name}{args}: {e!r}") from None


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        (lambda x: xp.tile(x, "a"), ValueError, r"tec.array.tile: the arguments do not fit \(x an array float32 \(3, 3\), repetitions 'a'\)"),
        (lambda x: xp.matmul(x), TypeError, "tec.array.matmul: missing a required argument: 'x2'"),
        (lambda x: xp.linalg.solve(None, x), TypeError, "neither an array nor a number: None"), (lambda x: xp.pad(None, 3), TypeError, "tec.array.pad: x is None, not an array"),
        (lambda x: xp.sum(x, axi=0), TypeError, r"unexpected keyword argument 'axi'; is axis meant\?"),
        (lambda x: xp.sum(x, dim=0), TypeError, "it is called axis here: axis=0"), (lambda x: x.sum(dim=0), TypeError, "it is called axis here: axis=0"),
        (lambda x: xp.fft.fft(x, "a"), TypeError, "tec.array.fft.fft: n is 'a', not an integer or None"),
        (lambda x: x.reshape("a"), TypeError, "Array.reshape: .*shape"), (lambda x: x.repeat("a"), TypeError, "Array.repeat"), (lambda x: x.astype(), TypeError, "Array.astype: missing a required argument: 'dtype'"),
        (lambda x: tec.vjp(3, x), TypeError, "vjp of an int, no function"), (lambda x: tec.value_and_grad(3), TypeError, "no function"), (lambda x: tec.jvp(lambda v: v, x, x), TypeError, "jvp takes lists or tuples"),
        (lambda x: xp.concat(None), TypeError, "tec.array.concat"), (lambda x: xp.arange("a"), TypeError, r"tec.array.arange: .*start 'a'"),
    ],
)  # fmt: skip
def test_the_message_names_the_argument(call: Any, kind: type, says: str) -> None:
    with pytest.raises(tec.TecError, match=f"(?s){says}") as e:
        call(xp.ones((3, 3)))
    assert isinstance(e.value, kind) and e.value.where is not None and e.value.where.file == __file__


def test_an_error_of_the_users_own_function_is_theirs() -> None:
    def broken(i: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        xp.fromfunction(broken, (3,))


def test_static_arguments_may_be_a_set() -> None:
    twice = tec.array.jit(lambda x, n: x * n, static={"n"})
    assert twice(tec.array.ones(2), n=2).tolist() == [2.0, 2.0]
