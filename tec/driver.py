"""lower() and build(): from a schedule to a module. The pass list below is the whole pipeline, top to bottom.

`TEC_DUMP=name[,name]` (or `all`) prints the IR after those passes to stderr; `TEC_VERIFY=1` verifies it after each;
`TEC_CHECK=bounds` (or `build(..., check="bounds")`) makes CPU code check the accesses that are not proved, and lists them.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .codegen.signature import CPU_ALIGN, host_program, signature, uniquely_named
from .collector import looks_rarely
from .door import of_tec
from .errors import ArgumentError, LoweringError, TecError, listed
from .ir import Buffer, Func, IRModule, Var
from .ir.buffer import FRAGMENT_SCOPES
from .ir.features import Features, features
from .ir.passes.rewrite_util import stmt_size
from .ir.passes.split_host_device import split_host_device
from .ir.printer import func_with_lines
from .ir.stmt import ForKind
from .ir.verify import verify
from .ir.visit import deep_recursion
from .llvmworker import client
from .records import dataclass
from .schedule import Schedule, to_loops
from .target import Target, as_target

if TYPE_CHECKING:
    from .runtime import Module

Pass = Callable[[Func, Target], Func]

# (pass, stage of the result). Each lives in tec/ir/passes/<name>.py as a function of that name; "pipeline.x" lives in tec/ir/passes/pipeline/x.py as x.
PIPELINE: tuple[tuple[str, str], ...] = (
    ("simplify", "loops"),
    ("split_wmma", "loops"),
    ("lower_fragments", "loops"),
    ("pipeline.bulk_copies", "loops"),
    ("swizzle_shared", "loops"),
    ("unify_threads", "loops"),
    ("check_extents", "loops"),
    ("whole_groups", "loops"),
    ("inject_prefetch", "loops"),
    ("inject_vthread", "loops"),
    ("pipeline.specialize_warps", "loops"),
    ("pipeline.commit_products", "loops"),
    ("pipeline.hold_epilogue", "loops"),
    ("pipeline", "loops"),
    ("pad_tiles", "loops"),
    ("pipeline.hold_sums", "loops"),
    ("partition_loops", "loops"),
    ("flatten_buffers", "flat"),
    ("simplify", "flat"),
    ("serialize_threads", "flat"),
    ("cut_loops", "flat"),
    ("vectorize_loops", "flat"),
    ("vectorize", "flat"),
    ("turn_squares", "flat"),
    ("lower_dot", "flat"),
    ("hoist_conditions", "flat"),  # of a loop once, before it is written out
    ("unroll", "flat"),
    ("hoist_conditions", "flat"),
    ("sum_in_runs", "flat"),  # of loops without a condition
    ("own_vectors", "flat"),
    ("remove_noop", "flat"),
    ("compare_numbers", "flat"),
    ("plan_storage", "flat"),
    ("insert_barriers", "flat"),
    ("lower_allreduce", "flat"),
    ("lower_math", "lowered"),
    ("simplify", "lowered"),
    ("remove_noop", "lowered"),
    ("whole_tiles", "lowered"),
    ("join_launches", "lowered"),
)
# What a function must have for a pass to change anything. Passes that are not here look for themselves; those that are do too, so that leaving one out here is
# never wrong, only quicker: most functions have none of it, and a pass that is not run is not imported.
ACTS: dict[str, Callable[[Func, Target, Callable[[], Features]], bool]] = {
    "split_wmma": lambda f, target, has: "Fragment" in has().notes,
    "lower_fragments": lambda f, target, has: not has().scopes.isdisjoint(FRAGMENT_SCOPES),
    "pipeline.bulk_copies": lambda f, target, has: not has().notes.isdisjoint(("BulkCopy", "SoftwarePipeline")),
    "swizzle_shared": lambda f, target, has: "Swizzle" in has().notes,
    "check_extents": lambda f, target, has: has().has_open_loops,
    "whole_groups": lambda f, target, has: target.kind == "rocm",
    "inject_prefetch": lambda f, target, has: "prefetch" in has().calls,
    "inject_vthread": lambda f, target, has: "vthread" in has().threads,
    "pipeline.specialize_warps": lambda f, target, has: "WarpSpecialize" in has().notes,
    "pipeline.commit_products": lambda f, target, has: "SoftwarePipeline" in has().notes,
    "pipeline.hold_epilogue": lambda f, target, has: target.kind == "rocm" and "mma" in has().calls,
    "pipeline": lambda f, target, has: has().has_double_buffers or not has().notes.isdisjoint(("SoftwarePipeline", "SoftwarePipelineOrder")),
    "pad_tiles": lambda f, target, has: target.is_gpu,
    "pipeline.hold_sums": lambda f, target, has: target.kind == "cuda" and "local" in has().scopes,
    "serialize_threads": lambda f, target, has: not target.is_gpu and bool(f.attrs.get("simt")),
    "cut_loops": lambda f, target, has: not target.is_gpu,
    "vectorize_loops": lambda f, target, has: not target.is_gpu,
    "sum_in_runs": lambda f, target, has: not target.is_gpu and "InRuns" in has().notes,
    "own_vectors": lambda f, target, has: not target.is_gpu,
    "turn_squares": lambda f, target, has: not target.is_gpu and ForKind.UNROLLED in has().loops,
    "lower_dot": lambda f, target, has: bool(target.chip.dot4),
    "compare_numbers": lambda f, target, has: not target.is_gpu,
    "insert_barriers": lambda f, target, has: target.is_gpu and not f.attrs.get("simt"),
    "lower_allreduce": lambda f, target, has: has().has_allreduce,
    "whole_tiles": lambda f, target, has: target.kind == "cuda",
    "join_launches": lambda f, target, has: bool(f.attrs.get("side_by_side")),
}  # fmt: skip
SIMPLE_MODE_PASSES = 6  # simple_mode stops here: loops that are still those of the schedule


def short_name(name: str) -> str:
    """A pass's name without its folder, as TEC_DUMP and the pass's own function have it."""
    return name.rpartition(".")[2]


def _find_pass(name: str) -> Pass:
    module = importlib.import_module(f"tec.ir.passes.{name}")
    found: Pass = getattr(module, short_name(name))
    return found


def checks_bounds(check: str | None) -> bool:
    """Whether CPU code asks its accesses: as `check` says, as TEC_CHECK does where that is None."""
    return "bounds" in (os.environ.get("TEC_CHECK", "") if check is None else check).split(",")


def run_passes(
    func: Func,
    target: Target,
    passes: Sequence[tuple[str, str]] = PIPELINE,
    check_bounds: bool = False,
    most: int | None = None,
) -> Func:
    """The passes in order, with dumping and verification as the environment asks. most: statements that unrolling may leave, None for no bound.

    >>> A = te.placeholder((8,), name="A")
    >>> B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
    >>> loops = tec.schedule.to_loops(te.create_schedule(B.op), [A, B])
    >>> print(tec.driver.run_passes(loops, tec.Target("llvm"), passes=[("flatten_buffers", "lowered")]))
    @attrs(writes=('B',))
    def main(A: Buffer((8,), "float32"), B: Buffer((8,), "float32")):
        for i in range(8):
            B[i] = A[i] + 1.0
    """
    if check_bounds and not target.is_gpu:
        passes = (("check_bounds", "loops"), *passes)
    dump = set(filter(None, os.environ.get("TEC_DUMP", "").split(",")))
    check = os.environ.get("TEC_VERIFY") == "1"
    known: tuple[Any, Features] | None = None  # of a body

    def has() -> Features:
        nonlocal known
        if known is None or known[0] is not func.body:
            known = func.body, features(func.body)
        return known[1]

    for name, stage in passes:
        if name not in ACTS or ACTS[name](func, target, has):
            func = _find_pass(name)(func, target)
        if dump and (short_name(name) in dump or "all" in dump):
            print(f"# after {name}\n{func}\n", file=sys.stderr)
        if most is not None and name == "unroll" and (n := stmt_size(func.body)) > most:
            raise LoweringError(f"{func.name} is unrolled to {n:,} statements; {most:,} is the bound", locate=False)
        if check:
            verify(func, stage)
    return func


@of_tec(LoweringError).named("tec.lower")
@deep_recursion()
def lower(
    sch: Any,
    args: Sequence[Any] | None = None,
    name: str = "main",
    simple_mode: bool = False,
    binds: dict[Any, Buffer] | None = None,
    target: str | Target | None = None,
) -> IRModule:
    """The loop IR of a schedule.

    sch: a Schedule, or a Func or IRModule, on which only the passes run. args: the parameters of the function in
    order: Tensors, Buffers, Vars. name: of the function. simple_mode: keep the schedule's own loops; otherwise the
    whole pipeline runs. binds: from a tensor to a Buffer of `tec.decl_buffer`, for layouts of your own. target: text
    or Target, by default the current one. Returns an IRModule with one function, from which `build` makes the same
    module as from the schedule. Raises ScheduleError, LoweringError.

    >>> A = tec.placeholder((8,), name="A")
    >>> B = tec.compute((8,), lambda i: A[i] * 2.0, name="B")
    >>> print(tec.lower(tec.create_schedule(B.op), [A, B], simple_mode=True))
    @attrs(writes=('B',))
    def main(A: Buffer((8,), "float32"), B: Buffer((8,), "float32")):
        for i in range(8):
            B[i] = A[i] * 2.0
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


