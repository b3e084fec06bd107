"""Packages that were saved before: version 2's by `tec convert`, this version's as they are."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

import tec
from tec import te

OLD = Path(__file__).parent / "packages"  # of the network `tiny`, with a batch of two


@pytest.mark.parametrize("name,device", [("cpu", "cpu"), ("gfx942", "emu")])
def test_old_packages_run(name, device, tec_cli, tiny, tmp_path):
    old = shutil.copy(OLD / f"version2-{name}.tec", tmp_path / "old.tec")
    refused = tec_cli("run", old)
    assert refused.exit_code == 3 and f"tec convert {old}" in refused.output
    new = tmp_path / "new.tec"
    made = tec_cli("convert", old, "-o", new)
    assert made.exit_code == 0 and "version 3, was 2" in made.output, made.output
    x = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype("float32")
    want = tec.compile(str(tiny), shapes={"x": x.shape}).run([x])
    net = tec.load(str(new))
    got = net.run([x], device=tec.cpu() if device == "cpu" else tec.rocm_emu("gfx942"))
    assert np.allclose(got[0], want[0], rtol=1e-4, atol=1e-5)
    assert len(net.get_source("llvm")) > 500 and tec_cli("show", new).exit_code == 0
    again = tec_cli("convert", new, "-o", tmp_path / "third.tec")  # this version's stay as they are
    assert again.exit_code == 0 and "was 3" in again.output


def test_packages_of_this_version_load(tiny):
    """They were saved when 0.1.0 was written. If one no longer loads, the format changed and needs a new number (docs/packages.md)."""
    x = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype("float32")
    (want,) = tec.compile(str(tiny), shapes={"x": x.shape}).run([x])
    net = tec.load(str(OLD / "version3-cpu.tec"))
    np.testing.assert_allclose(net.run([x])[0], want, rtol=1e-4, atol=1e-5)
    gpu = tec.load(str(OLD / "version3-gfx942.tec"))
    assert gpu.get_binary()[:4] == b"\x7fELF"
    for kept in (net, gpu):
        assert kept.report.functions and all(kept.get_source(what) for what in ("ir", "llvm", "asm"))


def test_mistakes(tec_cli, tmp_path):
    old = OLD / "version2-cpu.tec"
    for words, said in (
        ([tmp_path / "none.tec"], "no such file"),
        ([tmp_path / "x.onnx"], "not a package"),
        ([old, "-o", tmp_path / "x.tecmod"], "a .tec file is wanted"),
        ([old, "-o", tmp_path / "no" / "x.tec"], "no folder"),
    ):
        got = tec_cli("convert", *words)
        assert got.exit_code == 2 and said in got.output, got.output
    first = tmp_path / "first.tec"
    with zipfile.ZipFile(old) as z, zipfile.ZipFile(first, "w") as out:
        manifest = json.loads(z.read("manifest.json"))
        out.writestr("manifest.json", json.dumps({**manifest, "version": 1}))
    got = tec_cli("convert", first)
    assert got.exit_code == 3 and "version 1" in got.output
    broken = tmp_path / "broken.tec"
    manifest["meta"]["module"]["imported"][0].pop("image")
    with zipfile.ZipFile(broken, "w") as out:
        out.writestr("manifest.json", json.dumps(manifest))
    got = tec_cli("convert", broken)
    assert got.exit_code == 3 and "damaged" in got.output


def test_a_module_keeps_its_function(tec_cli, tmp_path):
    """A package of one function, written again: the same results, and its texts."""
    A = te.placeholder((5,), name="A")
    C = te.compute((5,), lambda i: A[i] * 2 + 1, name="C")
    old, new = tmp_path / "f.tecmod", tmp_path / "g.tecmod"
    tec.build(te.create_schedule(C.op), [A, C], "llvm", name="f").save(str(old))
    made = tec_cli("convert", old, "-o", new)
    assert made.exit_code == 0 and "was 3" in made.output, made.output
    x, y = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    f = tec.load_module(str(new))
    f(x, y)
    assert (y == x * 2 + 1).all() and "define" in f.get_source("llvm")
