"""From loop IR to the plain data a built module carries: signatures, and the host program of a GPU build.

The forms are those of docs/architecture.md, "Runtime data"; the runtime reads them without the compiler.
"""

from __future__ import annotations

import copy
from typing import Any

from ..errors import CodegenError
from ..ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    Alloc,
    And,
    Assert,
    Attr,
    Buffer,
    BufferLoad,
    Call,
    Cast,
    Evaluate,
    FloatImm,
    FloorDiv,
    FloorMod,
    For,
    Func,
    IfThenElse,
    IntImm,
    LetStmt,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Select,
    Seq,
    Stmt,
    Sub,
    Var,
    build,
)  # fmt: skip
from ..ir.dtype import dtype_info
from ..ir.effects import written_params
from ..ir.visit import deep_recursion, substitute_stmt, visit
from ..runtime.modules.callbacks import parse

_OPS = {
    Add: "add", Sub: "sub", Mul: "mul", FloorDiv: "floordiv", FloorMod: "floormod", Min: "min", Max: "max", EQ: "eq",
    NE: "ne", LT: "lt", LE: "le", GT: "gt", GE: "ge", And: "and", Or: "or",
}  # fmt: skip


def expr_data(e: Any) -> Any:
    """An index expression as plain data: int, variable name, or [op, operands...]."""
    if isinstance(e, int):
        return e
    if isinstance(e, (IntImm, FloatImm)):
        return e.value
    if isinstance(e, Var):
        return e.name
    op = _OPS.get(type(e))
    if op is not None:
        return [op, expr_data(e.a), expr_data(e.b)]
    match e:
        case Cast() if not e.value.dtype.startswith("float"):
            return expr_data(e.value)
        case Select():
            return ["select", expr_data(e.cond), expr_data(e.a), expr_data(e.b)]
        case Not():
            return ["eq", expr_data(e.a), 0]
        case Call(op="if_then_else"):
            return ["select", *[expr_data(a) for a in e.args]]
        case Call(op="likely"):
            return expr_data(e.args[0])
    raise CodegenError(
        f"the host side cannot evaluate {e}",
        hint="shapes and launch sizes are integer expressions of the arguments' shapes",
    )


# NumPy's arrays start at multiples of 16 bytes and no more: code that wants 64 could not take them as they are, and unaligned
# vector access costs nothing on aligned data.
CPU_ALIGN = 16


def uniquely_named(func: Func, fresh: bool = False) -> Func:
    """The function with parameters, size variables and allocated buffers that share a name a number each.

    The runtime knows them by name; the IR by identity. A function whose names differ already is given back; else a copy. fresh: the function was made for this
    call, so that the buffers which it allocates get their names in place: a copy takes a seventh of the time that all passes take.
    """
    found = [pair for f in _with_origin(func) for pair in _renamed(f)]
    if not found:
        return func
    if fresh and all(isinstance(item, Buffer) and not any(item is p for p in func.params) for item, _ in found):
        _rename(found)
        return func
    _, *target = func.attrs.get("lowered_from", (None,))
    with deep_recursion():
        func = copy.deepcopy(func, {id(t): t for t in target})
    for f in _with_origin(func):
        _rename(_renamed(f))
    return func


def _rename(found: list[tuple[Any, str]]) -> None:
    for item, name in found:
        item.name = name
        if isinstance(item, Buffer):
            item.data.name = name


def _with_origin(func: Func) -> list[Func]:
    return [func, *func.attrs.get("lowered_from", ())[:1]]


def _renamed(func: Func) -> list[tuple[Any, str]]:
    """What needs another name, and the name."""
    named: list[Any] = [*func.params, *func.implicit_vars()]

    def on_stmt(s: Stmt) -> None:
        if isinstance(s, Alloc):
            named.append(s.buffer)

    visit(func.body, None, on_stmt)
    taken: set[str] = set()
    out: list[tuple[Any, str]] = []
    for item in named:
        name, k = item.name, 1
        while name in taken:
            name, k = f"{item.name}_{k}", k + 1
        taken.add(name)
        if item.name != name or (isinstance(item, Buffer) and item.data.name != name):
            out.append((item, name))
    return out


def signature(func: Func, lowered: Func, most_align: int | None = None) -> dict[str, Any]:
    """The call signature of a function as plain data: parameters of stage "loops", effects of stage "lowered".

    most_align: no parameter asks for more bytes, as its callers have no more to give.
    """
    written = written_params(lowered)
    writes = {p.name for p in lowered.params if isinstance(p, Buffer) and id(p.data) in written}
    params: list[dict[str, Any]] = []
    known = func.attrs.get("shapes", {})
    for k, p in enumerate(func.params):
        if isinstance(p, Var):
            params.append({"name": p.name, "kind": "scalar", "dtype": p.dtype})
            continue
        # An array of vectors is one of their elements to callers, with a last dimension of the lanes.
        element, lanes = dtype_info(p.dtype).element, dtype_info(p.dtype).lanes
        inner = [lanes] if lanes > 1 else []
        params.append({
            "name": p.name,
            "kind": "tensor",
            "dtype": element,
            "shape": [expr_data(d) for d in known.get(k, p.shape)] + inner,
            "strides": [_scaled(d, lanes) for d in p.strides] + [1] * len(inner) if p.strides else None,
            "offset": _scaled(p.elem_offset, lanes),
            "writes": p.name in writes,
            "align": min(p.align_bytes, most_align or p.align_bytes),
            **({"complex": True} if p.name in func.attrs.get("complex", ()) else {}),
        })  # fmt: skip
    data: dict[str, Any] = {
        "params": params,
        "implicit": [{"name": v.name, "dtype": v.dtype} for v in func.implicit_vars()],
    }
    if not func.attrs.get("noalias", True):
        data["alias_ok"] = True  # code for arrays that share memory
    return data


