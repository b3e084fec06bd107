"""Arguments by the names of other libraries: `dim=` in place of `axis=`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, cast

from .elsewhere import ARGUMENTS
from .errors import ArrayTypeError

_F = TypeVar("_F", bound=Callable[..., Any])


def explained(function: _F) -> _F:
    """The function, whose error for an argument under another library's name says what the argument is called here."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except TypeError:
            known = signature(function).parameters
            strange = [n for n in options if n not in known and ARGUMENTS.get(n) in known]
            if not strange:
                raise
        raise ArrayTypeError(
            f"{function.__name__} has no argument {strange[0]}",
            hint=f"it is called {ARGUMENTS[strange[0]]} here: {ARGUMENTS[strange[0]]}={options[strange[0]]!r}",
        ) from None

    return cast(_F, call)


def explain(functions: dict[str, Any]) -> None:
    """Replaces the functions of a namespace that have such arguments."""
    ours = set(ARGUMENTS.values())
    for name, f in functions.items():
        if type(f) is type(explain) and f.__module__.startswith("tec.array.") and ours & set(signature(f).parameters):
            functions[name] = explained(f)
