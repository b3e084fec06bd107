"""The wheel: what is in it, and that it works in an environment of its own."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what `python -m build` makes: the source archive, and the wheel made from that."""
    for name in ("build", "hatchling"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("tec_compiler-*.whl")
    return path


def test_source_archive(built):
    (path,) = built.glob("tec_compiler-*.tar.gz")
    with tarfile.open(path) as t:
        names = {n.partition("/")[2] for n in t.getnames()}
    assert {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "tec/report/assets/page.html",
        "frontends/tec_onnx/__init__.py",
    } <= names
    assert not [n for n in names if n.startswith((".models", ".venv", "site/", "dist/"))]


def test_contents(wheel):
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as z:
        names = z.namelist()
        points = z.read(next(n for n in names if n.endswith("entry_points.txt"))).decode()
        metadata = z.read(next(n for n in names if n.endswith("METADATA"))).decode()
    assert {
        "tec/__init__.py",
        "tec/py.typed",
        "tec/report/assets/page.html",
        "tec/report/assets/graph.js",
        "tec_onnx/__init__.py",
    } <= set(names)
    assert not [n for n in names if n.startswith(("tests/", "tutorials/", ".models", "benchmarks/"))]
    assert "tec = tec.cli:main" in points and "onnx = tec_onnx" in points
    assert "Name: tec-compiler\n" in metadata  # `tec` is another project's name on the package index
    assert "Requires-Python: >=3.11" in metadata
    assert {"onnx", "cli", "test", "docs"} <= {
        line.split(": ")[1] for line in metadata.splitlines() if line.startswith("Provides-Extra")
    }


def test_works_in_an_environment_of_its_own(wheel, tmp_path):
    """The wheel is installed by pip; the packages it needs are those of this environment, tec itself is not."""
    home = tmp_path / "env"
    venv.create(home, with_pip=False)  # this environment's pip installs there: a pip of its own takes 5 s
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-q", "--no-deps", "--no-index", "--no-compile", wheel], check=True, timeout=300)
    site = Path(
        subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    )
    (site / "needs.pth").write_text(sysconfig.get_path("purelib") + "\n")
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TEC_CACHE_DIR": str(tmp_path / "cache")}

    def run(*words):
        return subprocess.run(
            [str(w) for w in words],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env=environment,
            cwd=tmp_path,
        )

    where = run(python, "-c", "import tec, tec_onnx; print(tec.__file__); print(tec_onnx.__file__)")
    assert where.returncode == 0 and all(line.startswith(str(home)) for line in where.stdout.split()), where
    doctor = run(home / "bin" / "tec", "doctor")
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    assert str(home) in doctor.stdout
    assert run(home / "bin" / "tec", "--version").stdout.startswith("tec ")


@pytest.mark.slow  # 6 s for a property of the build backend
def test_reproducible(built, tmp_path):
    """The same files make the same archives, byte for byte, whenever they are built."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    first = {p.name: p.read_bytes() for p in built.iterdir()}
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == first
