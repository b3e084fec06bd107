"""`@tec.kernel(autotune=[...])`: constants of a kernel, and its block, chosen by measuring.

@tec.kernel(autotune=[{"T": 1}, {"T": 4, "block": 128}])
def twice(x, y, T):
    ...

twice[lambda c: tec.ceildiv(n, 256 * c["T"]), 256](x, y)
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from ..errors import KernelError, TecError
from ..kernels.translate import Argument
from ..runtime.arrays.ndarray import NDArray
from .launching import Kernel
from .packs import Pack, arrays_in, packed

_ROUNDS = 3  # launches of a configuration that are timed, after one that is not; the least time counts
_LAUNCH = ("block", "grid")  # what a configuration may say of the launch


class Autotuned:
    """A kernel whose constants are chosen at its first launch with arguments of given types and sizes. `chosen`: configurations by what they were
    measured for; `best`: that of the last launch."""

    def __init__(self, function: Any, configs: Sequence[dict[str, Any]]):
        self.kernel = function if isinstance(function, Kernel) else Kernel(function)
        self.__name__, self.__doc__ = self.kernel.__name__, self.kernel.__doc__
        self.__tec_kernel__: FunctionType = self.kernel.__tec_kernel__
        self.names = list(inspect.signature(self.__tec_kernel__).parameters)
        self.configs = [dict(c) for c in configs]
        if not self.configs or any(not isinstance(c, dict) for c in configs):
            raise KernelError(
                f"{self.__name__}: autotune takes a list of dicts of constants", hint='[{"T": 1}, {"T": 4}]'
            )
        for c in self.configs:
            wrong = [k for k in c if k not in self.names and k not in _LAUNCH]
            if wrong:
                raise KernelError(
                    f"{self.__name__}: autotune of {wrong[0]}, no parameter",
                    hint=f"parameters: {', '.join(self.names)}; of the launch: block, grid",
                )
        self.chosen: dict[Any, dict[str, Any]] = {}
        self.best: dict[str, Any] | None = None

    def __getitem__(self, config: Any) -> TunedLauncher:
        return TunedLauncher(self, config if isinstance(config, tuple) and len(config) > 1 else (config, 256))

    def __call__(self, *args: Any, **named: Any) -> Any:
        raise KernelError(
            f"{self.__name__} is a kernel, and is called like a function", hint=f"{self.__name__}[grid, block](...)"
        )

    def constants(self, config: dict[str, Any], args: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a launch by name, with a configuration's constants."""
        free = [n for n in self.names if n not in config]
        if len(args) > len(free):
            raise KernelError(
                f"{self.__name__} takes {len(free)} arguments ({', '.join(free)}), {len(args)} given",
                hint="leave out the parameters that autotune= decides",
            )
        tuned = {k: Argument("constant", value=v) for k, v in config.items() if k not in _LAUNCH}
        return {**dict(zip(free, args)), **named, **tuned}


class TunedLauncher:
    """The shape of a launch; each part may be a function of the configuration."""

    def __init__(self, tuned: Autotuned, shape: tuple[Any, ...]):
        self.tuned, self.shape = tuned, shape

    def __call__(self, *args: Any, **named: Any) -> None:
        """Launch with the best configuration; the first launch of a kind measures them all."""
        tuned = self.tuned
        given = [packed(a) for a in (*args, *named.values())]
        key = (
            tuple([_kind(a) for a in given]),
            tuple(named),
            self.shape if not any(map(callable, self.shape)) else None,
        )
        best = tuned.chosen.get(key)
        if best is None:
            best = tuned.chosen[key] = self._pick(args, named, given)
        tuned.best = best
        self._launch(best, args, named)

    def _launch(self, config: dict[str, Any], args: Sequence[Any], named: dict[str, Any]) -> None:
        shape = [f(config) if callable(f) else f for f in self.shape]
        shape[0], shape[1] = config.get("grid", shape[0]), config.get("block", shape[1])
        self.tuned.kernel[tuple(shape)](**self.tuned.constants(config, args, named))

    def _pick(self, args: Sequence[Any], named: dict[str, Any], given: Sequence[Any]) -> dict[str, Any]:
        arrays = [a for a in arrays_in(given) if a.size]
        kept = [(a, a.numpy()) for a in arrays if a.writable]
        # The clock of a software GPU means nothing: the first configuration that compiles will do.
        software = any(a.device.driver is not None and "emu" in type(a.device.driver).__module__ for a in arrays)
        times: list[tuple[float, int]] = []
        failed: TecError | None = None
        for k, config in enumerate(self.tuned.configs):
            try:
                times.append((self._timed(config, args, named, arrays, 0 if software else _ROUNDS), k))
            except TecError as e:  # what the chip has no room for: another configuration may fit
                failed = e
            for a, values in kept:
                a.copyfrom(values)
            if software and times:
                break
        if not times:
            raise failed or KernelError(
                f"{self.tuned.__name__}: no configuration is left to choose from",
                hint="each of autotune= failed to compile or to run: launch one of them alone to see why",
            )
        return self.tuned.configs[min(times)[1]]

    def _timed(
        self, config: dict[str, Any], args: Sequence[Any], named: dict[str, Any], arrays: Sequence[NDArray], rounds: int
    ) -> float:
        best = float("inf")
        for turn in range(rounds + 1):
            start = time.perf_counter()
            self._launch(config, args, named)
            for device in {a.device for a in arrays if a.device.driver is not None}:
                device.sync()
            if turn:
                best = min(best, time.perf_counter() - start)
        return best


def _kind(a: Any) -> Any:
    if type(a) is NDArray:
        return a.layout
    return a.key if type(a) is Pack else a if isinstance(a, (int, float, str, bool, type(None))) else repr(a)
