"""LLVM in worker processes: what it cannot stand is an error that names the function and keeps its IR, and the caller goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

import tec
from tec import te
from tec.codegen import llvm_util
from tec.errors import CodegenError
from tec.llvmworker import client, jobs

X86 = llvm_util.LLVMMachine("x86_64-unknown-linux-gnu", "x86-64")
AMD = llvm_util.LLVMMachine("amdgcn-amd-amdhsa", "gfx942")
FINE = "define i32 @f() { ret i32 1 }"
# The AMDGPU back end has no libcall for the tangent: LLVM ends its process.
DEADLY = """define amdgpu_kernel void @deadly(ptr addrspace(1) %p) {
  %x = load double, ptr addrspace(1) %p
  %y = call double @llvm.tan.f64(double %x)
  store double %y, ptr addrspace(1) %p
  ret void
}
declare double @llvm.tan.f64(double)
"""


@pytest.fixture
def cold(monkeypatch, tmp_path):
    """No object comes from the disk, and files that are kept lie in a folder of the test."""
    monkeypatch.setenv("TEC_CACHE_DIR", "0")
    monkeypatch.setattr(client.tempfile, "tempdir", str(tmp_path))
    client._kept_folder.cache_clear()
    yield tmp_path
    client._kept_folder.cache_clear()


def add(k: float, n: int = 16, target: str = "llvm", name: str = "f"):
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + k, name="B")
    s = tec.create_schedule(b.op)
    if target.startswith("rocm"):
        blocks, threads = s[b].split(b.op.axis[0], factor=8)
        s[b].bind(blocks, te.thread_axis("blockIdx.x"))
        s[b].bind(threads, te.thread_axis("threadIdx.x"))
    return tec.build(s, [a, b], target, name=name)


def check(f, k: float, n: int = 16) -> None:
    a, b = tec.nd.array(np.arange(n, dtype="float32")), tec.nd.empty((n,), "float32")
    f(a, b)
    np.testing.assert_array_equal(b.numpy(), np.arange(n, dtype="float32") + np.float32(k))


def test_a_processor_that_llvm_does_not_know_is_named(cold):
    with pytest.raises(CodegenError, match=r"knows no processor 'zen9' of this kind: -mcpu takes .* znver4"):
        add(1.0, target="llvm -mcpu=zen9")


def test_llvm_that_dies_is_an_error_that_keeps_the_ir(cold):
    with pytest.raises(CodegenError) as caught:
        llvm_util.compile_text(DEADLY, AMD, "object", what="function 'deadly'")
    text = str(caught.value)
    assert "function 'deadly'" in text and "LLVM died (" in text
    kept = Path(re.search(r"kept in (\S+)", text)[1])
    assert (
        kept.parent.parent == cold
        and kept.parent.stat().st_mode & 0o777 == 0o700
        and DEADLY in kept.read_text()
        and "-mcpu=gfx942" in kept.read_text()
    )
    check(add(1.0), 1.0)  # the next compile gets a new worker


def test_jobs_behind_the_deadly_one_are_done(cold):
    jobs = [llvm_util.begin(FINE if k != 1 else DEADLY, X86 if k != 1 else AMD, ("object",)) for k in range(6)]
    for k, job in enumerate(jobs):
        if k == 1:
            with pytest.raises(CodegenError, match="LLVM died"):
                job.result()
        else:
            assert job.result()["object"][:4] == b"\x7fELF"


def test_a_job_that_takes_too_long_is_an_error(cold, monkeypatch):
    monkeypatch.setenv("TEC_COMPILE_TIMEOUT", "0.05")
    monkeypatch.setattr(client, "POOL", client.Pool())
    body = "\n".join(f"  %x{k + 1} = call float @llvm.exp.f32(float %x{k})" for k in range(20000))
    slow = f"define float @slow(float %x0) {{\n{body}\n  ret float %x20000\n}}\ndeclare float @llvm.exp.f32(float)\n"
    try:
        with pytest.raises(CodegenError, match=r"LLVM took more than 0.05 s\n  while compiling function 'slow'"):
            llvm_util.compile_text(slow, AMD, "asm", what="function 'slow'")
    finally:
        client.POOL.close()


def test_a_worker_that_is_killed_costs_nothing_but_time(cold):
    check(add(2.0), 2.0)
    for w in list(client.POOL.workers):
        os.kill(w.process.pid, signal.SIGKILL)
        w.process.wait()
    check(add(3.0, name="g"), 3.0)


def test_what_llvm_refuses_is_its_message_and_the_line(cold):
    with pytest.raises(CodegenError, match=r"(?s)LLVM refused the module: .*\n  in: ret i64 %x"):
        llvm_util.compile_text("define i32 @f(i32 %x) {\n  ret i64 %x\n}", X86, "object")


def test_without_workers_llvm_runs_here(cold, monkeypatch):
    monkeypatch.setenv("TEC_COMPILE_WORKERS", "0")
    monkeypatch.setattr(client, "POOL", client.Pool())
    check(add(4.0), 4.0)
    assert not client.POOL.workers


@pytest.mark.parametrize("rows", [28, 31, 44, 47])
def test_loops_that_llvms_vectorizer_asserts_on(cold, rows):
    a = te.placeholder((7, rows), name="A")
    k, k2 = te.reduce_axis((0, rows), "k"), te.reduce_axis((0, rows), "k2")
    m = te.compute((7,), lambda i: te.max(a[i, k], axis=k), name="M")
    e = te.compute((7, rows), lambda i, j: te.exp(a[i, j] - m[i]), name="E")
    s = te.compute((7,), lambda i: te.sum(e[i, k2], axis=k2), name="S")
    o = te.compute((7, rows), lambda i, j: e[i, j] / s[i], name="O")
    f = tec.build(tec.create_schedule(o.op), [a, o], "llvm", name="softmax")
    x = np.random.default_rng(0).standard_normal((7, rows)).astype("float32")
    y = tec.nd.empty((7, rows), "float32")
    f(tec.nd.array(x), y)
    want = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y.numpy(), want / want.sum(1, keepdims=True), rtol=1e-6)


def run(code: str, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=400, check=False,
        env={**os.environ, "TEC_CACHE_DIR": "0", **env},
    )  # fmt: skip


SCRIPT = """
import os, sys, threading, time
import numpy as np, tec
from tec import te
from tec.llvmworker import client, jobs
def add(k, n=16):
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + float(k), name="B")
    return tec.build(tec.create_schedule(b.op), [a, b], "llvm", name="f")
