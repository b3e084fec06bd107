"""Loads every family of the opcode table; importing this module costs nothing until `load` is called."""

from __future__ import annotations

_loaded = False


def load() -> None:
    """Register all rows, once."""
    global _loaded
    if _loaded:
        return
    from . import (  # noqa: F401
        table_buffer,
        table_cdna5,
        table_cdna5_convert,
        table_cdna5_memory,
        table_convert,
        table_direct,
        table_flow,
        table_image,
        table_lane,
        table_lds,
        table_matrix,
        table_media,
        table_mem,
        table_packed,
        table_salu,
        table_sample,
        table_smem,
        table_sparse,
        table_typed,
        table_vfloat,
        table_vint,
        table_wmma,
        table_wmma_cdna5,
    )

    _loaded = True
