"""The linker step: from an AMDGPU object file to the code object that a driver loads.

`link(obj)` uses the ld.lld that `TEC_LLD` names, else that of ROCm (`ROCM_PATH` and `/opt/rocm`: `llvm/bin`,
`lib/llvm/bin`), whose driver loads the result, and without them tec's own ELF writer, which starts no process: for a
small kernel that is a quarter of the compile time. `TEC_LLD=own` asks for the own writer. Where ld.lld is asked for
without a path, it is looked for on PATH too (`ld.lld`, `ld.lld-NN`), and in the pip packages `ziglang` and
`iree-base-compiler`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

from ...errors import CodegenError
from .writer import link_object

_VERSIONS = range(24, 15, -1)
_TIMEOUT_S = 60


def link(obj: bytes, use: str = "auto") -> bytes:
    """The linked code object of the relocatable object `obj`.

    use: "auto" (see above), "lld" (any ld.lld; raises CodegenError where none is found) or "own". Where ROCm's ld.lld
    fails, the own writer takes over; one that `TEC_LLD` names must work.
    """
    if use not in ("auto", "lld", "own"):
        raise CodegenError(f"unknown linker {use!r}", hint='use "auto", "lld" or "own"')
    asked = os.environ.get("TEC_LLD", "")
    if use == "own" or (use == "auto" and asked == "own"):
        return link_object(obj)
    command = find_lld("" if asked == "own" else asked, anywhere=use == "lld")
    if command is None:
        if use == "lld":
            raise CodegenError("no ld.lld found", hint=f"looked for: {', '.join(searched())}; or link with use='own'")
        return link_object(obj)
    try:
        return link_with(command, obj)
    except CodegenError:
        if use == "lld" or asked:
            raise
        return link_object(obj)


def link_with(command: tuple[str, ...], obj: bytes) -> bytes:
    """Link with the given ld.lld command. Raises CodegenError with the linker's own words."""
    with tempfile.TemporaryDirectory(prefix="tec-link-") as folder:
        source, result = Path(folder, "kernels.o"), Path(folder, "kernels.hsaco")
        source.write_bytes(obj)
        arguments = [*command, "-shared", "--build-id=none", str(source), "-o", str(result)]
        try:
            done = subprocess.run(arguments, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CodegenError(f"{command[0]} did not run: {error}", hint="TEC_LLD=own links without it") from None
        if done.returncode or not result.exists():
            raise CodegenError(
                f"{command[0]} failed with {done.returncode}: {done.stderr.strip() or done.stdout.strip()}",
                hint="ld.lld of LLVM 16 to 22 takes tec's objects; TEC_LLD=own links without it",
            )
        return result.read_bytes()


@lru_cache(maxsize=8)
def find_lld(asked: str = "", anywhere: bool = True) -> tuple[str, ...] | None:
    """The command of an ld.lld, or None. `asked` (TEC_LLD) must exist where it is given. anywhere: not in ROCm's folders alone."""
    if asked:
        path = shutil.which(asked)
        if path is None:
            raise CodegenError(
                f"TEC_LLD names {asked!r}, which is no program", hint="give the path of an ld.lld, or own"
            )
        return (path,)
    for folder in _rocm_folders():
        path = shutil.which("ld.lld", path=str(folder))
        if path:
            return (path,)
    if not anywhere:
        return None
    for name in ("ld.lld", *(f"ld.lld-{v}" for v in _VERSIONS)):
        path = shutil.which(name)
        if path:
            return (path,)
    # A package is found without importing it.
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "ld.lld")
    spec = importlib.util.find_spec("iree")
    for root in spec.submodule_search_locations or () if spec else ():
        lld = Path(root, "compiler", "_mlir_libs", "iree-lld")
        if lld.exists():
            return (str(lld), "-flavor", "gnu")
    return None


def _rocm_folders() -> list[Path]:
    roots = [os.environ.get("ROCM_PATH", ""), os.environ.get("HIP_PATH", ""), "/opt/rocm"]
    return [Path(r, sub) for r in roots if r for sub in ("llvm/bin", "lib/llvm/bin")]


def searched() -> list[str]:
    """Where `find_lld` looks, for messages."""
    return ["TEC_LLD", *map(str, _rocm_folders()), "ld.lld on PATH", "pip packages ziglang and iree-base-compiler"]
