"""Locks that a forked child can take.

A lock that another thread holds at the moment of a fork stays locked in the child for ever, since that thread is not there. So
every lock of tec is made here, and is new in a child.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

IMPORT_S = 5.0  # an import that takes longer waits for something itself
_LOCKS: WeakSet[Any] = WeakSet()


def fork_safe_lock() -> Any:
    """A reentrant lock (`with lock:`) that is free in a forked child, whoever held it in the parent."""
    return adopt(threading.RLock())


def adopt(lock: Any) -> Any:
    """Make a lock of somebody else's free in a forked child."""
    _LOCKS.add(lock)
    return lock


if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property:
        """`functools.cached_property` without the lock that Python's has up to 3.11: one for all instances, which a fork may find held.
        Two threads may both compute the value, which is the same one."""

        def __init__(self, function: Callable[[Any], Any]):
            self.function = function
            self.name = function.__name__
            self.__doc__ = function.__doc__

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self.name] = self.function(instance)
            return value


def _renew() -> None:
    for lock in list(_LOCKS):
        lock._at_fork_reinit()  # as the standard library's own modules do


def _others_import() -> bool:
    """Whether another thread is in the midst of importing a module."""
    held = getattr(importlib._bootstrap, "_module_locks", {})
    locks = [ref() for ref in list(held.values())]
    return any(getattr(lock, "owner", None) not in (None, threading.get_ident()) for lock in locks)


def _let_imports_end() -> None:
    """The lock of a module that another thread imports is nobody's in a child, which could never import that module. tec imports
    most of itself at the first build, so a fork waits for that."""
    end = time.monotonic() + IMPORT_S
    while _others_import() and time.monotonic() < end:
        time.sleep(0.001)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_let_imports_end, after_in_child=_renew)
