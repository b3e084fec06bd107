"""The errors tec raises: what failed, where in the user's program, and how to mend it.

Every error that a user's input can cause is a `TecError`. The message is complete in itself: the first line says
what failed; `where` (the user's file:line) and `hint` (what would work) follow on lines of their own.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

__all__ = [
    "ArgumentError", "CodegenError", "DeviceError", "ExprError", "ImportModelError", "InternalError", "KernelError", "LoweringError", "MissingPackageError",
    "PackageError", "ScheduleError", "TargetError", "TecError", "TecWarning", "TemplateWarning",
]  # fmt: skip

# tec's own files, its frontends included.
_FRONTENDS = tuple(os.sep + name + os.sep for name in ("tec_onnx", "tec_torch", "tec_gguf", "tec_hf"))
_TEC_ROOT = os.path.dirname(os.path.abspath(__file__)) + os.sep
# Frames of `with` blocks and decorators stand between tec and the user's line, and Triton's where its kernels run on tec's software GPU.
_BETWEEN = (
    os.sep + "contextlib.py",
    os.sep + "functools.py",
    os.path.join("triton", "runtime", "jit.py"),
    os.path.join("triton", "runtime", "autotuner.py"),
)
# torch calls its backends, by code that it makes up too.
_PACKAGES_BETWEEN = tuple(os.path.join(where, "torch") + os.sep for where in ("site-packages", "dist-packages"))


class Loc(NamedTuple):
    """A place in the user's program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


_is_users: dict[str, bool] = {}  # of a file's name, asked for at each node that is made


def _find_users(name: str) -> bool:
    """Whether a file is no part of tec, nor of what stands between it and a user."""
    ours = (
        name.startswith((_TEC_ROOT, "<"))
        or any(part in name for part in _FRONTENDS + _PACKAGES_BETWEEN)
        or name.endswith(_BETWEEN)
    )
    _is_users[name] = not ours
    return not ours


def is_users(file: str) -> bool:
    """Whether a file is the user's: no part of tec, nor of what stands between."""
    return _is_users[file] if file in _is_users else _find_users(file)


def caller_loc() -> Loc | None:
    """The innermost frame outside tec: the user's line. Walks raw frames (0.15 us), never `inspect.stack` (200 us)."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if _is_users[name] if name in _is_users else _find_users(name):
            return Loc(name, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return None


# What the package index calls tec: the import is `tec`, but another project has that name there.
DISTRIBUTION = "tec-compiler"


def install(extra: str) -> str:
    """The command that installs an optional part of tec, for hints."""
    return f'pip install "{DISTRIBUTION}[{extra}]"'


# What a terminal obeys or what shows a text in another order: C0 and C1 controls, and Unicode's marks and controls of direction; line and
# paragraph separators; halves of surrogate pairs, which cannot be printed at all. Tabs and ends of lines are a message's own.
_UNPRINTABLE = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"


def printable(text: str) -> str:
    """A text that may hold names of a model, fit for a terminal: what a terminal would obey stands there escaped, as Python writes it."""
    if text.isprintable():  # none of the above is; compiling their set takes a millisecond
        return text
    return re.sub(_UNPRINTABLE, lambda m: ascii(m[0])[1:-1], text)


def one_line(text: str) -> str:
    """A name as it stands within a line: `printable`, and its ends of lines and tabs are escaped too, so that it makes no line of its own."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def kind_of(x: object) -> str:
    """What something is, with its article: "an int", "a list"."""
    name = type(x).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def shown(x: object) -> str:
    """What something is called in a message: its repr; one of a user's class that raises must not hide the error that is told."""
    try:
        return repr(x)
    except Exception:
        return kind_of(x)


# Letters of a message in one line: some rows of a terminal.
_LINE_LETTERS = 500


