"""Scatters as loops, in linear work.

On a CPU the updates are taken one after another. On a GPU the elements are copied as they are; then each place that has updates finds its last one by an atomic
maximum, and where updates are combined, each such place gets a list of them (an atomic exchange an update) that the last one's thread then walks. No two threads write
one place in a kernel, for any type; sums of floats are taken in the list's order. What a place's updates are is written down for places that have some alone: where few
elements of many are updated, a scatter takes little longer than the copy. Where updates that are combined outnumber the places, lists would be long: an atomic operation each
puts them into their places at once, as NVIDIA's last caches do by themselves. Where single elements are replaced, and many of them, an atomic maximum of number and value in one word
finds both: places that lie anywhere are touched once, and the rest goes through memory in order. Where such words would not stay in the last cache, a bit for each place tells
whether an update was there, and values are written at once: models hardly ever write one place twice, and pay for finding the last update only if they do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias

from ... import te
from ...ir.dtype import dtype_info
from ...ir.expr import Expr
from ...locks import cached_property
from ...ops.dims import at_most
from ...ops.forms import Form
from ...ops.registry import static_shape
from ...ops.scatter import place_of
from ...records import dataclass
from ...target import Target
from ...te.ir_builder import BufferVar, IRBuilder
from ...te.like import Index
from ..cost import Footprint, Kernel
from ..footprint import SEGMENT_BYTES
from ..parts import loops
from ..parts.counts import moved_bytes
from ..parts.digits import split_index
from ..space import Choice
from . import scatter_atomics, scatter_words

_LOAD_BYTES = 16  # of a thread's widest load
# One update of so many places from which `head` is begun as a whole: a touch of one moves a sector of 32 bytes in and out, as much as 16 places one after another.
_LINE_ELEMENTS = 16
# Places for an update up to which number and value go in one word: its 8 bytes a place are written and read, 16 bytes in order for two touches of 32 bytes anywhere, beside 4
# bytes of `head`. (16 - 4) * places < 2 * 32 * updates.
_MOST_PLACES = 5
_WORD_BYTES = 8  # of such a word
_BITS = 32  # places that a word of bits tells of
_AGAIN = 0x5EED  # tells that a place was written twice: no number that memory which nobody wrote is likely to hold, which a launch is modelled on
# Work-groups of a kernel that seldom has work: those of a unit at once, so that none waits to be begun for nothing.
_GROUPS_A_UNIT = 8
_SHARED_BYTES = 32768  # of what a work-group keeps of its places and of all updates: any GPU's has room for one such
_LISTED, _PUT = 20, 12  # operations for an update's place and its list, and for a vector's place
_WRITTEN_OUT = 8  # turns of a loop over updates whose indices are asked for at once
# Trips to memory that one counts for which nothing else of the work-group is under way beside: all wait for the lists.
_ALONE = 4


# Whether an update is inside, its place, and its index into the updates.
_Update: TypeAlias = tuple[Expr, Sequence[Index], Sequence[Index]]


class Scatter(loops.LoopForm):
    """A scatter, update by update."""

    template: ClassVar[str] = "scatter"
    kind: ClassVar[str] = "scatter"

    def read_form(self) -> None:
        if self.target.is_gpu:
            self.parameters = {"vectors": (0, 1, 2, 4, 8)}

    @classmethod
    def serves(cls, form: Form, target: Target) -> bool:
        return loops.fits(form)

    def why_not(self, choice: Choice) -> str | None:
        own = choice.get("vectors", 0)
        return self._updates.why_not_by_range(self.form.outputs[0].dtype, own) if own else None

    def sketch(self, choice: Choice) -> Footprint:
        """On a CPU updates are one chain; on a GPU a kernel by ranges of places, or a copy, a thread an update, and what updates make of their places."""
        x, at, update = (math.prod(static_shape(t)) for t in self.form.inputs)
        if not self.target.is_gpu:
            return self.chains(x + update, 1)
        updates, dtype = self._updates, self.form.outputs[0].dtype
        if updates.goes_its_own_way(dtype):
            return self.chains(4, (x + 2 * update) / 3, 3)
        size, asked = dtype_info(dtype).bytes, at * dtype_info(self.form.inputs[1].dtype).bytes
        moved, each = float(moved_bytes(self.group)), loops.THREADS
        if own := choice["vectors"]:
            groups, width = math.ceil(updates.total / updates.span(dtype, own)), updates.width(dtype)
            turns = math.ceil(updates.count / each)
            return Footprint((Kernel(
                groups, each, updates.shared_bytes(dtype, own), own * width * size // 4, moved, moved + groups * asked,
                issued=turns * _LISTED + own * (_PUT + 2 * width), waits=_ALONE * (3 + math.ceil(turns / _WRITTEN_OUT)), barriers=2,
            ),))  # fmt: skip
        copied, read = 2.0 * x * size, float(update * size)
        width = updates.width(dtype)
        if word := updates.atomic_word(dtype):
            is_last = scatter_atomics.is_as_stored(word, updates.reduction, dtype)
            own = copied if is_last else x * (size + dtype_info(word).bytes)
            copy = Kernel(math.ceil(x / width / each), each, 0, 0, own, own, issued=_PUT, waits=1)
            return Footprint((
                copy,
                Kernel(math.ceil(update / each), each, 0, 0, asked + read, asked + read + update * SEGMENT_BYTES, issued=_LISTED, waits=2),
                *([copy] * (not is_last)),
            ))  # fmt: skip
        return Footprint((
            Kernel(math.ceil(x / width / each), each, 0, 0, copied, copied, issued=_PUT, waits=1),
            Kernel(math.ceil(updates.count / each), each, 0, 0, asked, asked + updates.count * SEGMENT_BYTES, issued=_LISTED, waits=2),
            Kernel(math.ceil(update / width / each), each, 0, 0, asked + 3 * read, asked + 3 * read, issued=2 * _LISTED, waits=5),
        ))  # fmt: skip

    def body(self, choice: Choice, ib: IRBuilder, sources: list[BufferVar], results: list[BufferVar]) -> None:
        updates = self._updates
        if not self.target.is_gpu:
            updates.in_turn(ib, *sources, *results)
        elif own := choice["vectors"]:
            updates.by_range(own, ib, *sources, *results)
        else:
            updates.by_place(ib, *sources, *results)

    @cached_property
    def _updates(self) -> Updates:
        return self._points() if self.form.attrs["axis"] is None else self._along_axis()

    def _points(self) -> Updates:
        """Those of ScatterND."""
        shape, index = (static_shape(t) for t in self.form.inputs[:2])
        lead, depth, rest = index[:-1], index[-1], shape[index[-1] :]
        # Blocks of one element are elements, whose places have an index for each axis.
        ones = (0,) * len(rest) if math.prod(rest) == 1 else ()

        def point(at: BufferVar, e: Index) -> _Update:
            here = split_index(e, lead)
            place = [place_of(at[(*here, d)], shape[d]) for d in range(depth)]
            return te.all(*[p >= 0 for p in place]), (*place, *ones), (*here, *ones)

        places, rest = (shape, ()) if ones else (shape[:depth], rest)
        return Updates(places, math.prod(lead), rest, point, self.form.attrs["reduction"], self.target)

    def _along_axis(self) -> Updates:
        """Elements that go elsewhere along an axis. Those of one place are as many steps along it apart, and their order is all that counts. On GPUs that no clock has judged, strips of the
        columns behind the axis, each as wide as what a cache is asked for at once, are taken one after the other: the lines of one strip stay in a cache until all their elements are written."""
        (shape, count), axis = (static_shape(t) for t in self.form.inputs[:2]), self.form.attrs["axis"]
        columns, strip = math.prod(count[axis + 1 :]), SEGMENT_BYTES // dtype_info(self.form.outputs[0].dtype).bytes
        strips = -(-columns // strip) if self.target.machine.priced_by_model and strip < columns else 1
        strip = columns if strips == 1 else strip
        split = (math.prod(count[:axis]), strips, count[axis], strip)

        def one(at: BufferVar, e: Index) -> _Update:
            outer, number, along, column = split_index(e, split)
            column = number * strip + column
            there: list[Expr] = []
            if strips * strip > columns:
                there, column = [column < columns], te.min(column, columns - 1)
            here = (*split_index(outer, count[:axis]), along, *split_index(column, count[axis + 1 :]))
            k = place_of(at[here], shape[axis])
            inside = [a < c for d, (a, c) in enumerate(zip(here, shape)) if d != axis and not at_most(count[d], c)]
            return te.all(k >= 0, *there, *inside), (*here[:axis], k, *here[axis + 1 :]), here

        return Updates(shape, math.prod(split), (), one, self.form.attrs["reduction"], self.target)


@dataclass(frozen=True)
class Updates:
    """`count` updates, each a block of shape `rest`, to the places of shape `places`.

    `one(index, e)` gives of update number e whether it is inside, its place, and its index into the updates.
    """

    places: Sequence[int]
    count: int
    rest: Sequence[int]
    one: Callable[[BufferVar, Index], _Update]
    reduction: str
    target: Target

    @property
    def block(self) -> int:
        return math.prod(self.rest)

    @property
    def total(self) -> int:
        return math.prod(self.places)

    def in_turn(self, ib: IRBuilder, old: BufferVar, at: BufferVar, new: BufferVar, dst: BufferVar) -> None:
        """The elements as they were, then one update after another."""
        with loops.each(ib, self.target, self.total, "p") as slot, ib.for_range(0, self.block, "b") as b:
            own = (*split_index(slot, self.places), *split_index(b, self.rest))
            dst[own] = old[own]
        with ib.for_range(0, self.count, "e") as e:
            inside, place, here = self.one(at, e)
            with ib.if_scope(inside), ib.for_range(0, self.block, "b") as b:
                r = split_index(b, self.rest)
                dst[(*place, *r)] = scatter_atomics.combined(
                    self.reduction, dst[(*place, *r)], new[(*here, *r)], dst.dtype
                )

    def by_place(self, ib: IRBuilder, old: BufferVar, at: BufferVar, new: BufferVar, dst: BufferVar) -> None:
        """The elements as they were; each place's last update, or the list of its updates, in `head` and `following`; then what each last update makes of its place."""
        if self._goes_by_bits():
            self._by_bits(ib, old, at, new, dst)
            return
        if self._goes_in_words(dst.dtype):
            scatter_words.by_words(self, ib, old, at, new, dst)
            return
        if self.atomic_word(dst.dtype):
            scatter_atomics.by_atomics(self, ib, old, at, new, dst)
            return
        head = ib.allocate("int32", (self.total,), "head")
        following = ib.allocate("int32", (self.count,), "following") if self.reduction != "none" else None
        shape = (*self.places, *self.rest)
        width, run = self.vector_of(dst.dtype, self.rest), self.vector_of(dst.dtype, shape)
        block, copies = self.block // width, math.prod(shape) // run
        is_dense = self.count * _LINE_ELEMENTS >= self.total
        begun = self.total if is_dense else self.count

        def exchanged(place: Sequence[Index], value: Expr) -> Expr:
            return te.call_intrin("int32", "atomic_exch", head[self.flat(place)], value)

        with loops.each(ib, self.target, max(copies, begun)) as t:
            with loops.where(ib, *[t < copies] * (begun > copies)):
                self.copy(ib, old, dst, t)
            with loops.where(ib, *[t < begun] * (begun < copies)):
                if is_dense:
                    head[t] = te.const(-1, "int32")
                else:
                    inside, place, _ = self.one(at, t)
                    with ib.if_scope(inside):
                        ib.emit(exchanged(place, te.const(-1, "int32")))
        with loops.each(ib, self.target, self.count) as e:
            inside, place, _ = self.one(at, e)
            with ib.if_scope(inside):
                if following is None:
                    ib.emit(te.call_intrin("int32", "atomic_max", head[self.flat(place)], e))
                else:
                    following[e] = exchanged(place, e)
        with loops.each(ib, self.target, self.count * block) as t:
            e, within = (t, 0) if block == 1 else (te.indexdiv(t, block), te.indexmod(t, block) * width)
            e = ib.let("e", e)
            inside, place, source = self.one(at, e)
            with ib.if_scope(inside), ib.if_scope(head[self.flat(place)] == e):
                r = split_index(within, self.rest)
                here = (*place, *r)
                if following is None:
                    self.put(ib, dst, here, width, self.values(new, (*source, *r), width))
                    return
                value, more = (ib.allocate(dst.dtype, (width,), name, scope="local") for name in ("value", "more"))
                loops.put_vector(ib, value, 0, self.values(old, here, width))
                update = loops.scalar(ib, "int32", "update", e)
                with ib.while_loop(update[0] >= 0):
                    _, _, source = self.one(at, update[0])
                    loops.put_vector(ib, more, 0, self.values(new, (*source, *r), width))
                    for k in range(width):
                        value[k] = scatter_atomics.combined(self.reduction, value[k], more[k], dst.dtype)
                    update[0] = following[update[0]]
                self.put(ib, dst, here, width, loops.vector(value, 0, width))

    def atomic_word(self, dtype: str) -> str | None:
        """The type in which updates are combined by atomic operations; None where they are not."""
        return scatter_atomics.word(self.target, self.reduction, dtype) if self.count > self.total else None

    # ---- one kernel

    def goes_its_own_way(self, dtype: str) -> bool:
        """Whether single elements that replace others go by words, or by bits."""
        return self._goes_by_bits() or self._goes_in_words(dtype)

    def width(self, dtype: str) -> int:
        """Neighbours that a thread of one kernel has at once: of one place, or places."""
        return self.vector_of(dtype, self.rest if self.block > 1 else self.places)

    def span(self, dtype: str, own: int) -> int:
        """Places of a work-group whose threads have so many vectors; 0 where a place has more."""
        elements = own * loops.THREADS * self.width(dtype)
        return min(elements // self.block, -(-self.total // self.width(dtype)) * self.width(dtype))

    def shared_bytes(self, dtype: str, own: int) -> int:
        return 4 * (self.span(dtype, own) + (self.count if self.reduction != "none" else 0))

    def why_not_by_range(self, dtype: str, own: int) -> str | None:
        if not self.span(dtype, own):
            return "a place has more elements than a work-group's threads keep"
        if self.shared_bytes(dtype, own) > _SHARED_BYTES:
            return "shared memory has no room for the lists of so many updates"
        return None

    def by_range(self, own: int, ib: IRBuilder, old: BufferVar, at: BufferVar, new: BufferVar, dst: BufferVar) -> None:
        """A work-group has some places, and of each its last update or the list of its updates in shared memory; its threads have asked for their elements before that."""
        shape, width, threads = (*self.places, *self.rest), self.width(dst.dtype), loops.THREADS
        span = self.span(dst.dtype, own)
        vectors, last = span * self.block // width, self.total * self.block // width
        with loops.launch(ib, (-(-self.total // span),), (threads,)) as (group, t):
            head = ib.allocate("int32", (span,), "head", scope="shared")
            is_list = self.reduction != "none"
            following = ib.allocate("int32", (self.count,), "following", scope="shared") if is_list else None
            kept = ib.allocate(dst.dtype, (own * width,), "kept", scope="local")

            def each_own(body: Callable[[int, Index, Sequence[Index]], None]) -> None:
                """`body` of a thread's vectors: number, the vector's in the work-group, and where its first element is."""
                for k in range(own):
                    v = t + k * threads
                    among = [v < vectors] * ((k + 1) * threads > vectors)
                    inside = [group * vectors + v < last] * (last % vectors > 0)
                    with loops.where(ib, *among, *inside):
                        body(k, v, split_index((group * vectors + v) * width, shape))

            def load(k: int, v: Index, here: Sequence[Index]) -> None:
                self.keep(ib, kept, k * width, width, self.values(old, here, width))

            def empty(p: Index) -> None:
                head[p] = te.const(-1, "int32")

            def found(e: Index) -> Expr:
                inside, place, _ = self.one(at, e)
                p = ib.let("p", self.flat(place) - group * span)
                own: Expr = te.select(te.all(inside, p >= 0, p < span), p, te.const(-1, "int32"))
                return own

            def enlist(e: Index, p: Index) -> None:
                with ib.if_scope(p >= 0):
                    if following is None:
                        ib.emit(te.call_intrin("int32", "atomic_max", head[p], e))
                    else:
                        following[e] = te.call_intrin("int32", "atomic_exch", head[p], e)

            def settle(k: int, v: Index, here: Sequence[Index]) -> None:
                self._updated(ib, kept, k * width, v * width, head, following, at, new)
                self.put(ib, dst, here, width, loops.vector(kept, k * width, width) if width > 1 else kept[k])

            each_own(load)
            loops.dealt(ib, span, threads, (t,), empty, "serial")
            self._listed(ib, t, found, enlist)
            each_own(settle)

    def _listed(
        self, ib: IRBuilder, t: Expr, found: Callable[[Index], Expr], enlist: Callable[[Index, Expr], None]
    ) -> None:
        """All updates by the threads of a work-group: of some turns first where each goes (`found`: its place in the work-group; -1 where it has none), then what is done with it."""
        threads, turns = loops.THREADS, -(-self.count // loops.THREADS)
        some = min(turns, _WRITTEN_OUT)
        is_whole = self.count % (threads * some) == 0
        places = ib.allocate("int32", (some,), "places", scope="local")
        with ib.for_range(0, -(-turns // some), "turns") as r:
            for is_found in (False, True):
                for n in range(some):
                    e = ib.let("e", (r * some + n) * threads + t)
                    with loops.where(ib, is_whole or e < self.count):
                        if is_found:
                            enlist(e, places[n])
                        else:
                            places[n] = found(e)

    def _updated(
        self, ib: IRBuilder, kept: BufferVar, first: int, element: Index, head: BufferVar, following: BufferVar | None, at: BufferVar, new: BufferVar
    ) -> None:  # fmt: skip
        """A thread's vector, kept from number `first` on, with the updates of its place or places. element: its first one's number in the work-group."""
        dtype, width = kept.dtype, self.width(kept.dtype)
        one = 1 if self.block == 1 else width  # elements of one place
        within = split_index(te.indexmod(element, self.block), self.rest)
        for n in range(0, width, one):
            update = loops.scalar(ib, "int32", "update", head[te.indexdiv(element, self.block) + n])
            is_there = update[0] >= 0
            with ib.if_scope(is_there) if following is None else ib.while_loop(is_there):
                _, _, source = self.one(at, update[0])
                value = self.values(new, (*source, *within), one)
                if following is None:
                    self.keep(ib, kept, first + n, one, value)
                    continue
                more = ib.allocate(dtype, (one,), "more", scope="local")
                self.keep(ib, more, 0, one, value)
                for j in range(first + n, first + n + one):
                    kept[j] = scatter_atomics.combined(self.reduction, kept[j], more[j - first - n], dtype)
                update[0] = following[update[0]]

    @staticmethod
    def keep(ib: IRBuilder, to: BufferVar, first: int, width: int, value: Expr) -> None:
        """A vector's elements, or one, into a buffer of a thread's own."""
        if width > 1:
            loops.put_vector(ib, to, first, value)
        else:
            to[first] = value

    # ---- by words and bits

    def _goes_by_bits(self) -> bool:
        """Whether single elements replace others at more places than have their words in the last cache. On GPUs that no clock has judged, at so many that memory takes longer for the words
        than two kernels take to begin, where many places are updated: of few a word is touched for each update alone."""
        machine = self.target.machine
        if self.reduction != "none" or self.block > 1:
            return False
        words = self.total * _WORD_BYTES
        if self.target.is_gpu and machine.priced_by_model and self.count * _LINE_ELEMENTS >= self.total:
            return bool(words / (machine.reached_gbps * 1e9) > 2 * machine.launch_seconds)
        *_, last, _ = machine.levels
        return bool(words > last.size_bytes * machine.units // last.units)

    def _by_bits(self, ib: IRBuilder, old: BufferVar, at: BufferVar, new: BufferVar, dst: BufferVar) -> None:
        """The elements as they were; each update writes its place if it is the first to set the place's bit. Where one finds the bit set, the place is marked; all updates
        of marked places look for the last one by an atomic maximum of their numbers, and that one writes once more: two kernels that end at once where nothing is marked."""
        shape = tuple(self.places)
        run, words = self.vector_of(dst.dtype, shape), -(-self.total // _BITS)
        copies = self.total // run
        seen = ib.allocate("int32", (words,), "seen")
        marked = ib.allocate("int32", (words,), "marked")
        again, head = ib.allocate("int32", (1,), "again"), ib.allocate("int32", (self.total,), "head")

        def with_place(e: Index, body: Callable[[Expr, Expr, Sequence[Index], Sequence[Index]], None]) -> None:
            """`body` of an update's place as a number, its bit, its index, and its place in the updates, for one that is inside."""
            inside, place, source = self.one(at, e)
            with ib.if_scope(inside):
                flat = ib.let("flat", self.flat(place))
                bit = ib.let("bit", te.const(1, "int32") << te.indexmod(flat, _BITS))
                body(flat, bit, place, source)

        def set_bit(of: BufferVar, flat: Expr, bit: Expr) -> Expr:
            return te.call_intrin("int32", "atomic_or", of[te.indexdiv(flat, _BITS)], bit)

        with loops.each(ib, self.target, max(copies, words)) as t:
            with loops.where(ib, *[t < copies] * (words > copies)):
                self.copy(ib, old, dst, t)
            with loops.where(ib, *[t < words] * (words < copies)):
                seen[t] = te.const(0, "int32")
                marked[t] = te.const(0, "int32")
            with ib.if_scope(t == 0):
                again[0] = te.const(0, "int32")

        with loops.each(ib, self.target, self.count) as e:

            def take(flat: Expr, bit: Expr, place: Sequence[Index], source: Sequence[Index]) -> None:
                was = ib.let("was", set_bit(seen, flat, bit))
                with ib.if_scope(te.bitwise_and(was, bit) == 0):
                    dst[tuple(place)] = new[tuple(source)]
                with ib.else_scope():
                    ib.emit(set_bit(marked, flat, bit))
                    ib.emit(te.call_intrin("int32", "atomic_exch", head[flat], te.const(-1, "int32")))
                    ib.emit(te.call_intrin("int32", "atomic_exch", again[0], te.const(_AGAIN, "int32")))

            with_place(e, take)

        groups = min(-(-self.count // loops.THREADS), _GROUPS_A_UNIT * self.target.machine.units)
        for finds in (True, False):
            with loops.launch(ib, (groups,), (loops.THREADS,)) as (group, thread), ib.if_scope(again[0] == _AGAIN):

                def settle(e: Index, finds: bool = finds) -> None:
                    def of_marked(flat: Expr, bit: Expr, place: Sequence[Index], source: Sequence[Index]) -> None:
                        with ib.if_scope(te.bitwise_and(marked[te.indexdiv(flat, _BITS)], bit) != 0):
                            if finds:
                                ib.emit(te.call_intrin("int32", "atomic_max", head[flat], e))
                                return
                            with ib.if_scope(head[flat] == e):
                                dst[tuple(place)] = new[tuple(source)]

                    with_place(e, of_marked)

                loops.dealt(ib, self.count, groups * loops.THREADS, (group * loops.THREADS, thread), settle, "serial")

    def _goes_in_words(self, dtype: str) -> bool:
        """Whether updates are single elements of 16 or 32 bits that replace what was there, and many enough."""
        fits = dtype_info(dtype).bytes in (2, 4) and dtype_info(dtype).lanes == 1 and self.block == 1
        return fits and self.reduction == "none" and self.count * _MOST_PLACES >= self.total

    def copy(self, ib: IRBuilder, old: BufferVar, dst: BufferVar, t: Index) -> None:
        """Vector number `t` of the elements as they were."""
        shape = (*self.places, *self.rest)
        run = self.vector_of(dst.dtype, shape)
        here = split_index(t * run, shape)
        self.put(ib, dst, here, run, self.values(old, here, run))

    @staticmethod
    def values(of: BufferVar, at: Sequence[Index], width: int) -> Expr:
        return loops.vector_at(of, at[:-1], at[-1], width) if width > 1 else of[tuple(at)]

    @staticmethod
    def put(ib: IRBuilder, to: BufferVar, at: Sequence[Index], width: int, made: Expr) -> None:
        if width > 1:
            loops.put_vector_at(ib, to, at[:-1], at[-1], made)
        else:
            to[tuple(at)] = made

    @staticmethod
    def vector_of(dtype: str, shape: Sequence[int]) -> int:
        """Neighbours of a line that a thread has: as many as it loads at once, or as divide it. Bytes one by one: conditions are no vectors in memory."""
        nbytes = dtype_info(dtype).bytes
        return math.gcd(_LOAD_BYTES // nbytes, int(shape[-1])) if shape and 1 < nbytes <= _LOAD_BYTES else 1

    def flat(self, place: Sequence[Index]) -> Index:
        out: Index = 0
        for p, c in zip(place, self.places):
            out = out * c + p
        return out
