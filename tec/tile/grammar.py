"""Tile programs: the whole grammar.

    type  := TileType(shape, dtype)            a shape of () is a scalar; a dtype may be a pointer to another
    block := arguments, ops in order, the values that it yields
    op    := name(operands; attributes; blocks) -> results           one of OPS

A value is defined once (SSA). Loops and branches hold blocks: what a loop changes is an argument of its block, and what it yields is the
argument of the next turn. Shapes are powers of two. Every op carries the line of the user's program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any

from ..errors import Loc
from ..records import dataclass

# name -> (what it does, whether it is elementwise: a result element is made of the operands' elements at the same place)
OPS: dict[str, tuple[str, bool]] = {
    "const": ("the number `value`", True),
    "arg": ("parameter `index` of the kernel", False),
    "program_id": ("the program's index along `axis`", False),
    "num_programs": ("programs along `axis`", False),
    "arange": ("start, start + 1, ... along one dimension", False),
    "splat": ("a scalar in every element", False),
    "expand_dims": ("a new dimension of 1 at `axis`", False),
    "broadcast": ("dimensions of 1 repeated", False),
    "permute": ("dimensions in the order `order`", False),
    "reshape": ("the same elements in row-major order under another shape", False),
    "join": ("two tiles along a new last dimension", False),
    "split": ("the two halves of a last dimension of 2", False),
    "cat": ("two tiles one after the other", False),
    "unary": ("`fn` of each element", True),
    "binary": ("`fn` of two elements", True),
    "select": ("(condition, a, b)", True),
    "fma": ("a * b + c, one rounding", True),
    "assembly": ("a statement of assembly on elements; `text`, `constraints`, `pack`, `outs`, `which`, `pure`", True),
    "cast": ("to the result's dtype; `bitcast`: the same bits", True),
    "addptr": ("a pointer, so many elements on", True),
    "load": ("(pointer[, mask[, other]])", False),
    "store": ("(pointer, value[, mask])", False),
    "atomic": ("(pointer, value[, mask]): `fn`; the old value", False),
    "atomic_cas": ("(pointer, expected, desired): the old value", False),
    "reduce": ("over `axis` with the block as combiner, of as many operands as results", False),
    "scan": ("prefixes over `axis` with the block as combiner; `reverse`", False),
    "sort": ("along the last dimension; `descending`", False),
    "gather": ("(source, index): source at index along `axis`", False),
    "histogram": ("(values[, mask]): how often each of 0 .. n-1 comes", False),
    "dot": ("(a, b, acc): acc + a @ b", False),
    "for": ("(low, high, step, carried...): a block of (i, carried...)", False),
    "while": ("(carried...): blocks of the condition and of the body", False),
    "if": ("(condition): two blocks", False),
    "barrier": ("threads of the program meet", False),
    "print": ("`prefix` and operands", False),
    "assert": ("(condition): `message`", False),
    "promise": ("`what` the author says of the operand, with `values` along its dimensions", False),
    "hold": ("the operand, as a tile in registers", False),
}


class dtype:
    """A type of numbers. `name` as Triton spells it ("fp32"), `tec` as the loop IR does ("float32").

    >>> tl.float16, tl.float16.itemsize, tl.float16.is_floating()
    (fp16, 2, True)
    """

    SINT_TYPES = ("int8", "int16", "int32", "int64")
    UINT_TYPES = ("int1", "uint8", "uint16", "uint32", "uint64")
    FP_TYPES = ("fp8e4b15", "fp8e4nv", "fp8e4b8", "fp8e5", "fp8e5b16", "fp16", "bf16", "fp32", "fp64")
    STANDARD_FP_TYPES = ("fp16", "bf16", "fp32", "fp64")
    OTHER_TYPES = ("void",)
    _MANTISSA = {"fp8e4b15": 3, "fp8e4nv": 3, "fp8e4b8": 3, "fp8e5": 2, "fp8e5b16": 2, "fp16": 10, "bf16": 7, "fp32": 23, "fp64": 53}  # fmt: skip
    _BIAS = {"fp8e4b15": 15, "fp8e4nv": 7, "fp8e4b8": 8, "fp8e5": 15, "fp8e5b16": 16, "fp16": 15, "bf16": 127, "fp32": 127, "fp64": 1023}  # fmt: skip

    name: str
    tec: str
    kind: str
    primitive_bitwidth: int

    def __init__(self, name: str, tec: str | None = None, kind: str = "", bits: int = 0):
        if tec is None:  # a type by its name, as Triton's programs make one
            known = OF_NAME[name]
            name, tec, kind, bits = known.name, known.tec, known.kind, known.primitive_bitwidth
        self.name, self.tec, self.kind, self.primitive_bitwidth = name, tec, kind, bits

    class SIGNEDNESS:
        """Whether integers of a type have a sign."""

        SIGNED, UNSIGNED = 0, 1

    @property
    def int_signedness(self) -> int:
        """The signedness of an integer type."""
        return self.SIGNEDNESS.SIGNED if self.kind == "int" else self.SIGNEDNESS.UNSIGNED

    @property
    def int_bitwidth(self) -> int:
        """Bits of an integer type."""
        return self.primitive_bitwidth

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dtype) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def fp_mantissa_width(self) -> int:
        """Bits of a float's fraction, as Triton counts them."""
        return self._MANTISSA[self.name]

    @property
    def exponent_bias(self) -> int:
        """What a float's exponent is stored with, above its value."""
        return self._BIAS[self.name]

    def is_standard_floating(self) -> bool:
        return self.name in self.STANDARD_FP_TYPES

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return max(1, self.primitive_bitwidth // 8)

    @property
    def scalar(self) -> dtype:
        """The type of an element: itself."""
        return self

    @property
    def mlir_name(self) -> str:
        return self.name

    def is_floating(self) -> bool:
        return self.kind == "float"

    def is_int(self) -> bool:
        return self.kind in ("int", "uint", "bool")

    def is_int_signed(self) -> bool:
        return self.kind == "int"

    def is_int_unsigned(self) -> bool:
        return self.kind == "uint" or self.kind == "bool"

    def is_bool(self) -> bool:
        return self.kind == "bool"

    def is_ptr(self) -> bool:
        return self.kind == "pointer"

    def is_fp8(self) -> bool:
        return self.name.startswith("fp8")

    def is_fp16(self) -> bool:
        return self.name == "fp16"

    def is_bf16(self) -> bool:
        return self.name == "bf16"

    def is_fp32(self) -> bool:
        return self.name == "fp32"

    def is_fp64(self) -> bool:
        return self.name == "fp64"


def _is_named(name: str) -> Callable[[dtype], bool]:
    return lambda self: self.name == name


for _name in ("int1", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
    setattr(dtype, f"is_{_name}", _is_named(_name))  # is_int8() and its like


class pointer_type(dtype):
    """A pointer to elements of a type; `address`: one that was made of an integer.

    >>> @tl.jit
    ... def show(a):
    ...     tl.static_print(a.dtype, a.dtype.element_ty)
    >>> a = np.zeros(4, "float16")
    >>> show[(1,)](a)
    pointer<fp16> fp16
    """

    def __init__(self, element_ty: dtype, address_space: int = 1, const: bool = False):
        super().__init__(f"pointer<{element_ty.name}>", "int64", "pointer", 64)
        self.element_ty = element_ty


def _types(text: str) -> dict[str, dtype]:
    rows = (line.split() for line in text.strip().splitlines())
    return {names: dtype(name, tec, kind, int(bits)) for names, name, tec, kind, bits in rows}


DTYPES = _types(
    """
    int1 int1 bool bool 1
    int8 int8 int8 int 8
    int16 int16 int16 int 16
    int32 int32 int32 int 32
    int64 int64 int64 int 64
    uint8 uint8 uint8 uint 8
    uint16 uint16 uint16 uint 16
    uint32 uint32 uint32 uint 32
    uint64 uint64 uint64 uint 64
    float8e5 fp8e5 float8_e5m2 float 8
    float8e4nv fp8e4nv float8_e4m3 float 8
    float8e4b8 fp8e4b8 float8_e4m3fnuz float 8
    float8e5b16 fp8e5b16 float8_e5m2fnuz float 8
    float16 fp16 float16 float 16
    bfloat16 bf16 bfloat16 float 16
    float32 fp32 float32 float 32
    float64 fp64 float64 float 64
    """
)
OF_TEC = {d.tec: d for d in DTYPES.values()}
OF_NAME = {**{d.name: d for d in DTYPES.values()}, **DTYPES}


@dataclass(frozen=True, slots=True)
class TileType:
    """The type of a value: `shape` (() for a scalar) and `dtype`."""

    shape: tuple[int, ...]
    dtype: dtype

    def __str__(self) -> str:
        return f"<{', '.join(map(str, (*self.shape, self.dtype)))}>" if self.shape else str(self.dtype)

    @property
    def size(self) -> int:
        """Elements."""
        n = 1
        for s in self.shape:
            n *= s
        return n


class Value:
    """What an op defines, or a block's argument. `of` is the op (None for an argument); `language.tensor` adds the operators."""

    __slots__ = ("of", "ty")

    def __init__(self, ty: TileType, of: Op | None = None):
        self.ty, self.of = ty, of


@dataclass(slots=True, eq=False)
class Op:
    """One operation; see OPS."""

    name: str
    operands: tuple[Value, ...]
    attrs: dict[str, Any]
    loc: Loc | None
    results: tuple[Value, ...] = ()
    blocks: tuple[Block, ...] = ()

    @property
    def elementwise(self) -> bool:
        return OPS[self.name][1]


@dataclass(slots=True, eq=False)
class Block:
    """Ops in order; `args` are defined at its head, `yields` are what it hands on."""

    args: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    yields: list[Value] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Program:
    """A kernel as tiles. `params`: (name, type) in order, compile-time ones left out."""

    name: str
    params: list[tuple[str, TileType]]
    body: Block
    loc: Loc
    prints: bool = False

    def __str__(self) -> str:
        return to_text(self)


def walk(block: Block) -> Iterator[Op]:
    """All ops of a block and of the blocks in it, in order."""
    for op in block.ops:
        yield op
        for b in op.blocks:
            yield from walk(b)


def to_text(program: Program) -> str:
    """The program as text, one op a line."""
    names: dict[int, str] = {}
    lines = [f"tile {program.name}({', '.join(f'{n}: {t}' for n, t in program.params)})"]

    def name(v: Value) -> str:
        return names.setdefault(id(v), f"%{len(names)}")

    def block(b: Block, depth: int) -> None:
        pad = "    " * depth
        for op in b.ops:
            attrs = ", ".join(f"{k}={v}" for k, v in op.attrs.items())
            head = ", ".join(name(r) for r in op.results) + " = " if op.results else ""
            args = ", ".join(name(x) for x in op.operands)
            types = ", ".join(str(r.ty) for r in op.results)
            lines.append(
                f"{pad}{head}{op.name}({args}{'; ' * bool(args and attrs)}{attrs}){' : ' * bool(types)}{types}"
            )
            for k, inner in enumerate(op.blocks):
                shown = ", ".join(f"{name(a)}: {a.ty}" for a in inner.args)
                lines.append(f"{pad}  {'do' if not k else 'else'} ({shown}):")
                block(inner, depth + 1)
        if b.yields:
            lines.append(f"{pad}yield {', '.join(name(y) for y in b.yields)}")

    block(program.body, 1)
    return "\n".join(lines)
