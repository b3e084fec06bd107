"""Where vendor libraries are, and of which version: `find("cublas")`, `found()` for all.

Names are tried in this order: the library's own variable (TEC_CUBLAS ...), the loader's names, the vendor's folder ($ROCM_PATH/lib, $CUDA_PATH/lib64), wheels that
lie in Python's path (nvidia/*/lib, and oneDNN's, which puts its library into the environment's lib folder).
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import DeviceError
from ...records import dataclass
from ..devices.dynlib import find_library

_DEVICES = {"rocm": "AMD GPUs", "cuda": "NVIDIA GPUs", "cpu": "CPUs"}


@dataclass(frozen=True, slots=True)
class Known:
    """A library that tec can call. sonames: newest first; folders: of wheels, within Python's path."""

    name: str
    kind: str  # of the devices whose arrays it takes: "cuda", "rocm" or "cpu"
    operations: str  # "products", "convolutions" or "Fourier transforms"
    sonames: tuple[str, ...]
    folders: tuple[str, ...]
    version: Callable[[Any], str]

    @property
    def what(self) -> str:
        """In words."""
        return f"{self.operations} on {_DEVICES[self.kind]}"


@dataclass(frozen=True, slots=True)
class Found:
    """Whether a library is there. version: as in "12.8.4"; why_not: what was looked for, "" where it is there."""

    name: str
    what: str
    path: str = ""
    version: str = ""
    why_not: str = ""


def _dotted(n: int, major: int, minor: int) -> str:
    return f"{n // major}.{n % major // minor}.{n % minor}"


def _by_word(function: str, major: int, minor: int) -> Callable[[Any], str]:
    """A version that a function of no arguments returns as one number."""

    def read(lib: Any) -> str:
        f = getattr(lib, function)
        f.restype = c_size_t
        return _dotted(int(f()), major, minor)

    return read


def _cublas_version(lib: Any) -> str:
    parts = []
    for which in (0, 1, 2):  # libraryPropertyType: MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL
        n = c_int()
        lib.cublasGetProperty(c_int(which), byref(n))
        parts.append(str(n.value))
    return ".".join(parts)


def _cufft_version(lib: Any) -> str:
    n = c_int()
    lib.cufftGetVersion(byref(n))
    return _dotted(n.value, 1000, 100)


def _text_version(function: str) -> Callable[[Any], str]:
    """A version that a function writes as text: (buffer, bytes)."""

    def read(lib: Any) -> str:
        buffer = ctypes.create_string_buffer(256)
        f = getattr(lib, function)
        f.argtypes = [c_char_p, c_size_t]
        return "" if f(buffer, len(buffer)) else buffer.value.decode(errors="replace").split("-")[0]

    return read


def _miopen_version(lib: Any) -> str:
    parts = [c_size_t(), c_size_t(), c_size_t()]
    return "" if lib.miopenGetVersion(*map(byref, parts)) else ".".join(str(p.value) for p in parts)


def _hipblaslt_version(lib: Any) -> str:
    handle, n = c_void_p(), c_int()
    if lib.hipblasLtCreate(byref(handle)):
        return ""
    status = lib.hipblasLtGetVersion(handle, byref(n))
    lib.hipblasLtDestroy(handle)
    return "" if status else _dotted(n.value, 100000, 100)


class _DnnlVersion(ctypes.Structure):
    _fields_ = [("major", c_int), ("minor", c_int), ("patch", c_int), ("hash", c_char_p)]


def _onednn_version(lib: Any) -> str:
    lib.dnnl_version.restype = ctypes.POINTER(_DnnlVersion)
    v = lib.dnnl_version().contents
    return f"{v.major}.{v.minor}.{v.patch}"


LIBRARIES = {
    k.name: k
    for k in (
        Known("rocblas", "rocm", "products", ("librocblas.so.5", "librocblas.so.4", "librocblas.so"), (), _text_version("rocblas_get_version_string")),
        Known("hipblaslt", "rocm", "products", ("libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so"), (), _hipblaslt_version),
        Known("miopen", "rocm", "convolutions", ("libMIOpen.so.1", "libMIOpen.so"), (), _miopen_version),
        Known("rocfft", "rocm", "Fourier transforms", ("librocfft.so.0", "librocfft.so"), (), _text_version("rocfft_get_version_string")),
        Known("cublas", "cuda", "products", ("libcublas.so.13", "libcublas.so.12", "libcublas.so"), ("nvidia/cu13/lib", "nvidia/cublas/lib"), _cublas_version),
        Known("cudnn", "cuda", "convolutions", ("libcudnn.so.9", "libcudnn.so.8", "libcudnn.so"), ("nvidia/cudnn/lib",), _by_word("cudnnGetVersion", 10000, 100)),
        Known("cufft", "cuda", "Fourier transforms", ("libcufft.so.12", "libcufft.so.11", "libcufft.so"), ("nvidia/cu13/lib", "nvidia/cufft/lib"), _cufft_version),
        Known("onednn", "cpu", "products", ("libdnnl.so.3", "libdnnl.so.2", "libdnnl.so"), ("../..", "../../.."), _onednn_version),
    )
}  # fmt: skip


def _names(known: Known) -> Iterator[str]:
    own = os.environ.get(f"TEC_{known.name.upper()}")
    if own:
        yield own
        return
    yield from known.sonames
    roots = {"rocm": ("ROCM_PATH", "/opt/rocm", "lib"), "cuda": ("CUDA_PATH", "/usr/local/cuda", "lib64")}.get(
        known.kind
    )
    places = [Path(os.environ.get(roots[0]) or roots[1]) / roots[2]] if roots else []
    places += [Path(p) / folder for p in sys.path if p for folder in known.folders]
    for place in places:
        for name in known.sonames:
            if (place / name).exists():
                yield str(place / name)


@cache
def _loaded(name: str) -> tuple[Any, str, tuple[str, ...]]:
    library, path, failures = find_library(_names(LIBRARIES[name]))
    return library, path, tuple(failures)


def find(name: str) -> Found:
    """Whether a library is there, by its name in `LIBRARIES`."""
    known = LIBRARIES.get(name)
    if known is None:
        raise DeviceError(f"no library {name!r} is known", hint=", ".join(LIBRARIES))
    library, path, failures = _loaded(name)
    if library is None:
        return Found(name, known.what, why_not="; ".join(failures))
    try:
        version = known.version(library)
    except AttributeError as error:  # something else of that name
        return Found(name, known.what, path, why_not=f"{path} is no {name}: {error}")
    return Found(name, known.what, path, version)


def found() -> list[Found]:
    """All libraries that tec knows, there or not."""
    return [find(n) for n in LIBRARIES]


def require(name: str) -> Any:
    """The library. Raises DeviceError, which says what was looked for, where it is absent."""
    is_there = find(name)
    if is_there.why_not:
        raise DeviceError(
            f"{name} is not there: it was looked for as {is_there.why_not}",
            hint=f"TEC_{name.upper()}=/path/to/the/library names one",
        )
    return _loaded(name)[0]


def forget() -> None:
    """Look again at the next question: for tests that put a library in another's place."""
    _loaded.cache_clear()
