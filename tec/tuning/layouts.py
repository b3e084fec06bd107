"""Times of the layouts that a network's convolutions may have, measured: what the graph's pass then chooses by, in place of the model's.

Each layout of each distinct convolution is a job of its own, before the search: which groups there are depends on what they say.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

from ..choices import layout_options, schedule
from ..choices.layout_options import Option
from ..choices.store.database import Key, templates_version
from ..graph.graph import Graph, Node
from ..graph.optimize import optimize
from ..graph.passes.check_indices import check_indices
from ..graph.passes.fuse import fuse
from ..graph.passes.layout import choose_layouts
from ..graph.passes.layout_choice import Layouts, options_of
from ..graph.programs import program_of
from ..graph.sizes import sizes_of_group
from ..ir.visit import deep_recursion
from ..target import Target
from .tasks import key_of


@dataclass(frozen=True)
class LayoutTask:
    """One layout of a convolution, to be timed."""

    name: str
    key: Key
    target: Target
    node: Node
    option: Option

    @deep_recursion()
    def program(self) -> bytes:
        """The convolution's loop IR in this layout by its default schedule, pickled."""
        with self.target:
            graph = choose_layouts(*self._alone())
            (group,) = [g for g in fuse(graph) if any(n.op == "conv" for n in g.nodes)]
            program = program_of(group, 0, sizes_of_group(group), graph.guards, self.target)
            return pickle.dumps(program.loops(schedule(program.outputs, self.target)))

    def _alone(self) -> tuple[Graph, Target, Layouts]:
        x, w = self.node.inputs
        g = Graph(self.name)
        (out,) = g.add("conv", [g.input("x", x.dtype, x.shape), w], self.node.attrs)
        g.set_outputs([out])
        assert out.node is not None
        return g, self.target, Layouts({out.node: self.option.convolution})

    @property
    def words(self) -> dict[str, Any]:
        """The layout as a choice, for reports of progress."""
        return {"template": layout_options.TEMPLATE, "x": self.option.x.name, "y": self.option.y.name}


def layout_tasks(graph: Graph, target: Target, dtype: str | None = None) -> list[LayoutTask]:
    """What is to be timed of a network: nothing where there is nothing to choose."""
    found: dict[str, LayoutTask] = {}
    with target:
        graph, _ = check_indices(graph)
        for node, options in options_of(optimize(graph, target, dtype, until="choose_layouts"), target).items():
            x, w = node.inputs
            for o in layout_options.worth_timing(options):
                signature = layout_options.signature(x.type, w.type, node.attrs, o)
                key = key_of(signature, target, templates_version())
                found.setdefault(
                    signature,
                    LayoutTask(f"{node.outputs[0].name or 'conv'}, {o.x.name} to {o.y.name}", key, target, node, o),
                )
    return list(found.values())
