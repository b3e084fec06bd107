"""Python's collector of cycles, asked less often while the compiler runs.

Compilation makes millions of small objects that live in trees: nearly all of them are freed as soon as nothing names them. Python looks for cycles after every 700
new objects, and through the whole heap now and then. For ResNet-50 on gfx942 that was a tenth of the processor time and found next to nothing: the peak of memory is the
same with a look after every 10,000.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from .locks import fork_safe_lock

P = ParamSpec("P")
T = TypeVar("T")

YOUNG_OBJECTS = 10_000  # new ones before a look; with 5,000 to 100,000 compilation takes as long within noise

_LOCK = fork_safe_lock()
_inside = 0
_before: tuple[int, int, int] | None = None  # None: nothing was changed


class looks_rarely:
    """A block, or a function that it decorates, in which the collector looks for cycles rarely.

    A program that has chosen to look more rarely still, or never, keeps its choice. The settings are the process's: with several threads inside, the last one out puts back
    what the first one found, unless they were changed meanwhile.
    """

    def __enter__(self) -> None:
        global _inside, _before
        with _LOCK:
            if _inside == 0:
                found = gc.get_threshold()
                _before = found if 0 < found[0] < YOUNG_OBJECTS else None
                if _before is not None:
                    gc.set_threshold(YOUNG_OBJECTS, *found[1:])
            _inside += 1

    def __exit__(self, *error: Any) -> None:
        global _inside
        with _LOCK:
            _inside -= 1
            if _inside == 0 and _before is not None and gc.get_threshold() == (YOUNG_OBJECTS, *_before[1:]):
                gc.set_threshold(*_before)

    def __call__(self, f: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(f)
        def rarely(*args: P.args, **kwargs: P.kwargs) -> T:
            with self:
                return f(*args, **kwargs)

        return rarely
