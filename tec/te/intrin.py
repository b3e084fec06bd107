"""Ready-made tensor intrinsics: matrix units (MFMA, WMMA, mma.sync) and dot products, for `Stage.tensorize`.

A matrix product on a matrix unit keeps its tiles in fragments, register tiles that a wavefront holds together:

>>> mx = te.intrin.matrix(target, "float16", trans_b=True)          # the chip's first shape for float16; B is [n, k]
>>> AF, BF = s.cache_read(AS, "fragment.a", [C]), s.cache_read(BS, "fragment.b", [C])
>>> CF = s.cache_write(C, "fragment.acc")
>>> s[CF].tensorize(ii, mx.mma)       # loops m, n, k of the instruction's shape; the product's init becomes a fill
>>> s[AF].tensorize(ai, mx.load_a)    # loops m, k
>>> s[BF].tensorize(bi, mx.load_b)    # loops k, n ([n, k] loops where trans_b)
>>> s[C].tensorize(ci, mx.store)      # loops m, n

On a CPU the vector units' dot products of bytes and bfloat16 are matrix units too: `vector_dot`.

Bind threadIdx.y and z to wavefronts and leave threadIdx.x, of the wavefront's size, to the intrinsics. Which lane holds
which element is written down in `tec.ir.matrix`; the loops in each intrinsic's body say what it computes, and
`tec.ir.passes.lower_fragments` hands them to the lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import TargetError
from ..ir import build
from ..ir.buffer import Buffer
from ..ir.dtype import dtype_info
from ..ir.expr import Broadcast, Call, Expr, Var
from ..ir.matrix import MatrixInstr, find, find_warpgroup, instr_to_text, instructions
from ..ir.notes import Fragment
from ..ir.stmt import Attr, BufferStore, Evaluate, For, Stmt, seq
from ..records import dataclass
from ..target import CHIPS, Target, as_target
from .build import decl_buffer, placeholder, reduce_axis
from .computation import compute
from .extern import TensorIntrin, decl_tensor_intrin
from .reducer import sum as sum_
from .tensor import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class MatrixIntrins:
    """The intrinsics of one matrix instruction. The init of `mma` uses `fill`; the schedule tensorizes with the
    others.
    """

    instr: MatrixInstr
    load_a: TensorIntrin | None  # None where the unit reads its operands from shared memory
    load_b: TensorIntrin | None
    mma: TensorIntrin
    store: TensorIntrin
    fill: TensorIntrin

    @property
    def name(self) -> str:
        """The name of the instruction, as `get` takes it."""
        return self.instr.name

    def on_tile(self, stage: Any, axis: Any, role: str = "acc") -> None:
        """Distribute the elementwise loops of `stage` from `axis` on (rows, then columns, of an operand's tile) over
        the lanes that hold the tile. It serves epilogues, conversions, and other work for which there is no
        intrinsic.
        """
        stage.pragma(axis, f"fragment.{role}", instr_to_text(self.instr))


def shapes(target: Any = None, in_dtype: str | None = None) -> list[MatrixInstr]:
    """The matrix instructions of a target, by default the current one, in the order of the chip table."""
    return [i for i in instructions(as_target(target)) if in_dtype in (None, i.in_dtype) and i.blocks == 1]


def matrix(
    target: Any = None,
    in_dtype: str = "float16",
    m: int | None = None,
    n: int | None = None,
    k: int | None = None,
    *,
    trans_a: bool = False,
    trans_b: bool = False,
    out_dtype: str | None = None,
    swap: bool = False,
    runs: bool = False,
) -> MatrixIntrins:
    """The intrinsics of a target's matrix unit for `in_dtype` and, where given, a shape.

    trans_a: A is indexed [k, m]; trans_b: B is indexed [n, k]. On CDNA k may be a multiple of the unit's own, so that a
    lane reads longer runs from shared memory. out_dtype: what `store` converts to (the accumulator's type by default).
    swap: a lane's accumulators are neighbours in a row (of square tiles), so that stores to row-major memory are wide. runs: on RDNA3 too, whose
    unit deals the rows of its first operand to the halves of a wavefront in turn: it is handed them in another order.
    Raises TargetError where the chip has no such shape.
    """
    tgt: Target = as_target(target)
    instr = find(tgt, in_dtype, m, n, k, swap=swap, runs=runs)
    if instr is None:
        shape = "x".join("?" if x is None else str(x) for x in (m, n, k))
        hint = "it has: " + ("; ".join(i.name for i in shapes(tgt)) or "none; bind the product's loops to threads")
        raise TargetError(f"{tgt} has no matrix instruction {shape} for {in_dtype}", hint=hint)
    return _intrins(instr, trans_a, trans_b, out_dtype or instr.acc_dtype)


def warpgroup(
    target: Any = None, in_dtype: str = "float16", n: int = 128, k: int = 64, *,
    trans_a: bool = False, trans_b: bool = False, out_dtype: str | None = None,
) -> MatrixIntrins:  # fmt: skip
    """The intrinsics of a warpgroup's product (wgmma, Hopper): 64 x n accumulators over 128 threads, k elements a call.

    A and B are read from shared memory, where bulk copies (`s[stage].pragma(axis, "bulk_copy")`) have put them: `mma` takes
    stages of scope "shared", and there is no `load_a` and `load_b`. Leave threadIdx.x, of 128, to the intrinsics; bind
    threadIdx.y to warpgroups. trans_a: A is indexed [k, m]; trans_b: B is indexed [n, k].
    Raises TargetError where the chip has no such unit: it needs "cuda -arch=sm_90a".
    """
    tgt: Target = as_target(target)
    instr = find_warpgroup(tgt, in_dtype, n, k)
    if instr is None:
        known = ", ".join(f"{i} (k a multiple of {step})" for i, _, step in tgt.chip.warpgroup) or "none"
        raise TargetError(
            f"{tgt} has no warpgroup product 64x{n}x{k} for {in_dtype}",
            hint=f'n is a multiple of 8 up to 256 (of 8-bit integers beyond 32 of 16); types: {known}; "cuda -arch=sm_90a" has the unit',
        )
    return _intrins(instr, trans_a, trans_b, out_dtype or instr.acc_dtype)


def get(name: str) -> MatrixIntrins:
    """The intrinsics of an instruction by its name, as `names()` lists them: "mfma float32 32x32x8 float16". Raises
    TargetError for an unknown name.
    """
    for instr in _all():
        if instr.name == name:
            return _intrins(instr, False, False, instr.acc_dtype)
    raise TargetError(f"unknown matrix instruction {name!r}", hint="te.intrin.names() lists them")


def names() -> list[str]:
    """The names of all matrix instructions of all chips."""
    return [i.name for i in _all()]


def _all() -> list[MatrixInstr]:
    found: dict[MatrixInstr, None] = {}
    for chip in CHIPS.values():
        if chip.matrix:
            found.update(
                dict.fromkeys(shapes(f"cuda -arch={chip.name}" if chip.family == "sm" else f"rocm -mcpu={chip.name}"))
            )
    return list(found)


# ---- building


def _loops(names: str, extents: tuple[int, ...], body: Callable[..., Stmt]) -> Stmt:
    variables = [Var(name) for name in names]
    stmt = body(*variables)
    for var, extent in zip(reversed(variables), reversed(extents)):
        stmt = For(var, build.const(0), build.const(extent), stmt)
    return stmt


def _region(shape: tuple[int, int], dtype: str, name: str, scope: str) -> Buffer:
    """A region of a larger buffer: any row stride, any offset."""
    return decl_buffer(shape, dtype, name, strides=[Var(f"{name}_stride"), 1], scope=scope, offset_factor=1)


def _swap(x: Any, y: Any, swap: bool) -> tuple[Any, Any]:
    return (y, x) if swap else (x, y)


def _intrins(instr: MatrixInstr, trans_a: bool, trans_b: bool, out_dtype: str) -> MatrixIntrins:
    """The loads, the product and the store of one matrix instruction, as tensor intrinsics. trans_a, trans_b: how operands lie in shared memory."""
    makes = _Maker(instr)
    in_shared = makes.in_shared
    load_a, load_b = (None, None) if in_shared else (makes.load("a", trans_a), makes.load("b", trans_b))
    return MatrixIntrins(instr, load_a, load_b, makes.mma(trans_a, trans_b), makes.store(out_dtype), makes.fill())


class _Maker:
    """Makes the tensor intrinsics of a matrix instruction."""

    def __init__(self, instr: MatrixInstr):
        self.instr, self.text = instr, instr_to_text(instr)
        self.storage, self.acc = instr.storage_dtype, instr.acc_dtype
        self.tag = instr.name.replace(" ", "_").replace(".", "_") + "_swap" * instr.swap + "_runs" * instr.runs
        self.in_shared = instr.unit == "wgmma"  # the unit reads a and b from shared memory by itself

    def load(self, role: str, trans: bool) -> TensorIntrin:
        """From shared memory to a fragment of the operand."""
        instr, storage = self.instr, self.storage
        shape = _swap(*instr.shape(role), trans)
        src = placeholder(shape, storage, f"src_{role}")
        dst = compute(shape, lambda i, j: src[i, j], name=f"frag_{role}")

        def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
            def store(row: Var, col: Var) -> Stmt:
                at = _swap(row, col, trans)
                stmt: Stmt = outs[0].vstore(at, ins[0].vload(at))
                return stmt

            return Attr(Fragment(role, self.text), _loops("rc", instr.shape(role), store))

        binds = {
            src: _region(shape, storage, f"src_{role}", "shared"),
            dst: _region(shape, storage, f"frag_{role}", f"fragment.{role}"),
        }
        return _ragged(decl_tensor_intrin(dst.op, body, f"{self.tag}_load_{role}", binds))

    def fill(self) -> TensorIntrin:
        """Zeros to the accumulator's fragment."""
        shape, acc = (self.instr.m, self.instr.n), self.acc
        out = compute(shape, lambda i, j: build.const(0, acc), name="frag_acc")
        binds = {out: _region(shape, acc, "frag_acc", "fragment.acc")}
        return _ragged(decl_tensor_intrin(out.op, lambda ins, outs: self._zeros(outs[0]), f"{self.tag}_fill", binds))

    def _zeros(self, out: Buffer) -> Stmt:
        zero = build.const(0, self.acc)
        loops = _loops("rc", (self.instr.m, self.instr.n), lambda r, c: out.vstore((r, c), zero))
        return Attr(Fragment("acc", self.text), loops)

    def mma(self, trans_a: bool, trans_b: bool) -> TensorIntrin:
        """The product, added to the accumulator's fragment."""
        m, n, k, storage, acc = self.instr.m, self.instr.n, self.instr.k, self.storage, self.acc
        shape_a, shape_b = _swap(m, k, trans_a), _swap(k, n, trans_b)
        a, b = placeholder(shape_a, storage, "a"), placeholder(shape_b, storage, "b")
        kk = reduce_axis((0, k), "kk")

        def product(i: Any, j: Any) -> Any:
            x, y = a[_swap(i, kk, trans_a)], b[_swap(kk, j, trans_b)]
            return sum_(_wide(x, acc) * _wide(y, acc), axis=kk)

        c = compute((m, n), product, name="acc")

        def body(ins: list[Buffer], outs: list[Buffer]) -> tuple[Stmt, Stmt, Stmt]:
            def step(i: Var, j: Var, r: Var) -> Stmt:
                x, y = ins[0].vload(_swap(i, r, trans_a)), ins[1].vload(_swap(r, j, trans_b))
                return BufferStore(outs[0], outs[0].vload((i, j)) + _wide(x, acc) * _wide(y, acc), (i, j))

            update = Attr(Fragment("wgmma" if self.in_shared else "mma", self.text), _loops("ijk", (m, n, k), step))
            init = self._zeros(outs[0])
            return seq(init, update), init, update

        binds = {
            a: _region(shape_a, storage, "a", "shared" if self.in_shared else "fragment.a"),
            b: _region(shape_b, storage, "b", "shared" if self.in_shared else "fragment.b"),
            c: _region((m, n), acc, "acc", "fragment.acc"),
        }
        return _ragged(decl_tensor_intrin(c.op, body, f"{self.tag}_mma", binds))

    def store(self, out_dtype: str) -> TensorIntrin:
        """From the accumulator's fragment to global memory, as `out_dtype`."""
        shape, acc = (self.instr.m, self.instr.n), self.acc
        src = placeholder(shape, acc, "frag_acc")
        dst = compute(shape, lambda i, j: _wide(src[i, j], out_dtype), name="out")

        def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
            def one(r: Var, c: Var) -> Stmt:
                stmt: Stmt = outs[0].vstore((r, c), _wide(ins[0].vload((r, c)), out_dtype))
                return stmt

            return Attr(Fragment("acc", self.text), _loops("rc", shape, one))

        binds = {
            src: _region(shape, acc, "frag_acc", "fragment.acc"),
            dst: _region(shape, out_dtype, "out", "global"),
        }
        return decl_tensor_intrin(dst.op, body, f"{self.tag}_store", binds)


def _ragged(intrin: TensorIntrin) -> TensorIntrin:
    """Fragments are whole tiles; what lies beyond the tensor's edge is not stored."""
    intrin.ragged = True
    return intrin


def _wide(e: Any, dtype: str) -> Expr:
    return e if e.dtype == dtype else build.cast(dtype, e)


# ---- dot products


def dot4(in_dtype: str = "int8") -> TensorIntrin:
    """c[0] = sum over 4 of a[k] * b[k] in int32 (v_dot4 and similar). a and b are both int8 or both uint8."""
    return _dot("dot4", in_dtype, "int32", 4)


def dot2(in_dtype: str = "float16") -> TensorIntrin:
    """c[0] = sum over 2 of a[k] * b[k] in float32 (v_dot2_f32_f16 and similar)."""
    return _dot("dot2", in_dtype, "float32", 2)


def _dot(op: str, in_dtype: str, acc: str, width: int) -> TensorIntrin:
    wanted = ("int8", "uint8") if op == "dot4" else ("float16", "bfloat16")
    if dtype_info(in_dtype).name not in wanted:
        raise TargetError(f"{op} takes {' or '.join(wanted)}, not {in_dtype}")
    a, b = placeholder((width,), in_dtype, "a"), placeholder((width,), in_dtype, "b")
    kk = reduce_axis((0, width), "kk")
    c = compute((1,), lambda i: sum_(_wide(a[kk], acc) * _wide(b[kk], acc), axis=kk), name="c")

    def body(ins: list[Buffer], outs: list[Buffer]) -> tuple[Stmt, Stmt, Stmt]:
        x, y = (buf.vload((0,), f"{in_dtype}x{width}") for buf in ins)

        def step(start: Expr) -> Stmt:
            return BufferStore(outs[0], build.call(op, x, y, start, dtype=acc), (build.const(0),))

        init: Stmt = outs[0].vstore((0,), build.const(0, acc))
        return step(build.const(0, acc)), init, step(outs[0].vload((0,)))

    binds = {
        t: decl_buffer(t.shape, t.dtype, t.op.name, strides=[1], offset_factor=width if t is not c else 1)
        for t in (a, b, c)
    }
    return decl_tensor_intrin(c.op, body, f"{op}_{in_dtype}", binds)


# What a core's vector units multiply and add in groups of 32 bits: type of the first operand -> operation, its group, type of the second, of the sums.
_VECTOR_DOTS = {
    "uint8": ("dot4", 4, "int8", "int32"), "int8": ("dot4", 4, "int8", "int32"), "int16": ("dot2", 2, "int16", "int32"),
    "bfloat16": ("dot2", 2, "bfloat16", "float32"),
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class VectorDot:
    """A CPU's dot product of vectors: c[j] += sum over `group` of a[r] * b[j, r], for `lanes` neighbours j; a has `dtype`, b `other`, c `acc`.

    The second operand lies in blocks of `group` along the sum (`NK32n4k`), a vector's beside each other. `intrin` is for `Stage.tensorize` at the
    loop over the lanes, the loop over the group inside of it.
    """

    dtype: str
    other: str
    acc: str
    group: int
    lanes: int
    intrin: TensorIntrin


def vector_dot(
    target: Any = None, dtype: str = "uint8", lanes: int | None = None, filled: bool = False
) -> VectorDot | None:
    """The dot product of a CPU target's vector units whose first operand is `dtype` (vpdpbusd, vpmaddwd, vdpbf16ps, sdot, bfdot); None where it has none.

    lanes: sums of a vector, those that a register holds where that is left out. filled: the second operand and what holds the sums are filled up to
    whole vectors, so that lanes beyond the edge are computed, and not guarded.
    """
    tgt: Target = as_target(target)
    if tgt.is_gpu or dtype not in tgt.core.dots:
        return None
    op, group, other, acc = _VECTOR_DOTS[dtype]
    lanes = lanes or tgt.vector_bytes // 4
    a, b = placeholder((group,), dtype, "a"), placeholder((lanes, group), other, "b")
    kk = reduce_axis((0, group), "kk")
    c = compute((lanes,), lambda j: sum_(_wide(a[kk], acc) * _wide(b[j, kk], acc), axis=kk), name="c")

    def body(ins: list[Buffer], outs: list[Buffer]) -> tuple[Stmt, Stmt, Stmt]:
        word = build.reinterpret("int32", ins[0].vload((0,), f"{dtype}x{group}"))
        x = build.reinterpret(f"{dtype}x{group * lanes}", Broadcast(word, lanes))
        y = ins[1].vload((0, 0), f"{other}x{group * lanes}")

        def step(start: Expr) -> Stmt:
            stmt: Stmt = outs[0].vstore((0,), build.call(op, x, y, start, dtype=start.dtype))
            return stmt

        zero: Expr = Broadcast(build.const(0, acc), lanes)
        init: Stmt = outs[0].vstore((0,), zero)
        return step(zero), init, step(outs[0].vload((0,), f"{acc}x{lanes}"))

    binds = {
        a: decl_buffer(a.shape, dtype, "a", strides=[1], offset_factor=group),
        b: decl_buffer(b.shape, other, "b", strides=[group, 1], offset_factor=group),
        c: decl_buffer(c.shape, acc, "c", strides=[1], offset_factor=1),
    }
    made = decl_tensor_intrin(c.op, body, f"{op}_{dtype}x{lanes}", binds)
    made.ragged = filled
    return VectorDot(dtype, other, acc, group, lanes, made)


# ---- tile registers


@dataclass(frozen=True, slots=True, eq=False)
class TileIntrins:
    """A CPU's tile registers (AMX) for `Stage.tensorize`: a block of `high` by `rows` rows and two tiles of 16 columns, whose sums stay in tiles.

    `mma` takes the loops [high,] rows, columns, and of the sum `steps` and `group` (64 bytes of a row of A in all); B lies in groups along the sum, 32
    columns beside each other. `store` writes what the tiles hold: it stands for a copy of the stage that `mma` computes, after the whole sum.
    """

    high: int
    rows: int
    steps: int
    group: int
    mma: TensorIntrin
    store: TensorIntrin


TILE_COLUMNS = 32  # of a block: two tiles
_TILE_LANES = 16  # sums of a tile's row, and pairs or fours of B's that a tile has


def tiles(target: Any = None, dtype: str = "bfloat16", rows: int = 16, high: int = 1, step: int = 1, image: bool = False) -> TileIntrins | None:  # fmt: skip
    """The intrinsics of a CPU target's tile registers whose first operand is `dtype`; None where it has none.

    rows: of A in a tile, up to 16, `step` rows of its memory apart. high: one or two such tiles; in an `image`, the rows of C are two dimensions, high and
    rows, and A's too, `step` apart along both; else they are one.
    """
    tgt: Target = as_target(target)
    if tgt.is_gpu or dtype not in tgt.core.tiles or not (1 <= rows <= 16 and high in (1, 2)):
        return None
    block = _TileBlock(dtype, rows, high, step, image)
    return TileIntrins(high, rows, _TILE_LANES, block.group, block.mma(), block.store())


class _TileBlock:
    """The intrinsics of a block of tiles, see `tiles`."""

    def __init__(self, dtype: str, rows: int, high: int, step: int, image: bool):
        self.dtype, self.rows, self.high, self.step, self.image = dtype, rows, high, step, image
        _, self.group, self.other, self.acc = _VECTOR_DOTS[dtype]
        self.shape = (high, rows, TILE_COLUMNS) if image else (high * rows, TILE_COLUMNS)
        self.name = f"tiles_{dtype}_{high}x{rows}"

    def place(self, h: int, column: int, scale: int = 1) -> tuple[int, ...]:
        """Where tile h of a buffer's rows begins; `scale`: its rows to those of C."""
        return (h * scale, 0, column) if self.image else (h * self.rows * scale, column)

    def buffer(self, t: Tensor, name: str, scope: str = "global") -> Buffer:
        lead = [Var(f"{name}_stride{k}") for k in range(len(self.shape) - 1)]
        return decl_buffer(t.shape, t.dtype, name, strides=[*lead, 1], offset_factor=1, scope=scope)

    def accumulators(self) -> list[tuple[int, int, int]]:
        """(tile, its place in `high`, its first column)."""
        return [(2 * h + n, h, n * _TILE_LANES) for h in range(self.high) for n in range(2)]

    def definition(self) -> tuple[Tensor, Tensor, Tensor]:
        """A, B and the product."""
        g, step, high, rows = self.group, self.step, self.high, self.rows
        far = [(n - 1) * step + 1 for n in ((high, rows) if self.image else (high * rows,))]
        a = placeholder((*far, _TILE_LANES * g), self.dtype, "a")
        b = placeholder((_TILE_LANES, TILE_COLUMNS, g), self.other, "b")
        k, r = reduce_axis((0, _TILE_LANES), "k"), reduce_axis((0, g), "r")
        whole = reduce_axis((0, _TILE_LANES * g), "k")

        def product(*i: Any) -> Any:
            *at, j = i
            rows_at = [x * step if step > 1 else x for x in at]
            # The sum runs along groups of channels and in them, which are two axes; in a matrix along one.
            if self.image:
                return sum_(_wide(a(*rows_at, k * g + r), self.acc) * _wide(b[k, j, r], self.acc), axis=[k, r])
            x, y = a(*rows_at, whole), b(whole // g, j, whole % g)
            return sum_(_wide(x, self.acc) * _wide(y, self.acc), axis=whole)

        return a, b, compute(self.shape, product, name="c")

    def mma(self) -> TensorIntrin:
        a, b, c = self.definition()
        g, step = self.group, self.step

        def body(ins: list[Buffer], outs: list[Buffer]) -> tuple[Stmt, Stmt, Stmt]:
            zero = {"acc": self.acc, "rows": self.rows, "columns": _TILE_LANES}
            init = seq(*[_tile("tile_zero", tile=t, **zero) for t, _, _ in self.accumulators()])
            steps = []
            apart = ins[0].strides[-2] * step if step > 1 else ins[0].strides[-2]
            for h in range(self.high):
                first = ins[0].vload(self.place(h, 0, step))
                steps.append(_tile("tile_load", first, apart, tile=4 + h, rows=self.rows, columns=_TILE_LANES * g))
            for n in range(2):
                first = ins[1].vload((0, n * _TILE_LANES, 0))
                shape = {"rows": _TILE_LANES, "columns": _TILE_LANES * g}
                steps.append(_tile("tile_load", first, ins[1].strides[0], tile=6 + n, **shape))
            for t, h, column in self.accumulators():
                tiles_of = {"c": t, "a": 4 + h, "b": 6 + column // _TILE_LANES}
                steps.append(_tile("tile_dot", **tiles_of, group=g, rows=self.rows, dtype=self.dtype))
            return seq(init, *steps), init, seq(*steps)

        panel = decl_buffer(b.shape, self.other, "b", strides=[Var("b_stride"), g, 1], offset_factor=1)
        binds = {a: self.buffer(a, "a"), b: panel, c: self.buffer(c, "c", "local")}
        return _ragged(decl_tensor_intrin(c.op, body, self.name, binds))  # B is filled up

    def store(self) -> TensorIntrin:
        src = placeholder(self.shape, self.acc, "src")
        dst = compute(self.shape, lambda *i: src(*i), name="dst")

        def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
            shape = {"rows": self.rows, "columns": _TILE_LANES}
            apart = outs[0].strides[-2]
            return seq(
                *[
                    _tile("tile_store", outs[0].vload(self.place(h, column)), apart, tile=t, **shape)
                    for t, h, column in self.accumulators()
                ]
            )

        binds = {src: self.buffer(src, "src", "local"), dst: self.buffer(dst, "dst", "local")}
        return _ragged(decl_tensor_intrin(dst.op, body, f"{self.name}_store", binds))


def _tile(op: str, *args: Any, **attrs: Any) -> Stmt:
    return Evaluate(Call(op, args, "int32", attrs))
