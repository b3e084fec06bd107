"""Checks a call's arguments against a signature, and binds the variables of symbolic shapes.

`Checker` is compiled once from the signature (docs/architecture.md, "Runtime data"). `convert` makes NDArrays of NumPy
arrays and DLPack objects; `bind` checks dtype, rank, shape, strides, alignment, device and writability, and gives the
environment (name -> number). A call with layouts that were bound before skips all of this: see `module.Function`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import ArgumentError, PackageError, one_line
from ...records import dataclass
from ..arrays.addresses import address_of
from ..arrays.complexes import as_parts
from ..arrays.dtypes import NUMPY_NAMES, itemsize, scalar_packer
from ..arrays.ndarray import NDArray, empty, from_dlpack, from_numpy
from ..devices.device import Device, cpu
from ..devices.storage import ALIGN
from . import exprs

_COMPLEX = {"float32": "complex64", "float64": "complex128"}  # by the type of their parts
_MOST_ALIGN = 1 << 20  # bytes: copies that are made to fit are longer by as much

_CPU = cpu()


def place_of(x: np.ndarray[Any, Any]) -> tuple[Any, ...] | None:
    """`from_numpy(x).place`, without an array; None for one that is not in order, or whose type no call has met yet."""
    flags, name = x.flags, NUMPY_NAMES.get(x.dtype)
    if name is None or not flags.c_contiguous:
        return None
    address = address_of(x)
    low = address | ALIGN
    return address, (name, x.shape, None, _CPU, flags.writeable, low & -low)


class OverlapError(ArgumentError):
    """A written array that shares memory with another argument."""


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter. For a tensor: shape and strides as expressions, alignment in bytes; for a scalar: its packer."""

    index: int
    name: str
    is_tensor: bool
    dtype: str
    shape: tuple[Any, ...] = ()
    strides: tuple[Any, ...] | None = None
    offset: Any = 0
    writes: bool = False
    align: int = 1
    pack: Callable[[Any], Any] | None = None
    complex: bool = False  # callers give complex numbers: the last dimension is that of their parts

    @property
    def given(self) -> tuple[str, tuple[Any, ...]]:
        """dtype and shape of what callers give."""
        return (_COMPLEX[self.dtype], self.shape[:-1]) if self.complex else (self.dtype, self.shape)

    def __str__(self) -> str:
        return f"argument {self.index + 1} ({one_line(self.name)})"


def _param(index: int, data: Any) -> Param:
    try:
        name, kind, dtype = data["name"], data["kind"], data["dtype"]
        itemsize(dtype)
        if not isinstance(name, str) or kind not in ("tensor", "scalar"):
            raise KeyError(kind)
        if kind == "scalar":
            return Param(index, name, False, dtype, pack=scalar_packer(dtype))
        shape = tuple(data["shape"])
        strides = data.get("strides")
        for e in (*shape, *(strides or ()), data.get("offset", 0)):
            exprs.check_integral(e)
        if strides is not None and len(strides) != len(shape):
            raise KeyError("strides")
        align = data.get("align") or itemsize(dtype)
        if type(align) is not int or not 0 < align <= _MOST_ALIGN:
            raise ValueError(f"alignment {align!r}"[:80])
        return Param(
            index, name, True, dtype, shape, None if strides is None else tuple(strides), data.get("offset", 0),
            bool(data.get("writes")), align, None, bool(data.get("complex")) and dtype in _COMPLEX,
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, ArgumentError) as error:
        raise PackageError(
            f"a damaged signature: parameter {index + 1}: {error}", hint=exprs.DAMAGED, locate=False
        ) from None


