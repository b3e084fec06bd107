"""The operator graph, its passes, and compiling a network."""

from __future__ import annotations

from typing import Any

from .graph import Graph, Node, Quantized, Value, run_graph


def __getattr__(name: str) -> Any:
    # compile and load pull in the whole compiler and the runtime: on first use only.
    if name == "compile":
        from .compiler import compile

        # The submodule has the same name; the function is what users mean.
        globals()["compile"] = compile
        return compile
    if name == "grad":
        from .gradient import grad

        return grad
    if name == "load":
        from ..runtime.networks.network import load

        return load
    raise AttributeError(f"module 'tec.graph' has no attribute {name!r}")


__all__ = ["Graph", "Node", "Quantized", "Value", "compile", "grad", "load", "run_graph"]


def __dir__() -> list[str]:
    """The public names, which completion then offers."""
    return sorted(__all__)
