"""The software GPU's compiled objects on disk: kept within their limit without a look through the folder at each."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from tec.emulator import jit


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> jit.DiskCache:
    monkeypatch.setenv("TEC_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TEC_CACHE_LIMIT_MB", "1")
    return jit.DiskCache()


def key(n: int) -> str:
    return hashlib.sha256(str(n).encode()).hexdigest()


def size(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*.o"))


def test_the_limit_holds(cache: jit.DiskCache, tmp_path: Path) -> None:
    for n in range(400):
        cache.put(key(n), os.urandom(10_000))
        assert size(tmp_path) <= 1.7e6, "far over the limit of 1 MB"
    assert cache.get(key(399)) is not None and cache.get(key(0)) is None, "the oldest go first"


def test_a_large_object_is_followed_by_a_look(cache: jit.DiskCache, tmp_path: Path) -> None:
    for n in range(30):
        cache.put(key(n), os.urandom(100_000))
        assert size(tmp_path) <= 2**20


def test_few_puts_look_through_the_folder(cache: jit.DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    monkeypatch.setattr(cache, "_trim", lambda: looks.append(1))
    for n in range(320):
        cache.put(key(n), b"small")
    assert 8 <= len(looks) <= 40
