"""An `onnx.backend.base.Backend` on tec: `prepare`, `run_model`, `run_node`, `supports_device`.

    rep = tec_onnx.backend.prepare(model, device="CPU")
    outputs = rep.run([x])

Devices: "CPU", "ROCM" (a GPU, or the software one where `TEC_EMULATE` is set), "ROCM_EMU:gfx942", "CUDA"; "REFERENCE" runs
operator by operator in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

import tec
from tec import ImportModelError
from tec.graph import Graph
from tec.graph.compiler import compile_graph

from .importer import unsupported
from .session import Runner, Session, reference_runner


def compiled_runner(target: Any = "llvm", device: Any = None, dtype: str | None = None) -> Runner:
    """Makes networks of graphs: compiled for `target`, run on `device` (the target's own by default)."""

    def make(graph: Graph) -> Callable[[Mapping[str, Any]], list[Any]]:
        if any(0 in v.shape for v in [*graph.inputs, *graph.outputs, *(o for n in graph.nodes for o in n.outputs)]):
            # Nothing to compute with: kernels of no elements.
            return reference_runner(graph)
        net = compile_graph(
            graph, tec.Target(target) if isinstance(target, str) else target, dtype=dtype, progress=_quiet
        )

        def run(feeds: Mapping[str, Any]) -> list[Any]:
            return list(net.run({k: np.asarray(v, order="C") for k, v in feeds.items()}, device=device))

        return run

    return make


def _quiet(*_: Any) -> None:
    return None


def runner_for(device: str) -> Runner:
    """The runner of a device's name as ONNX writes it. Raises ImportModelError."""
    kind, _, rest = device.partition(":")
    kind = kind.upper()
    if kind == "REFERENCE":
        return reference_runner
    if kind == "CPU":
        return compiled_runner("llvm")
    if kind == "CUDA":
        return compiled_runner("cuda", tec.cuda(int(rest or 0)))
    if kind == "ROCM_EMU":
        chip = rest or "gfx942"
        return compiled_runner(f"rocm -mcpu={chip}", tec.rocm_emu(chip))
    if kind == "ROCM":
        dev = tec.rocm(int(rest or 0))
        return compiled_runner(f"rocm -mcpu={dev.arch.partition(':')[0]}", dev)
    raise ImportModelError(f"unknown device {device!r}", hint="CPU, ROCM, ROCM_EMU:gfx942, CUDA or REFERENCE")


class TecBackendRep(BackendRep):
    """A prepared model; `run(inputs)` gives the outputs as a tuple."""

    def __init__(self, session: Session):
        self.session = session

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        if not isinstance(inputs, (list, tuple, dict)):
            inputs = [inputs]
        return tuple(self.session.run(inputs))


class TecBackend(Backend):
    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        return not unsupported(model)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> TecBackendRep:
        return TecBackendRep(Session(model, kwargs.pop("runner", None) or runner_for(device)))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Sequence[Any], device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """One operator on its inputs, which line up with those that the node names."""
        from onnx import helper

        names = [n for n in node.input if n]
        values = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.asarray(x).dtype), np.shape(x))
            for n, x in zip(names, inputs)
        ]
        outs = [helper.make_empty_tensor_value_info(n) for n in node.output if n]
        graph = helper.make_graph([node], "node", values, outs)
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, version)])
        return cls.prepare(model, device, **kwargs).run(list(inputs))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        try:
            runner_for(device)
        except tec.TecError:
            return False
        return True


is_compatible = TecBackend.is_compatible
prepare = TecBackend.prepare
run_model = TecBackend.run_model
run_node = TecBackend.run_node
supports_device = TecBackend.supports_device
