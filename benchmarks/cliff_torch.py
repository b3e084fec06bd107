"""What PyTorch does for a case of `cliff_cases`, on a GPU: the library's own function for the operator, with weights laid out beforehand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import numpy_helper

from benchmarks.cliff_cases import Case

_TAILS = {"relu": "relu", "gelu": "gelu", "silu": "silu"}


def function(torch: Any, case: Case, device: str = "cuda") -> Callable[[], Any]:
    """The case as a call without arguments, which gives a tensor or a tuple of them. Raises KeyError for a kind that has no peer."""
    x = [torch.from_numpy(np.ascontiguousarray(a)).to(device) for a in case.inputs.values()]
    weights = [numpy_helper.to_array(w) for w in case._weights]
    w = [torch.from_numpy(np.array(a)).to(device) for a in weights]
    return case.peer(torch, x, w) if case.peer else _KINDS[case.kind](torch, case.spec, x, w)


def reference(torch: Any, case: Case, device: str = "cuda") -> list[Any]:
    """What the case's results are compared with, on the host, floats in float32: PyTorch's own, but of running sums those in float32. PyTorch adds them up in float16, element after
    element, which is up to 3 % of the largest value off for some ten thousand."""
    peer = function(torch, case, device)
    if case.kind == "cumsum":
        x = torch.from_numpy(np.ascontiguousarray(case.inputs["x"])).to(device).float()
        return [torch.cumsum(x, case.spec["axis"]).cpu().numpy()]
    made = peer()
    made = made if isinstance(made, tuple | list) else [made]
    return [(w.float() if w.is_floating_point() else w).cpu().numpy() for w in made]


def _tail(torch: Any, how: str, y: Callable[[], Any]) -> Callable[[], Any]:
    act = next((getattr(torch.nn.functional, f) for word, f in _TAILS.items() if word in how), None)
    return y if act is None else lambda: act(y())


def _matmul(torch: Any, spec: dict[str, Any], x: list[Any], w: list[Any]) -> Callable[[], Any]:
    how = spec["tail"]
    if spec["weights"] == "input":
        matrix, rest = x[1], w
    else:
        matrix, rest = w[0] if spec["weights"] == "kn" else w[0].T, w[1:]
    if "bias" in how:
        return _tail(torch, how, lambda: torch.addmm(rest[0], x[0], matrix))
    return _tail(torch, how, lambda: torch.mm(x[0], matrix))


def _batched(torch: Any, spec: dict[str, Any], x: list[Any], w: list[Any]) -> Callable[[], Any]:
    return lambda: torch.bmm(x[0], x[1])


def _conv(torch: Any, spec: dict[str, Any], x: list[Any], w: list[Any]) -> Callable[[], Any]:
    f, k, dilation = torch.nn.functional, spec["kernel"], spec["dilation"]
    conv = f.conv2d if x[0].dim() == 4 else f.conv1d
    first, weight, bias = x[0], w[0], w[1]
    if x[0].dim() == 4 and x[0].dtype == torch.float16:
        first, weight = (t.to(memory_format=torch.channels_last) for t in (first, weight))
    more = {"stride": spec["stride"], "padding": dilation * (k // 2), "dilation": dilation, "groups": spec["groups"]}
    return _tail(torch, spec["tail"], lambda: conv(first, weight, bias, **more))


def _rows(torch: Any, spec: dict[str, Any], x: list[Any], w: list[Any]) -> Callable[[], Any]:
    f, n, (a, *_) = torch.nn.functional, (spec["columns"],), x
    return {
        "Softmax": lambda: torch.softmax(a, -1),
        "LayerNormalization": lambda: f.layer_norm(a, n, w[-2], w[-1], 1e-5),
        "rms norm": lambda: f.rms_norm(a, n, eps=1e-3),
        "ReduceLogSumExp": lambda: torch.logsumexp(a, -1),
        "ArgMax": lambda: torch.argmax(a, -1),
    }[spec["what"]]


def _reduce(torch: Any, spec: dict[str, Any], x: list[Any], w: list[Any]) -> Callable[[], Any]:
    how = {"Sum": torch.sum, "Max": torch.amax, "Mean": torch.mean}[spec["what"]]
    return lambda: how(x[0], dim=tuple(spec["axes"]))


def _pad(torch: Any, spec: dict[str, Any], x: list[Any], w: list[Any]) -> Callable[[], Any]:
    n = len(spec["shape"])
    pads = [p for i in reversed(range(n)) for p in (spec["pads"][i], spec["pads"][n + i])]
    return lambda: torch.nn.functional.pad(x[0], pads)


def _resize(torch: Any, spec: dict[str, Any], x: list[Any], w: list[Any]) -> Callable[[], Any]:
    how = {"mode": "nearest"} if spec["mode"] == "nearest" else {"mode": "bilinear", "align_corners": False}
    return lambda: torch.nn.functional.interpolate(x[0], scale_factor=float(spec["scale"]), **how)


def _attention(torch: Any, spec: dict[str, Any], x: list[Any], w: list[Any]) -> Callable[[], Any]:
    return lambda: torch.nn.functional.scaled_dot_product_attention(*x, is_causal=spec["causal"])


_KINDS: dict[str, Callable[[Any, dict[str, Any], list[Any], list[Any]], Callable[[], Any]]] = {
    "matmul": _matmul,
    "open matmul": _matmul,
    "batched matmul": _batched,
    "conv": _conv,
    "conv 1d": _conv,
    "rows": _rows,
    "reduce": _reduce,
    "elementwise": lambda torch, spec, x, w: lambda: torch.tanh(x[0] * x[1] + x[0]),
    "transpose": lambda torch, spec, x, w: (
        lambda: x[0].permute(spec["perm"]).clone(memory_format=torch.contiguous_format)
    ),
    "gather": lambda torch, spec, x, w: lambda: torch.index_select(x[0], 0, x[1]),
    "top k": lambda torch, spec, x, w: lambda: torch.topk(x[0], spec["k"], -1),
    "cumsum": lambda torch, spec, x, w: lambda: torch.cumsum(x[0], spec["axis"]),
    "pad": _pad,
    "concat": lambda torch, spec, x, w: lambda: torch.cat([x[0], x[1]], spec["axis"]),
    "resize": _resize,
    "attention": _attention,
}
