"""Networks for benchmarks/gpu.py: ResNet-50, BERT-base and GPT-2 (on 128 embedded tokens), float32 and float16, batch 1 and 32, as graphs, against PyTorch's
(NHWC in float16)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

NAMES = tuple(
    f"{net} {dtype} b{batch}"
    for net in ("ResNet-50", "BERT-base s128", "GPT-2 s128")
    for dtype in ("f32", "f16")
    for batch in (1, 32)
)
_AGAIN = 20  # calls of a function in a graph
TARGET = "cuda -arch=sm_90a"


def gpt2(torch: Any) -> Any:
    """GPT-2's 12 layers of 12 heads of 64 with random weights, from embedded tokens to the last norm: float32[batch, tokens, 768]."""
    nn = torch.nn

    class Layer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(768), nn.LayerNorm(768)
            self.qkv, self.out = nn.Linear(768, 3 * 768), nn.Linear(768, 768)
            self.up, self.down = nn.Linear(768, 3072), nn.Linear(3072, 768)

        def forward(self, x: Any) -> Any:
            batch, tokens, _ = x.shape
            heads = (t.view(batch, tokens, 12, 64).transpose(1, 2) for t in self.qkv(self.before(x)).split(768, dim=-1))
            y = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, 768))
            return x + self.down(nn.functional.gelu(self.up(self.between(x)), approximate="tanh"))

    torch.manual_seed(0)
    return nn.Sequential(*(Layer() for _ in range(12)), nn.LayerNorm(768)).eval()


def model(name: str) -> Any:
    """The network as an ONNX model with one float32 input."""
    from tools import zoo

    batch = int(name.rpartition("b")[2])
    if name.startswith("ResNet"):
        return zoo.resnet50(batch)
    return zoo.bert_layer(batch=batch, layers=12)


def compiled(name: str) -> Any:
    """The network."""
    import tec

    dtype = "float16" if " f16 " in name else None
    if name.startswith("GPT-2"):
        import torch

        x = torch.zeros(int(name.rpartition("b")[2]), 128, 768)
        return tec.compile(gpt2(torch), TARGET, args=(x,), dtype=dtype, cache=False)
    return tec.compile(model(name), TARGET, dtype=dtype, cache=False)


def peer(torch: Any, name: str) -> tuple[Any, Any]:
    """PyTorch's module of the same architecture with random weights, and an input."""
    batch, half = int(name.rpartition("b")[2]), " f16 " in name
    if name.startswith("ResNet"):
        import torchvision

        net, x = torchvision.models.resnet50().cuda().eval(), torch.randn(batch, 3, 224, 224, device="cuda")
        if half:
            net, x = net.half().to(memory_format=torch.channels_last), x.half().to(memory_format=torch.channels_last)
        return net, x
    if name.startswith("GPT-2"):
        net, x = gpt2(torch).cuda(), torch.randn(batch, 128, 768, device="cuda")
        return (net.half(), x.half()) if half else (net, x)
    import transformers

    config = transformers.BertConfig(attn_implementation="sdpa")
    net = transformers.models.bert.modeling_bert.BertEncoder(config).cuda().eval()
    x = torch.randn(batch, 128, 768, device="cuda")
    return (net.half(), x.half()) if half else (net, x)


def graph_of(torch: Any, net: Any, x: Any) -> Any:
    """The network's run as one CUDA graph."""
    with torch.no_grad():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                net(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            net(x)
    return graph


def run(
    torch: Any, name: str, net: Any, race: Callable[..., Any], say: Callable[..., None], keep: Callable[..., None]
) -> None:
    """Time graphs in turn, and say what each function takes."""
    import numpy as np

    import tec

    shape = net.inputs[0]["shape"]
    dev = tec.cuda(0)
    x = tec.nd.array(np.random.default_rng(1).standard_normal(shape).astype(np.float32), dev)
    executor = net.executor(dev)
    (first,) = executor.run([x])
    executor.run([x])
    (again,) = executor.run([x])
    assert np.isfinite(first.numpy()).all() and np.array_equal(first.numpy(), again.numpy()), (
        "a replayed graph gives the same"
    )
    engine = executor._engine
    ((binding, bound),) = engine._bound.values()
    graph = bound.graph
    theirs = graph_of(torch, *peer(torch, name))
    sides = {"tec": graph.launch, "torch, a graph": theirs.replay}
    sustained, single = race(torch, sides)
    say(
        name=name, value=round(sustained["tec"], 4), unit="ms", peers={"torch, a graph": round(sustained["torch, a graph"], 4)},
        ratio=round(sustained["tec"] / sustained["torch, a graph"], 3), single=round(single["tec"] / single["torch, a graph"], 3),
    )  # fmt: skip
    keep(
        name, "time", sustained["tec"], "ms", peer="PyTorch", peer_value=round(sustained["torch, a graph"], 4),
        ratio=round(sustained["tec"] / sustained["torch, a graph"], 4),
        peer_settings="a captured CUDA graph of eager PyTorch; without torch.compile; float16 channels last",
    )  # fmt: skip
    for function, count, us in slowest(engine.calls(binding)):
        report = net.report
        say(network=name, function=function, calls=count, us=round(us, 2), together=round(count * us, 1), nodes=report.functions.get(function), choice=report.choices.get(function))  # fmt: skip


def slowest(calls: list[tuple[Any, list[Any]]]) -> list[tuple[str, int, float]]:
    """(function, calls, microseconds a call) of a network's functions, by the time that they take together: each alone, again and again in a graph."""
    import tec

    dev, by_name = tec.cuda(0), {}
    for function, args in calls:
        by_name.setdefault(function.name, []).append((function, args))
    found = []
    for name, some in by_name.items():
        with dev.capture() as graph:
            for _ in range(_AGAIN):
                some[0][0](*some[0][1])
        start, stop = dev.event(), dev.event()
        graph.launch()
        start.record()
        graph.launch()
        stop.record()
        stop.sync()
        found.append((name, len(some), start.elapsed_ms(stop) / _AGAIN * 1e3))
    return sorted(found, key=lambda f: -f[1] * f[2])
