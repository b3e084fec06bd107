"""Whole networks on the CPU: tec and ONNX Runtime, two threads each, in blocks of runs with its threads spinning and run by run without. One JSON object
a line; times in ms, medians.

python benchmarks/networks.py [names[:dtype]...]       networks of tools/zoo.py; --compile also times compilation; with a dtype (bfloat16) against tec's
                                                       own float32
python benchmarks/networks.py --model [-mcpu=gfx942] [names[:dtype]...]
                                                       instead: microseconds by the software GPU's time model, whole and the ten slowest
                                                       kernels of each network
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from turns import REST_S, in_turn, line

import tec
from tools import zoo

NETWORKS = ("resnet50", "mobilenet_v2", "squeezenet", "bert_layer")
SHAPES = {"bert_layer": (1, 128, 768)}
RUNS = 25
BLOCKS = 6  # of each side, where threads may spin: RUNS runs, and a rest in which the other side's threads go to sleep


def race(name: str, spinning: bool) -> None:
    """Runs of one network, of both sides in turn."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    if not spinning:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    path = str(zoo.get(name))
    session = ort.InferenceSession(path, options)
    x = {"input": np.random.default_rng(0).standard_normal(SHAPES.get(name, (1, 3, 224, 224))).astype(np.float32)}
    net = tec.compile(path, target="llvm")
    (want,), (got,) = session.run(None, x), net.run(x)
    error = float(np.abs(got - want).max() / np.abs(want).max())
    sides = partial(net.run, x), partial(session.run, None, x)
    # In turn where neither keeps a core from the other; else in blocks, each side with its threads spinning as they like.
    taken = in_turn(*sides, rounds=BLOCKS, block=RUNS, rest=REST_S) if spinning else in_turn(*sides, rounds=RUNS)
    mine, theirs = (statistics.median(t) * 1e3 for t in taken)
    peer = "ONNX Runtime" if spinning else "ONNX Runtime, threads not spinning"
    line(name, mine, "ms", peer, theirs, max_relative_error=float(f"{error:.1e}"))


def narrow(name: str, dtype: str) -> None:
    """A network in 16 bits against the same in float32, both tec's, in turn."""
    path = str(zoo.get(name))
    x = {"input": np.random.default_rng(0).standard_normal(SHAPES.get(name, (1, 3, 224, 224))).astype(np.float32)}
    nets = {d: tec.compile(path, target="llvm", dtype=d) for d in (dtype, "float32")}
    (got,), (want,) = (net.run(x) for net in nets.values())
    mine, theirs = (
        statistics.median(t) * 1e3 for t in in_turn(*(partial(n.run, x) for n in nets.values()), rounds=RUNS)
    )
    error = float(np.abs(got - want).max() / np.abs(want).max())
    line(f"{name}, {dtype}", mine, "ms", "tec, float32", theirs, max_relative_error=float(f"{error:.1e}"))


def compile_times(name: str) -> None:
    """Cold, in a fresh process, and again from the cache."""
    goals = {("resnet50", "llvm"): 8.0, ("resnet50", "rocm -mcpu=gfx942"): 12.0}
    for target in ("llvm", "rocm -mcpu=gfx942"):
        code = (
            "import sys, time, json, resource; sys.path.insert(0, sys.argv[3]); import tec; from tools import zoo\n"
            "path = str(zoo.get(sys.argv[1])); start = time.perf_counter(); tec.compile(path, target=sys.argv[2])\n"
            "print(json.dumps([time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))"
        )
        root = str(Path(__file__).resolve().parent.parent)
        import tempfile

        with tempfile.TemporaryDirectory() as cache:
            env = {**os.environ, "TEC_CACHE_DIR": cache}
            for what in ("cold", "from the cache"):
                done = subprocess.run(
                    [sys.executable, "-c", code, name, target, root],
                    env=env,
                    capture_output=True,
                    text=True,
                    check=True,
                )
                seconds, peak = json.loads(done.stdout.splitlines()[-1])
                goal = goals.get((name, target), 12.0) if what == "cold" else 1.0
                line(f"compile {name}, {target}, {what}", seconds, "s", "goal", goal, peak_mb=round(peak))


MODELLED = ("resnet50", "resnet50:float16", "mobilenet_v2", "minilm", "minilm:float16")


def modelled(name: str, mcpu: str) -> None:
    """One run on the software GPU: the whole network, then its slowest kernels, in microseconds of the time model."""
    from tec.report.measure import kernel_times

    name, _, dtype = name.partition(":")
    net = tec.compile(str(zoo.get(name)), target=f"rocm -mcpu={mcpu}", dtype=dtype or None)
    rng = np.random.default_rng(0)
    inputs = {
        i["name"]: rng.standard_normal(i["shape"]).astype(i["dtype"]) if "float" in i["dtype"] else np.ones(i["shape"], i["dtype"])
        for i in net.inputs
    }  # fmt: skip
    kernels = kernel_times(net, inputs, tec.rocm_emu(mcpu), run=False)
    label = f"{name}{', ' + dtype if dtype else ''}, {mcpu}"
    total = sum(k.us for k in kernels)
    flops = net.report.function_flops

    def row(what: str, us: float, **more: object) -> None:
        line(f"{label}: {what}", us, "us, modelled", **more)

    row("whole", total, launches=sum(k.calls for k in kernels), kernels=len(kernels), flops=net.report.flops)
    for k in kernels[:10]:
        row(
            k.name, k.us, calls=k.calls, share=round(k.us / total, 3), limit=k.limit, flops=k.calls * flops.get(k.name.rpartition("_kernel")[0], 0),
            line_mb=round(k.counters["line_bytes"] / 1e6, 2), useful_mb=round(k.counters["global_bytes"] / 1e6, 2),
            lds_conflicts=round(k.counters["conflict_clocks"] / max(1, k.counters["lds_clocks"]), 3),
        )  # fmt: skip


def main() -> None:
    if "--model" in sys.argv:
        mcpu = next((a.partition("=")[2] for a in sys.argv[1:] if a.startswith("-mcpu=")), "gfx942")
        for name in [a for a in sys.argv[1:] if not a.startswith("-")] or MODELLED:
            modelled(name, mcpu)
        return
    names = [a for a in sys.argv[1:] if not a.startswith("-")] or NETWORKS
    for name, _, dtype in (n.partition(":") for n in names):
        if dtype:
            narrow(name, dtype)
            continue
        race(name, True)
        race(name, False)
    if "--compile" in sys.argv:
        compile_times("resnet50")
    line("peak memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "MB")


if __name__ == "__main__":
    main()
