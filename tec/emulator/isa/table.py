"""The table of opcodes: mnemonic -> what it means, and on which chips.

A row says what an opcode reads and writes ("f32 = f32 f32") and gives a function that writes the LLVM IR of its
value. `valu` and `salu` rows share one executor each; an opcode that fits neither is a `custom` row, whose function
takes the translator's `Wave` and the instruction. The families live in `table_*.py`; `lookup` finds a row.

Source tokens: a type (f32, i64, i16, ...); `mask`, a lane mask in SGPRs; `+f32`, the destination register read as a
source. Destination tokens: a type, or `mask`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..decode.inst import Inst
from ..translate.wave import Wave

Handler = Callable[[Wave, Inst], None]


@dataclass(frozen=True, slots=True)
class Row:
    """One opcode. `generations`: the gfx majors that have it (empty: wherever the assembler accepts it)."""

    name: str
    handler: Handler
    kind: str  # valu, salu, smem, vmem, lds, matrix, branch, wait, barrier, other
    signature: str = ""
    generations: tuple[int, ...] = ()


ROWS: dict[str, Row] = {}


def lookup(w: Wave, inst: Inst) -> Row:
    row = ROWS.get(inst.op)
    if row is None or (row.generations and w.gfx not in row.generations):
        raise w.fail(f"opcode {inst.op}")
    return row


def add(row: Row) -> None:
    assert row.name not in ROWS, f"two rows for {row.name}"
    ROWS[row.name] = row


def custom(names: str, kind: str, generations: tuple[int, ...] = ()) -> Callable[[Handler], Handler]:
    """Register a handler under each of the names (separated by blanks)."""

    def register(handler: Handler) -> Handler:
        for name in names.split():
            add(Row(name, handler, kind, "", generations))
        return handler

    return register


def _split(signature: str) -> tuple[list[str], list[str]]:
    left, _, right = signature.partition("=")
    return left.split(), right.split()


def valu(
    names: str,
    signature: str,
    fn: Callable[..., Any],
    *,
    sat: Callable[..., Any] | None = None,
    wave: bool = False,
    keep_high: bool = False,
    generations: tuple[int, ...] = (),
    kind: str = "valu",
) -> None:
    """Vector rows. `fn(ops, *sources)` returns the value (a tuple for several destinations); `sat` is its form under
    `clamp` for integers; with `wave`, `fn` takes the Wave instead of the Ops; `keep_high`: a 16-bit result leaves the
    register's upper half on every chip (the gfx9 opcodes that do)."""
    dst, src = _split(signature)

    def handler(w: Wave, inst: Inst) -> None:
        operands = inst.operands
        explicit = len(dst) + sum(1 for t in src if t[0] != "+")
        if len(operands) != explicit:
            raise w.fail(f"{len(operands)} operands, want {explicit}")
        args: list[str] = []
        position = len(dst)
        for t in src:
            if t[0] == "+":
                args.append(_accumulator(w, inst, t[1:]))
                continue
            if t == "shift":  # a shift amount: gfx11 may name half a register
                half = operands[position].half
                amount = _source(w, inst, position, len(dst), "i16" if half else "i32")
                args.append(w.v.zext("i16", "i32", amount) if half else amount)
            elif t == "mask":
                op = operands[position]
                if op.kind != "s" or op.neg or op.abs:
                    raise w.fail(f"lane mask operand {op.text!r}")
                args.append(w.mask(op.index))
            else:
                args.append(_source(w, inst, position, len(dst), t))
            position += 1
        call = fn
        if sat is not None and inst.take("clamp") is not None:
            call = sat
        result = call(w if wave else w.v, *args)
        values = result if isinstance(result, tuple) else (result,)
        for i, (t, value) in enumerate(zip(dst, values)):
            if t == "mask":
                w.set_mask_operand(operands[i], value)
            else:
                w.write(i, value, t, keep_high)

    for name in names.split():
        add(Row(name, handler, kind, signature, generations))


def _source(w: Wave, inst: Inst, position: int, dsts: int, t: str) -> str:
    """A source by its operand position, numbered from src0 = 1 whatever the number of destinations."""
    if dsts == 1:
        return w.source(position, t)
    shifted = Inst(inst.op, inst.encoding, inst.operands[dsts - 1 :], inst.mods, inst.line, inst.text)
    w.inst = shifted
    try:
        return w.source(position - dsts + 1, t)
    finally:
        w.inst = inst


