"""Tile kernels for GPUs without one: their loop IR after all passes in the interpreter, with shared memory watched for races and for reads of what nobody wrote."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tec.driver import PIPELINE, run_passes
from tec.ir.buffer import Buffer
from tec.ir.interp import run
from tec.target import Target
from tec.tile.lowering import lower


def interpreted(kernel: Any, target: str, grid: tuple[int, ...], *args: Any, **constants: Any) -> None:
    """Run a kernel's programs; arrays are written in place."""
    types, options, aligned = kernel._types_of(args, constants)
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    aligned |= {n: 16 for n, a in zip(kernel.arg_names, args) if isinstance(a, np.ndarray)}
    lowered = lower(kernel.program(types, options), Target(target), options["num_warps"], len(grid), False, aligned)
    func = run_passes(lowered.func, Target(target), PIPELINE)
    numbers = {n: a for n, a in zip(kernel.arg_names, args) if not isinstance(a, np.ndarray) and a != 1}
    numbers |= {f"grid_{axis}": n for axis, n in zip("xyz", grid)}
    names = [p.name for p in func.params if isinstance(p, Buffer)]
    numbers |= {f"{n}_size": a.size for n, a in zip(names, arrays)}
    flat = [a.reshape(-1) for a in arrays]
    run(func, flat, numbers, wave=Target(target).wavefront_size, check=True, races=True)


def loops(text: str) -> list[str]:
    """The bodies of PTX's loops: from a label to the last jump back to it."""
    lines = text.splitlines()
    labels = {m[1]: n for n, line in enumerate(lines) if (m := re.match(r"(\$L\w+):", line.strip()))}
    found = [
        (labels[m[1]], n)
        for n, line in enumerate(lines)
        if (m := re.search(r"\bbra(?:\.uni)?\s+(\$L\w+)", line)) and labels.get(m[1], n) < n
    ]
    return ["\n".join(lines[a : b + 1]) for a, b in found]


def counted(text: str, *words: str) -> tuple[int, ...]:
    return tuple(len(re.findall(w, text)) for w in words)
