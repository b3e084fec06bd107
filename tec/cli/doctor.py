"""`tec doctor`: what is installed, which devices are there, and whether compiling and running work here."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ..errors import install
from . import common
from .errors import NO, Refused

_GOOD, _BAD, _NOTE = "ok", "fault", "-"


@click.command(
    epilog="""\b
Examples:
  tec doctor
  tec doctor --json
  tec doctor --report fault.json -- compile model.onnx --target "rocm -mcpu=gfx942"
  tec doctor --report fault.json -- python my_program.py
  tec doctor --amd --out report.json --html report.html
  tec doctor --amd --only matrix,kernels --against report.json

\b
Exit code 1 where something that tec needs is missing or does not work.""",
)
@common.json_option
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a report of a fault there: versions, what COMMAND printed with its traceback, its models' operators without weights.",
)
@click.option("--amd", is_flag=True, help="Check this machine's AMD GPU against the software GPU and the time model: ten minutes.")  # fmt: skip
@click.option("--device", "device", default=0, metavar="N", help="With --amd: the GPU's number.")
@click.option("--only", default="", metavar="NAMES", help="With --amd: of abi, streams, matrix, constants, kernels, with commas between.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.json", help="With --amd: write the report there.")  # fmt: skip
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.html", help="With --amd: write it as a page.")  # fmt: skip
@click.option("--against", type=click.Path(path_type=Path, dir_okay=False, exists=True), metavar="FILE.json", help="With --amd: judge by the machine's data as an earlier report corrects them.")  # fmt: skip
@click.argument("run", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
def command(
    as_json: bool, report: Path | None, amd: bool, device: int, only: str, out: Path | None, html: Path | None, against: Path | None, run: tuple[str, ...],
) -> int:  # fmt: skip
    """What is installed, which devices are there, and whether compiling works."""
    if amd:
        if run or report is not None:
            raise Refused("--amd stands alone", "tec doctor --amd --out report.json")
        return _amd(as_json, device, only, out, html, against)
    if only or out is not None or html is not None or against is not None:
        raise Refused("--only, --out, --html and --against are for --amd", "tec doctor --amd --out report.json")
    if run and report is None:
        raise Refused(f"{run[0]}: a command is run for a report", "tec doctor --report FILE -- COMMAND...")
    rows = _checked()
    good = all(state != _BAD for _, state, _ in rows)
    as_data = [{"name": n, "state": s, "text": t} for n, s, t in rows]
    if report is not None:
        from .app import COMMANDS
        from .fault_report import write

        common.share_stdout(as_json, report)
        facts = write(report, as_data, run, frozenset(COMMANDS))
        ended = f", the command ended with exit code {facts['exit_code']}" if run else ""
        common.echo(f"{common.wrote(report)}{ended}; read it before you send it")
    elif as_json:
        common.print_json({"ok": good, "checks": as_data})
    else:
        _show(rows)
        common.echo("everything that tec needs is there" if good else "something is missing: see the rows marked FAULT")
    return 0 if good else NO


def _checked() -> list[tuple[str, str, str]]:
    """(name, state, text) of every check."""
    rows = []
    for name, check in CHECKS:
        try:
            state, text = check()
        except Exception as error:  # a check that fails is what this command is for
            state, text = _BAD, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        rows.append((name, state, text))
    return rows


def _show(rows: list[tuple[str, str, str]]) -> None:
    """The checks as a table; as plain lines where its package is missing, which is one of the checks."""
    try:
        screen = common.console()
        t = common.table("", "", "", "")
        t.show_header = False
        marks = {_GOOD: ("ok", "green"), _BAD: ("FAULT", "red"), _NOTE: ("-", "dim")}
        for name, state, text in rows:
            t.add_row(name, common.coloured(*marks[state]), text)
        screen.print(t)
    except ImportError:
        for name, state, text in rows:
            common.echo(f"{name:22} {state:6} {text}")


def _amd(as_json: bool, number: int, only: str, report: Path | None, html: Path | None, against: Path | None) -> int:
    """`tec doctor --amd`: each finding as it comes, a count of them at the end, the files."""
    import tec
    from tec import bringup

    sections = tuple(w.strip() for w in only.split(",") if w.strip()) or bringup.SECTIONS
    if unknown := [s for s in sections if s not in bringup.SECTIONS]:
        raise Refused(f"--only {unknown[0]}: no such section", f"of {', '.join(bringup.SECTIONS)}")
    common.check_folder(report)
    common.check_folder(html)
    common.share_stdout(as_json, report, html)
    dev = tec.rocm(number)
    if dev.is_emulated or dev.driver is None:
        raise Refused("--amd compares an AMD GPU with the software GPU, and TEC_EMULATE puts that in its place", "unset TEC_EMULATE")  # fmt: skip
    if against is not None:
        for line in bringup.use(bringup.read_report(against)):
            common.echo(f"by {against}: {line}", err=as_json)

    def tell(f: Any) -> None:
        numbers = f"{f.measured:.5g} {f.unit}, {f.expected:.5g} expected" if f.measured is not None and f.expected is not None else ""  # fmt: skip
        words = "; ".join(w for w in (numbers, f.text) if w)
        common.echo(f"{f.state:8} {f.section}: {f.name}{': ' * bool(words)}{words}", err=as_json)

    found = bringup.check(dev.driver, number, sections, tell=tell)
    if report is not None:
        common.write_file(report, found.to_json())
        common.echo(common.wrote(report), err=as_json)
    if html is not None:
        common.write_file(html, bringup.page(found))
        common.echo(common.wrote(html), err=as_json)
    if as_json:
        common.echo(found.to_json())
    counts = found.counts()
    common.echo(", ".join(f"{counts[s]} {s}" for s in ("agrees", "differs", "failed") if counts[s]), err=as_json)
    return 0 if found.good else NO


def _python() -> tuple[str, str]:
    good = sys.version_info >= (3, 11)
    return _GOOD if good else _BAD, f"{platform.python_version()} ({sys.executable})" + (
        "" if good else ", 3.11 is needed"
    )


def _tec() -> tuple[str, str]:
    import tec

    return _GOOD, f"{tec.__version__} ({os.path.dirname(os.path.abspath(tec.__file__))})"


def _packages() -> tuple[str, str]:
    from importlib.metadata import version

    return _GOOD, ", ".join(f"{p} {version(p)}" for p in ("numpy", "llvmlite", "networkx"))


def _llvm() -> tuple[str, str]:
    from ..codegen import llvm_util

    have = []
    for name, triple in (("AMDGPU", "amdgcn-amd-amdhsa"), ("NVPTX", "nvptx64-nvidia-cuda")):
        cpu = {"AMDGPU": "gfx942", "NVPTX": "sm_90"}[name]
        try:
            llvm_util.data_layout(llvm_util.LLVMMachine(triple, cpu, ""))
            have.append(name)
        except Exception:
            continue
    missing = {"AMDGPU", "NVPTX"} - set(have)
    import llvmlite.binding

    version = ".".join(map(str, llvmlite.binding.llvm_version_info))
    return (
        _BAD if missing else _GOOD,
        f"LLVM {version}, targets: host, {', '.join(have)}" + (f"; without {', '.join(missing)}" if missing else ""),
    )


def _cpu() -> tuple[str, str]:
    import tec
    from tec.target import Target

    dev = tec.cpu()
    return _GOOD, f"{dev.name}, {dev.compute_units} cores, vectors of {Target('llvm').vector_bytes} bytes"


def _gpu(kind: str) -> Callable[[], tuple[str, str]]:
    def check() -> tuple[str, str]:
        import tec

        found: list[Any] = []
        try:
            while len(found) < 64:
                dev = tec.device(f"{kind}:{len(found)}")
                found.append(dev)
                if dev.is_emulated:
                    break
        except tec.DeviceError as error:
            if not found:
                return _NOTE, "none: " + error.message.splitlines()[0]
        return _GOOD, "; ".join(f"{d}: {d.name}, {d.arch}, {common.size(d.total_memory_bytes)}" for d in found)

    return check


def _linker() -> tuple[str, str]:
    from ..codegen.objects import linking

    asked = os.environ.get("TEC_LLD", "")
    command = None if asked == "own" else linking.find_lld(asked, anywhere=False)
    if command is None:
        return _GOOD, "tec's own ELF writer" + ("" if asked == "own" else " (no ld.lld of ROCm's)")
    return _GOOD, " ".join(command)


def _cache() -> tuple[str, str]:
    from .cache import facts_of, folders

    parts = folders()
    if not parts:
        return _NOTE, "off"
    for path in parts.values():
        there = next(p for p in (path, *path.parents) if p.exists())
        if not os.access(there, os.W_OK):
            return _NOTE, f"{path} cannot be written: compiling works, and keeps nothing"
    facts = {name: facts_of(name, path) for name, path in parts.items()}
    for f in facts.values():
        if f["not_used"]:
            return _NOTE, f"{f['path']} is not used: {f['not_used']}"
    return _GOOD, "; ".join(f"{f['path']} ({common.size(float(f['bytes']))})" for f in facts.values())


def _onnx() -> tuple[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    out = []
    for p in ("onnx", "onnxruntime"):
        try:
            out.append(f"{p} {version(p)}")
        except PackageNotFoundError:
            out.append(f"{p} is not installed")
    try:
        front = common.frontend()
        known = front.operators()
        out.append(f"{sum(how != 'no' for how in known.values())} of {len(known)} operators")
        return _GOOD, ", ".join(out)
    except (ImportError, click.ClickException):
        return _NOTE, ", ".join(out) + f": {install('onnx')} for ONNX models"


def _settings() -> tuple[str, str]:
    found = [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith("TEC_")]
    found += [f"{k}={os.environ[k]}" for k in ("ROCM_PATH", "HIP_PATH", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES") if k in os.environ]  # fmt: skip
    return _NOTE, ", ".join(found) or "none"


def _try(target: str, device: str) -> Callable[[], tuple[str, str]]:
    """Compile a small kernel and hold its result against NumPy."""

    def check() -> tuple[str, str]:
        import time

        import numpy as np

        import tec

        start = time.perf_counter()
        n = 1000
        a, b = tec.placeholder((n,), name="A"), tec.placeholder((n,), name="B")
        c = tec.compute((n,), lambda i: tec.exp(a[i]) * b[i], name="C")
        s = tec.create_schedule(c.op)
        dev = common.find_device(device, "cpu" if target == "llvm" else "rocm", "gfx942")
        if target != "llvm":
            outer, inner = s[c].split(c.op.axis[0], factor=64)
            s[c].bind(outer, tec.thread_axis("blockIdx.x"))
            s[c].bind(inner, tec.thread_axis("threadIdx.x"))
        f = tec.build(s, [a, b, c], target, name="doctor")
        x, y = np.linspace(-2, 2, n, dtype="float32"), np.arange(n, dtype="float32")
        out = tec.nd.zeros((n,), "float32", dev)
        f(tec.nd.array(x, dev), tec.nd.array(y, dev), out)
        if not np.allclose(out.numpy(), np.exp(x) * y, rtol=1e-5):
            return _BAD, "the result is wrong"
        return _GOOD, f"compiled, ran and was right in {common.duration(time.perf_counter() - start)}"

    return check


CHECKS: tuple[tuple[str, Callable[[], tuple[str, str]]], ...] = (
    ("python", _python),
    ("tec", _tec),
    ("packages", _packages),
    ("LLVM", _llvm),
    ("CPU", _cpu),
    ("AMD GPUs", _gpu("rocm")),
    ("NVIDIA GPUs", _gpu("cuda")),
    ("linker", _linker),
    ("cache", _cache),
    ("ONNX", _onnx),
    ("settings", _settings),
    ("a kernel on the CPU", _try("llvm", "cpu")),
    ("a kernel on emu:gfx942", _try("rocm -mcpu=gfx942", "emu:gfx942")),
)
