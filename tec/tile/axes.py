"""What is known of a tile's numbers along each dimension: runs of neighbours, what they begin at, blocks of equals.

    Axis facts (contiguity c, divisibility d, constancy k), each a power of two, along one dimension:
        an aligned block of c neighbours holds b, b + 1, ..., b + c - 1 with b a multiple of d;
        an aligned block of k neighbours holds equal numbers.

Pointers count elements. One pass over the program, in order; a loop's arguments begin as what the loop starts with, and are weakened until its body
agrees. The facts say how many elements one access of memory moves, and how many of them a mask decides alike. What an author promises
(`tl.multiple_of`) is taken, and marked: the code generator, which proves alignment again, is then told.

Source: the analysis of Triton's AxisInfo (lib/Analysis/AxisInfo.cpp), from its description.
"""

from __future__ import annotations

from dataclasses import replace

from ..records import dataclass
from .grammar import Block, Op, Program, Value

MOST = 1 << 20  # a number that is 0 is a multiple of anything; this much is enough to know


@dataclass(frozen=True, slots=True)
class Facts:
    """See the module. `promised`: it rests on a promise of the author's."""

    contiguity: int = 1
    divisibility: int = 1
    constancy: int = 1
    promised: bool = False

    def begins(self, block: int) -> int:
        """What divides the first number of each aligned block of so many neighbours."""
        return self.divisibility if block >= self.contiguity else min(self.divisibility, block)

    def met(self, other: Facts) -> Facts:
        """What holds of both."""
        c = min(self.contiguity, other.contiguity)
        return Facts(
            c,
            min(self.begins(c), other.begins(c)),
            min(self.constancy, other.constancy),
            self.promised or other.promised,
        )


Known = tuple[Facts, ...]  # along each dimension; of a scalar one


def power(n: int) -> int:
    """The largest power of two that divides a number."""
    return MOST if n == 0 else min(MOST, n & -n)