def right(f, k, n=16):
    a, b = tec.nd.array(np.arange(n, dtype="float32")), tec.nd.empty((n,), "float32")
    f(a, b)
    return (b.numpy() == np.arange(n, dtype="float32") + np.float32(k)).all()
"""


def test_the_worker_ends_with_its_caller():
    code = SCRIPT + "add(1); print(client.POOL.workers[0].process.pid, flush=True); os._exit(0)"
    pid = int(run(code).stdout)
    for _ in range(200):
        try:
            with open(f"/proc/{pid}/stat") as f:
                if f.read().split()[2] == "Z":
                    return
        except OSError:
            return
        threading.Event().wait(0.05)
    raise AssertionError("the worker is still there")


def test_a_child_forked_while_others_compile_has_workers_of_its_own():
    done = run(
        SCRIPT
        + """
stop = False
def loop():
    k = 0
    while not stop:
        k += 1
        assert right(add(k), k)
ts = [threading.Thread(target=loop) for _ in range(3)]
[t.start() for t in ts]
bad = 0
for k in range(3):
    time.sleep(0.05)
    pid = os.fork()
    if pid == 0:
        ok = right(add(100 + k), 100 + k) and right(add(200 + k), 200 + k)
        os._exit(0 if ok else 1)
    for _ in range(2000):
        got, status = os.waitpid(pid, os.WNOHANG)
        if got:
            bad += status != 0
            break
        time.sleep(0.05)
    else:
        os.kill(pid, 9); os.waitpid(pid, 0); bad += 100
