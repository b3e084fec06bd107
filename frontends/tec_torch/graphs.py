"""What `tec.compile` asks of the frontend: the graph of a module, an exported program, or a file of one."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from tec import ImportModelError, TecError
from tec.graph import Graph
from tec.graph.graph import bind_sizes
from tec.ops.guards import Guard

from .export import FunctionalProgram, program_of
from .importer import converter_of, location_of
from .network import TorchNetwork
from .types import array_of, expression_of


def load(
    source: Any, shapes: Mapping[str, Any] | None = None, freeze: Mapping[str, Any] | None = None, args: Any = None
) -> Graph:
    """The graph of a module (with `args` that it is traced with), of an exported program, or of a file that `torch.export.save` wrote.

    shapes: as for `tec.compile`, by the names of `forward`'s parameters: a name in a shape is a size that stays open. freeze: inputs that are constants.
    """
    if isinstance(source, (str, os.PathLike)):
        source = _loaded(os.fspath(source))
    program, made = program_of(source, shapes, args)
    if made.failed:
        raise _missing(made.failed)
    graph = made.graph
    bound = {k: int(v) for k, v in (shapes or {}).items() if isinstance(v, (int, np.integer))}
    _note_ranges(graph, program)
    if bound or freeze:
        return _bound(graph, bound, freeze or {})  # its inputs are no longer the program's: it runs as any network does
    graph.present = lambda net: TorchNetwork(net, program, made)
    return graph


def _loaded(path: str) -> Any:
    """The exported program in a file. Raises ImportModelError for a file that is none, whatever torch raises."""
    logger = logging.getLogger("torch.export")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # it logs a traceback beside the exception
    try:
        return torch.export.load(path)
    except Exception as e:
        raise ImportModelError(f"cannot read {path}: {e}", hint="torch.export.save writes such files") from None
    finally:
        logger.setLevel(level)


def _bound(graph: Graph, bound: Mapping[str, int], freeze: Mapping[str, Any]) -> Graph:
    inputs = {v.name: v for v in graph.inputs}
    for name, array in freeze.items():
        if name not in inputs:
            raise ImportModelError(f"no input {name!r} to freeze", hint=f"inputs: {', '.join(inputs)}")
        value = inputs[name]
        value.data = array_of(array) if isinstance(array, torch.Tensor) else np.asarray(array)
        graph.inputs.remove(value)
    return bind_sizes(graph, dict(bound)) if bound else graph


def _missing(failed: Mapping[Any, TecError]) -> TecError:
    """What is wrong with calls that cannot be converted: all operators that are missing, or the first of other reasons."""
    first, error = next(iter(failed.items()))
    missing = sorted({str(n.target) for n in failed if converter_of(n.target) is None})
    if converter_of(first.target) is None and missing:
        error = ImportModelError(
            f"no conversion of {', '.join(missing)}", where=location_of(first), locate=False,
            hint='torch.compile(module, backend="tec") leaves to torch what tec lacks',
        )  # fmt: skip
    return error


def _note_ranges(graph: Graph, program: FunctionalProgram) -> None:
    """What torch.export found that sizes must satisfy, as conditions that a run checks."""
    used = {str(d) for v in graph.inputs for d in v.shape if not isinstance(d, int)}
    for symbol, span in program.exported.range_constraints.items():
        if not getattr(symbol, "is_Symbol", False):
            continue
        size = size_of_symbol(symbol, program.names)
        if size is None or str(size) not in used:
            continue
        low, high = (int(x) if x.is_Integer else None for x in (span.lower, span.upper))
        # A least size of 2 is torch's reading of "not 0 and not 1", which the code does not rest on.
        if low is not None and low > 2:
            graph.guards.append(Guard(size - low, f"{size} >= {low}"))
        if high is not None and high < 2**31 - 1:
            graph.guards.append(Guard(high - size, f"{size} <= {high}"))


def size_of_symbol(symbol: Any, names: Mapping[str, str]) -> Any:
    try:
        return expression_of(symbol, names)
    except ImportModelError:
        return None
