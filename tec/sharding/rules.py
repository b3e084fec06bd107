"""Rules: which values of a network are split, by patterns of their names.

    {"*q_proj.weight": PartitionSpec("tensor", None), "x": PartitionSpec("data")}

A pattern (`fnmatch`) is held against names of inputs, constants and outputs; one that none of these has is about nodes, by their values' names or their origins.
The first that matches counts. What no rule
names follows from the values around it. A rule is a PartitionSpec, or {mesh axis: Shard | Replicate} where it says more (`Shard(0, copies=2)`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from ..errors import ArgumentError
from ..graph import Graph, Value
from .mesh import Mesh, Partial, PartitionSpec, Placement, Replicate, Shard

Rule = PartitionSpec | Mapping[str, Placement]


class Rules:
    """Rules for a mesh. Raises ArgumentError for what is no rule, and for mesh axes that are not there."""

    def __init__(self, rules: Mapping[str, Any], mesh: Mesh):
        if not isinstance(rules, Mapping):
            raise ArgumentError(f"rules are {type(rules).__name__}", hint="{pattern of names: PartitionSpec(...)}")
        self.mesh = mesh
        self.rules: dict[str, Rule] = {str(k): self._checked(str(k), r) for k, r in rules.items()}

    def _checked(self, pattern: str, rule: Any) -> Rule:
        what = f"the rule for {pattern!r}"
        if isinstance(rule, PartitionSpec):
            named = rule.axes
            for axis in named:
                rule.placement(axis)
        elif isinstance(rule, Mapping) and all(isinstance(p, (Shard, Replicate)) for p in rule.values()):
            named = set(rule)
        else:
            hint = (
                "a value is never said to be Partial: sums come of products"
                if _has_partial(rule)
                else 'PartitionSpec("tensor", None) or {"tensor": Shard(0)}'
            )
            raise ArgumentError(f"{what} is {rule!r}", hint=hint)
        unknown = sorted(named - set(self.mesh.axes))
        if unknown:
            raise ArgumentError(
                f"{what}: the mesh has no axis {unknown[0]!r}", hint=f"its axes: {', '.join(self.mesh.axes)}"
            )
        made: Rule = rule
        return made

    def names(self, graph: Graph, all_used: bool = True) -> dict[Value, str]:
        """Of each value that a rule is about, the pattern. all_used: raise ArgumentError for a pattern that no value has."""
        ends: dict[Value, list[str]] = {}
        for v in [*graph.inputs, *graph.constants()]:
            ends.setdefault(v, []).append(v.name)
        for v, name in zip(graph.outputs, graph.output_names):
            ends.setdefault(v, []).append(name)
        inner = {n.outputs[0]: [n.outputs[0].name, n.origin] for n in graph.nodes}
        found: dict[Value, str] = {}
        used = _match(ends, list(self.rules), found)
        # Nodes are often named after their weights, which are then meant.
        used |= _match(inner, [p for p in self.rules if p not in used], found)
        idle = [p for p in self.rules if p not in used]
        if idle and all_used:
            some = [v.name for v in [*graph.inputs, *graph.constants()]][:8]
            raise ArgumentError(
                f"no value of the network has a name like {idle[0]!r}", hint=f"it has {', '.join(some)}, ..."
            )
        return found

    def placement(self, pattern: str, axis: str) -> Placement:
        """What a rule says of one mesh axis."""
        rule = self.rules[pattern]
        return rule.placement(axis) if isinstance(rule, PartitionSpec) else rule.get(axis, Replicate())


def _match(names: Mapping[Value, list[str]], patterns: list[str], found: dict[Value, str]) -> set[str]:
    """Add the first pattern that a name of each value is like; the patterns that are like any."""
    used = set()
    for v, given in names.items():
        for pattern in patterns:
            if any(fnmatchcase(name, pattern) for name in given if name):
                used.add(pattern)
                found.setdefault(v, pattern)
    return used


def _has_partial(rule: Any) -> bool:
    return isinstance(rule, Mapping) and any(isinstance(p, Partial) for p in rule.values())


def decoder_rules(config: Any, ranks: int, axis: str = "tensor", names: Iterable[str] | None = None) -> dict[str, Rule]:
    """Tensor parallel rules for a decoder whose weights have Hugging Face's names, [outputs, inputs] each.

    Queries, keys, values, gate and up are split by their rows, which are columns of the product; the output and down projections by theirs, and their sums are
    reduced; the head by vocabulary; caches by heads. Keys and values are held several times where there are fewer heads than ranks. config: `tec.lm.Config`. names:
    those that the network has; rules for others are left away.
    Raises ArgumentError where heads do not fit the ranks. Source: arXiv 1909.08053 (Megatron-LM), section 3.
    """
    heads, kv_heads = config.heads, config.kv_heads
    if heads % ranks:
        raise ArgumentError(
            f"{heads} heads cannot be split among {ranks} ranks of mesh axis {axis!r}",
            hint="a number of ranks that divides the heads",
        )
    if kv_heads % ranks and ranks % kv_heads:
        raise ArgumentError(
            f"{kv_heads} heads of keys and values cannot be split among {ranks} ranks of mesh axis {axis!r}",
            hint="a number of ranks that divides the heads, or leave the projections whole",
        )
    copies = max(1, ranks // kv_heads)
    rows, columns, held = {axis: Shard(0)}, {axis: Shard(1)}, {axis: Shard(0, copies)}
    rules: dict[str, Rule] = {
        "*.q_proj.*": rows, "*.k_proj.*": held, "*.v_proj.*": held, "*.o_proj.weight": columns,
        "*.gate_proj.*": rows, "*.up_proj.*": rows, "*.down_proj.weight": columns,
        "past.*.key": {axis: Shard(1, copies)}, "past.*.value": {axis: Shard(1, copies)},
    }  # fmt: skip
    if config.vocabulary % ranks == 0:
        rules |= {"*lm_head.weight": rows, "*embed_tokens.weight": rows}
    known = None if names is None else list(names)
    return {p: r for p, r in rules.items() if known is None or any(fnmatchcase(n, p) for n in known)}


def names_of(graph: Graph) -> list[str]:
    """The names of a graph's inputs and constants."""
    return [v.name for v in [*graph.inputs, *graph.constants()]]
