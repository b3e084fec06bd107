"""Frontends by name and by what they take; what is missing is named with what to install."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import tec
from tec.graph import Graph, frontends


class Recipe:
    """A model in a format of its own: operators in a row, as text."""

    def accepts(self, source):
        return isinstance(source, str) and source.startswith("recipe:")

    def load(self, source, shapes=None, *, freeze=None):
        g = Graph()
        x = g.input("x", "float32", (shapes or {}).get("x", (3,)))
        for op in source.removeprefix("recipe:").split():
            (x,) = g.add(op, [x])
        g.set_outputs([x])
        return g


def test_a_frontend_of_ones_own(monkeypatch):
    monkeypatch.setattr(frontends, "_registered", {})
    frontends.register("recipe", Recipe())
    x = np.array([1, 2, 3], np.float32)
    np.testing.assert_allclose(tec.compile("recipe:neg exp", target="llvm").run({"x": x})[0], np.exp(-x), rtol=1e-6)
    net = tec.compile("recipe:neg", target="llvm", shapes={"x": (2, 2)})
    assert net.run({"x": np.ones((2, 2), np.float32)})[0].shape == (2, 2)
    with pytest.raises(tec.ImportModelError, match=r"cannot read nothing\.onnx"):
        tec.compile("nothing.onnx")  # still the other's


def test_what_nobody_takes(tmp_path):
    with pytest.raises(tec.ImportModelError, match="not a model: no frontend takes int") as e:
        tec.compile(3)
    assert "frontends: onnx" in str(e.value)
    archive = tmp_path / "model.pt2"
    archive.write_bytes(b"PK\x03\x04 and so on")
    with pytest.raises(tec.ImportModelError, match=r"(no frontend takes|cannot read|needs the package torch).*"):
        tec.compile(archive)


def test_without_the_onnx_package_it_says_what_to_install():
    program = """
        import sys

        sys.modules["onnx"] = None  # as if it were not installed

        import tec

        try:
            tec.compile("x.onnx")
        except tec.ImportModelError as e:
            print(e)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert "no frontend takes 'x.onnx': onnx needs the package onnx" in done.stdout, done.stderr
    assert 'pip install "tec-compiler[onnx]"' in done.stdout
