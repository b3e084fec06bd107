"""The package file (`.tecmod` for a module, `.tec` for a network): a zip with a manifest, code and arrays.

    manifest.json   {"format": "tec-package", "version": 3, "kind": ..., "meta": {...}, "blobs": {...}, "arrays": {...}}
    data/N          the bytes of blob or array number N

Each blob's entry in the manifest has its file, size and SHA-256; an array's also dtype and shape (raw little-endian,
row-major). A package is data alone: nothing in it is unpickled, imported or written to the disk, names in it are never
paths, and sizes are checked before memory is taken. Anything that does not fit raises PackageError.

`write_package(path, kind, meta, blobs, arrays)`; `read_package(path, kind) -> Package`.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ...digest import sha256
from ...errors import ArgumentError, PackageError
from ..arrays.dtypes import dtype_name, itemsize, numpy_dtype
from ..files import open_regular
from ..outputs import write_output

if TYPE_CHECKING:
    import zipfile  # imported where a file is one: what a start reads is none

FORMAT = "tec-package"
VERSION = 3
_MANIFEST = "manifest.json"
_MANIFEST_LIMIT = 64 << 20
_TEXT_LIMIT = 256 << 20  # of one compressed entry, unpacked
_MAX_RANK = 64  # NumPy's
_LARGEST = 1 << 62  # a dimension; addresses end before
_NATIVE_KINDS = {
    "so": "shared library", "dylib": "shared library", "dll": "shared library", "pyd": "shared library", "exe": "program", "o": "object",
    "obj": "object", "a": "archive of objects", "lib": "archive of objects", "tar": "tar archive", "hsaco": "code object", "co": "code object",
    "cubin": "code object", "ptx": "text of PTX",
}  # fmt: skip
_NATIVE = rf"\.({'|'.join(_NATIVE_KINDS)})(?:\.\d+)*$"
_DATE = (1980, 1, 1, 0, 0, 0)  # the same content gives the same file


LIBRARIES = (".so", ".a", ".o")  # what `export_library` writes as such


def suffix_of(path: Any) -> str | bytes:
    """The ending of a file's name; "" of what is no path, of which whoever writes it tells."""
    return os.path.splitext(os.fspath(path))[1] if isinstance(path, (str, os.PathLike)) else ""


def is_native(path: str | os.PathLike[str]) -> bool:
    """Whether a name promises a library that `export_library` writes."""
    return suffix_of(path) in LIBRARIES


def damaged(what: str) -> PackageError:
    return PackageError(f"the package is damaged: {what}", hint="compile and save it again")


def check_suffix(path: str | os.PathLike[str]) -> None:
    """Raises ArgumentError for a name that promises what a package is not: what loads such a file would not take it."""
    name = os.path.basename(os.fsdecode(path)) if isinstance(path, (str, bytes, os.PathLike)) else ""
    found = re.search(_NATIVE, name.lower())
    if found is not None:
        raise ArgumentError(
            f"{name} would be a tec package, which is no {_NATIVE_KINDS[found[1]]}: no linker and no `dlopen` takes it",
            hint="name it .tecmod (a module, for tec.load_module) or .tec (a network, for tec.load); export_library writes .so, .a and .o; get_binary() gives the bare code",
        )


def write_package(
    path: str | os.PathLike[str],
    kind: str,
    meta: Mapping[str, Any],
    blobs: Mapping[str, bytes] | None = None,
    arrays: Mapping[str, Any] | None = None,
    durable: bool = True,
) -> None:
    """Write a package (`outputs.write_output` says how). `arrays` are NumPy or NDArrays. durable: False for one that can be made again.
    Raises PackageError, and ArgumentError for a name that no package has."""
    check_suffix(path)
    write_output(path, package_writer(kind, meta, blobs, arrays), PackageError, durable)


