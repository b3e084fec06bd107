"""Bad input on the command line: one clear line on stderr, the right exit code, never a traceback."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TEC = [sys.executable, "-m", "tec"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["frob"], 2, "no command 'frob'"),
        (["compil"], 2, "did you mean compile?"),
        (["run"], 2, "Missing argument 'MODEL'"),
        (["run", "nope.onnx"], 2, "nope.onnx: no such file"),
        (["run", "."], 2, "is a folder"),
        (["run", "{text}"], 2, "not a model by its name"),
        (["run", "{bad}"], 3, "is no ONNX model"),
        (["run", "{empty}"], 3, "empty.onnx has no graph"),
        (["run", "{bad_tec}"], 3, "is no tec package"),
        (["run", "{open}"], 2, "give them: --input-dim x 1 3 N M"),
        (["run", "{open}", "--inputs", "{npy}"], 2, "shape (2, 2)"),
        (["run", "{tiny}", "--frob"], 2, "--frob"),
        (["run", "{tiny}", "--target", "foo"], 2, "unknown target 'foo'"),
        (["run", "{tiny}", "--target", "mi300y"], 2, "did you mean mi300x"),
        (["run", "{tiny}", "--target", "gfx9421"], 2, "did you mean gfx942"),
        (["run", "{tiny}", "--target", "rocm -mcpu=gfx1"], 2, "unknown chip 'gfx1'"),
        (["run", "{tiny}", "--target", "rocm --frob"], 2, "unknown option"),
        (["run", "{tiny}", "--input-dim", "x", "1", "4", "8", "8"], 2, "not (1, 4, 8, 8)"),
        (["run", "{tiny}", "--input-dim", "x", "1", "3"], 2, "4 dimensions"),
        (["run", "{tiny}", "--input-dim", "nope", "1", "3"], 2, "no input 'nope'"),
        (["run", "{tiny}", "--input-dim", "batch", "-1"], 2, "a name and its sizes"),
        (["run", "{tiny}", "--input-dim", "batch", "1", "--inputs", "nope.npy"], 2, "nope.npy: no such file"),
        (["run", "{tiny}", "--input-dim", "batch", "1", "--inputs", "{text}"], 2, "expected .npy or .npz"),
        (["run", "{tiny}", "--input-dim", "batch", "1", "--inputs", "{bad_npy}"], 2, "no array can be read"),
        (["run", "{tiny}", "--input-dim", "batch", "1", "--inputs", "z={npy}"], 2, "no input 'z'"),
        (["run", "{tiny}", "--input-dim", "batch", "1", "--inputs", "x={npy}"], 2, "shape (2, 2)"),
        (["run", "{tiny}", "--input-dim", "batch", "1", "--fill", "sand"], 2, "random, zeros, ones"),
        (["run", "{tiny}", "--input-dim", "batch", "1", "--device", "foo"], 2, "unknown device 'foo'"),
        (["run", "{tiny}", "--input-dim", "batch", "1", "--target", "llvm", "--device", "emu"], 2, "is no device for it"),
        (["run", "{tiny}", "--input-dim", "batch", "1", "--seed", "-1"], 2, "-1 is not in the range"),
        (["run", "{tiny}", "--freeze", "x"], 2, "NAME=VALUE is wanted"),
        (["run", "{tiny}", "--freeze", "q=1"], 2, "no input 'q'"),
        (["run", "{tiny}", "--freeze", "x=1,2"], 2, "2 numbers are given"),
        (["run", "{tiny}", "--freeze", "x=a"], 2, "a number, numbers with commas"),
        (["compile", "{tiny}", "-o", "/no/such/folder/x.tec"], 2, "no folder /no/such/folder"),
        (["compile", "{tiny}", "-o", "x.txt"], 2, "ends in .tec"),
        (["compile", "{tiny}", "-o", "x.tec", "--linker", "cc"], 2, "--linker is for libraries"),
        (["compile", "{tiny}", "-o", "x.tec", "--weights", "beside"], 2, "--weights is for libraries"),
        (["header", "nope.tec"], 2, "nope.tec: no such file"),
        (["header", "nope.tecmod"], 2, "nope.tecmod: no such file"),
        (["header", "{text}"], 2, "not a model by its name"),
        (["header", "{bad_tec}"], 3, "is no tec package"),
        (["serve", "nope.tec"], 2, "nope.tec: no such file"),
        (["serve", "{text}"], 2, "not a model by its name"),
        (["serve", "{tiny}", "--queue", "0"], 2, "--queue"),
        (["show", "{tiny}", "frob"], 2, "cannot be shown"),
        (["serve", "nope.gguf"], 2, "nope.gguf: no such file"),
        (["serve", "nope.gguf", "--port", "70000"], 2, "--port"),
        (["serve", "nope.gguf", "--slots", "0"], 2, "--slots"),
        (["show", "{tiny}", "asm", "--kernel", "zzz", "--input-dim", "batch", "1"], 2, "no kernel's name contains 'zzz'"),
        (["show", "{tiny}", "--html", "/no/such/folder/r.html"], 2, "no folder /no/such/folder"),
        (["show", "{tiny}", "--html", "report.txt"], 2, "ends in .html"),
        (["bench", "{tiny}", "--runs", "0"], 2, "--runs"),
        (["bench", "{tiny}", "--trace", "/no/such/folder/t.json"], 2, "no folder /no/such/folder"),
        (["run", "{tiny}", "--save-outputs", "/no/such/folder/o.npz"], 2, "no folder /no/such/folder"),
        (["verify", "{tiny}", "--rtol", "-1"], 2, "--rtol"),
        (["generate", "{tiny}"], 2, "there is no prompt"),
        (["generate", "nope", "--prompt", "a"], 2, "nope: no such file or folder"),
        (["generate", "{tiny}", "--prompt", ""], 2, "the prompt is empty"),
        (["generate", "{tiny}", "--prompt", "a", "--temperature", "-1"], 2, "temperature is -1"),
        (["generate", "{tiny}", "--prompt", "a", "--device", "foo"], 2, "unknown device 'foo'"),
        (["generate", "{tiny}", "--prompt", "a", "--schema", "{tiny}"], 2, "are for GGUF files"),
        (["generate", "{tiny}", "--prompt", "a", "--adapter", "x"], 2, "are for GGUF files"),
        (["generate", "{tiny}", "--prompt", "a"], 3, "no model that writes"),
        (["emu", "nope.hsaco"], 2, "'nope.hsaco' does not exist"),
        (["emu", "{text}"], 5, "no AMDGPU code object"),
        (["emu", "run", "{text}"], 5, "no AMDGPU code object"),
        (["emu", "run"], 2, "Missing argument 'FILE'"),
        (["run", "{tiny}", "--shape", "x=2"], 2, "'--shape': --input-dim"),
        (["generate", "m.gguf", "--num_beams", "2"], 2, "'--num_beams': --beams"),
        (["generate", "m.gguf", "--num_return_sequences", "2"], 2, "'--num_return_sequences': --samples"),
        (["ops", "--shape", "2"], 2, "No such option '--shape'"),
        (["cache", "frob"], 2, "'frob' is not one of"),
    ],
)  # fmt: skip
def test_mistake(words, code, said, tec_cli, tiny, open_sizes, tmp_path, monkeypatch):
    import numpy as np

    monkeypatch.chdir(tmp_path)
    names = {
        "tiny": tiny,
        "open": open_sizes,
        "text": tmp_path / "a.txt",
        "bad": tmp_path / "b.onnx",
        "empty": tmp_path / "empty.onnx",
        "bad_tec": tmp_path / "b.tec",
    }
    names |= {"bad_npy": tmp_path / "b.npy", "npy": tmp_path / "c.npy"}
    names["empty"].touch()
    for name in ("text", "bad", "bad_tec", "bad_npy"):
        names[name].write_text("no model at all\n")
    np.save(names["npy"], np.zeros((2, 2), np.float32))
    got = tec_cli(*[w.format(**names) for w in words])
    assert got.exit_code == code, got.output
    assert got.stdout == ""
    assert got.stderr.startswith("tec: ") and said in got.stderr and got.stderr.count("\n") == 1, got.stderr
    assert "Traceback" not in got.stderr


def test_a_chip_that_does_not_fit(tec_cli, package):
    got = tec_cli("run", package, "--device", "emu:gfx90a")
    assert got.exit_code == 5 and "built for gfx942" in got.stderr


def test_errors_of_several_lines_are_told_in_one():
    from tec.errors import DeviceError

    error = DeviceError("no GPU was found:\n  looked for a\n  looked for b", hint="build for the CPU")
    assert error.summary == "no GPU was found: looked for a; looked for b (build for the CPU)"
    assert len(DeviceError("x\n" * 1000).summary) <= 500


def test_no_gpu_says_what_would_work(tec_cli, package, monkeypatch):
    monkeypatch.setenv("TEC_HIP_LIBRARY", "/no/such/libamdhip64.so")
    got = tec_cli("run", package, "--device", "rocm:7")
    assert got.exit_code == 5 and "--device emu" in got.stderr
    assert "; " in got.stderr and "\\n" not in got.stderr and got.stderr.count("\n") == 1  # several lines in one


def test_a_fault_inside_is_one_line(tec_cli, monkeypatch):
    from tec.cli import cache

    monkeypatch.setattr(cache, "folders", lambda: 1 / 0)
    got = tec_cli("cache")
    assert got.exit_code == 70 and "ZeroDivisionError" in got.stderr and got.stderr.count("\n") == 1


def test_broken_pipe():
    """`tec ops | head -0`: the reader goes away before the output comes."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*TEC, "ops"], stdout=write, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    os.close(write)
    assert done.returncode == 141 and done.stderr == ""


