"""Decoding: a Llama-like decoder token by token with a growing cache, tec's executor against ONNX Runtime.

    python -m benchmarks.decode [--model plain|gqa] [--bits 4] [--accuracy 0] [--layers 8] [--tokens 48] [--prompt 128] [--target llvm]

Random weights, float32. Both run in blocks of tokens in turn, with the same tokens at the same lengths; ONNX Runtime is handed its caches from output to input as
arrays of its own (IOBinding), which is its quick way. --model gqa: as onnxruntime-genai builds them, with MatMulNBits. Prints medians of the time of a token, of a prompt, their ratios, and the largest difference of the
logits.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np

import tec
from tests.networks import decoder, genai

REST = 0.3  # seconds before a side's turn: ONNX Runtime's threads spin for a while after their last run, on the cores that the other needs


class OnnxRuntime:
    """A session with its caches bound from output to input."""

    def __init__(self, model: Any, threads: int):
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self.ort = ort
        self.session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self.names = [o.name for o in self.session.get_outputs()]
        self.shapes = {i.name: i.shape for i in self.session.get_inputs() if i.name.startswith("past")}
        self.reset()

    def reset(self) -> None:
        value = self.ort.OrtValue.ortvalue_from_numpy
        self.caches = {n: value(np.zeros((1, s[1], 0, s[3]), np.float32)) for n, s in self.shapes.items()}

    def run(self, inputs: dict[str, Any]) -> Any:
        binding = self.session.io_binding()
        for name, x in inputs.items():
            binding.bind_cpu_input(name, x)
        for name, cache in self.caches.items():
            binding.bind_ortvalue_input(name, cache)
        for name in self.names:
            binding.bind_output(name)
        self.session.run_with_iobinding(binding)
        out = dict(zip(self.names, binding.get_outputs()))
        self.caches = {n: out[n.replace("past_key_values", "present")] for n in self.caches}
        return out["logits"].numpy()


class Tec:
    """An executor."""

    def __init__(self, model: Any, target: str):
        start = time.perf_counter()
        self.net = tec.compile(model, target=target, progress=lambda *a: None)
        self.compile_s = time.perf_counter() - start
        self.executor = self.net.executor(capacity=256)
        self.reset = self.executor.reset

    def run(self, inputs: dict[str, Any]) -> Any:
        return self.executor.run(inputs)[0].numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=48, help="after the prompt")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--target", default="llvm")
    parser.add_argument(
        "--model", choices=("plain", "gqa"), default="plain", help="as torch exports it, or as onnxruntime-genai does"
    )
    parser.add_argument("--bits", type=int, default=4, help="of the weights of gqa; 0 for float32")
    parser.add_argument(
        "--accuracy", type=int, default=0, help="accuracy_level of MatMulNBits: 4 lets ONNX Runtime round x to bytes"
    )
    args = parser.parse_args()
    size = {"layers": args.layers, "hidden": 512, "heads": 8, "kv_heads": 2, "vocabulary": 16000}
    if args.model == "plain":
        model, feeds = decoder.decoder(**size), decoder.feeds
    else:
        model = genai.genai_decoder(**size, bits=args.bits, accuracy_level=args.accuracy)
        feeds = genai.feeds
    ours, theirs = Tec(model, args.target), OnnxRuntime(model, args.threads)
    ids = np.random.default_rng(0).integers(0, 16000, (1, args.prompt + args.tokens))
    took: dict[str, dict[str, list[float]]] = {k: {"prompt": [], "token": []} for k in ("tec", "onnxruntime")}
    worst = 0.0
    for _ in range(args.rounds + 1):  # the first is for warming up
        results: dict[str, list[Any]] = {}
        for name, runner in (("tec", ours), ("onnxruntime", theirs)):
            runner.reset()
            time.sleep(REST)
            at, results[name] = 0, []
            for n in (args.prompt, *[1] * args.tokens):
                f = feeds(ids[:, at : at + n], at)
                start = time.perf_counter()
                out = runner.run(f)
                took[name]["prompt" if n > 1 else "token"].append(time.perf_counter() - start)
                results[name].append(out[:, -1])
                at += n
            # ONNX Runtime's threads spin for a while after a run, and would take a core from what comes next.
            time.sleep(0.2)
        worst = max(worst, *(float(np.abs(a - b).max()) for a, b in zip(*results.values(), strict=True)))
    for kind, count in (("prompt", 1), ("token", args.tokens)):
        a, b = (statistics.median(took[k][kind][count:]) * 1e3 for k in ("tec", "onnxruntime"))
        print(f"{kind}: tec {a:.2f} ms, onnxruntime {b:.2f} ms, ratio {a / b:.2f}")
    print(
        f"largest difference of the logits {worst:.1e}; {len(ours.net.plan.steps)} steps, compiled in {ours.compile_s:.1f} s"
    )


if __name__ == "__main__":
    main()