def _accumulator(w: Wave, inst: Inst, t: str) -> str:
    op = inst.operands[0]
    encoding, inst.encoding = inst.encoding, ""
    try:
        return w.source(0, t)
    finally:
        inst.encoding = encoding
        assert op is inst.operands[0]


def compare(names: str, t: str, fn: Callable[..., str], exec_names: str = "") -> None:
    """v_cmp rows (a lane mask out) and their v_cmpx sisters, which write EXEC as well."""

    def sources(w: Wave, inst: Inst) -> str:
        """The lanes where it holds. DPP turns lanes off, and the bit of a lane that is off is 0."""
        mask = every(w, inst)
        return mask if w.dpp_mask is None else w.v.and_(mask, w.dpp_mask, "i1")

    def every(w: Wave, inst: Inst) -> str:
        operands = inst.operands
        if len(operands) == 2:
            raise w.fail("a compare without a destination")
        if t.startswith("class"):
            half = bool(operands[2].half)  # gfx11 keeps the classes of f16 in half a register
            which = w.source(2, "i16" if half else "i32")
            return fn(w.v, w.source(1, t.removeprefix("class")), w.v.zext("i16", "i32", which) if half else which)
        return fn(w.v, w.source(1, t), w.source(2, t))

    def handler(w: Wave, inst: Inst) -> None:
        inst.take("clamp")  # concerns signalling alone
        w.set_mask_operand(inst.operands[0], sources(w, inst))

    def handler_exec(w: Wave, inst: Inst) -> None:
        """gfx9 names VCC or an SGPR pair as well; gfx10 and later write EXEC alone."""
        inst.take("clamp")
        if len(inst.operands) == 3:
            mask = sources(w, inst)
            w.set_mask_operand(inst.operands[0], mask)
            if not (inst.operands[0].kind == "s" and inst.operands[0].index == 126):
                bits = w.mask_bits(inst.operands[0].index)
                w.set_mask_bits(126, bits)
            return
        w.inst = Inst(inst.op, inst.encoding, [inst.operands[0], *inst.operands], inst.mods, inst.line, inst.text)
        mask = sources(w, w.inst)
        w.inst = inst
        w.set_mask_bits(126, w.s.and_(w.to_bits(mask), w.exec_bits(), w.mask_type))

    for name in names.split():
        add(Row(name, handler, "valu", f"mask = {t} {t}"))
    for name in exec_names.split():
        add(Row(name, handler_exec, "valu", f"exec = {t} {t}"))


def salu(
    names: str, signature: str, fn: Callable[..., Any], *, scc: str = "", generations: tuple[int, ...] = ()
) -> None:
    """Scalar rows. Source tokens may also be `scc`, `k16` (a 16-bit immediate, sign-extended) and `+i32`. `scc` says
    what becomes of SCC: "" nothing, "nz" whether the result is not 0, "out" the second value that `fn` returns; with
    an empty left side `fn` returns SCC alone."""
    dst, src = _split(signature)

    def handler(w: Wave, inst: Inst) -> None:
        operands = inst.operands
        args: list[str] = []
        position = len(dst)
        for t in src:
            if t == "scc":
                args.append(w.scc())
                continue
            if t[0] == "+":
                args.append(w.scalar(operands[0], t[1:]))
                continue
            if position >= len(operands):
                raise w.fail(f"operand {position} is missing")
            if t == "k16":
                value = int(operands[position].value) & 0xFFFF
                args.append(str(value - 0x10000 if value & 0x8000 else value))
            else:
                args.append(_scalar_source(w, inst, position, t))
            position += 1
        if position != len(operands):
            raise w.fail(f"{len(operands)} operands, want {position}")
        result = fn(w.s, *args)
        if not dst:
            w.set_scc(result)
            return
        out, carry = result if isinstance(result, tuple) else (result, "")
        if scc == "out":
            w.set_scc(carry)
        elif scc == "nz":
            integer = "i64" if dst[0] in ("i64", "f64") else "i32"
            w.set_scc(w.s.icmp("ne", integer, out, "0"))
        if dst[0] == "f16" and w.f16_overflow:
            out = w.largest(out, [(t.removeprefix("+"), a) for t, a in zip(src, args) if "f" in t], w.s)
        w.write_scalar(operands[0], out, dst[0])

    for name in names.split():
        add(Row(name, handler, "salu", signature, generations))


def _scalar_source(w: Wave, inst: Inst, position: int, t: str) -> str:
    op = inst.operands[position]
    if t[0] == "f" and (op.neg or op.abs):
        raise w.fail("a modifier on a scalar float operand")
    return w.scalar(op, t)
