"""Modules and exported programs in core ATen.

Out: a `FunctionalProgram`, which knows its graph and how a call fills it. A module goes through torch.export first; composite operators that tec
has whole (attention, normalizations, linear layers, activations) stay whole.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind

from tec import ImportModelError, TecError

from . import (
    encoder_layers,
    every,  # noqa: F401  (decompositions leave what is converted whole)
)
from .functional import functional
from .importer import Conversion, convert, converter_of
from .ops_rnn import layers_in_steps
from .remedies import LEFT_TO_TORCH

# Composites whose parts serve better: what they add is torch's checking of arguments.
_IN_PARTS = frozenset(
    {"matmul", "einsum", "pad", "to", "contiguous", "reshape", "type_as", "expand_as", "chunk", "tensor_split"}
)


def decompositions(written_out: Collection[Any] = ()) -> Any:
    """torch.export's decompositions to core ATen, less those of operators that tec takes whole; `written_out` are decomposed all the same."""
    table = torch.export.default_decompositions()
    for op in list(table.keys()):
        if op not in written_out and converter_of(op) is not None and str(op).split(".")[1] not in _IN_PARTS:
            table.pop(op, None)
    encoder_layers.add_to(table)
    return table


@dataclass
class FunctionalProgram:
    """An exported program as a graph of calls that write nothing, and how its placeholders are filled.

    graph: in core ATen, or as exported where tec takes it so; tensors: parameters, buffers and constants by placeholder; changed: those that a run writes, and to what output's place each goes;
    given: placeholders of the user's inputs in order, None for a constant; names: of sizes, by torch's symbols.
    """

    exported: Any
    graph: torch.fx.Graph
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    given: list[str | None] = field(default_factory=list)
    writes: dict[int, str] = field(default_factory=dict)
    results: list[tuple[int | None, Any]] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)

    def frozen(self, live: frozenset[str] = frozenset()) -> dict[str, torch.Tensor]:
        """What is constant in a compiled network: the tensors that no run writes, less those that are inputs."""
        return {n: t for n, t in self.tensors.items() if n not in live and n not in self.writes.values()}

    def convert(self, live: frozenset[str] = frozenset(), collect: bool = False) -> Conversion:
        """The graph with all weights but `live` as constants; see `importer.convert`."""
        return convert(self.graph, self.frozen(live), self.names, collect)


def program_of(
    source: Any, shapes: Mapping[str, Any] | None = None, args: Any = None
) -> tuple[FunctionalProgram, Conversion]:
    """The program of a module or of what was exported, and what becomes of it; decomposed to core ATen where it must be."""
    open_names: dict[str, tuple[Any, ...]] = {}
    if isinstance(source, torch.nn.Module):
        exported, open_names = export_module(source, args, shapes)
    else:
        if args is not None:
            raise ImportModelError("args are for a module: an exported program has its own", hint="leave args out")
        exported = source
    as_it_is = functional(exported.graph_module.graph)
    if as_it_is is not None:
        program = _program(exported, as_it_is, open_names)
        made = program.convert(collect=True)
        if not made.failed:
            return program, made
    try:
        with torch.no_grad():
            exported = exported.run_decompositions(decompositions(layers_in_steps(exported.graph_module.graph)))
    except TecError:
        raise
    except Exception as error:
        raise ImportModelError(
            f"torch.export cannot decompose it: {_words(error)}",
            hint='torch.compile(module, backend="tec") leaves such calls to torch',
        ) from error
    program = _program(exported, exported.graph_module.graph, open_names)
    return program, program.convert(collect=True)


def _program(exported: Any, graph: torch.fx.Graph, open_names: Mapping[str, tuple[Any, ...]]) -> FunctionalProgram:
    """How the graph is filled, by the exported program's signature."""
    program = FunctionalProgram(exported, graph)
    signature = exported.graph_signature
    state = {**exported.state_dict, **exported.constants}
    for spec in signature.input_specs:
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            program.tensors[spec.arg.name] = state[spec.target]
        elif spec.kind is InputKind.USER_INPUT:
            program.given.append(None if isinstance(spec.arg, ConstantArgument) else spec.arg.name)
        else:
            raise ImportModelError(f"an exported program with an input of kind {spec.kind.name}", hint=LEFT_TO_TORCH)
    own = {s.target: s.arg.name for s in signature.input_specs if s.target is not None}
    for k, spec in enumerate(signature.output_specs):
        if spec.kind is OutputKind.USER_OUTPUT:
            is_constant = isinstance(spec.arg, ConstantArgument)
            program.results.append((None, spec.arg.value) if is_constant else (k, None))
        elif spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
            program.writes[k] = own.get(spec.target, spec.target)
        else:
            raise ImportModelError(f"an exported program with an output of kind {spec.kind.name}", hint=LEFT_TO_TORCH)
    _name_sizes(program, open_names)
    return program


