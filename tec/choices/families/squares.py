"""Elementwise work on a CPU whose operand lies along another axis than the result: squares that are turned round in registers (`ir.passes.turn_squares`).

Element by element each vector of the result gathers from as many lines as it has lanes. By squares each line is loaded in vectors and stored in vectors. Axes that follow one
another in the operand as in the result are one axis. `wide` squares lie side by side, along the result's lines where squares follow one another along the operand's ("along"), or the other way round ("across"), so that lines of the cache
are used whole. Sizes that are open are taken to be such lines; smaller ones go by smaller squares, and then by the plain loops.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

from ...ir import Expr, TensorRead, Var
from ...ir.dtype import dtype_info
from ...ir.visit import free_vars, substitute, walk_exprs
from ...records import dataclass
from ...target import Target
from ...te import ComputeOp
from .. import parallel
from ..cost import Footprint, on_cores
from ..group import Group, const_shape, likely_shape, shape_key, size_of
from ..parts.counts import moved_bytes, work
from ..parts.pointwise import begin_cpu, over_threads
from ..space import Choice, Scheduled, Space

_LEAST = 4  # elements along both axes


@dataclass(frozen=True)
class TurnedAxes:
    """Which axes of the result make one along the operand's lines (`along`), and one across them, its own last ones (`across`): from the first to behind the last; and how far these are apart."""

    along: range
    across: range
    apart_bytes: int  # between neighbours of the result's lines, in the operand


