"""Folders of tec's own on the disk: the cache's parts and a place for locks, each the user's alone.

Machine code is loaded from the cache, so nobody else may write there. A part of the cache is a folder of mode 0700 that belongs to the
user; what does not is not used, which is said once. `TEC_CACHE_DIR` names the folder above the parts ("", "0" or "off" switches the cache
off); by default it is `tec` in `XDG_CACHE_HOME` or `~/.cache`.
"""

from __future__ import annotations

import os
import stat
import warnings
from functools import cache
from pathlib import Path

DEFAULT_LIMIT_MB = 512
PARTS = ("objects", "networks", "models", "emulator", "hip")
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_SWITCHED_OFF = ("", "0", "off")


def cache_root() -> Path | None:
    """The folder above the cache's parts; None where the cache is switched off. The one reader of TEC_CACHE_DIR."""
    named = os.environ.get("TEC_CACHE_DIR")
    if named is not None:
        return None if named.strip().lower() in _SWITCHED_OFF else Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "tec"


def limit_bytes() -> int:
    """The size that the entries of a part may have together: TEC_CACHE_LIMIT_MB, 0 for none."""
    try:
        return max(0, int(float(os.environ.get("TEC_CACHE_LIMIT_MB", "") or DEFAULT_LIMIT_MB) * 2**20))
    except (ValueError, OverflowError):
        return DEFAULT_LIMIT_MB << 20


def cache_part(name: str, make: bool = False) -> Path | None:
    """The folder of one part, which is the user's own; None where the cache is off, not there (unless `make`), or somebody else's."""
    root = cache_root()
    if root is None:
        return None
    path = root / name
    try:
        if make:
            path.mkdir(0o700, parents=True, exist_ok=True)
        why_not = _why_not_above(root) or _claim(path)
    except OSError:
        return None
    if why_not:
        _tell(str(path), why_not)
        return None
    return path


def why_not_used(name: str) -> str:
    """Why a part that is there is not used; empty where nothing is wrong with it."""
    root = cache_root()
    try:
        return "" if root is None else _why_not_above(root) or _claim(root / name)
    except OSError:
        return ""


def is_own(facts: os.stat_result) -> bool:
    """Whether a file is the user's, and nobody else may write into it."""
    return not hasattr(os, "getuid") or (facts.st_uid == os.getuid() and not facts.st_mode & _WRITABLE_BY_OTHERS)


def lock_folder() -> Path | None:
    """A folder of the user's own for locks of this host, the same for all processes; None where there can be none."""
    if not hasattr(os, "getuid"):
        return None
    places = [Path(run) / "tec"] if (run := os.environ.get("XDG_RUNTIME_DIR")) else []
    import tempfile  # where it is reached alone

    for path in [*places, Path(tempfile.gettempdir()) / f"tec-{os.getuid()}"]:
        try:
            path.mkdir(0o700, exist_ok=True)
            # A link of the name is nothing that this made: it may lead anywhere.
            if not path.is_symlink() and not _claim(path):
                return path
        except OSError:
            continue
    return None


def _claim(path: Path) -> str:
    """Why a folder is not the user's own; empty where it is, and then nobody else may enter it. Raises OSError where it is not there."""
    if not hasattr(os, "getuid"):
        return ""
    link, facts = os.lstat(path), os.stat(path)
    if not stat.S_ISDIR(facts.st_mode):
        return "it is no folder"
    for owner in (link.st_uid, facts.st_uid):
        if owner != os.getuid():
            return f"it belongs to user {owner}"
    if stat.S_IMODE(facts.st_mode) & 0o077:
        os.chmod(path, 0o700)  # entries that another user put there before are refused one by one (`is_own`)
    return ""


def _why_not_above(root: Path) -> str:
    """Why the folder above is no place for a part: whoever may rename there could put another part in its place."""
    if not hasattr(os, "getuid"):
        return ""
    facts = os.stat(root)
    if facts.st_uid not in (os.getuid(), 0):
        return f"the folder above it belongs to user {facts.st_uid}"
    if facts.st_mode & _WRITABLE_BY_OTHERS and not facts.st_mode & stat.S_ISVTX and facts.st_uid != os.getuid():
        return "others may write in the folder above it"
    return ""


@cache
def _tell(path: str, why_not: str) -> None:
    """Once a process for each folder."""
    warnings.warn(
        f"the cache in {path} is not used: {why_not} (TEC_CACHE_DIR names another place, 0 none)", stacklevel=5
    )
