"""`tec run`: a model on a device, with inputs from files or filled in."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from ..report import measure
from ..runtime.outputs import is_stream
from . import common
from .errors import Refused, say
from .sessions import SessionNetwork


@click.command(
    cls=common.ModelCommand,
    epilog="""\b
Examples:
  tec run model.onnx                                   # random inputs, on this CPU
  tec run model.tec --inputs x.npy --save-outputs out/
  tec run model.onnx --inputs image=a.npy --fill zeros --device emu:gfx942
  tec run model.onnx --seed 7 --save-outputs out.npz --json
  tec run model.onnx --repeat 100 --profile trace.json # later runs' times; a trace for Perfetto or chrome://tracing""",
)
@common.model_argument
@common.input_options
@common.device_option
@common.compile_options
@click.option(
    "--save-outputs", type=click.Path(path_type=Path), metavar="PATH", help="A folder for .npy files, or a .npz file."
)
@click.option(
    "--repeat",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Runs; the later ones' times are printed too.",
)
@click.option("--profile", type=click.Path(path_type=Path), help="Write a Chrome trace of one more run.")
@common.json_option
def command(
    model: Path, files: tuple[str, ...], fill: str, seed: int, device: str | None, target: str | None,
    input_dim: tuple[str, ...], freeze: tuple[str, ...], dtype: str | None, no_cache: bool, save_outputs: Path | None, repeat: int,
    profile: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Run a model or a compiled package."""
    if save_outputs is not None and save_outputs.suffix == ".npy":
        raise Refused(f"--save-outputs {save_outputs}: a folder or a .npz file is wanted")
    common.check_model(model)
    common.check_folder(profile)
    if save_outputs is not None and _is_one_file(save_outputs):
        common.check_folder(save_outputs)
    common.share_stdout(as_json, profile, save_outputs)
    net = common.open_network(model, target, device, input_dim, dtype, no_cache, freeze, files, by_values=True)
    dev = common.device_for(net, device)
    if isinstance(net, SessionNetwork):
        say(
            f"{model.name}: its shapes depend on values, so it runs through a session, which compiles a part when the values before it are known"
        )
    inputs = common.make_inputs(net.inputs, files, fill, seed)
    start = time.perf_counter()
    outputs = net.run(inputs, device=dev)
    seconds = time.perf_counter() - start
    later = measure.run_times(net, inputs, dev, repeat - 1, 0) if repeat > 1 else []
    if profile is not None:
        measure.trace(net, inputs, dev, profile)
    names = [o["name"] for o in net.outputs]
    saved = save(dict(zip(names, outputs)), save_outputs) if save_outputs is not None else []
    facts = [_facts(n, a) for n, a in zip(names, outputs)]
    if as_json:
        common.print_json(
            {
                "device": str(dev),
                "seconds": seconds,
                "later_seconds": later,
                "outputs": facts,
                "saved": [str(p) for p in saved],
            }
        )
        return
    out = common.console()
    t = common.table("", "output", "type", "min", "max", "mean", "first values", right=(2, 3, 4))
    for f in facts:
        t.add_row(
            f["name"],
            f["type"],
            *(f"{f[k]:.5g}" if f[k] is not None else "" for k in ("min", "max", "mean")),
            f["head"],
        )
    out.print(t)
    common.echo(f"{common.duration(seconds)} on {dev} ({dev.name}), the first run")
    if later:
        p50, p99 = (common.duration(measure.percentile(sorted(later), p)) for p in (50, 99))
        common.echo(f"{len(later)} more runs: median {p50}, min {common.duration(min(later))}, p99 {p99}")
    for p in [*saved, *([profile] if profile is not None else [])]:
        common.echo(f"saved {p}")


def _facts(name: str, a: Any) -> dict[str, Any]:
    import numpy as np

    flat = np.asarray(a).reshape(-1)
    try:
        numbers = flat.astype(np.float64) if flat.size else None
        first = [f"{float(v):.5g}" for v in flat[:6]]
    except (TypeError, ValueError):  # text, complex numbers
        numbers, first = None, [str(v) for v in flat[:6]]
    head = ", ".join(first) + (", ..." if flat.size > 6 else "")
    return {
        "name": name, "type": f"{a.dtype}{tuple(a.shape)}", "dtype": str(a.dtype), "shape": list(a.shape),
        "min": float(numbers.min()) if numbers is not None else None,
        "max": float(numbers.max()) if numbers is not None else None,
        "mean": float(numbers.mean()) if numbers is not None else None, "head": head,
    }  # fmt: skip


def save(outputs: dict[str, Any], path: Path) -> list[Path]:
    """Write outputs to `.npy` files in a folder, or to one `.npz` (which a pipe or a device takes, too)."""
    import io
    import re

    import numpy as np

    if _is_one_file(path):
        common.write_arrays(path, outputs)
        return [path]
    written: list[Path] = []
    for k, (name, a) in enumerate(outputs.items()):
        file = path / f"{re.sub(r'[^0-9A-Za-z_.-]', '_', name)}.npy"
        if file in written:  # another name with other signs in these places
            file = file.with_stem(f"{file.stem}_{k}")
        data = io.BytesIO()
        np.save(data, a)
        common.write_file(file, data.getvalue())
        written.append(file)
    return written


def _is_one_file(path: Path) -> bool:
    return path.suffix == ".npz" or is_stream(path)
