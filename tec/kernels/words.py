"""What the words of `tec.kernels.language` mean: launch numbers, memory, barriers, atomics, operations of a wavefront."""

from __future__ import annotations

import ast
import inspect
import math
from typing import Any

import numpy as np

from ..ir import build as B
from ..ir import expr as E
from ..ir import stmt as S
from ..ir.blocks import Open
from ..ir.buffer import LOCAL, SHARED, Buffer
from ..ir.dtype import dtype_info, with_lanes
from ..ir.passes.serialize_threads import CPU_WAVE
from . import language, library
from .statements import Statements
from .values import Array, Complex, as_dtype, describe, level, part_dtype, settle, storage_type

_ATOMICS = {
    "atomic_add": "atomic_add", "atomic_min": "atomic_min", "atomic_max": "atomic_max", "atomic_and": "atomic_and",
    "atomic_or": "atomic_or", "atomic_xor": "atomic_xor", "atomic_exchange": "atomic_exch", "atomic_sub": "atomic_add",
}  # fmt: skip
_FENCES = {"block": "group", "device": "device", "system": "system"}
_REDUCERS = {
    "add": B.add, "mul": B.mul, "min": B.minimum, "max": B.maximum, "and": B.bitwise_and, "or": B.bitwise_or, "xor": B.bitwise_xor,
}  # fmt: skip