def test_broken_pipe_before_the_end(package):
    """A command that prints and flushes while it runs."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*TEC, "show", str(package), "resources", "--json"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    os.close(write)
    assert done.returncode == 141 and done.stderr == ""


@pytest.mark.skipif(os.name == "nt", reason="a shell")
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&- <&-"])
def test_closed_streams(closed):
    done = subprocess.run(
        f"{shlex.join([*TEC, 'ops'])} {closed}", shell=True, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0 and done.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_package_that_finds_no_room(tec_cli, tiny):
    got = tec_cli("compile", str(tiny), "--output", "/dev/full")
    assert got.exit_code == 2 and "cannot write /dev/full: No space left" in got.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_full_disk():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*TEC, "completion", "bash"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False
        )
    assert done.returncode == 2 and done.stderr.startswith("tec: No space left") and "Traceback" not in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c(tiny):
    """Interrupted in the middle of work (a reader that waits on a fifo stands for it)."""
    code = (
        "import sys, time, tec.cli.common as c\n"
        "c.check_model = lambda p: (print('ready', flush=True), time.sleep(60))\n"
        "from tec.cli.app import app\n"
        f"app.main(['run', {str(tiny)!r}])\n"
    )
    p = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert p.stdout is not None and p.stdout.readline() == "ready\n"
    time.sleep(0.1)
    p.send_signal(signal.SIGINT)
    _, said = p.communicate(timeout=60)
    assert p.returncode == 130 and said.strip() == "tec: interrupted"


def test_without_click_one_line():
    code = "import sys; sys.modules['click'] = None; import tec.cli; tec.cli.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and 'pip install "tec-compiler[cli]"' in done.stderr and "Traceback" not in done.stderr


def test_help_is_quick_and_loads_no_compiler():
    code = (
        "import sys, tec.cli.app as a\n"
        "try: a.app.main(['--help'])\n"
        "except SystemExit: pass\n"
        "bad = [m for m in ('llvmlite', 'numpy', 'onnx', 'rich', 'networkx') if m in sys.modules]\n"
        "sys.exit(f'loaded {bad}' if bad else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("suffix, said", [(".pt2", "tec.compile(path) takes it"), (".pth", "with its module takes it")])
def test_files_of_torch(suffix, said, tec_cli, tmp_path):
    path = tmp_path / f"model{suffix}"
    path.write_bytes(b"PK")
    got = tec_cli("run", path)
    assert got.exit_code == 2 and "is PyTorch's" in got.output and said in got.output


def test_a_chat_needs_a_template(tec_cli, tmp_path):
    from tests.unit.tec_gguf import files

    path = files.write(tmp_path / "plain.gguf", "llama", files.LLAMA, files.llama_tensors())
    got = tec_cli("chat", path, "--message", "hi")
    assert got.exit_code == 3, got.output
    said = got.stderr.splitlines()[-1]
    assert "its files have no chat template (tec generate" in said and ".py:" not in said
