"""The conformance table's machinery: a kernel, its inputs, its NumPy reference, its tolerance; and the devices it runs on.

A case gives one te definition and up to two ways to schedule it (for CPUs and for GPUs). `run_case(case, device)` builds
and runs it there and holds the result against the reference.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

import tec
from tec import te
from tec.runtime import cuda_exists
from tests.conformance import host_levels

Array = np.ndarray


@dataclass
class Case:
    """One row of the table.

    make() -> (args, schedule_of): args are te tensors (and vars), outputs last; `schedules` maps "cpu"/"gpu" to a function
    that takes (schedule, target). inputs(rng) gives arrays for all args but the outputs; reference(*inputs) the outputs.
    """

    name: str
    make: Callable[[], Program | KernelProgram | ArrayProgram]
    inputs: Callable[[np.random.Generator], list[Any]]
    reference: Callable[..., Any]
    rtol: float = 1e-5
    atol: float = 1e-6
    needs: Callable[[tec.Target], bool] = field(default=lambda target: True)
    kinds: tuple[str, ...] = ("cpu", "gpu")


@dataclass
class Program:
    """A te program with its schedules."""

    args: list[Any]
    outputs: list[Any]
    cpu: Callable[[Any, tec.Target], None] | None = None
    gpu: Callable[[Any, tec.Target], None] | None = None
    schedule: Any = None  # one that is made already, by a template


@dataclass
class Step:
    """A launch of a kernel: `kernel[grid, block](*args)`."""

    kernel: Any
    config: tuple[Any, ...]
    args: tuple[Any, ...]


@dataclass
class KernelProgram:
    """Launches of kernels written as functions: `steps(*inputs, *outputs)`, outputs zero at first. contract: whether products and
    sums may become one rounding."""

    steps: Callable[..., list[Step]]
    contract: bool = True


@dataclass
class ArrayProgram:
    """A function of arrays of `tec.array`, which gives one or several."""

    run: Callable[..., Any]


CASES: dict[str, Case] = {}


def case(
    name: str, inputs: Callable[[np.random.Generator], list[Any]], reference: Callable[..., Any], **options: Any
) -> Callable[[Callable[[], Program]], Callable[[], Program]]:
    """Register a program under `name`."""

    def register(make: Callable[[], Program]) -> Callable[[], Program]:
        assert name not in CASES, name
        CASES[name] = Case(name, make, inputs, reference, **options)
        return make

    return register


def kernel_case(
    name: str, inputs: Callable[[np.random.Generator], list[Any]], reference: Callable[..., Any], **options: Any
) -> Callable[[Callable[[], KernelProgram]], Callable[[], KernelProgram]]:
    """Register a program of kernels under `name`."""

    def register(make: Callable[[], KernelProgram]) -> Callable[[], KernelProgram]:
        assert name not in CASES, name
        CASES[name] = Case(name, make, inputs, reference, **options)
        return make

    return register


def array_case(
    name: str, inputs: Callable[[np.random.Generator], list[Any]], reference: Callable[..., Any], **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function of arrays under `name`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        assert name not in CASES, name
        CASES[name] = Case(name, lambda: ArrayProgram(function), inputs, reference, **options)
        return function

    return register


# ---- schedules that many cases share


def cpu_elementwise(*tensors: Any, lanes: int = 16) -> Callable[[Any, tec.Target], None]:
    """Fuse all axes, split off a vector, run the rest in parallel."""

    def apply(s: Any, target: tec.Target) -> None:
        for t in tensors:
            fused = s[t].fuse(*t.op.axis) if len(t.op.axis) > 1 else t.op.axis[0]
            outer, inner = s[t].split(fused, factor=lanes)
            s[t].vectorize(inner)
            s[t].parallel(outer)

    return apply


def gpu_elementwise(*tensors: Any, threads: int = 64) -> Callable[[Any, tec.Target], None]:
    """Fuse all axes and bind them to blocks and threads."""

    def apply(s: Any, target: tec.Target) -> None:
        for t in tensors:
            bind_all(s, t, threads)

    return apply


def bind_all(s: Any, t: Any, threads: int = 64) -> tuple[Any, Any]:
    """Fuse the data axes of `t` and bind them to blockIdx.x and threadIdx.x."""
    axes = s[t].op.axis
    fused = s[t].fuse(*axes) if len(axes) > 1 else axes[0]
    bx, tx = s[t].split(fused, factor=threads)
    s[t].bind(bx, te.thread_axis("blockIdx.x"))
    s[t].bind(tx, te.thread_axis("threadIdx.x"))
    return bx, tx


# ---- devices

_EMULATED = ("gfx90a", "gfx942", "gfx1100")
# A sample of the table; all with TEC_ALL_CHIPS=1.
OTHER_CHIPS = ("gfx950", "gfx1030", "gfx1151", "gfx1200", "gfx1201", "gfx1250")


def targets() -> dict[str, tuple[str, str]]:
    """Device name -> (target, kind of schedule). "host-..." is this processor with code for another that it can run."""
    table = {
        "interp": ("llvm", "cpu"),
        "interp-gpu": ("rocm -mcpu=gfx942", "gpu"),
        "interp-gpu32": ("rocm -mcpu=gfx1100", "gpu"),
        "cpu": ("llvm", "cpu"),
    }
    for level in host_levels.runnable():
        table[f"host-{level}"] = (f"llvm -mcpu={level}", "cpu")
    for chip in _EMULATED + OTHER_CHIPS:
        table[chip] = (f"rocm -mcpu={chip}", "gpu")
    table["cuda"] = (cuda_target(), "gpu")
    return table


@lru_cache(maxsize=1)
def cuda_target() -> str:
    """The GPU that is there, with all that it has: what defaults choose for Hopper's own instructions runs by itself. sm_90 where there is none."""
    arch = str(tec.cuda(0).arch) if cuda_exists() else "sm_90"
    return f"cuda -arch={arch}a" if arch == "sm_90" and cuda_exists() else f"cuda -arch={arch}"


