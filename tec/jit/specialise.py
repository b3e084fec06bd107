"""A kernel for given types of arguments: which they are, code for them, and what of it is kept.

What the code depends on is an `Argument` for each argument, the block, how many dimensions the grid has, the bytes of shared memory
that the launch gives, and the target: sizes, strides' values, the grid and scalars come at run time.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import field, is_dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..driver import Building, checks_bounds
from ..errors import ExprError, KernelError, kind_of
from ..ir.dtype import normalize_dtype
from ..ir.func import Func
from ..kernels.output import Place
from ..kernels.source import Source
from ..kernels.tables import Table
from ..kernels.translate import Argument, LaunchShape, translate
from ..kernels.values import PART
from ..records import dataclass
from ..runtime.arrays.ndarray import NDArray, array
from ..runtime.devices.device import Device
from ..target import Target, as_target, chip_of_device
from .packs import Foreign, Pack, is_fixed, key_of, packed, type_of_pack

_VECTOR_BYTES = 16  # an address aligned to as much is part of the type: more no access asks for


@dataclass
class Compiled:
    """A kernel compiled for one specialisation. `call` takes the arrays and scalars, the sizes of the launch, the messages' buffer."""

    func: Func
    module: Any
    places: tuple[Place, ...]
    taken: tuple[tuple[Source, dict[str, Any]], ...]
    launch: LaunchShape
    target: Target
    meets: bool = False  # whether threads of a block wait for each other
    constants: dict[int, Argument] = field(default_factory=dict)  # arguments that are no parameters, by position
    arguments: tuple[Argument, ...] = ()
    parted: bool = False  # whether an argument is several to the code
    tables: tuple[Table, ...] = ()  # arrays from outside
    call: Any = field(init=False)
    # Whether its arguments are its parameters, and nothing is to be done behind a launch.
    simple: bool = field(init=False)

    def __post_init__(self) -> None:
        self.call = self.module[self.func.name]
        self.simple = not (self.constants or self.parted or self.places or self.tables)
        self._tables: dict[Device, list[NDArray]] = {}

    def tables_on(self, device: Device) -> list[NDArray]:
        """The tables as parameters, on a device."""
        found = self._tables.get(device)
        if found is None:
            found = self._tables[device] = [array(t.parameter, device) for t in self.tables]
        return found


def argument_type(a: Any, name: str) -> Argument:
    """The type of an argument: an array's, a number's, or a description such as "float32[:, :]" or "int32"."""
    if isinstance(a, Argument):
        return a
    if type(a) is not Pack:
        a = packed(a)
    if type(a) is Pack:
        return type_of_pack(a, name, argument_type)
    if isinstance(a, NDArray):
        aligned = min(a.alignment, _VECTOR_BYTES) if a.size else _VECTOR_BYTES
        return Argument("array", a.dtype, a.ndim, a.is_contiguous, aligned)
    if isinstance(a, (bool, np.bool_)):
        return Argument("scalar", "bool")
    if isinstance(a, np.generic):
        return Argument("scalar", normalize_dtype(a.dtype))
    if isinstance(a, int):
        if -(2**31) <= a < 2**31:
            return Argument("scalar", "int32")
        if not -(2**63) <= a < 2**64:
            raise KernelError(
                f"the argument {name} is {a}, which no integer type holds", hint="pass a float, or an array of uint64"
            )
        return Argument("scalar", "int64" if a < 2**63 else "uint64")
    if isinstance(a, float):
        return Argument("weak")
    if isinstance(a, str):
        return described(a, name)
    if isinstance(a, type) and issubclass(a, np.generic):
        return Argument("scalar", normalize_dtype(a))
    if a is None or isinstance(a, tuple) or (is_dataclass(a) and not isinstance(a, type)) or is_fixed(a):
        return constant(a, name)
    hint = "pass NumPy arrays, tec.nd arrays, numbers, text, functions, and tuples, named tuples and dataclasses of constants"
    if isinstance(a, list):
        hint = "pass np.array(x), or a tuple where it is constant"
    raise KernelError(f"the argument {name} is {kind_of(a)}", hint=hint)


