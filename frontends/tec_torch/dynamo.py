"""The backend of torch.compile: `torch.compile(model, backend="tec")`.

AOTAutograd makes graphs of core ATen without writes of what TorchDynamo finds; each is converted and compiled as a network. Calls that cannot be converted stay
torch's: the graph is cut around them, and one line says which they are and why (`reports` keeps them). options: {"target": text}, the tensors' device decides
by default; {"strict": True}, what would stay torch's is an error.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.nn.attention import SDPBackend, sdpa_kernel

import tec
from tec import Target, TecError
from tec.jit.specialise import target_of
from tec.runtime.networks.network import Network

from .draws import Draws
from .export import decompositions
from .importer import Conversion, convert, location_of, only_checks
from .ops_control import with_plain_attention
from .ops_rnn import with_whole_layers
from .reports import GraphReport, grouped, keep, keep_break, keep_resumed
from .runner import Runner

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

# In a part's `meta`: why it is no network.
REFUSED = "tec_refused"


def backend(module: GraphModule, examples: Sequence[Any], **settings: Any) -> Any:
    """What `torch.compile` calls for a graph. Raises nothing for what tec lacks: under "strict" the graph's first call does."""
    options = dict(settings.get("options") or {})
    target, strict = options.pop("target", None), options.pop("strict", False)
    if options or not isinstance(strict, bool):
        wrong = f"no option {', '.join(map(repr, options))}" if options else f"strict={strict!r} is no option"
        raise tec.ArgumentError(f"{wrong} of the backend tec", hint='options={"target": "llvm", "strict": True}')
    try:
        keep_resumed(_code_of_frame(), strict)
        keep_break(getattr(module, "compile_subgraph_reason", None), strict)
    except TecError as error:
        return _raises(error)
    weights = [
        x for x in examples if isinstance(x, torch.nn.Parameter) or getattr(x, "_dynamo_static_input_type", None) is not None
    ]  # fmt: skip
    # Under inductor's setting `freezing` TorchDynamo leaves them in the graph's module for every backend.
    weights += [*module.parameters(), *module.buffers()]

    learns = torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in examples)
    with_plain_attention(module)
    if not learns:
        with_whole_layers(module)
    laters: list[_Later] = []
    held = _held(module)

    def inference(fx: GraphModule, fakes: Sequence[Any]) -> Any:
        later = _Later(fx, weights, target, strict)
        if _is_as_given(fx, [*held, *examples]):
            laters.append(later)
        return _boxed(later)

    def training(fx: GraphModule, fakes: Sequence[Any]) -> Any:
        try:
            return _boxed(Hybrid(fx, {}, target, strict))  # its weights change with every step
        except TecError as error:  # raised here it would come out as one of TorchDynamo's
            return _boxed(_raises(error))

    compiled = aot_autograd(
        fw_compiler=training,
        bw_compiler=training,
        inference_compiler=inference,
        decompositions=dict(decompositions().items()) | get_decompositions(_TRAINING),
    )
    # torch chooses attention's kernel while it traces. Those of one piece keep sums for a backward kernel of their own; its plain form is
    # differentiated like all else.
    # oneDNN's layer of an LSTM has a backward call that cannot be traced; its plain form is steps.
    with contextlib.ExitStack() as plain:
        if learns:
            plain.enter_context(sdpa_kernel(SDPBackend.MATH))
            plain.enter_context(torch.backends.mkldnn.flags(enabled=False))
        whole = compiled(module, examples)
    return _straight(whole, laters[0], held) if len(laters) == 1 else whole


def _code_of_frame() -> Any:
    """The code that TorchDynamo makes the graph of, while it asks for the graph; None outside of it."""
    try:
        return InstructionTranslator.current_tx().output.root_tx.f_code
    except AttributeError:  # no frame is traced, or another version of torch keeps it elsewhere
        return None


def _held(module: GraphModule) -> list[torch.Tensor]:
    """The weights that a graph's module has, in the order in which AOTAutograd puts them before the graph's inputs."""
    parameters, buffers = module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)
    return [*dict(parameters).values(), *dict(buffers).values()]


def _is_as_given(fx: GraphModule, values: Sequence[Any]) -> bool:
    """Whether AOTAutograd's graph takes these, TorchDynamo's weights and inputs, gives what that graph gives, and does nothing around it: no writes of inputs, no views of
    them or of one another, no random state, no tensors that are others within."""
    context = torch._guards.TracingContext.try_get()
    meta = context.fw_metadata if context is not None else None
    if meta is None or any(type(x) not in (torch.Tensor, torch.nn.Parameter, int, torch.SymInt) for x in values):
        return False
    names = ("num_mutated_inp_runtime_indices", "num_outputs_aliased", "num_intermediate_bases", "dynamic_outputs", "tokens", "is_rng_op_functionalized")  # fmt: skip
    around = [getattr(meta, n, True) for n in names]  # what a later torch does not have may be something
    if any(around) or getattr(meta, "grad_enabled_mutation", True) is not None:
        return False
    takes = sum(n.op == "placeholder" for n in fx.graph.nodes)
    gives = len(next(n for n in fx.graph.nodes if n.op == "output").args[0])
    return takes == len(values) and gives == len(meta.output_info)


