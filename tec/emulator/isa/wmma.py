"""The rows of WMMA (gfx11, gfx12) and of its sparse sisters (SWMMAC, gfx12), in wave32 and wave64.

Source: AMD's matrix instruction calculator; RDNA3 and RDNA4 ISA manuals, "WMMA". EXEC is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ..decode.inst import Inst, Operand
from ..translate.ops import LLVM_TYPE, Ops, Out
from ..translate.wave import Wave
from .float8 import decode
from .matrix_product import element, lane_order
from .mfma import gather_lanes, gather_pair, registers
from .packed import Selectors
from .smfmac import dense
from .table import custom

# gfx11: a lane holds a whole row of A (16 k), and every group of 16 lanes the same rows; register q of a result holds row
# (lanes / 16) q + lane div 16. gfx12: the groups share the k out between them, A and B alike (4-bit integers with 16 k in wave64: the first two of them);
# row 8 (lane div 16) + q, in wave64 8 (lane div 16 mod 2) + 4 (lane div 32) + q.


def result_row(lanes: int, new: bool, lane: int, q: int) -> int:
    """The row that item q of a lane's result is of."""
    if not new:
        return lanes // 16 * q + lane // 16
    return 8 * (lane // 16) + q if lanes == 32 else 8 * (lane // 16 % 2) + 4 * (lane // 32) + q


Reader = Callable[[int, int, list[int]], str]
_BITS = {
    "f32": 32,
    "f16": 16,
    "bf16": 16,
    "i8": 8,
    "u8": 8,
    "i4": 4,
    "u4": 4,
    "fp8": 8,
    "bf8": 8,
    "fp6": 6,
    "bf6": 6,
    "fp4": 4,
}


def bits_of(kind: str) -> int:
    return _BITS[kind]


def whole_words(kind: str) -> int:
    """The fewest registers that hold whole elements."""
    return 3 if _BITS[kind] == 6 else 1


@dataclass(frozen=True, slots=True)
class WmmaProduct:
    """What one WMMA computes, its operands' registers and the accumulator given as values. A function of its own keeps a kernel of many short to compile."""

    lanes: int
    new: bool  # gfx12's layout
    k: int
    kinds: tuple[str, str]  # the elements of A and B
    flips: tuple[tuple[int, int], tuple[int, int]]  # signs of the low and of the high halves, of A and of B
    clamp: bool

    @property
    def per_lane(self) -> int:
        """How many k a lane holds: at least a register of them."""
        return max(self.k // (self.lanes // 16), 32 // _BITS[self.kinds[0]]) if self.new else self.k

    @property
    def regs(self) -> int:
        """Registers of A, and of B."""
        return self.per_lane * _BITS[self.kinds[0]] // 32

    @property
    def items(self) -> int:
        """Sums that a lane holds."""
        return 256 // self.lanes

    def buffers(self) -> tuple[int, int]:
        """Words of a lane that A and B are given in."""
        return self.regs, self.regs

    @property
    def type(self) -> str:
        return "i32" if self.kinds[0] in ("i4", "u4", "i8", "u8") else "f32"

    @property
    def name(self) -> str:
        signs = "".join(str(int(bool(f))) for pair in self.flips for f in pair)
        return f"wmma_{self.k}_{'_'.join(self.kinds)}_{signs}_{int(self.clamp)}"

    def words(self, which: int) -> int:
        """Registers of a lane's elements of A (0) or B (1)."""
        return self.regs

    def few(self, o: Ops, words: list[str], which: int) -> list[str]:
        """The elements, with their signs, in so many registers as hold whole ones."""
        kind, flips = self.kinds[which], self.flips[which]
        values = [self.element(o, words, i, kind) for i in range(32 * len(words) // bits_of(kind))]
        return [o.fneg("f32", v) if flips[i % 2] else v for i, v in enumerate(values)]

    def element(self, o: Ops, words: list[str], i: int, kind: str) -> str:
        return small_element(o, words, i, kind, self.new)

    def elements(self, o: Ops, words: list[str], which: int) -> list[list[str]]:
        """A lane's elements of A (0) or B (1), with their signs: of rows 0 to 15, and of further ones where a shape has them."""
        values, step = [], whole_words(self.kinds[which])
        for first in range(0, self.words(which), step):
            values += self.few(o, words[first : first + step], which)
        each = len(values) if which else len(values) // self.halves
        return self.scale([values[i : i + each] for i in range(0, len(values), each)], o, words, which)

    @property
    def halves(self) -> int:
        """How often sixteen rows A has."""
        return 1

    def scale(self, values: list[list[str]], o: Ops, words: list[str], which: int) -> list[list[str]]:
        """Elements times their scales, where a shape has some."""
        return values

    def staged_like(self, which: int) -> object:
        """Equal for A and B where one function widens both."""
        return self.kinds[which], self.flips[which], self.words(which)

    def row(self, lane: int, q: int) -> int:
        """The row that item q of a lane's result is of."""
        return result_row(self.lanes, self.new, lane, q)

    def place(self, which: int, k: int) -> tuple[int, int]:
        """(lane group, element of the lane) of one of a row's k."""
        return divmod(k, self.per_lane)

    def sums(self, o: Ops, read: Reader, columns: list[str], start: list[str]) -> list[str]:
        """The accumulator's items and the products, in order of k. `read` gives an element of A (its sixteen rows, its number) in lanes."""
        t, lanes = self.type, range(self.lanes)
        rows = [[self.row(l, q) for l in lanes] for q in range(self.items)]
        acc = [o.const("i32", 0)] * self.items if self.clamp else list(start)
        for k in range(self.k):
            (group_a, i), (group_b, j) = self.place(0, k), self.place(1, k)
            column = gather_lanes(o, t, columns[j], [16 * group_b + l % 16 for l in lanes])
            for q in range(self.items):
                row = read(rows[q][0] // 16, i, [16 * group_a + r % 16 for r in rows[q]])
                acc[q] = o.add(acc[q], o.mul(row, column)) if t == "i32" else o.fma("f32", row, column, acc[q])
        if self.clamp:  # the products' sum fits; one saturation with the accumulator
            acc = [o.call("sadd.sat", "i32", x, y) for x, y in zip(start, acc)]
        return acc

    def function(self, declares: set[str]) -> str:
        """LLVM IR of `void @name(ptr acc, ptr a, ptr b)`, vectors of all lanes one after another: acc += A B.

        A's elements are widened by a function of its own into memory: there the host's fma takes one of them for 16 lanes, where values would be shuffled.
        """
        t, size = self.type, 4 * self.lanes

        def loads(o: Ops, name: str, t: str, count: int) -> list[str]:
            at = [o.out.emit(f"getelementptr i8, ptr %{name}, i64 {size * r}") for r in range(count)]
            return [o.out.emit(f"load {o.type(t)}, ptr {p}, align 64") for p in at]

        def stores(o: Ops, name: str, values: list[str]) -> None:
            for r, value in enumerate(values):
                at = o.out.emit(f"getelementptr i8, ptr %{name}, i64 {size * r}")
                o.out.put(f"store {o.type(t)} {value}, ptr {at}, align 64")

        functions = []
        of_b = "a" if self.staged_like(0) == self.staged_like(1) else "b"
        for which, name in enumerate(dict.fromkeys(("a", of_b))):
            stage = Ops(Out(declares=declares), self.lanes)
            count = self._widen(stage, which)
            if self.buffers()[which] > self.words(which):
                values = loads(stage, "out", t, count)
                each = count if which else count // self.halves
                lists = [values[i : i + each] for i in range(0, count, each)]
                words = loads(stage, "in", "i32", self.buffers()[which])
                stores(stage, "out", [v for part in self.scale(lists, stage, words, which) for v in part])
            functions.append((f"{self.name}_{name}", "ptr %out, ptr %in", stage.out.lines))
        o = Ops(Out(declares=declares), self.lanes)
        out = o.out
        for name, which, source in (("rows", 0, "a"), ("columns", 1, of_b)):
            count = 32 * self.words(which) // bits_of(self.kinds[which])
            out.put(f"%{name} = alloca [{count} x {o.type(t)}], align 64")
            out.put(f"call void @{self.name}_{source}(ptr %{name}, ptr %{'ab'[which]})")
        start = loads(o, "acc", t, self.items)
        acc = self._loops(o, [o.const("i32", 0)] * self.items if self.clamp else start)
        if self.clamp:  # the products' sum fits; one saturation with the accumulator
            acc = [o.call("sadd.sat", "i32", x, y) for x, y in zip(start, acc)]
        stores(o, "acc", acc)
        functions.append((self.name, "ptr %acc, ptr %a, ptr %b", out.lines))
        places = ", ".join(f"i64 {at}" for k in range(self.k) for at in self._offsets(k))
        text = f"@{self.name}_places = internal constant [{2 * self.k} x i64] [{places}]\n"
        for name, arguments, lines in functions:
            body = "\n".join(lines)
            text += f"define internal void @{name}({arguments}) noinline {{\nentry:\n{body}\n  ret void\n}}\n"
        return text

    def _widen(self, o: Ops, which: int) -> int:
        """A loop that widens the elements of %in into %out; returns how many a lane has."""
        out, size, step = o.out, 4 * self.lanes, whole_words(self.kinds[which])
        trips, per_trip = self.words(which) // step, 32 * step // bits_of(self.kinds[which])
        with loop(out, trips) as (trip, _):
            source = out.emit(f"getelementptr [{size * step} x i8], ptr %in, i64 {trip}")
            to = out.emit(f"getelementptr [{size * per_trip} x i8], ptr %out, i64 {trip}")
            places = [out.emit(f"getelementptr i8, ptr {source}, i64 {size * r}") for r in range(step)]
            words = [out.emit(f"load {o.type('i32')}, ptr {p}, align 64") for p in places]
            for i, value in enumerate(self.few(o, words, which)):
                at = out.emit(f"getelementptr i8, ptr {to}, i64 {size * i}")
                out.put(f"store {o.type(self.type)} {value}, ptr {at}, align 64")
        return trips * per_trip

    def _offsets(self, k: int) -> tuple[int, int]:
        """Where in memory the first of sixteen rows and of sixteen columns has one of its k."""
        (group_a, i), (group_b, j) = self.place(0, k), self.place(1, k)
        return 4 * (self.lanes * i + 16 * group_a), 4 * (self.lanes * j + 16 * group_b)

    def _loops(self, o: Ops, start: list[str]) -> list[str]:
        """`sums` as loops over k, from memory: LLVM would take seconds for the code of 128 of them. A loop's sums fit in a host's registers."""
        few = 64 // self.lanes
        return [x for q in range(0, self.items, few) for x in self._loop(o, range(q, q + few), start[q : q + few])]

    def _loop(self, o: Ops, items: range, start: list[str]) -> list[str]:
        out, t, lanes = o.out, self.type, range(self.lanes)
        scalar = LLVM_TYPE[t]
        half = 4 * self.lanes * (32 * self.words(0) // bits_of(self.kinds[0]) // self.halves)  # bytes of sixteen rows
        sixteen = f"<16 x {scalar}>"

        def at(base: str, offset: str | int) -> str:
            return out.emit(f"getelementptr i8, ptr {base}, i64 {offset}")

        with loop(out, self.k, o.type(t), start) as (k, acc):
            place = out.emit(f"getelementptr [2 x i64], ptr @{self.name}_places, i64 {k}")
            row = at("%rows", out.emit(f"load i64, ptr {place}"))
            column = at("%columns", out.emit(f"load i64, ptr {at(place, 8)}"))
            b = out.emit(f"load {sixteen}, ptr {column}, align 4")
            b = out.emit(f"shufflevector {sixteen} {b}, {sixteen} poison, {lane_order(l % 16 for l in lanes)}")
            for n, q in enumerate(items):
                parts = []
                for lane in lanes[::16]:
                    r = self.row(lane, q)
                    one = out.emit(f"load {scalar}, ptr {at(row, half * (r // 16) + 4 * (r % 16))}")
                    one = out.emit(f"insertelement {sixteen} poison, {scalar} {one}, i64 0")
                    parts.append(
                        out.emit(f"shufflevector {sixteen} {one}, {sixteen} poison, <16 x i32> zeroinitializer")
                    )
                count = 16
                while len(parts) > 1:
                    both, mask = f"<{count} x {scalar}>", lane_order(range(2 * count))
                    parts = [out.emit(f"shufflevector {both} {x}, {both} {y}, {mask}") for x, y in zip(parts[::2], parts[1::2])]  # fmt: skip
                    count *= 2
                acc[n] = o.add(acc[n], o.mul(parts[0], b)) if t == "i32" else o.fma("f32", parts[0], b, acc[n])
        return acc

    def call(self, o: Ops, a: list[str], b: list[str], start: list[str]) -> list[str]:
        for buffer, t, values in (("%xa", "i32", a), ("%xb", "i32", b), ("%xacc", self.type, start)):
            for r, value in enumerate(values):
                at = o.out.emit(f"getelementptr i8, ptr {buffer}, i64 {4 * self.lanes * r}")
                o.out.put(f"store {o.type(t)} {value}, ptr {at}, align 64")
        o.out.put(f"call void @{self.name}(ptr %xacc, ptr %xa, ptr %xb)")
        places = [o.out.emit(f"getelementptr i8, ptr %xacc, i64 {4 * self.lanes * q}") for q in range(self.items)]
        return [o.out.emit(f"load volatile {o.type(self.type)}, ptr {p}, align 64") for p in places]


@contextmanager
def loop(out: Out, trips: int, t: str = "", start: Sequence[str] = ()) -> Iterator[tuple[str, list[str]]]:
    """The lines in it run `trips` times. Gives the number of the trip, and values of type `t` as the trip before left them in this list (`start` at first)."""
    before, again, done = (out.fresh_label() for _ in range(3))
    out.put(f"br label %{before}")
    out.label(before)
    out.put(f"br label %{again}")
    out.label(again)
    trip, after, first = out.name(), out.name(), len(out.lines)
    carried = [out.name() for _ in start]
    values = list(carried)
    yield trip, values
    begins = zip([trip, *carried], ["i64", *[t] * len(carried)], ["0", *start], [after, *values])
    out.lines[first:first] = [f"  {name} = phi {t} [ {x}, %{before} ], [ {y}, %{again} ]" for name, t, x, y in begins]
    out.put(f"{after} = add i64 {trip}, 1")
    out.put(f"br i1 {out.emit(f'icmp ult i64 {after}, {trips}')}, label %{again}, label %{done}")
    out.label(done)


def product_of(w: Wave, sel: Selectors, clamp: bool, sources: tuple[str, str], k: int) -> WmmaProduct:
    """What the modifiers make of a product: whose integers are signed, which floats change sign, whether sums saturate."""
    if sources[0] in ("iu8", "iu4"):
        if any(sel.neg_hi) or sel.neg_lo[2]:
            raise w.fail("neg_hi or neg_lo[2] on an integer WMMA")
        kinds = tuple(("i" if sel.neg_lo[i] else "u") + sources[0][2:] for i in (0, 1))
        return WmmaProduct(w.lanes, w.gfx >= 12, k, (kinds[0], kinds[1]), ((0, 0), (0, 0)), clamp)
    if sources[0] in ("fp8", "bf8") and (any(sel.neg_lo[:2]) or any(sel.neg_hi[:2])):
        raise w.fail("neg_lo or neg_hi on 8-bit floats")
    if clamp:
        raise w.fail("clamp on a float WMMA")
    flips = tuple((sel.neg_lo[i], sel.neg_hi[i]) for i in (0, 1))
    return WmmaProduct(w.lanes, w.gfx >= 12, k, sources, (flips[0], flips[1]), False)


def vectors(w: Wave, op: Operand, regs: int) -> list[str]:
    if op.kind != "v":
        raise w.fail(f"{op.text} as {regs} registers")
    return registers(w, op, regs)


def sums(w: Wave, product: WmmaProduct, a: list[str], b: list[str], start: list[str]) -> list[str]:
    if "init" in w.options.checks:  # which follows undefined bits through values, not into functions
        rows, columns = product.elements(w.v, a, 0), product.elements(w.v, b, 1)[0]
        return product.sums(
            w.v, lambda half, i, lanes: gather_lanes(w.v, product.type, rows[half][i], lanes), columns, start
        )
    w.library(product.name, lambda: product.function(w.v.out.declares))  # type: ignore[attr-defined]
    return product.call(w.v, a, b, start)


def _wmma(source_a: str, source_b: str, result: str = "", k: int = 16):  # type: ignore[no-untyped-def]
    """`result`: f16 or bf16 where the accumulator is narrow."""

    def handler(w: Wave, inst: Inst) -> None:
        sel = Selectors(inst, 3)
        dst, a, b, c = inst.operands
        product = product_of(w, sel, inst.take("clamp") is not None, (source_a, source_b), k)
        words = [vectors(w, op, product.regs) for op in (a, b)]
        start = accumulator(w, c, sel, result, product)
        results(w, dst, sums(w, product, words[0], words[1], start), sel, result, product)

    return handler


def _swmmac(source_a: str, source_b: str, result: str = "", k: int = 32):  # type: ignore[no-untyped-def]
    """Of each four k of A two are stored; the accumulator is the destination. A lane's indices are two bits a stored element, of a set that `index_key` names.

    A's elements lie in the lanes that have the same k of B; of 4-bit integers with 32 k in wave64 in the first two groups, with the k of two lanes of B.
    """

    def handler(w: Wave, inst: Inst) -> None:
        o = w.v
        sel = Selectors(inst, 3)
        key = inst.take_int("index_key")
        dst, a, b, places = inst.operands
        product = product_of(w, sel, inst.take("clamp") is not None, (source_a, source_b), k)
        bits = _BITS[product.kinds[0]]
        regs = max(1, product.regs // 2)
        stored = regs * 32 // bits
        if key >= 32 // (2 * stored):
            raise w.fail(f"index_key:{key} on this instruction")
        words = vectors(w, a, regs)
        if any(product.flips[0]):
            signs = sum(1 << 15 + 16 * h for h in (0, 1) if product.flips[0][h])
            words = [o.xor(x, o.const("i32", signs)) for x in words]
            product = replace(product, flips=((0, 0), product.flips[1]))
        index = o.lshr(vectors(w, places, 1)[0], o.const("i32", 2 * stored * key))
        spread = dense(o, words, index, bits)
        if len(spread) > product.regs:
            spread = [gather_pair(o, spread[0], spread[1], [l if l < 32 else 32 + l for l in range(64)])]
        start = accumulator(w, dst, Selectors(Inst("", "", [], {}, 0, ""), 3), result, product)
        acc = sums(w, product, spread, vectors(w, b, product.regs), start)
        results(w, dst, acc, sel, result, product)

    return handler


def small_element(o: Ops, words: list[str], i: int, kind: str, ocp: bool) -> str:
    if kind in ("i4", "u4"):
        up = o.shl(words[i // 8], o.const("i32", 28 - 4 * (i % 8)))
        return o.bin("ashr" if kind == "i4" else "lshr", "i32", up, o.const("i32", 28))
    if kind in ("fp8", "bf8"):
        byte = o.and_(o.lshr(words[i // 4], o.const("i32", 8 * (i % 4))), o.const("i32", 255))
        return decode(o, byte, kind, fnuz=not ocp)
    return element(o, words, i, kind, False)


def accumulator(w: Wave, c: Operand, sel: Selectors, result: str, product: WmmaProduct) -> list[str]:
    """The items of C, as the product counts them."""
    o, new, integer, items = w.v, product.new, product.type == "i32", product.items
    if c.kind in ("int", "float"):
        if integer:
            return [o.const("i32", int(c.value))] * items
        if c.kind == "int" and c.value:
            raise w.fail(f"the integer {c.text} as a float accumulator")
        return [o.const("f32", c.value if c.kind == "float" else 0.0)] * items
    t = "i32" if integer else "f32"
    regs = items // 2 if result and new else items
    if c.kind != "v" or c.count != regs:
        raise w.fail(f"{c.text} as {regs} registers")
    if not result:
        acc = [w._typed("v", c.index + q, t) for q in range(items)]
    else:
        acc = []
        for q in range(items):
            word = w.reg("v", c.index + (q // 2 if new else q))
            high = q % 2 if new else sel.lo[2]
            bits = o.lshr(word, o.const("i32", 16)) if high else word
            acc.append(o.fpext(result, "f32", o.bitcast("i16", result, o.trunc("i32", "i16", bits))))
    if not integer:
        if sel.neg_hi[2]:
            acc = [o.call("fabs", "f32", x) for x in acc]
        if sel.neg_lo[2]:
            acc = [o.fneg("f32", x) for x in acc]
    return acc


def results(w: Wave, dst: Operand, acc: list[str], sel: Selectors, result: str, product: WmmaProduct) -> None:
    o, new, t = w.v, product.new, product.type
    if not result:
        for q, value in enumerate(acc):
            w.set_reg("v", dst.index + q, value, t)
        return
    halves = [o.zext("i16", "i32", o.bitcast(result, "i16", o.fptrunc("f32", result, x))) for x in acc]
    if new:
        for k in range(len(halves) // 2):
            w.set_reg("v", dst.index + k, o.or_(halves[2 * k], o.shl(halves[2 * k + 1], o.const("i32", 16))))
        return
    for q, half in enumerate(halves):
        old = w.reg("v", dst.index + q)
        if sel.lo[2]:
            value = o.or_(o.shl(half, o.const("i32", 16)), o.and_(old, o.const("i32", 0xFFFF)))
        else:
            value = o.or_(half, o.and_(old, o.const("i32", 0xFFFF0000)))
        w.set_reg("v", dst.index + q, value)


for _bits in (8, 4):
    custom(f"v_wmma_i32_16x16x16_iu{_bits}", "matrix")(_wmma(f"iu{_bits}", f"iu{_bits}"))
    custom(f"v_swmmac_i32_16x16x32_iu{_bits}", "matrix", (12,))(_swmmac(f"iu{_bits}", f"iu{_bits}"))
custom("v_wmma_i32_16x16x32_iu4", "matrix", (12,))(_wmma("iu4", "iu4", k=32))
custom("v_swmmac_i32_16x16x64_iu4", "matrix", (12,))(_swmmac("iu4", "iu4", k=64))
for _t in ("f16", "bf16"):
    custom(f"v_wmma_f32_16x16x16_{_t}", "matrix")(_wmma(_t, _t))
    custom(f"v_wmma_{_t}_16x16x16_{_t}", "matrix")(_wmma(_t, _t, _t))
    custom(f"v_swmmac_f32_16x16x32_{_t}", "matrix", (12,))(_swmmac(_t, _t))
    custom(f"v_swmmac_{_t}_16x16x32_{_t}", "matrix", (12,))(_swmmac(_t, _t, _t))
for _a in ("fp8", "bf8"):
    for _b in ("fp8", "bf8"):
        custom(f"v_wmma_f32_16x16x16_{_a}_{_b}", "matrix", (12,))(_wmma(_a, _b))
        custom(f"v_swmmac_f32_16x16x32_{_a}_{_b}", "matrix", (12,))(_swmmac(_a, _b))
