"""relay.build: a network through tec.compile, and what TVM's programs do with the result."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tec.errors import ArgumentError
from tec.graph.compiler import compile as _compile
from tec.runtime.networks.network import Network

from ..devices import cpu
from ..modules import keep
from ..target import plain


class RelayModule:
    """A network before it is compiled: a model, and the shapes of its inputs."""

    def __init__(self, model: Any, shapes: Any = None):
        self.model, self.shapes = model, shapes

    def __repr__(self) -> str:
        return f"RelayModule({self.shapes or 'shapes as the model has them'})"


class Factory:
    """What relay.build gives: `lib["default"](dev)` makes an executor, `lib.export_library(path)` keeps it."""

    def __init__(self, network: Network):
        self.network = network

    def __getitem__(self, name: str) -> Any:
        if name not in ("default", "get_graph_json"):
            raise ArgumentError(f"a network has no function {name!r}", hint='lib["default"](device)')
        return lambda *devices: SimpleNamespace(network=self.network, device=devices[0] if devices else cpu())

    def get_lib(self) -> Network:
        """The compiled network."""
        return self.network

    def get_params(self) -> dict[str, Any]:
        """None: the weights are in the network."""
        return {}

    def export_library(self, file_name: Any, fcompile: Any = None, **options: Any) -> None:
        """Write the network to a file, which `tvm.runtime.load_module` reads."""
        keep(file_name, self.network)


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
