"""Networks of `baseline_networks` on this machine's CPU beside ONNX Runtime: processor time of one thread each, in turn, as rows of results."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from functools import partial

from benchmarks import baseline_networks
from benchmarks.records import Maker, Record, four_digits
from benchmarks.turns import in_turn

NETWORKS = ("resnet50", "shufflenet", "squeezenet", "alexnet", "bert_layer", "lstm, 100 steps of 256")
ROUNDS = 9


def rows_of(make: Maker, name: str) -> Iterator[Record]:
    import numpy as np
    import onnxruntime as ort

    import tec

    network = baseline_networks.networks()[name]
    model = network.model()
    inputs = baseline_networks.inputs_of(network, model)
    shapes = {k: v.shape for k, v in inputs.items()}
    net = tec.compile(model, "llvm", shapes=shapes, cache=False, progress=lambda *a: None)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    got, want = net.run(inputs), session.run(None, inputs)
    apart = max(float(np.abs(g - w).max() / max(1e-6, np.abs(w).max())) for g, w in zip(got, want))
    if apart > 1e-3:
        raise ValueError(f"differs from ONNX Runtime by {apart:.1e} of the largest value")
    sides = partial(net.run, inputs), partial(session.run, None, inputs)
    mine, theirs = (statistics.median(t) * 1e3 for t in in_turn(*sides, rounds=ROUNDS, clock=time.process_time))
    yield make.clocked(
        name, "processor time", mine, "ms", target="llvm", peer="ONNX Runtime", peer_value=four_digits(theirs), ratio=four_digits(mine / theirs),
        peer_settings=f"{ort.__version__}, one thread, all optimizations; medians of {ROUNDS} in turn",
    )  # fmt: skip


def measure(make: Maker, quick: bool, only: list[str]) -> Iterator[Record]:
    for name in NETWORKS:
        if only and not any(w in name for w in only):
            continue
        start = time.process_time()
        try:
            yield from rows_of(make, name)
        except Exception as e:  # the others are measured
            why = f"{type(e).__name__}: {str(e).splitlines()[0][:200]}"
            yield make.failed(name, "processor time", "ms", why, target="llvm")
        print(f"{name}: {time.process_time() - start:.1f} s of this process", file=sys.stderr, flush=True)
