"""What a second start finds on the disk: code by sizes, and weights of the same files as kernels read them."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tec.errors import CodegenError, TecError
from tec.lm import compiled, container, filling, load
from tec.lm import open as open_checkpoint
from tec.runtime.networks.network import Network
from tec.runtime.plans.layout import PlanLayout
from tests.unit.tec_gguf.files import LLAMA, llama_tensors, write

from .test_models import reference

IDS = [3, 17, 39, 4, 4, 0, 25]
KINDS = {"blk.0.attn_q.weight": "Q4_0", "blk.0.attn_k.weight": "Q4_0", "blk.0.ffn_up.weight": "Q8_0"}
MANY = {"llama.vocab_size": 40, "llama.rope.freq_base": 10000.0}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TEC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


def _mapped(a: Any) -> bool:
    while isinstance(a, np.ndarray) and a.base is not None:
        a = a.base
    return isinstance(a.obj if isinstance(a, memoryview) else a, mmap.mmap)


def _file(path: Path, seed: int) -> Path:
    tensors = {n: t * (1.0 if t.ndim == 1 else t.shape[-1] ** -0.5) for n, t in llama_tensors(seed).items()}
    return write(path, "llama", {**LLAMA, **MANY}, {n: t.astype(np.float32) for n, t in tensors.items()}, KINDS)


def test_weights_are_made_once_for_a_file_and_again_for_another(tmp_path: Path, cache: Path) -> None:
    path = _file(tmp_path / "m.gguf", 0)
    first = load(path, target="llvm").begin(IDS)
    again = load(path, target="llvm")
    assert again.report["from_cache"] and all(_mapped(w) for n, w in again.network.params.items() if "proj" in n)
    np.testing.assert_array_equal(again.begin(IDS), first)
    assert np.abs(first - reference(open_checkpoint(path), IDS)[-1]).max() < 0.05 * np.abs(first).max()
    path.unlink()  # another file of the same name and size: its weights are not those that are kept
    other = load(_file(path, 1), target="llvm").begin(IDS)
    assert np.abs(other - reference(open_checkpoint(path), IDS)[-1]).max() < 0.05 * np.abs(other).max()
    assert np.abs(other - first).max() > 0.1 * np.abs(first).max()


def test_a_second_start_imports_no_compiler(tmp_path: Path, cache: Path) -> None:
    path = _file(tmp_path / "m.gguf", 0)
    load(path, target="llvm")
    program = f"""
