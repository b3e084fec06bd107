"""lower() and build(): from a schedule to a module. The pass list below is the whole pipeline, top to bottom.

`TEC_DUMP=name[,name]` (or `all`) prints the IR after those passes to stderr; `TEC_VERIFY=1` verifies it after each;
`TEC_CHECK=bounds` (or `build(..., check="bounds")`) makes CPU code ask what is not proved to be inside of its buffer, and
prints a list of it.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .codegen.signature import CPU_ALIGN, host_program, signature, uniquely_named
from .errors import ArgumentError, TecError
from .ir import Buffer, Func, IRModule, Var
from .ir.passes.split_host_device import split_host_device
from .ir.printer import func_with_lines
from .ir.verify import verify
from .ir.visit import deep_recursion
from .llvmworker import client
from .schedule import Schedule, to_loops
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
    ("hold_epilogue", "loops"),
    ("pipeline", "loops"),
    ("pad_tiles", "loops"),
    ("partition_loops", "loops"),
    ("flatten_buffers", "flat"),
    ("simplify", "flat"),
    ("serialize_threads", "flat"),
    ("vectorize_loops", "flat"),
    ("vectorize", "flat"),
    ("lower_dot", "flat"),
    ("hoist_conditions", "flat"),  # of a loop once, before it is written out
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
            verify(func, stage)
    return func


@deep_recursion()
def lower(
    sch: Any,
    args: Sequence[Any] | None = None,
    name: str = "main",
    simple_mode: bool = False,
    binds: dict[Any, Buffer] | None = None,
    target: str | Target | None = None,
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
        funcs = [_to_loops(sch, args, name, binds, tgt)]
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


def _to_loops(sch: Any, args: Sequence[Any] | None, name: str, binds: dict[Any, Buffer] | None, target: Target) -> Func:
    if hasattr(sch, "__tec_schedule__"):
        sch, args = sch.__tec_schedule__(() if args is None else args, target)

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
    return to_loops(sch, list(args), name=name, binds=binds, on_cpu=not target.is_gpu)


@deep_recursion()
def build(
    inputs: Any,
    args: Sequence[Any] | None = None,
    target: str | Target | None = None,
    target_host: str | Target | None = None,
    name: str = "main",
    binds: dict[Any, Buffer] | None = None,
    check: str | None = None,
) -> Any:
    """Compile a schedule (or loop IR) to a runtime Module.

    inputs: a Schedule with `args` (Tensors, Buffers, Vars in call order), a Func, an IRModule, or a list of them; or a `tec.template` with `args`
    for it, whose best recorded choice is taken.
    target: text or Target, the current one by default. target_host: the CPU that launches; "llvm" is the only kind.
    check: "bounds" makes CPU code ask each access that is not proved to be inside of its buffer, "" none; TEC_CHECK says
    so by default. A failed one is a TecError that names the te line; `get_source("bounds")` lists them.
    For a GPU the result's one imported module holds the device code; for the CPU the module holds all.
    Raises ScheduleError, LoweringError, CodegenError, TargetError.
    """
    client.start()  # beside the lowering
    tgt = as_target(target)
    target_host = target_host if target_host is not None else tgt.host
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
            loops = [_to_loops(inputs, args, name, binds, tgt)]
        building = Building(tgt, checks_bounds(check))
        for f in loops:
            building.add(f)
        return building.finish()


_WATCHERS: list[Callable[[Any], None]] = []


@contextmanager
def watched(show: Callable[[Any], None]) -> Iterator[None]:
    """Call `show(module)` with each module that is built in the block, by any thread."""
    _WATCHERS.append(show)
    try:
        yield
    finally:
        _WATCHERS.remove(show)


class Building:
    """A module in the making: each function that is added is lowered, and LLVM begins with it in a process of its own, while the
    next is lowered. `finish` waits for the code, and joins it to one object. Each CPU function or GPU kernel is compiled by itself, so
    that what did not change comes from the disk cache, and that IR, LLVM and assembly are known for each."""

    def __init__(self, target: Target, checked: bool = False):
        from .codegen import begin_cpu, begin_kernels

        self.target = target
        self.checked = checked  # whether CPU code asks its accesses, see `build`
        self._begin: Callable[..., Callable[[], Any]] = begin_kernels if target.is_gpu else begin_cpu
        self._functions: dict[str, dict[str, Any]] = {}
        self._ir: dict[str, str] = {}  # of the functions as they run on the host
        # CPU functions or kernels, the functions they belong to, their text, and what waits for their code
        self._parts: list[tuple[Func, str, str, Callable[[], Any]]] = []

    @deep_recursion()
    def add(self, loops: Func) -> None:
        """A function of stage "loops"; the first is the entry. Raises LoweringError, CodegenError."""
        if not isinstance(loops, Func):
            raise ArgumentError(
                f"expected loop IR, got {type(loops).__name__}", hint="build a Schedule, a Func or an IRModule"
            )
        origin, lowered = _lowered(uniquely_named(loops), self.target, self.checked)
        if lowered.name in self._functions:
            raise ArgumentError(f"two functions are called {lowered.name}")
        made = [lowered]
        align = None if self.target.is_gpu else CPU_ALIGN
        entry: dict[str, Any] = {"signature": signature(origin, lowered, align)}
        if self.target.is_gpu:
            host, made = split_host_device(lowered, self.target)
            entry["program"] = host_program(host)
            self._ir[lowered.name] = str(host)
        self._functions[lowered.name] = entry
        for part in made:
            text, places = func_with_lines(part)
            self._parts.append((part, lowered.name, text, self._begin([part], self.target, places=places)))

    def finish(self) -> Any:
        """The module. Raises CodegenError."""
        module = (self._gpu_module if self.target.is_gpu else self._cpu_module)()
        for show in list(_WATCHERS):
            show(module)
        return module

    def _cpu_module(self) -> Any:
        from .codegen import merge_objects
        from .runtime import Module

        asked = {f.name: "\n".join(dict.fromkeys(f.attrs.get("unproved", ()))) for f, _, _, _ in self._parts}
        if self.checked and any(asked.values()):
            text = "\n".join(filter(None, asked.values()))
            print(f"accesses that are asked at run time, as they are not proved to be inside:\n{text}", file=sys.stderr)
        objects, texts = [], {}
        for f, _, ir, wait in self._parts:
            code = wait()
            self._functions[f.name]["asserts"] = code.messages.get(f.name, [])
            objects.append(code.object)
            texts[f.name] = {"ir": ir, "llvm": code.llvm, "asm": lambda code=code: code.asm}
            if self.checked:
                texts[f.name]["bounds"] = asked[f.name]
        image = merge_objects(objects) if objects else b""
        return Module("llvm", functions=self._functions, image=image, texts=texts, target=str(self.target))

    def _gpu_module(self) -> Any:
        from .codegen import join_kernels
        from .runtime import Module

        codes = [wait() for *_, wait in self._parts]
        joined, imported = join_kernels(codes, self.target), []
        texts: dict[str, dict[str, Any]] = {}
        for (kernel, function, ir, _), code in zip(self._parts, codes):
            joined.kernels[kernel.name]["function"] = function
            texts[kernel.name] = {"ir": ir, "llvm": code.llvm}
            texts[kernel.name]["asm"] = code.asm if self.target.kind == "cuda" else lambda code=code: code.asm
        if codes:
            whole = joined.image.rstrip(b"\0").decode() if self.target.kind == "cuda" else ""
            imported = [
                Module(
                    self.target.kind, image=joined.image, texts=texts, target=str(self.target), attrs={"kernels": joined.kernels},
                    sources={"asm": whole, "ptx": whole} if whole else {},
                )
            ]  # fmt: skip
        ir = "\n\n".join(self._ir.values())
        return Module("llvm", functions=self._functions, sources={"ir": ir}, imported=imported, target=str(self.target))


__all__ = ["PIPELINE", "Building", "Var", "build", "lower", "run_passes"]
