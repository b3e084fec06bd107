"""Files that a user asked for: what is whole replaces what was there; links stay; pipes, devices and stdout are written into."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from runtime_fakes import VADD_PROGRAM, VADD_SIGNATURE

import tec
from tec.errors import ArgumentError, PackageError, TecError
from tec.runtime import Module
from tec.runtime.devices.profiling import Profile
from tec.runtime.modules.package import read_package, write_package
from tec.runtime.outputs import is_stdout, is_stream, stdout_for_outputs, write_output
from tests.thinned import thinned
from tests.unit.pipes import through_pipe


def save_package(path):
    write_package(path, "network", {"a": 1}, {"code": b"\0\1" * 100}, {"w": np.arange(12.0)})


def save_trace(path):
    Profile(tec.cpu()).save_trace(path)


def save_emulated_trace(path):
    from tec.emulator.profile import EmulatorProfile

    EmulatorProfile("gfx942").save_chrome_trace(path)


def save_report(path):
    from tec.tuning.report import TuneReport

    TuneReport("net", "llvm", "this CPU", "measured").save(path)


WRITERS = {
    "package": save_package,
    "trace": save_trace,
    "emulated trace": save_emulated_trace,
    "tuning report": save_report,
}


@pytest.fixture(params=WRITERS)
def write(request):
    return WRITERS[request.param]


def test_a_new_file_and_an_old_one(write, tmp_path):
    path = tmp_path / "x.out"
    write(path)
    first = path.read_bytes()
    assert first and os.listdir(tmp_path) == ["x.out"]
    path.write_bytes(b"old" * 10_000)
    write(path)
    assert len(path.read_bytes()) == len(first) and os.listdir(tmp_path) == ["x.out"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755, 0o666])
def test_the_mode_stays(write, tmp_path, mode):
    path = tmp_path / "x.out"
    path.touch()
    path.chmod(mode)
    write(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode and path.stat().st_size


def test_a_new_file_has_the_mode_that_open_gives(tmp_path):
    old = os.umask(0o027)
    try:
        write_output(tmp_path / "x", b"x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("is_there", [True, False])
def test_links_are_followed(write, tmp_path, steps, is_there):
    (tmp_path / "elsewhere").mkdir()
    real = tmp_path / "elsewhere" / "real.out"
    if is_there:
        real.write_text("old")
    at = real
    for k in range(steps):  # relative ones: they are read from where they lie
        link = tmp_path / f"link{k}"
        link.symlink_to(os.path.relpath(at, tmp_path))
        at = link
    write(at)
    assert at.is_symlink() and not real.is_symlink() and real.stat().st_size > 3
    assert os.listdir(tmp_path / "elsewhere") == ["real.out"]


def test_links_in_a_circle(write, tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(TecError, match=r"cannot write .*a: "):
        write(tmp_path / "a")
    assert (tmp_path / "a").is_symlink()


def test_a_pipe_that_is_read(write, tmp_path):
    got = through_pipe(tmp_path / "pipe", lambda: write(tmp_path / "pipe"))[1]
    write(tmp_path / "x.out")
    assert len(got) == (tmp_path / "x.out").stat().st_size


def test_a_reader_that_waits_is_a_reader(tmp_path):
    """As `cat pipe &` in a shell: it waits in `open` for the one that writes."""
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE) as cat:
        for _ in range(3000):
            try:
                write_output(tmp_path / "pipe", b"content")
                break
            except ArgumentError:
                time.sleep(0.01)  # it has not come so far
        assert cat.stdout.read() == b"content"


def test_a_pipe_that_nobody_reads(write, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(TecError, match="nobody reads the pipe"):
            write(tmp_path / name)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode) and sorted(os.listdir(tmp_path)) == ["link", "pipe"]


def test_a_package_through_a_pipe_is_the_package(tmp_path):
    (tmp_path / "x.tec").write_bytes(through_pipe(tmp_path / "pipe", lambda: save_package(tmp_path / "pipe"))[1])
    with read_package(tmp_path / "x.tec", "network") as p:
        assert p.meta == {"a": 1} and p.blob("code") == b"\0\1" * 100
        np.testing.assert_array_equal(p.array("w"), np.arange(12.0))


def test_a_reader_that_goes_away(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)

    def content(f):
        f.write(bytes(1 << 20))
        os.close(reader)

    with pytest.raises(ArgumentError, match="Broken pipe"):
        write_output(tmp_path / "pipe", content)


def test_devices_stay(write, tmp_path):
    before = os.stat("/dev/null")
    write("/dev/null")
    (tmp_path / "null").symlink_to("/dev/null")
    write(tmp_path / "null")
    assert os.path.samestat(before, os.stat("/dev/null")) and stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert (tmp_path / "null").is_symlink()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_device(write):
    with pytest.raises(TecError, match="No space left"):
        write("/dev/full")


@pytest.mark.parametrize(
    "fault", [OSError(28, "No space left on device"), RuntimeError("in the midst"), KeyboardInterrupt()]
)
def test_what_fails_halfway_leaves_the_old_file(tmp_path, fault):
    path = tmp_path / "x"
    path.write_text("old")

    def content(f):
        f.write(b"new")
        raise fault

    with pytest.raises(TecError if isinstance(fault, OSError) else type(fault)):
        write_output(path, content)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize(
    "path", ["", "a\0b", "\ud800", "no/such/folder/x", ".", "x/", "n" * 300, "/proc/nothing/x", 3, None]
)
def test_names_that_no_file_can_have(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError, match="cannot write"):
        write_output(path, b"x")
    with pytest.raises((ArgumentError, PackageError)):
        save_package(path)
    assert os.listdir(tmp_path) == []


def test_a_file_that_may_not_be_written(tmp_path, monkeypatch):
    path = tmp_path / "x"
    path.write_text("old")
    monkeypatch.setattr(os, "access", lambda p, mode: False)  # who is root may write everything
    with pytest.raises(ArgumentError, match="Permission denied"):
        write_output(path, b"new")
    assert path.read_text() == "old"


@pytest.mark.parametrize("call", ["open", "replace"])
def test_a_folder_that_takes_no_file(tmp_path, monkeypatch, call):
    """A file bound into a container cannot be renamed over, and a folder may be closed: then the file itself is written."""
    path = tmp_path / "x"
    path.write_text("the old one, which is longer")
    real = getattr(os, call)

    def refuse(*args, **kw):
        if any(".part" in str(a) for a in args[:2]):
            raise OSError(16 if call == "replace" else 13, "no")
        return real(*args, **kw)

    inode = path.stat().st_ino
    monkeypatch.setattr(os, call, refuse)
    write_output(path, b"new")
    assert path.read_bytes() == b"new" and path.stat().st_ino == inode
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["x"]


def test_a_socket(tmp_path):
    import socket

    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(tmp_path / "s"))
        with pytest.raises(ArgumentError, match="socket"):
            write_output(tmp_path / "s", b"x")


# ---- standard output


@thinned(
    1, ("name", ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "{link}"]), ("to", ["pipe", "file", "append"])
)
def test_stdout(name, to, tmp_path):
    """What was printed before and after stands around it, also where stdout is a regular file, which is not replaced."""
    (tmp_path / "link").symlink_to("/dev/stdout")
    code = "import sys; from tec.runtime.outputs import write_output as w; print('before'); w(sys.argv[1], b'content\\n'); print('after')"
    words = [sys.executable, "-c", code, name.format(link=tmp_path / "link")]
    want = "before\ncontent\nafter\n"
    if to == "pipe":
        assert subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout == want
        return
    file = tmp_path / "out"
    file.write_text("there\n")
    inode = file.stat().st_ino
    with open(file, "a" if to == "append" else "w") as f:
        subprocess.run(words, stdout=f, check=True, timeout=60)
    assert file.read_text() == ("there\n" if to == "append" else "") + want and file.stat().st_ino == inode


def test_stdout_of_a_notebook_takes_text(capsys, monkeypatch):
    write_output("-", "text\n")
    write_output("-", b"bytes\n")
    assert capsys.readouterr().out == "text\nbytes\n"

    class Cell:
        def write(self, text):
            return len(text)

        def flush(self):
            return None

    monkeypatch.setattr(sys, "stdout", Cell())
    write_output("-", "text")
    with pytest.raises(ArgumentError, match="text alone"):
        write_output("-", b"bytes")


def test_bytes_are_nothing_for_a_terminal():
    import pty

    leader, follower = pty.openpty()
    try:
        with pytest.raises(ArgumentError, match="terminal"):
            write_output(os.ttyname(follower), b"\0\1")
        write_output(os.ttyname(follower), "text\n")
        assert os.read(leader, 100) == b"text\r\n"
    finally:
        os.close(leader)
        os.close(follower)


def test_what_is_printed_beside_an_output(capsys):
    with stdout_for_outputs():
        print("a message")
        write_output("-", "the output\n")
    got = capsys.readouterr()
    assert got.out == "the output\n" and got.err == "a message\n"


def test_what_is_a_stream(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    assert all(is_stream(p) for p in ("-", "/dev/null", "/dev/stdout", "/dev/fd/1", tmp_path / "pipe"))
    assert not any(is_stream(p) for p in (tmp_path / "file", tmp_path, tmp_path / "none", "a\0b", ""))
    assert (
        is_stdout("-") and is_stdout("/dev/stdout") and not is_stdout("/dev/null") and not is_stdout(tmp_path / "file")
    )


# ---- names


@pytest.mark.parametrize("name", ["f.so", "F.SO", "libf.so.1.2", "f.dylib", "f.dll", "f.o", "f.a", "f.tar", "f.cubin"])
def test_a_package_is_no_library(name, tmp_path):
    module = Module("rocm", "vadd", VADD_SIGNATURE, program=VADD_PROGRAM, image=b"code")
    for call in (module.export_library, module.save):
        native = name.endswith((".so", ".a", ".o"))
        with pytest.raises(tec.TecError, match="no code of kernel 'vadd'" if native else "would be a tec package") as e:
            call(tmp_path / name)
        assert (native or ".tecmod" in str(e.value)) and os.listdir(tmp_path) == []
    module.save(tmp_path / "f.hsaco")
    assert (tmp_path / "f.hsaco").read_bytes() == b"code"
    with pytest.raises(tec.TecError, match="no source of kind 'ptx'"):
        module.save(tmp_path / "f.ptx")
    for call in (module.save, module.export_library):
        with pytest.raises(tec.TecError, match="a path is wanted, not int"):
            call(5)
    for good in ("f.tecmod", "so", "f.solved", "f"):
        module.export_library(tmp_path / good)
        assert tec.load_module(tmp_path / good).entry_name == "vadd"


def test_a_trace_is_json(tmp_path):
    save_trace(tmp_path / "t.json")
    assert json.loads((tmp_path / "t.json").read_text())["displayTimeUnit"] == "ns"
