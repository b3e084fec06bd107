"""The example programs in Rust and Go run a library as Python runs the network, and tell a wrong input. They need those languages' toolchains."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tec
from tec.graph import Graph
from tec.ops.dims import Dim

TUTORIALS = Path(__file__).parents[3] / "tutorials"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    g = Graph("classifier")
    x = g.input("x", "float32", (Dim("batch"), 4))
    w = g.constant(np.random.default_rng(0).standard_normal((4, 3)).astype("f"))
    g.set_outputs(g.add("softmax", g.add("matmul", [x, w]), {"axes": (1,)}), ["y"])
    net = tec.compile(g, "llvm")
    path = tmp_path_factory.mktemp("bindings") / "classifier.so"
    net.export_library(path)
    return path, net


def rust(path, folder):
    cargo = shutil.which("cargo")
    if cargo is None:
        pytest.skip("no cargo")
    shutil.copytree(TUTORIALS / "rust", folder, dirs_exist_ok=True)
    made(folder, cargo, "build", "--offline", "--quiet")
    return [folder / "target/debug/tec-net", path]


def go(path, folder):
    compiler = shutil.which("go")
    if compiler is None or shutil.which("gcc") is None:
        pytest.skip("no go, or no gcc, which cgo calls")
    shutil.copytree(TUTORIALS / "go", folder, dirs_exist_ok=True)
    for file in (path, path.with_suffix(".h")):
        shutil.copy(file, folder)
    made(folder, compiler, "build", "-o", "classify", ".")
    return [folder / "classify"]


def made(folder, *command):
    # The linker's environment is the example's own.
    env = {
        k: v for k, v in os.environ.items() if k not in ("RUSTFLAGS", "CGO_CFLAGS", "CGO_LDFLAGS", "CARGO_TARGET_DIR")
    }
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("language", [rust, go])
def test_an_example(language, library, tmp_path):
    path, net = library
    program = language(path, tmp_path)
    done = subprocess.run([*program, *"1 2 3 4 4 3 2 1".split()], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (y,) = net.run([np.array([[1, 2, 3, 4], [4, 3, 2, 1]], "f")])
    np.testing.assert_allclose(np.loadtxt(done.stdout.splitlines()), y, atol=1e-6)

    uneven = subprocess.run([*program, "1", "2", "3"], capture_output=True, text=True, check=False)
    assert uneven.returncode == 1 and "3 elements do not make the shape" in uneven.stderr
    empty = subprocess.run(program, capture_output=True, text=True, check=False)
    assert empty.returncode == 1 and "batch, is 0" in empty.stderr  # the library's own words
