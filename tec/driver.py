"""lower() and build(): from a schedule to a module. The pass list below is the whole pipeline, top to bottom.

`TEC_DUMP=name[,name]` (or `all`) prints the IR after those passes to stderr; `TEC_VERIFY=1` verifies it after each;
`TEC_CHECK=bounds` (or `build(..., check="bounds")`) makes CPU code ask what is not proved to be inside of its buffer, and
prints a list of it.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .errors import ArgumentError, TecError
from .ir import Buffer, Func, IRModule, Var
from .ir.visit import deep_recursion
from .target import Target, as_target

Pass = Callable[[Func, Target], Func]

# (pass, stage of the result). Each lives in tec/ir/passes/<name>.py as a function of that name.
PIPELINE: tuple[tuple[str, str], ...] = (
    ("simplify", "loops"),
    ("lower_fragments", "loops"),
    ("bulk_copies", "loops"),
    ("swizzle_shared", "loops"),
    ("unify_threads", "loops"),
    ("check_extents", "loops"),
    ("inject_prefetch", "loops"),
    ("inject_vthread", "loops"),
    ("specialize_warps", "loops"),
    ("pipeline", "loops"),
    ("pad_tiles", "loops"),
    ("partition_loops", "loops"),
    ("flatten_buffers", "flat"),
    ("simplify", "flat"),
    ("vectorize", "flat"),
    ("lower_dot", "flat"),
    ("unroll", "flat"),
    ("hoist_conditions", "flat"),
    ("remove_noop", "flat"),
    ("plan_storage", "flat"),
    ("insert_barriers", "flat"),
    ("lower_allreduce", "flat"),
    ("lower_math", "lowered"),
    ("simplify", "lowered"),
    ("remove_noop", "lowered"),
)
SIMPLE_MODE_PASSES = 5  # simple_mode stops here: loops that are still those of the schedule


def _find_pass(name: str) -> Pass:
    module = importlib.import_module(f"tec.ir.passes.{name}")
    found: Pass = getattr(module, name)
    return found


def checks_bounds(check: str | None) -> bool:
    """Whether CPU code asks its accesses: as `check` says, as TEC_CHECK does where that is None."""
    return "bounds" in (os.environ.get("TEC_CHECK", "") if check is None else check).split(",")


def run_passes(
    func: Func, target: Target, passes: Sequence[tuple[str, str]] = PIPELINE, check_bounds: bool = False
) -> Func:
    """The passes in order, with dumping and verification as the environment asks."""
    if check_bounds and not target.is_gpu:
        passes = (("check_bounds", "loops"), *passes)
    dump = set(filter(None, os.environ.get("TEC_DUMP", "").split(",")))
    check = os.environ.get("TEC_VERIFY") == "1"
    for name, stage in passes:
        func = _find_pass(name)(func, target)
        if name in dump or "all" in dump:
            print(f"# after {name}\n{func}\n", file=sys.stderr)
        if check:
            from .ir.verify import verify

            verify(func, stage)
    return func


@deep_recursion()
def lower(
    sch: Any,
    args: Sequence[Any] | None = None,
    name: str = "main",
    simple_mode: bool = False,
    binds: dict[Any, Buffer] | None = None,
    target: Any = None,
) -> IRModule:
    """Loop IR of a schedule.

    sch: a Schedule (or a Func or IRModule, which only runs the passes). args: the function's parameters in order:
    Tensors, Buffers, Vars. simple_mode keeps the schedule's own loops; otherwise the whole pipeline runs for `target`
    (the current target by default). binds: tensor -> Buffer from `tec.decl_buffer`, for layouts of one's own.
    Returns an IRModule with one function, which `build` makes the same module of as of the schedule. Raises
    ScheduleError, LoweringError.
    """
    tgt = as_target(target)
    passes = PIPELINE[:SIMPLE_MODE_PASSES] if simple_mode else PIPELINE
    funcs: list[Func]
    if isinstance(sch, Func):
        funcs = [sch]
    elif isinstance(sch, IRModule):
        funcs = list(sch)
    else:
        funcs = [_to_loops(sch, args, name, binds)]
    if simple_mode:
        return IRModule({f.name: run_passes(f, tgt, passes) for f in funcs})
    return IRModule(
        {
            f.name: low.with_attrs(lowered_from=(f, tgt))
            for f, low in (_lowered(f, tgt, checks_bounds(None)) for f in funcs)
        }
    )


def _lowered(f: Func, target: Target, checked: bool) -> tuple[Func, Func]:
    """A function as callers see it, and of stage "lowered", where parameters are flat and sizes explicit.

    What `lower` gives is lowered already, and knows what it was made of.
    """
    if "lowered_from" not in f.attrs:
        return f, run_passes(f, target, check_bounds=checked)
    origin, have = f.attrs["lowered_from"]
    if str(have) != str(target):
        raise ArgumentError(
            f"{f.name} was lowered for {have}, and is built for {target}",
            hint=f'build it for "{have}", or lower the schedule with target="{target}"',
        )
    return origin, f


def _to_loops(sch: Any, args: Sequence[Any] | None, name: str, binds: dict[Any, Buffer] | None) -> Func:
    from .schedule import Schedule, to_loops

    if not isinstance(sch, Schedule):
        raise ArgumentError(
            f"expected a Schedule, got {type(sch).__name__}",
            hint="tec.build(tec.create_schedule(C.op), [A, B, C], ...)",
        )
    if args is None:
        raise ArgumentError(
            "the function's parameters are missing", hint="give the list of tensors: tec.build(s, [A, B, C], ...)"
        )
    if not name.isidentifier():
        raise ArgumentError(f"{name!r} is no function name", hint="use letters, digits and underscores")
    return to_loops(sch, list(args), name=name, binds=binds)


@deep_recursion()
def build(
    inputs: Any,
    args: Sequence[Any] | None = None,
    target: Any = None,
    target_host: Any = None,
    name: str = "main",
    binds: dict[Any, Buffer] | None = None,
    check: str | None = None,
) -> Any:
    """Compile a schedule (or loop IR) to a runtime Module.

    inputs: a Schedule with `args` (Tensors, Buffers, Vars in call order), a Func, an IRModule, or a list of them.
    target: text or Target, the current one by default. target_host: the CPU that launches; "llvm" is the only kind.
    check: "bounds" makes CPU code ask each access that is not proved to be inside of its buffer, "" none; TEC_CHECK says
    so by default. A failed one is a TecError that names the te line; `get_source("bounds")` lists them.
    For a GPU the result's `imported_modules[0]` holds the device code; for the CPU the module holds all.
    Raises ScheduleError, LoweringError, CodegenError, TargetError.
    """
    tgt = as_target(target)
    if target_host is not None and as_target(target_host).kind != "llvm":
        raise TecError(f"target_host {target_host!r} is not a CPU target", hint='use target_host="llvm"')
    with tgt:
        if isinstance(inputs, (list, tuple)):
            loops = [f for item in inputs for f in (item if isinstance(item, IRModule) else [item])]
        elif isinstance(inputs, IRModule):
            loops = list(inputs)
        elif isinstance(inputs, Func):
            loops = [inputs]
        else:
            loops = [_to_loops(inputs, args, name, binds)]
        for f in loops:
            if not isinstance(f, Func):
                raise ArgumentError(
                    f"expected loop IR, got {type(f).__name__}", hint="build a Schedule, a Func or an IRModule"
                )
        return build_gpu(loops, tgt) if tgt.is_gpu else build_cpu(loops, tgt, checks_bounds(check))


def _lower_all(
    loops: list[Func], target: Target, checked: bool = False
) -> tuple[list[Func], dict[str, dict[str, Any]]]:
    """The functions of stage "lowered" and their signatures."""
    from .codegen.signature import CPU_ALIGN, signature, uniquely_named

    lowered = []
    signatures = {}
    for f in loops:
        origin, low = _lowered(uniquely_named(f), target, checked)
        lowered.append(low)
        if low.name in signatures:
            raise ArgumentError(f"two functions are called {low.name}")
        signatures[low.name] = signature(origin, low, CPU_ALIGN if not target.is_gpu else None)
    return lowered, signatures


def build_cpu(loops: list[Func], target: Target, checked: bool = False) -> Any:
    """A CPU module of functions of stage "loops"; the first is the entry."""
    from .codegen import build_cpu as generate
    from .runtime import Module

    lowered, signatures = _lower_all(loops, target, checked)
    code = generate(lowered, target)
    asked = "\n".join(dict.fromkeys(x for f in lowered for x in f.attrs.get("unproved", ())))
    if asked and checked:
        print(f"accesses that are asked at run time, as they are not proved to be inside:\n{asked}", file=sys.stderr)
    return Module(
        "llvm",
        lowered[0].name,
        functions={
            f.name: {"signature": signatures[f.name], "asserts": code.messages.get(f.name, [])} for f in lowered
        },
        image=code.object,
        sources={
            "ir": "\n\n".join(map(str, lowered)),
            "llvm": code.llvm,
            "asm": lambda: code.asm,
            **({"bounds": asked} if checked else {}),
        },
        target=str(target),
        support=getattr(code, "support", ()),
    )


def build_gpu(loops: list[Func], target: Target) -> Any:
    """A module of host programs over one device module; the first function is the entry."""
    from .codegen import build_kernels
    from .codegen.signature import host_program
    from .ir.passes.split_host_device import split_host_device
    from .runtime import Module

    lowered, signatures = _lower_all(loops, target)
    hosts: list[Func] = []
    kernels: list[Func] = []
    for f in lowered:
        host, own = split_host_device(f, target)
        hosts.append(host)
        kernels.extend(own)
    code = build_kernels(kernels, target)
    device = Module(
        target.kind,
        image=code.image,
        sources={
            "ir": "\n\n".join(map(str, kernels)),
            "llvm": code.llvm,
            "asm": code.asm,
            **({"ptx": code.asm} if target.kind == "cuda" else {}),
        },
        target=str(target),
        attrs={"kernels": code.kernels},
    )
    return Module(
        "llvm",
        hosts[0].name,
        functions={h.name: {"signature": signatures[h.name], "program": host_program(h)} for h in hosts},
        sources={"ir": "\n\n".join(map(str, hosts))},
        imported=[device],
        target=str(target),
    )


__all__ = ["PIPELINE", "Var", "build", "build_cpu", "build_gpu", "lower", "run_passes"]
