"""Where commands write to: links stay, pipes and stdout take what would be a file, and messages go to stderr then."""

from __future__ import annotations

import io
import os

import numpy as np
import onnx
import pytest

import tec
from tests.unit.pipes import through_pipe

BATCH = ("--input-dim", "batch", "1")


def test_a_package_to_stdout(tec_cli, tiny, tmp_path):
    got = tec_cli("compile", tiny, "-o", "-", *BATCH)
    assert got.exit_code == 0, got.output
    (tmp_path / "x.tec").write_bytes(got.stdout_bytes)
    assert tec.load(tmp_path / "x.tec").inputs[0]["name"] == "x"
    assert "steps" in got.stderr and not os.path.exists("-")


def test_a_package_to_a_pipe_and_through_a_link(tec_cli, tiny, tmp_path):
    got, data = through_pipe(tmp_path / "pipe", lambda: tec_cli("compile", tiny, "-o", tmp_path / "pipe", *BATCH))
    assert got.exit_code == 0, got.output
    (tmp_path / "real.tec").write_bytes(b"old")
    (tmp_path / "link.tec").symlink_to("real.tec")
    assert tec_cli("compile", tiny, "-o", tmp_path / "link.tec", *BATCH).exit_code == 0
    assert (tmp_path / "link.tec").is_symlink()
    (tmp_path / "other.tec").write_bytes(data)
    names = [[i["name"] for i in tec.load(tmp_path / n).inputs] for n in ("other.tec", "real.tec")]
    assert names == [["x"], ["x"]]


def test_a_page_to_stdout(tec_cli, package):
    got = tec_cli("show", package, "--html", "-", "--no-measure")
    assert got.exit_code == 0 and got.stdout.startswith("<!doctype html") and got.stdout.rstrip().endswith("</html>")
    assert got.stderr.strip() == "-"


def test_arrays_to_a_pipe(tec_cli, tiny, tmp_path):
    call = lambda: tec_cli("run", tiny, *BATCH, "--save-outputs", tmp_path / "pipe")  # noqa: E731
    got, data = through_pipe(tmp_path / "pipe", call)
    assert got.exit_code == 0, got.output
    assert np.load(io.BytesIO(data))["y"].shape == (1, 5)


def test_a_trace_and_a_report_to_stdout(tec_cli, tiny):
    for words in (("bench", tiny, *BATCH, "--runs", "1", "--trace", "-"), ("run", tiny, *BATCH, "--profile", "-")):
        got = tec_cli(*words)
        assert got.exit_code == 0 and got.stdout.startswith('{"traceEvents"') and got.stdout.endswith("}"), got.output
    got = tec_cli("doctor", "--report", "-")
    assert got.stdout.startswith("{") and got.stdout.endswith("}\n")


@pytest.mark.parametrize(
    "words",
    [
        ("compile", "-o", "-", "--json"),
        ("bench", "--trace", "-", "--json"),
        ("run", "--profile", "-", "--save-outputs", "-"),
    ],
)
def test_two_things_for_stdout(tec_cli, tiny, words):
    got = tec_cli(words[0], tiny, *words[1:])
    assert got.exit_code == 2 and "standard output" in got.stderr and got.stdout == ""


def test_names_of_outputs_are_any_text(tec_cli, tmp_path):
    """`file` is a parameter of `np.savez`; `a/b` and `a:b` are one name where other signs become `_`."""
    h = onnx.helper
    names = ["file", "a/b", "a:b", "../up", "mmap_mode"]
    graph = h.make_graph(
        [h.make_node("Identity" if k else "Neg", ["x"], [n]) for k, n in enumerate(names)],
        "g",
        [h.make_tensor_value_info("x", 1, [2])],
        [h.make_tensor_value_info(n, 1, [2]) for n in names],
    )
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.array([1, 2], "float32"))
    run = ("run", tmp_path / "m.onnx", "--inputs", tmp_path / "x.npy", "--save-outputs")
    got = tec_cli(*run, tmp_path / "o.npz")
    assert got.exit_code == 0, got.output
    with np.load(tmp_path / "o.npz") as saved:
        assert (
            sorted(saved.files) == sorted(names)
            and saved["file"].tolist() == [-1, -2]
            and saved["a/b"].tolist() == [1, 2]
        )
    assert tec_cli(*run, tmp_path / "out").exit_code == 0
    assert len(os.listdir(tmp_path / "out")) == len(names) and not (tmp_path / "up.npy").exists()
