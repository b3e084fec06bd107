"""Control flow of torch: `torch.cond`, `while_loop` and `scan`, whose bodies are graphs of their own. They become branches and loops of the plan.

`flex_attention` is written out before gradients are made (`with_plain_attention`): what its functions do to one score becomes calls on all scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from tec import ImportModelError
from tec.graph import Graph, Value
from tec.graph.builders import Builder, control

from .importer import AtenCall, aten_op, called
from .remedies import FIX_THE_SIZE

_HIGHER = torch.ops.higher_order


def body_of(c: AtenCall, module: Any, graph: Graph, values: Sequence[Any]) -> list[Value]:
    """The results of a body, all of which are tensors, built in `graph`."""
    made = called(module, graph, values, c.sizes)
    if not all(isinstance(v, Value) for v in made):
        raise ImportModelError(
            f"a body of {c.target} gives what is no real tensor",
            hint="return tensors of real numbers: torch.view_as_real, or torch.tensor(n) for a number",
        )
    return made


def tensors(c: AtenCall, values: Sequence[Any]) -> list[Value]:
    if not all(isinstance(v, Value) for v in values):
        raise ImportModelError(
            f"{c.target} carries what is no real tensor",
            hint="carry tensors of real numbers: torch.view_as_real, or torch.tensor(n) for a number",
        )
    return list(values)


@aten_op("cond", space=_HIGHER)
def cond(c: AtenCall, condition: Any, then: GraphModule, orelse: GraphModule, operands: Sequence[Any]) -> list[Value]:
    if isinstance(condition, bool):
        return body_of(c, then if condition else orelse, c.graph, operands)
    if not isinstance(condition, Value):
        raise ImportModelError("a condition on open sizes", hint=FIX_THE_SIZE)

    def side(module: GraphModule) -> Callable[[Graph], Sequence[Value]]:
        return lambda graph: body_of(c, module, graph, operands)

    return control.choose(c, c.cast(condition, "bool"), side(then), side(orelse))


@aten_op("while_loop", space=_HIGHER)
def while_loop(
    c: AtenCall, asked: GraphModule, body: GraphModule, carried: Sequence[Any], more: Sequence[Any]
) -> list[Value]:
    """The condition is computed before the loop, and at the end of each trip for the next one."""

    def goes(graph: Graph, states: Sequence[Value]) -> Value:
        (going,) = body_of(c, asked, graph, [*states, *more])
        return going

    def step(b: Builder, _: Value, now: list[Value], rows: list[Value]) -> Any:
        after = body_of(c, body, b.graph, [*now, *more])
        return after, [], goes(b.graph, after)

    states = tensors(c, carried)
    return control.loop(c, step, states, start=goes(c.graph, states))[0]


@aten_op("scan", space=_HIGHER)
def scan(c: AtenCall, body: GraphModule, first: Sequence[Any], rows: Sequence[Any], more: Sequence[Any]) -> list[Value]:
    """Over the rows of `rows`: the last states, then the rows that were made."""
    states, over = tensors(c, first), tensors(c, rows)

    def step(b: Builder, _: Value, now: list[Value], items: list[Value]) -> Any:
        made = body_of(c, body, b.graph, [*now, *items, *more])
        return made[: len(states)], made[len(states) :], None

    count = len(c.types) - len(states)
    last, made = control.loop(c, step, states, over[0].shape[0], rows=[(v, False) for v in over], made=[False] * count)
    return [*last, *made]


def with_plain_attention(module: GraphModule) -> None:
    """Has `flex_attention` written out where the graph is traced again: products, its functions on all scores, a softmax."""
    op = getattr(_HIGHER, "flex_attention", None)
    nodes = [n for n in module.graph.nodes if op is not None and n.target is op]
    if not nodes:
        return
    from torch._higher_order_ops.flex_attention import math_attention

    for n in nodes:
        n.target = math_attention
    module.recompile()
