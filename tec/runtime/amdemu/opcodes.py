"""Loads every family of the opcode table; importing this module costs nothing until `load` is called."""

from __future__ import annotations

_loaded = False


def load() -> None:
    """Register all rows, once."""
    global _loaded
    if _loaded:
        return
    from . import table_flow, table_lds, table_mem, table_salu, table_vfloat, table_vint  # noqa: F401

    _loaded = True