class Squares(Space):
    """`side` by `side` elements a square, `wide` of them along the operand's lines, over threads or not."""

    template: ClassVar[str] = "cpu squares"

    def __init__(self, group: Group, target: Target, out: ComputeOp, turn: TurnedAxes):
        super().__init__(group, target)
        self.out, self.turn = out, turn
        self.shape = likely_shape(out.output(0))
        self.rows = math.prod(self.shape[k] for k in turn.along)
        self.columns = math.prod(self.shape[k] for k in turn.across)
        lanes = min(16, target.vector_bytes // max(1, dtype_info(out.output(0).dtype).bytes))
        sides = [n for n in (16, 8, 4) if n <= min(lanes, self.rows, self.columns)]
        self.parameters = {
            "side": tuple(sides),
            "wide": (2, 1, 4),
            "inner": ("along", "across"),
            "parallel": (True, False),
        }

    @classmethod
    def match(cls, group: Group, target: Target) -> Squares | None:
        """The space of a group of one elementwise output that turns some operand round."""
        if target.is_gpu or len(group.outputs) != 1 or group.reductions():
            return None
        (out,) = group.output_ops
        if not isinstance(out, ComputeOp) or len(out.axis) < 2:
            return None
        if not all(isinstance(op, ComputeOp) and op.num_outputs == 1 for op in group.ops):
            return None
        bytes_ = dtype_info(out.output(0).dtype).bytes
        found = next((t for e in _reads(out, {}) if (t := _turn(e, out, target)) is not None and dtype_info(e.tensor.dtype).bytes == bytes_), None)  # fmt: skip
        if found is None:
            return None
        space = cls(group, target, out, found)
        return space if space.parameters["side"] else None

    @property
    def default(self) -> Choice:
        told = {name: self.rule(name, None, **self.features) for name in ("side", "wide", "inner")}
        side = told["side"] if told["side"] in self.parameters["side"] else int(self.parameters["side"][0])
        inner = told["inner"] or "across"
        wide = told["wide"] or (2 if self.columns >= 2 * side else 1)
        if inner == "across" and self.rows < wide * side:
            wide = 1
        threads = parallel.worth(work(self.out) * parallel.POINTWISE)
        return self.choice(side=side, wide=wide, inner=inner, parallel=threads)

    @property
    def features(self) -> dict[str, int]:
        """What rules may ask: elements of a line of the result, bytes of it all and of a core's second cache, and bytes in the operand between neighbours of a line."""
        out = self.out.output(0)
        held = dtype_info(out.dtype).bytes * math.prod(self.shape)
        near = self.target.core.l2_bytes
        return {"columns": self.columns, "bytes": held, "near": near, "apart": self.turn.apart_bytes}

    def sketch(self, choice: Choice) -> Footprint:
        """A load and a store of a vector, and its part of the shuffles, one a clock."""
        clocks = math.prod(self.shape) / choice["side"] * (2 + math.log2(choice["side"]))
        return on_cores(clocks, moved_bytes(self.group), choice["parallel"])

    def build(self, choice: Choice) -> Scheduled:
        s, out, side, wide = begin_cpu(self.group, self.target), self.out, choice["side"], choice["wide"]
        stage, axes, shape = s[out], list(out.axis), const_shape(out.output(0))
        rest = [k for k in range(len(axes)) if k not in self.turn.along and k not in self.turn.across]
        p = stage.fuse(*(axes[k] for k in self.turn.along))
        q = stage.fuse(*(axes[k] for k in self.turn.across))
        along = choice["inner"] == "along"
        po, pi = stage.split(p, factor=side if along else side * wide, shift_inwards=True, long=True)
        qo, qi = stage.split(q, factor=side * wide if along else side, shift_inwards=True, long=True)
        several = []
        if wide > 1:
            own, one = stage.split(qi if along else pi, factor=side)
            several, qi, pi = [own], one if along else qi, pi if along else one
        outer = [axes[k] for k in rest]
        tiles = [qo, po] if along else [po, qo]
        stage.reorder(*outer, *tiles, *several, pi, qi)
        stage.unroll(pi)
        stage.vectorize(qi)
        if choice["parallel"]:
            rows, columns = (size_of(shape[k] for k in axes) for axes in (self.turn.along, self.turn.across))
            counts = {
                id(po): None if rows is None else -(-rows // (side if along else side * wide)),
                id(qo): None if columns is None else -(-columns // (side * wide if along else side)),
            }
            over_threads(stage, [*outer, *tiles], [*(shape[k] for k in rest), *(counts[id(t)] for t in tiles)])
        is_open = None in [shape[k] for k in (*self.turn.along, *self.turn.across)]
        smaller = {**choice, "wide": 1} if wide > 1 else {**choice, "side": side // 2}
        fewer = self.build(smaller) if is_open and smaller["side"] in self.parameters["side"] else None
        return Scheduled(s, self.group.outputs, choice, otherwise=fewer)


def _reads(op: ComputeOp, at: Mapping[Var, Expr]) -> Iterator[TensorRead]:
    """What an operation reads of memory, by the output's axes, through what is computed within it. at: what its own axes are."""
    for body in op.body:
        for e in walk_exprs(body):
            if not isinstance(e, TensorRead):
                continue
            indices = tuple(substitute(i, at) for i in e.indices) if at else e.indices
            inner = e.tensor.op
            if isinstance(inner, ComputeOp):
                yield from _reads(inner, dict(zip((a.var for a in inner.axis), indices)))
            else:
                yield TensorRead(e.tensor, indices)


def _turn(read: TensorRead, out: ComputeOp, target: Target) -> TurnedAxes | None:
    """How a read turns its tensor round; None where it does not, or reads what lies otherwise than whole axes of the result."""
    own, source, shape = [a.var for a in out.axis], shape_key(read.tensor), shape_key(out.output(0))
    if len(read.indices) < 2:
        return None
    where = [next((k for k, v in enumerate(own) if i is v), None) for i in read.indices]
    # Behind the last axis of more than one element there is nothing to step over.
    tail, last = (max((k for k, n in enumerate(sizes) if n != 1), default=0) for sizes in (source, shape))
    first = where[tail]
    if first is None or first == last or last not in where:
        return None
    if any(sum(v in free_vars(i) for i in read.indices) > 1 for v in own):
        return None

    def run(at: int) -> range:
        """The axes of the result that end with the tensor's dimension `at`, and follow one another in both."""
        end = where[at]
        assert end is not None
        count = 1
        while (
            at - count >= 0
            and where[at - count] == end - count >= 0
            and source[at - count + 1] == shape[end - count + 1]
        ):
            count += 1
        return range(end - count + 1, end + 1)

    along, across = run(tail), run(where.index(last))
    lanes = min(16, target.vector_bytes // dtype_info(read.tensor.dtype).bytes)
    # Vectors lie within a line of the last of them, whose places are known to be neighbours, unless such lines are short.
    while len(across) > 1 and (
        (rest := size_of(shape[k] for k in across[1:])) is None or (rest % lanes and rest >= _LEAST)
    ):
        across = across[1:]
    likely = likely_shape(out.output(0))
    sizes = [math.prod(likely[k] for k in r) for r in (along, across)]
    apart = math.prod(likely_shape(read.tensor)[where.index(last) + 1 :]) * dtype_info(read.tensor.dtype).bytes
    return TurnedAxes(along, across, apart) if min(sizes) >= _LEAST else None
