"""Constants of a tile kernel that are chosen at launch: `autotune` measures configurations, `heuristics` computes
constants.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from ..errors import KernelError, TecError, kind_of
from ..runtime.arrays.ndarray import NDArray, empty
from ..runtime.devices.device import Device, as_device
from .tile_arguments import array_of
from .tile_text import KernelInterface
from .tiles import TileKernel, device_elsewhere

_ROUNDS = 3  # launches of a configuration that are timed, after one that is not; the least time counts
# Set before a timed launch: the caches hold nothing of it, and the device is busy until the launch is queued.
_AHEAD_BYTES = 256 << 20


class Config:
    """One configuration: constants by name, waves per program (`num_warps`), and stages."""

    def __init__(
        self,
        kwargs: dict[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Callable[[dict[str, Any]], Any] | None = None,
        ir_override: Any = None,
    ):
        if not isinstance(kwargs, dict):
            raise KernelError(f"Config of {kind_of(kwargs)}", hint='Config({"BLOCK": 128}, num_warps=4)')
        self.kwargs, self.num_warps, self.num_stages, self.pre_hook = dict(kwargs), num_warps, num_stages, pre_hook
        self.num_ctas, self.maxnreg = num_ctas, maxnreg

    def all_kwargs(self) -> dict[str, Any]:
        """Constants and options."""
        return {**self.kwargs, "num_warps": self.num_warps, "num_stages": self.num_stages}

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{k}={v}' for k, v in self.all_kwargs().items())})"


class Chooser(KernelInterface):
    """A kernel around another."""

    def __init__(self, fn: Any):
        self.fn: Any = fn if isinstance(fn, (Chooser, TileKernel)) else TileKernel(fn)
        self.__name__: str = self.fn.__name__
        self.base_fn: Any = self.__tec_tile__

    @property
    def __tec_tile__(self) -> FunctionType:
        inner: FunctionType = self.fn.__tec_tile__
        return inner

    @property
    def arg_names(self) -> list[str]:
        """The parameters' names."""
        return list(self.fn.arg_names)

    def warmup(self, *args: Any, grid: Any = (1,), **named: Any) -> Any:
        """Compile for these arguments, and launch nothing."""
        return self.run(*args, grid=grid, warmup=True, **named)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.fn(*args, **named)