stop = True
[t.join() for t in ts]
print("bad", bad, right(add(7), 7))
"""
    )
    assert done.stdout.strip() == "bad 0 True", done.stderr[-2000:]


def test_no_file_of_the_users_runs_in_a_worker(tmp_path):
    """A script `nt.py` (or of any other name that the standard library tries to import) is the user's, not the worker's."""
    mark = tmp_path / "ran"
    for name in ("nt",):
        (tmp_path / f"{name}.py").write_text(f"import os\nopen({str(mark)!r}, 'a').write(f'{{os.getpid()}} ')\n")
    mark.write_text("")
    code = SCRIPT + "print(right(add(5), 5), os.getpid())"
    done = run(f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n" + textwrap.dedent(code))
    ok, pid = done.stdout.split()
    assert ok == "True" and set(mark.read_text().split()) <= {pid}, done.stderr[-2000:]


def test_builds_in_a_script_without_a_main_guard_and_with_closed_standard_streams():
    code = "import os\nos.close(0)\n" + SCRIPT + "print(right(add(5), 5))"
    done = run(code)
    assert done.stdout.strip() == "True", done.stderr[-2000:]


def test_ctrl_c_while_llvm_works_leaves_the_caller_whole():
    code = SCRIPT + textwrap.dedent(
        """
        import signal
        from tec.codegen import llvm_util
        right(add(1), 1)
        body = "\\n".join(f"  %x{k + 1} = call float @llvm.exp.f32(float %x{k})" for k in range(30000))
        slow = f"define float @slow(float %x0) {{\\n{body}\\n  ret float %x30000\\n}}\\ndeclare float @llvm.exp.f32(float)\\n"
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            llvm_util.compile_text(slow, llvm_util.LLVMMachine("amdgcn-amd-amdhsa", "gfx942"), "asm")
            print("not interrupted")
        except KeyboardInterrupt:
            print("interrupted", right(add(2), 2))
        """
    )
    done = run(code)
    assert done.stdout.strip() == "interrupted True", done.stderr[-2000:]


@pytest.mark.parametrize(
    ("asked", "hard", "set_to"),
    [(0, -1, None), (1 << 30, -1, 1 << 30), (1 << 30, 1 << 31, 1 << 30), (1 << 31, 1 << 30, None), (0, 1 << 30, None)],
)
def test_a_worker_lowers_its_memory_and_never_raises_it(
    monkeypatch: pytest.MonkeyPatch, asked: int, hard: int, set_to: int | None
) -> None:
    resource = pytest.importorskip("resource")
    told: dict[int, tuple[int, int]] = {}
    limit = resource.RLIM_INFINITY if hard < 0 else hard
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    monkeypatch.setattr(resource, "setrlimit", told.__setitem__)
    jobs._limits(asked)
    assert told.pop(resource.RLIMIT_CORE) == (0, 0)
    assert told == ({} if set_to is None else {resource.RLIMIT_AS: (set_to, limit)})


def test_quick_code_is_selected_without_combines_and_other_code_with_them() -> None:
    """The option is the process's: each job has its own, whatever the one before it had."""
    twice_inverted = """define <16 x i32> @f(<16 x i32> %a) {
  %n = xor <16 x i32> %a, splat (i32 -1)
  %m = xor <16 x i32> %n, splat (i32 -1)
  ret <16 x i32> %m
}"""

    def instructions(level: int) -> int:
        machine = (X86.triple, "x86-64-v3", "", level, "small")
        job = {"do": "compile", "text": twice_inverted, "machine": machine, "speed": 0, "passes": "plain"}
        return str(jobs.run({**job, "want": ("asm",)})["asm"]).count("xor")

    assert [instructions(level) for level in (1, 0, 1, 0)] == [0, 4, 0, 4]


def test_a_job_in_this_process_leaves_llvm_as_it_was():
    """Quick code is selected without LLVM's combiner, by an option of the process, which whoever else uses llvmlite here would have too: x * 8 is a shift."""
    ir = "define i64 @f(i64 %x) {\n  %y = mul i64 %x, 8\n  %z = mul i64 %y, 16\n  ret i64 %z\n}"
    machine = jobs.binding().Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(opt=2)

    def text() -> str:
        return str(machine.emit_assembly(jobs.binding().parse_assembly(ir)))

    before = text()
    job = {"do": "compile", "text": ir, "machine": ("x86_64-unknown-linux-gnu", "x86-64", "", 0, "small"), "speed": 0, "passes": "plain", "want": ["object"]}  # fmt: skip
    assert "error" not in jobs.run(job)
    assert text() == before
