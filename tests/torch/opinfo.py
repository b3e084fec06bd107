"""torch's own samples of each operator (OpInfo), through the frontend: counts of what passes, is left to torch, or is wrong.

    python -m tests.torch.opinfo [name ...]      all operators, or some; prints a line for each that is wrong, and the counts

A sample is a call with tensors and arguments. It is traced to core ATen, converted, and run by the reference evaluation of graphs in NumPy; every
`COMPILED`-th is compiled and run on the CPU too. What torch itself decomposes to operators that tec lacks is counted as left to torch, with their names.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import torch
from tec_torch.every import operators
from tec_torch.export import decompositions
from tec_torch.importer import convert
from tec_torch.types import array_of
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import tec
from tec.errors import InternalError
from tec.graph import run_graph

COMPILED = 8  # of so many samples one is compiled
SAMPLES = 8  # of each operator and type, evenly among torch's
DTYPES = (torch.float32, torch.int64, torch.bool)
FIRST = ("topk", "sort", "kthvalue")  # of equals torch picks any: their values alone are compared
# Whose elements mean nothing.
UNSET = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted")
TABLE = dict(decompositions().items())


def traced(op, leaves, spec, tensors):
    """(the graph of a sample's call in core ATen, with its tensors as placeholders; what torch gives). The results are a list of tensors."""

    def call(*given):
        rest = iter(given)
        args, kwargs = pytree.tree_unflatten([next(rest) if isinstance(x, torch.Tensor) else x for x in leaves], spec)
        return tensors_of(op(*args, **kwargs))

    with torch.no_grad():
        want = call(*[t.clone() for t in tensors])
        graph = make_fx(call, decomposition_table=TABLE, tracing_mode="fake", pre_dispatch=True)(
            *[t.clone() for t in tensors]
        )
    return graph, want


@dataclass
class Counts:
    passed: int = 0
    compiled: int = 0
    left: Counter = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def samples_of(info, dtype):
    try:
        found = list(info.sample_inputs("cpu", dtype, requires_grad=False))
    except Exception:  # torch has none of that type
        return []
    step = max(len(found) // SAMPLES, 1)
    return found[::step][:SAMPLES]


def tensors_of(x):
    return [t for t in pytree.tree_leaves(x) if isinstance(t, torch.Tensor)]


def check(info, dtype, counts, number):
    for k, sample in enumerate(samples_of(info, dtype)):
        leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
        if not tensors or any(t.dtype not in (*DTYPES, torch.float64, torch.int32) for t in tensors):
            continue
        try:
            graph, want = traced(info.op, leaves, spec, tensors)
        except Exception:  # torch does not trace it
            counts.left["not traced"] += 1
            continue
        made = convert(graph.graph, collect=True)
        if made.failed:
            counts.left.update({e.message.splitlines()[0][:90] for e in made.failed.values()})
            bad = [e for e in made.failed.values() if isinstance(e, InternalError) or "torch's is" in e.message]
            if bad:
                counts.wrong.append(f"{info.name} {dtype} sample {k}: {bad[0].message[:200]}")
            continue
        named = dict(zip([n.name for n in graph.graph.nodes if n.op == "placeholder"], tensors))
        feeds = {v.name: array_of(named[n]) for n, v in zip(made.inputs, made.graph.inputs)}
        try:
            if info.name in FIRST:
                made.outputs, want = made.outputs[:1], want[:1]
            compare(made, run_graph(made.graph, feeds), want, named)
            counts.passed += 1
            if (number + k) % COMPILED == 0 and made.graph.nodes:
                compare(made, tec.compile(made.graph, "llvm").run(feeds), want, named)
                counts.compiled += 1
        except Exception as error:
            text = " ".join(str(error).split())[:300]
            counts.wrong.append(f"{info.name} {dtype} sample {k}: {type(error).__name__} {text}")


def compare(made, got, want, named):
    have = [named[o.name] if hasattr(o, "name") else torch.from_numpy(np.array(got[o[1]])) for o in made.outputs]
    assert len(have) == len(want), f"{len(have)} outputs, torch gives {len(want)}"
    for a, b in zip(have, want):
        assert a.dtype == b.dtype, f"{a.dtype}, torch's is {b.dtype}"
        torch.testing.assert_close(a, b.detach(), rtol=2e-4, atol=2e-5, equal_nan=True)


def supported(info) -> bool:
    """Whether the operator is one that tec converts, under torch's name or ATen's."""
    if "sparse" in info.name or info.name in UNSET:
        return False
    names = {name.split(".")[1] for name in operators() if name.startswith("aten.")}
    own = {info.name.split(".")[-1], info.aten_name, *(a.name for a in info.aliases)}
    return bool(own & names) or info.name.replace("nn.functional.", "") in names


def run(names=()):
    """Yields (operator, Counts) of the operators of these names, of all that tec converts without."""
    torch.manual_seed(0)
    warnings.filterwarnings("ignore")
    number = 0
    for info in op_db:
        if (names and info.name not in names) or (not names and not supported(info)):
            continue
        counts = Counts()
        for dtype in DTYPES:
            if dtype in info.dtypes and (info.name, dtype) != ("argsort", torch.bool):  # of equals it picks any
                number += 1
                check(info, dtype, counts, number)
        yield f"{info.name}{info.variant_test_name and '.' + info.variant_test_name}", counts


def main():
    found: dict[str, Counts] = {}
    for name, c in run(sys.argv[1:]):
        found[name] = c
        for line in c.wrong[:3]:
            print("WRONG", line, flush=True)
        if c.left:
            print("left to torch" if not c.passed else "left in part", name, dict(c.left.most_common(3)), flush=True)
    total = sum(c.passed for c in found.values())
    print(
        f"{len(operators())} conversions; of {len(found)} operators of OpInfo {sum(bool(c.passed) and not c.wrong for c in found.values())} pass all samples that "
        f"are converted, {sum(bool(c.wrong) for c in found.values())} have a wrong one; {total} samples pass, {sum(c.compiled for c in found.values())} of them "
        f"compiled, {sum(len(c.wrong) for c in found.values())} are wrong, {sum(sum(c.left.values()) for c in found.values())} reasons to leave one to torch"
    )


if __name__ == "__main__":
    main()