def device_for(name: str) -> Any:
    """The runtime device for a device name of the table."""
    if name == "cpu" or name.startswith("host-"):
        return tec.cpu(0)
    if name == "cuda":
        return tec.cuda(0)
    return tec.rocm_emu(name, check=os.environ.get("TEC_CHECK", "bounds"))


def rng_for(case: Case) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(case.name.encode()))


def to_host(array: Any) -> Array:
    """float64 or integer view of a result for comparison."""
    a = np.asarray(array)
    return a.astype(np.float64) if a.dtype.kind == "f" or a.dtype.name in ("bfloat16", "float16") else a


def compare(case: Case, got: list[Any], want: list[Any]) -> None:
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        g, w = to_host(g), to_host(w)
        assert g.shape == w.shape, f"output {k}: shape {g.shape}, expected {w.shape}"
        if w.dtype.kind == "f":
            np.testing.assert_allclose(
                g, w, rtol=case.rtol, atol=case.atol, equal_nan=True, err_msg=f"{case.name}, output {k}"
            )
        else:
            np.testing.assert_array_equal(g, w, err_msg=f"{case.name}, output {k}")


def run_case(case: Case, device_name: str) -> None:
    """Build, run and check one case on one device."""
    text, kind = targets()[device_name]
    target = tec.Target(text)
    rng = rng_for(case)
    inputs = case.inputs(rng)
    with np.errstate(invalid="ignore"):  # NaN is some cases' subject
        want = case.reference(*inputs)
    want = list(want) if isinstance(want, (tuple, list)) else [want]
    program = case.make()
    if isinstance(program, ArrayProgram):
        compare(case, run_arrays(program, inputs, device_name, target), want)
        return
    if isinstance(program, KernelProgram):
        if not program.contract:
            target = tec.Target(f"{text} -fast-math=none")
        outs = run_steps(
            program, [*inputs, *[np.zeros(w.shape, w.dtype) for w in map(np.asarray, want)]], device_name, target
        )
        compare(case, outs[len(inputs) :], want)
        return
    with target:
        program = case.make()
        assert isinstance(program, Program)
        s = program.schedule or tec.create_schedule([t.op for t in program.outputs])
        apply = program.cpu if kind == "cpu" else program.gpu
        if apply is not None:
            apply(s, target)
    outs = [np.zeros(w.shape, w.dtype) for w in (np.asarray(w) for w in want)]
    if device_name.startswith("interp"):
        from tec.ir.interp import run

        with target:
            func = next(iter(tec.lower(s, program.args, name=case.name, simple_mode=True)))
        run(func, [*inputs, *outs])
        compare(case, outs, want)
        return
    module = tec.build(s, program.args, target, name=case.name)
    dev = device_for(device_name)
    args = [tec.nd.array(x, dev) if isinstance(x, np.ndarray) else x for x in inputs]
    results = [tec.nd.array(o, dev) for o in outs]
    module(*args, *results)
    compare(case, [r.numpy() for r in results], want)