class Checker:
    """The compiled form of a signature."""

    def __init__(self, function: str, signature: Any, device_kind: str):
        if not isinstance(signature, dict) or not isinstance(signature.get("params"), list):
            raise PackageError(f"a damaged signature of {function!r}", hint=exprs.DAMAGED, locate=False)
        self.function = function
        self.device_kind = device_kind
        self.params = [_param(i, p) for i, p in enumerate(signature["params"])]
        try:
            self.implicit = [str(v["name"]) for v in signature.get("implicit", ())]
            self._fits = {
                name: scalar_packer(dtype)
                for name, dtype in ((v["name"], v["dtype"]) for v in signature.get("implicit", ()))
            }
        except (KeyError, TypeError, ArgumentError):
            raise PackageError(
                f"a damaged signature of {function!r}: implicit variables", hint=exprs.DAMAGED, locate=False
            ) from None
        self.tensors = [p for p in self.params if p.is_tensor]
        self.scalars = [p for p in self.params if not p.is_tensor]
        self.alias_ok = bool(signature.get("alias_ok"))
        # Scalars that shapes depend on: their values are part of what a binding stands for.
        used = {n for p in self.tensors for e in (*p.shape, *(p.strides or ())) for n in exprs.names(e)}
        self.shape_scalars = {p.name for p in self.scalars if p.name in used}

    def error(self, message: str, hint: str | None = None) -> ArgumentError:
        return ArgumentError(f"{self.function}: {message}", hint=hint)

    @property
    def prototype(self) -> str:
        """The signature as a user would write it."""
        parts = [
            f"{one_line(p.name)}: {p.given[0]}{exprs.shape_text(p.given[1]) if p.is_tensor else ''}"
            for p in self.params
        ]
        return f"{one_line(self.function)}({', '.join(parts)})"

    # ---- conversion

    def convert(self, args: Sequence[Any]) -> tuple[list[Any], list[Callable[[], None]]]:
        """Tensor arguments as NDArrays. The second result are steps to run after the call: copies back to NumPy."""
        if len(args) != len(self.params):
            raise self.error(
                f"{len(args)} argument{'s' * (len(args) != 1)} given, {len(self.params)} wanted",
                hint=f"{self.prototype}; outputs are arguments too",
            )
        after: list[Callable[[], None]] = []
        return [self._tensor(p, a, after) if p.is_tensor else a for p, a in zip(self.params, args)], after

    def _tensor(self, p: Param, a: Any, after: list[Callable[[], None]]) -> NDArray:
        made = self._array(p, a, after)
        if not p.complex:
            return made
        if made.dtype != p.given[0]:
            raise self.error(f"{p} has dtype {made.dtype}, {p.given[0]} is wanted", hint=f'x.astype("{p.given[0]}")')
        if len(made.shape) != len(p.given[1]):
            raise self.error(
                f"{p} has shape {made.shape}, {exprs.shape_text(p.given[1])} is wanted",
                hint=_dimensions(made, p.given[1]),
            )
        return as_parts(made)

    def _array(self, p: Param, a: Any, after: list[Callable[[], None]]) -> NDArray:
        if isinstance(a, NDArray):
            return a.elements()
        if isinstance(a, np.ndarray):
            if self.device_kind != "cpu":
                raise self.error(
                    f"{p} is a NumPy array, and the function runs on {self.device_kind}",
                    hint=self._how_to_move(),
                )
            made = from_numpy(a)
            if made.address % p.align and made.is_contiguous and made.size:
                return self._realign(p, made, after)
            return made
        if hasattr(a, "__dlpack__"):
            try:
                return from_dlpack(a)
            except (BufferError, RuntimeError, TypeError, ValueError) as error:
                raise self.error(
                    f"{p} cannot be taken through DLPack: {error}",
                    hint="copy it first: tec.nd.array(np.asarray(x), dev)",
                ) from None
        what = "a number" if isinstance(a, (int, float, np.generic)) else type(a).__name__
        raise self.error(
            f"{p} is {what}, a {p.given[0]} array of shape {exprs.shape_text(p.given[1])} is wanted",
            hint="tec.nd.array(x, dev)",
        )

    def _how_to_move(self) -> str:
        """How a program puts an array where the function runs."""
        where = "tec.cpu()" if self.device_kind == "cpu" else f"tec.{self.device_kind}(0)"
        software = (
            ', or tec.rocm_emu("gfx942") in its place for the GPU in software' if self.device_kind == "rocm" else ""
        )
        return f"tec.nd.array(x, {where}){software}"

    def _realign(self, p: Param, array: NDArray, after: list[Callable[[], None]]) -> NDArray:
        """NumPy promises 16 bytes only and users cannot choose it: go through an aligned copy, and back if written."""
        copy = empty(array.shape, array.dtype, array.device)
        copy.copyfrom(array)
        if not p.writes:
            return copy
        if not array.writable:
            return copy.read_only()
        after.append(lambda: array._copy_from_host(copy._cpu_view()))
        return copy

    # ---- checks

    def device(self, args: Sequence[Any]) -> Device | None:
        """The one device of all tensors; None where there is no tensor."""
        first: tuple[Param, Device] | None = None
        for p in self.tensors:
            device: Device = args[p.index].device
            if device.kind != self.device_kind:
                raise self.error(
                    f"{p} is on {device}, and the function was built for {self.device_kind}",
                    hint=self._how_to_move(),
                )
            if first is None:
                first = p, device
            elif first[1] is not device and self.device_kind != "cpu":
                raise self.error(
                    f"{p} is on {device}, but {first[0]} on {first[1]}", hint="all arguments on one device"
                )
        return first[1] if first else None

    def bind(self, args: Sequence[Any]) -> dict[str, Any]:
        """Check converted arguments; the values of all scalars and shape variables by name."""
        env: dict[str, Any] = {}
        whence: dict[str, str] = {}
        for p in self.scalars:
            env[p.name] = self.scalar(p, args[p.index])
            whence[p.name] = str(p)
        for p in self.tensors:
            self._check_form(p, args[p.index])
        later = []
        for p in self.tensors:
            for d, (e, n) in enumerate(zip(p.shape, args[p.index].shape)):
                if not self._match(p, "shape", d, e, n, args[p.index].shape, env, whence):
                    later.append((p, "shape", d, e, n))
        for p in self.tensors:
            array = args[p.index]
            if isinstance(p.offset, str):
                env.setdefault(p.offset, 0)  # an array's address is that of its first element
            if p.strides is None or array.size == 0:
                continue
            for d, (e, n) in enumerate(zip(p.strides, array.strides)):
                extent = array.shape[d]
                free = extent == 1 and not (isinstance(e, str) and e not in env)
                if not free and not self._match(p, "strides", d, e, n, array.strides, env, whence):
                    later.append((p, "strides", d, e, n))
        self._match_rest(later, args, env, whence)
        missing = [n for n in self.implicit if n not in env]
        if missing:
            empties = [str(p) for p in self.tensors if args[p.index].size == 0]
            if empties and all(
                any(n in exprs.names(e) for p in self.tensors for e in p.strides or ()) for n in missing
            ):
                env.update(dict.fromkeys(missing, 0))
            else:
                raise self.error(
                    f"the shapes do not say what {', '.join(missing)} is", hint="pass it as an argument of its own"
                )
        for name, fits in self._fits.items():
            try:
                fits(env[name])
            except ArgumentError as error:
                raise self.error(f"{name}: {error.message}", hint=f'tec.var("{name}", "int64")') from None
        return env

    def scalar(self, p: Param, value: Any) -> Any:
        """A scalar argument as what is packed."""
        if type(value) not in (int, float, bool):
            if isinstance(value, NDArray) or (isinstance(value, np.ndarray) and value.ndim):
                raise self.error(
                    f"{p} is an array, a {p.dtype} number is wanted",
                    hint="x.item() is the number of an array of one element",
                )
            if not hasattr(value, "__index__") and not hasattr(value, "__float__"):
                raise self.error(f"{p} is {value!r}, a {p.dtype} number is wanted", hint=self.prototype)
        try:
            return p.pack(value)  # type: ignore[misc]
        except ArgumentError as error:
            raise self.error(f"{p}: {error.message}", hint=error.hint) from None
        except (TypeError, ValueError, OverflowError):
            raise self.error(f"{p} is {value!r}, a {p.dtype} number is wanted", hint=self.prototype) from None

    def _check_form(self, p: Param, a: NDArray) -> None:
        if a.dtype != p.dtype:
            raise self.error(f"{p} has dtype {a.dtype}, {p.dtype} is wanted", hint=f'x.astype("{p.dtype}")')
        if len(a.shape) != len(p.shape):
            raise self.error(
                f"{p} has shape {a.shape}, {exprs.shape_text(p.shape)} is wanted", hint=_dimensions(a, p.shape)
            )
        if p.writes and not a.writable:
            raise self.error(
                f"{p} is written by the function, and the array is read-only",
                hint="pass a writable array, such as a copy",
            )
        if p.strides is None and not a.is_contiguous:
            raise self.error(
                f"{p} has strides {a.strides} for shape {a.shape}, a compact array is wanted",
                hint="make a compact copy, or build with tec.decl_buffer(..., strides=[...]) bound to this argument",
            )
        if a.size and a.address % p.align:
            raise self.error(
                f"{p} starts at an address that is no multiple of {p.align} bytes",
                hint="copy the view into an array of its own, or build with tec.decl_buffer(..., data_alignment=...)",
            )

    def _match(
        self,
        p: Param,
        what: str,
        d: int,
        e: Any,
        n: int,
        whole: tuple[int, ...],
        env: dict[str, Any],
        whence: dict[str, str],
    ) -> bool:
        """Hold one extent or stride against its expression; false where a variable in it is not known yet."""
        if isinstance(e, str) and e not in env:
            env[e] = n
            whence[e] = f"dimension {d} of {p}" if what == "shape" else f"stride {d} of {p}"
            return True
        if any(v not in env for v in exprs.names(e)):
            return False
        try:
            want = exprs.evaluate(exprs.compile_expr(e), env)
        except ZeroDivisionError:
            want = None
        if want != n:
            wanted = exprs.shape_text(p.shape if what == "shape" else p.strides)
            known = [f"{v} is {env[v]} by {whence.get(v, 'the call')}" for v in dict.fromkeys(exprs.names(e))]
            because = f": {', '.join(known)}" if known else ""
            where = f"dimension {d}" if what == "shape" else f"stride {d}"
            if what == "stride":
                hint = "pass a compact array, or declare the buffer's strides as variables"
            elif known:
                hint = f"pass {self.prototype}: a name is one size in all of them"
            else:
                hint = f'{where} is {want} in every call; a size tec.var("n") in place of the number takes any'
            raise self.error(
                f"{p} has {what} {whole}, {wanted} is wanted; {where} is {n}, not {want}{because}", hint=hint
            )
        return True

    def _match_rest(self, later: list[Any], args: Sequence[Any], env: dict[str, Any], whence: dict[str, str]) -> None:
        """Extents such as `n * 4` whose variable stands alone nowhere: solve for it, until nothing new is learnt."""
        while later:
            rest = []
            for p, what, d, e, n in later:
                whole = args[p.index].shape if what == "shape" else args[p.index].strides
                found = exprs.solve(e, n, env)
                if found is not None:
                    env[found[0]] = found[1]
                    whence[found[0]] = f"dimension {d} of {p}" if what == "shape" else f"stride {d} of {p}"
                if not self._match(p, what, d, e, n, whole, env, whence):
                    rest.append((p, what, d, e, n))
            if len(rest) == len(later):
                p, what, d, e, n = rest[0]
                raise self.error(
                    f"{p}: no value of {', '.join(sorted(set(exprs.names(e)) - env.keys()))} makes {exprs.text(e)} (dimension {d}) equal {n}"
                )
            later = rest

    def overlap(self, args: Sequence[Any]) -> None:
        """Raise where a written array shares memory with another argument: compiled code takes them to be apart."""
        for p in self.tensors:
            if not p.writes:
                continue
            a = args[p.index]
            for q in self.tensors:
                b = args[q.index]
                if q.index == p.index or (q.writes and q.index < p.index) or not _overlap(a, b):
                    continue
                raise OverlapError(
                    f"{self.function}: {p} is written and shares memory with {q}; the result would depend on the order of the loops",
                    hint="give the output memory of its own",
                )


def _overlap(a: NDArray, b: NDArray) -> bool:
    if not a.size or not b.size:
        return False
    if a.is_contiguous and b.is_contiguous:
        return a.address < b.address + b.nbytes and b.address < a.address + a.nbytes
    if a.device.driver is None:
        return bool(np.shares_memory(a._cpu_view(), b._cpu_view()))
    return False  # interleaved views of device memory: the caller knows


def _dimensions(a: NDArray, wanted: Sequence[Any]) -> str:
    """How an array gets as many dimensions as are wanted."""
    if len(a.shape) < len(wanted):
        return f"{len(wanted)} dimensions are wanted, this has {len(a.shape)}: x.reshape(...) adds those of size 1"
    return f"{len(wanted)} dimensions are wanted, this has {len(a.shape)}: x.reshape(...) joins or drops some"
