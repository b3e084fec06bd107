"""Random schedules of any te program, for CPUs and for GPUs.

A GPU schedule binds each stage that is a kernel of its own, and places the others in it: inlined, in shared memory filled
by all threads, in a thread's registers, reduced across threads. A primitive that refuses leaves the schedule as it was,
and the stage then takes the plain way.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import tec
from tec import te
from tec.errors import ScheduleError

TAGS = "xyz"


def schedule(seed: int, outputs: list[Any], gpu: bool) -> Any:
    s = tec.create_schedule([t.op for t in outputs])
    (_Gpu if gpu else _Cpu)(random.Random(seed), s, outputs).run()
    return s


def stages(outputs: list[Any]) -> list[Any]:
    """The tensors that are computed, consumers first."""
    return [op.output(0) for op in reversed(te.topo_order(outputs)) if not isinstance(op, te.PlaceholderOp)]


class _Base:
    def __init__(self, rng: random.Random, s: Any, outputs: list[Any]) -> None:
        self.rng, self.s, self.outputs = rng, s, outputs
        self.roots = {t.op for t in outputs}

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def attempt(self, change: Callable[[], Any]) -> Any:
        try:
            return change()
        except ScheduleError:
            return None

    def written(self, t: Any, scope: str) -> Any:
        """The stage that computes `t` once its result is cached, or None."""
        if t.op.num_outputs > 1:
            found = self.attempt(lambda: self.s.cache_write([t.op.output(k) for k in range(t.op.num_outputs)], scope))
            return found[0] if found else None
        return self.attempt(lambda: self.s.cache_write(t, scope))

    def reduction_loops(self, stage: Any) -> None:
        """Split, reorder and unroll a stage's reduction loops."""
        inner = []
        outer = []
        for r in stage.op.reduce_axis:
            if self.chance(0.6):
                ro, ri = stage.split(r, factor=self.rng.choice([2, 3, 4, 8]))
                outer.append(ro)
                inner.append(ri)
            else:
                outer.append(r)
        if self.chance(0.6):
            stage.reorder(*outer, *inner, *stage.op.axis) if self.chance(0.5) else stage.reorder(
                *outer, *stage.op.axis, *inner
            )
        if inner and self.chance(0.4):
            stage.unroll(inner[-1])


class _Cpu(_Base):
    def run(self) -> None:
        for t in stages(self.outputs):
            self.place(t) if t.op not in self.roots else self.root(t)

    def place(self, t: Any) -> None:
        how = self.rng.choice(["inline", "root", "at", "at"])
        if how == "inline" and not t.op.reduce_axis and self.attempt(lambda: self.s[t].compute_inline()) is not None:
            return
        if how == "at":
            readers = self.s.readers(self.s[t])
            if readers and readers[0].leaf_iter_vars:
                loop = self.rng.choice(readers[0].leaf_iter_vars)
                self.attempt(lambda: self.s[t].compute_at(readers[0], loop))
        if self.s[t].op.reduce_axis:
            self.attempt(lambda: self.reduction_loops(self.s[t]))
        elif self.s[t].op.axis and self.chance(0.3):
            self.attempt(lambda: self.s[t].vectorize(self.s[t].op.axis[-1]))

    def root(self, t: Any) -> None:
        s = self.s
        if t.op.reduce_axis and t.op.num_outputs == 1 and self.chance(0.25):
            _, ri = s[t].split(t.op.reduce_axis[0], factor=self.rng.choice([2, 4, 8]))
            part = self.attempt(lambda: s.rfactor(t, ri, self.rng.choice([0, -1])))
            if part is not None and s[t].leaf_iter_vars and self.chance(0.5):
                self.attempt(lambda: s[part].compute_at(s[t], s[t].leaf_iter_vars[0]))
            if part is not None and self.chance(0.5):
                self.attempt(lambda: s[part].vectorize(s[part].op.axis[-1]))
            return
        cached = self.written(t, self.rng.choice(["global", "local"])) if self.chance(0.4) else None
        stage = s[t]
        axes = list(stage.op.axis)
        if not axes:
            return
        if len(axes) > 1 and self.chance(0.25):
            axes = [stage.fuse(*axes)]
        outer, inner = [], []
        for ax in axes:
            o, i = stage.split(ax, **{self.rng.choice(["factor", "nparts"]): self.rng.choice([1, 2, 3, 4, 8, 16])})
            outer.append(o)
            inner.append(i)
        stage.reorder(*outer, *inner)
        if self.chance(0.3):
            self.rng.shuffle(inner)
            stage.reorder(*inner)
        if not stage.op.reduce_axis or self.chance(0.3):
            self.attempt(lambda: stage.vectorize(inner[-1])) if self.chance(0.6) else stage.unroll(inner[-1])
        if self.chance(0.4):
            stage.parallel(outer[0])
        if stage.op.reduce_axis:
            self.attempt(lambda: self.reduction_loops(stage))
        if cached is not None:
            self.attempt(lambda: s[cached].compute_at(stage, self.rng.choice(outer + inner[:-1])))
            if s[cached].op.reduce_axis:
                self.attempt(lambda: self.reduction_loops(s[cached]))
            if self.chance(0.4):
                self.attempt(lambda: s[cached].vectorize(s[cached].op.axis[-1]))
        if self.chance(0.3):
            target = cached if cached is not None else t
            source = self.rng.choice(list(s[target].op.inputs) or [None])
            if source is not None:
                read = self.attempt(lambda: s.cache_read(source, "global", [target]))
                if read is not None:
                    self.attempt(lambda: s[read].compute_at(stage, self.rng.choice(outer)))
                    if self.chance(0.5):
                        self.attempt(lambda: s[read].vectorize(s[read].op.axis[-1]))


