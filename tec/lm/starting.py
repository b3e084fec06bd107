"""The code of a checkpoint: from the disk where it is kept, else from the compiler, which is imported then alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ..target.cpus import host_threads
from .checkpoint import Checkpoint
from .kept import Compiled, Form, Making, read, write

_MOST_THREADS = 8  # that make weights: a few bring as much as memory takes


def loaded(
    checkpoint: Checkpoint, form: Form, key: str | None, progress: Any = None
) -> tuple[Compiled, dict[str, Any]]:
    """Compiled code for a checkpoint, and its weights, which are made beside the compiler's work. See `code_of`."""
    with Making(checkpoint, key, min(_MOST_THREADS, host_threads())) as making:
        made = code_of(checkpoint, form, key, progress, making.begin)
        return made, making.of(made)


def code_of(
    checkpoint: Checkpoint, form: Form, key: str | None, progress: Any = None, begun: Callable[..., None] | None = None
) -> Compiled:
    """Compiled code for a checkpoint. key: under which it is kept (`kept.key_of`); None keeps nothing. begun: told the recipes of the weights, and their types, as
    soon as they are known, if there is something to compile. Raises ImportModelError, LoweringError, CodegenError."""
    start = time.perf_counter()
    found = read(key) if key is not None else None
    if found is not None:
        found.seconds = time.perf_counter() - start
        return found
    from .compiled import compiled

    made = compiled(checkpoint, form, progress, begun)
    if key is not None:
        write(key, made)
    made.seconds = time.perf_counter() - start
    return made
