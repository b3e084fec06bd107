"""The door to functions of a package: what Python raises for wrong arguments becomes a TecError that says which argument it is.

A call that fits pays for one frame; one that fails is compared with the function's signature. An exception of Python that no argument explains is chained, so that a
fault of the function's own is still to be seen; one that came out of a function of the user's is theirs, and goes on as it is.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import wraps
from inspect import Parameter, Signature, signature
from numbers import Integral, Real
from types import FunctionType, TracebackType
from typing import Any, TypeVar
from weakref import WeakSet

from .errors import InternalError, TecError, is_users, kind_of
from .likeness import meant
from .records import dataclass

_F = TypeVar("_F", bound=Callable[..., Any])
_CHECKED: WeakSet[Callable[..., Any]] = WeakSet()  # functions that have a door
# What fits an annotation, and the words for it.
Kinds = Mapping[str, tuple[Callable[[Any], bool], str]]

_OF_PYTHON = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError, BufferError)
_FAULTS = (KeyError, AssertionError)  # of tec itself, where all arguments are of the kinds that the function takes
_UNPACKED = re.compile(r"(?:not enough|too many) values to unpack \(expected (at least )?(\d+)")
_LETTERS = 40  # of an argument in a message
_NUMPY = os.sep + "numpy" + os.sep
_PYTHON = os.path.dirname(os.__file__) + os.sep
_PACKAGES = os.sep + "site-packages" + os.sep


def several(is_one: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Whether something is a list or tuple of such."""
    return lambda x: isinstance(x, Sequence) and not isinstance(x, str) and all(map(is_one, x))


def plain_kinds(is_integer: Callable[[Any], bool], is_number: Callable[[Any], bool]) -> Kinds:
    """Numbers, texts and lists of them, where values stand for numbers too."""
    return {
        "int": (is_integer, "an integer"),
        "Sequence[int]": (several(is_integer), "a list of integers"),
        "float": (is_number, "a number"),
        "Sequence[float]": (several(is_number), "a list of numbers"),
        "bool": (lambda x: isinstance(x, (Integral, bool)) or type(x).__name__ == "bool", "True or False"),
        "str": (lambda x: isinstance(x, str), "a text"),
        "None": (lambda x: x is None, "None"),
    }


def is_integer(x: Any) -> bool:
    return isinstance(x, Integral)


def is_number(x: Any) -> bool:
    return isinstance(x, Real)


