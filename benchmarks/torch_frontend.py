"""PyTorch models on the CPU: torch eager, inductor and tec in turn, two threads each. One JSON object a line; times in ms, medians.

    python benchmarks/torch_frontend.py [names...]      resnet18 mobilenet_v3_small bert gpt2 llama; --fast skips inductor

Needs torch, torchvision, transformers and, for inductor, g++. Weights are random, the sizes those of the usual models: pictures of 224, 128 tokens, BERT base, GPT-2
small, a Llama of 8 layers of 768. "compile" is seconds from the module to the first result, tracing included, without caches on disk.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time

os.environ.setdefault("TEC_CACHE_DIR", tempfile.mkdtemp())
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp())

import torch

import tec

THREADS = 2
SECONDS = 6.0  # of turns: as many as fit, 5 at the least


def vision(name):
    try:
        import torchvision
    except RuntimeError:  # a wheel for another build of torch, whose C++ operators are missing: the models need none
        library = torch.library.Library("torchvision", "DEF")
        for op in ("nms", "qnms"):
            library.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision

    return getattr(torchvision.models, name)(weights=None), (torch.randn(1, 3, 224, 224),)


def text(name):
    import transformers as hf

    make = {
        "bert": lambda: hf.BertModel(hf.BertConfig()),
        "gpt2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(use_cache=False)),
        "llama": lambda: hf.LlamaForCausalLM(
            hf.LlamaConfig(
                vocab_size=8192,
                hidden_size=768,
                num_hidden_layers=8,
                num_attention_heads=12,
                num_key_value_heads=4,
                intermediate_size=2048,
                use_cache=False,
            )
        ),
    }
    return make[name](), (torch.randint(1, 8000, (1, 128)),)


MODELS = {"resnet18": vision, "mobilenet_v3_small": vision, "bert": text, "gpt2": text, "llama": text}


def first(out):
    return next(t for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor))


def timed(f):
    start = time.perf_counter()
    result = f()
    return result, time.perf_counter() - start


def race(name, with_inductor):
    torch.manual_seed(0)
    model, args = MODELS[name](name)
    model.eval()
    sides, compile_s, errors = {"eager": model}, {}, {}
    want = first(model(*args))

    def built(side, make):
        def go():
            f = make()
            return f, first(f(*args))

        (sides[side], got), compile_s[side] = timed(go)
        errors[side] = float((got - want).abs().max() / want.abs().max())

    built("tec", lambda: tec.compile(model, "llvm", args=args))
    built("tec_backend", lambda: torch.compile(model, backend="tec"))
    if with_inductor:
        torch._dynamo.reset()
        built("inductor", lambda: torch.compile(model))
    times = {side: [] for side in sides}
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times["eager"]) < 5:
        for side, f in sides.items():
            times[side].append(timed(lambda f=f: f(*args))[1])
    ms = {side: round(statistics.median(t) * 1e3, 3) for side, t in times.items()}
    line = {
        "name": name,
        "ms": ms,
        "compile_s": {k: round(v, 2) for k, v in compile_s.items()},
        "error": errors,
        "turns": len(times["eager"]),
    }
    if with_inductor:
        line |= {
            "speed_to_inductor": round(ms["inductor"] / ms["tec"], 3),
            "compile_to_inductor": round(compile_s["inductor"] / compile_s["tec"], 2),
        }
    print(json.dumps(line | {"speed_to_eager": round(ms["eager"] / ms["tec"], 3)}), flush=True)


def main():
    torch.set_num_threads(THREADS)
    names = [a for a in sys.argv[1:] if not a.startswith("-")] or list(MODELS)
    with torch.no_grad():
        for name in names:
            race(name, "--fast" not in sys.argv)


if __name__ == "__main__":
    main()
