"""Code for another processor than this machine's is refused before it runs: it would end the process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tec
from tec.errors import DeviceError
from tec.runtime.modules import host_cpu


def doubled(target: str) -> Any:
    A = tec.placeholder((64,), name="A")
    B = tec.compute((64,), lambda i: A[i] * 2, name="B")
    s = tec.create_schedule(B.op)
    return tec.build(s, [A, B], target)


def run(f: Any) -> np.ndarray[Any, Any]:
    out = tec.nd.empty((64,), "float32")
    f(tec.nd.array(np.ones(64, "float32")), out)
    return out.numpy()


def test_code_for_wider_vectors_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    f = doubled("llvm -mcpu=skylake-avx512")
    monkeypatch.setattr(host_cpu, "_flags", lambda: frozenset({"sse42", "popcnt", "avx", "avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe"}))  # fmt: skip
    with pytest.raises(
        DeviceError, match=r"made for llvm -mcpu=skylake-avx512, and this machine's processor lacks avx512bw, .*avx512f"
    ) as e:
        run(f)
    assert "x86-64-v3" in str(e.value)


def test_a_saved_module_says_what_it_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    f = doubled("llvm -mcpu=x86-64-v3")
    f.save(tmp_path / "f.tecmod")
    loaded = tec.load_module(tmp_path / "f.tecmod")
    with monkeypatch.context() as m:
        m.setattr(host_cpu, "_flags", lambda: frozenset({"sse42"}))
        with pytest.raises(DeviceError, match="lacks avx"):
            run(loaded)
    if not host_cpu.lacks(["avx2"]):
        assert (run(loaded) == 2).all()


def test_the_own_machine_runs_its_code() -> None:
    assert (run(doubled("llvm")) == 2).all()
    assert host_cpu.lacks([]) == []


def test_names_of_linux() -> None:
    assert host_cpu._plain("avx512_vnni") == host_cpu._plain("avx512vnni")
