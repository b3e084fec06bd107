"""The backend of torch.compile: `torch.compile(model, backend="tec")`.

AOTAutograd makes graphs of core ATen without writes of what TorchDynamo finds; each is converted and compiled as a network. Calls that cannot be converted stay
torch's: the graph is cut around them, and one line says which they are and why. options: {"target": text}, the tensors' device decides by default.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.nn.attention import SDPBackend, sdpa_kernel

import tec
from tec import TecError
from tec.errors import one_line
from tec.runtime.networks.network import Network

from .export import decompositions
from .importer import Conversion, convert, location_of
from .runner import Runner

log = logging.getLogger("tec.torch")

# What training brings and export's decompositions leave whole.
_ATEN = torch.ops.aten
_TRAINING = [
    _ATEN._native_batch_norm_legit_functional, _ATEN.native_batch_norm_backward, _ATEN.native_layer_norm_backward, _ATEN.native_group_norm_backward,
    _ATEN.embedding_dense_backward, _ATEN.native_dropout_backward, _ATEN._softmax_backward_data, _ATEN._log_softmax_backward_data,
    _ATEN.nll_loss_backward, _ATEN.nll_loss2d_backward,
]  # fmt: skip

# TorchDynamo leaves nn.RNN, nn.LSTM and nn.GRU eager, in silence, but where this is set; a backend is asked too late to set it for itself alone.
torch._dynamo.config.allow_rnn = True

# Calls below which a part is not worth a network of its own: entering it costs tens of microseconds, a call of torch's some five.
FEW_CALLS = 4


def backend(module: GraphModule, examples: Sequence[Any], **settings: Any) -> Any:
    """What `torch.compile` calls for a graph. Raises nothing for what tec lacks."""
    options = dict(settings.get("options") or {})
    target = options.pop("target", None)
    if options:
        raise tec.ArgumentError(
            f"no option {', '.join(map(repr, options))} of the backend tec", hint='options={"target": "llvm"}'
        )
    weights = [
        x for x in examples if isinstance(x, torch.nn.Parameter) or getattr(x, "_dynamo_static_input_type", None) is not None
    ]  # fmt: skip

    def inference(fx: GraphModule, fakes: Sequence[Any]) -> Any:
        return _boxed(_Later(fx, weights, target))

    def training(fx: GraphModule, fakes: Sequence[Any]) -> Any:
        return _boxed(Hybrid(fx, {}, target))  # its weights change with every step

    compiled = aot_autograd(
        fw_compiler=training,
        bw_compiler=training,
        inference_compiler=inference,
        decompositions=dict(decompositions().items()) | get_decompositions(_TRAINING),
    )
    learns = torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in examples)
    # torch chooses attention's kernel while it traces. Those of one piece keep sums for a backward kernel of their own; its plain form is
    # differentiated like all else.
    # oneDNN's layer of an LSTM has a backward call that cannot be traced; its plain form is steps.
    with contextlib.ExitStack() as plain:
        if learns:
            plain.enter_context(sdpa_kernel(SDPBackend.MATH))
            plain.enter_context(torch.backends.mkldnn.flags(enabled=False))
        return compiled(module, examples)


def _boxed(f: Any) -> Any:
    """As AOTAutograd calls: with a list, which is emptied so that what is no longer needed can go."""

    def run(values: list[Any]) -> Any:
        given = list(values)
        values.clear()
        return f(given)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


class _Later:
    """A graph that is compiled at its first call: AOTAutograd drops arguments that repeat, and only a call says which of them are weights."""

    def __init__(self, module: GraphModule, weights: Sequence[torch.Tensor], target: Any):
        self.module, self.target = module, target
        self.addresses = {w.data_ptr() for w in weights}
        self.hybrid: Hybrid | None = None
        self.lock = threading.Lock()

    def __call__(self, values: list[Any]) -> Any:
        with self.lock:
            if self.hybrid is None:
                names = [n.name for n in self.module.graph.nodes if n.op == "placeholder"]
                held = {
                    n: v
                    for n, v in zip(names, values)
                    if isinstance(v, torch.Tensor) and v.data_ptr() in self.addresses
                }
                self.hybrid = Hybrid(self.module, held, self.target)
        return self.hybrid(values)


class Hybrid:
    """A graph, compiled as a whole, or where it cannot be, in parts between calls of torch."""

    def __init__(self, module: GraphModule, held: Mapping[str, torch.Tensor], target: Any):
        self.target = target
        with unset_fake_temporarily():
            self.run = self._compiled(module, held)

    def __call__(self, values: list[Any]) -> Any:
        return self.run(values)

    def _compiled(self, module: GraphModule, held: Mapping[str, torch.Tensor]) -> Any:
        whole = convert(module.graph, held, collect=True)
        if not whole.failed:
            if not whole.calls:
                return lambda values: module(*values)
            try:
                return self._runner(module, held, whole)
            except TecError as error:
                log.warning("a graph of %d calls is left to torch: %s", whole.calls, _line(error))
                return lambda values: module(*values)
        log.warning(
            "%d of %d calls are left to torch: %s", len(whole.failed), whole.calls, "; ".join(_reasons(whole.failed))
        )
        cut = self._cut(module, held, frozenset(whole.failed))
        return lambda values: cut(*values)

    def _runner(self, module: GraphModule, held: Mapping[str, torch.Tensor], made: Conversion | None = None) -> Runner:
        placeholders = [n.name for n in module.graph.nodes if n.op == "placeholder"]
        target = self.target or _target_of(module)

        def make(live: frozenset[str]) -> tuple[Network, Conversion]:
            again = convert(module.graph, {n: t for n, t in held.items() if n not in live})
            return tec.compile(again.graph, target), again

        first = (tec.compile(made.graph, target), made) if made is not None else None
        return Runner(placeholders, make, held, first)

    def _cut(self, module: GraphModule, held: Mapping[str, torch.Tensor], failed: frozenset[Node]) -> GraphModule:
        """The graph with parts that are networks. Parts of few calls stay torch's."""

        class Converted(OperatorSupportBase):
            def is_node_supported(self, submodules: Any, node: Node) -> bool:
                return node.op == "call_function" and node not in failed and not _is_size(node)

        partitioner = CapabilityBasedPartitioner(module, Converted(), allows_single_node_partition=True)
        parts = [p for p in partitioner.propose_partitions() if sum(map(_computes, p.nodes)) >= FEW_CALLS]
        cut: GraphModule = partitioner.fuse_partitions(parts)
        for node in list(cut.graph.nodes):
            if node.op != "call_module":
                continue
            part: Any = cut.get_submodule(node.target)
            inside = [n.name for n in part.graph.nodes if n.op == "placeholder"]
            own = {n: held[a.name] for n, a in zip(inside, node.args) if isinstance(a, Node) and a.name in held}
            try:
                setattr(cut, node.target, CompiledPart(self._runner(part, own), part))
            except TecError as error:
                log.warning(
                    "a part of %d calls is left to torch: %s", sum(map(_computes, part.graph.nodes)), _line(error)
                )
        cut.recompile()
        return cut


