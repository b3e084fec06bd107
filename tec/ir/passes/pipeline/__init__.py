"""Overlap the filling of shared memory with the work on it (double buffering and deeper software pipelines).

In: a serial loop whose body allocates shared buffers with the annotation `double_buffer`, fills them and uses them; a loop with the pragma `software_pipeline` n;
or a loop whose schedule gives each statement a stage and a place (`order`). Out, for n stages (2 for double_buffer):

    fill slot 0 .. n-2                                  prologue
    for k in range(extent - (n-1)):
        registers = what step k+n-1 will need           the loads are under way while we compute
        compute step k from slot k % n
        slot (k+n-1) % n = registers
    compute the last n-1 steps                          epilogue

The fill goes through registers where it is a nest of loops around stores; otherwise it writes its slot directly, before
the compute. One barrier a step is left for insert_barriers to place. On a CPU these annotations are dropped.

`software_pipeline` 1 keeps one slot: the next step waits in registers while the slot is worked on, for two barriers a step
and no more shared memory than without. Fills that registers cannot take are then left as they are. With `ahead` of d the loads of d steps are on their
way at a time, each step's in registers of its own: LLVM unrolls the loop by d. What little a step works then hides d times as much of memory's latency.
`software_pipeline` 2 with `ahead`, where nothing copies in the background, has the same with two slots: one barrier a step, before its last sums, behind which the next
step's first registers are filled (`leaves.carried`).

Where the target copies to shared memory in the background and every fill is a plain copy, the pipeline runs on those copies; where all fills are bulk copies, on a
ring of barriers in memory. `registers` and `transfers` have each way as the order of a turn, `expand` makes prologue, steady state and epilogue of it.
"""

from __future__ import annotations

from dataclasses import replace

from ....target import Target
from ... import build as B
from ... import expr as E
from ... import stmt as S
from ...effects import is_call
from ...func import Func
from ...notes import FragmentsAhead, SoftwarePipeline, SoftwarePipelineOrder
from ...visit import any_stmt, map_stmts
from ..rewrite_util import THREAD_TAGS, const_int
from .fills import Fills, Pipeline
from .order import ordered_pipeline
from .registers import through_sets
from .transfers import background, copies_in_background, ring, straight_to_slots


def pipeline(func: Func, target: Target) -> Func:
    """Loops over double-buffered shared memory as software pipelines; see the module."""

    nest: list[S.For] = []  # the loops over threads around
    waves: list[S.For] = []  # the last one over threadIdx.z
    is_simt = bool(func.attrs.get("simt"))

    def fs(s: S.Stmt, note: SoftwarePipeline | SoftwarePipelineOrder | None) -> S.Stmt:
        if isinstance(s, S.Attr) and isinstance(s.note, (SoftwarePipeline, SoftwarePipelineOrder)):
            return fs(_as_loop(s.body), s.note)
        if isinstance(s, S.For) and isinstance(note, SoftwarePipelineOrder):
            return ordered_pipeline(s.with_body(fs(s.body, None)), note)
        if isinstance(s, S.For) and s.thread in THREAD_TAGS:
            nest.append(s)
            if s.thread == "threadIdx.z":
                waves[:] = [s]
            out = map_stmts(s, lambda x: fs(x, None))
            nest.pop()
            return out
        if isinstance(s, S.For) and s.kind in (S.ForKind.SERIAL, S.ForKind.UNROLLED):
            body = fs(s.body, None)
            s = s if body is s.body else s.with_body(body)
            assert not isinstance(note, SoftwarePipelineOrder)
            # A program over tiles has its barriers already, but for those between copies to several slots and their readers: of one step too.
            of_one = is_simt and note is not None and note.stages > 1
            found = Fills.of(s, note is not None, of_one) if target.is_gpu else None
            return s if found is None else _pipelined(s, found, note or _DOUBLE, target, nest, waves)
        return map_stmts(s, lambda x: fs(x, note if isinstance(s, S.Attr) else None))

    return func.with_body(_drop_notes(fs(func.body, None)))


_DOUBLE = SoftwarePipeline(2)  # what `double_buffer` asks for


def _pipelined(
    loop: S.For, found: Fills, note: SoftwarePipeline, target: Target, nest: list[S.For], waves: list[S.For]
) -> S.Stmt:
    """The loop by the note; the loop itself where no way is open to its fills."""
    slots = note.stages
    if found.are_bulk:
        slots = min(slots, const_int(loop.extent) or slots)  # a slot that no step fills is memory alone
    depth = max(2, note.stages) - 1
    built: S.Stmt | None = None
    pipe = Pipeline(loop, found, depth, slots)
    if note.direct and note.stages > 1:
        built = straight_to_slots(pipe, nest) if target.chip.loads_lds_by_16 else None
        pipe = Pipeline(loop, found, 1, 1)  # what is computed on its way goes through registers, and one slot is enough
    if built is None and found.are_bulk:
        built = ring(pipe, nest, note.copies, note.in_flight)
    # Two slots and loads of several steps: where copies in the background are the better way, those.
    far = note.stages == 1 or (note.stages == 2 and not copies_in_background(target))
    if built is None and far and note.ahead > 1 and not note.direct:
        built = through_sets(pipe, target, note.ahead)
    if built is None and copies_in_background(target):
        built = background(pipe, note.copies, note.in_flight)
    if built is None:
        pipe = Pipeline(loop, found.settled(), pipe.depth, pipe.n_slots)
        built = through_sets(pipe, target, 1)
    if built is not None and note.uneven and waves and target.kind == "rocm":
        built = S.seq(_first_half_first(waves[0]), built)
    return built or loop


def _as_loop(s: S.Stmt) -> S.Stmt:
    """What a pipeline is asked of: its loop, or where that has one step and was taken away, one around bulk copies again: somebody has to wait for them."""
    inner = s
    while isinstance(inner, S.Attr):
        inner = inner.body
    if isinstance(inner, S.For) or not any_stmt(inner, lambda x: is_call(x, "bulk_load")):
        return s
    return S.For(E.Var("step"), B.const(0), B.const(1), s)


def _drop_notes(s: S.Stmt) -> S.Stmt:
    if isinstance(s, S.Attr) and isinstance(s.note, FragmentsAhead):
        return _drop_notes(s.body)  # no pipeline around it
    out = map_stmts(s, _drop_notes)
    if isinstance(out, S.Alloc) and out.notes.double_buffer:
        return S.Alloc(out.buffer, out.body, replace(out.notes, double_buffer=False))
    return out


def _first_half_first(waves: S.For) -> S.Stmt:
    """Priority for the first half of the wavefronts: the two of a vector unit else do the same at the same time. s_setprio heeds no mask, so the condition is a scalar's."""
    wave = E.Call("readfirstlane", (waves.var,), waves.var.dtype)
    attrs = {"name": "llvm.amdgcn.s.setprio", "void": True}
    first = S.Evaluate(E.Call("call_llvm_intrin", (B.const(1, "int16"),), "int32", attrs))
    return S.IfThenElse(B.compare("lt", wave, B.floordiv(waves.extent, 2)), first)
