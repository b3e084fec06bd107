"""Files that are read whole: regular ones. A pipe or a device in a path would wait for a writer, or never end."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """The file, open for reading. OSError (its `strerror` says why) for what is no regular file, and for a name that can be none."""
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        handle = os.open(path, flags)
    except ValueError as error:  # a NUL in it
        raise OSError(errno.EINVAL, f"the name cannot be one of a file ({error})", os.fspath(path)) from None
    kind = os.fstat(handle).st_mode
    if not stat.S_ISREG(kind):
        os.close(handle)
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, "it is a folder", os.fspath(path))
        raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))
    return os.fdopen(handle, "rb")
