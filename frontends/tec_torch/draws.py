"""Random numbers of a graph: torch's generator draws them before the graph runs, in the graph's order, and they are inputs of it.

A call that draws depends on no values: only the shape, the strides, the type and the device of a tensor that it is given count. It can therefore run ahead of
everything else, and a program gets the numbers that it would get from torch alone, on every device. Dropout in training is such a mask and a product.
Calls whose numbers depend on values (`multinomial`, `poisson`) stay where they are, and so do all draws behind the first of these: the order of the draws
decides which numbers each of them gets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate

from tec import TecError
from tec.ops.dims import Size, evaluate, names_of

from .importer import converter_of
from .remedies import FIX_THE_SIZE
from .types import size_of

_ATEN = torch.ops.aten
# Of a tensor among their arguments these read its shape alone.
_DRAWS = (
    "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "bernoulli.p", "exponential", "uniform", "normal_functional",
    "log_normal", "geometric", "cauchy", "random",
)  # fmt: skip

Sizes = Mapping[str, int]  # by torch's symbols


def _found(name: str) -> Any:
    found: Any = _ATEN
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


_OPERATORS = frozenset(map(_found, _DRAWS)) - {None}


class Draws:
    """The calls of a graph that draw, taken out of it: each is one more placeholder, behind the others. `draws(values)`: the numbers for these."""

    def __init__(self, module: GraphModule):
        graph = module.graph
        given = [n for n in graph.nodes if n.op == "placeholder"]
        self._symbols = _symbols(given)
        self._calls: list[Callable[[Sizes], torch.Tensor]] = []
        last = given[-1] if given else None
        for node in list(graph.nodes):
            if node.op != "call_function" or not _is_seeded(node.target):
                continue
            if node.target.overloadpacket is _ATEN.normal:
                node = _standard(graph, node)
            draw = self._draw(node)
            if draw is None:
                if converter_of(node.target) is None or _is_dropout(node):
                    break
                continue  # what tec converts draws nothing: attention without dropout
            self._calls.append(draw)
            last = _replaced(graph, node, last)
        if self._calls:
            graph.eliminate_dead_code()
            module.recompile()

    def __bool__(self) -> bool:
        return bool(self._calls)

    def __call__(self, values: Sequence[Any]) -> list[torch.Tensor]:
        sizes = {n: int(values[k] if d is None else values[k].shape[d]) for n, (k, d) in self._symbols.items()}
        return [call(sizes) for call in self._calls]

    def _draw(self, node: Node) -> Callable[[Sizes], torch.Tensor] | None:
        """What makes a call's numbers; None where it is none that can run ahead."""
        target: Any = node.target
        if not (_is_dropout(node) or target in _OPERATORS or target.overloadpacket in _OPERATORS):
            return None
        try:
            args, more = map_aggregate(node.args, self._argument), map_aggregate(dict(node.kwargs), self._argument)
        except TecError:
            return None

        def draw(sizes: Sizes) -> torch.Tensor:
            def given(a: Any) -> Any:
                return a.empty(sizes) if isinstance(a, _Shaped) else evaluate(a, sizes)

            with torch.no_grad():
                made = target(*map_aggregate(args, given), **map_aggregate(more, given))
            return made[1] if isinstance(made, tuple) else made

        return draw

    def _argument(self, a: Any) -> Any:
        """An argument without what the graph computes. Raises TecError for a size that no input tells."""
        if not isinstance(a, Node):
            return a
        val = a.meta["val"]
        if not isinstance(val, torch.Tensor):
            return self._size(val)
        shape, strides = (tuple(map(self._size, ns)) for ns in (val.shape, val.stride()))
        return _Shaped(shape, strides, val.dtype, val.device)

    def _size(self, n: Any) -> Size:
        size = size_of(n)
        if not names_of([size]) <= self._symbols.keys():
            raise TecError(f"no input tells the size {size}", hint=FIX_THE_SIZE)
        return size


@dataclass(frozen=True)
class _Shaped:
    """In the place of a tensor whose elements do not count."""

    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    dtype: torch.dtype
    device: torch.device

    def empty(self, sizes: Sizes) -> torch.Tensor:
        shape, strides = evaluate((self.shape, self.strides), sizes)
        return torch.empty_strided(shape, strides, dtype=self.dtype, device=self.device)


def _symbols(given: Sequence[Node]) -> dict[str, tuple[int, int | None]]:
    """Where torch's symbols come from: a placeholder's number, and the dimension where that is a tensor."""
    found: dict[str, tuple[int, int | None]] = {}
    for k, node in enumerate(given):
        val = node.meta.get("val")
        own = enumerate(val.shape) if isinstance(val, torch.Tensor) else ((None, val),)
        for d, n in own:
            if isinstance(n, torch.SymInt) and n.node.expr.is_Symbol:
                found.setdefault(str(n.node.expr), (k, d))
    return found


def _is_seeded(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags


def _is_dropout(node: Node) -> bool:
    """Whether a call is a dropout that drops some of the elements: of none or all, torch draws nothing."""
    return node.target is _ATEN.native_dropout.default and 0 < node.args[1] < 1 and node.args[2] is not False  # type: ignore[operator]


def _standard(graph: torch.fx.Graph, node: Node) -> Node:
    """A call that draws around means or by deviations of the graph, as torch computes it: standard numbers times these, and these added. The call that draws now."""
    mean, std = node.args[0], node.args[1] if len(node.args) > 1 else 1.0
    if node.target._overloadname not in ("Tensor_float", "float_Tensor", "Tensor_Tensor"):  # type: ignore[union-attr]
        return node
    val, trace = node.meta["val"], node.meta.get("stack_trace")
    like = mean if isinstance(mean, Node) and mean.meta["val"].shape == val.shape else std
    if not isinstance(like, Node) or like.meta["val"].shape != val.shape or not like.meta["val"].is_contiguous():
        return node
    with graph.inserting_before(node):
        drawn = graph.call_function(_ATEN.randn_like.default, (like,))
        scaled = graph.call_function(_ATEN.mul.Tensor, (drawn, std))
        moved = graph.call_function(_ATEN.add.Tensor, (scaled, mean))
    for made in (drawn, scaled, moved):
        made.meta |= {"val": val, "stack_trace": trace}
    node.replace_all_uses_with(moved)
    graph.erase_node(node)
    return drawn


def _replaced(graph: torch.fx.Graph, node: Node, last: Node | None) -> Node:
    """The placeholder that stands for the numbers of a call, behind the last one."""
    with graph.inserting_after(last) if last is not None else graph.inserting_before(next(iter(graph.nodes))):
        drawn = graph.placeholder(f"drawn_{node.name}")
    drawn.meta["stack_trace"] = node.meta.get("stack_trace")
    if not _is_dropout(node):
        drawn.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(drawn)
        graph.erase_node(node)
        return drawn
    x, p = node.args[:2]
    kept_val, drawn.meta["val"] = node.meta["val"]
    with graph.inserting_before(node):
        kept = graph.call_function(_ATEN.mul.Tensor, (x, drawn))
        kept = graph.call_function(_ATEN.mul.Tensor, (kept, 1 / (1 - p)))  # type: ignore[operator]
    for made in (kept.args[0], kept):
        made.meta |= {"val": kept_val, "stack_trace": node.meta.get("stack_trace")}  # type: ignore[union-attr]
    for user in list(node.users):
        user.replace_all_uses_with((kept, drawn)[user.args[1]])  # type: ignore[index]
        graph.erase_node(user)
    graph.erase_node(node)
    return drawn
