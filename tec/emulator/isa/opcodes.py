"""Loads every family of the opcode table; importing this module costs nothing until `load` is called."""

from __future__ import annotations

_loaded = False


def load() -> None:
    """Register all rows, once."""
    global _loaded
    if _loaded:
        return
    from ..images import sampled, typed_buffers, unsampled  # noqa: F401
    from . import (  # noqa: F401
        buffer,
        cdna5,
        cdna5_convert,
        cdna5_memory,
        convert,
        direct,
        flow,
        lane,
        lds,
        media,
        memory,
        mfma,
        packed,
        salu,
        smem,
        vector_float,
        vector_int,
        wmma,
        wmma_cdna5,
    )

    _loaded = True
