"""What a drawn model becomes on a target, up to the last pass before LLVM: the passes of the graph, its groups, the choices of their templates, their loops, all
passes of the pipeline. Milliseconds a choice, and every size and register of a template's arithmetic is met. Small ones are computed by the interpreter too."""

from __future__ import annotations

import math
import random
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tec_onnx

import tec
from tec import te
from tec.choices import Space, spaces
from tec.driver import PIPELINE, SIMPLE_MODE_PASSES, run_passes
from tec.errors import TecError
from tec.graph.optimize import optimize
from tec.graph.parts import part_of
from tec.graph.programs import program_of
from tec.graph.sizes import sizes_of_group
from tec.ir.interp import run as interpret
from tec.ir.passes.split_host_device import split_host_device
from tec.ir.visit import deep_recursion
from tec.te.numpy_dtype import np_dtype
from tec.te.operation import topo_order

from .draws import Case

TARGETS = (
    "llvm -mcpu=x86-64-v2", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v4", "llvm -mcpu=sapphirerapids",
    "cuda -arch=sm_70", "cuda -arch=sm_80", "cuda -arch=sm_90a", "cuda -arch=sm_100a",
    "rocm -mcpu=gfx90a", "rocm -mcpu=gfx942", "rocm -mcpu=gfx950", "rocm -mcpu=gfx1030", "rocm -mcpu=gfx1100", "rocm -mcpu=gfx1201", "rocm -mcpu=gfx1250",
)  # fmt: skip


def target_of(rng: random.Random) -> str:
    """A target; NVIDIA's more often, which have most templates."""
    return rng.choice((*TARGETS, *TARGETS[4:8]))


@dataclass(frozen=True)
class Death:
    """What went wrong: `kind` says where ("model": before any choice; "default", "choice"), `choice` for which."""

    kind: str
    choice: Any
    message: str
    place: str


def lower(case: Case, target: str, rng: random.Random, compute: bool = False) -> Death | None:
    """Lower every group of a model by its first space's default, and by a drawn legal choice of a drawn space. compute: both must compute what the
    definitions say, where sizes are numbers and the work is little."""
    chosen: Any = None
    kind = "model"
    try:
        tgt = tec.Target(target)
        with tgt, deep_recursion():
            graph, *_ = tec_onnx.from_onnx(case.model)
            graph = optimize(graph, tgt, None)
            for number, group in enumerate(part_of(graph, (), ()).groups):
                if group.is_alias:
                    continue
                program = program_of(group, number, sizes_of_group(group), list(graph.guards), tgt)
                found = spaces(program.outputs, tgt)
                kind, chosen = "default", found[0].default
                _through(program, found[0], chosen, tgt)
                small = compute and _work(program) <= MOST_WORK
                if small:
                    _computed(program, found[0], chosen, tgt)
                kind = "choice"
                space = rng.choice(found)
                chosen = drawn(space, rng)
                if chosen is not None:
                    _through(program, space, chosen, tgt)
                    if small:
                        _computed(program, space, chosen, tgt)
                kind, chosen = "model", None
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)[-4:]
        place = " < ".join(f"{f.filename.rpartition('tec/')[2]}:{f.lineno}" for f in reversed(frames))
        text = error.message if isinstance(error, TecError) else f"{type(error).__name__}: {error}"
        return Death(kind, chosen, text or type(error).__name__, place)
    return None


def drawn(space: Space, rng: random.Random) -> Mapping[str, Any] | None:
    """A legal choice of a space by chance; None where its default is not legal."""
    return next(space.drawn(rng), None)


def _through(program: Any, space: Space, choice: Mapping[str, Any], target: tec.Target) -> None:
    func = run_passes(program.loops(space.apply(choice)), target)
    if target.is_gpu:
        split_host_device(func, target)


MOST_WORK = 60_000  # elements times terms that the interpreter computes, in a second or two


def work(case: Case, target: str) -> float:
    """Elements times terms of all groups of a model; infinite where a size is open."""
    tgt = tec.Target(target)
    with tgt, deep_recursion():
        graph, *_ = tec_onnx.from_onnx(case.model)
        graph = optimize(graph, tgt, None)
        groups = [g for g in part_of(graph, (), ()).groups if not g.is_alias]
        return sum(_work(program_of(g, k, sizes_of_group(g), list(graph.guards))) for k, g in enumerate(groups))


def _work(program: Any) -> float:
    total = 0.0
    for op in topo_order(program.outputs):
        axes = [*getattr(op, "axis", ()), *getattr(op, "reduce_axis", ())]
        extents = [getattr(a.dom.extent, "value", math.inf) for a in axes]
        total += math.prod(extents)
    return total


def _computed(program: Any, space: Space, choice: Mapping[str, Any], target: tec.Target) -> None:
    """The loops of a choice on arrays of small whole numbers, beside the definitions."""
    rng = np.random.default_rng(1)
    scheduled = space.apply(choice)
    if any(program.rows) or any(program.loose) or program.sizes.names:
        return
    feeds = {}
    for t in program.args:
        shape, dtype = [int(d.value) for d in t.shape], np_dtype(t.dtype)
        least, most = (-2, 3) if t.dtype.startswith(("float", "bfloat", "int8")) else (0, 2)
        feeds[t] = rng.integers(least, most, shape).astype(dtype)
        if "recurrence" in str(choice.get("template")) and t.dtype.startswith("float"):
            feeds[t] /= 16  # weights of whole numbers multiply a rounding error in each step
    want = te.evaluate(program.outputs, feeds)
    loops = program.loops(scheduled)
    stored = loops.params[-len(scheduled.outputs) :]  # as the stages' layouts have them
    func = run_passes(loops, target, PIPELINE[:SIMPLE_MODE_PASSES])
    got = [np.zeros([int(d.value) for d in t.shape], np_dtype(t.dtype)) for t in stored]
    interpret(func, [*feeds.values(), *got], {}, wave=32 if target.kind == "cuda" or "gfx1" in str(target) else 64)
    for a, b in zip(got, want):
        if a.shape != b.shape:  # a layout of the choice's own
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        loose = 2e-2 if "16" in str(a.dtype) else 1e-4
        np.testing.assert_allclose(
            x, y, rtol=loose, atol=loose * max(1.0, float(np.abs(y[np.isfinite(y)]).max(initial=0)))
        )
