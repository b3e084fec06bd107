"""The code of a checkpoint: from the disk where it is kept, else from the compiler, which is imported then alone."""

from __future__ import annotations

from typing import Any

from .checkpoint import Checkpoint
from .kept import Compiled, Form, read, write


def code_of(checkpoint: Checkpoint, form: Form, key: str | None, progress: Any = None) -> Compiled:
    """Compiled code for a checkpoint. key: under which it is kept (`kept.key_of`); None keeps nothing. Raises ImportModelError, LoweringError, CodegenError."""
    found = read(key) if key is not None else None
    if found is not None:
        return found
    from .compiled import compiled

    made = compiled(checkpoint, form, progress)
    if key is not None:
        write(key, made)
    return made
