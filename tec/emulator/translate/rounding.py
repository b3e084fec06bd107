"""Float operations that round otherwise than to nearest: up, down, toward zero, as MODE says (`modes`).

The host rounds: each operation is a function of its own in the kernel's module, which sets the host's rounding, computes, and puts it back. LLVM moves no other
float operation in between, since it does not look into the function.
Source: LLVM's "Language Reference", "Constrained Floating-Point Intrinsics", `llvm.set.rounding`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .ops import Ops

# Of `llvm.set.rounding`, by the hardware's numbers: to nearest, up, down, toward zero.
_HOST_ROUNDING = (1, 2, 3, 0)
# The most lanes that are converted to f16 at once: LLVM 20 dies of wider ones on hosts with F16C and without AVX-512.
_HALVES_AT_ONCE = 8


def rounded(o: Ops, op: str, src: str, dst: str, *args: str) -> str:
    """An operation whose result is rounded as `o.rounding` says: by the host, in a function of its own that sets its rounding and puts it back.

    f16 goes through f32: two roundings in one direction give what one does.
    """
    mode, lanes = o.rounding[dst], o.lanes
    ty, to = o.type(src), o.type(dst)
    half = dst == "f16"
    wide = o.type("f32") if half else to
    name = f"@tec_round{mode}_{op}_{src}_{dst}_{lanes}"
    if name not in o.out.helpers:
        strict = 'metadata !"round.dynamic", metadata !"fpexcept.strict"'
        lines, values = [], [f"%a{k}" for k in range(len(args))]
        declares = {"declare void @llvm.set.rounding(i32)"}
        inner = "f32" if half else dst
        if half and src == "f16":
            lines += [f"  %w{k} = fpext {ty} {v} to {wide}" for k, v in enumerate(values)]
            values = [f"%w{k}" for k in range(len(values))]
        lines.append(f"  call void @llvm.set.rounding(i32 {_HOST_ROUNDING[mode]})")

        def call(result: str, kind: str, t: str, source: str, operands: list[str], by: Ops = o) -> None:
            count = by.lanes
            overload = f"{_suffix(count, t)}.{_suffix(count, source)}" if source != t else _suffix(count, t)
            full = f"@llvm.experimental.constrained.{kind}.{overload}"
            types = ", ".join([by.type(source)] * len(operands))
            declares.add(f"declare {by.type(t)} {full}({types}, metadata, metadata)")
            passed = ", ".join(f"{by.type(source)} {v}" for v in operands)
            lines.append(f"  {result} = call {by.type(t)} {full}({passed}, {strict}) strictfp")

        def narrow(value: str) -> None:
            """%r is `value` in f16, `_HALVES_AT_ONCE` lanes at a time."""
            if lanes <= _HALVES_AT_ONCE:
                call("%r", "fptrunc", "f16", "f32", [value])
                return
            few = type(o)(o.out, _HALVES_AT_ONCE)
            take = f"{few.type('f32')} @llvm.vector.extract.{_suffix(_HALVES_AT_ONCE, 'f32')}.{_suffix(lanes, 'f32')}"
            put = f"{to} @llvm.vector.insert.{_suffix(lanes, 'f16')}.{_suffix(_HALVES_AT_ONCE, 'f16')}"
            declares.update((f"declare {take}({wide}, i64)", f"declare {put}({to}, {few.type('f16')}, i64)"))
            whole = "poison"
            for at in range(0, lanes, _HALVES_AT_ONCE):
                lines.append(f"  %s{at} = call {take}({wide} {value}, i64 {at})")
                call(f"%n{at}", "fptrunc", "f16", "f32", [f"%s{at}"], few)
                into = "%r" if at + _HALVES_AT_ONCE == lanes else f"%j{at}"
                lines.append(f"  {into} = call {put}({to} {whole}, {few.type('f16')} %n{at}, i64 {at})")
                whole = into

        if half and op == "fptrunc":
            narrow(values[0])
        else:
            call("%x" if half else "%r", op, inner, "f32" if half and src == "f16" else src, values)
            if half:
                narrow("%x")
        lines += ["  call void @llvm.set.rounding(i32 1)", f"  ret {to} %r"]
        head = f"define internal {to} {name}({', '.join(f'{ty} %a{k}' for k in range(len(args)))}) noinline strictfp {{"
        o.out.helpers[name] = "\n".join([head, *lines, "}", *sorted(declares)])
    return o.out.emit(f"call {to} {name}({', '.join(f'{ty} {a}' for a in args)})")


def _suffix(lanes: int, t: str) -> str:
    """How LLVM names an overload."""
    return f"v{lanes}{t}" if lanes else t
