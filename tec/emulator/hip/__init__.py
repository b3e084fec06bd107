"""A stand-in for libamdhip64: programs that use the HIP runtime run unchanged on the software GPU.

    tec emu --chip gfx942 --check race,init -- python program.py

`library` makes a shared object without a compiler, whose functions call `Runtime` (`runtime`, with its parts `devices`, `memories`, `streams`, `modules`,
`programs`, `rtc`). `environment` is what a program needs around it to find the library. The same library serves Python programs (ctypes, HIP
Python, tinygrad) and compiled ones, into which it loads Python.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ..checks.names import parse_checks
from ..chips import CHIPS
from ..errors import EmulationError
from .library import library_folder
from .runtime import Runtime

_runtime: Runtime | None = None  # of this process; the library's table points into it


def start(table: int) -> None:
    """Called by the library at its first call: answer its functions from here on. TEC_HIP_CHIP and TEC_HIP_CHECK say what by."""
    global _runtime
    runtime = Runtime(os.environ.get("TEC_HIP_CHIP") or "gfx942", os.environ.get("TEC_HIP_CHECK") or "bounds")
    runtime.fill(table)
    _runtime = runtime


def environment(chip: str = "gfx942", check: str = "bounds", base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment in which a program finds the stand-in in the place of libamdhip64: `base`, with LD_LIBRARY_PATH and ROCM_PATH set.

    Raises DeviceError for a chip or a check that is not there.
    """
    checks = parse_checks(check)
    if chip not in CHIPS:
        raise EmulationError(f"no emulated chip {chip!r}", hint=f"one of: {', '.join(CHIPS)}")
    root = library_folder()
    _link_compiler(root, base)
    path = os.pathsep.join(p for p in (str(root / "lib"), base.get("LD_LIBRARY_PATH", "")) if p)
    return {
        **base, "LD_LIBRARY_PATH": path, "ROCM_PATH": str(root), "TEC_HIP_CHIP": chip, "TEC_HIP_CHECK": ",".join(sorted(checks)),
    }  # fmt: skip


def _link_compiler(root: Path, base: Mapping[str, str]) -> None:
    """ROCm's compiler library, where there is one, stays to be found in the folder that ROCM_PATH names from here on."""
    link = root / "lib" / "libamd_comgr.so"
    folders = [Path(base[v], "lib") for v in ("ROCM_PATH", "HIP_PATH") if base.get(v)]
    for folder in [*folders, Path("/opt/rocm/lib")]:
        found = folder / link.name
        if folder != link.parent and found.exists():
            if not link.is_symlink() or link.resolve() != found.resolve():
                link.unlink(missing_ok=True)
                link.symlink_to(found.resolve())
            return


__all__ = ["environment", "start"]
