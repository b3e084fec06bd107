"""The package file: what goes in comes out; damaged, foreign and malicious files raise PackageError and nothing else."""

from __future__ import annotations

import hashlib
import json
import random
import zipfile

import ml_dtypes
import numpy as np
import pytest
from runtime_fakes import VADD_PROGRAM, VADD_SIGNATURE

from tec.errors import PackageError
from tec.runtime import Module, load_module, nd
from tec.runtime.modules.package import VERSION, read_package, write_package
from tests import seeds

ARRAYS = {
    "f32": np.arange(6, dtype="float32").reshape(2, 3),
    "bf16": np.array([1.5, -2], ml_dtypes.bfloat16),
    "bool": np.array([True, False]),
    "empty": np.zeros((0, 3), "int8"),
    "scalar": np.float64(3.5),
    "view": np.arange(24).reshape(4, 6)[::2, 1:].T,
    "swapped": np.arange(3, dtype=">i4"),
    "nd": nd.array(np.arange(4, dtype="float16")),
}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "x.tec"
    write_package(path, "network", {"a": [1, "two"]}, {"code": b"\0\1" * 5000, "empty": b""}, ARRAYS)
    return path


def test_round_trip(path):
    with read_package(path, "network") as p:
        assert p.meta == {"a": [1, "two"]} and p.blob("code") == b"\0\1" * 5000 and p.blob("empty") == b""
        assert p.array_names == list(ARRAYS) and p.blob_names == ["code", "empty"]
        for name, x in ARRAYS.items():
            y = p.array(name)
            assert y.shape == np.shape(x) and not y.flags.writeable
            np.testing.assert_array_equal(np.asarray(y, "float64"), np.asarray(x, "float64"))
        assert p.array("bf16").dtype == ml_dtypes.bfloat16 and p.array("f32").dtype == np.float32


def test_same_content_same_file(path, tmp_path):
    other = tmp_path / "y.tec"
    write_package(other, "network", {"a": [1, "two"]}, {"code": b"\0\1" * 5000, "empty": b""}, ARRAYS)
    assert path.read_bytes() == other.read_bytes()


def test_equal_blobs_are_stored_once(tmp_path):
    x = np.random.default_rng(0).random(10000)
    write_package(tmp_path / "a", "network", {}, {}, {"x": x})
    write_package(tmp_path / "b", "network", {}, {}, {f"x{i}": x for i in range(5)})
    assert (tmp_path / "b").stat().st_size < (tmp_path / "a").stat().st_size + 2000


def rewrite(path, manifest=None, entries=None, drop=(), compression=zipfile.ZIP_DEFLATED):
    """The package again, with changes to its manifest (a function) and entries."""
    with zipfile.ZipFile(path) as z:
        old = {n: z.read(n) for n in z.namelist()}
    if manifest is not None:
        data = json.loads(old["manifest.json"])
        manifest(data)
        old["manifest.json"] = json.dumps(data).encode()
    old.update(entries or {})
    with zipfile.ZipFile(path, "w", compression) as z:
        for name, data in old.items():
            if name not in drop:
                z.writestr(name, data)


def all_of(path):
    with read_package(path, "network") as p:
        return [p.blob(n) for n in p.blob_names], [p.array(n) for n in p.array_names]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.update(format="other"), "no tec package"),
        (lambda m: m.update(version=99), "format version 99"),
        (lambda m: m.update(kind="module"), "holds a 'module', not a 'network'"),
        (lambda m: m.pop("meta"), "no meta"),
        (lambda m: m.update(blobs=[]), "no blobs"),
        (lambda m: m["blobs"]["code"].update(sha256="0" * 64), "checksum"),
        (lambda m: m["blobs"]["code"].update(size=1 << 60), "bytes"),
        (lambda m: m["blobs"]["code"].update(size=-1), "bytes"),
        (lambda m: m["blobs"]["code"].update(size="9"), "bytes"),
        (lambda m: m["blobs"]["code"].update(file="../../etc/passwd"), "missing"),
        (lambda m: m["blobs"]["code"].update(file="/etc/passwd"), "missing"),
        (lambda m: m["blobs"].update(code=5), "missing"),
        (lambda m: m["arrays"]["f32"].update(shape=[1 << 40, 1 << 40]), "do not fit"),
        (lambda m: m["arrays"]["f32"].update(shape=[-2, -3]), "do not fit"),
        (lambda m: m["arrays"]["f32"].update(shape=[2.0, 3]), "do not fit"),
        (lambda m: m["arrays"]["f32"].update(shape=5), "do not fit"),
        (lambda m: m["arrays"]["f32"].update(dtype="object"), "do not fit"),
        (lambda m: m["arrays"]["f32"].update(dtype="O"), "do not fit"),
        (lambda m: m["arrays"]["f32"].update(dtype=None), "do not fit"),
    ],
)
def test_damaged_manifest(path, change, words):
    rewrite(path, change)
    with pytest.raises(PackageError, match=words):
        all_of(path)