@dataclass(frozen=True)
class Door:
    """How a package tells of wrong arguments. package: whose functions call one another, where the outermost tells; kinds: what fits an annotation, all fits one
    that is not there; shown: its own values in a message, None for others; error: the error for a message and a hint, in place of Python's; renamed: arguments' names
    elsewhere, with what they are called here; over_own: whether an argument of another kind is told in place of what tec says of the call."""

    package: str
    kinds: Kinds
    shown: Callable[[Any], str | None]
    error: Callable[[BaseException, str, str], TecError]
    renamed: Mapping[str, str] = field(default_factory=dict)
    over_own: bool = False

    def checked(self, name: str, function: _F, through: int = 0) -> _F:
        """The function, whose errors for wrong arguments are TecErrors; `name` is what its users call it. through: frames between its users and it, of a method."""

        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            try:
                return function(*args, **options)
            except (TecError, *_OF_PYTHON) as error:
                if self._is_own(sys._getframe(1 + through).f_globals.get("__name__", "")):
                    raise
                told, cause = self._told(name, function, error, args, options), error
            if told is cause:
                raise told
            raise told from cause

        _CHECKED.add(call)
        return call  # type: ignore[return-value]

    def named(self, name: str) -> Callable[[_F], _F]:
        """A decorator: `checked` under this name."""
        return lambda function: self.checked(name, function)

    def check_names(self, where: dict[str, Any], prefix: str, names: Iterable[str] | None = None) -> None:
        """Replaces functions of a namespace by checked ones: those of `names`, without them all public ones of the package."""
        public = [n for n in where if not n.startswith("_")] if names is None else names
        for n in public:
            f = where[n]
            if type(f) is FunctionType and self._is_own(f.__module__) and f not in _CHECKED:
                where[n] = self.checked(f"{prefix}.{n}", f)

    def check_methods(self, cls: type) -> None:
        """Replaces the public methods of a class by checked ones, named "split" and the like."""
        for n, f in list(vars(cls).items()):
            if type(f) is FunctionType and not n.startswith("_"):
                setattr(cls, n, self.checked(n, f))

    def _is_own(self, module: str) -> bool:
        return module == self.package or module.startswith(self.package + ".")

    def _told(self, name: str, function: Any, error: Exception, args: Any, options: Any) -> Exception:
        """What to raise in place of an error: the error itself where it is the user's own, or where it is tec's and the arguments are of the kinds that the function takes."""
        if _passes_user(error.__traceback__) or (isinstance(error, TecError) and not self.over_own):
            return error
        sign = signature(function)
        first = (function.__doc__ or "").partition("\n")[0].partition(". ")[0].strip()
        hint = f"{_form(name, sign)}{': ' + first if first else ''}"
        try:
            given = sign.bind(*args, **options).arguments
            given.pop("self", None)
        except TypeError as e:
            return self._misnamed(name, sign, error, str(e), options, hint)
        what = self._unfit(given, sign.parameters)
        if what is None and isinstance(error, TecError):
            return error
        if what is None and isinstance(error, _FAULTS):
            return InternalError(f"{name}: {type(error).__name__}: {error}")
        if what is None:
            shown = ", ".join(f"{n} {self._shown(v)}" for n, v in given.items())
            what = f"the arguments do not fit ({shown}): {_why(error)}"
        return self.error(error, f"{name}: {what}", hint)

    def _misnamed(
        self, name: str, sign: Signature, error: Exception, what: str, options: Mapping[str, Any], hint: str
    ) -> TecError:
        unknown = [n for n in options if n not in sign.parameters]
        for n in unknown:
            ours = self.renamed.get(n)
            if ours in sign.parameters:
                return self.error(
                    error, f"{name} has no argument {n}", f"it is called {ours} here: {ours}={options[n]!r}"
                )
        question = meant(unknown[0], sign.parameters) if unknown else None
        return self.error(error, f"{name}: {what}{'; ' + question if question else ''}", hint)

    def _unfit(self, given: Mapping[str, Any], parameters: Mapping[str, Parameter]) -> str | None:
        """The first argument that is of another kind than its annotation says, in words."""
        for name, value in given.items():
            p = parameters[name]
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) or not isinstance(p.annotation, str):
                continue
            kinds = [self.kinds.get(part) for part in p.annotation.split(" | ")]
            if None in kinds or any(fits(value) for fits, _ in filter(None, kinds)):
                continue
            return f"{name} is {self._shown(value)}, not {' or '.join(words for _, words in filter(None, kinds))}"
        return None

    def _shown(self, x: Any) -> str:
        own = self.shown(x)
        if own is not None:
            return own
        if isinstance(x, (list, tuple)) and any(self.shown(v) is not None for v in x):
            return f"[{', '.join(map(self._shown, x))}]"
        try:
            text = repr(x)
        except Exception:  # a user's __repr__, which must not hide the error that is told here
            text = f"{kind_of(x)}"
        return text if len(text) <= _LETTERS else text[: _LETTERS - 1] + "…"


def of_tec(error: Callable[..., TecError]) -> Door:
    """A door to functions of tec as a whole, whose arguments have no kinds: what fails is a call that does not fit their parameters, or Python on the way."""
    return Door("tec", {}, lambda x: None, lambda cause, message, hint: error(message, hint=hint))


def _passes_user(traceback: TracebackType | None) -> bool:
    """Whether an exception came through a function of the user's, which the package called."""
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        python = file.startswith(_PYTHON) and _PACKAGES not in file
        if is_users(file) and not python and _NUMPY not in file:
            return True
        traceback = traceback.tb_next
    return False


def _why(error: BaseException) -> str:
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
        if p.name == "self":
            continue
        stars = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        words.append(f"{stars}{p.name}" if p.default is p.empty else f"{p.name}={p.default!r}")
    return f"{name}({', '.join(words)})"


__all__ = [
    "Door",
    "Kinds",
    "is_integer",
    "is_number",
    "of_tec",
    "plain_kinds",
    "several",
]