import sys, numpy
had = set(sys.modules)  # a version of NumPy has some of them
import tec.cli.generating, tec.lm, tec.lm.writing
lm = tec.lm.load({str(path)!r}, target="llvm")
lm.begin([1, 2])
heavy = ("llvmlite", "networkx", "tec.ir", "tec.te", "tec.ops", "tec.graph", "tec.choices", "tec.codegen", "importlib.metadata", "hashlib", "zipfile")
print(sorted(m for m in sys.modules if m in heavy and m not in had))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads where Linux lists them")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="NumPy's BLAS starts a thread for each core but one")
def test_a_command_that_writes_starts_no_threads_for_blas() -> None:
    program = """
import os, sys
from tec.cli.app import app
app.get_command(None, "generate")
print("numpy" in sys.modules, len(os.listdir("/proc/self/task")))
"""
    env = {n: v for n, v in os.environ.items() if n != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.split() == ["True", "1"]


@pytest.mark.parametrize("damage", ["cut", "header", "empty", "foreign"])
def test_a_file_that_is_damaged_is_not_used(damage: str, cache: Path) -> None:
    container.keep("a" * 64, {"x": 1}, {"y": np.arange(5000, dtype=np.float32)})
    found = container.kept("a" * 64)
    assert found is not None and found.facts == {"x": 1}
    np.testing.assert_array_equal(found.arrays["y"], np.arange(5000, dtype=np.float32))
    (path,) = cache.glob("*.tec")
    raw = path.read_bytes()
    path.write_bytes(
        {"cut": raw[:-100], "header": raw[:24] + b"#" * 40 + raw[64:], "empty": b"", "foreign": b"x" * 9000}[damage]
    )
    assert container.kept("a" * 64) is None


def test_no_room_on_the_disk_is_no_error(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    container.keep("a" * 64, {}, {"y": np.zeros(10, np.float32)})
    assert not list(cache.iterdir())


def test_what_is_kept_of_code_is_what_was_compiled(tmp_path: Path, cache: Path) -> None:
    path = _file(tmp_path / "m.gguf", 0)
    first = load(path, target="llvm")
    expected = first.begin(IDS)
    again = load(path, target="llvm").network
    assert again.get_source("ir") == first.network.get_source("ir") and again.get_source("asm")
    _check_layout(again)
    # Code of which a bit fell over is compiled anew.
    (code,) = (cache.parent / "networks").glob("*.tec")
    raw = bytearray(code.read_bytes())
    raw[raw.index(b"\x7fELF") + 200] ^= 1
    code.write_bytes(raw)
    third = load(path, target="llvm")
    assert not third.report["from_cache"]
    np.testing.assert_array_equal(third.begin(IDS), expected)


def _check_layout(again: Network) -> None:
    """A layout that is kept gives the numbers, and the errors, of a new one."""
    kept, new = again._layout, PlanLayout(again.plan, again.signature)
    assert again.plan.is_open and (kept.bases, kept.calls, kept.shapes) == (new.bases, new.calls, new.shapes)
    env = {"tokens": 5, "past": 3, "past.capacity": 64}
    a, b = kept.bind(env), new.bind(env)
    assert a.arena_bytes == b.arena_bytes and kept.outputs(a) == new.outputs(b)
    for name in ("offsets", "pointers", "scalars"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    told = []
    for layout in (kept, new):  # what the code was not compiled for, and rows that are not there
        for wrong in ({"tokens": 1 << 30, "past.capacity": 1 << 31}, {"past": 70}):
            with pytest.raises(TecError) as error:
                layout.bind({**env, **wrong})
            told.append(str(error.value).split("\n")[0])
    assert told[:2] == told[2:] and told[0] != told[1]


def test_a_second_model_of_the_same_sizes_compiles_nothing(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load(_file(tmp_path / "first.gguf", 0), target="llvm")
    monkeypatch.setattr(compiled, "compile_graph", lambda *args, **kw: pytest.fail("it was compiled again"))
    path = _file(tmp_path / "second.gguf", 1)
    second = load(path, target="llvm")
    assert second.report["from_cache"] and not first.report["from_cache"]
    logits = second.begin(IDS)
    assert np.abs(logits - reference(open_checkpoint(path), IDS)[-1]).max() < 0.05 * np.abs(logits).max()


def test_weights_are_made_while_the_compiler_works(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, fill, compile_graph = threading.Event(), filling.fill, compiled.compile_graph

    def told(*args: Any) -> None:
        fill(*args)
        made.set()

    def waiting(*args: Any, **kw: Any) -> Any:
        assert made.wait(60), "weights wait for the code"
        return compile_graph(*args, **kw)

    monkeypatch.setattr(filling, "fill", told)
    monkeypatch.setattr(compiled, "compile_graph", waiting)
    path = _file(tmp_path / "m.gguf", 0)
    logits = load(path, target="llvm").begin(IDS)
    assert np.abs(logits - reference(open_checkpoint(path), IDS)[-1]).max() < 0.05 * np.abs(logits).max()


def test_where_the_compiler_fails_weights_are_made_no_more(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, failed = threading.Event(), threading.Event()
    made: list[bool] = []

    def slow(recipe: Any, *rest: Any) -> None:
        begun.set()
        made.append(failed.wait(60))

    def failing(*args: Any, **kw: Any) -> Any:
        assert begun.wait(60)
        threading.Timer(0.3, failed.set).start()  # who waits for the weights has been told then
        raise CodegenError("no code")

    for how in filling._MAKERS:
        monkeypatch.setitem(filling._MAKERS, how, slow)
    monkeypatch.setattr(compiled, "compile_graph", failing)
    with pytest.raises(CodegenError, match="no code"):
        load(_file(tmp_path / "m.gguf", 0), target="llvm")
    assert not [t for t in threading.enumerate() if t.name.startswith("tec-weights")]
    assert made and len(made) <= (os.cpu_count() or 1)  # what threads were at, and no more
    assert not list(cache.iterdir())
