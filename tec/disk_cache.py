"""Compiled objects on the disk, by content: one store for each kind of them.

A key is the hash of everything that an entry depends on. Entries are written to a temporary file and renamed, so that a reader never sees
half of one; each carries a checksum, and one that does not fit is removed and made anew. When the total passes the limit the entries that
were longest unused go. Nothing is read that the user does not own (`folders`). A disk that is full or read-only is no error: the cache is
a help, not a need.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from .digest import sha256
from .folders import cache_part, cache_root, is_own, limit_bytes

_TOUCH_AFTER_S = 3600.0  # an entry's time of use is kept this exactly
_NEW = ".new-"
# Names that tec gives in its cache. Whatever else lies there is somebody's who put it there, and stays.
_ENTRY = re.compile(r"[0-9a-f]{32,}(\.o|\.tec)?(\.\d+)*|\.new-.*|\.tec-[0-9a-f]{16}\.part")
_LIBRARY = re.compile(r"(hip-)?[0-9a-f]{16}")


class Store:
    """Entries of one kind. part: of the cache's folder; magic: bytes that begin an entry, others where equal keys come to other content;
    suffix: of the files' names."""

    def __init__(self, part: str, magic: bytes, suffix: str = ""):
        self.part, self.magic, self.suffix = part, magic, suffix
        self._header = len(magic) + 32
        self._unlooked = 0  # bytes to store before it is worth looking through the folder again

    def path(self, key: str) -> Path | None:
        """Where an entry lies, or would; None where the cache is off."""
        root = cache_root()
        return None if root is None else root / self.part / key[:2] / (key + self.suffix)

    def load(self, key: str) -> bytes | None:
        """The content under a key, or None. A damaged entry is removed."""
        folder = cache_part(self.part)
        if folder is None or not limit_bytes():
            return None
        path = folder / key[:2] / (key + self.suffix)
        try:
            with open(path, "rb") as f:
                facts = os.fstat(f.fileno())
                if not is_own(facts):
                    return None
                raw = f.read()
        except OSError:
            return None
        body = raw[self._header :]
        if not raw.startswith(self.magic) or sha256(body).digest() != raw[len(self.magic) : self._header]:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        if time.time() - facts.st_mtime > _TOUCH_AFTER_S:
            with contextlib.suppress(OSError):
                os.utime(path)
        return body

    def store(self, key: str, body: bytes) -> None:
        """Keep content under a key."""
        folder = cache_part(self.part, make=True) if limit_bytes() else None
        if folder is None:
            return
        path = folder / key[:2] / (key + self.suffix)
        try:
            path.parent.mkdir(0o700, exist_ok=True)
            import tempfile  # to write alone

            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=_NEW)
            try:
                with os.fdopen(handle, "wb") as f:
                    f.write(self.magic + sha256(body).digest() + body)
                os.replace(temporary, path)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                return
        except OSError:
            return
        # Looking through the folder takes longer than many kernels take to compile (4 s for 87,000 entries): only where it seems nearly full by some of its 256 parts,
        # which keys fill evenly, and a look makes room for a quarter of the limit. A process that has looked stores a 64th of the limit first.
        self._unlooked -= len(body)
        is_due = self._unlooked <= 0 and int(key[:3], 16) % 16 == 0
        if len(body) > limit_bytes() // 16 or (is_due and self._seems_full(folder, key)):
            self.trim()

    def _seems_full(self, folder: Path, key: str) -> bool:
        """Whether the part that was just written to, and then seven others with it, hold more than their share of 7/8 of the limit. Entries differ in size: one part of 340
        is off by some 10 %, eight by a third of that."""
        share, first = limit_bytes() * 7 // 8 // 256, int(key[:2], 16)
        if _size(folder / key[:2]) <= share:
            return False
        return sum(_size(folder / f"{(first + 32 * k) % 256:02x}") for k in range(8)) > 8 * share

    def trim(self) -> int:
        """Where the entries do not fit 7/8 of the limit, remove those longest unused until the rest fits 5/8; returns how many went."""
        self._unlooked = limit_bytes() // 64
        return trim(cache_part(self.part), limit_bytes() * 7 // 8, limit_bytes() * 5 // 8)


def _size(folder: Path) -> int:
    """Bytes of the files that lie in a folder itself."""
    total = 0
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        for entry in found:
            with contextlib.suppress(OSError):
                total += entry.stat(follow_symlinks=False).st_size
    return total


def trim(folder: Path | None, limit: int, left: int | None = None) -> int:
    """Where the entries below a folder take more than `limit` bytes, remove those longest unused until the rest fits `left` bytes (None: the limit); returns how many went."""
    found: list[tuple[float, int, Path]] = []
    for path in entries(folder):
        with contextlib.suppress(OSError):
            facts = path.lstat()
            found.append((facts.st_mtime, facts.st_size, path))
    total, removed = sum(size for _, size, _ in found), 0
    if total <= limit:
        return 0
    for _, size, path in sorted(found):
        if total <= (limit if left is None else left):
            break
        with contextlib.suppress(OSError):
            path.unlink()
            removed += 1
        total -= size
    return removed


def entries(folder: Path | None) -> Iterator[Path]:
    """The files below a part's folder that have names which tec gives. Links to folders are not followed."""
    if folder is None:
        return
    for where, folders, names in os.walk(folder):
        path = Path(where)
        inside = path.relative_to(folder).parts
        is_library = bool(inside) and _LIBRARY.fullmatch(inside[0]) is not None
        for name in names:
            if is_library or _ENTRY.fullmatch(name):
                yield path / name
        if is_library:  # links to one file under its other names
            yield from (path / name for name in folders if (path / name).is_symlink())


def clear(folder: Path) -> None:
    """Remove all entries below a part's folder, and the folders that are empty then."""
    for path in list(entries(folder)):
        with contextlib.suppress(OSError):
            path.unlink()
    for where, _, _ in os.walk(folder, topdown=False):
        if Path(where) != folder:
            with contextlib.suppress(OSError):
                os.rmdir(where)
