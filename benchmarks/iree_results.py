"""IREE's own kernels for the rows of amd_results.csv whose result is IREE's: the code object that `iree-compile` makes by its defaults, and the time model's word on it.

Convolutions in groups, channels last, whose margins are there already (in the source a pad stands before them). Needs `iree-compile` (pip install iree-base-compiler,
tried with 3.13) beside this Python or on the path.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import tec
from tec.emulator import emulator_profile
from tec.target import find_product

_CONV = """
func.func @conv(%x: {x}, %w: {w}) -> {out} {{
  %zero = arith.constant 0.0 : f32
  %room = tensor.empty() : {sums}
  %begin = linalg.fill ins(%zero : f32) outs(%room : {sums}) -> {sums}
  %sums = linalg.conv_2d_nhwgc_gfhwc {{dilations = dense<1> : tensor<2xi64>, strides = dense<{stride}> : tensor<2xi64>}}
      ins(%x, %w : {x}, {w}) outs(%begin : {sums}) -> {sums}
  %narrow = tensor.empty() : {out}
  %out = linalg.generic {{indexing_maps = [affine_map<(a, b, c, d, e) -> (a, b, c, d, e)>, affine_map<(a, b, c, d, e) -> (a, b, c, d, e)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]}} ins(%sums : {sums}) outs(%narrow : {out}) {{
  ^bb0(%a: f32, %b: {kind}):
    %y = arith.truncf %a : f32 to {kind}
    linalg.yield %y : {kind}
  }} -> {out}
  return %out : {out}
}}
"""


def conv(work: str) -> tuple[str, list[tuple[int, ...]]]:
    """The MLIR of "conv bf16 1x224x235x363 224 3x3 s1 g4", and the shapes of its arguments and result."""
    _, kind, sizes, out, window, stride, groups = work.split()
    (n, c, h, w), (kh, kw) = (tuple(map(int, x.split("x"))) for x in (sizes, window))
    s, g = int(stride[1:]), int(groups[1:])
    x, weight = (n, h + 2, w + 2, g, c // g), (g, int(out) // g, kh, kw, c // g)
    y = (n, (h + 2 - kh) // s + 1, (w + 2 - kw) // s + 1, g, int(out) // g)
    types = {
        k: f"tensor<{'x'.join(map(str, shape))}x{t}>"
        for k, shape, t in (("x", x, kind), ("w", weight, kind), ("sums", y, "f32"), ("out", y, kind))
    }
    return _CONV.format(**types, stride=s, kind=kind), [x, weight, y]


def compiler() -> str:
    found = shutil.which("iree-compile", path=str(Path(sys.executable).parent)) or shutil.which("iree-compile")
    if found is None:
        raise tec.TecError("no iree-compile", hint="pip install iree-base-compiler")
    return found


def theirs(work: str, product: str, warm: bool, with_launch: bool, peer: str = "") -> tuple[float, dict[str, Any]]:
    """Microseconds, and how many work-groups of what size."""
    machine = find_product(product)
    assert machine is not None, product
    text, shapes = conv(work)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "conv.mlir"
        source.write_text(text)
        how = [compiler(), str(source), "--iree-hal-target-device=hip", f"--iree-rocm-target={machine.chip}"]
        run = {"check": True, "capture_output": True, "text": True, "timeout": 300}
        subprocess.run([*how, f"--iree-hal-dump-executable-binaries-to={folder}", "-o", f"{folder}/conv.vmfb"], **run)
        made = subprocess.run([*how, "--compile-to=executable-targets"], **run).stdout
        (code,) = Path(folder).glob("*.hsaco")
        dev = tec.rocm_emu(machine.chip)
        loaded = dev.load(code)
    count = re.search(r"rocdl\.workgroup\.id\.x range <i32, 0, (\d+)>", made)
    size = re.search(r"workgroup_size = \[(\d+) : index, 1 : index, 1 : index\]", made)
    (name,) = loaded.names
    assert count and size and "workgroup.id.y" not in made
    arrays = [tec.nd.empty(s, "bfloat16" if "bf16" in work else "float16", dev) for s in shapes]
    driver: Any = dev.driver
    with emulator_profile(driver, False, product, warm) as p:
        loaded[name][int(count[1]), int(size[1])](*arrays)
    estimate = p.launches[0].estimate
    return estimate.microseconds if with_launch else estimate.kernel_us, {
        "groups": int(count[1]),
        "threads": int(size[1]),
    }
