"""The door to the operators: what Python raises for wrong arguments becomes an ExprError that says which argument it is.

A call that fits costs nothing more; one that fails is compared with the function's signature. An exception of Python that no argument explains is chained, so
that a fault of an operator's own is still to be seen.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from numbers import Integral, Real
from types import FunctionType
from typing import Any, TypeVar

from ..errors import ExprError, TecError
from ..ir.expr import Expr
from ..likeness import meant
from ..te import Tensor

__all__ = ["checked", "check_names"]

_F = TypeVar("_F", bound=Callable[..., Any])
_OF_PYTHON = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError)
_UNPACKED = re.compile(r"(?:not enough|too many) values to unpack \(expected (at least )?(\d+)")
_LETTERS = 40  # of an argument in a message


def _is_integer(x: Any) -> bool:
    return isinstance(x, (Integral, Expr))


def _several(is_one: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, Sequence) and not isinstance(x, str) and all(map(is_one, x))


# What fits an annotation, and the words for it. An annotation that is not here takes anything.
_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "Tensor": (lambda x: isinstance(x, Tensor), "a tensor"),
    "Sequence[Tensor]": (_several(lambda x: isinstance(x, Tensor)), "a list of tensors"),
    "int": (_is_integer, "an integer"),
    "Sequence[int]": (_several(_is_integer), "a list of integers"),
    "float": (lambda x: isinstance(x, (Real, Expr)), "a number"),
    "Sequence[float]": (_several(lambda x: isinstance(x, (Real, Expr))), "a list of numbers"),
    "bool": (lambda x: isinstance(x, Integral), "True or False"),
    "str": (lambda x: isinstance(x, str), "a text"),
    "None": (lambda x: x is None, "None"),
}


def _shown(x: Any) -> str:
    if isinstance(x, Tensor):
        return f"{x.dtype} ({', '.join(map(str, x.shape))})"
    if isinstance(x, (list, tuple)) and any(isinstance(v, Tensor) for v in x):
        return f"[{', '.join(map(_shown, x))}]"
    text = repr(x)
    return text if len(text) <= _LETTERS else text[: _LETTERS - 1] + "…"


def _unfit(given: Mapping[str, Any], parameters: Mapping[str, Parameter]) -> str | None:
    """The first argument that is of another kind than its annotation says, in words."""
    for name, value in given.items():
        annotation = parameters[name].annotation
        if parameters[name].kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD) or not isinstance(
            annotation, str
        ):
            continue
        kinds = [_KINDS.get(part) for part in annotation.split(" | ")]
        if None in kinds or any(fits(value) for fits, _ in filter(None, kinds)):
            continue
        return f"{name} is {_shown(value)}, not {' or '.join(words for _, words in filter(None, kinds))}"
    return None


def _why(error: BaseException, given: Mapping[str, Any]) -> str:
    """What Python's error says of the arguments."""
    if found := _UNPACKED.search(str(error)):
        return f"an argument needs {found[1] or ''}{found[2]} dimensions or values"
    if isinstance(error, IndexError):
        return "an argument has too few dimensions or values"
    return f"{type(error).__name__}: {error}"


def _form(name: str, sign: Signature) -> str:
    """A call in a hint: `topi.nn.dense(data, weight, bias=None)`."""
    words = []
    for p in sign.parameters.values():
        stars = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        words.append(f"{stars}{p.name}" if p.default is p.empty else f"{p.name}={p.default!r}")
    return f"{name}({', '.join(words)})"


def _told(name: str, function: Any, error: Exception, args: Any, options: Any) -> Exception:
    """What to raise in place of an error: the error itself where it is tec's, and the arguments are of the kinds that the function takes."""
    sign = signature(function)
    first = (function.__doc__ or "").partition("\n")[0].partition(". ")[0].strip()
    hint = f"{_form(name, sign)}{': ' + first if first else ''}"
    try:
        given = sign.bind(*args, **options).arguments
    except TypeError as e:
        unknown = [n for n in options if n not in sign.parameters]
        question = meant(unknown[0], sign.parameters) if unknown else None
        return ExprError(f"{name}: {e}{'; ' + question if question else ''}", hint=hint)
    what = _unfit(given, sign.parameters)
    if what is None and isinstance(error, TecError):
        return error
    if what is None:
        shown = ", ".join(f"{n} {_shown(v)}" for n, v in given.items())
        what = f"the arguments do not fit ({shown}): {_why(error, given)}"
    return ExprError(f"{name}: {what}", hint=hint)


def checked(name: str, function: _F) -> _F:
    """The function, whose errors for wrong arguments are ExprErrors; `name` is what its users call it. Where operators call one another the outermost tells."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except (TecError, *_OF_PYTHON) as error:
            if sys._getframe(1).f_globals.get("__name__", "").startswith(__package__):
                raise
            told, cause = _told(name, function, error, args, options), error
        if told is cause:
            raise told
        raise told from cause

    return call  # type: ignore[return-value]


def check_names(where: dict[str, Any], names: Iterable[str], prefix: str) -> None:
    """Replaces the functions of a namespace by checked ones."""
    for n in names:
        f = where[n]
        if isinstance(f, FunctionType) and not hasattr(f, "__wrapped__"):
            where[n] = checked(f"{prefix}.{n}", f)
