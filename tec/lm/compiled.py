"""Compiling a language model: the graph of a checkpoint, whose weights are deferred, and the code for it. `kept` has both on the disk.

In: a checkpoint, a target, options. Out: `Compiled`: code, a plan, and the recipes that make its weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import InternalError
from ..graph.compiler import compile_graph
from ..graph.deferred import Deferred
from ..graph.progress import default_progress
from ..llvmworker import client
from .architectures import find
from .checkpoint import Checkpoint
from .config import Config
from .kept import Compiled, Form
from .layers import Layers
from .paged import PagedLayers
from .recipes import Recipe


def build(checkpoint: Checkpoint, form: Form) -> tuple[Any, list[Recipe], list[str]]:
    """The graph of a checkpoint, the recipes of its constants, and the formats that became floats. Raises ImportModelError."""
    config = Config(checkpoint.config, checkpoint.architecture)
    with form.target:
        if form.block:
            layers: Layers = PagedLayers(config, checkpoint.tensors, form.target, form.dtype, form.block)
        else:
            layers = Layers(config, checkpoint.tensors, form.target, form.dtype, form.all_logits, form.features)
        layers.tokens = form.tokens or layers.tokens
        layers.cache_type = form.cache or form.dtype
        if form.forgets:
            layers.forget_beyond_windows()
        if form.placed:
            layers.place_rows()
        graph = layers.finish(find(checkpoint.architecture)(layers))
    return graph, layers.w.recipes, sorted(layers.w.slow)


def compiled(
    checkpoint: Checkpoint, form: Form, progress: Any = None, begun: Callable[..., None] | None = None
) -> Compiled:
    """The code for a checkpoint. begun: see `starting.code_of`. Raises ImportModelError, LoweringError, CodegenError."""
    client.start()
    graph, recipes, slow = build(checkpoint, form)
    if begun is not None:
        begun(recipes, {v.name: (v.dtype, list(v.shape)) for v in graph.constants() if isinstance(v.data, Deferred)})
    net = compile_graph(graph, form.target, progress=progress or default_progress(), state=graph.state)
    _check_recipes(net.params, recipes)
    constants = {n: v for n, v in net.params.items() if not isinstance(v, Deferred)}
    return Compiled(net.module, net.plan, net.report, recipes, constants, slow, layout=net._layout)


def _check_recipes(params: Any, recipes: list[Recipe]) -> None:
    """No pass may have made a constant of one that has no numbers yet."""
    known = {name for r in recipes for name in r.params.values()}
    strange = [n for n, v in params.items() if isinstance(v, Deferred) != (n in known)]
    large = [n for n, v in params.items() if n not in known and v.nbytes > 1 << 20]
    if strange or large:
        raise InternalError(f"constants without a recipe: {', '.join([*strange, *large][:4])}")


__all__ = ["Compiled", "Form", "build", "compiled"]
