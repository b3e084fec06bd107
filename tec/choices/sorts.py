"""Running sums and products, and the largest elements in order, as loops.

A running sum of n elements is n additions (on a GPU by chunks, whose sums are summed in turn); the k largest are a heap's work, n log k, a line a thread,
or a bitonic sort's, n log^2 n, all threads at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from .. import te
from ..ops.forms import Form
from ..ops.registry import TensorType, static_shape
from ..ops.sort import above, alike
from ..target import Target
from ..te import Tensor
from . import loops
from .group import Group
from .space import Choice, Cost

CHUNK = 256  # elements that one GPU thread sums one after another
SMALL = 512  # elements of a line up to which a GPU counts ranks instead of sorting
MANY_LINES = 4096  # lines that fill a GPU with a thread each


def match(group: Group, target: Target) -> Iterator[loops.LoopForm]:
    """The spaces of a group with a running sum or the largest elements in it."""
    found = group.form("running", "topk")
    if found is not None and loops.fits(found[0]):
        yield (Running if found[0].kind == "running" else Largest)(group, target, *found)


class Running(loops.LoopForm):
    """A running sum: `chunk` elements of a line a thread, or 0 for the whole line."""

    template: ClassVar[str] = "running sum"

    def __init__(self, group: Group, target: Target, form: Form, carriers: dict[int, Tensor]):
        super().__init__(group, target, form, carriers)
        self.lines = loops.Lines(static_shape(form.inputs[0]), form.attrs["axis"])
        self.parameters = {"chunk": (0, CHUNK, 64, 128, 512) if target.is_gpu else (0,)}

    @property
    def default(self) -> Choice:
        apart = self.target.is_gpu and self.lines.n > 2 * CHUNK and self.lines.count < MANY_LINES
        return self.choice(chunk=CHUNK if apart else 0)

    def why_not(self, choice: Choice) -> str | None:
        chunk = choice["chunk"]
        return f"a line has {self.lines.n} elements" if chunk and self.lines.n <= 2 * chunk else None

    def cost(self, choice: Choice) -> Cost:
        """Elements that one thread adds one after another, in passes of one kernel each."""
        chunk, n = choice["chunk"], self.lines.n
        chain, kernels = (n, 1) if not chunk else (2 * chunk, 3)
        return self.chain_cost(chain, self.lines.count * n, kernels)

    def tensors(self, choice: Choice) -> list[Tensor]:
        f = self.form
        a = f.attrs
        return _running(
            a["name"],
            f.inputs[0],
            a["axis"],
            a["product"],
            a["exclusive"],
            a["reverse"],
            a["acc"],
            choice["chunk"],
            self.target,
        )


class Largest(loops.LoopForm):
    """The k largest in order, by "heap" or "bitonic" sort."""

    template: ClassVar[str] = "largest"

    def __init__(self, group: Group, target: Target, form: Form, carriers: dict[int, Tensor]):
        super().__init__(group, target, form, carriers)
        self.lines = loops.Lines(static_shape(form.inputs[0]), form.attrs["axis"])
        self.parameters = {"algorithm": ("heap", "bitonic")}
        # Short lines on a GPU: each element counts those before it, all threads at once, in one pass.
        self.is_second = target.is_gpu and self.lines.n <= SMALL

    @property
    def default(self) -> Choice:
        return self.choice(algorithm="bitonic" if self.target.is_gpu else "heap")

    def cost(self, choice: Choice) -> Cost:
        """A heap's comparisons in one thread, or a sort's passes, one kernel each."""
        n, k = self.lines.n, self.form.attrs["k"]
        deep = max(1, (n - 1).bit_length())
        if choice["algorithm"] == "heap":
            return self.chain_cost(4 * n * max(1, k.bit_length()), self.lines.count * n * deep, 1)
        passes = deep * (deep + 1) // 2
        return self.chain_cost(passes, self.lines.count * n * passes, passes)

    def tensors(self, choice: Choice) -> list[Tensor]:
        a, x = self.form.attrs, self.form.inputs[0]
        make = _sorted if choice["algorithm"] == "bitonic" else _heaps
        return make(x, a["axis"], a["k"], a["largest"], self.form.outputs[0], self.target)


def _running(
    name: str, x: Tensor, axis: int, product: bool, strict: bool, back: bool, wide: str, chunk_size: int, target: Target
) -> list[Tensor]:
    shape, dtype = static_shape(x), x.dtype
    lines = loops.Lines(shape, axis)
    n = lines.n

    def both(a: Any, b: Any) -> Any:
        return a * b if product else a + b

    def body(ib: Any, sources: list[Any], results: list[Any]) -> None:
        (src,), (dst,) = sources, results
        one = te.const(1 if product else 0, wide)

        def place(line: Any, k: Any) -> tuple[Any, ...]:
            return lines.at(line, n - 1 - k if back else k)

        def write(line: Any, begin: Any, count: Any, acc: Any) -> None:
            with ib.for_range(0, count, "k") as k:
                at = place(line, begin + k)
                value = src[at].astype(wide)
                if strict:
                    following = ib.let("following", both(acc[0], value))
                    dst[at] = acc[0].astype(dtype)
                    acc[0] = following
                else:
                    acc[0] = both(acc[0], value)
                    dst[at] = acc[0].astype(dtype)

        if not chunk_size:
            with loops.each(ib, target, lines.count, "line") as line:
                write(line, 0, n, loops.scalar(ib, wide, "acc", one))
            return
        # Sums of chunks, of chunks of chunks, ... until a line of them is short; then each level starts from the one above.
        counts: list[int] = []
        while (counts[-1] if counts else n) > chunk_size:
            counts.append(-(-(counts[-1] if counts else n) // chunk_size))
        levels = [ib.allocate(wide, (lines.count * c,), f"sums{k}") for k, c in enumerate(counts)]
        for k, (level, c) in enumerate(zip(levels, counts)):
            length = n if k == 0 else counts[k - 1]
            with loops.each(ib, target, lines.count * c) as e:
                line, chunk = te.indexdiv(e, c), te.indexmod(e, c)
                acc = loops.scalar(ib, wide, "acc", one)
                with ib.for_range(0, te.min(chunk_size, length - chunk * chunk_size), "j") as j:
                    i = chunk * chunk_size + j
                    acc[0] = both(
                        acc[0], src[place(line, i)].astype(wide) if k == 0 else levels[k - 1][line * length + i]
                    )
                level[e] = acc[0]
        for k in reversed(range(len(levels))):
            length = counts[k]
            parts = counts[k + 1] if k + 1 < len(counts) else 1
            with loops.each(ib, target, lines.count * parts) as e:
                line, chunk = te.indexdiv(e, parts), te.indexmod(e, parts)
                acc = loops.scalar(ib, wide, "acc", levels[k + 1][e] if k + 1 < len(levels) else one)
                size = te.min(chunk_size, length - chunk * chunk_size) if parts > 1 else length
                with ib.for_range(0, size, "j") as j:
                    i = line * length + chunk * chunk_size + j
                    following = ib.let("following", both(acc[0], levels[k][i]))
                    levels[k][i] = acc[0]
                    acc[0] = following
        c = counts[0]
        with loops.each(ib, target, lines.count * c) as e:
            line, chunk = te.indexdiv(e, c), te.indexmod(e, c)
            write(
                line,
                chunk * chunk_size,
                te.min(chunk_size, n - chunk * chunk_size),
                loops.scalar(ib, wide, "acc", levels[0][e]),
            )

    return loops.extern(name, [x], [(shape, dtype)], body)


def _heaps(x: Tensor, axis: int, k: int, largest: bool, out: TensorType, target: Target) -> list[Tensor]:
    """A heap of the k best of each line, the worst of them on top; then sorted in place, the worst to the end first."""
    dtype = x.dtype
    lines, kept = loops.Lines(static_shape(x), axis), loops.Lines(out.shape, axis)
    n = lines.n

    def body(ib: Any, sources: list[Any], results: list[Any]) -> None:
        (src,), (values, index) = sources, results

        def better(a: Any, i: Any, b: Any, j: Any) -> Any:
            # In steps: one large condition is slow to simplify.
            u, v = ib.let("u", a), ib.let("v", b)
            first = ib.let("first", above(u, v, dtype) if largest else above(v, u, dtype))
            same, sooner = ib.let("same", alike(u, v, dtype)), ib.let("sooner", i < j)
            return te.any(first, te.all(same, sooner))

        with loops.each(ib, target, lines.count, "line") as line:
            top = ib.allocate(dtype, (1,), "top", scope="local")
            which = ib.allocate("int64", (1,), "which", scope="local")
            at = ib.allocate("int32", (1,), "at", scope="local")
            child = ib.allocate("int32", (1,), "child", scope="local")

            def sift(root: Any, size: Any) -> None:
                """`top`, `which` goes down from `root` until both children are better."""
                at[0] = root
                child[0] = root * 2 + 1
                with ib.while_loop(child[0] < size):
                    with ib.if_scope(child[0] + 1 < size):
                        a, b = kept.at(line, child[0]), kept.at(line, child[0] + 1)
                        with ib.if_scope(better(values[a], index[a], values[b], index[b])):
                            child[0] = child[0] + 1
                    c = kept.at(line, child[0])
                    with ib.if_scope(better(top[0], which[0], values[c], index[c])):
                        h = kept.at(line, at[0])
                        values[h] = values[c]
                        index[h] = index[c]
                        at[0] = child[0]
                        child[0] = at[0] * 2 + 1
                    with ib.else_scope():
                        child[0] = size
                h = kept.at(line, at[0])
                values[h] = top[0]
                index[h] = which[0]

            with ib.for_range(0, k, "j") as j:
                h = kept.at(line, j)
                values[h] = src[lines.at(line, j)]
                index[h] = j.astype("int64")
            with ib.for_range(0, k // 2, "r") as r:
                h = kept.at(line, k // 2 - 1 - r)
                top[0] = values[h]
                which[0] = index[h]
                sift(k // 2 - 1 - r, k)
            if k < n:
                worst = kept.at(line, 0)
                with ib.for_range(k, n, "j") as j:
                    top[0] = src[lines.at(line, j)]
                    which[0] = j.astype("int64")
                    with ib.if_scope(better(top[0], which[0], values[worst], index[worst])):
                        sift(0, k)
            with ib.for_range(0, k - 1, "e") as e:
                last, first = kept.at(line, k - 1 - e), kept.at(line, 0)
                top[0] = values[last]
                which[0] = index[last]
                values[last] = values[first]
                index[last] = index[first]
                sift(0, k - 1 - e)

    return loops.extern("topk", [x], [(out.shape, dtype), (out.shape, "int64")], body)


def _sorted(x: Tensor, axis: int, k: int, largest: bool, out: TensorType, target: Target) -> list[Tensor]:
    """A bitonic sort of each line, padded to a power of two: what is beyond the line comes last."""
    dtype = x.dtype
    lines, kept = loops.Lines(static_shape(x), axis), loops.Lines(out.shape, axis)
    n = lines.n
    steps = (n - 1).bit_length()
    size = 1 << steps

    def body(ib: Any, sources: list[Any], results: list[Any]) -> None:
        (src,), (values, index) = sources, results
        key = ib.allocate(dtype, (lines.count * size,), "key")
        which = ib.allocate("int32", (lines.count * size,), "which")
        with loops.each(ib, target, lines.count * size) as e:
            line, p = te.indexdiv(e, size), te.indexmod(e, size)
            which[e] = p
            # What is beyond the line has the largest numbers, and stays behind by them.
            key[e] = te.if_then_else(p < n, src[lines.at(line, te.min(p, n - 1))], te.const(0, dtype))
        with ib.for_range(0, steps, "run") as run, ib.for_range(0, run + 1, "step") as step:
            with loops.each(ib, target, lines.count * size // 2) as e:
                apart = te.const(1, "int32") << (run - step)
                low = te.indexmod(e, apart)
                a = (e - low) * 2 + low
                b = a + apart
                # Runs of 2 << run elements are sorted up and down in turn, the last run up.
                up = te.bitwise_and(te.indexmod(a, size) >> (run + 1), 1) == 0
                u, v = ib.let("u", key[a]), ib.let("v", key[b])
                i, j = ib.let("i", which[a]), ib.let("j", which[b])
                first = ib.let("first", above(u, v, dtype) if largest else above(v, u, dtype))
                same, sooner = ib.let("same", alike(u, v, dtype)), ib.let("sooner", i < j)
                real = te.all(i < n, j < n)
                ahead = ib.let("ahead", te.select(real, te.any(first, te.all(same, sooner)), sooner))
                with ib.if_scope(ahead != up):
                    key[a] = v
                    which[a] = j
                    key[b] = u
                    which[b] = i
        with loops.each(ib, target, lines.count * k) as e:
            line, p = te.indexdiv(e, k), te.indexmod(e, k)
            h = kept.at(line, p)
            values[h] = key[line * size + p]
            index[h] = which[line * size + p].astype("int64")

    return loops.extern("topk", [x], [(out.shape, dtype), (out.shape, "int64")], body)
