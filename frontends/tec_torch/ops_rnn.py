"""Recurrent layers (nn.RNN, nn.LSTM, nn.GRU), which stay whole: torch writes out every step of them, 512 steps of six layers as some forty thousand calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule, Node

from tec import ImportModelError
from tec.graph import Value
from tec.graph.builders.recurrent import Layer
from tec.graph.builders.recurrent import layer as recurrent_layer
from tec.ops.recurrent import Activation

from .importer import AtenCall, aten_op, converter_of, custom_op
from .remedies import LEFT_TO_TORCH

# torch's calls: the cell, the activations, and where each of the layer's gates, in the order of `Layer`, stands in torch's.
_SIGMOID, _TANH, _RELU = (("sigmoid", 0.0, 0.0), ("tanh", 0.0, 0.0), ("relu", 0.0, 0.0))
_KINDS: dict[str, tuple[str, tuple[Activation, ...], tuple[int, ...]]] = {
    "rnn_tanh": ("rnn", (_TANH,), (0,)),
    "rnn_relu": ("rnn", (_RELU,), (0,)),
    "lstm": ("lstm", (_SIGMOID, _TANH, _TANH), (0, 3, 1, 2)),
    "gru": ("gru", (_SIGMOID, _TANH), (1, 0, 2)),
}
_LSTM_MODE = 2  # of ideep's rnn_kind: the one kind of layer that torch writes as this call


def one_layer(
    c: AtenCall, kind: str, x: Value, states: Sequence[Value], weights: Sequence[Value], has_biases: bool, backward: Sequence[bool]
) -> list[Value]:  # fmt: skip
    """[outputs (steps, batch, directions * hidden), last states (directions, batch, hidden)] of x (steps, batch, features) and torch's weights of each direction in turn."""
    cell, activations, order = _KINDS[kind]
    parts = 4 if has_biases else 2
    hidden = states[0].shape[2]

    def of_directions(k: int) -> Value:
        found = []
        for w in weights[k::parts]:
            gates = c.split(w, 0, [hidden] * len(order)) if len(order) > 1 else [w]
            found.append(c.unsqueeze(c.concat([gates[g] for g in order], 0) if len(order) > 1 else w, 0))
        return c.concat(found, 0) if len(found) > 1 else found[0]

    bias = c.concat([of_directions(2), of_directions(3)], 1) if has_biases else None
    layer = Layer(cell, tuple(backward), (activations,) * len(backward), reset_after=cell == "gru")
    y, *ends = recurrent_layer(c, layer, x, of_directions(0), of_directions(1), states, bias)
    steps, _, batch, _ = y.shape
    return [c.reshape(c.transpose(y, (0, 2, 1, 3)), (steps, batch, len(backward) * hidden)), *ends]