class Words(Statements):
    """Handlers for words; other calls are `Functions`'."""

    launch: Any
    target: Any
    threads: dict[str, tuple[E.Var, E.Expr]]
    extents: tuple[E.Var, ...]  # of an ndrange, as the user gave them
    inlined: Any  # a call of a plain function; the translator's

    # ---- the launch

    def launch_number(self, index: language.Index3, axis: str) -> Any:
        k = "xyz".index(axis)
        if index.tag == "blockDim":
            return self.launch.block[k]
        if index.tag == "gridDim":
            entry = self.threads.get(f"blockIdx.{axis}")
            return entry[1] if entry is not None else 1
        entry = self.threads.get(f"{index.tag}.{axis}")
        return entry[0] if entry is not None else 0

    def _global(self, axis: str) -> Any:
        i = B.add(B.mul(self.launch_number(language.block_idx, axis), self.launch.block["xyz".index(axis)]),
                  self.launch_number(language.thread_idx, axis))  # fmt: skip
        return i.value if isinstance(i, E.IntImm) else i

    def _axes(self, ndim: Any, what: str) -> list[str]:
        if ndim not in (1, 2, 3):
            raise self.error(f"tec.{what}({describe(ndim)})", hint=f"tec.{what}(1), (2) or (3)")
        if self.extents:
            if ndim != len(self.extents):
                raise self.error(
                    f"tec.{what}({ndim}) in a launch over {len(self.extents)} extents",
                    hint=f"tec.{what}({len(self.extents)})",
                )
            return list("zyx"[3 - ndim :])
        return list("xyz"[:ndim])

    def _grid_idx(self, node: ast.Call, ndim: Any) -> Any:
        parts = tuple(self._global(a) for a in self._axes(ndim, "grid_idx"))
        return parts[0] if ndim == 1 else parts

    def _grid_size(self, node: ast.Call, ndim: Any) -> Any:
        axes = self._axes(ndim, "grid_size")
        if self.extents:
            parts: tuple[Any, ...] = self.extents
        else:
            parts = tuple(
                B.mul(self.launch_number(language.grid_dim, a), self.launch.block["xyz".index(a)]) for a in axes
            )
        return parts[0] if ndim == 1 else parts

    def linear_block(self) -> E.Expr:
        return self._linear("blockIdx")

    def linear_thread(self) -> E.Expr:
        return self._linear("threadIdx")

    def _linear(self, kind: str) -> E.Expr:
        total: E.Expr = E.IntImm(0)
        for axis in "zyx":
            entry = self.threads.get(f"{kind}.{axis}")
            if entry is not None:
                total = B.add(B.mul(total, entry[1]), entry[0])
        return total

    # ---- memory

    def _shape(self, shape: Any, what: str) -> tuple[E.Expr, ...]:
        dims = shape if isinstance(shape, tuple) else (shape,)
        for d in dims:
            if isinstance(d, bool) or not isinstance(d, (int, np.integer)):
                raise self.error(
                    f"the shape of tec.{what} has {describe(d)} in it",
                    hint="its size is known when the kernel is compiled: constants from outside, tec.block_dim.x; of memory that the launch "
                    "sizes: tec.shared(None, dtype) and kernel[grid, block, stream, shared_bytes]",
                )
            if d < 1:
                raise self.error(
                    f"the shape of tec.{what} is {shape}",
                    hint="a size, or a tuple of them: tec.shared((16, 16), dtype)",
                )
        return tuple(E.IntImm(int(d)) for d in dims)

    def _dtype(self, v: Any, what: str) -> str:
        dtype = as_dtype(v)
        if dtype is None:
            raise self.error(f"{what} is {describe(v)}, no type of numbers", hint='np.float32, or "float32"')
        return dtype

    def _shared(self, node: ast.Call, shape: Any, dtype: Any) -> Any:
        part = part_dtype(dtype)
        d = part or self._dtype(dtype, "the dtype of tec.shared")
        if shape is None:
            size = dtype_info(d).bytes * dtype_info(d).lanes * (2 if part else 1)
            shape = self.launch.shared_bytes // size
            if not shape:
                raise self.error(
                    f"the launch gives {self.launch.shared_bytes} bytes of shared memory, and tec.shared(None, {d}) takes what it gives",
                    hint="kernel[grid, block, stream, shared_bytes]",
                )
        return self._storage(node, self._shape(shape, "shared"), d, SHARED, part is not None)

    def _local(self, node: ast.Call, shape: Any, dtype: Any) -> Any:
        part = part_dtype(dtype)
        d = part or self._dtype(dtype, "the dtype of tec.local")
        return self._storage(node, self._shape(shape, "local"), d, LOCAL, part is not None)

    def _storage(
        self, node: ast.Call, shape: tuple[E.Expr, ...], dtype: str, scope: str, is_complex: bool = False
    ) -> Array:
        dtype = storage_type(dtype)
        shape = (*shape, E.IntImm(2)) if is_complex else shape
        buffer = Buffer(scope, dtype, shape, scope=scope, loc=self.where(node))
        self.emit(Open(lambda body: S.Alloc(buffer, body)))
        return Array(buffer, (), is_complex)

    def _barrier(self, node: ast.Call) -> Any:
        self.perform(S.Evaluate(E.Call("barrier", (), "int32", {"scope": "global"}), self.where(node)))

    def _wave_barrier(self, node: ast.Call) -> Any:
        self.perform(S.Evaluate(E.Call("barrier", (), "int32", {"scope": "wave"}), self.where(node)))

    def _fence(self, node: ast.Call, scope: Any = "device") -> Any:
        found = _FENCES.get(scope) if isinstance(scope, str) else None
        if found is None:
            raise self.error(
                f"tec.fence({describe(scope)})", hint=f"its scope is one of {', '.join(map(repr, _FENCES))}"
            )
        self.perform(S.Evaluate(E.Call("fence", (), "int32", {"scope": found}), self.where(node)))

    def _lanes(self, lanes: Any) -> int:
        if lanes not in (2, 4, 8, 16):
            raise self.error(f"a vector of {describe(lanes)} lanes", hint="2, 4, 8 or 16")
        return int(lanes)

    def _array(self, a: Any, what: str) -> Array:
        if not isinstance(a, Array):
            raise self.error(
                f"tec.{what} of {describe(a)}", hint=f"tec.{what}(array, index, ...): the array itself, not an element"
            )
        if a.is_complex and not what.startswith("atomic"):
            raise self.error(f"tec.{what} of an array of {a.dtype}", hint="a[i] and a[i] = z take its elements")
        if what != "vload":
            self.refuse_tables(a, self.node)
        return a

    def _adjacent(self, array: Array, index: Any, node: ast.AST) -> tuple[E.Expr, ...]:
        """The place of the first of several elements that are accessed at once."""
        if not array.adjacent:
            raise self.error(
                f"a vector of a part of {array.name} whose elements are not adjacent",
                hint="take its elements one by one",
                node=node,
            )
        return array.at(self.indices(array, index, node))

    def _vload(self, node: ast.Call, array: Any, index: Any, lanes: Any) -> Any:
        b = self._array(array, "vload").buffer
        return B.buffer_load(b, self._adjacent(array, index, node), with_lanes(b.dtype, self._lanes(lanes)))

    def _vstore(self, node: ast.Call, array: Any, index: Any, vector: Any) -> Any:
        b = self._array(array, "vstore").buffer
        v = settle(self.number(vector, "what is stored"))
        if dtype_info(v.dtype).lanes == 1:
            raise self.error("tec.vstore of one number", hint="array[index] = x, or tec.vector(x, x, x, x)")
        s = B.buffer_store(
            b, self._adjacent(array, index, node), B.cast(with_lanes(b.dtype, dtype_info(v.dtype).lanes), v)
        )
        self.perform(S.BufferStore(s.buffer, s.value, s.indices, None, self.where(node)))

    def _vector(self, node: ast.Call, *lanes: Any) -> Any:
        self._lanes(len(lanes))
        parts, _ = level(*[self.number(x, "a lane") for x in lanes])
        dtype = settle(parts[0]).dtype
        for p in parts[1:]:
            dtype = B.match(B.const(0, dtype) if dtype != "bool" else B.const(False), p)[0].dtype
        return E.Shuffle(tuple(B.cast(dtype, B.convert(p, dtype)) for p in parts), tuple(range(len(parts))))

    # ---- atomics

    def _atomic(self, word: str, node: ast.Call, array: Any, index: Any, *values: Any, **named: Any) -> Any:
        b = self._array(array, word).buffer
        if b.scope == LOCAL:
            raise self.error(f"tec.{word} on {b.name}, which is the thread's own", hint="a plain assignment does")
        if array.is_complex:
            return self._complex_atomic(word, node, array, index, *values, **named)
        load = E.BufferLoad(b, array.at(self.indices(array, index, node)))
        info = dtype_info(b.dtype)
        if info.kind == "bool" or info.lanes > 1 or info.bits < 8:
            raise self.error(f"tec.{word} on an array of {b.dtype}", hint="atomics take 32 and 64 bits")
        if info.is_float and word in ("atomic_and", "atomic_or", "atomic_xor"):
            raise self.error(f"tec.{word} on an array of {b.dtype}", hint="it takes integers")
        args = []
        for v in (*values, *named.values()):
            have = dtype_info(settle(self.number(v, "the value")).dtype)
            if have.is_float and not info.is_float:
                raise self.error(f"tec.{word} of a float on {b.name}, an array of {b.dtype}", hint="convert it: int(x)")
            args.append(self.as_type(v, b.dtype, node))
        if word == "atomic_sub":
            args = [B.neg(args[0])]
        op = "atomic_cas" if word == "atomic_cas" else _ATOMICS[word]
        return self.effect(E.Call(op, (load, *args), b.dtype))

    def _complex_atomic(self, word: str, node: ast.Call, array: Array, index: Any, value: Any) -> Any:
        """A sum: each part by itself."""
        if word not in ("atomic_add", "atomic_sub"):
            raise self.error(f"tec.{word} on an array of {array.dtype}", hint="it takes atomic_add and atomic_sub")
        parts = (value.real, value.imag) if isinstance(value, Complex) else (self.number(value, "the value"), 0.0)
        indices = array.at(self.indices(array, index, node))
        old = []
        for k, part in enumerate(self.held(parts, "part")):
            e = self.as_type(part, array.buffer.dtype, node)
            load = E.BufferLoad(array.buffer, (*indices, E.IntImm(k)))
            e = B.neg(e) if word == "atomic_sub" else e
            old.append(self.effect(E.Call("atomic_add", (load, e), array.buffer.dtype)))
        return Complex(*old)

    # ---- the wavefront

    def _width(self, width: Any) -> int:
        wave = self.target.wavefront_size if self.target.is_gpu else CPU_WAVE
        if width is None:
            return int(wave)
        if not isinstance(width, (int, np.integer)) or width & (width - 1) or not 1 <= width <= wave:
            raise self.error(
                f"a width of {describe(width)}",
                hint=f"a constant power of two up to {wave}, the wavefront of {self.target}",
            )
        return int(width)

    def _shuffle(self, word: str, node: ast.Call, value: Any, by: Any, width: Any = None) -> Any:
        v = settle(self.number(value, "the value"))
        if dtype_info(v.dtype).lanes > 1:
            raise self.error("a vector moves between lanes", hint="move its lanes one by one: tec.shuffle(v[0], ...)")
        n = settle(self.number(by, "the lane"))
        if not dtype_info(n.dtype).is_int:
            raise self.error(f"the lane of tec.{word} is {n.dtype}", hint="it is a whole number")
        op = "shuffle_idx" if word == "shuffle" else word
        w = self._width(width)
        if op == "shuffle_xor" and isinstance(n, E.IntImm) and not 0 <= n.value < w:
            raise self.error(
                f"tec.shuffle_xor with the mask {n.value} over {w} lanes", hint=f"a mask is from 0 to {w - 1}"
            )
        return self.effect(E.Call(op, (v, B.cast("int32", n), E.IntImm(w)), v.dtype), "moved")

    def _truth(self, v: Any) -> E.Expr:
        return B.convert(self.truth(v))

    def _ballot(self, node: ast.Call, condition: Any) -> Any:
        return self.effect(E.Call("ballot", (self._truth(condition),), "uint64"), "votes")

    def _wave_any(self, node: ast.Call, condition: Any) -> Any:
        return B.compare("ne", self._ballot(node, condition), 0)

    def _wave_all(self, node: ast.Call, condition: Any) -> Any:
        return B.compare(
            "eq", self.effect(E.Call("ballot", (B.logical_not(self._truth(condition)),), "uint64"), "votes"), 0
        )

    def _lane(self, node: ast.Call) -> Any:
        return self.let("lane", E.Call("wave_lane", (), "int32"))

    def _lanemask_lt(self, node: ast.Call) -> Any:
        return self.inlined(library.lanemask_lt, node, [], {})

    def _wave_size(self, node: ast.Call) -> Any:
        return self._width(None)

    def _wave_reduce(self, node: ast.Call, value: Any, op: Any = "add", width: Any = None) -> Any:
        f = _REDUCERS.get(op) if isinstance(op, str) else None
        if f is None:
            raise self.error(f"tec.wave_reduce with {describe(op)}", hint=", ".join(f'"{k}"' for k in _REDUCERS))
        w = self._width(width)
        self._whole_waves("wave_reduce", w)
        v = settle(self.number(value, "the value"))
        k = w // 2
        while k:
            v = self.let("partial", v)
            v = f(v, self._shuffle("shuffle_xor", node, v, k, w))
            k //= 2
        return self.let("reduced", v)

    # ---- words that are made of others

    def _combining(self, word: str, value: Any, op: Any) -> tuple[E.Expr, str, Any]:
        """The value as an expression, its dtype, and what changes nothing under `op`."""
        if op not in library.OPS:
            raise self.error(f"tec.{word} with {describe(op)}", hint=", ".join(f'"{k}"' for k in library.OPS))
        v = self.held(settle(self.number(value, "the value")), "value")
        info = dtype_info(v.dtype)
        if info.lanes > 1 or (op in ("and", "or", "xor") and info.is_float):
            raise self.error(
                f"tec.{word} with {op!r} of a value of {v.dtype}",
                hint="and, or and xor take integers; the others numbers",
            )
        if info.kind == "bool":
            raise self.error(f"tec.{word} of a bool", hint="np.int32(c) counts; wave_any, wave_all and ballot vote")
        none = B.const(library.neutral(op, v.dtype if info.name != "bfloat16" else "float32").item(), v.dtype)
        return v, v.dtype, none

    def _wave_scan(self, node: ast.Call, value: Any, op: Any = "add", exclusive: Any = False) -> Any:
        v, _, none = self._combining("wave_scan", value, op)
        self._whole_waves("wave_scan", self._width(None))
        return self.inlined(library.wave_scan, node, [v, op, bool(exclusive), none], {})

    def _block_reduce(self, node: ast.Call, value: Any, op: Any = "add") -> Any:
        v, dtype, none = self._combining("block_reduce", value, op)
        return self.inlined(library.block_reduce, node, [v, op, dtype, none], {})

    def _block_scan(self, node: ast.Call, value: Any, op: Any = "add", exclusive: Any = False) -> Any:
        v, dtype, none = self._combining("block_scan", value, op)
        return self.inlined(library.block_scan, node, [v, op, bool(exclusive), dtype, none], {})

    def _match_any(self, node: ast.Call, value: Any) -> Any:
        v = self._bits(value, "match_any")
        return self.inlined(library.match_any, node, [v, dtype_info(v.dtype).bits], {})

    def _match_all(self, node: ast.Call, value: Any) -> Any:
        v = self._bits(value, "match_all")
        self._whole_waves("match_all", self._width(None))
        return self.inlined(library.match_all, node, [v], {})

    def _bits(self, value: Any, word: str) -> E.Expr:
        """A number as an unsigned integer of the same bits."""
        v = settle(self.number(value, "the value"))
        info = dtype_info(v.dtype)
        if info.lanes > 1 or info.kind == "bool":
            raise self.error(f"tec.{word} of a value of {v.dtype}", hint="convert it: np.int32(x)")
        to = f"uint{info.bits}"
        return self.let("bits", v if v.dtype == to else E.Call("reinterpret", (v,), to))

    def _whole_waves(self, word: str, w: int) -> None:
        if math.prod(self.launch.block) % w:
            raise self.error(
                f"tec.{word} over {w} lanes in a block of {math.prod(self.launch.block)} threads",
                hint=f"launch blocks of a multiple of {w} threads",
            )

    def word(self, word: str, node: ast.Call, args: list[Any], named: dict[str, Any]) -> Any:
        if word in ("static_range", "unrolled"):
            raise self.error(f"tec.{word} outside of the head of a loop", hint=f"for i in tec.{word}(4):")
        known = next(g for g, name in language.WORDS.items() if name == word)
        signature = inspect.signature(known)
        try:
            signature.bind(*args, **named)
        except TypeError:
            hint = (known.__doc__ or "").split(".")[0]
            bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
            shown = inspect.Signature(bare)
            raise self.error(f"a call of tec.{word} that does not fit: tec.{word}{shown}", hint=hint or None) from None
        if word in _ATOMICS or word == "atomic_cas":
            return self._atomic(word, node, *args, **named)
        if word.startswith("shuffle"):
            renamed = {"delta": "by", "mask": "by", "lane": "by"}
            return self._shuffle(word, node, *args, **{renamed.get(k, k): v for k, v in named.items()})
        return getattr(self, "_" + word)(node, *args, **named)
