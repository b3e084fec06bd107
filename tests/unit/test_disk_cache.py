"""Compiled objects on disk: kept within their limit, without a look through the folder at each."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from tec.disk_cache import Store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("TEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TEC_CACHE_LIMIT_MB", "1")
    return Store("things", b"thing1\n", ".o")


def key(n: int) -> str:
    return hashlib.sha256(str(n).encode()).hexdigest()


def size(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*.o"))


@pytest.mark.parametrize("each", [2_000, 10_000])
def test_the_limit_holds(each: int, store: Store, tmp_path: Path) -> None:
    for n in range(2_000_000 // each):
        store.store(key(n), os.urandom(each))
        assert n % 64 or size(tmp_path) <= 1.7e6, "far over the limit of 1 MB"
    assert store.load(key(n)) is not None and store.load(key(0)) is None, "the oldest go first"


def test_a_large_object_is_followed_by_a_look(store: Store, tmp_path: Path) -> None:
    for n in range(30):
        store.store(key(n), os.urandom(100_000))
        assert size(tmp_path) <= 2**20


@pytest.mark.parametrize(("limit", "least", "most"), [("512", 0, 0), ("1", 8, 40)])
def test_few_stores_look_through_the_folder(
    limit: str, least: int, most: int, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None while the folder is far from its limit, one in sixteen beyond."""
    monkeypatch.setenv("TEC_CACHE_LIMIT_MB", limit)
    looks: list[int] = []
    monkeypatch.setattr(Store, "trim", lambda self: looks.append(1))
    for n in range(320):
        store.store(key(n), b"small" * 1000)
    assert least <= len(looks) <= most
