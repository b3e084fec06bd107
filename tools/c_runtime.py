"""Compiles the C runtime of native libraries (tec/native/c) for each architecture: `python -m tools.c_runtime` writes tec/native/objects.zip.

Users need no compiler: the objects are part of tec. It takes clang (14 or later), and for other architectures their C headers (Debian:
libc6-dev-arm64-cross, libc6-dev-riscv64-cross). The thread pool (tec/codegen/support/pool.py) comes with it; its `tec_parallel_work` gets another
name, since the runtime has one that knows of each net's threads.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tec.codegen.objects.merging import join_objects, write_object
from tec.codegen.support import pool
from tec.native.runtime import (
    API_SOURCES,
    GPU_KERNEL_SOURCES,
    GPU_SOURCES,
    KERNEL_SOURCES,
    NET_SOURCES,
    OBJECTS,
    SOURCES,
    digest,
)

TARGETS = {
    "x86_64": ["--target=x86_64-linux-gnu"],
    "aarch64": ["--target=aarch64-linux-gnu", "-mno-outline-atomics", "-isystem", "/usr/aarch64-linux-gnu/include"],
    "riscv64": ["--target=riscv64-linux-gnu", "-mno-relax", "-isystem", "/usr/riscv64-linux-gnu/include"],
}
# No tables for unwinding: nothing is thrown through it. No stack protector: its symbol is a matter of each libc.
FLAGS = [
    "-std=gnu99", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-stack-protector", "-fno-ident",
    "-U_FORTIFY_SOURCE", "-Wall", "-Wextra", "-Werror",
]  # fmt: skip
DATE = (1980, 1, 1, 0, 0, 0)
RENAMED = {"tec_parallel_work": "pool_parallel_work", "tec_parallel_for": "pool_parallel_for"}


def clang() -> str:
    """A clang of this machine."""
    for name in ("clang", *(f"clang-{n}" for n in range(21, 13, -1))):
        found = shutil.which(name)
        if found:
            return found
    raise SystemExit("tools.c_runtime needs clang")


def compile_all(arch: str, folder: Path) -> dict[str, bytes]:
    """The objects of an architecture, by what they are for."""
    made: dict[str, bytes] = {}
    for name in (*NET_SOURCES, *KERNEL_SOURCES, *GPU_SOURCES, *GPU_KERNEL_SOURCES, *API_SOURCES):
        out = folder / f"{arch}-{name}.o"
        subprocess.run([clang(), *TARGETS[arch], *FLAGS, "-c", str(SOURCES / name), "-o", str(out)], check=True)
        made[name] = out.read_bytes()
    renamed = join_objects([pool.compiled(arch)], RENAMED)
    runtime = [made[n] for n in NET_SOURCES], [made[n] for n in KERNEL_SOURCES]
    return {
        "net": write_object(join_objects([*runtime[0], write_object(renamed)])),
        "kernels": write_object(join_objects(runtime[1])),
        "gpu": write_object(join_objects([made[n] for n in GPU_SOURCES])),
        "gpu_kernels": write_object(join_objects([made[n] for n in GPU_KERNEL_SOURCES])),
        "api": write_object(join_objects([made[n] for n in API_SOURCES])),
    }


def write(path: Path) -> None:
    """Write the file of objects; the same sources give the same file."""
    with (
        tempfile.TemporaryDirectory() as folder,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z,
    ):
        z.writestr(zipfile.ZipInfo("SOURCE", DATE), digest())
        for arch in TARGETS:
            for what, data in compile_all(arch, Path(folder)).items():
                info = zipfile.ZipInfo(f"{arch}/{what}", DATE)
                info.compress_type = zipfile.ZIP_DEFLATED
                z.writestr(info, data)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else OBJECTS)
