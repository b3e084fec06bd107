"""What a template gets wrong in its own code, told apart from what it cannot do.

A template refuses with a TecError. Any other exception (a missing key, a wrong type, an assertion) is a mistake in its code. The chain of candidates goes on in both
cases, so that a network compiles. But a mistake is never silent: it is an error where choices are strict, as in tests, and else a `TemplateWarning` names the template
and the line.
"""

from __future__ import annotations

import contextlib
import os
import traceback
import warnings
from collections.abc import Iterator
from contextvars import ContextVar

from ..errors import InternalError, TecError, TemplateWarning

# What is no mistake: words of refusal, the host's limits, a template that has no price.
_REFUSALS = (TecError, RecursionError, MemoryError, OSError, NotImplementedError)

_STRICT: ContextVar[bool | None] = ContextVar("tec_strict_choices", default=None)


def is_strict() -> bool:
    """Whether a refused default, and any template's mistake, is an error: as `strictly` says, else as TEC_STRICT_CHOICES does."""
    said = _STRICT.get()
    return os.environ.get("TEC_STRICT_CHOICES", "") not in ("", "0") if said is None else said


@contextlib.contextmanager
def strictly(on: bool = True) -> Iterator[None]:
    """Inside of the block refused defaults and mistakes are errors, or are none."""
    token = _STRICT.set(on)
    try:
        yield
    finally:
        _STRICT.reset(token)


def is_mistake(error: Exception) -> bool:
    """Whether an exception says that code is wrong, and not that something cannot be done."""
    return isinstance(error, InternalError) or not isinstance(error, _REFUSALS)


def words_of(error: Exception) -> str:
    """Why, in the words of who refused; of an exception that is no TecError, where it came from."""
    if isinstance(error, TecError):
        return error.message
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = "".join(f" ({f.filename.rpartition('/tec/')[2]}:{f.lineno}, in {f.name})" for f in last)
    return f"{type(error).__name__}: {error}{where}"


def tell(template: str, stage: str, error: Exception) -> None:
    """Raise a template's mistake where choices are strict, else warn of it; nothing for a refusal."""
    if not is_mistake(error):
        return
    if is_strict():
        raise error
    warnings.warn(
        f"a mistake in the template {template!r}, or in what lowers it, at {stage}: {words_of(error)}. Other candidates are tried, and results are the same. "
        "Please report it.",
        TemplateWarning,
        stacklevel=3,
    )


@contextlib.contextmanager
def told(template: str, stage: str) -> Iterator[None]:
    """The block may fail: a refusal ends it in silence, a mistake as `tell` says."""
    try:
        yield
    except Exception as error:
        tell(template, stage, error)
