"""SHA-256, where little is hashed without OpenSSL: `hashlib` loads that library, which takes a start 9 ms. Python's `random` does the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hashlib import _Hash
    from hashlib import sha256 as _quick
else:
    try:
        from _sha2 import sha256 as _quick  # Python 3.12
    except ImportError:
        try:
            from _sha256 import sha256 as _quick  # Python 3.11
        except ImportError:  # an interpreter that is built otherwise
            from hashlib import sha256 as _quick

# Bytes from which on OpenSSL is worth loading: it hashes 1,018 MB a second on a Zen 3, and the interpreter's own code 235. Weights of a package are many more.
_LARGE = 3 << 20


def sha256(data: Any = b"") -> _Hash:
    """The hash object of what has a buffer."""
    if memoryview(data).nbytes < _LARGE:
        return _quick(data)
    import hashlib

    return hashlib.sha256(data)
