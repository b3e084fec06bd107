"""`@tec.tile.jit`: a function over tiles, compiled at its launch for its arguments' types and its constants' values.

    matmul[grid](a, b, c, M, N, K, BLOCK=64, num_warps=4)

The grid is one to three numbers, or a function of the constants. Arrays (NumPy, tec.nd, tec.array, torch, any DLPack)
become pointers to their first element, and decide the device. An integer that is 1 is a constant. TEC_INTERPRET=1
runs programs one after another in NumPy.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import FunctionType
from typing import Any, overload

import numpy as np

from ..driver import Building, checks_bounds
from ..errors import KernelError, kind_of
from ..kernels.source import Source, parameters, source_of
from ..locks import fork_safe_lock
from ..runtime.arrays.ndarray import NDArray, empty
from ..runtime.devices import device as devices
from ..runtime.devices.device import Device, DeviceLike
from ..runtime.modules.arguments import OverlapError
from ..target import Target, as_target
from ..tile import evaluate
from ..tile import grammar as G
from ..tile.builder import constexpr, plain
from ..tile.expressions import is_constexpr
from ..tile.foreign import GLUON_HINT, ours
from ..tile.frontend import Described, read
from ..tile.grammar import Program, TileType, pointer_type
from ..tile.lowering import lower
from . import messages
from .packs import device_of
from .specialise import target_of
from .tile_arguments import (
    KNOWN,
    WideError,
    array_of,
    back,
    described_type,
    element_of,
    flattened,
    grid_of,
    known_of,
    of_code,
    reached,
    run_time_names,
    there,
    told,
    warps_of,
)
from .tile_code import Compiled, Signature, text_of
from .tile_launches import Launch, arrays_of, in_stream_of_torch, is_switched, same, told_of, torch_here
from .tile_tellers import Told, is_wide
from .tile_text import KernelText

OPTIONS = {"num_warps": 4, "num_stages": 3, "debug": None}
_MAX_KNOWN = 4096  # launches that a kernel remembers; a program with more begins anew
_IGNORED = (
    "num_ctas", "maxnreg", "enable_fp_fusion", "waves_per_eu", "matrix_instr_nonkdim", "kpack", "cluster_dims",
    "launch_cooperative_grid", "launch_pdl", "ir_override", "ctas_per_cga",
)  # fmt: skip


_ELSEWHERE: ContextVar[Device | None] = ContextVar("elsewhere", default=None)


@contextmanager
def on_device(device: DeviceLike) -> Iterator[Device]:
    """Inside the block, launches run on `device` although their arrays are on the host: each launch copies them there
    and back. It serves to try a program that was written for one device on another, such as a software GPU.
    """
    found = devices.as_device(device)
    token, other = _ELSEWHERE.set(found), devices.WITHOUT_ARRAYS.set(found)
    try:
        yield found
    finally:
        _ELSEWHERE.reset(token)
        devices.WITHOUT_ARRAYS.reset(other)


def device_elsewhere() -> Device | None:
    """The device of the `on_device` around, if there is one."""
    return _ELSEWHERE.get()


@overload
def jit(fn: Callable[..., Any], **options: Any) -> TileKernel: ...


@overload
def jit(fn: None = None, **options: Any) -> Callable[[Callable[..., Any]], TileKernel]: ...


def jit(fn: Any = None, **options: Any) -> Any:
    """A kernel made from a Python function over tiles. docs/tiles.md describes the language.

    fn: the function. Options: `debug=True` keeps device_assert. Returns a TileKernel, to be launched as
    `kernel[grid](...)`. Raises KernelError for what the language does not have, with the line.

    >>> import tec.tile as tl
    >>> @tl.jit
    ... def double(x, out, n, BLOCK: tl.constexpr):
    ...     at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ...     tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)
    >>> x, out = np.ones(100, "float32"), np.zeros(100, "float32")
    >>> double[(2,)](x, out, 100, BLOCK=64)
    <double, compiled for llvm>
    >>> float(out.sum())
    200.0
    """
    if fn is None:
        return lambda f: TileKernel(f, **options)
    return TileKernel(fn, **options)


def from_triton(fn: Any) -> TileKernel:
    """A kernel made from the Python source of a `@triton.jit` function. Triton's compiler is not called.

    fn: the function. Autotuners and heuristics around it are removed; apply those of tec.tile instead. Returns a
    TileKernel. Raises KernelError for anything else.
    """
    while hasattr(fn, "fn") and not isinstance(fn, FunctionType):
        if type(fn).__name__.startswith("Gluon"):
            raise KernelError(
                f"{getattr(fn, '__name__', 'this')} is a Gluon kernel, whose author places threads, layouts and shared memory",
                hint=GLUON_HINT,
            )
        fn = fn.fn
    return TileKernel(fn)


class TileKernel(KernelText):
    """A kernel over tiles. `k[grid](*arguments, **constants)` launches it. Called in another kernel, it is inlined."""

    def __init__(self, fn: Any, **options: Any):
        if isinstance(fn, TileKernel):
            fn = fn.fn
        if not isinstance(fn, FunctionType):
            raise KernelError(f"@tec.tile.jit above {fn!r}, no Python function", hint="put it above a def")
        self.fn: FunctionType = fn
        self.__tec_tile__: FunctionType = fn
        self.options = {k: v for k, v in options.items() if k == "debug"}
        self._alike = tuple(options.get(k) or () for k in ("do_not_specialize", "do_not_specialize_on_alignment"))
        self.__name__, self.__doc__, self.__module__ = fn.__name__, fn.__doc__, fn.__module__
        self.__globals__ = fn.__globals__
        self._source: Source | None = None
        self._text: str | None = None
        self._compiled: dict[Any, Compiled] = {}
        self._known: dict[Any, Launch] = {}
        self._shape: Signature | None = None
        self._lock = fork_safe_lock()

    def __repr__(self) -> str:
        code = self.fn.__code__
        return f"<tec.tile.jit {self.__name__} at {code.co_filename}:{code.co_firstlineno}>"

    @property
    def source(self) -> Source:
        """Its syntax tree, read when it is first asked for."""
        if self._source is None:
            self._source = source_of(self.fn)
        return self._source

    def _unsafe_update_src(self, text: str) -> None:
        tree = next(x for x in ast.walk(ast.parse(text)) if isinstance(x, ast.FunctionDef))
        self._text = text
        self._source = Source(self.fn, tree, self.fn.__code__.co_filename)
        self._compiled.clear()
        self._known.clear()
        self._shape = None

    @property
    def arg_names(self) -> list[str]:
        """The parameters' names."""
        return parameters(self.source)

    @property
    def constants(self) -> list[str]:
        """The parameters that are `tl.constexpr`."""
        a = self.source.tree.args
        return [
            x.arg
            for x in (*a.posonlyargs, *a.args, *a.kwonlyargs)
            if isinstance(x, ast.arg) and is_constexpr(x.annotation)
        ]

    @property
    def shape(self) -> Signature:
        """Which parameters are constants, where they stand, and what they are where a launch says nothing."""
        if self._shape is None:
            names, constants = self.arg_names, set(self.constants)
            self._shape = Signature(
                names, tuple(n in constants for n in names), {n: k for k, n in enumerate(names)}, self._defaults()
            )
        return self._shape

    def _defaults(self) -> dict[str, Any]:
        f = self.fn
        positional = self.arg_names[: f.__code__.co_argcount]
        found = dict(zip(positional[len(positional) - len(f.__defaults__ or ()) :], f.__defaults__ or ()))
        return {**found, **(f.__kwdefaults__ or {})}

    def __call__(self, *args: Any, **named: Any) -> Any:
        raise KernelError(
            f"{self.__name__} is a kernel, and is called like a function", hint=f"{self.__name__}[grid](...)"
        )

    # ---- arguments

    def bound(self, args: Sequence[Any], named: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arguments by name, and options. Raises KernelError."""
        options = {**OPTIONS, **self.options}
        names = self.arg_names
        for k in (*OPTIONS, *_IGNORED):
            if k in named and k not in names:
                v = named.pop(k)
                if k in OPTIONS:
                    options[k] = v
        if len(args) > len(names):
            raise KernelError(f"{self.__name__}({', '.join(names)}) takes {len(names)} arguments, {len(args)} given")
        found = dict(zip(names, args))
        for k, v in named.items():
            if k not in names:
                raise KernelError(f"{self.__name__} has no parameter {k}", hint=f"it has {', '.join(names)}")
            if k in found:
                raise KernelError(f"{self.__name__} is given {k} twice", hint="by position or by name, not both")
            found[k] = v
        defaults = self._defaults()
        for n in names:
            if n not in found:
                if n not in defaults:
                    raise KernelError(
                        f"{self.__name__} is launched without {n}", hint=f"{self.__name__}[grid](..., {n}=...)"
                    )
                found[n] = defaults[n]
        return {n: found[n] for n in names}, options

    def run(self, *args: Any, grid: Any = None, warmup: bool = False, **named: Any) -> Any:
        """Launch on the device of the arrays. grid: the number of programs along one to three axes, or a function of
        the dict of arguments. Raises KernelError.
        """
        about = None if _ELSEWHERE.get() is not None else told_of(self, args, named)
        if about is not None:
            if is_switched():
                about = None
            else:
                again = self._again(about, args, named, grid, warmup)
                if again is not None:
                    return again
        values, options = self.bound(args, named)
        constants = set(self.constants)
        taken: dict[str, Any] = {n: plain(v) if n in constants else v for n, v in values.items()}
        if callable(grid):
            grid = grid({**{n: plain(v) for n, v in taken.items()}, **options})
        extents = grid_of(self.__name__, grid)
        flat: list[Any] = []
        types = {n: self._typed(n, v, n in constants, flat) for n, v in taken.items()}
        if os.environ.get("TEC_INTERPRET") == "1":
            program = self.program(types, options)
            evaluate.launch(program, extents, flat)
            return None
        home = list(flat)
        elsewhere = _ELSEWHERE.get()
        if elsewhere is not None and not warmup:
            flat = there(flat, elsewhere)
        arrays = [a for a in flat if type(a) is NDArray]
        device = device_of(self.__name__, arrays) or elsewhere
        target = target_of(device)
        ndim = max(k + 1 for k in range(3) if k == 0 or extents[k] != 1)
        aligned = known_of(run_time_names(types), flat)
        compiled = self.compiled(types, options, target, ndim, aligned)
        if 0 in extents:
            return compiled
        if not warmup:
            with in_stream_of_torch(taken.values(), device):
                self._launch(compiled, flat, extents[:ndim], device, types, aligned)
        if about is not None and device is not None and not compiled.places:
            alike = arrays_of(about.values)
            if alike is not None and same(alike, flat):
                if len(self._known) >= _MAX_KNOWN:
                    self._known.clear()
                worlds = tuple(empty((16,), t, device) for t in compiled.lowered.worlds)
                self._known[about.key, ndim] = Launch(self, compiled, device, types, aligned, worlds)
        back(home, flat)
        return compiled

    def _again(
        self, told: Told, args: Sequence[Any], named: dict[str, Any], grid: Any, warmup: bool
    ) -> Compiled | None:
        """Launch as one before was (for a warmup, find its code); None where none was like it."""
        if callable(grid):
            shape = self.shape
            grid = grid({**OPTIONS, **shape.defaults, **dict(zip(shape.names, args)), **named})
        x, y, z = grid_of(self.__name__, grid)
        extents = (x, y, z) if z != 1 else (x, y) if y != 1 else (x,)
        found = self._known.get((told.key, len(extents)))
        if found is None or not (x and y and z) or not self.source.is_as_taken():
            return None
        if warmup:
            return found.compiled
        device = found.device
        torch = torch_here()
        if torch is None or device.kind != "cuda" or device.local.stream is not None or torch.raw_stream is None:
            found.again(told, extents)
            return found.compiled
        device.local.stream = torch.raw_stream(device.index) or None
        try:
            found.again(told, extents)
        finally:
            device.local.stream = None
        return found.compiled

    def warmup(self, *args: Any, grid: Any = (1,), **named: Any) -> Any:
        """Compile for these arguments without a launch."""
        return self.run(*args, grid=grid, warmup=True, **named)

    def _typed(self, name: str, v: Any, constant: bool, flat: list[Any]) -> Any:
        """The type of an argument; what of it is passed at run time goes to `flat`."""
        v = plain(v)
        if constant:
            return v.item() if isinstance(v, np.generic) else v
        if isinstance(v, tuple):
            parts = [self._typed(f"{name}[{k}]", x, isinstance(x, constexpr), flat) for k, x in enumerate(v)]
            return type(v)(*parts) if hasattr(v, "_fields") else tuple(parts)
        if isinstance(v, (bool, np.bool_)):
            flat.append(bool(v))
            return TileType((), G.DTYPES["int1"])
        if isinstance(v, (int, np.integer)) and not isinstance(v, bool):
            v = int(v)
            if v == 1:
                return 1
            for t, low, high in (("int32", -(2**31), 2**31), ("int64", -(2**63), 2**63), ("uint64", 0, 2**64)):
                if low <= v < high:
                    flat.append(v)
                    return TileType((), G.DTYPES[t])
            raise WideError(f"the argument {name} is {v}, which no integer type holds")
        if isinstance(v, (float, np.floating)):
            flat.append(float(v))
            return TileType((), G.DTYPES["float32"])
        if hasattr(v, "block_shape") and hasattr(v, "base"):
            return self._described(name, v, flat)
        if v is None or isinstance(v, (str, FunctionType, TileKernel, G.dtype)) or hasattr(v, "__tec_tile__"):
            return v
        a = (array_of if _ELSEWHERE.get() is None else reached)(v, name)
        if a is None:
            if isinstance(v, type) or callable(v):
                return v
            raise KernelError(
                f"the argument {name} of {self.__name__} is {kind_of(v)}",
                hint="pass arrays (NumPy, tec.nd, torch, DLPack), numbers, and tuples of them; constants as tl.constexpr parameters",
            )
        flat.append(flattened(a))
        return TileType((), pointer_type(element_of(a, name)))

    def _described(self, name: str, v: Any, flat: list[Any]) -> Described:
        a = array_of(v.base, name)
        if a is None:
            raise KernelError(f"the tensor descriptor {name} is of {kind_of(v.base)}", hint="give it an array")
        flat.append(flattened(a))
        flat += [*(int(n) for n in v.shape), *(int(n) for n in v.strides)]
        wide = is_wide(v.shape, v.strides)
        return Described(element_of(a, name), tuple(v.block_shape), getattr(v, "padding", "zero"), wide)

    # ---- compiling

    def program(self, types: dict[str, Any], options: dict[str, Any]) -> Program:
        """The tile program for types of arguments: TileTypes, or constants. Raises KernelError."""
        debug = options.get("debug")
        if debug is None:
            debug = "1" in (os.environ.get("TEC_DEBUG"), os.environ.get("TRITON_DEBUG"))
        made, _ = read(self.source, types, {"num_stages": options.get("num_stages"), "debug": debug}, ours)
        return made

    def compiled(
        self,
        types: dict[str, Any],
        options: dict[str, Any],
        target: Target,
        grid_ndim: int = 3,
        aligned: dict[str, int] | None = None,
        alias: bool = False,
    ) -> Compiled:
        """The code for given types, from the first time on."""
        key = (
            tuple((n, told(t)) for n, t in types.items()), of_code(options, target), target.text, grid_ndim,
            tuple(sorted((aligned or {}).items())), alias, os.environ.get("TEC_DEBUG"), os.environ.get("TRITON_DEBUG"),
        )  # fmt: skip
        found = self._compiled.get(key)
        if found is None or not self.source.is_as_taken():
            with self._lock:
                if found is not None:
                    self._compiled.clear()
                program = self.program(types, options)
                warps = warps_of(self.__name__, options["num_warps"], target)
                lowered = lower(program, target, warps, grid_ndim, alias, aligned)
                with target:
                    building = Building(target, checks_bounds(None))
                    building.add(lowered.func, fresh=True)
                    module = building.finish()
                found = self._compiled[key] = Compiled(lowered, program, module, target, grid_ndim, options, self)
        return found

    def _launch(
        self,
        c: Compiled,
        flat: list[Any],
        extents: Sequence[int],
        device: Device | None,
        types: dict[str, Any],
        aligned: dict[str, int],
    ) -> None:
        if c.lowered.worlds:
            flat = [*flat, *[empty((16,), t, device or "cpu") for t in c.lowered.worlds]]
        if c.places:
            device = device or devices.as_device("cpu" if not c.target.is_gpu else f"{c.target.kind}:0")
            buffer = messages.buffer_for(device)
            self._call(c, flat, extents, types, aligned, (buffer,))
            grid = (*extents, 1, 1)[:3]
            messages.collect(buffer, c, grid, self.__name__)  # type: ignore[arg-type]
        else:
            self._call(c, flat, extents, types, aligned, ())

    def _call(
        self,
        c: Compiled,
        flat: list[Any],
        extents: Sequence[int],
        types: dict[str, Any],
        aligned: dict[str, int],
        more: tuple[Any, ...],
    ) -> Any:
        """Call the code; the function that could, which is another where arrays share memory."""
        try:
            c.call(*flat, *extents, *more)
        except OverlapError:
            other = self.compiled(types, c.options, c.target, c.grid_ndim, aligned, alias=True)
            other.call(*flat, *extents, *more)
            return other.call
        return c.call

    # ---- looking in

    def ir(self, *args: Any, target: str | Target | None = None, what: str = "tiles", **named: Any) -> str:
        """The kernel as text for given arguments.

        args: arrays and numbers, or descriptions: "*fp16" for a pointer, "i32", "fp32". With ":16" behind it, the
        address or number is a multiple of 16. what: "tiles" (the tile program), "loops" (loop IR of one thread),
        "llvm" or "asm".
        """
        types, options, aligned = self._types_of(args, named)
        if what == "tiles":
            return str(self.program(types, options))
        tgt = as_target(target)
        if what == "loops":
            warps = warps_of(self.__name__, options["num_warps"], tgt)
            return str(lower(self.program(types, options), tgt, warps, alignment=aligned).func)
        return text_of(self.compiled(types, options, tgt, aligned=aligned).module, what)

    def asm(self, target: str | Target | None, *args: Any, **named: Any) -> str:
        """The assembly for a target, without its device: `matmul.asm("rocm -mcpu=gfx942", "*fp16", 512, BM=64)`; see `ir`."""
        return self.ir(*args, target=target, what="asm", **named)

    def compiled_for(self, target: str | Target | None, *args: Any, grid_ndim: int = 3, **named: Any) -> Compiled:
        """The code for a target, without its device, and what it was made of; arguments as for `ir`."""
        types, options, aligned = self._types_of(args, named)
        return self.compiled(types, options, as_target(target), grid_ndim, aligned)

    def _types_of(
        self, args: Sequence[Any], named: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
        values, options = self.bound(args, named)
        constants, flat = set(self.constants), []  # type: ignore[var-annotated]
        types: dict[str, Any] = {}
        aligned: dict[str, int] = {}
        for n, v in values.items():
            described = described_type(v.partition(":")[0]) if isinstance(v, str) and n not in constants else None
            if described is not None:
                aligned |= {n: KNOWN} if v.endswith(f":{KNOWN}") else {}
                types[n] = described
                continue
            if isinstance(v, str) and "*" in v and n not in constants:  # a text is a constant, but hardly such a one
                raise KernelError(
                    f"{n} of {self.__name__} is described as {v!r}, which is no type",
                    hint='"*fp32" is a pointer to float32, "i32" and "fp32" are numbers; ":16" behind it says what is aligned',
                )
            start = len(flat)
            types[n] = self._typed(n, v, n in constants, flat)
            aligned |= known_of(run_time_names({n: types[n]}), flat[start:])
        return types, options, aligned


__all__ = ["TileKernel", "constexpr", "from_triton", "jit"]
