"""What `save` wrote runs where neither the compiler's packages nor a frontend's are installed: NumPy is all it takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.errors import MissingPackageError, TecError
from tec.graph import Graph
from tec.graph.programs import naming
from tec.ops.dims import Dim

_BLOCKED = (
    "networkx", "llvmlite", "onnx", "click", "rich", "scipy", "ml_dtypes", "torch", "onnxruntime", "distributed", "tokenizers",
)  # fmt: skip

# An import of one of them fails as where it is not installed; the rest of the program stands behind it.
_BLOCK = f"""
import sys
class Missing:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] in {_BLOCKED}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import numpy as np
import tec
from tec.errors import *
folder = sys.argv[1]
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network with an open size for the CPU, one for gfx942, and a module."""
    folder = tmp_path_factory.mktemp("saved")

    def network(rows: Any) -> Graph:
        g = Graph("affine")
        x = g.input("x", "float32", (rows, 6))
        (y,) = g.add("matmul", [x, g.constant(np.arange(24, dtype="f4").reshape(6, 4), "w")], {}, "product")
        (z,) = g.add("relu", [y], {}, "relu")
        g.set_outputs([z], ["z"])
        return g

    tec.compile(network(Dim("n")), target="llvm").save(folder / "cpu.tec")
    tec.compile(network(3), target="rocm -mcpu=gfx942").save(folder / "gfx942.tec")
    n = te.var("n")
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] * 2 + 1, name="b")
    tec.build(tec.create_schedule(b.op), [a, b], "llvm").save(folder / "twice.tecmod")
    return folder


def _run(program: str, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _BLOCK + program, str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr[-1500:]
    return done.stdout.strip()


def test_networks_and_modules_run_with_numpy_alone(saved: Path) -> None:
    _run(
        """
net = tec.load(f"{folder}/cpu.tec")
w = np.arange(24, dtype="f4").reshape(6, 4)
for n in (1, 3, 8):
    x = np.linspace(-1, 1, n * 6, dtype="f4").reshape(n, 6)
    want = np.maximum(x @ w, 0)
    np.testing.assert_allclose(net.run({"x": x})[0], want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(net.executor().run([x])[0].numpy(), want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(net.bind(n=n).run([x])[0], want, rtol=1e-5, atol=1e-5)
assert net.inputs[0]["name"] == "x" and net.open_sizes == ["n"]
assert "relu" in repr(net._repr_html_()) and "define" in net.get_source("llvm") and net.get_binary()[:4] == b"\\x7fELF"
with tec.profile() as profile:
    net.run([x])
assert "product" in str(profile) or "matmul" in str(profile)
net.save(f"{folder}/again.tec")
np.testing.assert_array_equal(tec.load(f"{folder}/again.tec").run([x])[0], net.run([x])[0])
try:
    net.run({"x": x[0]})
    raise SystemExit("a misshapen input was taken")
except ArgumentError as error:
    assert "x" in str(error)

module = tec.load_module(f"{folder}/twice.tecmod")
a, b = tec.nd.array(np.arange(5, dtype="f4")), tec.nd.empty((5,), "float32")
module(a, b)
np.testing.assert_array_equal(b.numpy(), np.arange(5) * 2 + 1)
bad = sorted(m for m in sys.modules if m.startswith(("tec.graph", "tec.te", "tec.ir", "tec.codegen", "tec.schedule", "tec.ops")))
assert not bad, bad
""",
        saved,
    )


def test_the_software_gpu_says_what_it_needs(saved: Path) -> None:
    """It translates kernels through LLVM: loading and placing work, a launch tells what is missing."""
    said = _run(
        """
net = tec.load(f"{folder}/gfx942.tec")
device = tec.rocm_emu("gfx942")
assert tec.nd.array(np.arange(3), device).numpy().tolist() == [0, 1, 2]
try:
    net.run({"x": np.ones((3, 6), "f4")}, device=device)
except MissingPackageError as error:
    assert error.name == "llvmlite" and isinstance(error, (TecError, ImportError))
    print(error)
""",
        saved,
    )
    assert "needs the package llvmlite" in said and "pip install llvmlite" in said


@pytest.mark.parametrize("workers", ["", "0"])
def test_what_compiles_says_what_it_needs(saved: Path, workers: str) -> None:
    said = _run(
        """
for name in ("compile", "array", "graph", "grad"):
    getattr(tec, name)
g = tec.graph.Graph("g")
for ask in (g.sort, g.networkx):
    try:
        ask()
    except MissingPackageError as error:
        assert error.name == "networkx", error.name
        print(str(error).splitlines()[0])
a = tec.placeholder((4,), name="a")
b = tec.compute((4,), lambda i: a[i] + 1.0, name="b")
try:
    tec.build(tec.create_schedule(b.op), [a, b], "llvm")
except MissingPackageError as error:
    print(str(error).splitlines()[0])
""",
        saved,
        **({"TEC_COMPILE_WORKERS": workers} if workers else {}),
    ).splitlines()
    assert said[:2] == [
        f"{what} needs the package networkx, which is not installed" for what in ("sorting a graph", "Graph.networkx")
    ]
    assert said[2:] == ["compiling needs the package llvmlite, which is not installed"]


def test_an_error_of_both_kinds() -> None:
    error = MissingPackageError("tec.compile", "networkx.algorithms")
    assert isinstance(error, TecError) and isinstance(error, ImportError) and error.name == "networkx"
    assert str(error).startswith("tec.compile needs the package networkx, which is not installed") and error.hint


def test_an_expression_without_the_compiler_names_the_package() -> None:
    with pytest.raises(MissingPackageError, match="llvmlite"), naming(None, None):  # type: ignore[arg-type]
        raise MissingPackageError("compiling", "llvmlite")
