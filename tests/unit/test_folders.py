"""Folders of tec's own: one rule for where they are, and nothing is loaded that another user could have written."""

from __future__ import annotations

import ast
import json
import os
import stat
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pytest

from tec import disk_cache, folders
from tec.disk_cache import Store

KEY = "ab" * 20
STORE = Store("objects", b"test\n")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("TEC_CACHE_DIR", str(tmp_path / "c"))
    folders._tell.cache_clear()
    return tmp_path / "c"


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.mark.parametrize("value", ["", "0", "off", " OFF "])
def test_values_that_switch_it_off(value, monkeypatch):
    monkeypatch.setenv("TEC_CACHE_DIR", value)
    assert folders.cache_root() is None and all(folders.cache_part(p, make=True) is None for p in folders.PARTS)


def test_switched_off(tmp_path):
    """Every cache of tec reads the variable in one place: nothing is written anywhere."""
    code = (
        "import tec, numpy as np, os\n"
        "from tec.emulator.hip.library import library_folder\n"
        "from onnx.parser import parse_model\n"
        "d = tec.rocm_emu('gfx942'); a = tec.array.ones(64, device=d); assert float(tec.array.sum(a + 1)) == 128\n"
        "m = parse_model('<ir_version: 8, opset_import: [\"\" : 17]> g (float[4] x) => (float[4] y) { y = Exp(x) }')\n"
        "tec.compile(m, target='llvm')\n"
        "lib = library_folder(); assert (lib / 'lib' / 'libamdhip64.so').exists() and os.stat(lib.parent).st_mode & 0o777 == 0o700\n"
        "print(lib.parent)\n"
    )
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "work").mkdir()
    path = os.pathsep.join([str(ROOT), str(ROOT / "frontends")])
    env = {
        **os.environ,
        "TEC_CACHE_DIR": "0",
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "c"),
        "PYTHONPATH": path,
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path / "work",
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert os.listdir(tmp_path / "work") == os.listdir(home) == []
    assert not os.path.exists(done.stdout.strip())  # it went with its process


def test_the_variable_has_one_reader():
    """By the syntax trees: no other file of tec names TEC_CACHE_DIR in code, nor builds a place below ~/.cache or /tmp by itself."""
    for file in sorted([*(ROOT / "tec").rglob("*.py"), *(ROOT / "frontends").rglob("*.py")]):
        name = file.relative_to(ROOT).as_posix()
        if name == "tec/folders.py":
            continue
        text = file.read_text("utf-8")
        if not any(word in text for word in ("TEC_CACHE_DIR", ".cache", "gettempdir", "/tmp", "mktemp")):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Subscript | ast.Call):
                words = [getattr(n, "value", None) for n in (*getattr(node, "args", ()), getattr(node, "slice", None))]
                assert not {"TEC_CACHE_DIR", "~/.cache", ".cache", "/tmp"} & set(map(str, words)), (
                    f"{name}:{node.lineno}"
                )
            if isinstance(node, ast.Attribute):
                assert node.attr not in ("gettempdir", "mktemp"), (
                    f"{name}:{node.lineno}: a name in /tmp that others know"
                )


def test_parts_are_the_users_alone(place):
    old = os.umask(0)
    try:
        STORE.store(KEY, b"body")
    finally:
        os.umask(old)
    assert STORE.load(KEY) == b"body"
    assert (
        mode(place / "objects") == mode(place / "objects" / "ab") == 0o700
        and mode(place / "objects" / "ab" / KEY) == 0o600
    )


@pytest.mark.parametrize("before", [0o755, 0o775, 0o777])
def test_folders_that_others_could_enter_are_closed(place, before):
    (place / "objects").mkdir(parents=True)
    (place / "objects").chmod(before)
    STORE.store(KEY, b"body")
    assert mode(place / "objects") == 0o700 and STORE.load(KEY) == b"body"


@pytest.mark.parametrize("part", folders.PARTS)
def test_a_part_of_another_user_is_not_used(place, part, monkeypatch):
    store = Store(part, b"test\n")
    store.store(KEY, b"body")
    assert store.load(KEY) == b"body"
    mine = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    place.chmod(0o1777)
    with pytest.warns(UserWarning, match="is not used"):
        assert store.load(KEY) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once
        store.store("cd" * 20, b"x")
        assert store.load("cd" * 20) is None
    assert str(mine) in folders.why_not_used(part) and folders.cache_part(part) is None


def test_an_entry_of_another_user_is_not_loaded(place, monkeypatch):
    """It lay there when the folder was open to all."""
    STORE.store(KEY, b"body")
    real = os.fstat

    def fstat(handle):
        facts = list(real(handle))
        facts[4] = os.getuid() + 1
        return os.stat_result(facts)

    monkeypatch.setattr(os, "fstat", fstat)
    assert STORE.load(KEY) is None
    monkeypatch.undo()


def test_an_entry_that_others_may_write_is_not_loaded(place):
    STORE.store(KEY, b"body")
    file = place / "objects" / "ab" / KEY
    for bad in (0o620, 0o602, 0o666):
        file.chmod(bad)
        assert STORE.load(KEY) is None
    file.chmod(0o644)
    assert STORE.load(KEY) == b"body"


def test_a_folder_above_that_others_may_rename_in(place, monkeypatch):
    STORE.store(KEY, b"body")
    real = os.stat

    def stat_of(path, *args, **kw):
        facts = list(real(path, *args, **kw))
        if str(path) == str(place):
            facts[4] = os.getuid() + 7
        return os.stat_result(facts)

    monkeypatch.setattr(os, "stat", stat_of)
    with pytest.warns(UserWarning, match="the folder above it belongs to user"):
        assert STORE.load(KEY) is None


