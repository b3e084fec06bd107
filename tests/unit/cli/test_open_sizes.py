"""Packages whose sizes stay open: compiled once, run, shown and measured at any."""

from __future__ import annotations

import json

import numpy as np
import pytest


@pytest.fixture
def any_batch(tec_cli, tiny, tmp_path_factory):
    out = tmp_path_factory.mktemp("open") / "any.tec"
    made = tec_cli("compile", tiny, "-o", out, "--open", "batch", "--json")
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["open"] == ["batch"]
    return out


def test_one_package_runs_at_the_sizes_of_files_and_words(tec_cli, tiny, any_batch, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(str(tiny), providers=["CPUExecutionProvider"])
    for n in (1, 3):
        x = np.random.default_rng(n).standard_normal((n, 3, 8, 8)).astype(np.float32)
        np.save(tmp_path / "x.npy", x)
        ran = tec_cli("run", any_batch, "--inputs", f"x={tmp_path / 'x.npy'}", "--save-outputs", tmp_path / "o")
        assert ran.exit_code == 0, ran.output
        np.testing.assert_allclose(np.load(tmp_path / "o" / "y.npy"), session.run(None, {"x": x})[0], 1e-4, 1e-6)
    for words in (("x", 4, 3, 8, 8), ("batch", 4)):
        ran = tec_cli("run", any_batch, "--input-dim", *words, "--json")
        assert json.loads(ran.stdout)["outputs"][0]["shape"] == [4, 5], ran.output


def test_a_size_that_nobody_gives_is_1_and_a_line_says_so(tec_cli, any_batch):
    ran = tec_cli("run", any_batch, "--json")
    assert "batch is 1" in ran.stderr and json.loads(ran.stdout)["outputs"][0]["shape"] == [1, 5]
    shown = tec_cli("show", any_batch)
    assert shown.exit_code == 0 and "GFLOP" in shown.output
    assert tec_cli("bench", any_batch, "--input-dim", "batch", 2, "--json").exit_code == 0


def test_the_header_of_a_model_and_of_its_package_are_one(tec_cli, tiny, any_batch, package, tmp_path):
    closed = tec_cli("header", tiny, "--input-dim", "batch", 2, "--name", "net", "-t", "rocm -mcpu=gfx942")
    assert closed.exit_code == 0 and "input 0: x, float32 [2, 3, 8, 8]" in closed.stdout, closed.output
    assert tec_cli("header", package, "--name", "net").stdout.replace("[1, ", "[2, ") == closed.stdout
    made = tec_cli("header", tiny, "--open", "batch", "--name", "net", "-o", tmp_path / "net.h")
    assert made.exit_code == 0 and "float32 [batch, 3, 8, 8]" in (tmp_path / "net.h").read_text()
    assert tec_cli("header", any_batch, "--name", "net").stdout == (tmp_path / "net.h").read_text()


def test_names_among_the_sizes_stay_open(tec_cli, tiny, tmp_path):
    made = tec_cli("compile", tiny, "-o", tmp_path / "n.tec", "--input-dim=x=n,3,8,8", "--json")
    assert json.loads(made.stdout)["open"] == ["n"], made.output


def test_mistakes(tec_cli, tiny, any_batch, package, tmp_path):
    cases = [
        (("compile", tiny, "-o", tmp_path / "b.tec", "--open", "bath"), "no dimension 'bath' (dimensions with a name: batch)"),
        (("run", any_batch, "--input-dim", "x", 4, 3), "does not fit"),
        (("run", any_batch, "--input-dim", "y", 4), "does not fit"),
        (("run", any_batch, "--input-dim", "batch", 4, "--input-dim", "x", 2, 3, 8, 8), "size batch is"),
        (("run", any_batch, "--input-dim", "batch", 0), "size batch is 0"),
        (("run", package, "--input-dim", "x", 1, 3, 8, 8), "compiled already"),
    ]  # fmt: skip
    for words, message in cases:
        result = tec_cli(*words)
        assert result.exit_code == 2, (words, result.output)
        assert message in result.stderr, (words, result.stderr)
