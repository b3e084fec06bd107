"""Native libraries through ctypes, as any program with a foreign function interface calls them; and C programs by the system's compiler."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tec.runtime.arrays.dlpack import DLTensor
from tec.runtime.arrays.dtypes import dlpack_type, dtype_name, from_dlpack_type, itemsize, numpy_dtype

POINTER = ctypes.POINTER(DLTensor)
CC, CXX = shutil.which("gcc") or shutil.which("cc"), shutil.which("g++") or shutil.which("c++")
needs_cc = pytest.mark.skipif(CC is None, reason="no C compiler")


class Port(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("ndim", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("sizes", ctypes.POINTER(ctypes.c_char_p)),
    ]  # fmt: skip


class Options(ctypes.Structure):
    _fields_ = [
        ("bytes", ctypes.c_size_t), ("threads", ctypes.c_int32), ("skip_checksum", ctypes.c_int32), ("weights", ctypes.c_char_p),
        ("capacity", ctypes.c_int64), ("device", ctypes.c_int32), ("reserved", ctypes.c_int32), ("stream", ctypes.c_void_p),
    ]  # fmt: skip


def options(**values: Any) -> Options:
    return Options(ctypes.sizeof(Options), **values)


class Failed(Exception):
    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


def tensor(x: np.ndarray[Any, Any], dtype: str | None = None) -> tuple[DLTensor, Any]:
    """A DLPack tensor over an array's memory, and what it needs to live."""
    code, bits = dlpack_type(dtype or dtype_name(x.dtype))
    shape = (ctypes.c_int64 * max(x.ndim, 1))(*x.shape)
    strides = (ctypes.c_int64 * max(x.ndim, 1))(*(s // x.itemsize for s in x.strides))
    compact = x.flags.c_contiguous
    t = DLTensor(x.ctypes.data, 1, 0, x.ndim, code, bits, 1, shape, None if compact else strides, 0)
    return t, (x, shape, strides)


def library(path: str | os.PathLike[str]) -> Any:
    lib = ctypes.CDLL(os.fspath(path))
    for f in ("tec_net_error", "tec_model_name", "tec_model_target"):
        if hasattr(lib, f):
            getattr(lib, f).restype = ctypes.c_char_p
    if hasattr(lib, "tec_net_rows"):
        lib.tec_net_rows.restype = lib.tec_net_bytes.restype = ctypes.c_int64
        lib.tec_net_input.restype = lib.tec_net_output.restype = ctypes.POINTER(Port)
    return lib


class Net:
    """A net of a library."""

    def __init__(self, path: Any, **given: Any):
        self.lib = library(path)
        self.net = ctypes.c_void_p()
        try:
            self.check(self.lib.tec_net_create(None, ctypes.byref(options(**given)), ctypes.byref(self.net)))
        except Failed:
            self.close()
            raise

    def check(self, status: int) -> None:
        if status:
            raise Failed(status, self.lib.tec_net_error(self.net).decode())

    def close(self) -> None:
        self.lib.tec_net_destroy(self.net)
        self.net = ctypes.c_void_p()

    def ports(self, outputs: bool = False) -> list[tuple[str, str, list[str]]]:
        count, port = ("output_count", "output") if outputs else ("input_count", "input")
        out = []
        for k in range(getattr(self.lib, f"tec_net_{count}")(self.net)):
            p = getattr(self.lib, f"tec_net_{port}")(self.net, k).contents
            out.append(
                (
                    p.name.decode(),
                    from_dlpack_type(p.code, p.bits, p.lanes),
                    [p.sizes[d].decode() for d in range(p.ndim)],
                )
            )
        return out

    def run(self, inputs: Mapping[str, Any] | Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        """The outputs that the net keeps, copied."""
        ports = self.ports()
        given = [inputs[n] for n, *_ in ports] if isinstance(inputs, Mapping) else list(inputs)
        made = [tensor(np.asarray(x), dtype) for x, (_, dtype, _) in zip(given, ports)]
        rows = (POINTER * max(len(made), 1))(*(ctypes.pointer(t) for t, _ in made))
        self.check(self.lib.tec_net_run(self.net, rows, len(made), None, 0))
        out = []
        for k, (_, dtype, _) in enumerate(self.ports(True)):
            r = DLTensor()
            self.check(self.lib.tec_net_result(self.net, k, ctypes.byref(r)))
            shape = tuple(r.shape[d] for d in range(r.ndim))
            nbytes = int(np.prod(shape, dtype=np.int64)) * itemsize(dtype)
            raw = ctypes.string_at(r.data, nbytes) if nbytes else b""
            out.append(np.frombuffer(raw, numpy_dtype(dtype)).reshape(shape))
        return out


def build(
    folder: Path,
    source: str,
    libraries: Path | Sequence[Path],
    *flags: str,
    compiler: str | None = None,
    name: str = "main.c",
) -> Path:
    """A program of one file, linked with libraries."""
    file = folder / name
    file.write_text(source)
    out = folder / file.stem
    linked = []
    for path in [libraries] if isinstance(libraries, Path) else libraries:
        linked += (
            [str(path)]
            if path.suffix != ".so"
            else [f"-L{path.parent}", f"-l:{path.name}", f"-Wl,-rpath,{path.parent}"]
        )
    command = [
        compiler or str(CC),
        "-Wall",
        "-Wextra",
        "-Werror",
        *flags,
        str(file),
        "-o",
        str(out),
        *linked,
        "-lm",
        "-lpthread",
        "-ldl",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    return out


def execute(*words: Any, **env: str) -> str:
    """What a program prints; it must end well."""
    done = subprocess.run(
        [str(w) for w in words], capture_output=True, text=True, check=False, timeout=120, env={**os.environ, **env}
    )
    assert done.returncode == 0, (done.returncode, done.stdout[-2000:], done.stderr[-3000:])
    return done.stdout
