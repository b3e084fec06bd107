"""`@tec.kernel`: a function that is compiled when it is launched, for the types of its arguments.

```python
@tec.kernel
def saxpy(x, y, a, n):
    i = tec.grid_idx(1)
    if i < n:
        y[i] = a * x[i] + y[i]

saxpy[(n + 255) // 256, 256](x, y, 2.0, n)   # a grid of blocks
saxpy.launch(n)(x, y, 2.0, n)                # n threads, in blocks of tec's choice
```
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, overload

import numpy as np

from ..errors import ArgumentError, KernelError
from ..kernels.source import Source, parameters, source_of
from ..kernels.translate import Argument, LaunchShape
from ..locks import fork_safe_lock
from ..runtime.arrays.ndarray import NDArray, from_numpy
from ..runtime.devices import device as devices
from ..runtime.devices.device import Device
from ..runtime.devices.stream import Stream
from ..runtime.elsewhere import missing
from ..runtime.modules.arguments import OverlapError, place_of
from ..target import Target
from . import messages
from .packs import Foreign, Pack, device_of, flattened, key_of
from .reflection import Reflection
from .specialise import Compiled, launched_type, specialise, taken_arguments, target_of

_MAX_SIGNATURES = 1024  # that a launch keeps; a program with more begins anew
_MAX_LAUNCHES = 1024
_CPU = devices.cpu()


# Options of the decorators of numba, CuPy and CUDA, and what there is in their place.
_OPTIONS = {
    **dict.fromkeys(("max_threads", "launch_bounds", "max_registers", "maxthreads"), "the block of a launch is known to the compiler, which fits the registers to it"),
    **dict.fromkeys(("device", "inline", "forceinline"), "a plain function is inlined where a kernel calls it"),
    **dict.fromkeys(("debug", "lineinfo", "boundscheck"), 'TEC_CHECK=bounds in the environment, or tec.rocm_emu("gfx942", check="all")'),
    **dict.fromkeys(("parallel", "nopython", "nogil", "cache", "link", "lazy"), "leave it out: blocks run in parallel, and code is kept on disk"),
    "fastmath": "leave it out: tec.fma(a, b, c) and tec.rsqrt(x) are the fast forms",
    "target": "leave it out: the kernel is compiled for the device of its arrays",
}  # fmt: skip


@overload
def kernel(function: Callable[..., Any], *, autotune: None = None) -> Kernel: ...


@overload
def kernel(function: None = None, *, autotune: Any = None) -> Callable[[Callable[..., Any]], Any]: ...


@overload
def kernel(function: Callable[..., Any], *, autotune: Any) -> Any: ...


def kernel(function: Any = None, *, autotune: Any = None, **options: Any) -> Any:
    """A kernel made from a Python function over scalars and arrays, which is the program of one thread.
    docs/kernels.md describes the language.

    function: the function. It is compiled at its first launch with given types, for the device of its arrays; NumPy
    arrays are on the CPU. autotune: a list of dicts of constants by parameter, and "block" and "grid", among which the first launch
    with arguments of given types and sizes chooses by measuring; the grid and the block may be functions of the dict. Arrays get their
    values back after each trial. Returns a Kernel. Raises KernelError for what the language does not have, with the line and
    a replacement.

    >>> @tec.kernel
    ... def add(a, b):
    ...     i = tec.grid_idx(1)
    ...     if i < len(a):
    ...         b[i] = a[i] + 1.0
    >>> x, y = np.zeros(8, "float32"), np.zeros(8, "float32")
    >>> add.launch(8)(x, y)
    >>> float(y.sum())
    8.0
    """
    for name in options:
        raise KernelError(
            f"@tec.kernel has no option {name}", hint=_OPTIONS.get(name, "autotune=[...] is its only option")
        )
    if autotune is not None:
        from .autotuning import Autotuned

        return Autotuned(function, autotune) if function is not None else lambda f: Autotuned(f, autotune)
    if function is None:
        return kernel
    return Kernel(function)


class Kernel(Reflection):
    """A kernel. Launch it as `k[grid, block](*arguments)`, `k[grid, block, stream, shared_bytes](...)` or
    `k.launch(n)(...)`.

    >>> @tec.kernel
    ... def twice(a):
    ...     a[tec.thread_idx.x] *= 2.0
    >>> a = np.ones(4, "float32")
    >>> twice[1, 4](a)
    >>> a
    array([2., 2., 2., 2.], dtype=float32)
    """

    __getattr__ = missing("kernel", "a kernel")

    def __init__(self, function: Any):
        function = getattr(function, "__tec_kernel__", function)
        if not isinstance(function, FunctionType):
            hint = (
                "leave it out: types are those of a launch's arguments"
                if isinstance(function, (str, list, tuple))
                else "put it above a def"
            )
            raise KernelError(f"@tec.kernel above {function!r}, no Python function", hint=hint)
        self.__tec_kernel__: FunctionType = function
        self.__name__, self.__doc__, self.__module__ = function.__name__, function.__doc__, function.__module__
        self.has_defaults = bool(function.__defaults__ or function.__kwdefaults__)
        self._source: Source | None = None
        self._compiled: dict[Any, Compiled] = {}
        self._launches: dict[Any, Launcher] = {}
        self._lock = fork_safe_lock()

    def __repr__(self) -> str:
        code = self.__tec_kernel__.__code__
        return f"<tec.kernel {self.__name__} at {code.co_filename}:{code.co_firstlineno}>"

    @property
    def py_func(self) -> FunctionType:
        """The Python function."""
        return self.__tec_kernel__

    @property
    def source(self) -> Source:
        """Its syntax tree, read when it is first asked for."""
        if self._source is None:
            self._source = source_of(self.__tec_kernel__)
        return self._source

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Launch a kernel that strides by `tec.grid_size(1)` with as many threads as the device holds of it at once. Raises KernelError for others."""
        from .occupancy import picked

        if named or self.has_defaults:
            args = self.bound(args, named)
        self[picked(self, args)](*args)

    def __getitem__(self, config: Any) -> Launcher:
        try:
            found = self._launches.get(config)
        except TypeError:
            found = None
        if found is None:
            found = Launcher(self, *_configuration(self.__name__, config))
            if len(self._launches) >= _MAX_LAUNCHES:
                self._launches.clear()
            try:
                self._launches[config] = found
            except TypeError:
                return found  # extents in a list
        return found

    def launch(self, *extents: Any, block: Any = None, stream: Stream | None = None) -> Launcher:
        """A launch of as many threads as the product of `extents` (`n`, or `(m, n)`), in blocks that tec chooses by
        their occupancy.

        `tec.grid_idx` gives the indices of a thread in the order of the extents. Threads beyond the extents do
        nothing. block: threads per block along each extent, to choose them yourself. stream: by default that of the
        device. Returns a Launcher, which a call launches. Raises KernelError.
        """
        key = ("launch", extents, block, stream)
        try:
            found = self._launches.get(key)
        except TypeError:
            found = None
        if found is None:
            from .ndrange import Ranged

            found = Ranged(self, extents, block, stream)
            if len(self._launches) >= _MAX_LAUNCHES:
                self._launches.clear()
            try:
                self._launches[key] = found
            except TypeError:
                return found
        return found

    def compiled(
        self, arguments: Sequence[Argument], launch: LaunchShape, target: Target, alias: bool = False
    ) -> Compiled:
        """The code for given types, from the first time on."""
        key = (tuple(arguments), launch, target.text, alias)
        found = self._compiled.get(key)
        if found is None:
            with self._lock:
                found = self._compiled.get(key)
                if found is None:
                    found = self._compiled[key] = specialise(self.source, arguments, launch, target, alias)
        return found

    def bound(self, args: Sequence[Any], named: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments of a launch in the order of the parameters, with defaults. Raises KernelError."""
        try:
            found = inspect.signature(self.__tec_kernel__).bind(*args, **named)
        except TypeError as e:
            raise KernelError(f"{self.__name__}: {e}") from None
        found.apply_defaults()
        return (*found.args, *found.kwargs.values())

    def forget(self) -> None:
        """Drop what was compiled: a constant from outside has changed."""
        self._compiled.clear()
        for launcher in self._launches.values():
            launcher.known.clear()
            launcher.quick.clear()


class Launcher:
    """A kernel with the shape of a launch; a call launches it."""

    def __init__(self, kernel: Kernel, launch: LaunchShape, grid: tuple[int, int, int], stream: Stream | None):
        self.kernel = kernel
        self.shape = launch
        self.grid = grid
        self.stream = stream
        self.sizes: tuple[int, ...] = grid[: launch.grid_ndim]
        self.known: dict[Any, Compiled] = {}
        # Launches on the CPU by what follows from the arguments' layouts and types, of those that ran.
        self.quick: dict[Any, tuple[Compiled, Any]] = {}
        self.is_simple = stream is None and 0 not in grid and type(self) is Launcher

    def __repr__(self) -> str:
        return f"<{self.kernel.__name__}[{self.grid}, {self.shape.block}]>"

    def __call__(self, *args: Any, **named: Any) -> None:
        """Launch the kernel on its arguments' device; arrays are written in place. Asynchronous on a GPU, unless it prints or asserts."""
        if self.quick and not named and self._quickly(args):
            return
        if named or self.kernel.has_defaults:
            args = self.kernel.bound(args, named)
        given: Sequence[Any] = [from_numpy(a) if type(a) is np.ndarray and a.dtype.names is None else a for a in args]
        try:
            key = tuple([a.layout if type(a) is NDArray else key_of(a) for a in given])
        except Foreign:
            given = [taken_arguments(a) for a in given]
            key = tuple([a.layout if type(a) is NDArray else a.key if type(a) is Pack else key_of(a) for a in given])
        compiled = self.known.get(key)
        if compiled is None or not _fresh(compiled):
            compiled = self._prepare(key, given, compiled is not None)
        if compiled.simple and self.is_simple:
            self._call(compiled, (*given, *self.sizes))
            self._learn(compiled, args, given)
            return
        if compiled.constants:
            given = [a for k, a in enumerate(given) if k not in compiled.constants]
        if compiled.parted:
            given = flattened(given)
        self._run(compiled, given)

    def _quickly(self, args: tuple[Any, ...]) -> bool:
        """Launch as before with such arguments on the CPU. False where there was no such launch, or not all is as it was."""
        addresses, numbers, key = [], [], []
        for a in args:
            kind = type(a)
            if kind is np.ndarray:
                place = place_of(a)
                if place is None:
                    return False
            elif kind is NDArray:
                place = a.place
            else:
                if kind is int and not -0x80000000 <= a < 0x80000000:
                    return False
                numbers.append(a)
                key.append(kind)
                continue
            addresses.append(place[0])
            key.append(place[1])
        found = self.quick.get(tuple(key))
        if found is None or not _fresh(found[0]) or _CPU.profile is not None:
            return False
        done: bool = found[1](addresses, numbers)
        return done

    def _learn(self, compiled: Compiled, args: tuple[Any, ...], given: Sequence[Any]) -> None:
        """Keep what `_quickly` needs, if the launch was one of arrays in order on the CPU."""
        key = []
        for a, taken in zip(args, given):
            if type(taken) is not NDArray:
                key.append(type(a))
                continue
            place = place_of(a) if type(a) is np.ndarray else a.place if type(a) is NDArray else None
            if place is None or taken.device is not _CPU:
                return
            key.append(place[1])
        run = compiled.call.quick((*given, *self.sizes), len(self.sizes)) if compiled.target.kind == "llvm" else None
        if run is not None:
            if len(self.quick) >= _MAX_SIGNATURES:
                self.quick.clear()
            self.quick[tuple(key)] = compiled, run

    def ready(self, *args: Any) -> Ready | None:
        """A launch on arrays of the same types and shapes as these and with these numbers, for a caller that launches it again and again and knows that what it
        writes shares no memory; it takes their addresses alone. None where the kernel has run with none such, prints or asserts."""
        compiled = self.known.get(tuple([a.layout if type(a) is NDArray else key_of(a) for a in args]))
        device = device_of(self.kernel.__name__, args)
        if (
            compiled is None
            or compiled.places
            or compiled.tables
            or compiled.parted
            or device is None
            or device.driver is None
            or self.stream is not None
        ):
            return None
        given = [a for k, a in enumerate(args) if k not in compiled.constants] + list(self.sizes)
        numbers = [a for a in given if type(a) is not NDArray]
        plan = compiled.call.planned(device, tuple(numbers), [a.shape for a in given if type(a) is NDArray])
        return None if plan is None else Ready(compiled.call, device, plan, numbers)

    def _prepare(self, key: Any, args: Sequence[Any], stale: bool) -> Compiled:
        if stale:
            self.kernel.forget()
        types = self.types(args)
        device = device_of(self.kernel.__name__, args)
        if self.stream is not None and device is not None and self.stream.device is not device:
            raise KernelError(
                f"{self.kernel.__name__}: arrays on {device}, and a stream of {self.stream.device}",
                hint="use the device's own: dev.stream()",
            )
        target = target_of(device)
        launch = self.choose(types, target)
        compiled = self.kernel.compiled(types, launch, target)
        if not _fresh(compiled):
            self.kernel.forget()
            compiled = self.kernel.compiled(types, launch, target)
        if len(self.known) >= _MAX_SIGNATURES:
            self.known.clear()
        self.known[key] = compiled
        return compiled

    def types(self, args: Sequence[Any]) -> list[Argument]:
        """The arguments' types. Raises KernelError for another number of them."""
        names = parameters(self.kernel.source)
        if len(args) != len(names):
            raise KernelError(
                f"{self.kernel.__name__}({', '.join(names)}) takes {len(names)} argument{'s' * (len(names) != 1)}, {len(args)} given",
                hint="pass an array or a number for each parameter",
            )
        return [launched_type(a, n) for a, n in zip(args, names)]

    def choose(self, types: Sequence[Argument], target: Target) -> LaunchShape:
        """The shape of the launch, as code is made for it."""
        return self.shape

    def grid_for(self, compiled: Compiled) -> tuple[int, int, int]:
        """The blocks of the grid."""
        return self.grid

    def _run(self, compiled: Compiled, args: Sequence[Any]) -> None:
        if 0 in self.sizes:
            return
        if self.stream is not None:
            with self.stream:
                self._launch(compiled, args)
        else:
            self._launch(compiled, args)

    def _launch(self, compiled: Compiled, args: Sequence[Any]) -> None:
        if compiled.places or compiled.tables:
            device = device_of("", args) or devices.as_device(_device_text(compiled.target))
            args = (*args, *self.sizes, *compiled.tables_on(device))
        else:
            args = (*args, *self.sizes)
        if compiled.places:
            buffer = messages.buffer_for(device)
            self._call(compiled, (*args, buffer))
            messages.collect(buffer, compiled, self.grid_for(compiled), self.kernel.__name__)
        else:
            self._call(compiled, args)

    def _call(self, compiled: Compiled, args: Sequence[Any]) -> None:
        try:
            compiled.call(*args)
        except OverlapError:
            # Arrays that share memory: code that knows of it. Which do is no part of a type, so it is found out each time.
            self.kernel.compiled(compiled.arguments, compiled.launch, compiled.target, alias=True).call(*args)


class Ready:
    """A launch that was checked: `ready(addresses)`, of the arrays in order. See `Launcher.ready`."""

    __slots__ = ("device", "function", "numbers", "plan")

    def __init__(self, function: Any, device: Device, plan: Any, numbers: list[Any]):
        self.function, self.device, self.plan, self.numbers = function, device, plan, numbers

    def __call__(self, addresses: list[int]) -> None:
        self.function.launch(self.device, self.plan, addresses + self.numbers)


def _device_text(target: Target) -> str:
    return "cpu" if not target.is_gpu else f"{target.kind}:0"


def _fresh(compiled: Compiled) -> bool:
    """Whether what the kernel took from outside is what it was."""
    for source, taken in compiled.taken:
        if not source.is_as_taken(taken):
            return False
    return not compiled.tables or all(t.is_fresh for t in compiled.tables)


def _configuration(name: str, config: Any) -> tuple[LaunchShape, tuple[int, int, int], Stream | None]:
    """(launch, grid, stream) of what stands in brackets. Raises KernelError."""
    if not isinstance(config, tuple) or not 2 <= len(config) <= 4:
        raise KernelError(
            f"{name}[{config!r}]", hint=f"{name}[grid, block](...), or {name}[grid, block, stream, shared_bytes](...)"
        )
    grid, ndim = extents(name, "the grid", config[0], least=0)
    block, _ = extents(name, "the block", config[1])
    stream = config[2] if len(config) > 2 and config[2] != 0 else None  # 0 is the default stream, as in CUDA
    if stream is not None and not isinstance(stream, Stream):
        raise KernelError(
            f"{name}: {stream!r} in the stream's place", hint="dev.stream() gives one; None is the device's own"
        )
    shared = config[3] if len(config) > 3 else 0
    if isinstance(shared, bool) or not isinstance(shared, (int, np.integer)) or shared < 0:
        raise KernelError(
            f"{name}: {shared!r} bytes of shared memory",
            hint="k[grid, block, stream, shared_bytes]: a whole number from 0 on",
        )
    return LaunchShape(block, ndim, 0, int(shared)), grid, stream


def extents(name: str, what: str, given: Any, least: int = 1) -> tuple[tuple[int, int, int], int]:
    """Three numbers of what may be one to three, and how many there are."""
    parts = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if not 1 <= len(parts) <= 3:
        raise KernelError(f"{name}: {what} has {len(parts)} dimensions", hint="one to three")
    for p in parts:
        if isinstance(p, (bool, float)) or not hasattr(p, "__index__"):
            raise KernelError(f"{name}: {what} is {given!r}", hint="whole numbers: (n + 255) // 256")
        if p < least or p >= 2**31:
            raise KernelError(f"{name}: {what} is {given!r}", hint="a whole number, or a tuple of up to three, x first")
    x, y, z = (*[int(p) for p in parts], 1, 1)[:3]
    return (x, y, z), len(parts)


__all__ = ["ArgumentError", "Kernel", "Launcher", "extents", "kernel"]