def _lowered(f: Func, target: Target, checked: bool, most: int | None = None) -> tuple[Func, Func]:
    """A function as callers see it, and of stage "lowered", where parameters are flat and sizes explicit.

    What `lower` gives is lowered already, and knows what it was made of.
    """
    if "lowered_from" not in f.attrs:
        return f, run_passes(f, target, check_bounds=checked, most=most)
    origin, have = f.attrs["lowered_from"]
    if str(have) != str(target):
        raise ArgumentError(
            f"{f.name} was lowered for {have}, and is built for {target}",
            hint=f'build it for "{have}", or lower the schedule with target="{target}"',
        )
    return origin, f


def _to_loops(
    sch: Any,
    args: Sequence[Any] | None,
    name: str,
    binds: dict[Any, Buffer] | None,
    target: Target,
    reads_checked: bool = True,
) -> Func:
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
    return to_loops(sch, list(args), name=name, binds=binds, on_cpu=not target.is_gpu, reads_checked=reads_checked)


@of_tec(ArgumentError).named("tec.build")
@looks_rarely()
@deep_recursion()
def build(
    inputs: Any,
    args: Sequence[Any] | None = None,
    target: str | Target | None = None,
    target_host: str | Target | None = None,
    name: str = "main",
    binds: dict[Any, Buffer] | None = None,
    check: str | None = None,
) -> Module:
    """Compile a schedule or loop IR to a runtime Module.

    inputs: a Schedule with `args`, a Func, an IRModule, or a list of them; or a `tec.template` with `args` for it,
    whose best recorded choice is used. args: Tensors, Buffers and Vars in the order of the call. target: text or
    Target, by default the current one. target_host: the CPU that launches; "llvm" is the only kind. name: of the
    function. binds: as for `lower`. check: "bounds" makes CPU code check each access that is not proved to be inside
    its buffer, "" checks none; TEC_CHECK decides by default. A failed check is a TecError that names the te line, and
    `get_source("bounds")` lists the checks. Returns a Module: for the CPU it contains the code, and for a GPU its one
    imported module does. Raises ScheduleError, LoweringError, CodegenError, TargetError.

    >>> A = tec.placeholder((8,), name="A")
    >>> B = tec.compute((8,), lambda i: A[i] * 2.0, name="B")
    >>> double = tec.build(tec.create_schedule(B.op), [A, B], "llvm")
    >>> a, b = tec.nd.array(np.ones(8, "float32")), tec.nd.empty((8,), "float32")
    >>> double(a, b)
    >>> b.numpy().tolist()[:2]
    [2.0, 2.0]
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


@dataclass(frozen=True)
class Lowered:
    """A function after all passes: `func`, and the parts that code is made of (CPU functions or kernels). origin: the function as callers see it;
    host: what launches kernels, None on a CPU."""

    origin: Func
    func: Func
    parts: tuple[Func, ...]
    host: Func | None


@deep_recursion()
def lowered(
    loops: Func, target: Target, checked: bool = False, most: int | None = None, fresh: bool = False
) -> Lowered:
    """Run all passes on a function of stage "loops" and cut it into parts; the limits of the target are checked. No code is made. most: see `run_passes`;
    fresh: see `uniquely_named`.
    Raises LoweringError, CodegenError.

    >>> A = te.placeholder((8,), name="A")
    >>> B = te.compute((8,), lambda i: A[i] + 1.0, name="B")
    >>> loops = tec.schedule.to_loops(te.create_schedule(B.op), [A, B])
    >>> tec.driver.lowered(loops, tec.Target("llvm")).host is None
    True
    """
    if not isinstance(loops, Func):
        raise ArgumentError(
            f"expected loop IR, got {type(loops).__name__}", hint="build a Schedule, a Func or an IRModule"
        )
    origin, func = _lowered(uniquely_named(loops, fresh), target, checked, most)
    if not target.is_gpu:
        return Lowered(origin, func, (func,), None)
    host, kernels = split_host_device(func, target)
    return Lowered(origin, func, tuple(kernels), host)


# What to build in place of a function that LLVM refused: takes the error, and raises it where there is nothing.
Instead = Callable[[Exception], Lowered]


@dataclass
class _Part:
    """A CPU function or a kernel: its IR as text, and what waits for its code."""

    func: Func
    ir: str
    wait: Callable[[], Any]


class Building:
    """A module in the making: each function that is added is lowered, and LLVM begins with it in a process of its own, while the
    next is lowered. `finish` waits for the code, and joins it to one object. Each CPU function or GPU kernel is compiled by itself, so
    that what did not change comes from the disk cache, and that IR, LLVM and assembly are known for each.

    A function may come with what to build in its place (`instead`), which is asked where LLVM refuses one of its parts: for what it cannot select, and for code
    that needs more scratch or shared memory than the chip has ("stack frame size exceeds limit").

    early: whether kernels may begin before the ones ahead have ended (NVIDIA, sm_90); who makes functions says so in their attributes (`split_host_device`)."""

    def __init__(self, target: Target, checked: bool = False, early: bool = False):
        from .codegen import begin_cpu, begin_kernels

        self.target = target
        self.checked = checked  # whether CPU code asks its accesses, see `build`
        self.early = early
        self._begin: Callable[..., Callable[[], Any]] = begin_kernels if target.is_gpu else begin_cpu
        self._functions: dict[str, dict[str, Any]] = {}
        self._ir: dict[str, str] = {}  # of the functions as they run on the host
        self._parts: dict[str, list[_Part]] = {}  # by function
        self._instead: dict[str, Instead] = {}

    @deep_recursion()
    def add(self, function: Func | Lowered, instead: Instead | None = None, fresh: bool = False) -> None:
        """A function of stage "loops", or one that is lowered already; the first is the entry. Nothing is added where it raises. fresh: see `uniquely_named`.
        Raises LoweringError, CodegenError."""
        low = function if isinstance(function, Lowered) else lowered(function, self.target, self.checked, fresh=fresh)
        if low.func.name in self._functions:
            raise ArgumentError(
                f"two functions are called {low.func.name}", hint="tec.build(..., name=...) names a function"
            )
        self._set(low)
        if instead is not None:
            self._instead[low.func.name] = instead

    def _set(self, low: Lowered) -> None:
        """Begin with the code of a function, in place of one of its name that was there."""
        align = None if self.target.is_gpu else CPU_ALIGN
        entry: dict[str, Any] = {"signature": signature(low.origin, low.func, align)}
        if low.host is not None:
            entry["program"] = host_program(low.host)
        parts = []
        for part in low.parts:
            text, places = func_with_lines(part)
            parts.append(_Part(part, text, self._begin([part], self.target, places=places)))
        name = low.func.name
        self._functions[name], self._parts[name] = entry, parts
        if low.host is not None:
            self._ir[name] = str(low.host)

    def _codes(self) -> list[tuple[str, _Part, Any]]:
        """The function, the part and its code, of all parts. Raises CodegenError where LLVM refused one, and nothing stands in."""
        return [(name, *made) for name in list(self._parts) for made in self._code_of(name)]

    def _code_of(self, name: str) -> list[tuple[_Part, Any]]:
        while True:
            try:
                return [(part, part.wait()) for part in self._parts[name]]
            except Exception as error:  # also a mistake in code generation: another function may not meet it
                self._replace(name, error)

    def _replace(self, name: str, error: Exception) -> None:
        """Begin with what stands in for a function. Raises the error where nothing does."""
        while True:
            if name not in self._instead:
                raise error
            low = self._instead[name](error)
            try:
                self._set(low)
                return
            except Exception as another:  # LLVM IR cannot say it
                error = another

    def finish(self) -> Module:
        """The module. Raises CodegenError."""
        module: Module = (self._gpu_module if self.target.is_gpu else self._cpu_module)()
        for show in list(_WATCHERS):
            show(module)
        return module

    def _cpu_module(self) -> Any:
        from .codegen import merge_objects
        from .codegen.cpu.features import required_features
        from .runtime import Module

        codes = self._codes()
        asked = {p.func.name: "\n".join(dict.fromkeys(p.func.attrs.get("unproved", ()))) for _, p, _ in codes}
        if self.checked and any(asked.values()):
            text = "\n".join(filter(None, asked.values()))
            print(f"accesses that are asked at run time, as they are not proved to be inside:\n{text}", file=sys.stderr)
        objects, texts = [], {}
        for _, part, code in codes:
            f = part.func
            self._functions[f.name]["asserts"] = code.messages.get(f.name, [])
            objects.append(code.object)
            texts[f.name] = {"ir": part.ir, "llvm": code.llvm, "asm": lambda code=code: code.asm}
            if self.checked:
                texts[f.name]["bounds"] = asked[f.name]
        image = merge_objects(objects) if objects else b""
        attrs = {"cpu_features": list(required_features(self.target))}
        return Module("llvm", functions=self._functions, image=image, texts=texts, target=str(self.target), attrs=attrs)

    def _gpu_module(self) -> Any:
        from .codegen import join_kernels
        from .runtime import Module

        codes = self._codes()
        joined, imported = join_kernels([code for *_, code in codes], self.target), []
        texts: dict[str, dict[str, Any]] = {}
        for function, part, code in codes:
            kernel = part.func
            joined.kernels[kernel.name]["function"] = function
            texts[kernel.name] = {"ir": part.ir, "llvm": code.llvm}
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


__all__ = ["ACTS", "PIPELINE", "Building", "Lowered", "Var", "build", "lower", "lowered", "run_passes"]


__dir__ = listed(__name__)
