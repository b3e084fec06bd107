"""The words of a function in TVMScript."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from tec import ir
from tec.errors import ExprError
from tec.ir import build as B
from tec.ir.stmt import ForKind

from .. import tir as _tir
from ..tir.nodes import _var


class Dtype(str):
    """`T.float32`: a type; `T.float32(2)` a number of it, `T.float32()` a variable."""

    def __call__(self, value: Any = None, **options: Any) -> Any:
        if self == "handle":
            return Pointer(value)
        if value is None:
            return Unnamed(self)
        return _tir.op.const(float(value), self) if isinstance(value, str) else B.cast(self, B.convert(value))


@dataclass
class Pointer:
    """A parameter that points to elements of a type, "" where a buffer says it."""

    dtype: Any = None


@dataclass
class Unnamed:
    """A variable that is called as what it is assigned to."""

    dtype: str


@dataclass
class Declared:
    """A buffer that is called as what it is assigned to. data: a pointer or another buffer's, None for memory of its own."""

    shape: Sequence[Any]
    dtype: str = "float32"
    data: Any = None
    scope: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    parameter: bool = False


def _shape(shape: Any) -> tuple[Any, ...]:
    return tuple(shape) if isinstance(shape, (list, tuple)) else (shape,)


def Buffer(
    shape: Any, dtype: str = "float32", data: Any = None, strides: Any = None, elem_offset: Any = None, scope: str = "global",
    align: int = 0, offset_factor: int = 0, buffer_type: str = "", axis_separators: Any = None,
) -> Declared:  # fmt: skip
    """A parameter's buffer, or a view of the memory of another one (`data=A.data`)."""
    return Declared(_shape(shape), dtype, data, scope, {"strides": strides, "elem_offset": elem_offset}, True)


def match_buffer(param: Any, shape: Any, dtype: str = "float32", data: Any = None, **options: Any) -> Declared:
    """The buffer that a parameter is."""
    if not isinstance(param, Pointer):
        raise ExprError("match_buffer of a region of a buffer", hint="index the buffer itself")
    return Buffer(shape, dtype, param, **options)


def decl_buffer(shape: Any, dtype: str = "float32", data: Any = None, **options: Any) -> Declared:
    """A view of other memory, or memory of its own."""
    made = Buffer(shape, dtype, data, **options)
    made.parameter = data is not None
    return made


def alloc_buffer(shape: Any, dtype: str = "float32", scope: str = "global", **options: Any) -> Declared:
    """Memory for the rest of the block."""
    return Declared(_shape(shape), dtype, None, scope)


def allocate(extents: Any, dtype: str, scope: str = "global", **options: Any) -> Declared:
    """Memory for the rest of the block."""
    return Declared(_shape(extents), dtype, None, scope)


@dataclass
class Loops:
    """Loops that stand in one another; bounds: of each, (begin, end)."""

    bounds: list[tuple[Any, Any]]
    kind: str = ForKind.SERIAL
    thread: str = ""


def _loop(kind: str) -> Any:
    def loop(start: Any, stop: Any = None, *, annotations: Any = None) -> Loops:
        return Loops([(0, start) if stop is None else (start, stop)], kind)

    loop.__doc__ = f"A loop: {kind}."
    return loop


serial, parallel, vectorized, unroll = map(
    _loop, (ForKind.SERIAL, ForKind.PARALLEL, ForKind.VECTORIZED, ForKind.UNROLLED)
)


def grid(*extents: Any) -> Loops:
    """Serial loops in one another."""
    return Loops([(0, n) for n in extents])


def thread_binding(start: Any, stop: Any = None, thread: str = "", *, annotations: Any = None) -> Loops:
    """A loop over threads."""
    return Loops([(0, start) if stop is None else (start, stop)], ForKind.THREAD, thread)


@dataclass
class Block:
    """`with T.block(name):`; reduces: where its reduction axes begin, as one condition."""

    name: str = ""
    reduces: list[Any] = field(default_factory=list)


@dataclass
class Axis:
    """Axes of a block, with their values."""

    values: list[Any]
    kinds: str
    begins: list[Any]


class Init:
    """`with T.init():`"""


def block(name: str = "", no_realize: bool = False) -> Block:
    """A part of the function whose axes have names."""
    return Block(name)


def init() -> Init:
    """What a block does before its first step of a reduction."""
    return Init()


def _axis(kind: str) -> Any:
    def axis(dom: Any, value: Any, dtype: str = "int32") -> Axis:
        return Axis([value], kind, [dom[0] if isinstance(dom, (list, tuple)) else 0])

    return axis


axis = SimpleNamespace(
    spatial=_axis("S"), S=_axis("S"), reduce=_axis("R"), R=_axis("R"), scan=_axis("S"), opaque=_axis("S"),
    remap=lambda kinds, values, dtype="int32": Axis(list(values), kinds, [0] * len(values)),
)  # fmt: skip


def evaluate(value: Any) -> ir.Stmt:
    """An expression as a statement."""
    made: ir.Stmt = _tir.nodes.Evaluate(value)
    return made


def func_attr(attrs: dict[str, Any]) -> dict[str, Any]:
    """Attributes of the function."""
    return dict(attrs)


def _said(*args: Any, **options: Any) -> None:
    """Says nothing to tec: which regions a block reads and writes, and what may be assumed."""


reads = writes = block_attr = assume = where = _said


def ret(value: Any, dtype: str | None = None) -> Any:
    """What the function gives."""
    return _tir.op.ret(value if dtype is None else B.cast(dtype, B.convert(value)))


def var(dtype: str, name: str = "") -> Any:
    """A variable."""
    return _var(name, dtype) if name else Unnamed(dtype)
