"""relay.build: a network through tec.compile, and what TVM's programs do with the result."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tec.errors import ArgumentError
from tec.graph.compiler import compile as _compile

from ..modules import Factory
from ..target import plain


class RelayModule:
    """A network before it is compiled: a model, and the shapes of its inputs."""

    def __init__(self, model: Any, shapes: Any = None):
        self.model, self.shapes = model, shapes

    def __repr__(self) -> str:
        return f"RelayModule({self.shapes or 'shapes as the model has them'})"


def build(
    ir_mod: Any, target: Any = None, target_host: Any = None, executor: Any = None, runtime: Any = None, workspace_memory_pools: Any = None,
    constant_memory_pools: Any = None, params: Any = None, mod_name: str = "default",
) -> Factory:  # fmt: skip
    """Compile a network. Raises what `tec.compile` raises."""
    if not isinstance(ir_mod, RelayModule):
        raise ArgumentError(
            f"relay.build of {type(ir_mod).__name__}", hint="relay.frontend.from_onnx(model, shapes) gives a network"
        )
    return Factory(_compile(ir_mod.model, plain(target), ir_mod.shapes))


def create_executor(
    kind: str = "graph", mod: Any = None, device: Any = None, target: Any = "llvm", params: Any = None
) -> Any:
    """`create_executor("graph", mod, dev, target, params).evaluate()` is a function of the network's inputs, in order or by name."""
    factory = build(mod, target)

    def evaluate() -> Any:
        def run(*inputs: Any, **named: Any) -> Any:
            found = factory.network.run_arrays(named or list(inputs), device)
            return found[0] if len(found) == 1 else found

        return run

    return SimpleNamespace(evaluate=evaluate)


build_module = SimpleNamespace(build=build, create_executor=create_executor)
