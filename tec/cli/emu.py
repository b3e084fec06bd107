"""`tec emu`: kernels of any compiler on the AMD GPU in software: what a code object holds, and one kernel run under checks."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..emulator.checks.names import HELP
from . import common
from .errors import Refused

if TYPE_CHECKING:
    import numpy as np

    from ..runtime.objects.bundle import Entry
    from ..runtime.objects.codeobject import KernelInfo

_EXAMPLES = """\b
Examples:
  tec emu kernel.hsaco
  tec emu run kernel.hsaco --kernel add --grid 4 --block 256 --arg f32:1024 --arg f32:1024 --arg f32:1024=zeros --arg i32=1024 --check all
  tec emu --chip gfx942 --check race,init -- python program.py

\b
An argument is an array (f32:64x64, f32:64x64=zeros, or a file x.npy), a value (i32=7, f32=0.5), the bytes of dynamic LDS (lds=1024), or none.
The assembly is read from --asm, or from kernel.s or kernel.amdgcn beside kernel.hsaco."""
_DTYPES = {
    "f16": "float16", "f32": "float32", "f64": "float64", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
}  # fmt: skip
_ARRAY = re.compile(r"(\w+):(\d+(?:x\d+)*)(?:=(\S+))?$")
_VALUE = re.compile(r"(\w+)=(\S+)$")


class _Emu(click.Group):
    """`tec emu FILE` is `tec emu list FILE`, `tec emu [OPTIONS] -- COMMAND` is `tec emu exec [OPTIONS] -- COMMAND`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args and not any(a in self.commands for a in args[: args.index("--")]):
            args = ["exec", *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["list", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=_Emu, epilog=_EXAMPLES, subcommand_metavar="FILE | run FILE [OPTIONS] | [OPTIONS] -- COMMAND")
def command() -> None:
    """Kernels of any compiler on the AMD GPU in software."""


_file = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
_check = click.option(
    "--check",
    default="bounds",
    show_default=True,
    metavar="NAMES",
    help=f"With commas between: {HELP}.",
)


@command.command("list", epilog=_EXAMPLES)
@_file
@common.json_option
def show(file: Path, as_json: bool) -> None:
    """The kernels of a code object, bundle or fat binary: registers, LDS, occupancy, arguments."""
    from ..runtime.devices.drivers import link_object
    from ..runtime.objects.codeobject import read_code_object

    found: list[dict[str, Any]] = []
    for e in _entries(file):
        code = read_code_object(link_object(e.image) if e.relocatable else e.image)
        found.append({"target": e.target, "kernels": [_facts(e.chip, k) for k in code.kernels.values()]})
    if as_json:
        common.print_json({"file": str(file), "code_objects": found})
        return
    for entry in found:
        common.echo(f"{entry['target']}: {len(entry['kernels'])} kernel{'s' * (len(entry['kernels']) != 1)}")
        for k in entry["kernels"]:
            _print_kernel(k)


def _entries(file: Path) -> list[Entry]:
    from ..runtime.objects.bundle import code_objects

    try:
        return code_objects(file.read_bytes())
    except OSError as error:
        raise Refused(f"{file}: {error.strerror or error}") from None


def _facts(chip: str, k: KernelInfo) -> dict[str, Any]:
    from ..target import CHIPS

    block = k.required_workgroup_size or (k.max_workgroup_size, 1, 1)
    waves = -(-block[0] * block[1] * block[2] // k.wavefront_size)
    occupancy: tuple[int, str] | None = None
    if chip in CHIPS:
        occupancy = CHIPS[chip].occupancy(k.vgprs + k.agprs, k.lds_bytes, waves, k.wavefront_size)
    return {
        "name": k.name, "vgprs": k.vgprs, "agprs": k.agprs, "sgprs": k.sgprs, "vgpr_spills": k.vgpr_spills, "sgpr_spills": k.sgpr_spills,
        "lds_bytes": k.lds_bytes, "scratch_bytes": k.private_bytes, "wavefront_size": k.wavefront_size,
        "max_workgroup_size": k.max_workgroup_size, "required_workgroup_size": k.required_workgroup_size,
        "preloaded_dwords": k.kernarg_preload_dwords, "group_waves": waves,
        "waves_a_simd": occupancy[0] if occupancy else None, "limited_by": occupancy[1] if occupancy else None,
        "args": [{"name": a.name, "offset": a.offset, "bytes": a.size, "kind": a.kind} for a in k.args],
    }  # fmt: skip


def _print_kernel(k: dict[str, Any]) -> None:
    common.echo()
    common.echo(f"  {k['name']}")
    spills = (
        f", {k['vgpr_spills']} VGPRs and {k['sgpr_spills']} SGPRs spilled"
        if k["vgpr_spills"] or k["sgpr_spills"]
        else ""
    )
    common.echo(f"    registers   {k['vgprs']} VGPRs, {k['agprs']} AGPRs, {k['sgprs']} SGPRs{spills}")
    common.echo(
        f"    memory      {k['lds_bytes']} bytes of LDS a work-group, {k['scratch_bytes']} of scratch a work-item"
    )
    size = k["required_workgroup_size"]
    group = "x".join(map(str, size)) if size else f"up to {k['max_workgroup_size']}"
    common.echo(f"    work-group  {group} work-items, wavefronts of {k['wavefront_size']}")
    if k["waves_a_simd"] is not None:
        common.echo(
            f"    occupancy   {k['waves_a_simd']} waves per SIMD with {k['group_waves']} waves per work-group, limited by {k['limited_by']}"
        )
    for a in k["args"]:
        if not a["kind"].startswith("hidden_"):
            common.echo(
                f"    argument    {a['offset']:>4}  {a['bytes']:>3} bytes  {a['kind']}{'  ' + a['name'] if a['name'] else ''}"
            )
    hidden = [a["kind"].removeprefix("hidden_") for a in k["args"] if a["kind"].startswith("hidden_")]
    if hidden:
        common.echo(f"    hidden      {', '.join(hidden)}")


@command.command("run", epilog=_EXAMPLES)
@_file
@click.option("--kernel", "-k", metavar="NAME", help="Which kernel; may be left out where there is one.")
@click.option("--grid", "-g", default="1", show_default=True, metavar="X[,Y,Z]", help="Work-groups.")
@click.option(
    "--block",
    "-b",
    metavar="X[,Y,Z]",
    help="Work-items of a work-group; left out, what the kernel requires or its most.",
)
@click.option("--lds", default=0, metavar="BYTES", type=click.IntRange(0), help="Dynamic LDS.")
@click.option("--arg", "-a", "words", multiple=True, metavar="ARG", help="An argument, in order; see below.")
@click.option("--chip", metavar="CHIP", help="The chip (gfx942); left out, that of the file.")
@_check
@click.option("--asm", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The kernel's assembly.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of random arrays.")
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.npz",
    help="Write the arrays as they are afterwards.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.html",
    help="Write a page of the launch line by line: counts, waits, roofline, occupancy.",
)
@click.option(
    "--compare",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="BEFORE.html",
    help="With --html: an earlier page of the kernel, to be shown beside this run.",
)
@click.option(
    "--break",
    "at",
    metavar="[FILE:]LINE",
    help="Stop before a line of the assembly (or of the source that its .loc lines name) and show the wave's registers.",
)
@click.option("--lane", type=click.IntRange(0, 63), help="With --break: the registers of this lane.")
@click.option("--wave", type=click.IntRange(0, 31), help="With --break: stop in this wave of a work-group.")
@click.option(
    "--group", type=click.IntRange(0), help="With --break: stop in this work-group, by its number in the grid."
)
@common.json_option
def run(
    file: Path, kernel: str | None, grid: str, block: str | None, lds: int, words: tuple[str, ...], chip: str | None, check: str,
    asm: Path | None, seed: int, save: Path | None, html: Path | None, compare: Path | None, at: str | None, lane: int | None,
    wave: int | None, group: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Run one kernel on the AMD GPU in software; a fault is told with the instruction, lane and address."""
    import time

    import numpy as np

    import tec

    if compare is not None and html is None:
        raise Refused("--compare is for the page", "--html FILE.html --compare BEFORE.html")
    common.check_folder(html)
    common.check_folder(save)
    common.share_stdout(as_json, html, save)
    entries = _entries(file)
    dev = tec.rocm_emu(chip or entries[0].chip, check=check)
    code = dev.load(file, asm.read_text() if asm is not None else None)
    if kernel is None:
        if len(code) != 1:
            raise Refused(f"{file} has {len(code)} kernels", f"--kernel {' | '.join(code.names) or 'NAME'}")
        kernel = code.names[0]
    k = code[kernel]
    rng = np.random.default_rng(seed)
    args = [_argument(w, rng) for w in words]
    shape = _dims(block, "--block") if block else k.info.required_workgroup_size or (k.info.max_workgroup_size, 1, 1)
    groups = _dims(grid, "--grid")
    launch = k[groups, shape, lds]
    if at is not None:
        common.echo_text(_stopped(dev.driver, k, at, wave, group, lane, lambda: launch(*args)))
        return
    start = time.perf_counter()
    if html is not None:
        _write_page(html, compare, dev, lambda: launch(*args))
    else:
        launch(*args)
    seconds = time.perf_counter() - start
    notes = list(getattr(dev.driver, "notes", ()))
    arrays = {f"arg{i}": a for i, a in enumerate(args) if isinstance(a, np.ndarray)}
    if save is not None:
        common.write_arrays(save, arrays)
    if as_json:
        common.print_json(
            {
                "kernel": kernel,
                "device": str(dev),
                "seconds": seconds,
                "notes": notes,
                "arrays": {n: _summary(a) for n, a in arrays.items()},
            }
        )
        return
    size = f"{_spelled(groups)} work-groups of {_spelled(shape)}"
    common.echo(f"{k.prototype} on {dev}, {size}: no fault, {seconds:.2f} s with translation")
    for note in notes:
        common.echo(f"  note: {note}")
    for name, a in arrays.items():
        common.echo(f"  {name}: {_summary(a)}")


def _stopped(
    driver: Any, k: Any, at: str, wave: int | None, group: int | None, lane: int | None, launch: Callable[[], None]
) -> str:
    """The registers of the first wave that comes to a line."""
    from tec.emulator.stopping import Stop, Stopped, find_line

    driver.stop = Stop(find_line(k.handle.text, at), wave, group)
    try:
        launch()
    except Stopped as stopped:
        return stopped.state.describe(lane)
    finally:
        driver.stop = None
    raise Refused(f"no wave came to line {at}", "another line, wave or work-group")


@command.command("exec", epilog=_EXAMPLES, context_settings={"ignore_unknown_options": False})
@click.option("--chip", metavar="CHIP", default="gfx942", show_default=True, help="The chip.")
@_check
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def execute(chip: str, check: str, program: tuple[str, ...]) -> None:
    """Run a program that uses HIP (libamdhip64) on the AMD GPU in software.

    Faults of kernels are told where they happen, and are errors of the HIP call; a program that ends well although kernels had faults ends with 5.
    """
    import signal
    import subprocess
    import tempfile

    from ..emulator.hip import environment

    with tempfile.TemporaryDirectory(prefix="tec-emu-") as folder:
        report = Path(folder, "faults")
        environ = {**environment(chip, check), "TEC_HIP_FAULTS": str(report)}
        try:
            process = subprocess.Popen(program, env=environ)
        except OSError as error:
            raise Refused(f"{program[0]}: {error.strerror or error}") from None
        ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the program's
        try:
            code = process.wait()
        finally:
            signal.signal(signal.SIGINT, ignored)
        faults = report.read_text().count("\0") if report.exists() else 0
    if faults:
        common.echo(f"tec emu: {faults} fault{'s' * (faults != 1)} of kernels, told above", err=True)
    if code < 0:  # killed: as a shell says it
        code = 128 - code
    sys.exit(code or (5 if faults else 0))


def _write_page(path: Path, before: Path | None, dev: Any, launch: Callable[[], None]) -> None:
    """Run one launch and write its page."""
    from ..emulator.lines import counted
    from ..report.kernel import page

    with counted(dev.driver) as launches:
        launch()
    common.write_file(path, page(launches[0], dev.driver.chip, before))


def _dims(text: str, what: str) -> tuple[int, int, int]:
    parts = re.split("[,x]", text)
    if not 1 <= len(parts) <= 3 or not all(p.isdigit() and int(p) > 0 for p in parts):
        raise Refused(f"{what} {text!r}", "X, X,Y or X,Y,Z is wanted, each 1 or more")
    x, y, z = (*(int(p) for p in parts), 1, 1)[:3]
    return x, y, z


def _spelled(dims: tuple[int, int, int]) -> str:
    return " x ".join(map(str, dims[: 3 if dims[2] > 1 else 2 if dims[1] > 1 else 1]))


def _argument(word: str, rng: np.random.Generator) -> Any:
    import numpy as np

    if word in ("none", "null"):
        return None
    if word.endswith(".npy"):
        return next(iter(common.read_arrays([word], ["x"]).values())).copy()
    array, value = _ARRAY.match(word), _VALUE.match(word)
    kind = array[1] if array else value[1] if value else ""
    if value and kind == "lds" and value[2].isdigit():
        return int(value[2])
    if kind not in _DTYPES:
        raise Refused(
            f"argument {word!r}",
            "f32:64x64, f32:64x64=zeros, x.npy, i32=7, lds=1024 or none; types: " + ", ".join(_DTYPES),
        )
    dtype = np.dtype(_DTYPES[kind])
    try:
        if array is None:
            assert value is not None
            return _number(value[2], dtype)
        return _filled(tuple(int(n) for n in array[2].split("x")), dtype, array[3] or "random", rng)
    except (ValueError, OverflowError, MemoryError) as error:
        raise Refused(f"argument {word!r}: {error}") from None


def _filled(shape: Sequence[int], dtype: np.dtype[Any], fill: str, rng: np.random.Generator) -> Any:
    import numpy as np

    if fill == "random":
        if dtype.kind == "f":
            return rng.standard_normal(shape).astype(dtype)
        return rng.integers(0, 100, shape).astype(dtype)
    return np.full(shape, _number({"zeros": "0", "ones": "1"}.get(fill, fill), dtype), dtype)


def _number(text: str, dtype: np.dtype[Any]) -> Any:
    """A scalar of the type; raises OverflowError where it does not hold the number."""
    import numpy as np

    return dtype.type(text) if dtype.kind == "f" else np.array(int(text, 0), dtype)[()]


def _summary(a: np.ndarray[Any, Any]) -> str:
    head = ", ".join(f"{v:.6g}" for v in a.reshape(-1)[:4].tolist())
    return f"{a.dtype} {'x'.join(map(str, a.shape))}, {head}{', ...' if a.size > 4 else ''}"