def _name_sizes(program: FunctionalProgram, open_names: Mapping[str, tuple[Any, ...]]) -> None:
    """torch's symbols by the names that the shapes gave them."""
    for node in program.graph.nodes:
        for d, name in enumerate(open_names.get(node.name, ())):
            size = node.meta["val"].shape[d] if node.op == "placeholder" else None
            if isinstance(name, str) and isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                program.names[str(size.node.expr)] = name


# ---- exporting a module


def export_module(
    module: torch.nn.Module, args: Any, shapes: Mapping[str, Any] | None = None
) -> tuple[Any, dict[str, tuple[Any, ...]]]:
    """(the exported program, open sizes' names by input). args: a tensor, a tuple of arguments, or a dict of named ones."""
    if args is None:
        raise ImportModelError(
            f"{type(module).__name__} is traced with arguments",
            hint="tec.compile(module, args=(example,)), tensors of the right types and shapes",
        )
    positional, named = (
        ((), dict(args))
        if isinstance(args, Mapping)
        else (tuple(args) if isinstance(args, (tuple, list)) else (args,), {})
    )
    try:
        bound = inspect.signature(module.forward).bind(*positional, **named)
    except TypeError as error:
        raise ImportModelError(
            f"args do not fit {type(module).__name__}.forward: {error}",
            hint='args=(x, ...) in forward\'s order, or args={"name": x}',
        ) from None
    wanted = {k: v for k, v in (shapes or {}).items() if not isinstance(v, (int, np.integer))}
    unknown = [k for k in wanted if k not in bound.arguments]
    if unknown:
        raise ImportModelError(
            f"{type(module).__name__}.forward has no argument {', '.join(unknown)}",
            hint=f"arguments: {', '.join(bound.arguments)}",
        )
    dynamic, open_names = None, {}
    if wanted:
        dims: dict[str, Any] = {}
        dynamic = {k: _dynamic(k, v, wanted.get(k), dims) for k, v in bound.arguments.items()}
        open_names = {k: tuple(s) for k, s in wanted.items() if isinstance(s, (tuple, list))}
        for k, s in open_names.items():
            bound.arguments[k] = _not_one(bound.arguments[k], s)
        positional, named = bound.args, bound.kwargs
    try:
        with torch.no_grad():
            exported = torch.export.export(module, positional, named, dynamic_shapes=dynamic, strict=False)
    except TecError:
        raise
    except Exception as error:
        raise ImportModelError(
            f"torch.export cannot take {type(module).__name__}: {_words(error)}",
            hint='torch.compile(module, backend="tec") compiles the parts that torch can follow',
        ) from error
    return exported, open_names


def _dynamic(name: str, value: Any, shape: Any, dims: dict[str, Any]) -> Any:
    """torch.export's dynamic shape of one argument; its own forms are left as they are."""
    if not isinstance(shape, (tuple, list)):
        return shape
    if not isinstance(value, torch.Tensor) or value.ndim != len(shape):
        what = f"shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise ImportModelError(
            f"shapes gives {name} {len(shape)} dimensions, and its example is of {what}",
            hint="one number or name for each dimension of the example",
        )
    for n, s in zip(value.shape, shape):
        if isinstance(s, (int, np.integer)) and s != n:
            raise ImportModelError(
                f"shapes gives {name} {tuple(shape)}, and its example is of shape {tuple(value.shape)}",
                hint="write the example's sizes, or names for those that are open",
            )
    made = {d: dims.setdefault(s, torch.export.Dim(s)) for d, s in enumerate(shape) if isinstance(s, str)}
    return made or None


def _not_one(value: Any, shape: Sequence[Any]) -> Any:
    """An example without a 1 in an open dimension, which torch would take for a size that is always 1."""
    for d, s in enumerate(shape):
        if isinstance(s, str) and value.shape[d] == 1:
            value = value.repeat_interleave(2, d)
    return value


def _words(error: BaseException) -> str:
    """The first lines of what torch says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join([type(error).__name__ + ":", *lines[:3]])[:400]


__all__ = ["FunctionalProgram", "decompositions", "export_module", "program_of"]