def _scaled(e: Any, by: int) -> Any:
    return expr_data(e) if by == 1 else ["mul", expr_data(e), by]


def host_program(host: Func) -> list[dict[str, Any]]:
    """The host side of a GPU function as a list of steps."""
    return _steps(host.body)


def _steps(s: Stmt) -> list[dict[str, Any]]:
    """What a host function does, as plain data: allocations, loops, conditions and launches in order."""
    match s:
        case Seq():
            return [step for x in s.stmts for step in _steps(x)]
        case Alloc():
            size: Any = 1
            for d in s.buffer.shape:
                size = size * d if isinstance(size, int) and isinstance(d, int) else _mul(size, d)
            name = s.buffer.data.name
            return [
                {"op": "alloc", "name": name, "dtype": s.buffer.dtype, "size": expr_data(size)},
                *_steps(s.body),
                {"op": "free", "name": name},
            ]
        case For():
            return [
                {
                    "op": "for",
                    "var": s.var.name,
                    "min": expr_data(s.min),
                    "extent": expr_data(s.extent),
                    "body": _steps(s.body),
                }
            ]
        case IfThenElse():
            return [
                {
                    "op": "if",
                    "cond": expr_data(s.cond),
                    "then": _steps(s.then),
                    "else": _steps(s.orelse) if s.orelse else [],
                }
            ]
        case LetStmt():
            return _steps(substitute_stmt(s.body, {s.var: s.value}))
        case Attr():
            return _steps(s.body)
        case Assert():
            return [{"op": "assert", "cond": expr_data(s.cond), "message": s.message}]
        case Evaluate(value=Call(op="launch")):
            return [_launch(s.value)]  # type: ignore[arg-type]
        case Evaluate(value=Call(op="call_extern") as called) if parse((called.attrs or {})["symbol"]) is not None:
            return [_called(called)]
        case Evaluate(value=IntImm()):
            return []
    raise CodegenError(
        f"the host side of a GPU function cannot run {type(s).__name__}: {s}",
        hint="bind the loop to blockIdx.x or threadIdx.x",
    )


def _mul(a: Any, b: Any) -> Any:
    return build.mul(a, b)


def _tensor_map(call: Call) -> dict[str, Any]:
    attrs, (data, *facts) = call.attrs or {}, call.args
    rank = len(attrs["box"])
    assert isinstance(data, Var)
    return {
        "tensor_map": data.name,
        "dtype": attrs["dtype"],
        "sizes": [expr_data(x) for x in facts[:rank]],
        "strides": [expr_data(x) for x in facts[rank:]],
        "box": list(attrs["box"]),
        **({} if attrs.get("swizzle", True) else {"swizzle": False}),
    }


def _called(call: Call) -> dict[str, Any]:
    """A call of a registered function, on addresses and numbers."""
    args: list[dict[str, Any]] = []
    for a in call.args:
        if isinstance(a, Call) and a.op == "access_ptr":
            first, offset = a.args
            assert isinstance(first, BufferLoad)
            where = expr_data(_mul(_sum([*first.indices, offset]), dtype_info(first.buffer.dtype).bytes))
            args.append({"buffer": first.buffer.data.name, "offset": where})
        else:
            args.append({"scalar": expr_data(a)})
    return {"op": "call", "symbol": (call.attrs or {})["symbol"], "args": args}


def _sum(parts: list[Any]) -> Any:
    total = parts[0]
    for p in parts[1:]:
        total = build.add(total, p)
    return total


def _launch(call: Call) -> dict[str, Any]:
    attrs = call.attrs or {}
    args: list[dict[str, Any]] = []
    for a in call.args:
        if isinstance(a, BufferLoad):
            args.append({"buffer": a.buffer.data.name})
        elif a.dtype == "handle" and isinstance(a, Var):
            args.append({"buffer": a.name})
        elif isinstance(a, Call) and a.op == "tensor_map":
            args.append(_tensor_map(a))
        else:
            args.append({"scalar": expr_data(a), "dtype": a.dtype})
    return {
        "op": "launch",
        "kernel": attrs["kernel"],
        "grid": [expr_data(x) for x in attrs["grid"]],
        "block": [expr_data(x) for x in attrs["block"]],
        "dyn_shared": expr_data(attrs.get("dyn_shared", 0)),
        **({"early": True} if attrs.get("early") else {}),
        "args": args,
    }
