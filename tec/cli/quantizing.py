"""`tec quantize`: a float32 ONNX model becomes one whose products are of bytes, by what samples show of its values."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from ..graph.frontends import quantizer_of
from . import common
from .errors import Refused, say

_TYPES = ("int8", "float32", "mxfp4", "mxfp6", "mxfp6_e3m2", "mxfp8", "mxfp8_e5m2")


@click.command(
    epilog="""\b
Examples:
  tec quantize model.onnx --calibrate samples.npz -o model-int8.onnx
  tec quantize model.onnx --calibrate folder/ --method entropy --keep-below 25
  tec quantize model.onnx --calibrate samples.npz --keep /head/Gemm --json
  tec quantize model.onnx --calibrate samples.npz --dtype float32 --dtype '/features/*=int8'
  tec quantize model.onnx --dtype mxfp4 --dtype '/lm_head/*=mxfp8' -o model-mxfp4.onnx
  tec quantize model.onnx --dtype mxfp4 --activations mxfp8 --calibrate samples.npz

Samples are .npz files with an array an input, or .npy files for a model of one input; more entries than the model's batch are several samples.
The result has QuantizeLinear and DequantizeLinear around its products (QDQ), which tec compiles to integer products. mxfp4, mxfp6, mxfp6_e3m2, mxfp8 and mxfp8_e5m2 are of the weights
of matrix products alone (blocks of 32 with a power of two each); they need no samples, which then only tell how much is lost.""",
)
@click.argument("model", type=click.Path(exists=True, path_type=Path, dir_okay=False))
@click.option("--calibrate", "-c", type=click.Path(exists=True, path_type=Path), help="A .npz or .npy file, or a folder of them.")  # fmt: skip
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    help="The model to write; MODEL-int8.onnx by default, or what all products are made of.",
)
@click.option("--method", type=click.Choice(["minmax", "percentile", "entropy", "mse"]), default="minmax", show_default=True, help="Where values are cut off.")  # fmt: skip
@click.option("--percentile", type=click.FloatRange(50, 100, min_open=True), default=99.99, show_default=True, help="Of the magnitudes that --method percentile keeps.")  # fmt: skip
@click.option("--per-tensor", is_flag=True, help="One scale for all channels of a weight.")
@click.option("--activations", type=click.Choice(["uint8", "int8", "mxfp4", "mxfp6", "mxfp6_e3m2", "mxfp8", "mxfp8_e5m2"]), default="uint8", show_default=True, help="uint8 has a zero point, int8 is symmetric; the others are what products of microscaling weights round what they read to.")  # fmt: skip
@click.option("--dtype", multiple=True, callback=lambda c, p, v: common.precision_text(c, p, v, _TYPES), metavar="[NODE=]TYPE", help="int8, float32 or a microscaling format (mxfp4, mxfp6, mxfp6_e3m2, mxfp8, mxfp8_e5m2), of all products or of nodes by name (patterns, may be given several times).")  # fmt: skip
@click.option("--keep", multiple=True, metavar="NODE", help="A node that stays float32; may be given several times.")
@click.option("--keep-below", type=float, metavar="DB", help="Nodes whose output has less signal to noise than this stay float32.")  # fmt: skip
@click.option("--no-sensitivity", is_flag=True, help="Do not measure each layer: quicker.")
@common.json_option
def command(
    model: Path, calibrate: Path | None, output: Path | None, method: str, percentile: float, per_tensor: bool, activations: str, dtype: str | None, keep: tuple[str, ...],
    keep_below: float | None, no_sensitivity: bool, as_json: bool,
) -> None:  # fmt: skip
    """Quantize a model after training."""
    if no_sensitivity and keep_below is not None:
        raise Refused("--keep-below needs the sensitivity of each layer", "leave --no-sensitivity out")
    kind = (dtype or "").partition(";")[0]
    target = output or model.with_name(f"{model.stem}-{kind if kind.startswith('mx') else 'int8'}.onnx")
    common.check_folder(target)
    common.share_stdout(as_json, target)
    if target.exists() and target.samefile(model):
        raise Refused(f"{target} is the model itself", "give another file with --output")
    result = quantizer_of(model)(
        model, calibrate, method=method, percentile=percentile, per_channel=not per_tensor, activations=activations, keep=keep, dtype=dtype,
        min_signal_to_noise=keep_below, sensitivity=not no_sensitivity, progress=None if as_json else say,
    )  # fmt: skip
    data = result.model.SerializeToString()
    common.write_file(target, data)
    if as_json:
        common.print_json(_data(result, target), None)
        return
    for layer in result.layers:
        what = "" if layer.is_quantized else f"  float32 ({layer.why_not})"
        ratio = "" if math.isnan(layer.signal_to_noise) else f"{layer.signal_to_noise:6.1f} dB"
        common.echo(f"{layer.name:40} {layer.op:8} {ratio}{_span(layer)}{what}")
    for name, ratio in result.signal_to_noise.items():
        same = f", the largest stays in {result.agreement[name]:.1%} of rows" if name in result.agreement else ""
        common.echo(f"output {name}: {ratio:.1f} dB{same}")
    before, after = model.stat().st_size, len(data)
    common.echo(f"{target}: {common.size(after)}, was {common.size(before)}")


def _span(layer: Any) -> str:
    return "" if math.isnan(layer.low) else f"  [{layer.low:.4g}, {layer.high:.4g}]"


def _data(result: Any, target: Path) -> dict[str, Any]:
    def number(x: float) -> float | None:
        return x if math.isfinite(x) else None

    return {
        "output": str(target), "samples": result.samples,
        "layers": [
            {"name": x.name, "op": x.op, "signal_to_noise": number(x.signal_to_noise), "low": number(x.low), "high": number(x.high), "quantized": x.is_quantized}
            for x in result.layers
        ],
        "signal_to_noise": {n: number(r) for n, r in result.signal_to_noise.items()}, "agreement": result.agreement,
    }  # fmt: skip
