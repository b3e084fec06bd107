"""What is tuned: the distinct groups of a network, or a template of a user's, each with its spaces and the loop IR of a choice."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..choices import Choice, Group, Scheduled, Space, spaces
from ..choices.store.database import Key, machine_key, templates_version
from ..graph.compiler import as_graph
from ..graph.graph import Graph
from ..graph.optimize import optimize
from ..graph.passes.check_indices import check_indices
from ..graph.passes.fuse import fuse
from ..graph.programs import Program, program_of, signature_of
from ..graph.sizes import sizes_of_group
from ..ir import Func
from ..ir.visit import deep_recursion
from ..target import Target


@dataclass
class Task:
    """One computation to be tuned. calls: how often a run of the network does it."""

    name: str
    key: Key
    target: Target
    spaces: list[Space]
    lower: Callable[[Scheduled], Func]
    calls: int = 1

    @deep_recursion()
    def program(self, choice: Choice) -> bytes:
        """The choice's loop IR, pickled. Raises TecError where the schedule is none."""
        space = next(s for s in self.spaces if s.template == choice["template"])
        with self.target:
            return pickle.dumps(self.lower(space.build(choice)))


def tasks_of_graph(graph: Graph, target: Target, dtype: str | None = None) -> tuple[list[Task], list[str]]:
    """The distinct groups of a network in which something can be chosen; and notes on those that cannot be tuned."""
    found: dict[str, Task] = {}
    notes: list[str] = []
    with target:
        graph, _ = check_indices(graph)
        groups = [g for g in fuse(optimize(graph, target, dtype)) if not g.is_alias]
        calls: dict[Any, list[Any]] = {}
        for group in groups:
            calls.setdefault(signature_of(group, sizes_of_group(group)), []).append(group)
        for number, same in enumerate(calls.values()):
            sizes = sizes_of_group(same[0])
            program = program_of(same[0], number, sizes, graph.guards, target)
            if sizes.names:
                notes.append(f"{program.name} has open sizes ({', '.join(map(str, sizes.products))}): bind them to tune it")  # fmt: skip
                continue
            task = _task(program, target, len(same))
            if task.key.signature in found:
                found[task.key.signature].calls += task.calls
            elif _has_choices(task.spaces):
                found[task.key.signature] = task
    return list(found.values()), notes


def _task(program: Program, target: Target, calls: int) -> Task:
    group = Group.of(program.outputs)
    found = spaces(program.outputs, target)
    return Task(
        program.name, key_of(group.signature, target, templates_version()), target, found, program.loops, calls
    )  # fmt: skip


def key_of(signature: str, target: Target, version: str) -> Key:
    """The key of a computation's records."""
    return Key(signature, str(target), machine_key(target), version)


def _has_choices(found: Sequence[Space]) -> bool:
    return len(found) > 1 or any(len(o) > 1 for s in found for o in s.parameters.values())


def graph_of_model(model: Any, shapes: Mapping[str, Any] | None, freeze: Mapping[str, Any] | None) -> Graph:
    """The operator graph of what `tec.compile` takes."""
    return as_graph(model, shapes, freeze)
