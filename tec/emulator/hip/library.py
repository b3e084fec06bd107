"""The stand-in's shared object: entry points that jump through a table, and what finds Python at the first call.

Made from LLVM IR by the host's LLVM and written by `tec.runtime.objects.sharedobject`: no compiler, no linker. An entry point hands its arguments, as
they are, to the function in its slot. The first call of all finds the Python of the process (or loads one, in a program that has none) and lets it fill
the table (`tec.emulator.hip.start`). Once Python is gone, entry points say that the library is at its end.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import sys
import sysconfig
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy

from ...errors import DeviceError
from ...folders import cache_part, is_own
from ...runtime.objects.sharedobject import shared_object
from .entry import DEINITIALIZED, NOT_INITIALIZED
from .runtime import entry_names

# What the loader fills in: a slot of the library, and libc's function.
_IMPORTS = {"tec_dlsym": "dlsym", "tec_dlopen": "dlopen", "tec_snprintf": "snprintf", "tec_dprintf": "dprintf"}
_NAMES = (
    "libamdhip64.so",
    *(f"libamdhip64.so.{n}" for n in (5, 6, 7)),
    "libhiprtc.so",
    *(f"libhiprtc.so.{n}" for n in (5, 6, 7)),
)
# That the real library's symbols have; a program that was linked with it asks for them, and the loader stops one that finds none at all.
_VERSIONS = [
    f"hip_{major}.{minor}"
    for major, minors in ((4, range(2, 6)), (5, range(8)), (6, range(6)), (7, range(10)))
    for minor in minors
]
_GLOBAL_NOW = 0x102  # RTLD_GLOBAL | RTLD_NOW, of Linux

_START = """
@tec_dlsym = hidden global ptr null
@tec_dlopen = hidden global ptr null
@tec_snprintf = hidden global ptr null
@tec_dprintf = hidden global ptr null
@alive = internal global ptr null
@filled = internal global i32 0
@table = internal global [COUNT x ptr] zeroinitializer

define internal ptr @find(ptr %name) nounwind noinline {
  %f = load ptr, ptr @tec_dlsym
  %p = call ptr %f(ptr null, ptr %name)
  ret ptr %p
}

; 0 where the table is filled and Python lives
define internal i32 @ready() nounwind noinline {
  %have = load ptr, ptr @alive
  %none = icmp eq ptr %have, null
  br i1 %none, label %start, label %check
check:
  %lives = call i32 %have()
  %gone = icmp eq i32 %lives, 0
  br i1 %gone, label %end, label %full
full:
  %done = load i32, ptr @filled
  ret i32 %done
end:
  ret i32 DEINITIALIZED
start:
  %in0 = call ptr @find(ptr @s_alive)
  %load = icmp eq ptr %in0, null
  br i1 %load, label %open, label %go
open:
  %dlopen = load ptr, ptr @tec_dlopen
  %lib = call ptr %dlopen(ptr @s_python, i32 GLOBAL_NOW)
  %in1 = call ptr @find(ptr @s_alive)
  %failed = icmp eq ptr %in1, null
  br i1 %failed, label %nothing, label %go
nothing:
  %dprintf = load ptr, ptr @tec_dprintf
  %w = call i32 (i32, ptr, ...) %dprintf(i32 2, ptr @s_nothing, ptr @s_python)
  ret i32 NOT_INITIALIZED
go:
  %is = phi ptr [ %in0, %start ], [ %in1, %open ]
  store i32 NOT_INITIALIZED, ptr @filled
  store ptr %is, ptr @alive
  %running = call i32 %is()
  %cold = icmp eq i32 %running, 0
  br i1 %cold, label %boot, label %run
boot:
  %init = call ptr @find(ptr @s_init)
  call void %init(i32 0)
  br label %run
run:
  %ensure = call ptr @find(ptr @s_ensure)
  %release = call ptr @find(ptr @s_release)
  %exec = call ptr @find(ptr @s_exec)
  %save = call ptr @find(ptr @s_save)
  %text = alloca [TEXT_BYTES x i8]
  %snprintf = load ptr, ptr @tec_snprintf
  %started = zext i1 %cold to i32
  %n = call i32 (ptr, i64, ptr, ...) %snprintf(ptr %text, i64 TEXT_BYTES, ptr @s_code, i32 %started, ptr @table)
  %gil = call i32 %ensure()
  %rc = call i32 %exec(ptr %text)
  call void %release(i32 %gil)
  %ok = icmp eq i32 %rc, 0
  %state = select i1 %ok, i32 0, i32 NOT_INITIALIZED
  store i32 %state, ptr @filled
  br i1 %cold, label %leave, label %out
leave:
  %was = call ptr %save()
  br label %out
out:
  ret i32 %state
}
"""

_ENTRY = """
define i64 @NAME(...) nounwind {
  %state = call i32 @ready()
  %ok = icmp eq i32 %state, 0
  br i1 %ok, label %go, label %no
go:
  %f = load ptr, ptr getelementptr ([COUNT x ptr], ptr @table, i64 0, i64 SLOT)
  %r = musttail call i64 (...) %f(...)
  ret i64 %r
no:
  %z = zext i32 %state to i64
  ret i64 %z
}
"""


def _python() -> str:
    """The shared library of this Python, for programs that have none."""
    folder, name = sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_config_var("INSTSONAME") or ""
    path = os.path.join(folder, name)
    return path if ".so" in name and os.path.exists(path) else name if ".so" in name else "libpython3.so"


def _code() -> str:
    """What Python runs first; `%p` becomes the table's address, `%d` 1 where this library started Python: then its packages are tec's own."""
    import llvmlite

    here = Path(__file__).parents[3]
    folders = dict.fromkeys([str(here), *(str(Path(m.__file__ or "").parent.parent) for m in (numpy, llvmlite))])
    text = f"""import sys
