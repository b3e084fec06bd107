"""The C runtime of native libraries: its sources, and the objects that were made of them."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

from ..codegen.support import pool
from ..errors import CodegenError

SOURCES = Path(__file__).parent / "c"
OBJECTS = Path(__file__).parent / "objects.zip"  # ARCHITECTURE/KIND, and SOURCE; `python -m tools.c_runtime` writes it
HEADERS = ("tec_abi.h", "model.h", "runtime.h", "gpu.h")
NET_SOURCES = (
    "weights.c",
    "net.c",
    "run.c",
    "sizes.c",
    "states.c",
    "memory.c",
    "steps.c",
    "tensors.c",
    "text.c",
    "threads.c",
    "machine.c",
)
KERNEL_SOURCES = ("kernels.c",)
GPU_SOURCES = ("gpu.c", "gpu_code.c", "gpu_driver.c")
GPU_KERNEL_SOURCES = ("gpu_kernels.c",)
API_SOURCES = ("api.c",)


def digest() -> str:
    """Identifies the sources that the stored objects were made from."""
    text = b"".join(
        (SOURCES / n).read_bytes()
        for n in (*HEADERS, *NET_SOURCES, *KERNEL_SOURCES, *GPU_SOURCES, *GPU_KERNEL_SOURCES, *API_SOURCES)
    )
    return hashlib.sha256(text + "".join(map(pool.source, pool.ALL_TRIPLES)).encode()).hexdigest()


def stored_digest() -> str:
    """The digest of the sources that the stored objects were made from."""
    with zipfile.ZipFile(OBJECTS) as z:
        return z.read("SOURCE").decode()


def objects(arch: str) -> dict[str, bytes]:
    """ "net", "kernels", "gpu", "gpu_kernels" and "api" of an architecture. Raises CodegenError where there are none."""
    with zipfile.ZipFile(OBJECTS) as z:
        found = {n.split("/")[1]: z.read(n) for n in z.namelist() if n.startswith(f"{arch}/")}
        if not found:
            have = sorted({n.split("/")[0] for n in z.namelist()} - {"SOURCE"})
            raise CodegenError(
                f"no native libraries are made for {arch}", hint=f"architectures: {', '.join(have)}", locate=False
            )
    return found
