"""What tells a launch from others, by a function that is made once for each row of argument types.

Most launches of a kernel have the types of the one before. `teller_of` writes a Python function for a row of types, without loops or branches over types, and
`tile_launches.told_of` looks it up: telling a launch of three tensors and a number takes less than half of what a walk over the arguments does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..runtime.arrays.ndarray import NDArray
from ..target import Target
from ..tile.grammar import dtype
from .tile_arguments import KNOWN, flattened

if TYPE_CHECKING:
    from .tile_code import Signature

_CONSTANTS = frozenset({bool, int, float, str, type(None), dtype, FunctionType})  # whose equality and hash say all
_ROWS = count()  # rows of types have numbers: what is the same to `==`, such as 1 and True, is told apart by them


class Told(NamedTuple):
    """What tells a launch from others (`key`), and what of its arguments is passed at run time: `values` as they were given, of arrays the `addresses` and
    `sizes` (elements that a pointer reaches), the `numbers`."""

    key: Any
    values: list[Any]
    addresses: list[int]
    sizes: tuple[int, ...]
    numbers: list[Any]


Teller = Callable[[Sequence[Any], dict[str, Any]], "Told | None"]


def class_of(v: int) -> int:
    """What kernels are specialised for of an integer: its type, its sign, whether KNOWN divides it."""
    width = 0 if -(2**31) <= v < 2**31 else 8 if -(2**63) <= v < 2**63 else 16
    return width | (0 if v % KNOWN else 1) | (0 if v >= 0 else 2)


def reach(t: Any) -> int:
    """Elements from a tensor's first to its last in memory."""
    n: int = t.numel()
    return n if not n or t.is_contiguous() else sum((n - 1) * step for n, step in zip(t.shape, t.stride())) + 1


def is_wide(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether offsets in an array that a descriptor is of, or a stride of it, need 64 bits."""
    return sum(max(1, int(n) - 1) * abs(int(step)) for n, step in zip(shape, strides)) >= 2**31


def descriptor(v: Any) -> tuple[tuple[Any, ...], list[int]]:
    """A host-made tensor descriptor: what tells it from others, and its numbers."""
    numbers = [*map(int, v.shape), *map(int, v.strides)]
    low = v.base.data_ptr() | KNOWN
    about = (v.base.dtype, v.base.get_device(), low & -low, is_wide(v.shape, v.strides))
    return (about, tuple(v.block_shape), v.padding, *map(class_of, numbers)), numbers


def teller_of(shape: Signature, types: Sequence[type], named: Sequence[str], tensors: tuple[type, ...]) -> Teller:
    """The function for arguments of these types: first those by place, then `named` ones in this order. tensors: types of torch's tensors. It gives None for
    arguments that take the long way."""
    sorted_out = _sorted_out(shape, types, named)
    if sorted_out is None:
        return _the_long_way
    constants, values = sorted_out
    key, lines = [str(next(_ROWS)), "current()", *constants], []
    addresses, sizes, numbers, ints = [], [], [], []
    for k, (at, t) in enumerate(values):
        v = f"v{k}"
        lines.append(f"{v} = {at}")
        if t in tensors:
            lines += [f"if {v}.is_neg(): return None", f"p{k} = {v}.data_ptr()", f"low{k} = p{k} | {KNOWN}"]
            key += [f"{v}.dtype", f"{v}.get_device()", f"low{k} & -low{k}"]
            addresses.append(f"p{k}")
            sizes.append(f"{v}.numel() if {v}.is_contiguous() else reach({v})")
        elif t is int:
            short = f"({v} % {KNOWN} != 0) + 2 * ({v} < 0)"  # what `class_of` says of 32 bits
            key.append(f"'1' if {v} == 1 else {short} if {-(2**31)} <= {v} < {2**31} else class_of({v})")
            ints.append(v)
            numbers.append(v)
        elif t in (float, bool):
            numbers.append(v)
        elif t in (type(None), dtype):
            key.append(v)
        elif t is NDArray:
            lines += [f"a{k} = flattened({v})", f"low{k} = a{k}.address | {KNOWN}"]
            key += [f"a{k}.dtype", f"a{k}.device", f"low{k} & -low{k}"]
            addresses.append(f"a{k}.address")
            sizes.append(f"a{k}.shape[0]")
        else:  # a tensor descriptor, or what only the long way knows
            is_one = f"hasattr({v}, 'block_shape') and type({v}.base) in tensors"
            lines += [f"if not ({is_one}): return None", f"d{k}, n{k} = descriptor({v})"]
            key.append(f"*d{k}")
            addresses.append(f"{v}.base.data_ptr()")
            sizes.append(f"reach({v}.base)")
            numbers.append(f"*n{k}")
    given = f"[{', '.join(numbers)}]"
    if ints:  # an integer that is 1 is a constant of the code
        some = ", ".join(f"*(({n},) if {n} != 1 else ())" if n in ints else n for n in numbers)
        given = f"{given} if {' and '.join(f'{n} != 1' for n in ints)} else [{some}]"
    taken = ", ".join(f"v{k}" for k in range(len(values)))
    told = f"Told(({_row(key)}), [{taken}], [{', '.join(addresses)}], ({_row(sizes)}), {given})"
    body = "\n        ".join([*lines, f"return {told}"])
    # A sparse tensor has no address to ask for.
    text = f"def tell(args, named):\n    try:\n        {body}\n    except RuntimeError:\n        return None\n"
    known = {
        "Told": Told, "class_of": class_of, "current": Target.current, "descriptor": descriptor, "flattened": flattened, "reach": reach, "tensors": tensors,
    }  # fmt: skip
    exec(text, known)
    tell: Teller = known["tell"]  # type: ignore[assignment]
    return tell


def _row(parts: Sequence[str]) -> str:
    """The inside of a tuple."""
    return "".join(f"{p}, " for p in parts)


def _the_long_way(args: Sequence[Any], named: dict[str, Any]) -> None:
    """Of arguments that only `TileKernel.run` understands."""


def _sorted_out(
    shape: Signature, types: Sequence[type], named: Sequence[str]
) -> tuple[list[str], list[tuple[str, type]]] | None:
    """The constants, and the run-time arguments in the signature's order, as expressions of what a teller is given; None for the long way."""
    by_place = len(types) - len(named)
    if by_place > len(shape.constant):
        return None
    constants: list[str] = []
    values: list[tuple[int, str, type]] = []

    def arguments() -> Iterator[tuple[int | None, str, type]]:
        """Place in the signature, None for an option; expression; type."""
        for k, t in enumerate(types[:by_place]):
            yield k, f"args[{k}]", t
        for n, t in zip(named, types[by_place:]):
            yield shape.place.get(n), f"named[{n!r}]", t

    for k, (at, expression, t) in enumerate(arguments()):
        if k >= by_place and at is not None and at < by_place:
            return None  # given twice
        if at is None or shape.constant[at]:
            if t not in _CONSTANTS:
                return None
            constants.append(expression)
        else:
            values.append((at, expression, t))
    return constants, [(e, t) for _, e, t in sorted(values)]