class CompiledPart(torch.nn.Module):
    """A part of a graph as a network, in the part's own place."""

    def __init__(self, runner: Runner, part: GraphModule):
        super().__init__()
        self.runner = runner
        output = next(n for n in part.graph.nodes if n.op == "output")
        self.single = not isinstance(output.args[0], (tuple, list))

    def forward(self, *values: Any) -> Any:
        results = self.runner(values)
        return results[0] if self.single else tuple(results)


def _is_size(node: Node) -> bool:
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float))


def _computes(node: Node) -> bool:
    return node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload) and not _is_size(node)


def _target_of(module: GraphModule) -> str:
    """The target for the device that the graph's tensors are on."""
    for node in module.graph.nodes:
        val = node.meta.get("val")
        if isinstance(val, torch.Tensor) and val.device.type == "cuda":
            return "rocm" if torch.version.hip else "cuda"
    return "llvm"


def _reasons(failed: Mapping[Node, TecError]) -> list[str]:
    """Each reason once, with how often and where it is first met."""
    groups: dict[str, list[Node]] = {}
    for node, error in failed.items():
        text = error.message.splitlines()[0]
        groups.setdefault(text if str(node.target) in text else f"{node.target}: {text}", []).append(node)
    out = []
    for text, nodes in groups.items():
        where = location_of(nodes[0])
        at = f" ({os.path.basename(where.file)}:{where.line})" if where is not None else ""
        out.append(one_line(f"{text}{at}{f', {len(nodes)} times' if len(nodes) > 1 else ''}"))
    return out


def _line(error: TecError) -> str:
    return error.message.splitlines()[0]
