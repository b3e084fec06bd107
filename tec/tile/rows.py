"""Rows of arrays on a CPU: loaded where they are used, and not computed on where a mask leaves nothing of a vector.

A row has fewer elements than its tile, whose sides are powers of two: of a tile of 1,024 over 781 columns the last 15 vectors hold what the masks put there, and an
exponential of each of them costs as much as of the others. One of such a vector's elements is computed, and stands for all.
"""

from __future__ import annotations

from functools import cached_property

from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from . import numbers
from .atomics import Atomics
from .axes import power
from .grammar import Op, Value, walk
from .layouts import Layout
from .memory import FREE
from .state import CPU_LANES, Axis, Held, Point, Read, begin

MOST_READ = 4  # uses of a tile that is loaded anew for each of them
LEAST_COST = numbers.MATH_COST  # of an element, in additions, from which on vectors beyond a row are told from others


class Rows(Atomics):
    """Loads and held tiles of a CPU."""

    # ---- loads where they are used

    def read_where_used(self, op: Op) -> bool:
        """Let a tile be loaded where it is used, on a CPU, each time: rows of neighbours of an array that the program does not write. A copy of them in an array of
        the thread's would cost a store and a load for each of these loads."""
        p, v = op.operands[0], op.results[0]
        if self.gpu or self.may_alias or self.uses.get(id(v), 0) > MOST_READ:
            return False
        last = len(v.ty.shape) - 1
        if self.axes.of(p, last).contiguity < min(CPU_LANES, v.ty.shape[last]):
            return False
        array, at_once = self._array_of(p), self.used_at.get(id(v)) == self.depth[id(v)]
        if not at_once or array is None or self._written is None or array in self._written:
            return False
        self.lazy[id(v)] = lambda layout: self._access_anywhere(op, layout)
        return True

    def _access_anywhere(self, op: Op, layout: Layout) -> Read:
        """A load of rows at points whose vectors need not lie along the rows."""
        read = self.access(op, layout, len(layout) - 1)
        return lambda p: read(p if p[-1].lane is not None else tuple(Axis(a.at, a.register) for a in p))

    @cached_property
    def _written(self) -> set[int] | None:
        """The numbers of the arrays that the program writes; None where others may write too, or that is not known."""
        out = set[int]()
        for op in walk(self.program.body):
            if op.name in ("atomic", "atomic_cas"):
                return None
            if op.name == "store":
                array = self._array_of(op.operands[0])
                if array is None:
                    return None
                out.add(array)
        return out

    def _array_of(self, v: Value) -> int | None:
        """The number of the parameter that a pointer is into; None where that is not one alone."""
        while v.of is None or v.of.name != "arg":
            op = v.of
            if op is None:
                loop, k = self.owner.get(id(v), (None, -1))
                if loop is None or k < 0:
                    return None
                v = loop.operands[k + (3 if loop.name == "for" else 0)]
            elif op.name in ("for", "while"):
                v = op.operands[op.results.index(v) + (3 if op.name == "for" else 0)]
            elif op.name in (*FREE, "hold", "cast") and op.operands[0].ty.dtype.is_ptr():
                v = op.operands[0]
            else:
                return None
        return int(v.of.attrs["index"])

    # ---- vectors beyond a row

    def hold(self, v: Value, layout: Layout | None = None) -> Held:
        known = id(v) in self.held or self.gpu or v.of is None or not v.of.elementwise or self.cost(v) < LEAST_COST
        mask = None if known else self._mask_of(v)
        value = None if mask is None else self._beyond(v, mask)
        if mask is None or value is None or v.ty.shape[-1] <= CPU_LANES:
            return super().hold(v, layout)
        layout = layout or self.natural(v)
        read, inside, outside = self.reader(v, layout), self.reader(mask, layout), self.let("beyond", value)
        buffer = self.array(v.of.name if v.of is not None else "tile", v.ty.dtype.tec, [d.held for d in layout])

        def put(p: Point) -> S.Stmt:
            at = [a.register for a in p]
            s = self.store(buffer, at, read(p))
            return s if p[-1].lane is None else S.IfThenElse(inside(begin(p)), s, self.store(buffer, at, outside))

        self.visit(layout, put)
        self.held[id(v)] = Held(buffer, layout)
        return self.held[id(v)]

    def cost(self, v: Value) -> int:
        raise NotImplementedError

    def _mask_of(self, v: Value) -> Value | None:
        """The mask of a load that a tile is made of, if along its rows it is true up to somewhere, and false from there on."""
        stack, seen = [v], set[int]()
        while stack:
            x = stack.pop()
            if x.of is None or id(x) in seen or id(x) in self.held:
                continue
            seen.add(id(x))
            if x.of.name == "load":
                mask = x.of.operands[1] if len(x.of.operands) > 1 else None
                return mask if mask is not None and x.ty.shape == v.ty.shape and self._ends(mask) else None
            if x.of.elementwise:
                stack += x.of.operands
        return None

    def _ends(self, mask: Value) -> bool:
        """Whether no element of a vector along the rows is true where its first one is not."""
        if not mask.ty.shape or mask.of is None:
            return not mask.ty.shape
        last = len(mask.ty.shape) - 1
        if self.axes.of(mask, last).constancy >= min(CPU_LANES, mask.ty.shape[last]):
            return True
        op, fn = mask.of, mask.of.attrs.get("fn")
        if op.name == "binary" and fn == "and":
            return all(map(self._ends, op.operands))
        if op.name == "broadcast" and op.operands[0].ty.shape[-1:] == mask.ty.shape[-1:]:
            return self._ends(op.operands[0])
        if op.name == "expand_dims" and op.attrs["axis"] != last:
            return self._ends(op.operands[0])
        if fn not in ("lt", "le"):
            return False
        runs, edge = (self.axes.of(x, last) for x in op.operands)
        lanes = min(CPU_LANES, power(mask.ty.shape[last]))
        return runs.contiguity >= lanes and edge.constancy >= lanes

    def _beyond(self, v: Value, mask: Value) -> E.Expr | None:
        """What a tile holds where a mask is false; None where that is not one number."""
        op = v.of
        if not v.ty.shape:
            return self.scalar(v)
        if _same(v, mask):
            return B.const(False, "bool")
        if op is None or id(v) in self.held:
            return None
        if op.name == "load":
            if len(op.operands) < 3 or not _same(op.operands[1], mask):
                return None
            return self._beyond(op.operands[2], mask)
        if op.name in ("splat", "broadcast", "expand_dims", "reshape") and not op.operands[0].ty.shape:
            return self.scalar(op.operands[0])
        if op.name in ("broadcast", "expand_dims", "reshape", "cast") or op.elementwise:
            found = [self._beyond(x, mask) for x in op.operands]
            known = [e for e in found if e is not None]
            if len(known) < len(found):
                return None
            return numbers.element(op, known, self.gpu) if op.elementwise else known[0]
        return None


def _same(a: Value, b: Value) -> bool:
    """Whether two values are made in the same way of the same ones."""
    if a is b:
        return True
    if a.of is None or b.of is None or a.ty != b.ty or not (a.of.elementwise or a.of.name in (*FREE, "const")):
        return False
    alike = a.of.name == b.of.name and a.of.attrs == b.of.attrs and len(a.of.operands) == len(b.of.operands)
    return alike and all(map(_same, a.of.operands, b.of.operands))


__all__ = ["Rows"]