class Axes:
    """The facts of a program's values. `alignment`: for a pointer's name the bytes that divide its address, for an integer's what divides it, negative where
    the integer is."""

    def __init__(self, program: Program, alignment: dict[str, int]):
        self.program, self.alignment = program, alignment
        self.known: dict[int, Known] = {}
        self.positive: set[int] = set()
        self.constants: dict[int, int] = {}
        self._block(program.body)

    def of(self, v: Value, d: int) -> Facts:
        """What is known along a dimension."""
        found = self.known.get(id(v))
        return Facts() if found is None else found[d]

    # ---- in order

    def _block(self, block: Block) -> None:
        for op in block.ops:
            self._op(op)

    def _op(self, op: Op) -> None:
        if op.name in ("for", "while", "if"):
            getattr(self, "_" + op.name)(op)
            return
        if op.name == "promise":
            self._of_promise(op)
        rule = getattr(self, "_of_" + op.name, None)
        for r in op.results:
            made = rule(op) if rule is not None else None
            self.known[id(r)] = self._default(r) if made is None else made
            self._signed(r, self._is_positive(op))

    def _default(self, v: Value) -> Known:
        return tuple(Facts() for _ in v.ty.shape) if v.ty.shape else (Facts(constancy=MOST),)

    # ---- control

    def _for(self, op: Op) -> None:
        low, _, step = op.operands[:3]
        block = op.blocks[0]
        index = block.args[0]
        of = min(self._any(low), self._any(step))
        self.known[id(index)] = (Facts(1, of, MOST),)
        if id(low) in self.positive and id(step) in self.positive:
            self.positive.add(id(index))
        self._around([block], [block.args[1:]], op.operands[3:], block, op)

    def _while(self, op: Op) -> None:
        self._around(list(op.blocks), [b.args for b in op.blocks], op.operands, op.blocks[1], op)

    def _around(
        self, blocks: list[Block], args: list[list[Value]], inits: tuple[Value, ...], last: Block, op: Op
    ) -> None:
        """A loop's blocks until what they carry agrees with what they hand on."""
        now = [self.known.get(id(v)) or self._default(v) for v in inits]
        signs = [id(v) in self.positive for v in inits]
        while True:
            for mine in args:
                for a, k, sign in zip(mine, now, signs):
                    self.known[id(a)] = k
                    self._signed(a, sign)
            for b in blocks:
                self._block(b)
            yields = last.yields
            then = [tuple(x.met(y) for x, y in zip(k, self._known(v))) for k, v in zip(now, yields)]
            still = [sign and id(v) in self.positive for sign, v in zip(signs, yields)]
            if then == now and still == signs:
                break
            now, signs = then, still
        for r, k, sign in zip(op.results, now, signs):
            self.known[id(r)] = k
            self._signed(r, sign)

    def _if(self, op: Op) -> None:
        for b in op.blocks:
            self._block(b)
        for k, r in enumerate(op.results):
            sides = [self._known(b.yields[k]) for b in op.blocks]
            self.known[id(r)] = tuple(x.met(y) for x, y in zip(*sides))
            if all(id(b.yields[k]) in self.positive for b in op.blocks):
                self.positive.add(id(r))

    def _signed(self, v: Value, is_positive: bool) -> None:
        (self.positive.add if is_positive else self.positive.discard)(id(v))

    # ---- signs: division rounds to 0, so that runs hold on one side of it alone

    def _is_positive(self, op: Op) -> bool:
        name, fn = op.name, op.attrs.get("fn")
        if name == "const":
            return not isinstance(op.attrs["value"], float) and op.attrs["value"] >= 0
        if name == "arange":
            return int(op.attrs["start"]) >= 0
        if name in ("program_id", "num_programs"):
            return True
        if name == "arg":
            return self.alignment.get(self.program.params[op.attrs["index"]][0], -1) > 0
        signs = [id(x) in self.positive for x in op.operands]
        if name == "binary":
            # What a program divides by is a count, such as a group's rows that are left.
            if fn in ("imod", "shr", "idiv"):
                return signs[0]
            return all(signs) if fn in ("add", "mul", "min", "and", "or", "shl") else fn == "max" and any(signs)
        if name == "select":
            return all(signs[1:])
        if name == "cast":
            bits = [x.ty.dtype.primitive_bitwidth for x in (op.results[0], op.operands[0])]
            return signs[0] and bits[0] >= bits[1] and op.results[0].ty.dtype.is_int()
        return name in ("splat", "expand_dims", "broadcast", "permute", "reshape", "hold") and all(signs)

    # ---- words

    def _known(self, v: Value) -> Known:
        return self.known.get(id(v)) or self._default(v)

    def _any(self, v: Value) -> int:
        """What divides every element."""
        return max(f.begins(1) for f in self._known(v))

    def _promised(self, v: Value) -> bool:
        return any(f.promised for f in self._known(v))

    def _of_const(self, op: Op) -> Known | None:
        value = op.attrs["value"]
        if isinstance(value, float):
            return None
        self.constants[id(op.results[0])] = int(value)
        return (Facts(1, power(int(value)), MOST),)

    def _of_arg(self, op: Op) -> Known | None:
        v = op.results[0]
        bytes_ = max(1, v.ty.dtype.element_ty.primitive_bitwidth // 8) if v.ty.dtype.is_ptr() else 1  # type: ignore[attr-defined]
        given = abs(self.alignment.get(self.program.params[op.attrs["index"]][0], 1))
        return (Facts(1, max(1, power(given) // bytes_), MOST),)

    def _of_arange(self, op: Op) -> Known:
        n = op.results[0].ty.shape[0]
        return (Facts(n, power(int(op.attrs["start"])), 1),)

    def _of_splat(self, op: Op) -> Known:
        x = op.operands[0]
        if id(x) in self.constants:
            self.constants[id(op.results[0])] = self.constants[id(x)]
        of, promised = self._any(x), self._promised(x)
        return tuple(Facts(1, of, n, promised) for n in op.results[0].ty.shape)

    def _of_expand_dims(self, op: Op) -> Known:
        x, k = op.operands[0], op.attrs["axis"]
        self._same_constant(op)
        known = list(self._known(x)) if x.ty.shape else []
        known.insert(k, Facts(1, self._any(x), 1, self._promised(x)))
        return tuple(known)

    def _of_broadcast(self, op: Op) -> Known:
        x, v = op.operands[0], op.results[0]
        self._same_constant(op)
        out = []
        for f, have, n in zip(self._known(x), x.ty.shape, v.ty.shape):
            out.append(Facts(1, f.begins(1), n, f.promised) if have != n else f)
        return tuple(out)

    def _of_permute(self, op: Op) -> Known:
        known = self._known(op.operands[0])
        return tuple(known[d] for d in op.attrs["order"])

    def _of_reshape(self, op: Op) -> Known | None:
        x, v = op.operands[0], op.results[0]
        if not x.ty.shape or not v.ty.shape:
            return None
        f, n = self._known(x)[-1], v.ty.shape[-1]
        c = min(f.contiguity, n)
        last = Facts(c, f.begins(c), min(f.constancy, n), f.promised)
        return (*[Facts(1, self._any(x), 1, f.promised) for _ in v.ty.shape[:-1]], last)

    def _of_hold(self, op: Op) -> Known:
        self._same_constant(op)
        return self._known(op.operands[0])

    def _of_promise(self, op: Op) -> None:
        """What the author says of a value, from here on: a number for each dimension, or its sign."""
        x, what, values = op.operands[0], op.attrs["what"], op.attrs["values"]
        if what == "positive":
            self.positive.add(id(x))
            return
        known = self._known(x)
        values = (*values, *[1] * len(known))[: len(known)]
        self.known[id(x)] = tuple(
            replace(f, **{what: max(getattr(f, what), power(int(n)))}, promised=True) for f, n in zip(known, values)
        )

    def _same_constant(self, op: Op) -> None:
        if id(op.operands[0]) in self.constants:
            self.constants[id(op.results[0])] = self.constants[id(op.operands[0])]

    def _of_cast(self, op: Op) -> Known | None:
        to, have = op.results[0].ty.dtype, op.operands[0].ty.dtype
        known = self._known(op.operands[0])
        whole = to.is_int() and have.is_int() and to.primitive_bitwidth >= have.primitive_bitwidth
        if whole or (to.is_ptr() and have.is_ptr()):
            self._same_constant(op)
            return known
        return tuple(Facts(1, 1, f.constancy, f.promised) for f in known)

    def _of_addptr(self, op: Op) -> Known:
        return tuple(self._sum(a, b) for a, b in zip(*(self._known(x) for x in op.operands)))

    def _sum(self, a: Facts, b: Facts, subtract: bool = False) -> Facts:
        c = max(min(a.contiguity, b.constancy), 1 if subtract else min(a.constancy, b.contiguity))
        promised = a.promised or b.promised
        return Facts(c, min(a.begins(c), b.begins(c)), min(a.constancy, b.constancy), promised)

    def _of_select(self, op: Op) -> Known:
        known = [self._known(x) for x in op.operands]
        if len(known[0]) != len(known[1]):
            known[0] = tuple(Facts(constancy=MOST) for _ in known[1])
        out = []
        for cond, a, b in zip(*known):
            met = a.met(b)
            c = min(met.contiguity, cond.constancy)
            promised = met.promised or cond.promised
            out.append(Facts(c, met.begins(c), min(met.constancy, cond.constancy), promised))
        return tuple(out)

    def _of_unary(self, op: Op) -> Known:
        return tuple(Facts(1, 1, f.constancy, f.promised) for f in self._known(op.operands[0]))

    def _of_binary(self, op: Op) -> Known:
        x, y = op.operands
        return tuple(self._pair(op, a, b) for a, b in zip(self._known(x), self._known(y)))

    def _pair(self, op: Op, a: Facts, b: Facts) -> Facts:
        """Facts of an operation of two values."""
        fn, (x, y) = op.attrs["fn"], op.operands
        k, promised = min(a.constancy, b.constancy), a.promised or b.promised
        if not x.ty.dtype.is_int():
            return Facts(1, 1, k, promised)
        if fn in ("add", "sub"):
            return self._sum(a, b, fn == "sub")
        if fn == "mul":
            if self.constants.get(id(y)) == 1 or self.constants.get(id(x)) == 1:
                return a if self.constants.get(id(y)) == 1 else b
            return Facts(1, min(MOST, a.begins(1) * b.begins(1)), k, promised)
        if fn == "shl" and 0 <= self.constants.get(id(y), -1) < 20:
            return Facts(1, min(MOST, a.begins(1) << self.constants[id(y)]), k, promised)
        if fn in ("idiv", "imod") and id(x) in self.positive and b.constancy >= a.contiguity:
            c = min(a.contiguity, a.divisibility, b.begins(1))  # such blocks lie between two multiples of the divisor
            if fn == "imod":
                return Facts(c, min(a.begins(c), b.begins(1)), k, promised)
            exact = self.constants.get(id(y), 0)
            of = max(1, a.begins(1) // exact) if exact > 0 and exact == power(exact) else 1
            return Facts(1, of, max(k, c), promised)
        if fn in ("lt", "ge", "gt", "le"):
            run, edge = (a, b) if fn in ("lt", "ge") else (b, a)
            c = min(run.contiguity, run.divisibility, edge.constancy, edge.begins(run.contiguity))
            return Facts(1, 1, max(k, c), promised)
        if fn in ("min", "max", "and", "or", "xor"):
            of = min(a.begins(1), b.begins(1)) if fn != "and" else max(a.begins(1), b.begins(1))
            return Facts(1, of, k, promised)
        return Facts(1, 1, k, promised)


__all__ = ["MOST", "Axes", "Facts", "power"]