def joined(message: str) -> str:
    """A message of several lines in one; a long one is cut."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if len(lines) < 2:
        return message.strip()
    text = lines[0] + (" " if lines[0].endswith(":") else "; ") + "; ".join(lines[1:])
    return text if len(text) <= _LINE_LETTERS else text[: _LINE_LETTERS - 1] + "…"


class TecError(RuntimeError):
    """Base of all errors of tec; a RuntimeError, as TVM's errors are.

    Parameters: `message`, the first line or lines; `where`, the user's file:line (found from the call stack where it is
    left out and `locate` is true); `hint`, how to mend it.

    >>> try:
    ...     tec.const(300, "int8")
    ... except tec.TecError as error:
    ...     print(error.message)
    ...     print(error.hint)
    300 does not fit int8 (-128 to 127)
    a number takes the type of what it meets: convert that first, to uint32 or int64
    """

    def __init__(self, message: str, *, where: Loc | None = None, hint: str | None = None, locate: bool = True):
        message, hint = printable(message), printable(hint) if hint else hint
        self.message = message
        self.where = where if where is not None else (caller_loc() if locate else None)
        self.hint = hint
        text = message
        if self.where is not None:
            text += f"\n  at {printable(str(self.where))}"
        if hint:
            text += f"\n  hint: {hint}"
        super().__init__(text)

    @property
    def summary(self) -> str:
        """What failed and how to mend it in one line, without the place: for command lines, servers and logs.

        >>> tec.TecError("no model", hint="give a path").summary
        'no model (give a path)'
        """
        text = joined(self.message)
        return f"{text} ({'; '.join(self.hint.splitlines())})" if self.hint else text


class TecWarning(UserWarning):
    """What tec does in another way than it should, and goes on: results are right."""


class TemplateWarning(TecWarning):
    """A template has a mistake in its code; another candidate serves in its place. Where choices are strict it is an error."""


class ExprError(TecError, ValueError):
    """An expression that has no meaning: wrong types, a Tensor used as a bool, a bad index.

    >>> A = tec.placeholder((4, 4), name="A")
    >>> try:
    ...     A[0] + 1.0
    ... except tec.ExprError as error:
    ...     print(error.message)
    tensor A has 2 dimensions, only 1 indexed
    """


class ScheduleError(TecError):
    """A schedule primitive that cannot be applied; shows the loop nest.

    >>> A = tec.placeholder((8,), name="A")
    >>> B = tec.compute((8,), lambda i: A[i] + 1.0, name="B")
    >>> s = tec.create_schedule(B.op)
    >>> try:
    ...     s[A].split(B.op.axis[0], factor=4)
    ... except tec.ScheduleError as error:
    ...     print(error.message.splitlines()[0])
    split: A is an input; it has no loops
    """


class KernelError(TecError):
    """A function under `@tec.kernel` that says what kernels cannot, or a launch with the wrong arguments.

    >>> try:
    ...     tec.barrier()
    ... except tec.KernelError as error:
    ...     print(error.message)
    tec.barrier has a meaning inside of a kernel alone
    """


class LoweringError(TecError):
    """A scheduled computation that cannot be turned into loops, or breaks a limit of the target.

    >>> A = tec.placeholder((8,), name="A")
    >>> B = tec.compute((8,), lambda i: A[i + 1], name="B")
    >>> try:
    ...     func = tec.lower(tec.create_schedule(B.op), [A, B])
    ... except tec.LoweringError as error:
    ...     print(error.message.splitlines()[0])
    B reads A[i + 1], which is outside of A (8,): the index is 8 at i = 7
    """


class CodegenError(TecError):
    """Loop IR that a code generator cannot express, or an LLVM failure.

    >>> print(tec.CodegenError("no instruction for an atomic of 128 bits", hint="two of 64 bits").hint)
    two of 64 bits
    """


class TargetError(TecError, ValueError):
    """An unknown target, chip or option.

    >>> try:
    ...     tec.Target("rocm -mcpu=gfx9999")
    ... except tec.TargetError as error:
    ...     print(error.message)
    unknown chip 'gfx9999' for target 'rocm'
    """


class DeviceError(TecError):
    """A device that is not there, or a driver call that failed.

    >>> try:
    ...     tec.device("gpu")
    ... except tec.DeviceError as error:
    ...     print(error.message)
    not a device: 'gpu'
    """


class ArgumentError(TecError):
    """A compiled function called with the wrong arguments.

    >>> try:
    ...     tec.nd.array(np.zeros(4)).copyfrom(np.zeros(3))
    ... except tec.ArgumentError as error:
    ...     print(error.message)
    copy of shape (3,) into an array of shape (4,)
    """


class InternalError(TecError):
    """A fault of tec itself, not of what it was given. The exception that it came from is chained (`__cause__`).

    >>> print(tec.InternalError("an axis without a loop").message)
    a fault inside tec: an axis without a loop
    """

    def __init__(self, message: str):
        super().__init__(
            f"a fault inside tec: {message}",
            locate=False,
            hint="please report it: `tec doctor --report fault.json -- COMMAND` runs the command (of tec, or `python program.py`) again and "
            "writes down the traceback, versions, and the model's operators without its weights",
        )


class MissingPackageError(TecError, ImportError):
    """What was asked for needs a package that is not installed; `name` is the package's. Saved modules and networks run with NumPy alone."""

    def __init__(self, what: str, package: str, hint: str = ""):
        name = package.partition(".")[0]
        super().__init__(
            f"{what} needs the package {name}, which is not installed",
            hint=hint
            or f"pip install {name}; tec.load and tec.load_module run what was saved without it, on CPUs and GPUs",
        )
        self.name = name


