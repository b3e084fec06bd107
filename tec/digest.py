"""SHA-256 without OpenSSL: `hashlib` loads that library, which takes a start 9 ms, to hash some kilobytes. Python's `random` does the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import sha256
else:
    try:
        from _sha2 import sha256  # Python 3.12
    except ImportError:
        try:
            from _sha256 import sha256  # Python 3.11
        except ImportError:  # an interpreter that is built otherwise
            from hashlib import sha256

__all__ = ["sha256"]
