"""The disk cache of compiled objects, by content.

A key is the hash of everything the object depends on: the LLVM IR text, the CPU and its features, the optimisation level,
LLVM's version. Entries are written to a temporary file and renamed, so that a reader never sees half of one; each carries
a checksum, and one that does not fit is removed and made anew. When the total passes the limit the entries that were
longest unused go. TEC_CACHE_DIR names the folder ("" or "0" switches the cache off), TEC_CACHE_LIMIT_MB the size.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from pathlib import Path

_MAGIC = b"tecobj2\n"  # another number where the same text, machine and LLVM come to another object
_HEADER = len(_MAGIC) + 32
DEFAULT_LIMIT_MB = 512
_TOUCH_AFTER_S = 3600.0  # an entry's time of use is kept this exactly


def directory() -> Path | None:
    """Where entries lie; None where the cache is off."""
    named = os.environ.get("TEC_CACHE_DIR")
    if named is not None:
        return Path(named).expanduser() / "objects" if named not in ("", "0") else None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "tec" / "objects"


def limit_bytes() -> int:
    """The size that the entries together may have."""
    text = os.environ.get("TEC_CACHE_LIMIT_MB", "")
    return (int(text) if text.isdigit() else DEFAULT_LIMIT_MB) << 20


def key_of(*parts: str) -> str:
    """The key of an object that depends on these texts and nothing else."""
    h = hashlib.blake2b(digest_size=20)
    for p in parts:
        data = p.encode()
        h.update(len(data).to_bytes(8, "little"))
        h.update(data)
    return h.hexdigest()


def load(key: str) -> bytes | None:
    """The object under a key, or None. A damaged entry is removed."""
    folder = directory()
    if folder is None:
        return None
    path = folder / key[:2] / key
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    body = raw[_HEADER:]
    if not raw.startswith(_MAGIC) or hashlib.sha256(body).digest() != raw[len(_MAGIC) : _HEADER]:
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > _TOUCH_AFTER_S:
            os.utime(path)
    return body


def store(key: str, body: bytes) -> None:
    """Keep an object. A disk that is full or read-only is no error: the cache is a help, not a need."""
    folder = directory()
    if folder is None:
        return
    path = folder / key[:2] / key
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as f:
                f.write(_MAGIC + hashlib.sha256(body).digest() + body)
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            return
    except OSError:
        return
    if (
        int(key[:3], 16) % 16 == 0 or len(body) > limit_bytes() // 16
    ):  # looking through the folder is dear: now and then
        trim(folder)


def trim(folder: Path | None = None) -> int:
    """Remove the entries longest unused until the rest fits the limit; returns how many went."""
    folder = folder or directory()
    if folder is None:
        return 0
    entries: list[tuple[float, int, str]] = []
    for shard in _scan(str(folder)):
        if shard.is_dir(follow_symlinks=False):
            for e in _scan(shard.path):
                with contextlib.suppress(OSError):
                    st = e.stat(follow_symlinks=False)
                    entries.append((st.st_mtime, st.st_size, e.path))
    total, limit, removed = sum(size for _, size, _ in entries), limit_bytes(), 0
    for _, size, path in sorted(entries):
        if total <= limit:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
            removed += 1
        total -= size
    return removed


def _scan(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as it:
            return list(it)
    except OSError:
        return []
