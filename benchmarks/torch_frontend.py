"""PyTorch models on the CPU: torch eager, inductor and tec in turn, two threads each. One JSON object a line; times in ms, medians.

    python benchmarks/torch_frontend.py [names...]               resnet18 mobilenet_v3_small bert gpt2 llama; --fast skips inductor
    python benchmarks/torch_frontend.py compile [names...]       seconds from the module to its first result alone, each in a process of its own

Needs torch, torchvision, transformers and, for inductor, g++. Weights are random, the sizes those of the usual models: pictures of 224, 128 tokens, BERT base, GPT-2
small, a Llama of 8 layers of 768. "compile" is from the module to the first result, tracing included, torch's own modules imported, without caches on disk;
"cpu" are the processor's seconds of the process and of all that it starts, which a busy machine does not change.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
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
    vision("resnet18")  # transformers imports torchvision
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


WAYS = {
    "tec": lambda model, args: tec.compile(model, "llvm", args=args, cache=False),
    "tec_backend": lambda model, args: torch.compile(model, backend="tec"),
    "inductor": lambda model, args: torch.compile(model),
}


def cpu_seconds():
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def compile_one(side, name):
    """Wall and processor seconds to the first result, in this process, which does nothing else."""
    from tec.llvmworker import client

    torch.set_num_threads(1)
    model, args = MODELS[name](name)
    model.eval()
    with torch.no_grad():
        model(*args)
        start, before = time.perf_counter(), cpu_seconds()
        WAYS[side](model, args)(*args)
        wall = time.perf_counter() - start
    client.POOL.close()  # what has ended is counted
    print(
        json.dumps({"name": name, "side": side, "wall_s": round(wall, 2), "cpu_s": round(cpu_seconds() - before, 2)}),
        flush=True,
    )


def compile_each(names, with_inductor):
    for name in names:
        for side in [s for s in WAYS if with_inductor or s != "inductor"]:
            with tempfile.TemporaryDirectory() as folder:
                # Inductor in one process: a pool of its own is not counted.
                env = {
                    **os.environ,
                    "TEC_CACHE_DIR": folder,
                    "TORCHINDUCTOR_CACHE_DIR": folder,
                    "TORCHINDUCTOR_COMPILE_THREADS": "1",
                }
                subprocess.run([sys.executable, __file__, "one", side, name], env=env, check=True)


def build(name, with_inductor):
    """(the sides by name, the arguments, seconds to the first result, errors against eager)."""
    torch.manual_seed(0)
    model, args = MODELS[name](name)
    model.eval()
    sides, compile_s, errors = {"eager": model}, {}, {}
    want = first(model(*args))
    for side in [s for s in WAYS if with_inductor or s != "inductor"]:
        torch._dynamo.reset()
        start = time.perf_counter()
        sides[side] = WAYS[side](model, args)
        got = first(sides[side](*args))
        compile_s[side] = time.perf_counter() - start
        errors[side] = float((got - want).abs().max() / want.abs().max())
    return sides, args, compile_s, errors


def turns(sides, args):
    """Medians in ms, of interleaved calls."""
    times = {side: [] for side in sides}
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times["eager"]) < 5:
        for side, f in sides.items():
            start = time.perf_counter()
            f(*args)
            times[side].append(time.perf_counter() - start)
    return {side: round(statistics.median(t) * 1e3, 3) for side, t in times.items()}


def report(name, ms, compile_s, errors):
    line = {"name": name, "ms": ms, "compile_s": {k: round(v, 2) for k, v in compile_s.items()}, "error": errors}
    for other in ("eager", "inductor"):
        if other in ms:
            line[f"speed_to_{other}"] = round(ms[other] / ms["tec"], 3)
    if "inductor" in compile_s:
        line["compile_to_inductor"] = round(compile_s["inductor"] / compile_s["tec"], 2)
    print(json.dumps(line), flush=True)


def main():
    torch.set_num_threads(THREADS)
    words = [a for a in sys.argv[1:] if not a.startswith("-")]
    if words[:1] == ["one"]:
        compile_one(*words[1:])
        return
    if words[:1] == ["compile"]:
        compile_each(words[1:] or list(MODELS), "--fast" not in sys.argv)
        return
    names = words or list(MODELS)
    with torch.no_grad():
        for name in names:
            sides, args, compile_s, errors = build(name, "--fast" not in sys.argv)
            report(name, turns(sides, args), compile_s, errors)


if __name__ == "__main__":
    main()
