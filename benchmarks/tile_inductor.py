"""TorchInductor's kernels through `tec.tile.from_triton` on the NVIDIA GPU at hand: of networks that torch.compile takes, each kernel once, beside Triton's results.

    python -m benchmarks.tile_inductor [SECONDS]

A kernel's first launch runs by Triton; the same source, arguments (copies of their memory), grid and configuration then run by tec, and all arrays are compared.
JSON lines: a row a network with what was seen so far, and one for each kernel that was wrong or refused.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

RTOL, ATOL = 1e-2, 1e-2


def copied(t: Any) -> Any:
    """A tensor over a copy of its memory, at the same place in it."""
    import torch

    storage = t.untyped_storage().clone()
    return torch.empty(0, dtype=t.dtype, device=t.device).set_(storage, t.storage_offset(), t.size(), t.stride())


class Watch:
    """Launches of kernels that torch.compile made, each kernel's first one run again by tec."""

    def __init__(self) -> None:
        self.right, self.seen = 0, set[str]()

    def start(self) -> None:
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner

        run = CachingAutotuner.run
        watch = self

        def watched(self: Any, *args: Any, stream: Any, benchmark_run: bool = False, **named: Any) -> Any:
            text = self.fn.src
            if benchmark_run or text in watch.seen:
                return run(self, *args, stream=stream, benchmark_run=benchmark_run, **named)
            import torch

            mine = [copied(a) if isinstance(a, torch.Tensor) else a for a in args]
            made = run(self, *args, stream=stream, **named)
            watch.seen.add(text)
            try:
                watch.check(self, mine, args)
            except Exception as e:
                said = f"{type(e).__name__}: {str(e)[:300]}"
                print(json.dumps({"kernel": self.fn.__name__, "refused": said}), flush=True)
            return made

        CachingAutotuner.run = watched

    def check(self, tuner: Any, mine: list[Any], theirs: tuple[Any, ...]) -> None:
        """Run a kernel by tec on `mine`, and compare."""
        import torch
        from torch._inductor.runtime.triton_heuristics import GridExpr

        import tec.tile

        config = tuner.launchers[0].config
        meta, all_names = tuner.triton_meta, list(tuner.fn.arg_names)
        names = [n for n, t in meta["signature"].items() if t != "constexpr" and n not in config.kwargs]
        grid = GridExpr.from_meta(tuner.inductor_meta, config).eval_slow({**dict(zip(names, mine)), **config.kwargs})
        fn = tuner.fn if tuner.fn.fn is not None else tuner._reload_kernel().fn  # compiled in another process
        kernel = tec.tile.from_triton(fn)
        constants = {}
        for k, v in meta.get("constants", {}).items():  # by name, or by place
            place = k[0] if isinstance(k, tuple) else k
            constants[all_names[place] if isinstance(place, int) else place] = v
        given = {**constants, **dict(zip(names, mine)), **config.kwargs}
        kernel[grid](**given, num_warps=config.num_warps, num_stages=config.num_stages)
        torch.cuda.synchronize()
        for n, a, b in zip(names, mine, theirs):
            if isinstance(a, torch.Tensor) and not torch.allclose(
                a.float(), b.float(), rtol=RTOL, atol=ATOL, equal_nan=True
            ):
                worst = float((a.float() - b.float()).abs().nan_to_num().max())
                print(json.dumps({"kernel": kernel.__name__, "wrong": n, "difference": worst}), flush=True)
                return
        self.right += 1


def networks() -> Iterator[tuple[str, Callable[[], tuple[Any, tuple[Any, ...], bool]]]]:
    """Networks with inputs, and whether they are trained a step."""
    import torch
    import torchvision.models as V
    import transformers as T

    image = (torch.randn(4, 3, 96, 96, device="cuda"),)
    ids = torch.randint(0, 1000, (2, 64), device="cuda")
    small = {
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "vocab_size": 1000,
    }

    def of(config: Any, model: Any) -> Any:
        return model(config).cuda()

    yield "resnet18, trained", lambda: (V.resnet18().cuda(), image, True)
    yield "llama", lambda: (of(T.LlamaConfig(**small), T.LlamaModel), (ids,), False)
    yield "bert, trained", lambda: (of(T.BertConfig(**small), T.BertModel), (ids,), True)
    yield "mobilenet_v3_small", lambda: (V.mobilenet_v3_small().cuda().eval(), image, False)
    yield "vit_b_16", lambda: (V.VisionTransformer(96, 16, 2, 4, 64, 128).cuda(), image, True)
    yield (
        "gpt2",
        lambda: (of(T.GPT2Config(n_embd=128, n_layer=2, n_head=4, vocab_size=1000), T.GPT2Model), (ids,), False),
    )
    yield "swin_t", lambda: (V.swin_t().cuda().eval(), image, False)
    yield "convnext_tiny, trained", lambda: (V.convnext_tiny().cuda(), image, True)
    yield "efficientnet_b0", lambda: (V.efficientnet_b0().cuda(), image, True)
    yield "shufflenet", lambda: (V.shufflenet_v2_x0_5().cuda().eval(), image, False)
    yield "squeezenet", lambda: (V.squeezenet1_1().cuda().eval(), image, False)
    yield "densenet121", lambda: (V.densenet121().cuda().eval(), image, False)


def main(words: list[str]) -> None:
    import torch

    watch = Watch()
    watch.start()
    until = time.monotonic() + float(words[0] if words else 1e9)
    for name, make in networks():
        if time.monotonic() > until:
            break
        try:
            model, inputs, trained = make()
            out = torch.compile(model)(*inputs)
            out = next(iter(out.values())) if isinstance(out, dict) else out
            if trained:
                out.float().square().mean().backward()
            torch.cuda.synchronize()
        except Exception as e:
            print(json.dumps({"network": name, "failed": f"{type(e).__name__}: {str(e)[:300]}"}), flush=True)
        print(json.dumps({"network": name, "kernels": len(watch.seen), "right": watch.right}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