def _straight(compiled: Callable[..., Any], later: _Later, held: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """`compiled`, and from the call on that made a network of the whole graph, that network without AOTAutograd's wrappers: a fifth of a call's time."""

    def run(*values: Any) -> Any:
        runner = later.runner
        return compiled(*values) if runner is None else runner.checked((*held, *values))

    return run


def _raises(error: TecError) -> Callable[..., Any]:
    """A graph whose call is that error."""

    def refused(*_: Any) -> Any:
        raise error

    return refused


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

    def __init__(self, module: GraphModule, weights: Sequence[torch.Tensor], target: Any, strict: bool):
        self.module, self.target, self.strict = module, target, strict
        self.addresses = {w.data_ptr() for w in weights}
        self.hybrid: Callable[[list[Any]], Any] | None = None
        self.lock = threading.Lock()
        self.runner: Runner | None = None  # of the whole graph, once it is made

    def __call__(self, values: list[Any]) -> Any:
        with self.lock:
            if self.hybrid is None:
                names = [n.name for n in self.module.graph.nodes if n.op == "placeholder"]
                held = {
                    n: v
                    for n, v in zip(names, values)
                    if isinstance(v, torch.Tensor) and v.data_ptr() in self.addresses
                }
                try:
                    self.hybrid = hybrid = Hybrid(self.module, held, self.target, self.strict)
                    self.runner = hybrid.run if isinstance(hybrid.run, Runner) and not hybrid.draws else None
                except TecError as error:  # every call's: the graph is cut by now, and cannot be read again
                    self.hybrid = _raises(error)
        return self.hybrid(values)


class Hybrid:
    """A graph, compiled as a whole, or where it cannot be, in parts between calls of torch."""

    def __init__(self, module: GraphModule, held: Mapping[str, torch.Tensor], target: Any, strict: bool = False):
        self.target = target
        _untie(module)
        self.draws = Draws(module)
        with unset_fake_temporarily():
            self.run, made = self._compiled(module, held)
        if made.calls:
            keep(made, strict)

    def __call__(self, values: list[Any]) -> Any:
        return self.run([*values, *self.draws(values)] if self.draws else values)

    def _compiled(self, module: GraphModule, held: Mapping[str, torch.Tensor]) -> tuple[Any, GraphReport]:
        """What runs the graph, and which of its calls stay torch's."""
        whole = convert(module.graph, held, collect=True)
        if not whole.failed:
            if not whole.calls:
                return (lambda values: module(*values)), GraphReport(0)
            try:
                return self._runner(module, held, whole), GraphReport(whole.calls)
            except TecError as error:
                return (lambda values: module(*values)), _report(module, whole.calls, {}, _line(error))
        cut = self._cut(module, held, frozenset(whole.failed))
        return (lambda values: cut(*values)), _report(cut, whole.calls, whole.failed, "a part too small for a network")

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
                part.meta[REFUSED] = _line(error)
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


def _untie(module: GraphModule) -> None:
    """Takes calls that only check out of the chain of tokens by which AOTAutograd orders calls with effects: a check needs no order, and what it asks is asked
    of the call before it (`ops_linalg`)."""
    graph = module.graph
    for node in list(graph.nodes):
        if node.target is not torch.ops.higher_order.with_effects or not only_checks(node.args[1]):
            continue
        token, op, *args = node.args
        with graph.inserting_before(node):
            check = graph.call_function(op, tuple(args), dict(node.kwargs))
        check.meta |= {"val": None, "stack_trace": node.meta.get("stack_trace")}
        for user in list(node.users):
            user.replace_all_uses_with(token)
            graph.erase_node(user)
        graph.erase_node(node)
        if all(u.op == "output" for u in token.users):
            token.meta["val"] = None  # as it is when the graph runs


def _is_size(node: Node) -> bool:
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float))


def _computes(node: Node) -> bool:
    kinds = (torch._ops.OpOverload, torch._ops.HigherOrderOperator)
    return node.op == "call_function" and isinstance(node.target, kinds) and not _is_size(node)


def _target_of(module: GraphModule) -> Target:
    """The target for the device that the graph's tensors are on: of a GPU its own chip, with what only that has."""
    for node in module.graph.nodes:
        val = node.meta.get("val")
        if isinstance(val, torch.Tensor) and val.device.type == "cuda":
            kind, device = ("rocm", tec.rocm) if torch.version.hip else ("cuda", tec.cuda)
            try:
                return target_of(device(val.device.index or 0))
            except TecError:  # traced for a GPU that is not here
                return Target(kind)
    return Target("llvm")


def _report(module: GraphModule, calls: int, failed: Mapping[Node, TecError], otherwise: str) -> GraphReport:
    """The calls that torch runs in a graph or in its parts: those that failed with their errors, others with a part's own reason or `otherwise`."""
    errors = {node.name: error.message.splitlines()[0] for node, error in failed.items()}
    named = {n.target for n in module.graph.nodes if n.op == "call_module"}  # others are bodies of branches and loops
    parts = [m for name, m in module.named_children() if name in named and isinstance(m, GraphModule)]
    left = [
        (str(node.target), errors.get(node.name) or m.meta.get(REFUSED) or otherwise, location_of(node))
        for m in (module, *parts)
        for node in m.graph.nodes
        if _computes(node)
    ]
    left.sort(key=lambda call: call[1] == otherwise)  # what could not be converted is the cause: it is said first
    return GraphReport(calls, grouped(left))


def _line(error: TecError) -> str:
    return error.message.splitlines()[0]