def test_a_link_of_the_users_is_followed(place, tmp_path):
    (tmp_path / "big").mkdir()
    place.mkdir()
    (place / "objects").symlink_to(tmp_path / "big")
    STORE.store(KEY, b"body")
    assert STORE.load(KEY) == b"body" and (tmp_path / "big" / "ab" / KEY).exists()


def test_a_file_in_a_folders_place(place):
    place.mkdir()
    (place / "objects").write_text("mine")
    STORE.store(KEY, b"body")  # quietly, as on a disk that is read-only
    with pytest.warns(UserWarning, match="no folder"):
        assert STORE.load(KEY) is None
    assert STORE.load(KEY) is None and (place / "objects").read_text() == "mine"


def test_trimming_takes_what_is_the_caches(place, monkeypatch):
    monkeypatch.setenv("TEC_CACHE_LIMIT_MB", "0.01")
    (place / "objects").mkdir(parents=True)
    (place / "objects" / "notes.txt").write_text("x" * 100_000)
    for k in range(20):
        STORE.store(f"{k:040x}", bytes(2000))
    STORE.trim()
    left = sum(p.stat().st_size for p in disk_cache.entries(place / "objects"))
    assert 0 < left <= 10_486 and (place / "objects" / "notes.txt").exists()


@pytest.mark.parametrize("text", ["0", "0.0", "-3"])
def test_a_limit_of_nothing_keeps_nothing(place, monkeypatch, text):
    monkeypatch.setenv("TEC_CACHE_LIMIT_MB", text)
    STORE.store(KEY, b"body")
    assert STORE.load(KEY) is None and not place.exists()


@pytest.mark.parametrize("text", ["", "many", "nan", "inf", "1e999"])
def test_a_limit_that_is_none_is_the_default(monkeypatch, text):
    monkeypatch.setenv("TEC_CACHE_LIMIT_MB", text)
    assert folders.limit_bytes() == 512 << 20


def test_clear_takes_all_parts(place, tmp_path):
    from click.testing import CliRunner

    from tec.cli.app import app
    from tec.emulator.hip.library import library_folder

    keep = []
    for part in folders.PARTS[:3]:
        Store(part, b"m", ".tec" if part == "networks" else "").store(KEY, b"body")
        keep.append(place / part / "mine.txt")
        keep[-1].write_text("not the cache's")
    assert library_folder().is_relative_to(place)
    old = place / "emulator" / "hip-0123456789abcdef" / "lib"
    old.mkdir(parents=True)
    (old / "libamdhip64.so").write_text("of an earlier version")
    facts = json.loads(CliRunner().invoke(app, ["cache", "--json"]).stdout)
    assert all(facts[part]["files"] and facts[part]["bytes"] for part in folders.PARTS)
    assert CliRunner().invoke(app, ["cache", "clear"]).exit_code == 0
    assert sorted(p for p in place.rglob("*") if not p.is_dir()) == sorted(keep)
    assert not (place / "hip").exists() or not os.listdir(place / "hip")


# ---- places that all processes of a user know


def test_the_folder_for_locks(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    found = folders.lock_folder()
    assert found == tmp_path / f"tec-{os.getuid()}" and mode(found) == 0o700 and folders.lock_folder() == found
    found.rmdir()
    (tmp_path / "theirs").mkdir()
    found.symlink_to(tmp_path / "theirs")  # planted
    assert folders.lock_folder() is None and mode(tmp_path / "theirs") != 0o700
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert folders.lock_folder() == tmp_path / "tec"


def test_a_planted_link_is_not_written_through(tmp_path, monkeypatch):
    """The IR that LLVM died of, and the lock of timings, lay under names in /tmp that anyone could foresee."""
    import hashlib

    from tec.llvmworker import client
    from tec.tuning import measure

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    job = {"machine": ("t", "c", "f", 2, "m"), "speed": 2, "text": "define"}
    digest = hashlib.sha256(b"define").hexdigest()[:12]
    for name in (f"tec-llvm-{digest}.ll", f"tec-measure-{os.getuid()}.lock", "measure.lock", f"{digest}.ll"):
        (tmp_path / name).symlink_to(victim)
    client._kept_folder.cache_clear()
    kept = Path(client._keep(job, "died"))
    assert kept.read_text().endswith("define") and mode(kept.parent) == 0o700
    assert Path(client._keep(job, "died again")) == kept  # one file a content
    client._kept_folder.cache_clear()
    with measure._turn(True):
        assert (tmp_path / f"tec-{os.getuid()}" / "measure.lock").is_file()
    assert victim.read_text() == "precious"


def test_the_path_of_a_tuning_worker_is_no_pickle(tmp_path):
    """A worker reads its module path from the environment: as JSON, of which nothing runs."""
    import pickle

    class Run:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "ran"),))

    env = {**os.environ, "PYTHONPATH": str(ROOT), "TEC_TUNE_PATH": pickle.dumps(Run()).hex()}
    words = [sys.executable, "-m", "tec.tuning.worker"]
    done = subprocess.run(words, input=b"", env=env, capture_output=True, timeout=60, check=False)
    assert done.returncode != 0 and not (tmp_path / "ran").exists()
    env["TEC_TUNE_PATH"] = json.dumps([*sys.path, str(ROOT)])
    assert subprocess.run(words, input=b"", env=env, capture_output=True, timeout=60, check=False).returncode == 0
