"""Cut a lowered function into a host part and the kernels that it launches, and check the target's limits.

In: stage "lowered", each kernel a nest of launch loops (see unify_threads). Out: `(host, kernels)`. A kernel's
parameters are the flat buffers and the scalars that its body uses; its attrs are
`kernel` True, `threads` {tag: (Var, extent)}, `max_threads` (threads of a work-group), `lds_bytes`, `writes` (names).
The host has `Evaluate(Call("launch", args, attrs={"kernel", "grid", "block", "dyn_shared"}))` in each kernel's place; a
buffer argument is the buffer's data pointer variable. A function whose attrs have `early_start` may have kernels that begin before the one ahead has ended. On a CPU
target the host is the whole function.
"""

from __future__ import annotations

from ...errors import Loc, LoweringError
from ...runtime.modules.callbacks import parse
from ...target import Target
from .. import build as B
from .. import expr as E
from .. import stmt as S
from ..buffer import Buffer
from ..dtype import dtype_info
from ..effects import effects
from ..func import Func
from ..notes import EarlyStart, MinBlocks
from ..shared_layout import PIECE_BYTES, boundary_of, shared_layout
from ..visit import any_stmt, free_vars, map_stmts, visit
from .pipeline.tensor_maps import SCOPE, tensor_maps
from .rewrite_util import BLOCK_TAGS, LAUNCH_TAGS, THREAD_TAGS, const_int, is_launch_loop

# Of shared memory of a kernel that begins early unasked. One H200, a decoder's step of 32 texts: norms so 343 us for 352, tiles of products too 389.
_SUMS_BYTES = 4096


def split_host_device(func: Func, target: Target) -> tuple[Func, list[Func]]:
    """The host function and its kernels; see the module. Raises LoweringError where a limit of the target is broken."""
    if not target.is_gpu:
        return func, []
    kernels: list[Func] = []
    order = {id(p): k for k, p in enumerate(func.params)}
    host_buffers: list[Buffer] = [p for p in func.params if isinstance(p, Buffer)]

    def host(s: S.Stmt) -> S.Stmt:
        if is_launch_loop(s):
            assert isinstance(s, S.For)
            kernel, launch = _kernel(s, f"{func.name}_kernel{len(kernels)}", func, order, target)
            kernels.append(kernel)
            return launch
        if isinstance(s, S.Alloc):
            if s.buffer.scope != "global":
                raise LoweringError(
                    f"{s.buffer.name} ({s.buffer.scope} memory) is not inside of a thread-bound loop",
                    where=s.buffer.loc,
                    hint="compute it at a stage whose loops are bound to threads, or leave its scope global",
                    locate=False,
                )
            order.setdefault(id(s.buffer), len(order))
            host_buffers.append(s.buffer)
        _check_host(s, target)
        return map_stmts(s, host)

    body = host(func.body)
    return func.with_body(body, kernels=tuple(k.name for k in kernels)), kernels


def _check_host(s: S.Stmt, target: Target) -> None:
    """No memory access on the host side of a GPU function."""
    if isinstance(s, S.BufferStore):
        raise LoweringError(
            f"{s.buffer.name} is computed outside of loops that are bound to threads, so no kernel of {target} computes it",
            where=s.loc or s.buffer.loc,
            hint=f'bind the loops: s[{s.buffer.name}].bind(axis, tec.thread_axis("blockIdx.x")) and "threadIdx.x", or compute_at a stage that is bound',
            locate=False,
        )
    exprs: list[E.Expr] = []
    if isinstance(s, S.Evaluate):
        if isinstance(s.value, E.Call) and s.value.op == "call_extern" and parse((s.value.attrs or {})["symbol"]):
            return  # a registered function is given addresses, and reads the memory itself
        exprs = [s.value]
    elif isinstance(s, (S.IfThenElse, S.While, S.Assert)):
        exprs = [s.cond]
    elif isinstance(s, S.For):
        exprs = [s.min, s.extent]
        if s.kind == S.ForKind.PARALLEL:
            raise LoweringError("a parallel loop is for CPU targets", hint="bind the axis to a thread axis instead")
    elif isinstance(s, S.LetStmt):
        exprs = [s.value]
    elif isinstance(s, S.AllReduce):
        raise LoweringError(
            "a reduction across threads stands outside of thread-bound loops",
            where=s.loc,
            locate=False,
            hint='bind the reduction axis and an outer axis: s[C].bind(k, te.thread_axis("threadIdx.x"))',
        )
    for e in exprs:
        for access in effects(e).accesses:
            raise LoweringError(
                f"{access.buffer.name} is read outside of loops that are bound to threads, on the host side of a kernel of {target}",
                where=access.buffer.loc,
                hint='bind the loops with tec.thread_axis("blockIdx.x") and "threadIdx.x"',
                locate=False,
            )


