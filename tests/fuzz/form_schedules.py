"""Random schedules of the programs in form_programs: primitives anywhere on a CPU, a sensible skeleton with more on it on a GPU."""

from __future__ import annotations

import random
from typing import Any

from tec import te
from tec.errors import ScheduleError
from tec.schedule import create_schedule

from .form_programs import Program
from .kernel_schedules import _Gpu
from .test_schedules import Scheduler


def schedule(p: Program, gpu: bool, again: int = 0) -> Any:
    """A random schedule; another one for each `again`."""
    rng = random.Random(p.seed * 2 + gpu + again * 1_000_003)
    s = create_schedule([o.t.op for o in p.outputs])
    if gpu:
        OnGpu(rng, s, [o.t for o in p.outputs]).run()
        later = More(rng, s, p.stages, True)
        later.apply(["align", "double_buffer", "layout", "unrolled", "reorder", "predicate"], rng.randint(0, 4))
    else:
        cpu = More(rng, s, p.stages, False)
        cpu.apply(CPU_MOVES, rng.randint(0, 16))
    return s


CPU_MOVES = [
    *["split"] * 5, "fuse", "fuse", "reorder", "reorder", *["compute_at"] * 3, "inline", "kind", "kind", "kind",
    "cache_read", "cache_read", "cache_write", "cache_write", "rfactor", "rfactor", "align", "layout", "rolling", "root",
    "double_buffer", "tensorize", "tensorize", "prefetch",
]  # fmt: skip


class More(Scheduler):
    """Further primitives. A refusal is a ScheduleError that leaves the schedule as it was."""

    def apply(self, moves: list[str], steps: int) -> None:
        for _ in range(steps):
            move = self.rng.choice(moves)
            before = str(self.s), str(self.s.trace)
            try:
                getattr(self, move)()
            except ScheduleError as e:
                if e.where is None:
                    raise AssertionError(f"{move} was refused without a line: {e}") from e
                if move != "tensorize" and (str(self.s), str(self.s.trace)) != before:
                    raise AssertionError(f"{move} was refused and changed the schedule all the same: {e}") from e

    def scope(self) -> str:
        return self.rng.choice(["global", "shared", "local"] if self.gpu else ["global", "local"])

    def double_buffer(self) -> None:
        self.stage().double_buffer()

    def unrolled(self) -> None:
        stage = self.stage()
        if stage.leaf_iter_vars:
            stage.unroll(self.loop(stage))

    def predicate(self) -> None:
        """A condition that holds for every thread: what it guards stays."""
        stage = self.stage()
        for iv in stage.leaf_iter_vars:
            if iv in stage.attrs and stage.thread_of(iv).startswith("threadIdx"):
                stage.set_store_predicate(stage.attrs[iv].thread.var >= 0)
                return

    def prefetch(self) -> None:
        stage = self.stage()
        if stage.op.inputs and stage.leaf_iter_vars:
            stage.prefetch(self.rng.choice(stage.op.inputs), self.loop(stage), self.rng.choice([1, 2]))

    def layout(self) -> None:
        stage = self.stage()
        if stage.is_output:
            return
        if len(stage.op.axis) == 2:
            stage.transform_layout(
                self.rng.choice([lambda i, j: [j, i], lambda i, j: [j // 3, i, j % 3], lambda i, j: [i // 2, j, i % 2]])
            )
        elif len(stage.op.axis) == 3:
            stage.transform_layout(self.rng.choice([lambda c, i, j: [i, j, c], lambda c, i, j: [c // 2, i, j, c % 2]]))

    def tensorize(self) -> None:
        """A product, cut into tiles and given to loops written by hand."""
        found = [t for t in self.tensors if t.op.name.startswith("mm") and len(self.s[t].op.reduce_axis) == 1]
        if not found:
            return
        stage = self.s[self.rng.choice(found)]
        op = stage.op
        if len(op.axis) != 2 or any(iv not in stage.leaf for iv in ()):
            return
        m, n, k = (self.divisor(iv) for iv in (*op.axis, *op.reduce_axis))
        xo, yo, xi, yi = stage.tile(*op.axis, m, n)
        ko, ki = stage.split(op.reduce_axis[0], factor=k)
        stage.reorder(xo, yo, ko, xi, yi, ki)
        stage.tensorize(xi, tile_product(m, n, k, op.output(0).dtype, self.rng.choice([True, False])))

    def divisor(self, iv: Any) -> int:
        extent = iv.dom.extent.value
        return int(self.rng.choice([d for d in range(1, extent + 1) if extent % d == 0]))


def tile_product(m: int, n: int, k: int, dtype: str, parts: bool) -> Any:
    """An intrinsic for an m x n x k product; with parts, start and update apart."""
    a, b = te.placeholder((m, k), dtype=dtype, name="a"), te.placeholder((k, n), dtype=dtype, name="b")
    r = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    binds = {
        t: te.decl_buffer(t.shape, t.dtype, t.op.name, strides=[te.var(f"s{t.op.name}"), 1], offset_factor=1)
        for t in (a, b, c)
    }

    def loops(ins: list[Any], outs: list[Any], init: bool, update: bool) -> Any:
        ib = te.ir_builder.create()
        x, y, z = ib.buffer_ptr(ins[0]), ib.buffer_ptr(ins[1]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, m, name="i") as i, ib.for_range(0, n, name="j") as j:
            if init:
                z[i, j] = te.const(0, dtype)
            if update:
                with ib.for_range(0, k, name="r") as e:
                    z[i, j] = z[i, j] + x[i, e] * y[e, j]
        return ib.get()

    def function(ins: list[Any], outs: list[Any]) -> Any:
        return loops(ins, outs, True, True), *(
            (loops(ins, outs, True, False), loops(ins, outs, False, True)) if parts else (None, None)
        )

    return te.decl_tensor_intrin(c.op, function, name="tile", binds=binds)


class OnGpu(_Gpu):
    """The kernels of kernel_schedules, with scans in one work-group and externs as they stand."""

    def run(self) -> None:
        self.stepped: set[Any] = set()
        scans = [op for op in te.topo_order(self.outputs) if isinstance(op, te.ScanOp)]
        for op in scans:
            self.scan(op)
        super().run()

    def place(self, t: Any) -> None:
        if t.op in self.stepped or isinstance(t.op, te.ExternOp):
            return
        super().place(t)

    def root(self, t: Any) -> None:
        if t.op in self.stepped or isinstance(t.op, te.ExternOp):
            return
        super().root(t)

    def scan(self, op: Any) -> None:
        """All steps in one work-group, a row spread over its threads."""
        s = self.s
        n = self.rng.choice([4, 8, 32])
        s[op].env_threads([te.thread_axis((0, n), "threadIdx.x")])
        states = {u.op for u in op.update} | {i.op for i in op.init}
        inside = [
            x
            for x in te.topo_order([*op.update, *op.init])
            if isinstance(x, te.ComputeOp) and (x in states or any(q in op.state_placeholder for q in x.inputs))
        ]
        self.stepped.update([op, *inside])
        for x in inside:
            stage = s[x]
            if x not in states:
                reader = s.readers(stage)[0]
                if self.chance(0.5):
                    stage.compute_inline()
                    continue
                stage.compute_at(reader, reader.op.axis[0])
                stage.set_scope("shared")
            _, inner = stage.split(stage.op.axis[1], factor=n)
            stage.bind(inner, te.thread_axis((0, n), "threadIdx.x"))
