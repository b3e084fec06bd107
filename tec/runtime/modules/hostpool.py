"""The helpers that CPU code calls (`tec_parallel_work`, `tec_alloc`, `tec_free`): one thread pool a process; and the loop over a plan's steps.

Their machine code is part of tec (`_pool_data`, made from tec/codegen/support/pool.py), so neither packages nor their users need a
compiler. Threads: TEC_NUM_THREADS (256 at the most), else the cores this process may run on; they
end before the process does. After a fork the child starts its own workers.
"""

from __future__ import annotations

import atexit
import base64
import ctypes
import os
import zlib

from ...locks import fork_safe_lock
from ...target.cpus import host_threads
from ..objects.objfile import HOST, LoadedObject, load_object

HELPERS = (
    "tec_parallel_for",
    "tec_parallel_work",
    "tec_alloc",
    "tec_free",
    "tec_run_steps",
    "tec_run_trips",
    "tec_launch_steps",
    "tec_copy_bytes",
)
_X86_HELPERS = ("tec_tiles_on",)
_LOCK = fork_safe_lock()
_POOL: LoadedObject | None = None  # never unloaded: its workers run in it


def pool() -> LoadedObject | None:
    """The loaded pool; None on a machine that tec has none for."""
    global _POOL
    if _POOL is None:
        with _LOCK:
            if _POOL is None:
                from ._pool_data import OBJECTS

                packed = OBJECTS.get(HOST)
                if packed is None:
                    return None
                loaded = load_object(zlib.decompress(base64.b85decode(packed)))
                _configure(loaded, host_threads())
                if hasattr(os, "register_at_fork"):
                    os.register_at_fork(after_in_child=ctypes.CFUNCTYPE(None)(loaded.address("tec_pool_reset")))
                # The code is never unmapped, not when the interpreter clears its modules either: a thread that some other
                # thread's loop keeps busy at exit runs in it.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(loaded._mapping))
                atexit.register(ctypes.CFUNCTYPE(None)(loaded.address("tec_pool_stop")))
                _POOL = loaded
    return _POOL


def _configure(loaded: LoadedObject, threads: int) -> None:
    loaded.function("tec_pool_configure", None, ctypes.c_int32)(threads)


def set_num_threads(threads: int | None = None) -> None:
    """Use this many threads in parallel loops, the calling one counted; None takes the default again."""
    loaded = pool()
    if loaded is not None:
        _configure(loaded, host_threads() if threads is None else max(1, int(threads)))


def symbols() -> dict[str, int]:
    """Addresses of the helpers; empty on a machine without a pool."""
    loaded = pool()
    names = (*HELPERS, *(_X86_HELPERS if HOST == "x86_64" else ()))
    return {name: loaded.address(name) for name in names} if loaded is not None else {}