@aten_op("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input")
def layers_of_torch(
    c: AtenCall, x: Value, states: Any, weights: Sequence[Value], has_biases: bool, layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> list[Value]:  # fmt: skip
    """All layers of an exported module."""
    directions, parts = 1 + bidirectional, 4 if has_biases else 2
    if _is_refused(weights, has_biases, layers, dropout, train, bidirectional):
        raise ImportModelError(
            f"{c.name_of_op} with projections, or with dropout between its layers", hint=LEFT_TO_TORCH
        )
    states = list(states) if isinstance(states, (list, tuple)) else [states]
    y = c.transpose(x, (1, 0, 2)) if batch_first else x
    ends = []
    for k in range(layers):
        mine = weights[k * directions * parts : (k + 1) * directions * parts]
        starts = [c.slice(s, 0, k * directions, directions) for s in states]
        y, *last = one_layer(c, c.name_of_op, y, starts, mine, has_biases, (False, True)[:directions])
        ends.append(last)
    last_states = [c.concat(list(of), 0) if layers > 1 else of[0] for of in zip(*ends)]
    return [c.transpose(y, (1, 0, 2)) if batch_first else y, *last_states]


def layers_in_steps(graph: torch.fx.Graph) -> set[Any]:
    """The operators of those layers of an exported graph that `layers_of_torch` refuses."""
    found = set()
    for n in graph.nodes:
        if converter_of(n.target) is layers_of_torch:
            _, _, weights, has_biases, layers, dropout, train, bidirectional, _ = n.args
            if _is_refused(weights, has_biases, layers, dropout, train, bidirectional):
                found.add(n.target)
    return found


def _is_refused(
    weights: Sequence[Any], has_biases: bool, layers: int, dropout: float, train: bool, bidirectional: bool
) -> bool:
    """With projections there are more weights; dropout between layers is torch's to draw."""
    whole = layers * (1 + bidirectional) * (4 if has_biases else 2)
    return len(weights) != whole or bool(train and dropout and layers > 1)


@aten_op("mkldnn_rnn_layer")
def one_lstm_layer(
    c: AtenCall, x: Value, w: Value, r: Value, w_bias: Value, r_bias: Value, hidden: Value, cell: Value, reverse: bool,
    lengths: Any, mode: int, size: int, layers: int, has_biases: bool, bidirectional: bool, batch_first: bool, *more: Any,
) -> Any:  # fmt: skip
    """One direction of one layer of an nn.LSTM, as torch traces it on CPUs: x (steps, batch, features), states (1, batch, hidden)."""
    if mode != _LSTM_MODE or layers != 1 or bidirectional or batch_first or list(lengths):
        raise ImportModelError(
            f"mkldnn_rnn_layer with mode {mode}, {layers} layers, batch_first {batch_first}, lengths {lengths}",
            hint=LEFT_TO_TORCH,
        )
    weights = [w, r, w_bias, r_bias] if has_biases else [w, r]
    made = one_layer(c, "lstm", x, [hidden, cell], weights, has_biases, (bool(reverse),))
    return [*made, c.const(np.zeros(0, np.uint8))]  # the last is torch's own room for a gradient


# ---- in graphs of TorchDynamo, which are traced again: an operator of tec's own stands for a layer, as torch's are always written out there


@torch.library.custom_op(
    "tec::recurrent",
    mutates_args=(),
    schema="(str kind, Tensor x, Tensor[] states, Tensor[] weights, bool has_biases, bool bidirectional) -> Tensor[]",
)
def recurrent(
    kind: str, x: torch.Tensor, states: list[torch.Tensor], weights: list[torch.Tensor], has_biases: bool, bidirectional: bool
) -> list[torch.Tensor]:  # fmt: skip
    """A layer, as torch computes it: [outputs, last states]."""
    start = states if kind == "lstm" else states[0]
    made = getattr(torch, kind)(x, start, weights, has_biases, 1, 0.0, False, bidirectional, False)
    return [t.clone(memory_format=torch.contiguous_format) for t in made]


@recurrent.register_fake
def _(kind: str, x: Any, states: Any, weights: Any, has_biases: bool, bidirectional: bool) -> Any:
    directions, batch, hidden = states[0].shape
    return [x.new_empty((x.shape[0], batch, directions * hidden)), *(s.new_empty(s.shape) for s in states)]


@custom_op("tec::recurrent")
def recurrent_of_dynamo(
    c: AtenCall, kind: str, x: Value, states: Any, weights: Any, has_biases: bool, bidirectional: bool
) -> list[Value]:  # fmt: skip
    return one_layer(c, kind, x, states, weights, has_biases, (False, True)[: 1 + bidirectional])


def with_whole_layers(module: GraphModule) -> None:
    """Has the recurrent layers of a graph of TorchDynamo's that nobody learns from stay whole, each a call of its own."""
    graph = module.graph
    nodes = [n for n in graph.nodes if _stays_whole(n)]
    if not nodes or _casts(graph):
        return
    for n in nodes:
        with graph.inserting_before(n):
            n.replace_all_uses_with(_layer_by_layer(graph, n))
        graph.erase_node(n)
    module.recompile()


def _casts(graph: torch.fx.Graph) -> bool:
    """Whether types change by torch.autocast, which acts on a layer's steps."""
    enters = torch.amp.autocast_mode._enter_autocast
    return any(torch.is_autocast_enabled(d) for d in ("cpu", "cuda")) or any(n.target is enters for n in graph.nodes)


def _stays_whole(n: Node) -> bool:
    name = getattr(n.target, "__name__", "")
    if name not in _KINDS or n.target is not getattr(torch._VF, name) or n.kwargs:
        return False
    if len(n.args) != 9 or not isinstance(n.args[2], (list, tuple)):  # packed sequences
        return False
    _, _, *more, _ = n.args
    return not _is_refused(*more)


def _layer_by_layer(graph: torch.fx.Graph, n: Node) -> Node:
    """A node of the tuple that a call gives."""
    x, states, weights, has_biases, layers, _, _, bidirectional, batch_first = n.args
    states = list(states) if isinstance(states, (list, tuple)) else [states]
    directions, parts = 1 + bidirectional, 4 if has_biases else 2

    def call(f: Any, *args: Any) -> Node:
        return graph.call_function(f, args)

    y = call(torch.transpose, x, 0, 1) if batch_first else x
    ends: list[list[Node]] = []
    for k in range(layers):
        starts = [call(torch.narrow, s, 0, k * directions, directions) for s in states]
        mine = list(weights[k * directions * parts : (k + 1) * directions * parts])
        made = call(torch.ops.tec.recurrent.default, n.target.__name__, y, starts, mine, has_biases, bidirectional)
        y = call(_item, made, 0)
        ends.append([call(_item, made, 1 + j) for j in range(len(states))])
    last = [call(torch.cat, [e[j] for e in ends], 0) for j in range(len(states))]
    y = call(torch.transpose, y, 0, 1) if batch_first else y
    return call(_together, y, *last)


def _item(made: Sequence[Any], k: int) -> Any:
    return made[k]


def _together(*values: Any) -> tuple[Any, ...]:
    return values