cold = COLD
folders = [f for f in {list(folders)!r} if f not in sys.path]
sys.path[:] = folders + sys.path if cold else sys.path + folders
if cold:
    sys.executable = {sys.executable!r}
from tec.emulator.hip import start
start("""
    return text.replace("%", "%%").replace("COLD", "%d") + "%p)\n"


def library_ir() -> str:
    """The library as LLVM IR."""
    names, code = entry_names(), _code()
    strings = {
        "s_alive": "Py_IsInitialized", "s_init": "Py_InitializeEx", "s_ensure": "PyGILState_Ensure", "s_release": "PyGILState_Release",
        "s_exec": "PyRun_SimpleString", "s_save": "PyEval_SaveThread", "s_python": _python(), "s_code": code,
        "s_nothing": "tec: the stand-in for libamdhip64 needs Python's shared library, and %s is not found\n",
    }  # fmt: skip
    out = [_START.replace("COUNT", str(len(names))).replace("TEXT_BYTES", str(len(code) + 64))]
    for name, text in strings.items():
        data = text.encode() + b"\0"
        body = "".join(f"\\{c:02x}" for c in data)
        out.append(f'@{name} = internal constant [{len(data)} x i8] c"{body}"')
    out += [
        _ENTRY.replace("NAME", n).replace("SLOT", str(k)).replace("COUNT", str(len(names))) for k, n in enumerate(names)
    ]
    text = "\n".join(out)
    for word, value in (
        ("NOT_INITIALIZED", NOT_INITIALIZED),
        ("DEINITIALIZED", DEINITIALIZED),
        ("GLOBAL_NOW", _GLOBAL_NOW),
    ):
        text = text.replace(word, str(value))
    return text


def build_library() -> bytes:
    """The bytes of libamdhip64.so. Raises DeviceError on systems whose loader takes no ELF."""
    import llvmlite.binding as llvm

    if not sys.platform.startswith("linux"):
        raise DeviceError(
            "the stand-in for libamdhip64 is an ELF library, for Linux alone",
            hint="tec.rocm_emu(chip) works everywhere",
        )
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2, reloc="pic", codemodel="small")
    obj: bytes = machine.emit_object(llvm.parse_assembly(library_ir()))
    return shared_object(obj, "libamdhip64.so.6", _IMPORTS, _VERSIONS)


def library_folder() -> Path:
    """A folder laid out as ROCm's: `lib/libamdhip64.so` and its other names. Made once, kept in tec's cache; where that is off or not the
    user's own, made for this process."""
    key = hashlib.sha256("".join([library_ir(), *_VERSIONS]).encode()).hexdigest()[:16]
    kept = cache_part("hip", make=True)
    if kept is not None:
        try:
            return _write(kept / key)
        except OSError:
            pass  # a full disk: the process's own folder may lie on another one
    try:
        return _write(_of_process() / key)
    except OSError as error:
        raise DeviceError(
            f"no folder to write the stand-in for libamdhip64 to: {error.strerror}", hint="set TEC_CACHE_DIR to one"
        ) from None


def _write(root: Path) -> Path:
    """The library and its names below `root`, unless they are there. Raises OSError."""
    lib = root / "lib"
    if (lib / _NAMES[-1]).exists() and is_own((lib / _NAMES[0]).stat()):
        return root
    lib.mkdir(0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=lib, prefix=".new-")
    with os.fdopen(handle, "wb") as file:
        file.write(build_library())
    os.chmod(temporary, 0o700)
    os.replace(temporary, lib / _NAMES[0])
    for name in _NAMES[1:]:  # one file under all names, so that a process has one library
        link = lib / name
        if not link.is_symlink():
            with suppress(FileExistsError):  # another process was here
                link.symlink_to(_NAMES[0])
    return root


@cache
def _of_process() -> Path:
    """A folder that goes with this process."""
    folder, owner = Path(tempfile.mkdtemp(prefix="tec-hip-")), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # not in a forked child, whose parent still needs it
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder
