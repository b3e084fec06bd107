"""Products of tiles by matrix units: which unit, what each wave holds of the sums, and how its operands come to it.

mma.sync takes 16-bit operands by ldmatrix, two of B's tiles at once, as they lie in memory or transposed on the way; a warpgroup product reads them from shared
memory by itself (`warpgroups`). A first operand that is held as a product's sums lie goes from registers to the unit (flash attention's weights).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ..ir import build as B
from ..ir import expr as E
from ..ir.buffer import Buffer
from ..ir.dtype import dtype_info, with_lanes
from ..ir.matrix import WARPGROUP, MatrixInstr, instructions, run_of
from .boxes import LINE_BYTES, LINES
from .grammar import Op, Value
from .layouts import accumulators, bits
from .operands import ACCESS_BYTES, Operands, Place, Unit
from .reading import agree
from .state import ZERO, Held

_WARPS = WARPGROUP // 32
_TO_LDMATRIX = 2  # bytes of the elements that ldmatrix moves
_MOST_COLUMNS = 256  # of a warpgroup product


class Units(Operands):
    """Products on matrix units."""

    units: dict[int, Unit | None]
    groups: dict[int, tuple[E.Var, E.Expr]]  # values from the program's first line on

    def unit(self, op: Op) -> Unit | None:
        """The matrix unit that a product goes to; None where it is summed by multiply-adds."""
        if id(op) not in self.units:
            self.units[id(op)] = None
            made = self._warpgroups(op) or self._unit(op)
            self.units[id(op)] = made
            if made is not None and made.layout not in self.sums:
                self.sums.append(made.layout)
        return self.units[id(op)]

    def _warpgroups(self, op: Op) -> Unit | None:
        """The product by warpgroups, where the chip has them and the tile is 64 rows at least."""
        a, b, v = *op.operands[:2], op.results[0]
        in_dtype, size = a.ty.dtype.tec, dtype_info(a.ty.dtype.tec).bytes
        if in_dtype == "float32" and op.attrs["precision"] != "ieee":
            in_dtype = "tf32"
        known = (
            [k for i, acc, k in self.target.chip.warpgroup if i == in_dtype and acc == v.ty.dtype.tec]
            if self.gpu
            else []
        )
        if not known or len(v.ty.shape) != 2 or self.warps % _WARPS or a.ty.dtype != b.ty.dtype:
            return None
        (m, n), k = v.ty.shape, a.ty.shape[1]
        for x, axis in ((a, 1), (b, 0)):
            along = self.along(x, axis) if size == _TO_LDMATRIX else axis
            line = known[0] * size if along == axis else LINE_BYTES  # along k a line may be filled in part
            if x.ty.shape[along] * size % line or x.ty.shape[1 - along] % LINES:
                return None
        groups = self.warps // _WARPS
        down = min(groups, m // 64)
        across = groups // down if down else 0
        columns = min(_MOST_COLUMNS, n // across) if across else 0
        if columns < 8 or m % 64 or k % known[0] or (self._is_chained(op) and across > 1):
            return None
        instr = MatrixInstr("wgmma", in_dtype, v.ty.dtype.tec, 64, columns, k, 1, WARPGROUP)
        return Unit(instr, (down, across), accumulators(instr, (m, n), (down, across)))

    def _unit(self, op: Op) -> Unit | None:
        """The matrix instruction of a product, and how its tiles are shared out to the waves; None where no instruction takes it."""
        a, v = op.operands[0], op.results[0]
        if not self.gpu or len(v.ty.shape) != 2:
            return None
        (m, n), k = v.ty.shape, a.ty.shape[1]
        in_dtype = a.ty.dtype.tec
        if in_dtype == "float32" and self.target.kind == "cuda" and op.attrs["precision"] != "ieee":
            in_dtype = "tf32"
        fits = [
            i
            for i in instructions(self.target)
            if i.in_dtype == in_dtype
            and i.acc_dtype == v.ty.dtype.tec
            and i.blocks == 1
            and m % i.m == 0
            and n % i.n == 0
            and k % i.k == 0
        ]
        if not fits:
            return None
        enough = [i for i in fits if (m // i.m) * (n // i.n) >= self.warps] or [min(fits, key=lambda i: i.m * i.n)]
        instr = max(enough, key=lambda i: (i.m * i.n, i.k))
        if instr.unit != "mma.sync" and instr.m == instr.n:
            # A lane holds neighbours of a row: sums of rows stay in it, and stores are wide.
            instr = replace(instr, swap=True)
        if not (self._feeds(op) and _from_sums(instr)):
            instr = widened(instr, k)
        waves = shared_out(self.warps, m // instr.m, n // instr.n)
        if self._is_chained(op) and m // instr.m >= self.warps:
            waves = (self.warps, 1)  # rows stay within a wave: what follows needs no other
        return Unit(instr, waves, accumulators(instr, (m, n), waves))

    def _is_chained(self, op: Op) -> bool:
        """Whether another product of the same block takes the sums, or gives the first operand."""
        if self._feeds(op):
            return True
        stack: list[Value] = [op.results[0]]
        seen: set[int] = set()
        while stack:
            v = stack.pop()
            for user in self.users.get(id(v), ()):
                if id(user) in seen:
                    continue
                seen.add(id(user))
                if user.name == "dot" and v is user.operands[0]:
                    return True
                if user.elementwise:
                    stack += user.results
        return False

    def _feeds(self, op: Op) -> bool:
        """Whether the first operand is made of another product's sums."""
        seen: set[int] = set()
        stack: list[Value] = [op.operands[0]]
        while stack:
            v = stack.pop()
            if v.of is None or id(v) in seen:
                continue
            seen.add(id(v))
            if v.of.name == "dot":
                return True
            if v.of.elementwise or v.of.name in ("reshape", "permute", "broadcast", "expand_dims", "reduce"):
                stack += v.of.operands
        return False

    # ---- operands

    def operand(self, v: Value, unit: Unit, role: str) -> tuple[Place, bool]:
        """An operand in shared memory, and whether it came there just now, to memory that others use next."""
        found = self.found(v)
        if found is not None and unit.instr.unit == "wgmma":
            # It may lie as another product reads it: without boxes, or along what only operands of 16 bits may lie along.
            k_axis = 1 if role == "a" else 0
            if not found.box or (found.along != k_axis and dtype_info(v.ty.dtype.tec).bytes != _TO_LDMATRIX):
                found = None
        return (found, False) if found is not None else (self.staged_operand(v, unit, role), True)

    def in_registers(self, v: Value, unit: Unit) -> Held | None:
        """A first operand in registers as the unit takes it: as a product's sums lie, with all of a row in its wave."""
        instr = unit.instr
        if unit.waves[1] != 1 or dtype_info(instr.storage_dtype).bytes != _TO_LDMATRIX or self.found(v) is not None:
            return None
        m, k = v.ty.shape
        if instr.unit == "mfma" and _from_sums(instr):
            like = instr
        elif instr.unit in ("wgmma", "mma.sync"):
            like = replace(instr, n=k if instr.unit == "wgmma" else 8)
        else:
            return None
        layout = accumulators(like, (m, k), unit.waves)
        have = self.anchor(v)
        if have is None or not agree(have, layout) or instr.acc_dtype != "float32":
            return None
        read = self.reader(v, layout)
        return self.stored(read, layout, v.ty.dtype.tec, "operand")

    def _of_held(self, held: Held, instr: MatrixInstr, i: int, step: int) -> E.Expr:
        """A lane's vector of tile i of the rows, of a step of k."""
        if instr.unit == "mma.sync":
            return self.from_registers(held, i, step * instr.k // 8, instr.a_elems)
        first = step * instr.a_elems
        loads = [E.BufferLoad(held.buffer, (E.IntImm(i), E.IntImm(first + e))) for e in range(instr.a_elems)]
        return E.Shuffle(tuple(loads), tuple(range(instr.a_elems)))

    def from_registers(self, held: Held, i: int, start: int, elems: int) -> E.Expr:
        """A lane's vector of tile i of the rows: elements (column, row half, neighbour) from the low bit up, from a step of 8 columns on."""
        loads = []
        for e in range(elems):
            row = 2 * i + e // 2 % 2
            column = 2 * (start + e // 4) + e % 2
            loads.append(E.BufferLoad(held.buffer, (E.IntImm(row), E.IntImm(column))))
        return E.Shuffle(tuple(loads), tuple(range(elems)))

    # ---- products

    def by_unit(self, op: Op, unit: Unit) -> None:
        """Products of the unit's tiles, each wave its share."""
        a, b, acc = op.operands
        v, instr = op.results[0], unit.instr
        start = self.reader(acc, unit.layout)
        held = self.in_registers(a, unit)
        pieces = self._pieces([(b, "b")] if held is not None else [(a, "a"), (b, "b")], unit, a.ty.shape[1] // instr.k)
        left_at, right_at, fresh, also = None, None, False, False
        if pieces == 1:
            left_at, fresh = (None, False) if held is not None else self.operand(a, unit, "a")
            right_at, also = self.operand(b, unit, "b")
        made = self.stored(start, unit.layout, v.ty.dtype.tec, "sum")
        lane = self.let("lane", B.floormod(self.thread, self.wave))
        wave_row, wave_column = self.wave_of(unit, self.wave)
        tiles = tuple(n // (side * w) for n, side, w in zip(v.ty.shape, (instr.m, instr.n), unit.waves))
        first = [self.let("row", B.mul(wave_row, instr.m)), self.let("column", B.mul(wave_column, instr.n))]
        sums = {
            (i, j): self.let("sums", self.vector_of(made.buffer, instr, i, j))
            for i in range(tiles[0])
            for j in range(tiles[1])
        }
        each = a.ty.shape[1] // instr.k // pieces
        for number in range(a.ty.shape[1] // instr.k):
            at_left = at_right = number
            if pieces > 1 and number % each == 0:
                left_at = None if held is not None else self.piece(a, unit, "a", number * instr.k, each * instr.k)
                right_at = self.piece(b, unit, "b", number * instr.k, each * instr.k)
                fresh = True
            if pieces > 1:
                at_left = number if self.found(a) is not None else number % each
                at_right = number if self.found(b) is not None else number % each
            assert right_at is not None
            left = []
            for i in range(tiles[0]):
                if held is not None:
                    left.append(self.let("a", self._of_held(held, instr, i, number)))
                else:
                    assert left_at is not None
                    at = B.add(first[0], i * instr.m * unit.waves[0])
                    left.append(self._operand(left_at, instr, "a", lane, at, at_left))
            right = self._columns(right_at, instr, lane, first[1], unit.waves[1], tiles[1], at_right)
            for i, j in sums:
                sums[i, j] = self.let("sums", instr.call(left[i], right[j], sums[i, j]))
        for (i, j), vector in sums.items():
            for e in range(instr.acc_elems):
                element = E.Shuffle((vector,), (e,)) if instr.acc_elems > 1 else vector
                self.emit(self.store(made.buffer, self.registers_of(instr, e, i, j), element))
        if fresh or also:
            self.barrier()
        self.held[id(v)] = Held(made.buffer, unit.layout)

    def _pieces(self, operands: list[tuple[Value, str]], unit: Unit, steps: int) -> int:
        """In how many pieces of k operands come to shared memory, so that they take no more than `piece_bytes` of it."""
        if self.piece_bytes is None:
            return 1
        size = sum(
            self.lying(v, unit, role)[1] * dtype_info(v.ty.dtype.tec).bytes
            for v, role in operands
            if self.found(v) is None
        )
        pieces = 1
        while size > self.piece_bytes * pieces and steps % (2 * pieces) == 0:
            pieces *= 2
        return pieces

    def _columns(
        self, place: Place, instr: MatrixInstr, lane: E.Expr, first: E.Expr, waves: int, tiles: int, step: int
    ) -> list[E.Expr]:
        """B's tiles of a step of k: by ldmatrix in pairs."""
        out: list[E.Expr] = []
        far = instr.n * waves
        pairs = tiles // 2 if _by_ldmatrix(place, instr) else 0
        for pair in range(pairs):
            at = B.add(first, 2 * pair * far)
            r, j = B.floormod(lane, 8), B.floordiv(lane, 8)
            half, which = B.mul(B.floormod(j, 2), 8), B.mul(B.floordiv(j, 2), far)
            if place.along == 0:  # along k
                k, n = half, B.add(which, r)
            else:
                k, n = B.add(half, r), which
            source = E.BufferLoad(place.buffer, (place.at(B.add(k, step * instr.k), B.add(at, n)),))
            both = self.let("b", _ldmatrix(source, instr, place.along == 1))
            out += [E.Shuffle((both,), tuple(range(4 * h, 4 * h + 4))) for h in (0, 1)]
        for odd in range(2 * pairs, tiles):
            out.append(self._operand(place, instr, "b", lane, B.add(first, odd * far), step))
        return out

    def _operand(self, place: Place, instr: MatrixInstr, role: str, lane: E.Expr, first: E.Expr, step: int) -> E.Expr:
        """A lane's vector of an operand's tile, in as few reads as its elements lie side by side."""
        if role == "a" and _by_ldmatrix(place, instr):
            r, j = B.floormod(lane, 8), B.floordiv(lane, 8)
            down, far = B.mul(B.floormod(j, 2), 8), B.mul(B.floordiv(j, 2), 8)
            row, k = (B.add(down, r), far) if place.along == 1 else (down, B.add(far, r))
            source = E.BufferLoad(place.buffer, (place.at(B.add(first, row), B.add(k, step * instr.k)),))
            return self.let("a", _ldmatrix(source, instr, place.along == 0))
        run = lane_run(instr, role) if place.along == (1 if role == "a" else 0) else 1
        parts: list[E.Expr] = []
        for e in range(0, instr.elems(role), run):
            _, row, column = instr.coords(role, lane, E.IntImm(e))
            if role == "a":
                at = place.at(B.add(first, row), B.add(column, step * instr.k))
            else:
                at = place.at(B.add(row, step * instr.k), B.add(first, column))
            parts.append(E.BufferLoad(place.buffer, (E.Ramp(at, E.IntImm(1), run) if run > 1 else at,)))
        made = parts[0] if len(parts) == 1 else E.Shuffle(tuple(parts), tuple(range(instr.elems(role))))
        return self.let(role, made)

    def wave_of(self, unit: Unit, size: int) -> tuple[E.Expr, E.Expr]:
        wave = self.wave_number(size) if self.threads > size else ZERO
        rows, columns = unit.waves
        column = B.floormod(wave, columns) if columns > 1 else ZERO
        row = B.floormod(B.floordiv(wave, columns), rows) if rows > 1 else ZERO
        return self.let("wave_row", row), self.let("wave_column", column)

    def wave_number(self, size: int) -> E.Expr:
        """The number of the thread's group of so many threads; of a warpgroup one for all of it, as descriptors want."""
        found = self.groups.get(size)
        if found is None:
            number = B.floordiv(self.thread, size)
            if size == WARPGROUP:
                number = E.Call("readfirstlane", (number,), number.dtype)
            found = self.groups[size] = (E.Var("wave", number.dtype, True), number)
        return found[0]

    def registers_of(self, instr: MatrixInstr, e: int, i: int, j: int) -> list[E.Expr]:
        """The registers of element `e` of a lane's sums, in the unit's tile (i, j) of its wave."""
        out: list[E.Expr] = []
        for d, tile in ((0, i), (1, j)):
            moving = [k for k in range(bits(instr.acc_elems)) if instr.coords("acc", 0, 1 << k)[1 + d]]
            at = sum((e >> k & 1) << n for n, k in enumerate(moving))
            out.append(E.IntImm(at + (tile << len(moving))))
        return out

    def vector_of(self, buffer: Buffer, instr: MatrixInstr, i: int, j: int) -> E.Expr:
        loads = tuple(E.BufferLoad(buffer, tuple(self.registers_of(instr, e, i, j))) for e in range(instr.acc_elems))
        return loads[0] if len(loads) == 1 else E.Shuffle(loads, tuple(range(len(loads))))


def _by_ldmatrix(place: Place, instr: MatrixInstr) -> bool:
    return instr.unit == "mma.sync" and dtype_info(instr.storage_dtype).bytes == _TO_LDMATRIX and not place.box


def _ldmatrix(source: E.Expr, instr: MatrixInstr, trans: bool) -> E.Expr:
    return E.Call("ldmatrix", (source,), with_lanes(instr.storage_dtype, 8), {"num": 4, "trans": trans})


@lru_cache(maxsize=64)
def _from_sums(instr: MatrixInstr) -> bool:
    """Whether a lane's sums, in order, are its vectors of a first operand, a step of k after the other: so it is on CDNA with the transpose computed."""
    if (
        instr.unit != "mfma"
        or not instr.swap
        or instr.blocks != 1
        or dtype_info(instr.storage_dtype).bytes != _TO_LDMATRIX
    ):
        return False
    if instr.n % instr.k or instr.acc_elems != instr.n // instr.k * instr.a_elems:
        return False
    for lane in range(instr.wave):
        for e in range(instr.acc_elems):
            _, row, k = instr.coords("a", lane, e % instr.a_elems)
            if instr.coords("acc", lane, e)[1:] != (row, k + e // instr.a_elems * instr.k):
                return False
    return True


def widened(instr: MatrixInstr, k: int) -> MatrixInstr:
    """The instruction for a tile of `k`: on CDNA several of the unit's own steps of k at once, so that a lane reads 16 bytes of an operand's row."""
    if instr.unit != "mfma":
        return instr
    wide = ACCESS_BYTES // dtype_info(instr.storage_dtype).bytes * instr.wave // instr.m
    while wide > instr.k and (k % wide or wide % instr.k):
        wide //= 2
    return replace(instr, k=max(instr.k, wide))


def lane_run(instr: MatrixInstr, role: str) -> int:
    """Elements of an operand's row that a lane reads from shared memory at once."""
    along, run = run_of(instr, role)
    if along != (1 if role == "a" else 0):
        return 1
    return min(run, ACCESS_BYTES // dtype_info(instr.storage_dtype).bytes)


def shared_out(waves: int, rows: int, columns: int) -> tuple[int, int]:
    """Waves along rows and columns of a unit's tiles: shares as square as they go, and no wave without a tile where there are enough."""
    best: tuple[float, tuple[int, int]] | None = None
    w = 1
    while w <= waves:
        down, across = min(w, rows), min(waves // w, columns)
        used = down * across
        share = (rows / down, columns / across)
        price = (share[0] + share[1]) + 1000 * (waves - used)
        if best is None or price < best[0]:
            best = (price, (down, across))
        w *= 2
    assert best is not None
    return best[1]


__all__ = ["Units", "lane_run", "shared_out", "widened"]