def test_damaged_content(path, tmp_path):
    with zipfile.ZipFile(path) as z:
        name = json.loads(z.read("manifest.json"))["blobs"]["code"]["file"]
    rewrite(path, entries={name: b"\0\2" * 5000})
    with pytest.raises(PackageError, match="checksum"):
        all_of(path)
    rewrite(path, entries={name: b"short"})
    with pytest.raises(PackageError, match="5 bytes, 10000"):
        all_of(path)
    rewrite(path, drop=[name])
    with pytest.raises(PackageError, match="missing"):
        all_of(path)
    rewrite(path, entries={"manifest.json": b"{"})
    with pytest.raises(PackageError, match="no JSON"):
        all_of(path)
    rewrite(path, entries={"manifest.json": b"[" * 100000})
    with pytest.raises(PackageError, match="no JSON"):
        all_of(path)
    rewrite(path, drop=["manifest.json"])
    with pytest.raises(PackageError, match=r"no manifest\.json"):
        all_of(path)


def test_a_bomb_is_not_unpacked(tmp_path):
    size = 300 << 20
    zeros = hashlib.sha256(bytes(size)).hexdigest()
    manifest = {
        "format": "tec-package", "version": VERSION, "kind": "network", "meta": {}, "arrays": {},
        "blobs": {"x": {"file": "data/0", "size": size, "sha256": zeros}},
    }  # fmt: skip
    with zipfile.ZipFile(tmp_path / "bomb", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("manifest.json", json.dumps(manifest))
        with z.open("data/0", "w") as f:
            for _ in range(300):
                f.write(bytes(1 << 20))
    with pytest.raises(PackageError, match="more than is allowed"):
        all_of(tmp_path / "bomb")


def test_unknown_compression(path):
    rewrite(path, compression=zipfile.ZIP_LZMA)
    with pytest.raises(PackageError, match="unknown way"):
        all_of(path)


def test_random_damage_never_gives_another_error(path):
    good = path.read_bytes()
    rng = random.Random(seeds.first())
    expected = all_of(path)
    for i in range(400):
        data = bytearray(good)
        if i % 4 == 0:
            data = data[: rng.randrange(len(data))]
        else:
            for _ in range(rng.choice([1, 3, 30])):
                data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data)
        try:
            got = all_of(path)
        except PackageError:
            continue
        assert got[0] == expected[0]  # a changed byte that nothing reads
        for x, y in zip(got[1], expected[1]):
            np.testing.assert_array_equal(np.asarray(x, "float64"), np.asarray(y, "float64"))


def test_damaged_module_data(tmp_path):
    path = tmp_path / "m.tecmod"
    device = Module("rocm", image=b"hsaco", sources={"asm": "s_endpgm"})
    Module("llvm", "myadd", VADD_SIGNATURE, program=VADD_PROGRAM, imported=[device]).save(path)
    good = path.read_bytes()
    original = json.loads(zipfile.ZipFile(path).read("manifest.json"))

    def leaves(x, at=()):
        items = x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, list) else ()
        for k, v in items:
            yield (*at, k)
            yield from leaves(v, (*at, k))

    for place in leaves(original["meta"]):
        for value in (None, -1, "zzz", [], {}, [[]], 1.5):
            path.write_bytes(good)

            def change(m, place=place, value=value):
                inner = m["meta"]
                for k in place[:-1]:
                    inner = inner[k]
                inner[place[-1]] = value

            rewrite(path, change)
            try:
                load_module(path)
            except PackageError:
                continue


def test_not_a_package(tmp_path):
    with pytest.raises(PackageError, match="no such file"):
        load_module(tmp_path / "missing.tecmod")
    with pytest.raises(PackageError, match="a folder"):
        load_module(tmp_path)
    for content in (b"", b"PK", b"hello" * 100):
        (tmp_path / "x").write_bytes(content)
        with pytest.raises(PackageError, match="no tec package"):
            load_module(tmp_path / "x")
    with zipfile.ZipFile(tmp_path / "z", "w") as z:
        z.writestr("a", "b")
    with pytest.raises(PackageError, match="no tec package"):
        load_module(tmp_path / "z")


def test_writing(tmp_path):
    with pytest.raises(PackageError, match="cannot write"):
        write_package(tmp_path / "no" / "x", "network", {})
    with pytest.raises(PackageError, match="no plain data"):
        write_package(tmp_path / "x", "network", {"f": open})
    assert list(tmp_path.iterdir()) == []  # nothing half-written stays
    write_package(tmp_path / "x", "network", {"n": np.int64(3)})
    assert read_package(tmp_path / "x", "network").meta == {"n": 3}
