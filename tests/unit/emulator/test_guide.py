"""The guide for testing AMD kernels: its programs and the commands of its CI files, extracted and run where their packages are."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from tec.codegen.objects.linking import link
from tests.thinned import thinned_rows
from tests.unit.runtime.test_foreign import bundle

from .test_hip import C_PROGRAM, code_object

ROOT = Path(__file__).resolve().parents[3]
GUIDE = (ROOT / "docs" / "amd-kernels.md").read_text()
FILES: dict[str, str] = dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', GUIDE, re.M | re.S))
WORKFLOWS = [n for n in FILES if n.endswith(".yml")]

# The kernel of saxpy.hip, by hand: there is no compiler for HIP here.
SAXPY = """target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @saxpy(float %a, ptr addrspace(1) %x, ptr addrspace(1) %y, i32 %n) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %b = mul i32 %g, 256
  %i = add i32 %b, %t
  %in = icmp slt i32 %i, %n
  br i1 %in, label %go, label %end
go:
  %px = getelementptr float, ptr addrspace(1) %x, i32 %i
  %py = getelementptr float, ptr addrspace(1) %y, i32 %i
  %vx = load float, ptr addrspace(1) %px
  %vy = load float, ptr addrspace(1) %py
  %m = fmul float %a, %vx
  %s = fadd float %m, %vy
  store float %s, ptr addrspace(1) %py
  br label %end
end:
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
attributes #0 = { "amdgpu-flat-work-group-size"="1,1024" }
"""


def saxpy(chip):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=chip, opt=2)
    return link(machine.emit_object(llvm.parse_assembly(SAXPY)), "own")


def commands(workflow, job):
    """The `run:` steps of a job."""
    text = FILES[workflow]
    part = re.search(rf"^  {job}:\n(.*?)(?=^  \S|\Z)", text, re.M | re.S)
    assert part, f"{workflow} has no job {job}"
    return re.findall(r"^      - run: (.+)$", part[1], re.M)


def without(package):
    return importlib.util.find_spec(package) is None


@pytest.fixture
def project(tmp_path):
    """The guide's files, what its build jobs would have made, and the commands `tec`, `pytest` and `python` of this Python."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "conftest.py").unlink()  # tinygrad's alone
    (tmp_path / "build").mkdir()
    (tmp_path / "bin").mkdir()
    plugins = "-p tec.emulator.pytest_plugin" if not _installed() else ""
    for name, line in (("tec", "-m tec.cli"), ("pytest", f"-m pytest -p no:cacheprovider {plugins}"), ("python", "")):
        script = tmp_path / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {line} "$@"\n')
        script.chmod(0o755)
    return tmp_path


def _installed():
    from importlib.metadata import entry_points

    return any(e.value == "tec.emulator.pytest_plugin" for e in entry_points(group="pytest11"))


def run_steps(project, workflow, job, matrix=None):
    """Run a job's commands as its runner would, but for installing."""
    ran = []
    path = os.pathsep.join([str(project / "bin"), os.path.dirname(sys.executable), os.environ["PATH"]])
    env = os.environ | {"PATH": path, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    env.pop("CI", None)
    for line in commands(workflow, job):
        if line.startswith(("pip install", "sudo apt-get")):
            continue
        for name, value in (matrix or {}).items():
            line = line.replace("${{ matrix." + name + " }}", value)
        done = subprocess.run(
            ["sh", "-ec", line], cwd=project, env=env, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        ran.append(done.stdout + done.stderr)
    return ran


def test_every_workflow_is_a_file_for_ci():
    assert len(WORKFLOWS) == 6
    for name in WORKFLOWS:
        text = FILES[name]
        assert re.match(r"name: .+\non: \[push, pull_request\]\njobs:\n", text) and "\t" not in text, name
        for file in re.findall(r"(?:tests/\w+|\b(?:saxpy|model))\.\w+", " ".join(re.findall(r"run: (.+)", text))):
            assert file in FILES or file.endswith((".hsaco", ".vmfb")), f"{name} names {file}"


def test_hip_kernels(project):
    (project / "build" / "saxpy.hsaco").write_bytes(
        bundle({f"hipv4-amdgcn-amd-amdhsa--{c}": saxpy(c) for c in ("gfx942", "gfx1100")})
    )
    listed, tested = run_steps(project, ".github/workflows/hip.yml", "test")
    assert "saxpy" in listed and "gfx1100" in listed and "4 passed" in tested
    FILES["run"] = "  one:\n" + "".join(f"      - run: {line}\n" for line in FILES["run.sh"].splitlines())
    (done,) = run_steps(project, "run", "one")
    assert "no fault" in done and "saxpy" in (project / "page.html").read_text()


@pytest.mark.slow  # `test_hip` has the same by its parts
@pytest.mark.skipif(shutil.which("cc") is None or not sys.platform.startswith("linux"), reason="no C compiler")
def test_hip_programs(project):
    from tec.emulator.hip.library import _python, library_folder

    if not os.path.exists(_python()):
        pytest.skip("this Python has no shared library")
    (project / "build" / "saxpy.hsaco").write_bytes(saxpy("gfx942"))
    # What hipcc makes of a program, made by a C compiler.
    (project / "kernels.bundle").write_bytes(bundle({"hipv4-amdgcn-amd-amdhsa--gfx942": code_object()}))
    (project / "main.c").write_text(C_PROGRAM)
    subprocess.run(
        ["cc", "main.c", "-o", "build/tests", f"-L{library_folder() / 'lib'}", "-lamdhip64"],
        cwd=project,
        check=True,
        timeout=60,
    )
    outputs = run_steps(project, ".github/workflows/hip-programs.yml", "test")
    assert "right" in outputs[1] and "63 0" in outputs[2]


@pytest.mark.skipif(without("triton"), reason="no triton")
@thinned_rows(1, "chip", ["gfx942", "gfx1100"])
def test_triton(project, chip):
    (tested,) = run_steps(project, ".github/workflows/triton.yml", "amd", {"chip": chip})
    assert "1 passed, 1 xfailed" in tested


@pytest.mark.skipif(without("iree") or without("iree.compiler"), reason="no iree-base-compiler")
def test_iree(project):
    _, listed, tested = run_steps(project, ".github/workflows/iree.yml", "amd")
    assert "global_buffer" in listed and "1 passed" in tested


@pytest.mark.skipif(without("tinygrad"), reason="no tinygrad")
def test_tinygrad(project):
    (project / "conftest.py").write_text(FILES["conftest.py"])
    (tested,) = run_steps(project, ".github/workflows/tinygrad.yml", "amd")
    assert "1 passed" in tested


def test_tec(project):
    (tested,) = run_steps(project, ".github/workflows/tec.yml", "amd")
    assert "2 passed" in tested