def launched_type(a: Any, name: str) -> Argument:
    """The type of an argument of a launch, where text and types are constants and describe nothing."""
    return constant(a, name) if is_fixed(a) else argument_type(a, name)


def taken_arguments(a: Any) -> Any:
    """An argument as the runtime takes it."""
    a = packed(a)
    if type(a) not in (NDArray, Pack):
        try:
            key_of(a)
        except Foreign:
            argument_type(a, "given")
    return a


def constant(a: Any, name: str) -> Argument:
    """The type of an argument that is known when the kernel is compiled: None, text, a function, a tuple, a named tuple, a dataclass. Raises KernelError where it holds what
    may change, as an array does."""
    try:
        return Argument("constant", value=copy.deepcopy(a) if is_dataclass(a) else a)
    except TypeError:
        raise KernelError(
            f"the argument {name} is {kind_of(a)} that holds what is no constant",
            hint="numbers, strings and tuples of them are constants; pass an array as an argument of its own",
        ) from None


def described(text: str, name: str) -> Argument:
    """The type that a text stands for: "float32", "float32[:]", "int64[:, :]", "float" for a Python float."""
    head, bracket, dims = text.replace(" ", "").partition("[")
    if text == "float":
        return Argument("weak")
    try:
        dtype = head if head in PART else normalize_dtype(head)
    except ExprError as e:
        if not bracket and not PART.get(head) and text.isidentifier():
            return constant(text, name)
        raise KernelError(
            f"the argument {name} is the text {text!r}",
            hint="where code is asked for, text is a type: "
            + '"float32[:]", "int32"; a word that is no type is text that the kernel reads',
        ) from e
    if not bracket and head in PART:
        return Argument("group", form=("complex",), parts=(Argument("scalar", PART[head]),) * 2)
    if not bracket:
        return Argument("scalar", dtype)
    if not dims.endswith("]") or set(dims[:-1]) - {":", ","}:
        raise KernelError(f"{text!r} for the argument {name}", hint='"float32[:]", "float32[:, :]", "int32", "float"')
    return Argument("array", dtype, dims.count(":"), True, _VECTOR_BYTES)


def target_of(device: Device | None) -> Target:
    """What to compile for: the device's own chip, in the words of the current target where that is for it."""
    current = as_target(None)
    if device is None:
        return current
    kind = {"cpu": "llvm"}.get(device.kind, device.kind)
    if kind == "llvm":
        return current if not current.is_gpu else Target("llvm")
    chip = chip_of_device(device.arch)
    if current.kind == kind and current.mcpu in (chip, device.arch.split(":")[0]):
        return current
    return _target_of_chip(kind, chip)


@lru_cache(maxsize=64)
def _target_of_chip(kind: str, chip: str) -> Target:
    return Target(f"rocm -mcpu={chip}" if kind == "rocm" else f"cuda -arch={chip}")


def check_launch(name: str, launch: LaunchShape, target: Target) -> None:
    """Raise KernelError for a block that the target has not."""
    x, y, z = launch.block
    most = target.max_threads if target.is_gpu else 1024
    if x * y * z > most:
        raise KernelError(
            f"{name}: a block of {x} x {y} x {z} = {x * y * z} threads, and {target} allows {most}",
            hint="launch smaller blocks and more of them",
        )
    if launch.shared_bytes > target.lds_bytes and target.is_gpu:
        raise KernelError(
            f"{name}: {launch.shared_bytes} bytes of shared memory, and {target} has {target.lds_bytes}",
            hint="ask for fewer bytes, or share the work among more blocks",
        )


def specialise(
    source: Source, arguments: Sequence[Argument], launch: LaunchShape, target: Target, alias: bool = False
) -> Compiled:
    """Compile. Raises KernelError, LoweringError, CodegenError."""
    check_launch(source.name, launch, target)
    t = translate(source, arguments, launch, target, alias)
    with target:
        building = Building(target, checks_bounds(None))
        building.add(t.func)
        module = building.finish()
    fixed = {k: a for k, a in enumerate(arguments) if a.kind == "constant"}
    parted = any(a.kind == "group" or a.dtype in PART for a in arguments)
    return Compiled(
        t.func, module, t.places, t.taken, launch, target, t.meets, fixed, tuple(arguments), parted, t.tables
    )