class _Gpu(_Base):
    def run(self) -> None:
        # Stage's op -> (block loop, thread loop, threads by tag).
        self.blocks: dict[Any, tuple[Any, Any, list[int]]] = {}
        for t in stages(self.outputs):
            self.place(t) if t.op not in self.roots else self.root(t)

    def place(self, t: Any) -> None:
        s = self.s
        how = self.rng.choice(["inline", "inline", "shared", "local", "root"])
        if how == "inline" and not t.op.reduce_axis and self.attempt(lambda: s[t].compute_inline()) is not None:
            return
        readers = s.readers(s[t])
        at = self.blocks.get(readers[0].op) if len(readers) == 1 else None
        if at is not None and how in ("shared", "local"):
            block, thread, shape = at
            loop = block if how == "shared" else thread
            if self.attempt(lambda: s[t].compute_at(readers[0], loop)) is not None:
                s[t].set_scope(how)
                if how == "shared":
                    self.cooperate(s[t], shape)
                elif t.op.reduce_axis:
                    self.attempt(lambda: self.reduction_loops(s[t]))
                return
        self.root(t)

    def threads(self, dims: int) -> list[int]:
        return [self.rng.choice([[1, 4, 8, 32, 64, 100, 256], [2, 4, 8, 16], [1, 2, 4]][dims - 1]) for _ in range(dims)]

    def root(self, t: Any) -> None:
        s = self.s
        reduced = bool(t.op.reduce_axis)
        if reduced and t.op.axis and self.chance(0.35) and self.across_threads(t):
            return
        cached = self.written(t, "local") if (reduced and self.chance(0.7)) or self.chance(0.15) else None
        stage = s[t]
        axes = list(stage.op.axis)
        if len(axes) > 1 and self.chance(0.3):
            axes = [stage.fuse(*axes)]
        axes = axes[-3:] if len(axes) <= 3 else [stage.fuse(*axes)]
        shape = self.threads(len(axes))
        blocks, threads, inner, virtual = [], [], [], []
        for k, ax in enumerate(reversed(axes)):
            per = self.rng.choice([1, 1, 2, 4])
            b, rest = stage.split(ax, factor=shape[k] * per)
            if self.chance(0.5):
                th, i = stage.split(rest, factor=per)
            else:
                i, th = stage.split(rest, nparts=per)
            stage.bind(b, te.thread_axis(f"blockIdx.{TAGS[k]}"))
            stage.bind(th, te.thread_axis(f"threadIdx.{TAGS[k]}"))
            blocks.insert(0, b)
            threads.insert(0, th)
            if per > 1 and k and self.chance(0.3):
                stage.bind(i, te.thread_axis("vthread"))
                virtual.insert(0, i)
            else:
                inner.insert(0, i)
        stage.reorder(*blocks, *virtual, *threads, *inner)
        if inner and (cached is not None or not reduced) and self.chance(0.5):
            self.attempt(lambda: (stage.vectorize if self.chance(0.6) else stage.unroll)(inner[-1]))
        self.blocks[stage.op] = (blocks[-1], threads[-1], shape)
        if cached is None:
            if reduced:
                self.attempt(lambda: self.reduction_loops(stage))
            return
        body = s[cached]
        body.compute_at(stage, threads[-1])
        if not reduced:
            return
        outer, rest = [], []
        for r in body.op.reduce_axis:
            ro, ri = body.split(r, factor=self.rng.choice([2, 4, 7, 16]))
            outer.append(ro)
            rest.append(ri)
        body.reorder(*outer, *rest, *body.op.axis)
        if self.chance(0.3):
            body.unroll(rest[-1])
        for source in list(body.op.inputs):
            if self.chance(0.6):
                self.staged(source, cached, outer[-1], shape)

    def staged(self, source: Any, reader: Any, loop: Any, shape: list[int]) -> None:
        """A tile of an input in shared memory, filled by all threads of the group."""
        s = self.s
        tile = self.attempt(lambda: s.cache_read(source, "shared", [reader]))
        if tile is None:
            return
        s[tile].compute_at(s[reader], loop)
        self.cooperate(s[tile], shape)
        if self.chance(0.4):
            self.attempt(lambda: s[tile].double_buffer())
        if self.chance(0.3) and len(s[tile].op.axis) > 1:
            self.attempt(lambda: s[tile].storage_align(s[tile].op.axis[0], 8, 1))
        if self.chance(0.2):
            registers = self.attempt(lambda: s.cache_read(tile, "local", [reader]))
            if registers is not None:
                self.attempt(
                    lambda: s[registers].compute_at(s[reader], s[reader].leaf_iter_vars[len(s[reader].op.reduce_axis)])
                )

    def cooperate(self, stage: Any, shape: list[int]) -> None:
        if stage.op.reduce_axis or not stage.op.axis:
            fused = (
                stage.op.axis[0] if len(stage.op.axis) == 1 else stage.fuse(*stage.op.axis) if stage.op.axis else None
            )
            if fused is None:
                return
        else:
            fused = stage.fuse(*stage.op.axis) if len(stage.op.axis) > 1 else stage.op.axis[0]
            if self.chance(0.3):
                fused, lanes = stage.split(fused, factor=self.rng.choice([2, 4]))
                self.attempt(lambda: stage.vectorize(lanes))
        for k, n in enumerate(shape):
            fused, inner = stage.split(fused, factor=n)
            stage.bind(inner, te.thread_axis((0, n), f"threadIdx.{TAGS[k]}"))

    def across_threads(self, t: Any) -> bool:
        """The reduction shared by the threads of a group: rfactor, or the reduction loop bound as it is."""
        s = self.s
        stage = s[t]
        n = self.rng.choice([4, 7, 16, 32, 64, 100, 128])
        rows = self.rng.choice([1, 2])
        r = stage.fuse(*t.op.reduce_axis) if len(t.op.reduce_axis) > 1 else t.op.reduce_axis[0]
        _, ri = stage.split(r, factor=n)
        part = self.attempt(lambda: s.rfactor(t, ri)) if t.op.num_outputs == 1 else None
        stage = s[t]
        axis = stage.fuse(*stage.op.axis) if len(stage.op.axis) > 1 else stage.op.axis[0]
        bx, ty = stage.split(axis, factor=rows)
        stage.bind(bx, te.thread_axis("blockIdx.x"))
        stage.bind(ty, te.thread_axis("threadIdx.y"))
        if part is not None:
            stage.bind(stage.op.reduce_axis[0], te.thread_axis("threadIdx.x"))
            s[part].compute_at(stage, stage.op.reduce_axis[0])
        else:
            stage.bind(ri, te.thread_axis("threadIdx.x"))
        return True
