"""Files that a user asked for: packages, pages, traces, arrays. `write_output` is the one place that writes them.

A regular file is written beside its name, synchronised, and renamed over the old one, so that a reader (and a disk that fills up) sees
the old file or the whole new one; it keeps the mode of the old one. Links are followed: what they point to is written, they stay. Pipes,
devices and open descriptors (`/dev/stdout`, `/dev/fd/N`) are written into, and `-` is standard output.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from typing import Any, BinaryIO, TextIO

from ..errors import ArgumentError, TecError

Content = bytes | str | Callable[[BinaryIO], None]

STDOUT = "-"
_STDOUT: ContextVar[TextIO | None] = ContextVar("_STDOUT", default=None)  # where `sys.stdout` is for messages
_SPOOLED_BYTES = 64 << 20  # content for a stream is held in memory up to here, on the disk beyond
_DESCRIPTOR = r"/(?:dev|proc/(?:self|thread-self|\d+)(?:/task/\d+)?)/fd/(\d+)"
_MOST_LINKS = 40  # Linux's own limit
# The folder takes no new file, or the name is a mount of its own (a file bound into a container): only the file itself can be written.
_IN_PLACE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV)


def write_output(
    path: str | os.PathLike[str], content: Content, error: type[TecError] = ArgumentError, durable: bool = True
) -> None:
    """Write a file of the user's.

    content: bytes, text (UTF-8), or a function that writes into an open binary file. error: the class of what is raised where the system
    refuses, with the system's reason. durable: False leaves out the wait for the disk, for files that can be made again.
    """
    name = _name_of(path, error)
    try:
        if name == STDOUT:
            _write_stdout(content)
        elif (handle := _own_descriptor(name)) is not None:
            _write_stream(handle, content, name)
        elif (mode := _mode_of(name)) is None or stat.S_ISREG(mode):
            _write_regular(os.path.realpath(name), mode, content, durable)
        else:
            _write_stream(_open_stream(name, mode), content, name)
    except OSError as failure:
        raise error(f"cannot write {name}: {failure.strerror or failure}") from None


def _name_of(path: Any, error: type[TecError]) -> str:
    """A path as text; what can be no path of a file is refused."""
    try:
        name = os.fsdecode(path)
        os.fsencode(name)
    except TypeError:
        raise error(f"cannot write a file: a path is wanted, not {type(path).__name__}") from None
    except UnicodeError:
        raise error(f"cannot write {path!r}: the name cannot be one of a file") from None
    if not name or "\0" in name:
        raise error(f"cannot write {name!r}: the name cannot be one of a file")
    return name


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Whether writing to a path replaces no file: `-`, a pipe, a device, an open descriptor."""
    name = os.fspath(path)
    try:
        if name == STDOUT or _descriptor(name) is not None:
            return True
        mode = _mode_of(name)
    except (OSError, ValueError):
        return False
    return mode is not None and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def is_stdout(path: str | os.PathLike[str]) -> bool:
    """Whether what is written to a path goes where this process prints."""
    name = os.fspath(path)
    if name == STDOUT:
        return True
    try:
        return os.path.samestat(os.stat(name), os.fstat(1)) and is_stream(name)
    except (OSError, ValueError):
        return False