def missing_part(what: str, module: str) -> MissingPackageError:
    """The error of what needs a module of tec that the installed distributions do not have: the runtime can be installed alone."""
    if module.startswith("tec.emulator"):
        return MissingPackageError(what, "tec-compiler-emulator", "pip install tec-compiler-emulator")
    return MissingPackageError(what, "tec-compiler")


def other_part(module: str, what: str) -> ModuleType:
    """A module of tec that the runtime does without. Raises MissingPackageError with the distribution that has it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "tec":
            raise
        raise missing_part(what, error.name) from None


def listed(module: str) -> Callable[[], list[str]]:
    """A module's `__dir__`: what it is there for, `__all__` or what it defines, without what it imports. Completion offers that."""

    def names() -> list[str]:
        here = vars(sys.modules[module])
        own = [n for n, x in here.items() if not n.startswith("_") and getattr(x, "__module__", "") == module]
        return sorted(here.get("__all__", own))

    return names


class ImportModelError(TecError):
    """A model file or graph that cannot be taken in.

    >>> try:
    ...     tec.lm.open("no/such/model.gguf")
    ... except tec.ImportModelError as error:
    ...     print(error.message)
    no/such/model.gguf: no such file or folder
    """


class PackageError(TecError):
    """A saved module that is damaged, foreign or of another version.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.tec")
    >>> _ = path.write_bytes(b"no package")
    >>> try:
    ...     tec.load(path)
    ... except tec.PackageError as error:
    ...     print(error.message.partition(": ")[2])
    not a zip file, or cut off
    """


class _Called(ModuleType):
    """A module under a name that is a function's elsewhere: a call says what is meant."""

    def __call__(self, *arguments: object, **keywords: object) -> None:
        name = self.__name__.replace(".runtime.arrays", "").replace(".kernels", "")
        raise ArgumentError(f"{name} is a module, not a function", hint=_MEANT[self.__name__])


_MEANT: dict[str, str] = {}


def meant_by_a_call(module: str, hint: str) -> None:
    """Calls of a module, by its full name, raise an error with this hint."""
    _MEANT[module] = hint
    sys.modules[module].__class__ = _Called


__dir__ = listed(__name__)