class Autotuner(Chooser):
    """See `autotune`. `best_config`: of the last launch; `cache`: by key. Programs make subclasses of it, so its parameters are Triton's."""

    def __init__(
        self,
        fn: Any,
        arg_names: Sequence[str],
        configs: Sequence[Config],
        key: Sequence[str],
        reset_to_zero: Sequence[str] | None = None,
        restore_value: Sequence[str] | None = None,
        pre_hook: Callable[..., Any] | None = None,
        post_hook: Callable[..., Any] | None = None,
        prune_configs_by: dict[str, Any] | None = None,
        warmup: Any = None,
        rep: Any = None,
        use_cuda_graph: bool = False,
        do_bench: Any = None,
        cache_results: bool = False,
    ):
        super().__init__(fn)
        self.configs, self.keys, self.prune = list(configs) or [Config({})], list(key), dict(prune_configs_by or {})
        self.reset_to_zero, self.restore_value = list(reset_to_zero or ()), list(restore_value or ())
        self.user_defined_pre_hook, self.user_defined_post_hook = pre_hook is not None, post_hook is not None
        self.pre_hook = pre_hook if pre_hook is not None else self._reset
        self.post_hook = post_hook if post_hook is not None else _nothing
        self.cache: dict[Any, Config] = {}
        self.best_config: Config | None = None
        # The arguments of the launch that is chosen for, where a subclass says so; those for which a configuration compiled on a software GPU.
        self.nargs: dict[str, Any] | None = None
        self._found: dict[str, Any] | None = {}

    def run(self, *args: Any, grid: Any = None, warmup: bool = False, **named: Any) -> Any:
        """Launch with the best configuration for the key's values; the first launch with new ones measures. Raises KernelError where none compiles."""
        given = {**dict(zip(self.arg_names, args)), **named}
        key = (
            *[_told(given.get(k)) for k in self.keys],
            *[getattr(v, "dtype", None) or type(v) for v in given.values()],
        )
        best = self.cache.get(key)
        if best is None:
            best = self.cache[key] = self._pick(args, named, grid, given)
        self.best_config = best
        self._hook(best, given)
        return self.fn.run(*args, grid=grid, warmup=warmup, **{**named, **best.all_kwargs()})

    def _hook(self, config: Config, given: dict[str, Any]) -> None:
        if config.pre_hook is not None:
            config.pre_hook({**given, **config.all_kwargs()})
        if self.user_defined_pre_hook:
            self.pre_hook({**given, **config.all_kwargs()}, reset_only=True)
        self._reset(given)

    def _reset(self, given: dict[str, Any], reset_only: bool = False) -> None:
        for name in self.reset_to_zero:
            if given.get(name) is not None:
                _fill(given[name])

    def _pick(self, args: Sequence[Any], named: dict[str, Any], grid: Any, given: dict[str, Any]) -> Config:
        configs = self._pruned(given, named)
        device = _device_of(given.values())
        one_is_enough = len(configs) == 1 or os.environ.get("TEC_INTERPRET") == "1" or _is_software(device)
        kept = {n: _copy(given[n]) for n in self.restore_value if given.get(n) is not None}
        times: list[tuple[float, int]] = []
        failed: TecError | None = None
        for k, config in enumerate(configs):
            try:
                if one_is_enough:
                    if os.environ.get("TEC_INTERPRET") != "1":
                        self.fn.run(*args, grid=grid, warmup=True, **{**named, **config.all_kwargs()})
                    return config
                times.append((self._timed(args, named, grid, given, config, device), k))
            except TecError as e:  # a tile that the chip has no room for: another configuration may fit
                failed = e
            for n, v in kept.items():
                _restore(given[n], v)
        if not times:
            raise failed or KernelError(
                f"{self.__name__}: no configuration is left to choose from",
                hint="prune_configs_by left none, or none compiled: launch one with its constants to see why",
            )
        return configs[min(times)[1]]

    def prune_configs(self, kwargs: dict[str, Any]) -> list[Config]:
        """The configurations that `prune_configs_by` leaves, for the arguments `nargs` and these. Subclasses call it, as of Triton's."""
        return self._pruned(self.nargs or {}, kwargs)

    def _pruned(self, given: dict[str, Any], named: dict[str, Any]) -> list[Config]:
        configs = self.configs
        early, model = self.prune.get("early_config_prune"), self.prune.get("perf_model")
        if early is not None:
            configs = list(early(configs, given, **named))
        if model is None:
            return configs
        top = self.prune.get("top_k", len(configs))
        most = int(len(configs) * top) if isinstance(top, float) and top <= 1 else int(top)
        if len(configs) <= most:
            return configs
        return sorted(configs, key=lambda c: model(**{**given, **named, **c.all_kwargs()}))[:most]

    def _bench(self, *args: Any, config: Config, **named: Any) -> list[float]:
        """Milliseconds of a launch with a configuration, as Triton gives quantiles to subclasses; infinite where it does not compile. On a software GPU, whose clock means
        nothing, the first configuration that compiles is the best."""
        named = dict(named)
        grid = named.pop("grid", None)
        given = {**dict(zip(self.arg_names, args)), **named}
        device = _device_of(given.values())
        try:
            if not _is_software(device):
                return [self._timed(args, named, grid, given, config, device)] * 3
            if self._found is self.nargs:
                return [float("inf")] * 3
            self.fn.run(*args, grid=grid, warmup=True, **{**named, **config.all_kwargs()})
            self._found = self.nargs
        except TecError:
            return [float("inf")] * 3
        return [0.0] * 3

    def _timed(
        self,
        args: Sequence[Any],
        named: dict[str, Any],
        grid: Any,
        given: dict[str, Any],
        config: Config,
        device: Device | None,
    ) -> float:
        """Milliseconds of a launch, by the device's own marks."""
        device = device or as_device("cpu")
        start, stop = device.event(), device.event()
        ahead = empty((_AHEAD_BYTES,), "int8", device) if device.driver is not None else None
        best = float("inf")
        for turn in range(_ROUNDS + 1):
            self._hook(config, given)
            if ahead is not None and device.driver is not None:
                device.driver.memset(device.index, ahead.address, 0, _AHEAD_BYTES, device.local.stream)
            start.record()
            self.fn.run(*args, grid=grid, **{**named, **config.all_kwargs()})
            stop.record()
            if turn:
                best = min(best, start.elapsed_ms(stop))
            elif device.driver is not None:
                device.sync()
        return best