def _kernel(root: S.For, name: str, func: Func, order: dict[int, int], target: Target) -> tuple[Func, S.Stmt]:
    """The function of a nest of launch loops, and the launch that the host makes in its place. Raises LoweringError where a target has no room for it."""
    threads: dict[str, tuple[E.Var, E.Expr]] = {}
    body: S.Stmt = root
    while isinstance(body, S.For) and is_launch_loop(body) and body.thread not in threads:
        threads[body.thread] = (body.var, body.extent)
        body = body.body
    _check_body(body)
    where = _first_loc(body)
    block = [_thread_extent(threads, tag, where) for tag in THREAD_TAGS]
    _check_threads(block, threads, target, where)
    lds, parts = _shared_bytes(body)
    if any(boundary_of(b) > PIECE_BYTES for b, _ in parts):
        lds = shared_layout(body)[1]
    if lds > target.lds_bytes:
        detail = ", ".join(f"{b.name}: {n}" for b, n in parts)
        raise LoweringError(
            f"{lds} bytes of shared memory in a block ({detail}), but {target} has {target.lds_bytes}",
            where=parts[0][0].loc or where,
            hint="use smaller tiles, or fewer stages of software pipelining",
            locate=False,
        )
    body, maps = tensor_maps(body) if target.kind == "cuda" else (body, [])
    resident = _resident_blocks(body)
    # Of a function that may (attribute "early_start") each kernel with no more shared memory than sums meet in: tiles' work-groups would come where there is
    # room first, and leave some units with more of them than others.
    early = target.chip.early_start and (
        (bool(func.attrs.get("early_start")) and lds <= _SUMS_BYTES)
        or any_stmt(body, lambda s: isinstance(s, S.Attr) and isinstance(s.note, EarlyStart))
    )
    params, written = _parameters(body, [v for v, _ in threads.values()], order)
    grid = tuple([threads[t][1] if t in threads else E.IntImm(1) for t in BLOCK_TAGS])
    made = {id(b): call for b, call in maps}
    loads = tuple([made.get(id(p), p.data) if isinstance(p, Buffer) else p for p in params])
    attrs = {
        "kernel": True,
        "threads": threads,
        "max_threads": block[0] * block[1] * block[2],
        "lds_bytes": lds,
        "writes": tuple(sorted(written)),
        **({"min_blocks": resident} if resident else {}),
        **({"early_start": True} if early else {}),
        **{k: v for k, v in func.attrs.items() if k in ("fast_math", "noalias", "loc", "import_llvm")},
    }
    # More than a kernel may have by itself is asked for at the launch.
    dynamic = shared_layout(body)[1] if lds > target.static_lds_bytes else 0
    launch_attrs = {
        "kernel": name,
        "grid": grid,
        "block": tuple(E.IntImm(n) for n in block),
        "dyn_shared": E.IntImm(dynamic),
        "early": early,
    }
    return Func(name, params, body, attrs), S.Evaluate(E.Call("launch", loads, "int32", launch_attrs))


def _check_threads(
    block: list[int], threads: dict[str, tuple[E.Var, E.Expr]], target: Target, where: Loc | None
) -> None:
    """Refuse more threads than the target allows."""
    count = block[0] * block[1] * block[2]
    if count > target.max_threads:
        shape = " x ".join(f"{t}: {n}" for t, n in zip(THREAD_TAGS, block) if t in threads)
        raise LoweringError(
            f"{count} threads in a block ({shape}), but {target} allows {target.max_threads}",
            where=where,
            hint="split with smaller factors before binding to threadIdx",
            locate=False,
        )
    for tag, n in zip(THREAD_TAGS, block):
        limit = 64 if target.kind == "cuda" and tag == "threadIdx.z" else 1024
        if n > limit:
            raise LoweringError(
                f"{tag} has {n} threads, but {target} allows {limit} along it",
                where=where,
                locate=False,
                hint=f"split the loop by {limit} or less, and bind the outer part to blockIdx",
            )


def _resident_blocks(body: S.Stmt) -> int:
    """The work-groups that a unit is to hold at once, by `pragma(axis, "min_blocks", n)`: a bound on registers (NVIDIA)."""
    found = 0

    def on_stmt(s: S.Stmt) -> None:
        nonlocal found
        if isinstance(s, S.Attr) and isinstance(s.note, MinBlocks):
            found = max(found, s.note.blocks)

    visit(body, None, on_stmt)
    return found


