"""tvm.contrib.graph_executor: runs what relay.build made."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np

from tec.errors import ArgumentError
from tec.runtime import NDArray

from ..names import absent


class GraphModule:
    """`GraphModule(lib["default"](dev))`: set_input, run, get_output."""

    def __init__(self, module: Any):
        self.network, self.device = module.network, module.device
        self._inputs: dict[str, Any] = {}
        self._outputs: list[NDArray] = []
        self._executor = self.network.executor(self.device)

    def set_input(self, key: Any = None, value: Any = None, **params: Any) -> None:
        """Give one input by name or number, or several by name."""
        names = [i["name"] for i in self.network.inputs]
        given = dict(params)
        if key is not None:
            given[names[key] if isinstance(key, int) else key] = value
        for name, array in given.items():
            if name not in names:
                raise ArgumentError(f"the network has no input {name!r}", hint=f"its inputs: {', '.join(names)}")
            self._inputs[name] = array

    def run(self, **input_dict: Any) -> None:
        """Compute the outputs."""
        self.set_input(**input_dict)
        self._outputs = self._executor.run(self._inputs)

    def get_num_inputs(self) -> int:
        """How many inputs there are."""
        return len(self.network.inputs)

    def get_num_outputs(self) -> int:
        """How many outputs there are."""
        return len(self.network.outputs)

    def get_input(self, index: int, out: Any = None) -> Any:
        """What an input was set to."""
        return self._inputs[self.network.inputs[index]["name"]]

    def get_output(self, index: int, out: Any = None) -> Any:
        """An output of the last run. Raises ArgumentError before one."""
        if not self._outputs:
            raise ArgumentError("get_output before run()", hint="module.run() computes the outputs")
        found = self._outputs[index]
        return found if out is None else out.copyfrom(found)

    def benchmark(
        self,
        device: Any,
        func_name: str = "run",
        repeat: int = 5,
        number: int = 5,
        end_to_end: bool = False,
        **inputs: Any,
    ) -> Any:
        """Seconds of a run: `mean`, `median`, `min`, `max`, `std`, `results`."""
        self.set_input(**inputs)
        return self._timed(number, repeat)

    def _timed(self, number: int, repeat: int) -> Any:
        self.run()
        results = []
        for _ in range(repeat):
            start = time.perf_counter()
            for _ in range(number):
                self._executor.run(self._inputs)
            self.device.sync()
            results.append((time.perf_counter() - start) / number)
        names = ("mean", "median", "min", "max", "std")
        return SimpleNamespace(results=results, **{n: float(getattr(np, n)(results)) for n in names})

    @property
    def module(self) -> Any:
        """`module.time_evaluator("run", dev, number=, repeat=)`, as TVM's programs time a network."""

        def time_evaluator(func_name: str, dev: Any, number: int = 10, repeat: int = 1, **options: Any) -> Any:
            return lambda: self._timed(number, repeat)

        return SimpleNamespace(time_evaluator=time_evaluator)


def create(graph_json_str: Any, libmod: Any, device: Any) -> GraphModule:
    """A module from what relay.build gives for `graph, lib, params`: the network itself."""
    network = getattr(libmod, "network", libmod)
    return GraphModule(SimpleNamespace(network=network, device=device))


__getattr__ = absent(__name__)
