"""Code for another processor than this machine's is refused before it runs: it would end the process."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import tec
from tec.codegen.cpu.features import required_features
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


# What Linux says of three kinds of servers.
SKYLAKE = frozenset(
    "pni ssse3 sse41 sse42 popcnt avx avx2 fma f16c bmi1 bmi2 abm movbe avx512f avx512dq avx512cd avx512bw avx512vl".split()
)
CASCADELAKE = SKYLAKE | {"avx512vnni"}
SAPPHIRE = CASCADELAKE | set("avx512bf16 avx512bitalg avx512fp16 avx512ifma avx512vbmi avx512vbmi2 avx512vpopcntdq avxvnni gfni amxtile amxint8 amxbf16".split())  # fmt: skip


@pytest.mark.parametrize(
    ("target", "flags", "lacking"),
    [
        ("llvm -mcpu=icelake-server", CASCADELAKE, "avx512bitalg, avx512ifma, avx512vbmi, avx512vbmi2, avx512vpopcntdq, gfni$"),
        ("llvm -mcpu=znver4", SAPPHIRE - {"gfni"}, "gfni$"),
        ("llvm -mcpu=znver3 -mattr=+sse4a", SAPPHIRE, "sse4a$"),
        ("llvm -mcpu=bdver2 -mattr=+xop", SKYLAKE, "fma4, sse4a, tbm, xop$"),
        ("llvm -mcpu=nehalem", frozenset({"pni", "ssse3"}), "popcnt, sse4.1, sse4.2$"),
    ],
)  # fmt: skip
def test_what_llvm_takes_a_cpu_to_have_is_asked_for(
    target: str, flags: frozenset[str], lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors may be as wide as here, and dot products the same: one instruction that is not there ends the process."""
    f = doubled(target)
    monkeypatch.setattr(host_cpu, "_flags", lambda: flags)
    with pytest.raises(DeviceError, match=f"(?m)this machine's processor lacks {lacking}"):
        run(f)


def test_code_for_a_cpu_runs_on_another_make_of_its_level() -> None:
    """AMD's own shuffles of bytes are left out of what is made for its CPUs."""
    for name, flags in (("znver3", SKYLAKE), ("znver4", SAPPHIRE), ("x86-64-v4", SKYLAKE)):
        with pytest.MonkeyPatch.context() as m:
            m.setattr(host_cpu, "_flags", lambda flags=flags: flags)
            assert not host_cpu.lacks(doubled(f"llvm -mcpu={name}").attrs["cpu_features"]), name


def test_a_package_of_a_network_is_refused_before_it_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    g = tec.graph.Graph()
    g.outputs, g.output_names = g.add("relu", [g.input("x", "float32", (2, 8))]), ["y"]
    tec.compile(g, target="llvm -mcpu=icelake-server").save(tmp_path / "net.tec")
    net = tec.load(tmp_path / "net.tec")
    monkeypatch.setattr(host_cpu, "_flags", lambda: CASCADELAKE)
    with pytest.raises(DeviceError, match="lacks avx512bitalg"):
        net.run({"x": np.ones((2, 8), "float32")})


def test_names_of_aarch64(monkeypatch: pytest.MonkeyPatch) -> None:
    graviton2 = (
        "processor\t: 0\nFeatures\t: fp asimd aes crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc asimddp ssbs\n"
    )
    monkeypatch.setattr(host_cpu, "open", lambda path: io.StringIO(graviton2), raising=False)
    host_cpu._flags.cache_clear()
    try:
        lacking = {
            cpu: host_cpu.lacks(required_features(tec.Target(f"llvm -mtriple=aarch64-linux-gnu -mcpu={cpu}")))
            for cpu in ("generic", "neoverse-n1", "neoverse-v1")
        }
    finally:
        host_cpu._flags.cache_clear()
    assert lacking["generic"] == lacking["neoverse-n1"] == []
    assert {"bf16", "i8mm", "sve"} <= set(lacking["neoverse-v1"])


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
