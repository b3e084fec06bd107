"""What the commands share: options, models, shapes, inputs, devices, output.

A MODEL is an ONNX file (compiled, through the cache) or a `.tec` package that `tec compile` wrote.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ..errors import install, one_line, printable
from ..report.measure import random_array
from ..report.words import duration as duration
from ..report.words import size as size
from ..runtime.outputs import is_stdout, is_stream, stdout_for_outputs, write_output
from .errors import DEVICE, MODEL, Refused
from .shapes import join_dims, settle, shapes_for

_ONNX = (".onnx", ".pb", ".onnx_model")
_DTYPES = ("float32", "float16", "bfloat16")


class ModelCommand(click.Command):
    """A command whose `--input-dim NAME D D ...` takes any number of sizes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, join_dims(args))


# ---- options


def model_argument(f: Any) -> Any:
    return click.argument("model", type=click.Path(path_type=Path), metavar="MODEL")(f)


def compile_options(f: Any) -> Any:
    """--target, --input-dim, --freeze, --dtype, --no-cache."""
    for option in (
        click.option(
            "--freeze", multiple=True, metavar="NAME=VALUE", help="Make an input constant: a number, 1,2,3, or a .npy file."
        ),
        click.option("--no-cache", is_flag=True, help="Compile anew, and keep nothing."),
        click.option(
            "--dtype", multiple=True, callback=_precision, metavar="[NODE=]TYPE",
            help="float16, bfloat16: mixed precision; NODE=float32 for nodes by name (patterns, may be given several times).",
        ),
        click.option(
            "--input-dim", "input_dim", multiple=True, metavar="NAME D...", help="Shape of an input, or size of a named dimension."
        ),
        click.option(
            "--target", "-t", metavar="TARGET", shell_complete=complete_target,
            help='"llvm" (native), a chip or a product (gfx942, mi300x, h200), or "rocm -mcpu=gfx942 ..."; the device\'s, or llvm, by default.',
        ),
    ):  # fmt: skip
        f = option(f)
    return f


