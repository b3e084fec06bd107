"""The cache of compiled objects on the disk, by content (`disk_cache`).

A key is the hash of everything the object depends on: the LLVM IR text, the CPU and its features, the optimisation level,
LLVM's version.
"""

from __future__ import annotations

import hashlib

from ..disk_cache import Store

_STORE = Store("objects", b"tecobj2\n")  # another number where the same text, machine and LLVM come to another object


def key_of(*parts: str) -> str:
    """The key of an object that depends on these texts and nothing else."""
    h = hashlib.blake2b(digest_size=20)
    for p in parts:
        data = p.encode()
        h.update(len(data).to_bytes(8, "little"))
        h.update(data)
    return h.hexdigest()


load = _STORE.load
store = _STORE.store
trim = _STORE.trim