def package_writer(
    kind: str,
    meta: Mapping[str, Any],
    blobs: Mapping[str, bytes] | None = None,
    arrays: Mapping[str, Any] | None = None,
) -> Callable[[BinaryIO], None]:
    """A package as what writes it into a file. Raises PackageError for what is no plain data."""
    entries: list[tuple[str, Any, bool]] = []  # file, bytes, whether to compress
    blob_table: dict[str, Any] = {}
    array_table: dict[str, Any] = {}
    seen: dict[tuple[int, str], str] = {}

    def add(data: Any, shrink: bool) -> dict[str, Any]:
        size = memoryview(data).nbytes
        digest = sha256(data).hexdigest()
        file = seen.get((size, digest))
        if file is None:
            file = seen[size, digest] = f"data/{len(entries)}"
            entries.append((file, data, shrink))
        return {"file": file, "size": size, "sha256": digest}

    for name, data in (blobs or {}).items():
        blob_table[name] = add(data, True)
    for name, value in (arrays or {}).items():
        array = np.ascontiguousarray(np.asarray(value))
        dtype = getattr(value, "dtype", array.dtype)
        dtype = dtype if isinstance(dtype, str) else dtype_name(array.dtype.newbyteorder("="))
        if sys.byteorder == "big" or array.dtype.byteorder == ">":
            array = array.astype(array.dtype.newbyteorder("<"))
        raw = array.reshape(-1).view(np.uint8).data if array.size else b""
        array_table[name] = {**add(raw, False), "dtype": dtype, "shape": list(np.shape(value))}
    manifest = {
        "format": FORMAT, "version": VERSION, "kind": kind, "meta": meta, "blobs": blob_table, "arrays": array_table,
    }  # fmt: skip
    try:
        text = json.dumps(manifest, allow_nan=True, default=_plain).encode()
    except (TypeError, ValueError) as error:
        raise PackageError(
            f"{kind} cannot be saved: {error}",
            hint="what is attached to it must be numbers, text, lists or dicts of them",
        ) from None
    return lambda f: _write_zip(f, text, entries)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no plain data")


def _write_zip(f: BinaryIO, manifest: bytes, entries: list[tuple[str, Any, bool]]) -> None:
    import zipfile

    with zipfile.ZipFile(f, "w", zipfile.ZIP_STORED, allowZip64=True) as z:
        for name, data, shrink in [(_MANIFEST, manifest, True), *entries]:
            info = zipfile.ZipInfo(name, _DATE)
            # Code and text shrink well; weights do not, and are read faster as they are.
            info.compress_type = zipfile.ZIP_DEFLATED if shrink and len(data) < _TEXT_LIMIT else zipfile.ZIP_STORED
            with z.open(info, "w", force_zip64=len(data) > (1 << 30)) as out:
                out.write(data)


