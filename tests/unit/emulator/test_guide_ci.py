"""The guide's CI files as a runner would run them: every step, installing too, in an empty folder, with a wheel made of this checkout in the place of PyPI's.

`make guide` (it installs packages, so TEC_GUIDE_CI asks for it). What a runner has and this machine may not: `hipcc`, for which clang stands where HIP's headers and ROCm's
device library are; apt-get's step, which is left out where the library is there already.
"""

from __future__ import annotations

import ctypes.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.runtime.test_foreign import bundle

from .test_guide import FILES, ROOT, commands, saxpy
from .test_hip import C_PROGRAM, code_object
from .test_textures import clang, hip_headers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("TEC_GUIDE_CI"), reason="installs packages from PyPI: make guide"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="CI files are for Linux"),
]
# The files of a workflow's repository, besides itself.
NEEDS = {
    "triton": ["tests/test_triton_kernels.py"], "hip": ["saxpy.hip", "tests/test_saxpy.py"], "hip-programs": ["saxpy.hip", "saxpy.py"],
    "iree": ["model.mlir", "tests/test_dispatches.py"], "tinygrad": ["conftest.py", "tests/test_tensors.py"], "tec": ["tests/test_tec_kernels.py"],
}  # fmt: skip


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheels")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)], check=True, timeout=600
    )
    assert list(folder.glob("tec_compiler-*.whl"))
    return folder


def run_job(project: Path, env: dict[str, str], name: str, job: str, matrix: dict[str, str]) -> str:
    """All `run:` steps of a job; what they said."""
    said = ""
    for line in commands(f".github/workflows/{name}.yml", job):
        for key, value in matrix.items():
            line = line.replace("${{ matrix." + key + " }}", value)
        if line.startswith("sudo apt-get") and ctypes.util.find_library("LLVM"):
            continue
        done = subprocess.run(
            ["bash", "-e", "-c", line], cwd=project, env=env, capture_output=True, text=True, timeout=900, check=False
        )
        said += done.stdout + done.stderr
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return said


def hipcc(folder: Path) -> bool:
    """A `hipcc` for device code, where clang, HIP's headers and the device library are."""
    headers, compiler = hip_headers(), clang()
    if headers is None or compiler is None:
        return False
    include, library = headers
    flags = f"-x hip --offload-device-only -nogpuinc -nogpulib -isystem {include} -D__CLANG_CUDA_COMPLEX_BUILTINS -D__HIP_PLATFORM_AMD__"
    flags += f" -include {include}/hip/hip_runtime.h" + "".join(
        f" -Xclang -mlink-builtin-bitcode -Xclang {b}" for b in (library, library.with_name("oclc_abi_version_500.bc"))
    )
    script = folder / "hipcc"
    script.write_text(f'#!/bin/sh\n[ "$1" = --genco ] || exit 0\nshift\nexec {compiler} {flags} "$@"\n')
    script.chmod(0o755)
    return True


@pytest.mark.parametrize("name", list(NEEDS))
def test_workflow(name: str, wheels: Path, tmp_path: Path) -> None:
    project, tools = tmp_path / "project", tmp_path / "tools"
    for file in NEEDS[name]:
        (project / file).parent.mkdir(parents=True, exist_ok=True)
        (project / file).write_text(FILES[file])
    tools.mkdir()
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=120)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TEC_", "PYTEST", "CI"))}
    env |= {
        "PATH": os.pathsep.join([str(tmp_path / "venv/bin"), str(tools), env["PATH"]]),
        "PIP_FIND_LINKS": str(wheels),
        "TEC_CACHE_DIR": str(tmp_path / "cache"),
    }
    if name.startswith("hip"):
        if hipcc(tools):
            run_job(project, env, name, "build", {})
        else:
            (project / "build").mkdir()
            data = (
                bundle({f"hipv4-amdgcn-amd-amdhsa--{c}": saxpy(c) for c in ("gfx942", "gfx1100")})
                if name == "hip"
                else saxpy("gfx942")
            )
            (project / "build/saxpy.hsaco").write_bytes(data)
    if name == "hip-programs":  # what hipcc makes of a program, made by a C compiler
        from tec.emulator.hip.library import library_folder

        (project / "kernels.bundle").write_bytes(bundle({"hipv4-amdgcn-amd-amdhsa--gfx942": code_object()}))
        (project / "main.c").write_text(C_PROGRAM)
        command = [
            shutil.which("cc") or "cc",
            "main.c",
            "-o",
            "build/tests",
            f"-L{library_folder() / 'lib'}",
            "-lamdhip64",
        ]
        subprocess.run(command, cwd=project, check=True, timeout=60)
    job = "test" if name.startswith("hip") else "amd"
    for chip in ("gfx942", "gfx1100") if name == "triton" else ("",):
        said = run_job(project, env, name, job, {"chip": chip})
        want = {"triton": "1 passed, 1 xfailed", "hip": "4 passed", "hip-programs": "right", "tec": "2 passed"}.get(
            name, "1 passed"
        )
        assert want in said, said