def _thread_extent(threads: dict[str, tuple[E.Var, E.Expr]], tag: str, where: Loc | None) -> int:
    if tag not in threads:
        return 1
    n = const_int(threads[tag][1])
    if n is None:
        raise LoweringError(
            f"the extent of {tag} is {threads[tag][1]}, which is not a constant",
            where=where,
            hint="split the axis by a constant factor and bind the inner axis to threads, the outer one to blocks",
            locate=False,
        )
    if n < 1:
        raise LoweringError(f"the extent of {tag} is {n}", where=where, locate=False, hint="an extent of 1 or more")
    return n


def _first_loc(body: S.Stmt) -> Loc | None:
    found: list[Loc] = []

    def on_stmt(s: S.Stmt) -> None:
        if isinstance(s, (S.BufferStore, S.AllReduce)) and s.loc is not None:
            found.append(s.loc)

    visit(body, None, on_stmt)
    return found[-1] if found else None


def _check_body(body: S.Stmt) -> None:
    def on_stmt(s: S.Stmt) -> None:
        if isinstance(s, S.For):
            if s.kind == S.ForKind.THREAD:
                raise LoweringError(
                    f"a loop over {s.thread} is left inside of a kernel",
                    hint="run unify_threads first",
                )
            if s.kind == S.ForKind.PARALLEL:
                raise LoweringError(
                    "a parallel loop inside of a kernel",
                    hint="parallel is for CPU targets; bind the axis to a thread axis",
                )
        elif isinstance(s, S.Alloc) and s.buffer.scope == "global":
            raise LoweringError(
                f"{s.buffer.name} (global memory) is allocated inside of a kernel",
                where=s.buffer.loc,
                hint='set its scope to "shared" or "local", or compute it at root',
                locate=False,
            )

    visit(body, None, on_stmt)


def _shared_bytes(body: S.Stmt) -> tuple[int, list[tuple[Buffer, int]]]:
    """Bytes of static shared memory, with each buffer's part, largest first."""
    parts: dict[int, tuple[Buffer, int]] = {}

    def on_stmt(s: S.Stmt) -> None:
        if isinstance(s, S.Alloc) and s.buffer.scope == "shared":
            size: E.Expr = E.IntImm(1)
            for extent in s.buffer.shape:
                size = B.mul(size, extent)
            n = const_int(size)
            if n is None:
                raise LoweringError(
                    f"the size of {s.buffer.name} (shared memory) is {size}, which is not a constant",
                    where=s.buffer.loc,
                    hint="shared buffers need constant sizes: split with constant factors before compute_at",
                    locate=False,
                )
            info = dtype_info(s.buffer.dtype)
            parts[id(s.buffer)] = (s.buffer, n * info.bytes * info.lanes)

    visit(body, None, on_stmt)
    total = sum(-(-n // 16) * 16 for _, n in parts.values())
    return total, sorted(parts.values(), key=lambda p: -p[1])


def _parameters(
    body: S.Stmt, launch_vars: list[E.Var], order: dict[int, int]
) -> tuple[tuple[Buffer | E.Var, ...], set[str]]:
    """Buffers and scalars that `body` uses and does not make itself; and the names of the buffers that it writes."""
    buffers: dict[int, Buffer] = {}
    own: set[int] = set()
    written = {a.buffer.name for a in effects(body).accesses if a.is_write}

    def on_expr(e: E.Expr) -> None:
        if type(e) is E.BufferLoad:
            buffers.setdefault(id(e.buffer), e.buffer)

    def on_stmt(s: S.Stmt) -> None:
        if isinstance(s, S.BufferStore):
            buffers.setdefault(id(s.buffer), s.buffer)
        elif isinstance(s, S.Alloc):
            own.add(id(s.buffer.data))  # of views too
        elif isinstance(s, S.AllReduce):
            for d in s.dests:
                buffers.setdefault(id(d), d)

    visit(body, on_expr, on_stmt)
    used = [b for b in buffers.values() if id(b.data) not in own]
    # Tensor maps first: they are aligned to more than the others.
    used.sort(key=lambda b: -1 if b.scope == SCOPE else order.get(id(b), 1 << 30))
    launch = {id(v) for v in launch_vars}
    wanted = {id(v): v for v in free_vars(body) if id(v) not in launch and v.dtype != "handle"}
    for b in used:  # a kernel's text stands for itself: the sizes of its buffers are among its parameters
        for d in b.shape:
            wanted.update({id(v): v for v in free_vars(d)})
    scalars = list(wanted.values())
    scalars.sort(key=lambda v: order.get(id(v), 1 << 30))
    return (*used, *scalars), {n for n in written if any(b.name == n for b in used)}


__all__ = ["LAUNCH_TAGS", "split_host_device"]