class Package:
    """An open package. `meta`, `blob(name)`, `array(name)`; blobs and arrays are read and checked when asked for.

    kind: None for any; `kind` says what it is. versions: those that are taken.
    """

    def __init__(self, path: str, kind: str | None, versions: tuple[int, ...] = (VERSION,)):
        import zipfile

        self.path = path
        try:
            self._file = open_regular(path)
        except FileNotFoundError:
            raise PackageError(
                f"no such file: {path}",
                hint="Network.save, Module.save and `tec compile model.onnx -o PATH` write packages",
            ) from None
        except IsADirectoryError:
            raise PackageError(
                f"{path} is a folder, not a package",
                hint="name the file in it: .tec for a network, .tecmod for a module",
            ) from None
        except OSError as error:
            raise PackageError(
                f"cannot read {path}: {error.strerror}", hint="check the path and your rights to the file"
            ) from None
        try:
            self._zip = zipfile.ZipFile(self._file)
        except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, ValueError, NotImplementedError):
            self._file.close()
            raise PackageError(
                f"{path} is no tec package: not a zip file, or cut off",
                hint="of libraries, a module's .so alone has the package with it, if no tool has stripped it; save(path) writes a package"
                if is_native(path)
                else "tec.compile reads a model; a package is what save(path) writes",
            ) from None
        except OSError as error:
            self._file.close()
            raise PackageError(
                f"cannot read {path}: {error.strerror}", hint="check the path and your rights to the file"
            ) from None
        self._file_bytes = os.fstat(self._file.fileno()).st_size
        try:
            self._read_manifest(kind, versions)
        except BaseException:
            self.close()
            raise

    def _read_manifest(self, kind: str | None, versions: tuple[int, ...]) -> None:
        """Read and check the manifest: its format, version and kind. Raises PackageError."""
        path = self.path
        try:
            info = self._zip.getinfo(_MANIFEST)
        except KeyError:
            raise PackageError(
                f"{path} is no tec package: it has no {_MANIFEST}",
                hint="Network.save, Module.save and `tec compile` write packages",
            ) from None
        try:
            manifest = json.loads(self._read(info, min(info.file_size, _MANIFEST_LIMIT + 1), _MANIFEST_LIMIT))
        except (ValueError, RecursionError):
            raise damaged(f"{_MANIFEST} is no JSON") from None
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise PackageError(
                f"{path} is no tec package: {_MANIFEST} is of another format",
                hint="Network.save, Module.save and `tec compile` write packages",
            )
        version = manifest.get("version")
        if type(version) is not int or version not in versions:
            hint = "compile it again with this version, or use the tec that wrote it"
            if version == VERSION - 1:
                hint = f"tec convert {path} -o NEW makes one of this version of it"
            raise PackageError(f"{path} has format version {version!r}, this tec reads version {VERSION}", hint=hint)
        self.version: int = version
        self.kind = str(manifest.get("kind"))
        if kind is not None and self.kind != kind:
            raise PackageError(
                f"{path} holds a {manifest.get('kind')!r}, not a {kind!r}", hint=_loader(manifest.get("kind"))
            )
        self.meta: dict[str, Any] = self._table(manifest, "meta")
        self._blobs = self._table(manifest, "blobs")
        self._arrays = self._table(manifest, "arrays")

    def _table(self, manifest: dict[str, Any], name: str) -> dict[str, Any]:
        table = manifest.get(name)
        if not isinstance(table, dict):
            raise damaged(f"{_MANIFEST} has no {name}")
        return table

    @property
    def blob_names(self) -> list[str]:
        return list(self._blobs)

    @property
    def array_names(self) -> list[str]:
        return list(self._arrays)

    def blob(self, name: str) -> bytes:
        """The bytes of a blob."""
        return self._data(self._blobs, name)

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """An array, read-only."""
        entry = self._arrays.get(name) if isinstance(name, str) else None
        try:
            shape = tuple(entry["shape"])  # type: ignore[index]
            dtype = entry["dtype"]  # type: ignore[index]
            # Before they are multiplied: text times a number is a long text.
            if len(shape) > _MAX_RANK or any(type(n) is not int or not 0 <= n < _LARGEST for n in shape):
                raise ValueError
            if entry["size"] != math.prod(shape) * itemsize(dtype):  # type: ignore[index]
                raise ValueError
        except (KeyError, TypeError, ValueError, ArgumentError):
            raise damaged(f"array {name!r}: dtype, shape and size do not fit") from None
        held = numpy_dtype(dtype)
        if sys.byteorder == "big":
            held = held.newbyteorder("<")
        try:
            return np.frombuffer(self._data(self._arrays, name), held).reshape(shape)
        except (ValueError, OverflowError):  # no elements, and other dimensions that no array can have
            raise damaged(f"array {name!r}: dtype, shape and size do not fit") from None

    def _data(self, table: dict[str, Any], name: Any) -> bytes:
        entry = table.get(name) if isinstance(name, str) else None
        try:
            file, size, digest = entry["file"], entry["size"], entry["sha256"]  # type: ignore[index]
            info = self._zip.getinfo(file)
        except (KeyError, TypeError):
            raise damaged(f"{name!r} is missing") from None
        if type(size) is not int or info.file_size != size:
            raise damaged(f"{name!r} has {info.file_size} bytes, {size} are said")
        data = self._read(info, size, _TEXT_LIMIT)
        if sha256(data).hexdigest() != digest:
            raise damaged(f"the checksum of {name!r} is wrong")
        return data

    def _read(self, info: zipfile.ZipInfo, size: int, limit: int) -> bytes:
        """An entry's bytes; no more than the file holds when stored, no more than `limit` when compressed."""
        import zipfile
        import zlib

        if info.flag_bits & 1:
            raise damaged(f"{info.filename!r} is encrypted")
        if info.compress_type == zipfile.ZIP_STORED:
            if size > self._file_bytes:
                raise damaged(f"{info.filename!r} says it has {size} bytes, more than the file")
        elif info.compress_type != zipfile.ZIP_DEFLATED:
            raise damaged(f"{info.filename!r} is compressed in an unknown way")
        elif size > limit:
            raise damaged(f"{info.filename!r} unpacks to {size} bytes, more than is allowed")
        try:
            with self._zip.open(info) as f:
                data = f.read(size)
                if len(data) != size or f.read(1):
                    raise damaged(f"{info.filename!r} is cut off")
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            OSError,
            ValueError,
            NotImplementedError,
            RuntimeError,
        ) as error:
            raise damaged(f"{info.filename!r}: {error}") from None
        return data

    def close(self) -> None:
        self._zip.close()
        self._file.close()

    def __enter__(self) -> Package:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()


def _loader(kind: Any) -> str | None:
    return {"module": "tec.load_module(path) reads it", "network": "tec.load(path) reads it"}.get(str(kind))


def read_package(path: str | os.PathLike[str], kind: str) -> Package:
    """Open a package of a kind ("module", "network")."""
    return Package(os.fspath(path), kind)