def _precision(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> str | None:
    return precision_text(ctx, param, given, _DTYPES)


def precision_text(
    ctx: click.Context, param: click.Parameter, given: tuple[str, ...], types: tuple[str, ...]
) -> str | None:
    """What --dtype says, as the compiler takes it (`tec.graph.precision`)."""
    if not given:
        return None
    default, nodes = "", []
    for text in given:
        node, _, dtype = text.rpartition("=")
        if dtype not in types:
            raise click.BadParameter(f"{dtype!r} is not one of {', '.join(map(repr, types))}.", ctx, param)
        if node:
            nodes.append(text)
        elif default:
            raise click.BadParameter(f"{default} and {dtype} for all nodes", ctx, param)
        else:
            default = dtype
    return ";".join([default, *nodes])


def input_options(f: Any) -> Any:
    """--inputs, --fill, --seed."""
    for option in (
        click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of random inputs."),
        click.option(
            "--fill", default="random", show_default=True, metavar="random|zeros|ones|NUMBER", help="Inputs that no file gives."
        ),
        click.option(
            "--inputs", "-i", "files", multiple=True, metavar="[NAME=]FILE", help=".npy files (by name, or in order) or one .npz."
        ),
    ):  # fmt: skip
        f = option(f)
    return f


def device_option(f: Any) -> Any:
    return click.option(
        "--device",
        "-d",
        metavar="DEVICE",
        help="cpu, rocm:0, cuda:0, or emu (emu:gfx90a): the AMD GPU in software.",
        shell_complete=_complete_device,
    )(f)


def complete_target(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The targets that begin so: kinds, chips and products."""
    from ..target import CHIPS, MACHINES

    return [n for n in ("llvm", "native", "rocm", "cuda", *CHIPS, *MACHINES) if n.startswith(incomplete.lower())]


def _complete_device(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from ..emulator.chips import CHIPS

    names = ["cpu", "rocm:0", "cuda:0", "emu", *(f"emu:{chip}" for chip in CHIPS)]
    return [n for n in names if n.startswith(incomplete)]


def json_option(f: Any) -> Any:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for a machine.")(f)


# ---- models


def check_model(path: Path) -> None:
    """Refused unless `path` is a file whose name says that it is a model."""
    if not path.exists():
        raise Refused(f"{path}: no such file")
    if path.is_dir():
        raise Refused(f"{path} is a folder, a model file is wanted")
    if path.suffix == ".tecmod":
        raise Refused(f"{path} is a module of kernels, not a network", "tec.load_module(path) reads it")
    if path.suffix in (".pt2", ".pt", ".pth"):
        how = "tec.compile(path)" if path.suffix == ".pt2" else "tec.compile(module, args=...) with its module"
        raise Refused(f"{path} is PyTorch's: the command line reads ONNX models", f"in Python {how} takes it")
    if path.suffix not in (*_ONNX, ".tec"):
        raise Refused(f"{path}: not a model by its name", "expected .onnx, or .tec from tec compile")
    if not os.access(path, os.R_OK):
        raise Refused(f"{path}: permission denied")


def frontend() -> Any:
    """The module of the installed ONNX frontend."""
    import importlib
    from importlib.metadata import entry_points

    for point in entry_points(group="tec.frontends", name="onnx"):
        return importlib.import_module(point.module)
    raise Refused("no ONNX frontend is installed", install("onnx"))


def frozen_inputs(path: Path, texts: Sequence[str]) -> dict[str, Any] | None:
    """Arrays of the inputs that --freeze makes constant, in the model's types."""
    if not texts:
        return None
    import numpy as np

    from ..runtime.arrays.dtypes import numpy_dtype

    front = frontend()
    known = front.input_info(front.load_model(str(path)))
    out: dict[str, Any] = {}
    for text in texts:
        name, eq, value = text.partition("=")
        if not eq or not value:
            raise Refused(f"--freeze {text}: NAME=VALUE is wanted", "as in --freeze sr=16000")
        entry = known.get(name)
        if entry is None:
            raise Refused(f"the model has no input {name!r}", f"inputs: {', '.join(known)}")
        dtype, dims = entry
        if value.endswith(".npy"):
            out[name] = read_arrays([f"{name}={value}"], [name])[name]
            continue
        try:
            array = np.array([float(v) for v in value.split(",")]).astype(numpy_dtype(dtype))
        except ValueError:
            raise Refused(f"--freeze {text}: a number, numbers with commas, or a .npy file is wanted") from None
        shape = [d if isinstance(d, int) else -1 for d in dims]
        try:
            out[name] = array.reshape(shape if shape.count(-1) <= 1 else array.shape)
        except ValueError:
            raise Refused(
                f"--freeze {text}: input {name!r} has shape {tuple(dims)}, {array.size} numbers are given"
            ) from None
    return out


def target_of(text: str | None, device: str | None) -> str:
    """The target: the one asked for, else the device's, else the CPU."""
    from ..target import Target, chip_of_device

    if text is not None:
        return str(Target(text))
    if device is None:
        return "llvm"
    kind, _, rest = device.partition(":")
    if kind in ("emu", "rocm_emu"):
        return f"rocm -mcpu={rest or 'gfx942'}"
    if kind in ("rocm", "hip", "cuda"):
        dev = find_device(device, "rocm" if kind != "cuda" else "cuda", "")
        chip = chip_of_device(dev.arch)
        return f"rocm -mcpu={chip}" if dev.kind == "rocm" else f"cuda -arch={chip}"
    find_device(device, "cpu", "")
    return "llvm"


def open_network(
    path: Path,
    target: str | None,
    device: str | None,
    dims: Sequence[str],
    dtype: str | None,
    no_cache: bool,
    freeze: Sequence[str] = (),
    files: Sequence[str] = (),
    keep: Sequence[str] | None = None,
    by_values: bool = False,
) -> Any:
    """The compiled network of a MODEL; `files` (those of --inputs) have a say about sizes that it leaves open. With `keep`, names
    of dimensions, those stay open, and sizes that are given as names; without it all are settled.
    by_values: a model whose shapes depend on values gives what makes networks as values come (`sessions`)."""
    check_model(path)
    if path.suffix == ".tec":
        import tec.graph

        net = tec.graph.load(str(path))
        if (dims and not net.open_sizes) or dtype or freeze:
            raise Refused(
                f"{path} is compiled already: --input-dim, --dtype and --freeze have no say", "give them to tec compile"
            )
        if target is not None and target_of(target, None) != net.module.target:
            raise Refused(f"{path} was compiled for {net.module.target}, not for {target}")
        return settle(net, dims, read_arrays(files, [i["name"] for i in net.inputs])) if keep is None or dims else net
    wanted = target_of(target, device)
    options: dict[str, Any] = {} if dtype in (None, "float32") else {"dtype": dtype}
    shapes, frozen = _inputs_of(path, dims, freeze, files, keep or ())
    if frozen:
        options["freeze"] = frozen
    import tec.graph

    try:
        net = tec.graph.compile(str(path), target=wanted, shapes=shapes, cache=not no_cache, **options)
        return net if keep is not None else settle(net, (), read_arrays(files, [i["name"] for i in net.inputs]))
    except tec.ImportModelError as error:
        if by_values and "depends on the value" in error.message and not frozen:
            from . import sessions

            front = frontend()
            infos = front.input_info(front.load_model(str(path)))
            if not sessions.unsettled(error, list(read_arrays(files, list(infos))), infos):
                return sessions.SessionNetwork(front, path, wanted, shapes, options.get("dtype"))
        raise _needs_value(error) from None


def load_graph(
    path: Path, dims: Sequence[str], freeze: Sequence[str] = (), files: Sequence[str] = (), keep: Sequence[str] = ()
) -> Any:
    """The operator graph of an ONNX MODEL, before any pass."""
    check_model(path)
    if path.suffix == ".tec":
        raise Refused(f"{path} is compiled already, its operator graph is gone", "give the .onnx file")
    shapes, frozen = _inputs_of(path, dims, freeze, files, keep)
    import tec

    try:
        return frontend().load(str(path), shapes, freeze=frozen)
    except tec.ImportModelError as error:
        raise _needs_value(error) from None


def _inputs_of(
    path: Path, dims: Sequence[str], freeze: Sequence[str], files: Sequence[str], keep: Sequence[str] = ()
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Shapes, and the inputs that are constant."""
    front = frontend()
    frozen = frozen_inputs(path, freeze)
    names = list(front.input_info(front.load_model(str(path))))
    arrays = read_arrays(files, [n for n in names if n not in (frozen or {})])
    return shapes_for(front, path, dims, {**arrays, **(frozen or {})}, keep), frozen


def _needs_value(error: Any) -> Any:
    """The error, or what the command line has to offer where the network depends on an input's value."""
    if "depends on the value" in error.message:
        words = " ".join(f"--freeze {n}=VALUE" for n in getattr(error, "inputs", ()) or ("NAME",))
        return Refused(error.message, f"{words} makes it constant", MODEL)
    return error


# ---- devices


def find_device(text: str | None, kind: str, chip: str) -> Any:
    """The device for code of `kind` ("cpu", "rocm", "cuda"); `emu` stands for the AMD GPU in software."""
    import tec

    if text is not None and text.partition(":")[0] in ("emu", "rocm_emu"):
        dev = tec.rocm_emu(text.partition(":")[2] or chip or "gfx942")
    else:
        try:
            dev = tec.device(text if text is not None else kind)
        except tec.DeviceError as error:
            if "not a device" in error.message:
                raise Refused(f"unknown device {text!r}", "cpu, rocm:0, cuda:0, emu, emu:gfx90a") from None
            if kind == "rocm":
                raise Refused(error.message, "--device emu runs it on the AMD GPU in software", DEVICE) from None
            raise
    if dev.kind != kind:
        raise Refused(f"the code is for {kind}, and {dev} is no device for it", "choose --target and --device that fit")
    return dev


def device_for(net: Any, text: str | None) -> Any:
    """The device that a network runs on."""
    from ..target import Target

    return find_device(text, net.module.device_kind, Target(net.module.target).mcpu)


# ---- inputs


def make_inputs(specs: Sequence[Mapping[str, Any]], files: Sequence[str], fill: str, seed: int) -> dict[str, Any]:
    """An array for each input: from files, the rest filled."""
    given = read_arrays(files, [s["name"] for s in specs])
    filler = _filler(fill, seed)
    out = {}
    for s in specs:
        shape = tuple(s["shape"])
        if not all(isinstance(d, int) for d in shape) and s["name"] not in given:
            raise Refused(f"input {s['name']} has an open shape {shape}", "give it as a file with --inputs")
        out[s["name"]] = given[s["name"]] if s["name"] in given else filler(shape, s["dtype"])
    unknown = [n for n in given if n not in out]
    if unknown:
        raise Refused(f"the model has no input {unknown[0]!r}", f"inputs: {', '.join(out)}")
    return out


def read_arrays(files: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """Arrays from `x.npy`, `name=x.npy` and `all.npz`."""
    from zipfile import BadZipFile  # 10 ms, which no start without such files needs

    import numpy as np

    out: dict[str, Any] = {}
    for text in files:
        name, eq, rest = text.partition("=")
        path = Path(rest if eq else text)
        if not path.exists():
            raise Refused(f"{path}: no such file")
        if path.suffix not in (".npy", ".npz"):
            raise Refused(f"{path}: not an array by its name", "expected .npy or .npz")
        try:
            data = np.load(path, allow_pickle=False)
            arrays = {k: data[k] for k in data.files} if path.suffix == ".npz" else None
        except (OSError, ValueError, EOFError, KeyError, BadZipFile):
            raise Refused(
                f"{path}: no array can be read from it",
                "np.save and np.savez write such files; Python objects are not read",
            ) from None
        if arrays is not None:
            out.update(arrays)
            continue
        if not eq:
            free = [n for n in names if n not in out]
            if not free:
                raise Refused(f"{path}: the model has no more than {len(names)} inputs", f"inputs: {', '.join(names)}")
            name = free[0]
        out[name] = data
    return out


def _filler(fill: str, seed: int) -> Callable[[tuple[int, ...], str], Any]:
    import numpy as np

    from ..runtime.arrays.dtypes import numpy_dtype

    rng = np.random.default_rng(seed)
    if fill == "random":
        return lambda shape, dtype: random_array(rng, shape, dtype)
    try:
        number = {"zeros": 0.0, "ones": 1.0}.get(fill)
        number = float(fill) if number is None else number
    except ValueError:
        raise Refused(f"--fill {fill!r}: random, zeros, ones or a number is wanted") from None
    return lambda shape, dtype: np.full(shape, number).astype(numpy_dtype(dtype))


# ---- output


def console() -> Any:
    """A rich console on stdout; wide where it is no terminal, so that nothing is cut off. A closed pipe raises."""
    from rich.console import Console

    class Out(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Out(soft_wrap=False) if sys.stdout.isatty() else Out(width=180)


def echo(line: str = "", err: bool = False) -> None:
    """A line on stdout. What a name in it holds is shown escaped: no terminal obeys it, and it makes no line of its own."""
    click.echo(one_line(line), err=err)


def echo_text(text: str) -> None:
    """Lines on stdout, a listing's say; what a terminal would obey is escaped."""
    click.echo(printable(text))


def table(title: str, *columns: str, right: Sequence[int] = ()) -> Any:
    """An empty rich table. Its cells are plain text, escaped as by `echo`; a `rich.text.Text` keeps its style (see `coloured`)."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    class Plain(Table):
        def add_row(self, *cells: Any, **options: Any) -> None:
            super().add_row(*(Text(one_line(c)) if isinstance(c, str) else c for c in cells), **options)

    made = Plain(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for k, c in enumerate(columns):
        made.add_column(c, justify="right" if k in right else "left", overflow="fold")
    return made


def coloured(text: str, style: str) -> Any:
    """A cell of a table in a colour of rich's."""
    from rich.text import Text

    return Text(one_line(text), style)


def print_json(data: Any, indent: int | None = 1) -> None:
    """Data as JSON, exact: what a terminal would obey is escaped as JSON escapes it."""
    click.echo(json.dumps(data, indent=indent, default=str).replace("\x7f", "\\u007f"))


def check_folder(path: Path | None) -> None:
    """Refused where a file cannot be written since its folder is not there: told before the work, not after."""
    if path is not None and not is_stream(path) and not path.parent.is_dir():
        raise Refused(f"cannot write {path}: no folder {path.parent}")


def write_file(path: Path, data: str | bytes) -> None:
    """Write an output file and the folders above it; ArgumentError or Refused with the system's reason."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror}") from None
    write_output(path, data)


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays by name as one `.npz` file. The names are a model's: any text (`np.savez` takes them as parameters of its own)."""
    import io
    import zipfile

    import numpy as np

    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_STORED) as z:
        for name, a in arrays.items():
            with z.open(zipfile.ZipInfo(name + ".npy"), "w", force_zip64=True) as out:
                plain = np.asarray(a, str) if np.asarray(a).dtype == object else np.asarray(a)
                np.lib.format.write_array(out, plain, allow_pickle=False)
    write_file(path, data.getvalue())


def check_suffix(option: str, path: Path, suffixes: Sequence[str], wanted: str) -> None:
    """Refused unless a file's name says what it is; pipes, devices and `-` have the names they have."""
    if path.suffix not in suffixes and not is_stream(path):
        raise Refused(f"{option} {path}: {wanted}")


def share_stdout(as_json: bool, *outputs: Path | None) -> None:
    """Where an output goes to stdout, what the command prints goes to stderr. Refused for two things that both want stdout."""
    wanted = sum(p is not None and is_stdout(p) for p in outputs)
    if wanted + as_json > 1:
        raise Refused(f"{'--json and a file' if as_json else 'two files'} cannot both go to standard output")
    if wanted:
        click.get_current_context().with_resource(stdout_for_outputs())


def wrote(path: Path) -> str:
    """A file that was written, and its size where it has one."""
    return str(path) if is_stream(path) else f"{path}: {size(float(path.stat().st_size))}"
