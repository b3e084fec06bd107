"""tvm.contrib.pickle_memoize: results that tests keep. They are kept for the life of the process alone: no file of pickles is read or written."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..names import absent


def memoize(key: str, save_at_exit: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: a call with arguments of an earlier one gives that one's result."""
    return functools.cache


__getattr__ = absent(__name__)
