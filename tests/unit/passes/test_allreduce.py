"""Reductions across threads: every way of lowering, against the interpreter's reading of AllReduce itself."""

from __future__ import annotations

import numpy as np
import pytest
from pass_util import ALL, GPU, GPU32, apply, count

from tec.errors import LoweringError
from tec.ir import AllReduce, Buffer, CommReducer, Func, IntImm, IRModule, Select, Var
from tec.ir import build as B
from tec.ir import expr as E
from tec.ir import stmt as S
from tec.ir.interp import run
from tec.ir.passes.split_host_device import split_host_device
from tec.target import Target
from tests.thinned import thinned


def sum_reducer(dtype: str = "float32") -> CommReducer:
    x, y = Var("x", dtype), Var("y", dtype)
    return CommReducer((x,), (y,), (B.add(x, y),), (B.const(0, dtype),), "sum")


def argmax_reducer() -> CommReducer:
    xi, xv, yi, yv = Var("xi"), Var("xv", "float32"), Var("yi"), Var("yv", "float32")
    take = E.GE(xv, yv)
    return CommReducer(
        (xi, xv),
        (yi, yv),
        (Select(take, xi, yi), Select(take, xv, yv)),
        (B.const(-1), B.const(-1e30, "float32")),
        "argmax",
    )


def thread(tag: str, extent: int) -> S.For:
    return S.For(Var(tag.replace("threadIdx.", "t")), IntImm(0), IntImm(extent), S.NOP, S.ForKind.THREAD, tag)


def make(
    block: tuple[int, int, int],
    over: str,
    reducer: CommReducer,
    dtype: str = "float32",
    limit: int | None = None,
    steps: int = 1,
) -> Func:
    """out[z, y, x] (and the index for argmax) = the reduction over the axes named in `over`, at every thread."""
    nx, ny, nz = block
    loops = [thread("threadIdx.x", nx), thread("threadIdx.y", ny), thread("threadIdx.z", nz)]
    x, y, z = (f.var for f in loops)
    a = Buffer("A", dtype, tuple(IntImm(n) for n in (steps, nz, ny, nx)))
    outs = [Buffer(f"out{k}", v.dtype, a.shape) for k, v in enumerate(reducer.lhs)]
    dests = [Buffer(f"d{k}", v.dtype, (IntImm(1),), scope="local") for k, v in enumerate(reducer.lhs)]
    k = Var("k")
    value = E.BufferLoad(a, (k, z, y, x))
    values: tuple[E.Expr, ...] = (
        (value,) if len(reducer.lhs) == 1 else (B.add(B.mul(z, 10000), B.add(B.mul(y, 1000), x)), value)
    )
    cond: E.Expr = IntImm(1, "bool") if limit is None else E.LT(x, IntImm(limit))
    reduced = tuple(v for name, v in (("x", x), ("y", y), ("z", z)) if name in over)
    body: S.Stmt = S.seq(
        AllReduce(reducer, values, cond, tuple(dests), reduced),
        *[S.BufferStore(o, E.BufferLoad(d, (IntImm(0),)), (k, z, y, x)) for o, d in zip(outs, dests)],
    )
    for d in dests:
        body = S.Alloc(d, body)
    body = S.For(k, IntImm(0), IntImm(steps), body)
    for f in loops:
        body = S.For(f.var, f.min, f.extent, body, f.kind, f.thread)
    body = S.For(Var("bx"), IntImm(0), IntImm(1), body, S.ForKind.THREAD, "blockIdx.x")
    return Func("f", (a, *outs), body)


def check(func: Func, target: Target, tolerance: float = 1e-4) -> Func:
    out = apply(func, target, *ALL)
    assert count(out, AllReduce) == 0
    host, kernels = split_host_device(out, target)
    shapes = {p.name: (tuple(d.value for d in p.shape), p.dtype) for p in func.params}  # type: ignore[union-attr]
    rng = np.random.default_rng(2)
    want = {n: rng.integers(-4, 5, s).astype(d) for n, (s, d) in shapes.items()}
    got = {n: v.copy() for n, v in want.items()}
    run(func, want, wave=target.wavefront_size)
    flat = {n: v.reshape(-1) for n, v in got.items()}
    run(host, flat, wave=target.wavefront_size, check=True, module=IRModule({f.name: f for f in (host, *kernels)}))
    for n in want:
        np.testing.assert_allclose(got[n], want[n], rtol=tolerance, atol=tolerance)
    return kernels[0]