@contextmanager
def stdout_for_outputs() -> Iterator[None]:
    """Within it standard output is for `-` alone: what is printed goes to standard error."""
    token = _STDOUT.set(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _STDOUT.reset(token)


# ---- what the name stands for


def _mode_of(name: str) -> int | None:
    """The mode of what a name leads to; None where nothing is there yet."""
    if name.endswith(("/", os.sep)):
        return stat.S_IFDIR
    try:
        return os.stat(name).st_mode
    except FileNotFoundError:
        return None


def _descriptor(name: str) -> int | None:
    """The descriptor of this process that a name leads to, link by link. Where it is a regular file's, its real path would be replaced, and
    what else is written into the descriptor lost."""
    at = os.path.abspath(name)
    for _ in range(_MOST_LINKS):
        folder = os.path.dirname(at)
        match = re.fullmatch(_DESCRIPTOR, at) or re.fullmatch(
            _DESCRIPTOR, os.path.join(os.path.realpath(folder), os.path.basename(at))
        )
        if match is not None:
            owner = re.match(r"/proc/(\d+)/", match[0])
            return int(match[1]) if owner is None or int(owner[1]) == os.getpid() else None
        if not os.path.islink(at):
            return None
        at = os.path.normpath(os.path.join(folder, os.readlink(at)))
    return None


def _own_descriptor(name: str) -> int | None:
    """A copy of the descriptor that a name leads to, which the caller closes."""
    number = _descriptor(name)
    if number is None:
        return None
    if number in (1, 2):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # what was printed before comes before
    return os.dup(number)


def _open_stream(name: str, mode: int) -> int:
    """A descriptor of a pipe or a device."""
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", name)
    if stat.S_ISSOCK(mode):
        raise OSError(errno.ENXIO, "it is a socket", name)
    # Without waiting: opening a pipe that nobody reads would never come back.
    try:
        handle = os.open(name, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    except OSError as failure:
        if failure.errno == errno.ENXIO and stat.S_ISFIFO(mode):
            raise OSError(errno.ENXIO, "nobody reads the pipe; start its reader first", name) from None
        raise
    if hasattr(os, "set_blocking"):
        os.set_blocking(handle, True)
    return handle


# ---- writing


def _fill(f: Any, content: Content) -> None:
    if callable(content):
        content(f)
    else:
        f.write(content.encode() if isinstance(content, str) else content)


def _write_regular(real: str, mode: int | None, content: Content, durable: bool) -> None:
    """Write a file beside its place and rename it, so that nobody sees half of it."""
    if mode is not None and not os.access(real, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), real)  # a rename would not ask
    import secrets  # a program that only reads writes nothing
    import shutil

    temporary = os.path.join(os.path.dirname(real), f".tec-{secrets.token_hex(8)}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        handle = os.open(temporary, flags, 0o666 if mode is None else 0o600)
    except OSError as failure:
        if mode is None or failure.errno not in _IN_PLACE:
            raise
        _write_stream(os.open(real, os.O_WRONLY), content, real, cut=True)
        return
    try:
        with os.fdopen(handle, "wb") as f:
            _fill(f, content)
            f.flush()
            if mode is not None:
                _keep_mode(handle, real, mode)
            if durable:
                os.fsync(handle)
        try:
            os.replace(temporary, real)
        except OSError as failure:
            if mode is None or failure.errno not in _IN_PLACE:
                raise
            with open(temporary, "rb") as whole:
                _write_stream(os.open(real, os.O_WRONLY), lambda f: shutil.copyfileobj(whole, f), real, cut=True)
        if durable:
            _sync_folder(os.path.dirname(real))
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)


def _keep_mode(handle: int, real: str, mode: int) -> None:
    """Give a new file the mode and the owner of the one that it replaces."""
    if not hasattr(os, "fchmod"):  # Windows
        return
    old, new = os.stat(real), os.fstat(handle)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        try:
            os.fchown(handle, old.st_uid, old.st_gid)
        except OSError:
            mode &= ~0o7000  # another's set-user-ID bit is not ours to give
    os.fchmod(handle, stat.S_IMODE(mode))


def _sync_folder(folder: str) -> None:
    """The rename is on the disk, too. Some systems take no such call of a folder: the file is whole all the same."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        return
    finally:
        os.close(handle)


def _write_stream(handle: int, content: Content, name: str, cut: bool = False) -> None:
    """Write into an open descriptor and close it. The content is made whole first: what fails halfway writes nothing."""
    import shutil
    import tempfile

    with os.fdopen(handle, "wb") as out, tempfile.SpooledTemporaryFile(_SPOOLED_BYTES) as whole:
        if not isinstance(content, str) and os.isatty(handle):
            raise OSError(errno.EINVAL, "bytes are nothing for a terminal", name)
        _fill(whole, content)
        whole.seek(0)
        if cut:
            out.truncate(0)
        shutil.copyfileobj(whole, out)


def _write_stdout(content: Content) -> None:
    """Into `sys.stdout`, wherever it leads: the process's own descriptor, or what stands in for it (a notebook's cell, a test's)."""
    stdout = _STDOUT.get() or sys.stdout
    stdout.flush()
    try:
        handle = os.dup(stdout.fileno())
    except (OSError, AttributeError):  # io.UnsupportedOperation is an OSError
        handle = None
    if handle is not None:
        _write_stream(handle, content, STDOUT)
    elif isinstance(content, str):
        stdout.write(content)
    elif (buffer := getattr(stdout, "buffer", None)) is not None:
        _fill(buffer, content)
        buffer.flush()
    else:
        raise OSError(errno.EINVAL, "standard output takes text alone here", STDOUT)
