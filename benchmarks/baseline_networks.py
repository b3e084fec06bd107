"""Twelve networks on five targets, as rows of results that need no device and no download.

For AMD chips the software GPU's time model, beside what the chip's rates allow; for CPUs the clocks that code generation reckons with (`ir/work.py`: what it
decides about threads by, of one core); for all the launches, the instructions in the assembly and a digest of them. On the host's own CPU also processor time of
one thread beside ONNX Runtime's, in turn. Weights are random with fixed seeds, also those of the onnx package's "light" networks, which ship without any.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.records import Maker, Record, four_digits

sys.path.insert(0, str(Path(__file__).resolve().parent))  # benchmarks that are run by their path import each other so

TARGETS = {
    "x86-64-v4": "llvm -mcpu=x86-64-v4",
    "haswell": "llvm -mcpu=haswell",
    "gfx942": "rocm -mcpu=gfx942",
    "gfx1100": "rocm -mcpu=gfx1100",
    "sm_90a": "cuda -arch=sm_90a",
}
QUICK = ("resnet50 float16", "shufflenet", "bert_layer", "decoder, a token")
PAST = 128  # tokens that a decoder's caches hold


@dataclass(frozen=True)
class Network:
    """A model, the sizes of its open dimensions, its precision, and values of inputs that are no random numbers."""

    model: Callable[[], Any]
    sizes: dict[str, int]
    dtype: str | None = None
    inputs: Callable[[], dict[str, Any]] = dict


def light(name: str) -> Any:
    """A network of the onnx package with seeded weights where it makes constants of one value."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    model = onnx.load(str(folder / f"light_{name}.onnx"))
    g, rng = model.graph, np.random.default_rng(0)
    shapes = {t.name: numpy_helper.to_array(t) for t in g.initializer}
    kept = []
    for n in g.node:
        if n.op_type != "ConstantOfShape" or n.input[0] not in shapes:
            kept.append(n)
            continue
        shape = tuple(map(int, shapes[n.input[0]]))
        values = rng.uniform(0.5, 1.5, shape)  # above zero: some are variances
        if len(shape) > 1:
            values = rng.standard_normal(shape) * (2 / np.prod(shape[1:])) ** 0.5
        g.initializer.append(numpy_helper.from_array(values.astype(np.float32), n.output[0]))
    del g.node[:]
    g.node.extend(kept)
    model.ir_version = 8  # in which weights need not be inputs
    inputs = [i for i in g.input if i.name not in shapes]
    del g.input[:]
    g.input.extend(inputs)
    return model


def _decoder(kind: str, tokens: int) -> Network:
    from tests.networks import decoder, genai

    size = {"layers": 2, "hidden": 512, "heads": 8, "kv_heads": 2, "vocabulary": 16000}
    ids = np.random.default_rng(0).integers(0, 16000, (1, tokens))
    if kind == "plain":
        return Network(lambda: decoder.decoder(**size), {}, inputs=lambda: decoder.feeds(ids, PAST))
    return Network(lambda: genai.genai_decoder(**size, bits=4), {}, inputs=lambda: genai.feeds(ids, PAST))


def _encoder() -> Any:
    from encoder import encoder

    return encoder(500, 2, 384)


def _lstm() -> Any:
    from recurrent import layer

    return layer("LSTM", 100, 1, 256, 256, 1)[0]


def networks() -> dict[str, Network]:
    from tools import zoo

    return {
        "resnet50": Network(zoo.resnet50, {}),
        "resnet50 float16": Network(zoo.resnet50, {}, "float16"),
        "shufflenet": Network(lambda: light("shufflenet"), {}),
        "squeezenet": Network(lambda: light("squeezenet"), {}),
        "alexnet": Network(lambda: light("bvlc_alexnet"), {}),
        "inception_v2": Network(lambda: light("inception_v2"), {}),
        "bert_layer": Network(zoo.bert_layer, {}),
        "bert_layer float16": Network(zoo.bert_layer, {}, "float16"),
        "speech encoder float16": Network(_encoder, {}, "float16"),
        "decoder, a prompt of 64": _decoder("plain", 64),
        "decoder, a token": _decoder("gqa", 1),
        "lstm, 100 steps of 256": Network(_lstm, {"steps": 100}),
    }


def inputs_of(network: Network, model: Any) -> dict[str, Any]:
    """An array for each input of a model, with its open dimensions at the network's sizes."""
    given, rng = network.inputs(), np.random.default_rng(1)
    out = {}
    for i in model.graph.input:
        kind = i.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = [
            d.dim_value or network.sizes.get(d.dim_param, PAST if "past" in d.dim_param else 1) for d in kind.shape.dim
        ]
        out[i.name] = given[i.name] if i.name in given else rng.standard_normal(shape).astype(dtype)
    return out