@thinned(1, ("target", [GPU, GPU32]), ("n", [2, 7, 16, 32, 48, 64, 96, 128, 192, 256, 1000, 1024]))
def test_one_axis_of_any_length(n: int, target: Target) -> None:
    kernel = check(make((n, 1, 1), "x", sum_reducer()), target)
    wave = target.wavefront_size
    if n & (n - 1) == 0 and n <= wave:
        assert count(kernel, "barrier") == 0 and kernel.attrs["lds_bytes"] == 0
    elif n % wave == 0:
        assert count(kernel, "barrier") == 1  # one value a wavefront, one meeting


@thinned(
    1, ("over", ["x", "y", "z", "xy", "xz", "yz", "xyz"]), ("block", [(8, 4, 2), (32, 4, 1), (3, 5, 2), (64, 2, 2)])
)
def test_any_subset_of_the_axes(block: tuple[int, int, int], over: str) -> None:
    check(make(block, over, sum_reducer()), GPU)


@thinned(
    1,
    ("target", [GPU, GPU32]),
    ("block", [(8, 4, 1), (8, 64, 1), (2, 16, 4), (16, 8, 2), (32, 16, 1), (4, 6, 1), (64, 4, 2)]),
)
def test_threads_that_are_as_far_apart(block: tuple[int, int, int], target: Target) -> None:
    """Shuffles within a wavefront, one meeting of all for more, whatever the distance; other counts by a tree."""
    kernel = check(make(block, "y", sum_reducer(), steps=2), target)
    x, y, _ = block
    if y & (y - 1) == 0 and x < target.wavefront_size:
        assert count(kernel, "barrier") == (0 if x * y <= target.wavefront_size else 2)
    check(make(block, "y", sum_reducer(), limit=1), target)


@pytest.mark.parametrize("block", [(8, 4, 1), (8, 64, 1)])
def test_ties_go_to_the_first_of_threads_apart(block: tuple[int, int, int]) -> None:
    nx, ny, _ = block
    func = apply(make(block, "y", argmax_reducer()), GPU, *ALL)
    host, kernels = split_host_device(func, GPU)
    a = np.random.default_rng(4).integers(-4, 5, (ny, nx)).astype(np.float32)
    index, value = np.zeros(nx * ny, np.int32), np.zeros(nx * ny, np.float32)
    run(host, [a.reshape(-1), index, value], check=True, module=IRModule({f.name: f for f in (host, *kernels)}))
    np.testing.assert_array_equal(index.reshape(ny, nx), np.tile(a.argmax(0) * 1000 + np.arange(nx), (ny, 1)))


@pytest.mark.parametrize("n", [16, 48, 256])
def test_only_some_threads_bring_a_value(n: int) -> None:
    check(make((n, 2, 1), "x", sum_reducer(), limit=n // 3), GPU)


@pytest.mark.parametrize("n", [16, 48, 64, 256])
def test_tuples_agree_on_all_threads_and_ties_go_to_the_first(n: int) -> None:
    # Values are small integers, so that there are many ties: every thread must end with the same winner, the lowest.
    func = apply(make((n, 2, 1), "x", argmax_reducer()), GPU, *ALL)
    host, kernels = split_host_device(func, GPU)
    a = np.random.default_rng(4).integers(-4, 5, (2, n)).astype(np.float32)
    index, value = np.zeros(2 * n, np.int32), np.zeros(2 * n, np.float32)
    run(host, [a.reshape(-1), index, value], check=True, module=IRModule({f.name: f for f in (host, *kernels)}))
    rows = np.arange(2)[:, None] * 1000
    np.testing.assert_array_equal(index.reshape(2, n), np.broadcast_to(a.argmax(1)[:, None] + rows, (2, n)))
    np.testing.assert_array_equal(value.reshape(2, n), np.broadcast_to(a.max(1)[:, None], (2, n)))


@pytest.mark.parametrize("n", [48, 256])
def test_staging_memory_is_not_overwritten_too_soon(n: int) -> None:
    kernel = check(make((n, 1, 1), "x", sum_reducer(), steps=3), GPU)
    assert count(kernel, "barrier") >= 2


def test_doubles_and_integers() -> None:
    check(make((64, 2, 1), "x", sum_reducer("float64"), "float64"), GPU)
    check(make((128, 1, 1), "x", sum_reducer("int32"), "int32"), GPU)


def test_a_reduction_over_blocks_is_an_error() -> None:
    func = make((32, 1, 1), "x", sum_reducer())
    block = func.body
    assert isinstance(block, S.For)

    def swap(s: S.Stmt) -> S.Stmt:
        from tec.ir.visit import map_stmt

        out = map_stmt(s, swap, lambda e: e)
        if isinstance(out, AllReduce):
            return AllReduce(out.combiner, out.values, out.predicate, out.dests, (block.var,))
        return out

    with pytest.raises(LoweringError, match="blockIdx"):
        apply(func.with_body(swap(func.body)), GPU, *ALL)