def run_arrays(program: ArrayProgram, inputs: list[Any], device_name: str, target: tec.Target) -> list[Any]:
    """The results of a function of arrays on a device; on the interpreter, of the graph that its last expression is."""
    from tec.array.program import graph_of
    from tec.array.trace import Trace
    from tec.graph import run_graph

    dev = tec.cpu() if device_name.startswith("interp") else device_for(device_name)
    with target if not target.is_gpu or dev.driver is not None else tec.Target("llvm"):
        made = program.run(*(tec.array.asarray(x, device=dev) for x in inputs))
        made = list(made) if isinstance(made, tuple) else [made]
        pending = [x._node for x in made if x._node.data is None]
        if device_name.startswith("interp") and len(pending) == len(made):
            trace = Trace(pending)
            graph, _ = graph_of(trace.entries, trace.roots, {})
            return run_graph(graph, {v.name: n.data.numpy() for v, n in zip(graph.inputs, trace.leaves)})
        return [x.numpy() for x in made]


def run_steps(program: KernelProgram, arrays: list[Any], device_name: str, target: tec.Target) -> list[Any]:
    """Run the launches on a device, or on the interpreter; the arrays afterwards."""
    if device_name.startswith("interp"):
        for step in program.steps(*arrays):
            interpret(step, target)
        return arrays
    with target:
        dev = device_for(device_name)
        if dev.is_emulated:
            dev = tec.rocm_emu(device_name, check={"bounds", "race", "init"})
        held: dict[int, Any] = {}

        def on_device(x: Any) -> Any:
            if not isinstance(x, np.ndarray):
                return x
            return held.setdefault(id(x), (x, tec.nd.array(x, dev)))[1]

        steps = program.steps(*arrays)
        for step in steps:
            step.kernel[step.config](*[on_device(a) for a in step.args])
        return [on_device(a).numpy() for a in arrays]


def interpret(step: Step, target: tec.Target) -> None:
    """A launch on the interpreter: of the translated loops on a GPU's terms, of the lowered function on a CPU's."""
    from tec.ir.interp import run
    from tec.jit.launching import _configuration
    from tec.jit.specialise import argument_type
    from tec.kernels.translate import translate

    kernel = step.kernel
    launch, grid, _ = _configuration(kernel.__name__, step.config)
    types = [argument_type(a, "x") for a in step.args]
    func = translate(kernel.source, types, launch, target).func
    sizes = dict(zip((f"grid_{a}" for a in "xyz"), grid[: launch.grid_ndim]))
    names = [p.name for p in func.params][: len(step.args)]
    values = dict(zip(names, step.args)) | sizes
    if not target.is_gpu:
        func = next(iter(tec.lower(func, target=target)))
        for p in func.implicit_vars() if hasattr(func, "implicit_vars") else ():
            values.setdefault(p.name, 0)
        for name, a in zip(names, step.args):
            if isinstance(a, np.ndarray):
                values.update({f"{name}_{k}": n for k, n in enumerate(a.shape)})
    run(func, values, check=True, wave=target.wavefront_size if target.is_gpu else 32)