def instructions(asm: str) -> list[str]:
    """The instructions of an assembly text: no comments, directives, declarations or labels."""
    out = []
    for line in asm.splitlines():
        text = line.partition("//")[0].partition(";")[0] if not line.rstrip().endswith(";") else line
        text = text.partition("#")[0].strip()
        if text and not text.startswith((".", "/", "}", "{", ")", "(")) and not text.endswith(":"):
            out.append(text)
    return out


def reckoned_clocks(net: Any, target: Any) -> float:
    """Clocks of one core for a run of a network on a CPU, from the loop IR of its functions, by the count that code generation has."""
    from tec.ir import expr as E
    from tec.ir import work
    from tec.ir.arith import Analyzer
    from tec.runtime.plans.steps import Call
    from tests.ir.parser import parse_func

    total = 0
    for name, times in Counter(s.function for s in net.plan.steps if isinstance(s, Call)).items():
        body = parse_func(net.module.get_source("ir", name)).body
        clocks = Analyzer().simplify(work.clocks(body, lambda v: False, target.vector_bytes))
        if not isinstance(clocks, E.IntImm):
            raise ValueError(f"{name}: clocks depend on {clocks}")
        total += times * clocks.value
    return total


def limit_us(net: Any, target: Any, dtype: str) -> float:
    """Microseconds that the chip's rates allow: of each call the larger of its multiply-adds at the peak clock and its operands and results, once each, at memory's rate."""
    from tec.runtime.plans.steps import Call
    from tec.target import level_gbps

    machine = target.machine
    macs_a_us, gbps = machine.units * machine.macs(dtype) * machine.clock_mhz, level_gbps(machine, "memory")
    total = 0.0
    calls = Counter(s.function for s in net.plan.steps if isinstance(s, Call))
    for step in net.plan.steps:
        if isinstance(step, Call):
            moved = sum(net.plan.values[v].nbytes({}) for v in dict.fromkeys(step.values))
            work = net.report.function_flops.get(step.function, 0) / 2 / calls[step.function]
            total += max(work / macs_a_us, moved / gbps / 1e3)
    return total


def _launches(net: Any) -> int:
    """Kernel launches of a run on a GPU."""
    from tec.runtime.plans.steps import Call

    def launches(steps: list[Any]) -> int:
        return sum(1 if s["op"] == "launch" else launches(s.get("body", [])) for s in steps)

    specs = net.module.specs
    return sum(launches(specs[s.function].get("program") or []) for s in net.plan.steps if isinstance(s, Call))


def rows_of(make: Maker, name: str, network: Network, label: str, model: Any) -> Iterator[Record]:
    """The rows of one network for one target."""
    import tec
    from tec.report.measure import kernel_times

    target, inputs = tec.Target(TARGETS[label]), inputs_of(network, model)
    shapes = {k: v.shape for k, v in inputs.items()}
    net = tec.compile(model, target, dtype=network.dtype, shapes=shapes, cache=False, progress=lambda *a: None)
    code = instructions(net.get_source("asm"))
    where: dict[str, Any] = {"target": label}
    if target.kind == "rocm":
        kernels = kernel_times(net, inputs, tec.rocm_emu(target.mcpu), run=False)
        us, limit = sum(k.us for k in kernels), limit_us(net, target, network.dtype or "float32")
        yield make.modelled(
            name, "time", us, "us", peer="the chip's rates", peer_value=four_digits(limit), ratio=four_digits(us / limit),
            peer_settings="peak clock, memory's rate, no launches", **where,
        )  # fmt: skip
        yield make.counted(name, "launches", sum(k.calls for k in kernels), "kernels", **where)
    elif target.kind == "llvm":
        yield make.counted(name, "reckoned clocks", reckoned_clocks(net, target), "clocks of one core", **where)
    else:
        yield make.counted(name, "launches", _launches(net), "kernels", **where)
    yield make.counted(name, "instructions", len(code), "lines of assembly", band=None, **where)
    yield make.digest(name, "assembly", hashlib.sha256("\n".join(code).encode()).hexdigest()[:16], **where)


def measure(make: Maker, quick: bool, only: list[str]) -> Iterator[Record]:
    """The rows of all networks, or of the quick ones, or of those whose "name, target" holds one of the words."""
    for name, network in networks().items():
        labels = [t for t in TARGETS if not only or any(w in f"{name}, {t}" for w in only)]
        if not labels or (quick and name not in QUICK):
            continue
        model = network.model()
        for label in labels:
            start = time.process_time()
            try:
                yield from rows_of(make, name, network, label, model)
            except Exception as e:  # a network that no longer compiles is a result, and the others are measured
                yield make.failed(
                    name,
                    "assembly",
                    "sha256",
                    f"{type(e).__name__}: {str(e).splitlines()[0][:200]}",
                    target=label,
                    better="same",
                )
            print(f"{name}, {label}: {time.process_time() - start:.1f} s of this process", file=sys.stderr, flush=True)
