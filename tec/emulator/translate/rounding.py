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

        def call(result: str, kind: str, t: str, source: str, operands: list[str]) -> None:
            overload = f"{_suffix(lanes, t)}.{_suffix(lanes, source)}" if source != t else _suffix(lanes, t)
            full = f"@llvm.experimental.constrained.{kind}.{overload}"
            types = ", ".join([o.type(source)] * len(operands))
            declares.add(f"declare {o.type(t)} {full}({types}, metadata, metadata)")
            passed = ", ".join(f"{o.type(source)} {v}" for v in operands)
            lines.append(f"  {result} = call {o.type(t)} {full}({passed}, {strict}) strictfp")

        if half and op == "fptrunc":
            call("%r", "fptrunc", "f16", "f32", values)
        else:
            call("%x" if half else "%r", op, inner, "f32" if half and src == "f16" else src, values)
            if half:
                call("%r", "fptrunc", "f16", "f32", ["%x"])
        lines += ["  call void @llvm.set.rounding(i32 1)", f"  ret {to} %r"]
        head = f"define internal {to} {name}({', '.join(f'{ty} %a{k}' for k in range(len(args)))}) noinline strictfp {{"
        o.out.helpers[name] = "\n".join([head, *lines, "}", *sorted(declares)])
    return o.out.emit(f"call {to} {name}({', '.join(f'{ty} {a}' for a in args)})")


def _suffix(lanes: int, t: str) -> str:
    """How LLVM names an overload."""
    return f"v{lanes}{t}" if lanes else t
