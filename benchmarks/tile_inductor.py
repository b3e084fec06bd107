"""TorchInductor's kernels through `tec.tile.from_triton`: of networks that torch.compile takes (`inductor_networks`).

    python -m benchmarks.tile_inductor [cuda|cpu|CHIP] [SECONDS] [NETWORK...]

On an NVIDIA GPU ("cuda", the default) a kernel's first launch runs by Triton; the same source, arguments (copies of their memory), grid and configuration then run by
tec, and all arrays are compared. Elsewhere inductor writes its kernels for Triton's back end of CPUs, tec alone runs them, on the CPU or on an AMD chip in software, and
what a network computes (of one that is trained, its gradients too) is compared with eager PyTorch's.
JSON lines: a row a network with what was seen so far, and one for each kernel that was wrong or refused.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from benchmarks.inductor_networks import networks

RTOL, ATOL = 1e-2, 1e-2


def copied(args: Any) -> list[Any]:
    """Arguments whose tensors are over copies of their memory, at the same places in it; those that share memory share the copy."""
    import torch

    storages: dict[int, Any] = {}

    def one(t: Any) -> Any:
        if not isinstance(t, torch.Tensor):
            return t
        memory = t.untyped_storage()
        storage = storages.setdefault(memory.data_ptr(), memory.clone())
        return torch.empty(0, dtype=t.dtype, device=t.device).set_(storage, t.storage_offset(), t.size(), t.stride())

    return list(map(one, args))


def run_time_names(tuner: Any, config: Any) -> list[str]:
    """A kernel's parameters that a launch of inductor's passes."""
    signature = tuner.triton_meta["signature"].items()
    return [n for n, t in signature if t != "constexpr" and n not in config.kwargs]


def given_to(tuner: Any, config: Any, args: Sequence[Any]) -> dict[str, Any]:
    """All arguments of a launch by name."""
    names = list(tuner.fn.arg_names)
    constants = {}
    for k, v in tuner.triton_meta.get("constants", {}).items():  # by name, or by place
        place = k[0] if isinstance(k, tuple) else k
        constants[names[place] if isinstance(place, int) else place] = v
    return {**constants, **dict(zip(run_time_names(tuner, config), args)), **config.kwargs}


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
            mine = copied(args)
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
        fn = tuner.fn if tuner.fn.fn is not None else tuner._reload_kernel().fn  # compiled in another process
        kernel = tec.tile.from_triton(fn)
        given, names = given_to(tuner, config, mine), run_time_names(tuner, config)
        grid = GridExpr.from_meta(tuner.inductor_meta, config).eval_slow(given)
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


def gradients(network: Any, out: Any) -> dict[str, Any]:
    """Of the mean square of what a network computed."""
    out.float().square().mean().backward()
    found = {n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None}
    network.zero_grad(set_to_none=True)
    return found


def first_of(out: Any) -> Any:
    """The first tensor of a network's result."""
    return next(iter(out.values())) if isinstance(out, dict) else out


def beside_triton(watch: Watch, make: Callable[[], Any]) -> dict[str, Any]:
    import torch

    network, inputs, trained = make()
    out = first_of(torch.compile(network)(*inputs))
    if trained:
        gradients(network, out)
    torch.cuda.synchronize()
    return {"kernels": len(watch.seen), "right": watch.right}


class Alone:
    """Launches of inductor's kernels by tec, with no Triton."""

    def __init__(self) -> None:
        self.kernels: dict[str, Any] = {}

    def start(self) -> None:
        import torch._inductor.config as settings
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner
        from triton.backends.compiler import GPUTarget
        from triton.runtime import driver

        class Host:
            """What inductor asks of a driver; nothing is launched by it."""

            def get_current_target(self) -> Any:
                return GPUTarget("cuda", 90, 32)

            def get_current_device(self) -> int:
                return 0

        driver.set_active(Host())
        settings.cpu_backend, settings.compile_threads, settings.fx_graph_cache = "triton", 1, False
        CachingAutotuner.precompile = lambda *a, **k: None
        alone = self
        CachingAutotuner.run = lambda tuner, *args, stream=None, **named: alone.run(tuner, args)

    def run(self, tuner: Any, args: tuple[Any, ...]) -> None:
        from torch._inductor.runtime.triton_heuristics import GridExpr

        import tec.tile

        kernel = self.kernels.get(tuner.fn.src)
        if kernel is None:
            kernel = self.kernels[tuner.fn.src] = tec.tile.from_triton(tuner.fn)
        config = tuner.configs[0]
        given = given_to(tuner, config, args)
        grid = GridExpr.from_meta(tuner.inductor_meta, config).eval_slow(given)
        try:
            kernel[grid](**given, num_warps=config.num_warps, num_stages=config.num_stages)
        except Exception as e:
            said = f"{type(e).__name__}: {str(e)[:300]}"
            print(json.dumps({"kernel": kernel.__name__, "refused": said}), flush=True)
            raise

    def compare(self, make: Callable[[], Any]) -> dict[str, Any]:
        """A network by eager PyTorch, and compiled; what differs by more than 1 % of the largest number."""
        import torch

        torch._dynamo.reset()
        before = len(self.kernels)
        # Of other seeds some have numbers so near to a ReLU's edge that eager PyTorch's gradients change by 5 % with the memory format.
        torch.manual_seed(0)
        network, inputs, trained = make()
        state = {k: v.clone() for k, v in network.state_dict().items()}  # batch norms change theirs
        want = first_of(network(*inputs))
        parts = {"": want.detach(), **(gradients(network, want) if trained else {})}
        network.load_state_dict(state)
        got = first_of(torch.compile(network)(*inputs))
        mine = {"": got.detach(), **(gradients(network, got) if trained else {})}
        bad = [n for n, v in parts.items() if float((mine[n] - v).abs().max()) > RTOL * max(float(v.abs().max()), ATOL)]
        return {"kernels": len(self.kernels) - before, "wrong": bad[:5]}


def main(words: list[str]) -> None:
    import tec
    import tec.tile

    where = words.pop(0) if words and not words[0].isdigit() else "cuda"
    until = time.monotonic() + float(words.pop(0) if words and words[0].isdigit() else 1e9)
    watch: Any = Watch() if where == "cuda" else Alone()
    watch.start()
    elsewhere = nullcontext if where in ("cuda", "cpu") else lambda: tec.tile.on_device(tec.rocm_emu(where))
    for name, make in networks("cuda" if where == "cuda" else "cpu"):
        if time.monotonic() > until or (words and not name.startswith(tuple(words))):
            continue
        try:
            with elsewhere():
                row = beside_triton(watch, make) if where == "cuda" else watch.compare(make)
        except Exception as e:
            row = {"failed": f"{type(e).__name__}: {str(e)[:300]}"}
        print(json.dumps({"network": name, **row}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
