"""Tiles of tensor descriptors that a warpgroup product reads: the chip's copy engine (TMA) brings them to shared memory, in boxes of lines of 128 bytes.

One thread asks for a box by its coordinates, and none computes addresses. The launch makes the tensor's map, so its sizes and strides are expressions of the kernel's
arguments. The engine puts a line's pieces where `operands.boxes_at` has them, and zeros for what is outside of the tensor. See `ir.passes.pipeline.bulk_copies`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.blocks import close
from ..ir.buffer import Buffer
from ..ir.dtype import dtype_info
from ..records import dataclass
from . import numbers
from .axes import Axes
from .blocks import Corner
from .grammar import Block, Op, Value
from .room import Room

LINE_BYTES, LINES = 128, 8  # of a box; after so many lines the exchange of pieces begins anew
PIECE_BYTES = 16  # what addresses and strides of a tensor are multiples of
MOST_LINES = 256  # of a box (cuTensorMapEncodeTiled)
_TYPES = ("float16", "bfloat16", "float32", "int8", "uint8", "float8_e4m3", "float8_e5m2")


@dataclass(frozen=True, slots=True)
class Tensor:
    """What a map is made of: an array, its sizes and the strides of all dimensions but the last, the outermost first."""

    base: Buffer
    sizes: tuple[E.Expr, ...]
    strides: tuple[E.Expr, ...]


class Boxes(Room):
    """Tiles that the copy engine brings."""

    axes: Axes
    params: list[Any]

    def tensor_of(self, load: Op, place: Any) -> Tensor | None:
        """The tensor that a load of a descriptor is of, where the engine takes it; None where it does not."""
        corner, v = load.attrs.get("corner"), load.results[0]
        if not isinstance(corner, Corner) or not self.target.chip.warpgroup or not place.box or place.along != 1:
            return None
        dtype = v.ty.dtype.tec
        size, (lines, columns) = dtype_info(dtype).bytes, v.ty.shape
        if dtype not in _TYPES or lines > MOST_LINES or lines % LINES or columns * size % LINE_BYTES:
            return None
        base = corner.base.of
        if base is None or base.name != "arg" or not self._is_multiple(corner.base, PIECE_BYTES // size):
            return None
        if not all(self._is_multiple(s, PIECE_BYTES // size) for s in corner.strides[:-1]):
            return None
        sizes, strides = ([self._at_launch(x) for x in xs] for xs in (corner.sizes, corner.strides[:-1]))
        known = [e for e in (*sizes, *strides) if e is not None]
        if len(known) < len(sizes) + len(strides):
            return None
        count = len(sizes)
        least = [B.maximum(n, 1) for n in known[:count]]  # a map has no size 0; a loop over nothing asks for no box
        return Tensor(self.params[base.attrs["index"]], tuple(least), tuple(known[count:]))

    def _is_multiple(self, v: Value, of: int) -> bool:
        return self.axes.of(v, 0).begins(1) % max(1, of) == 0

    def _at_launch(self, v: Value) -> E.Expr | None:
        """A number as an expression of the kernel's arguments."""
        op = v.of
        if op is None or v.ty.shape or not v.ty.dtype.is_int():
            return None
        if op.name == "const":
            return B.const(int(op.attrs["value"]), "int64")
        if op.name == "arg":
            return B.cast("int64", self.params[op.attrs["index"]])
        if op.name == "cast":
            return self._at_launch(op.operands[0])
        if op.name != "binary" or op.attrs["fn"] not in ("add", "sub", "mul", "max"):
            return None
        one, other = map(self._at_launch, op.operands)
        return None if one is None or other is None else numbers.element(op, [one, other])

    def fill_boxes(self, planned: Any, block: Block, start: Callable[[], None]) -> S.Stmt:
        """The copies that bring a turn's tile. `start` says what the turn's values are."""
        load, place, tensor = planned.load, planned.place, planned.tensor
        corner, v = load.attrs["corner"], load.results[0]
        lines, columns = v.ty.shape
        width = LINE_BYTES // dtype_info(place.buffer.dtype).bytes
        out: list[S.Stmt] = []
        with self.written_out(), self.block() as items:
            start()
            for op in block.ops:
                if id(op) in planned.of:
                    self.op(op)
            row, column = (B.cast("int32", self.scalar(x)) for x in corner.offsets)
            for box in range(columns // width):
                to, far = E.BufferLoad(place.buffer, (E.IntImm(box * place.box),)), B.add(column, box * width)
                first = B.add(B.mul(B.cast("int64", row), tensor.strides[0]), B.cast("int64", far))
                source = E.BufferLoad(tensor.base, (first,))
                facts = (far, row, *reversed(tensor.sizes), *reversed(tensor.strides))
                call = E.Call("bulk_load", (to, source, *facts), "int32", {"rank": 2, "box": (width, lines)})
                out.append(S.Evaluate(call, load.loc))
            self.emit(S.seq(*out))
        return close(items)

    def op(self, op: Op) -> None:
        raise NotImplementedError

    def written_out(self) -> Any:
        raise NotImplementedError


__all__ = ["LINES", "LINE_BYTES", "Boxes", "Tensor"]