def autotune(
    configs: Sequence[Config],
    key: Sequence[str],
    prune_configs_by: dict[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Any = None,
    post_hook: Any = None,
    warmup: Any = None,
    rep: Any = None,
    use_cuda_graph: bool = False,
    do_bench: Any = None,
    cache_results: bool = False,
) -> Callable[[Any], Autotuner]:
    """Chooses among configurations by measuring them, once for each combination of types and of the values of the
    arguments `key`.

    configs: a list of `Config`. key: names of arguments. The clock of a software GPU means nothing, so the first
    configuration that compiles is used there. Other parameters are Triton's. Returns a decorator.
    """
    is_list = isinstance(configs, (list, tuple))
    for c in configs if is_list else [configs]:
        if not is_list or not _is_config(c):
            raise KernelError(
                f"autotune takes a list of configurations, not {kind_of(c)}",
                hint='autotune([tl.Config({"BLOCK": 128}), tl.Config({"BLOCK": 256})], key=["n"])',
            )
    if isinstance(key, str) or not all(isinstance(k, str) for k in key):
        raise KernelError(f"autotune with the key {key!r}", hint='names of arguments: key=["n"]')
    return lambda fn: Autotuner(
        fn, fn.arg_names, configs, key, reset_to_zero, restore_value, pre_hook, post_hook, prune_configs_by
    )


class Heuristics(Chooser):
    """See `heuristics`."""

    def __init__(self, fn: Any, values: dict[str, Callable[[dict[str, Any]], Any]]):
        super().__init__(fn)
        self.values = values

    def run(self, *args: Any, grid: Any = None, warmup: bool = False, **named: Any) -> Any:
        """Launch with the computed constants."""
        given = {**dict(zip(self.arg_names, args)), **named}
        made: dict[str, Any] = {}
        for k, f in self.values.items():  # each sees what those before it gave
            made[k] = f({**given, **made})
        return self.fn.run(*args, grid=grid, warmup=warmup, **{**named, **made})


def heuristics(values: dict[str, Callable[[dict[str, Any]], Any]]) -> Callable[[Any], Heuristics]:
    """Computes constants from the arguments. values: functions by the name of the constant.

    `heuristics({"EVEN": lambda args: args["n"] % 128 == 0})`
    """
    if not isinstance(values, dict) or not all(map(callable, values.values())):
        raise KernelError(
            f"heuristics takes functions by the name of the constant, not {values!r}"[:200],
            hint='heuristics({"EVEN": lambda args: args["n"] % 128 == 0})',
        )
    return lambda fn: Heuristics(fn, values)


def _is_config(c: Any) -> bool:
    return hasattr(c, "kwargs") and hasattr(c, "num_warps")  # Triton's own, too


def _nothing(*_: Any, **named: Any) -> None:
    """A hook that does nothing."""


def _told(v: Any) -> Any:
    return v if isinstance(v, (int, float, str, bool, type(None))) else type(v)


def _device_of(values: Any) -> Device | None:
    """The device that launches with these arguments run on; None where no array says it."""
    elsewhere = device_elsewhere()
    if elsewhere is not None:
        return elsewhere
    for v in values:
        a = array_of(getattr(v, "base", v) if hasattr(v, "block_shape") else v, "an argument")
        if a is not None:
            return a.device
    return None


def _is_software(device: Device | None) -> bool:
    return device is not None and device.driver is not None and "emu" in type(device.driver).__module__


def _host(v: Any) -> Any:
    return v if isinstance(v, np.ndarray) else array_of(v, "an argument")


def _copy(v: Any) -> Any:
    a = _host(v)
    return a.copy() if isinstance(a, np.ndarray) else a.numpy()


def _restore(v: Any, kept: Any) -> None:
    a = _host(v)
    a[...] = kept


def _fill(v: Any) -> None:
    a = _host(v)
    a[...] = np.zeros(a.shape, np.float32 if isinstance(a, NDArray) and a.dtype == "bfloat16" else a.dtype)
