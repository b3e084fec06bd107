"""Elementwise work in vectors over threads, and what templates count of a group: operations, bytes, lanes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...ir import Call, Expr, FloatImm, IntImm, IterVar, TensorRead, Var
from ...ir.arith import Analyzer
from ...ir.build import is_const
from ...ir.dtype import dtype_info
from ...ir.visit import children, free_vars, walk_exprs
from ...schedule import Schedule, Stage
from ...target import Target
from ...te import ComputeOp, ExternOp, Operation, indexdiv, indexmod, thread_axis
from ...te.like import Index
from .. import parallel
from ..group import Group, begin, const_shape, is_used, reads_of, reduce_size, size_of

LEAST_ROW = 4  # elements of a row that are worth a vector of their own; shorter ones are gathered in whole registers
_FEW_ROWS = 4  # below which a CPU's threads share the vectors of rows
_TWICE = 1.1  # of a row's elements, what may be computed by vectors that are several at a time
_CHUNK = 2048  # elements of a row that a thread takes at once where rows are few: some 100 vectors beside the questions ahead of them
_ROWS = 16  # loops around a row that are enough for the threads of a CPU to share evenly
_MOST_OF_AXIS = 8  # copies along an axis, whose lines a core has at hand
_MOST_COPIES = 16  # of repeated axes that are written out
THREADS = 256  # of a GPU's work-group: four wavefronts of 64, so that a unit has some to change between


# Tag of convolutions whose padded input is made first. A sum over channels reads it many times; a depthwise one so few that the copy would cost as much
# as the sum: there the tiles at the edges have conditions, which are known once the window is unrolled.
PADDED_FIRST = ("blocked conv",)


def lanes_for(dtype: str, target: Target) -> int:
    """Lanes of a vector register for a dtype (at least 4)."""
    bits = {"64": 8, "16": 2, "t8": 1}.get(dtype[-2:], 4)
    return max(4, target.vector_bytes // bits if bits >= 4 else 16)


def work(op: Operation) -> int:
    """Multiply-adds, roughly; where sizes are symbolic, of as many elements as are expected."""
    elems = size_of(op.output(0).shape)
    return (elems if elems is not None else parallel.open_elements()) * (reduce_size(op) or 1)


def moved_bytes(group: Group) -> int:
    """Bytes that outputs and what they are made from take, each once; symbolic sizes count one element."""
    tensors = {id(t): t for op in group.ops for t in op.inputs if not t.op.inputs} | {id(t): t for t in group.outputs}
    return sum((size_of(t.shape) or 1) * dtype_info(t.dtype).bytes for t in tensors.values())


def computed(group: Group) -> list[ComputeOp]:
    """The stages that get loops of their own: outputs, reductions, and what loops written by hand read (a constant of one element)."""
    return [
        op
        for op in group.ops
        if isinstance(op, ComputeOp)
        and (group.is_output(op) or op.reduce_axis or any(isinstance(c, ExternOp) for c in group.consumers.get(op, [])))
    ]


def begin_cpu(
    group: Group, target: Target, padded_first: Sequence[str] = PADDED_FIRST, keep: Sequence[Operation] = ()
) -> Schedule:
    """A schedule with all inlined that may be but for `keep`, and the paddings made that are worth it: those that operations of some tags read."""
    pads = [
        op for op in group.ops if op.tag == "pad" and any(c.tag in padded_first for c in group.consumers.get(op, []))
    ]
    s = begin(group, keep=[*pads, *keep])
    for op in pads:
        elementwise(s, op, target)  # type: ignore[arg-type]
    return s


def elementwise(s: Schedule, op: ComputeOp, target: Target, vectors: int = 1, threads: bool = True) -> None:
    """Outer axes over threads where that is worth it, the innermost split into vectors, up to so many at a time, or left to `cut_loops`, which parts a row where the answer of a
    condition changes."""
    stage = s[op]
    axes = list(op.axis)
    if not axes:
        return
    lanes = (target.vector_bytes // dtype_info(op.output(0).dtype).bytes if is_moved(op) else lanes_for(op.output(0).dtype, target))  # fmt: skip
    threads = threads and parallel.worth(work(op) * parallel.POINTWISE)
    extents, total = list(const_shape(op.output(0))), size_of(op.output(0).shape)
    if any(again := repeated(op)) and not again[-2:] == [True, True]:
        _copies(stage, again, extents, lanes * vectors, threads)
        return
    is_cut = total is not None and chooses(op)
    copies_lines = total is not None and is_moved(op) and _line(op) > 0 and (extents[-1] or 0) > 1
    if len(axes) > 1 and total is not None:
        count = len(axes) if is_flat(op) and not _asks_places(op) else row_axes(op)
        is_short = math.prod(n or 0 for n in extents[-count:]) < LEAST_ROW
        if is_short and total % lanes == 0 and not is_cut and not copies_lines:
            count = len(axes)
        if count > 1:
            axes = [*axes[:-count], stage.fuse(*axes[-count:])]
            extents = [*extents[:-count], math.prod(n or 0 for n in extents[-count:])]
    if is_cut and (not threads or math.prod(n or 0 for n in extents[:-1]) >= _FEW_ROWS):
        if threads:
            over_threads(stage, axes[:-1], extents[:-1])
        return
    inner = extents[-1]
    lanes *= _together(vectors, inner, lanes)
    few = total is not None and math.prod(n or 0 for n in extents[:-1]) < _ROWS and (is_cut or len(axes) > 1)
    # A thread takes parts: of a choice most have one answer.
    if threads and few and inner is not None and inner >= 2 * _CHUNK:
        outer, part = stage.split(axes[-1], factor=_CHUNK, shift_inwards=True)
        if not is_cut:
            stage.vectorize(stage.split(part, factor=lanes)[1])
        over_threads(stage, [*axes[:-1], outer], [*extents[:-1], -(-inner // _CHUNK)])
        return
    # The last vector of a row begins earlier where vectors do not fill it: under a condition each of its lanes would be an element of its own.
    outer, vec = stage.split(
        axes[-1], factor=lanes if inner is None or inner >= lanes else max(inner, 1), shift_inwards=len(axes) > 1
    )
    if inner is None or inner >= LEAST_ROW or copies_lines:
        stage.vectorize(vec)
    if threads:
        loops = [*axes[:-1], outer]
        if inner is not None and inner <= lanes and len(loops) > 1:  # a vector, and no loop
            loops, extents = loops[:-1], extents[:-1]
        over_threads(stage, loops, extents)


def _together(vectors: int, row: int | None, lanes: int) -> int:
    """How many of so many vectors at a time leave about as few elements of a row to be computed twice as single ones do."""
    if row is None:
        return vectors
    fewest = -(-row // lanes) * lanes
    while vectors > 1 and -(-row // (lanes * vectors)) * lanes * vectors > _TWICE * fewest:
        vectors //= 2
    return vectors


def is_moved(op: ComputeOp) -> bool:
    """Whether a stage copies elements as they are, of whatever operations it is made."""

    def moves(e: Expr) -> bool:
        if isinstance(e, Call) and e.op == "if_then_else":
            return all(map(moves, e.args[1:]))
        if not isinstance(e, TensorRead):
            return isinstance(e, (IntImm, FloatImm))
        inner = e.tensor.op
        return not isinstance(inner, ComputeOp) or bool(inner.reduce_axis) or is_moved(inner)

    return all(map(moves, op.body))


def repeated(op: ComputeOp) -> list[bool]:
    """Of each axis of a stage whether its few places are copies of each other: nothing of the stage depends on it."""
    used = {v for b in op.body for v in free_vars(b)}
    return [
        a.var not in used and n is not None and 1 < n <= _MOST_OF_AXIS
        for a, n in zip(op.axis, const_shape(op.output(0)))
    ]


def _copies(stage: Stage, again: Sequence[bool], extents: Sequence[int | None], lanes: int, threads: bool) -> None:
    """A stage with repeated axes: what a vector takes is loaded once, and stored for each of them, innermost. The last axis is one row with that ahead of it where it is
    repeated, and vectors are whole numbers of its copies."""
    axes, sizes = list(stage.op.axis), list(extents)
    if again[-1] and len(axes) > 1:
        axes[-2:], sizes[-2:] = [stage.fuse(*axes[-2:])], [None if sizes[-2] is None else sizes[-2] * (sizes[-1] or 1)]
        lanes = math.lcm(lanes, extents[-1] or 1)
    around = [a for a, r in zip(axes[:-1], again) if not r]
    copies = [a for a, r in zip(axes[:-1], again) if r]
    row = sizes[-1]
    outer, vec = stage.split(axes[-1], factor=lanes if row is None or row >= lanes else max(row, 1), shift_inwards=True)
    stage.reorder(*around, outer, *copies, vec)
    if row is None or row >= LEAST_ROW:
        stage.vectorize(vec)
    written = 1
    for axis, n in reversed([(a, n) for a, n, r in zip(axes[:-1], sizes, again) if r]):
        written *= n or 1
        if written > _MOST_COPIES:
            break
        stage.unroll(axis)
    if threads:
        loops = around or [outer]
        over_threads(stage, loops, [n for n, r in zip(sizes[:-1], again) if not r] or [None])


def is_flat(op: ComputeOp) -> bool:
    """Whether all that a stage reads lies as its result does, or is one element for all of it: then neighbours of the result, of whatever rows, are neighbours there."""
    seen: set[Operation] = set()

    def places(t: ComputeOp) -> bool:
        if t in seen:
            return True
        seen.add(t)
        return all(
            flat(e, t) and (not isinstance(e.tensor.op, ComputeOp) or e.tensor.op.reduce_axis or places(e.tensor.op))
            for e in reads_of(t)
        )

    def flat(e: TensorRead, t: ComputeOp) -> bool:
        axes = [a.var for a in t.axis]
        if not any(v in axes for i in e.indices for v in free_vars(i)):
            return True
        if [str(d) for d in e.tensor.shape] == [str(d) for d in t.output(0).shape] and all(
            i is v for i, v in zip(e.indices, axes)
        ):
            return True
        if size_of(e.tensor.shape) is None or size_of(t.output(0).shape) != size_of(e.tensor.shape):
            return False
        analyzer = Analyzer()
        for a in t.axis:
            analyzer.bind(a.var, a.dom)
        return analyzer.can_prove_equal(
            _place(e.indices, const_shape(e.tensor)), _place(axes, const_shape(t.output(0)))
        )

    return places(op)


def _asks_places(op: ComputeOp) -> bool:
    """Whether a stage computes with places in its result (a triangle's condition) beside those in what it reads: of one fused loop each is a division a vector."""
    own = {a.var for a in op.axis}

    def asks(e: Any) -> bool:
        return e in own if isinstance(e, Var) else not isinstance(e, TensorRead) and any(map(asks, children(e)))

    return any(map(asks, op.body))


def chooses(op: ComputeOp) -> bool:
    """Whether a stage, or what is inlined into it, asks where in its result it is (padding, concatenation), and reads side by side what lies so in the result."""
    asks, seen = False, set[Operation]()

    def is_side_by_side(t: ComputeOp) -> bool:
        nonlocal asks
        if t in seen:
            return True
        seen.add(t)
        own = [a.var for a in t.axis]
        asks |= any(
            isinstance(e, Call) and e.op == "if_then_else" and any(v in own for v in free_vars(e.args[0]))
            for b in t.body
            for e in walk_exprs(b)
        )
        reads = [e for b in t.body for e in _usual(b) if isinstance(e, TensorRead)]
        for e in reads:
            if not own:  # one element, which all read
                continue
            far = [v for i in e.indices[:-1] for v in free_vars(i)]
            last = e.indices[-1] if e.indices else None
            step = Analyzer().detect_linear(last, [own[-1]]) if last is not None else None
            apart = last is not None and (step is None or not (is_const(step[0], 0) or is_const(step[0], 1)))
            if any(v is own[-1] for v in far) or apart:
                return False
        inner = [e.tensor.op for e in reads if isinstance(e.tensor.op, ComputeOp) and not e.tensor.op.reduce_axis]
        return all(is_side_by_side(o) for o in inner)

    return bool(op.axis) and is_side_by_side(op) and asks


def _usual(root: Expr) -> list[Expr]:
    """The subexpressions of a value but for what stands at its edges: the other side of a choice that reads the same tensors as the first (a reflection, say)."""
    found: dict[int, Expr] = {}
    stack = [root]
    while stack:
        e = stack.pop()
        if id(e) in found:
            continue
        found[id(e)] = e
        below = children(e)
        if isinstance(e, Call) and e.op == "if_then_else":
            first, other = ({x.tensor for x in walk_exprs(side) if isinstance(x, TensorRead)} for side in e.args[1:])
            below = below[:2] if first == other else below
        stack.extend(below)
    return list(found.values())


def row_axes(op: ComputeOp) -> int:
    """How many of a stage's last axes are one line of memory in all that it reads, as they are in its result: 1 at least. What is computed of such an axis beside places
    in what is read (a condition, an index) keeps it apart."""
    # Axes of one element are nothing to step over.
    places = [k for k, n in enumerate(const_shape(op.output(0))) if n != 1]
    count = _line(op)
    return len(op.axis) - places[-count] if 0 < count < len(places) else len(op.axis) if count else 1


def is_picked(op: ComputeOp) -> bool:
    """Whether a stage reads elements whose places along its last axis stand in a table, so that neighbours come one by one."""
    last = op.axis[-1].var if op.axis else None
    tables = [t for e in reads_of(op) for i in e.indices for t in walk_exprs(i) if isinstance(t, TensorRead)]
    return last is not None and any(is_used(last, *t.indices) for t in tables)


def _line(op: ComputeOp) -> int:
    """`row_axes` of those that are more than one element, 0 where the last stands alone."""
    axes = [(a.var, n) for a, n in zip(op.axis, const_shape(op.output(0))) if n != 1]
    return min((_line_of(b, axes) for b in op.body), default=0)


def _line_of(e: Expr, axes: list[tuple[Any, int | None]]) -> int:
    """The same of one expression, of axes with their extents."""
    if not isinstance(e, TensorRead):
        below = children(e)
        if below:
            return min(_line_of(c, axes) for c in below)
        return next((k for k, (axis, _) in enumerate(reversed(axes)) if e is axis), len(axes))
    read = [(i, n) for i, n in zip(e.indices, const_shape(e.tensor)) if n != 1]
    used = [free_vars(i) for i, _ in read]
    count = unused = 0
    for k, (axis, size) in enumerate(reversed(axes), 1):
        if k > len(read) or read[-k][0] is not axis or sum(axis in u for u in used) > 1:
            break
        count = k
        if read[-k][1] != size or size is None:
            break
    while unused < len(axes) and not any(axes[-1 - unused][0] in u for u in used):
        unused += 1  # axes that the read has nothing to do with
    inner = e.tensor.op
    if count and isinstance(inner, ComputeOp) and not inner.reduce_axis:
        count = min(count, _line(inner))
    return max(count, unused)


def _place(indices: Sequence[Any], shape: Sequence[int | None]) -> Any:
    """The flat place of an element."""
    at: Any = 0
    for i, n in zip(indices, shape):
        at = at * n + i
    return at


def over_threads(stage: Stage, loops: list[IterVar], extents: list[int | None]) -> IterVar:
    """Fuses loops (`extents`: None where they are open), but for a row where that is better, and spreads them over threads. Returns the loop."""
    loops, extents = (loops[:-1], extents[:-1]) if _rows_stay(extents) else (loops, extents)
    if None not in extents:  # the outermost that are enough: places in a fused loop are divisions
        enough = next(k for k in range(1, len(loops) + 1) if k == len(loops) or math.prod(n or 1 for n in extents[:k]) >= _ROWS)  # fmt: skip
        loops = loops[:enough]
    loop = stage.fuse(*loops)
    stage.parallel(loop)
    return loop


def _rows_stay(extents: list[int | None]) -> bool:
    """Whether the innermost loop is better not fused with those around it: a fused loop divides by the sizes of its parts (by ones that are no numbers in some
    20 clocks a vector: the copy of a padded image takes three times as long), and neither its last vector nor conditions of its parts can be taken out of it.
    Those around it must be enough for threads by themselves; a leading size that is open may be a batch of one."""
    return None in extents[1:-1] or math.prod(n or 1 for n in extents[:-1]) >= _ROWS


def neighbours_on_a_die(stage: Stage, block: IterVar, groups: int | None, dies: int) -> IterVar:
    """The axis of work-groups in such an order that neighbours run on one die: work-groups are dealt to the dies in turn ("workgroup i goes to XCD i % 8",
    rocm-libraries 6501), and what neighbours have in common, as parts of one line, the die's L2 keeps when the first has brought it. As it was where the dies would get
    different numbers of `groups`; None: of a number that need not be known, the last of which may have nothing to do."""
    if dies == 1 or (groups is not None and groups % dies):
        return block
    die, block = stage.split(block, nparts=dies)
    stage.reorder(block, die)
    return stage.fuse(block, die)


def neighbour_on_a_die(group: Index, groups: int, dies: int) -> Any:
    """The same of a work-group's number, in forms written as loops."""
    if dies == 1 or groups % dies:
        return group
    return indexmod(group, dies) * (groups // dies) + indexdiv(group, dies)


def brought(tile: Stage, threads: int, lanes: int, tx: IterVar) -> None:
    """A tile of shared memory that the threads of a work-group bring together, in pieces of `lanes` elements that lie side by side."""
    dealt(tile, tile.fuse(*tile.op.axis), threads, tx, lanes, vectorized=True)


def dealt(stage: Stage, axis: IterVar, threads: int, tx: IterVar, run: int = 1, vectorized: bool = False) -> IterVar:
    """An axis over the threads of a work-group, a run of neighbours each, written out or as vectors. Returns the loop over turns of all threads."""
    own = None
    if run > 1:
        axis, own = stage.split(axis, factor=run)
    turns, part = stage.split(axis, factor=threads)
    stage.bind(part, tx)
    if own is not None:
        (stage.vectorize if vectorized else stage.unroll)(own)
    return turns


def over_groups(
    stage: Stage, axis: IterVar, threads: int, repeated: bool = False, items: int = 0, dies: int = 1
) -> IterVar:
    """A loop over work-groups of so many threads. repeated: where threads do not divide the loop, the last work-group begins earlier and repeats some, rather than have a condition;
    items: what is done in all, and so how many work-groups there are, by which neighbours go to one of `dies`. Returns the thread's axis."""
    block, thread = stage.split(axis, factor=threads, shift_inwards=repeated)
    if dies > 1:
        block = neighbours_on_a_die(stage, block, -(-items // threads), dies)
    stage.bind(block, thread_axis("blockIdx.x"))
    stage.bind(thread, thread_axis("threadIdx.x"))
    return thread


def bind_all(s: Schedule, op: ComputeOp, threads: int = THREADS, vector: int = 0, repeated: bool = False) -> IterVar:
    """All data axes fused and bound to blocks and threads; vectors of so many bytes, or of a half or less of it where those divide the elements. repeated: where threads do not divide
    the elements, the last work-group begins earlier and repeats some, rather than have a condition. Returns the thread's axis."""
    stage = s[op]
    total = size_of(op.output(0).shape)
    if not op.axis:  # a loop of one; of one sum, which a work-group shares, its elements
        one = stage.split(stage.fuse(*op.reduce_axis), factor=64)[1] if op.reduce_axis else stage.fuse()
        stage.bind(one, thread_axis("threadIdx.x"))
        return one
    fused = stage.fuse(*op.axis)
    lanes = vector // max(1, {"64": 8, "32": 4, "16": 2}.get(op.output(0).dtype[-2:], 1))
    while total is not None and lanes > 1 and total % lanes:
        lanes //= 2
    if total is not None and lanes > 1 and total >= lanes * 64:
        fused, vec = stage.split(fused, factor=lanes)
        stage.vectorize(vec)
        total //= lanes
    if total is not None:
        threads = min(threads, max(32, 1 << (total - 1).bit_length())) if total < threads else threads
    return over_groups(stage, fused, threads, repeated)


def rows_of(op: ComputeOp) -> tuple[int, int, int] | None:
    """Of an elementwise stage, rows and their length, of axes that are one line of memory (`row_axes`), and how many of the rows differ in one axis alone; None where there
    is one row, or sizes are not known."""
    shape = const_shape(op.output(0))
    if op.reduce_axis or None in shape or op.num_outputs > 1 or not shape:
        return None
    sizes, count = [n or 0 for n in shape], row_axes(op)
    around, length = sizes[: len(sizes) - count], math.prod(sizes[len(sizes) - count :])
    near = next((n for n in reversed(around) if n > 1), 0)
    return (math.prod(around), length, near) if near and length and all(around) else None


def bind_rows(s: Schedule, op: ComputeOp, threads: int, rows: int) -> None:
    """Elements of a row side by side over threads, and the same place of `rows` neighbouring rows a thread: where a row begins, and what is asked of its number, all lanes share,
    which a scalar unit computes; what is asked of a place in the row, or read by it alone, serves all of a thread's rows. The last rows begin earlier, and repeat others."""
    stage, shape = s[op], const_shape(op.output(0))
    count = len(op.axis) - row_axes(op)
    near = max(k for k in range(count) if shape[k] != 1)
    row, own = stage.split(op.axis[near], factor=rows, shift_inwards=True)
    line = list(op.axis[count:])
    part, lane = stage.split(stage.fuse(*line), factor=threads)
    around = [*op.axis[:near], *op.axis[near + 1 : count], row, part]
    stage.reorder(*around, lane, own)
    stage.bind(stage.fuse(*around), thread_axis("blockIdx.x"))
    stage.bind(lane, thread_axis("threadIdx.x"))
    stage.unroll(own)
