"""Launching kernels: what is compiled when, where arrays are, what comes back by print and assert."""

from __future__ import annotations

import io
import timeit
from typing import Any

import numpy as np
import pytest

import tec
from tec.ir.verify import verify
from tests import counting

F32 = np.float32


def line_of(text: str) -> int:
    """The line of this file that has the text, behind a #."""
    lines = open(__file__, encoding="utf-8").read().splitlines()
    return next(k for k, line in enumerate(lines, 1) if line.endswith(f"# {text}"))


@tec.kernel
def scale(x, a):
    i = tec.grid_idx(1)
    if i < len(x):
        x[i] = x[i] * a


def devices() -> list[Any]:
    return [tec.cpu(), tec.rocm_emu("gfx942"), tec.rocm_emu("gfx1100")]


def test_one_code_for_one_type() -> None:
    """Sizes, grids and values of scalars come at run time; dtypes, dimensions and blocks make another code."""

    @tec.kernel
    def own(x, a):
        x[tec.grid_idx(1)] += a

    for n, blocks in ((32, 1), (64, 2), (96, 3)):
        x = np.zeros(n, F32)
        own[blocks, 32](x, 2.0 * n)
        assert (x == 2 * n).all()
    assert len(own._compiled) == 1
    own[1, 64](np.zeros(64, F32), 1.0)
    own[2, 32](np.zeros(64), 1.0)
    own[2, 32](np.zeros(64, F32), F32(1))
    assert len(own._compiled) == 4


def test_a_float_argument_keeps_its_digits() -> None:
    x, y = np.ones(1), np.ones(1, F32)
    scale[1, 1](x, 0.1)
    scale[1, 1](y, 0.1)
    assert x[0] == 0.1 and y[0] == F32(0.1)


@pytest.mark.parametrize("dev", devices(), ids=str)
def test_views_and_more_dimensions(dev: Any) -> None:
    @tec.kernel
    def fill(x, k):
        a, b, c = tec.grid_idx(3)
        if a < x.shape[0] and b < x.shape[1] and c < x.shape[2]:
            x[a, b, c] = 100 * a + 10 * b + c + k

    base = tec.nd.array(np.zeros((4, 6, 5), np.int32), dev)
    view = base[1:3, ::2, 1:]
    fill[(1, 1, 4), (4, 4, 1)](view, 7)
    want = np.zeros((4, 6, 5), np.int32)
    a, b, c = np.meshgrid(range(2), range(3), range(4), indexing="ij")
    want[1:3, ::2, 1:] = 100 * a + 10 * b + c + 7
    np.testing.assert_array_equal(base.numpy(), want)


def test_a_constant_from_outside_may_change() -> None:
    space = {"factor": 2}

    def make() -> Any:
        factor = space["factor"]

        def inner(x):
            x[tec.grid_idx(1)] = factor

        def change(v: int) -> None:
            nonlocal factor
            factor = v

        return tec.kernel(inner), change

    kernel, change = make()
    x = np.zeros(4, np.int32)
    launch = kernel[1, 4]
    launch(x)
    assert (x == 2).all()
    change(9)
    launch(x)
    assert (x == 9).all()


@pytest.mark.parametrize("dev", devices(), ids=str)
def test_arrays_may_share_memory(dev: Any) -> None:
    @tec.kernel
    def shift(x, y):
        i = tec.grid_idx(1)
        v = x[i]
        tec.barrier()
        y[i] = v + 1

    a = tec.nd.array(np.arange(64, dtype=F32), dev)
    shift[1, 64](a, a)
    np.testing.assert_array_equal(a.numpy(), np.arange(64) + 1)
    shift[1, 32](a[:32], a[16:48])
    np.testing.assert_array_equal(a.numpy()[16:48], np.arange(32) + 2)


def test_launch_chooses_blocks() -> None:
    @tec.kernel
    def count(out):
        i, j = tec.grid_idx(2)
        tec.atomic_add(out, (i, j), 1)

    for dev in devices():
        out = tec.nd.array(np.zeros((37, 50), np.int32), dev)
        count.launch((37, 50))(out)
        count.launch(37, 50, block=(2, 16))(out)
        assert (out.numpy() == 2).all()
    empty = np.zeros(0, F32)
    scale.launch(0)(empty, 1.0)
    scale[0, 32](empty, 1.0)


def test_launch_weighs_occupancy() -> None:
    """A kernel with much shared memory gets a block that fills the unit all the same."""

    @tec.kernel
    def heavy(x):
        s = tec.shared(6000, np.float32)
        i = tec.grid_idx(1)
        s[tec.thread_idx.x] = x[i]
        tec.barrier()
        x[i] = s[tec.block_dim.x - 1 - tec.thread_idx.x] + 1

    dev = tec.rocm_emu("gfx942")
    x = tec.nd.array(np.zeros(2048, F32), dev)
    launch = heavy.launch(2048)
    launch(x)
    assert (x.numpy() == 1).all()
    with pytest.raises(tec.KernelError, match="not all threads"):
        heavy.launch(2000)(x)
    (chosen,) = launch._chosen.values()
    assert chosen.block[0] > 256  # two work-groups of 24,000 bytes fit a unit: the more wavefronts in each the better


def test_a_stream_and_dynamic_shared_memory() -> None:
    @tec.kernel
    def reverse(x):
        s = tec.shared(None, np.float32)
        t = tec.thread_idx.x
        s[t] = x[t]
        tec.barrier()
        x[t] = s[tec.block_dim.x - 1 - t]

    for dev in devices():
        x = tec.nd.array(np.arange(96, dtype=F32), dev)
        stream = dev.stream()
        reverse[1, 96, stream, 96 * 4](x)
        stream.sync()
        np.testing.assert_array_equal(x.numpy(), np.arange(96)[::-1])


@pytest.mark.parametrize("dev", devices(), ids=str)
def test_print(dev: Any, capsys: Any) -> None:
    @tec.kernel
    def talk(x, n):
        i = tec.grid_idx(1)
        if i < n and x[i] > 2:
            print("x", i, x[i], x[i] > 3, sep="|")  # talks
            print(f"{x[i]:.2f} of {n:>3d} at {(i, n)}", end=";\n") if n > 0 else None

    x = tec.nd.array(np.array([1, 2.5, 0, 4], np.float64), dev)
    talk[2, 2](x, 4)
    here = __file__.rpartition("/")[2]
    k = line_of("talks")
    assert capsys.readouterr().out.splitlines() == [
        f"[{here}:{k} block (0, 0, 0) thread (1, 0, 0)] x|1|2.5|False",
        f"[{here}:{k + 1} block (0, 0, 0) thread (1, 0, 0)] 2.50 of   4 at (1, 4);",
        f"[{here}:{k} block (1, 0, 0) thread (1, 0, 0)] x|3|4.0|True",
        f"[{here}:{k + 1} block (1, 0, 0) thread (1, 0, 0)] 4.00 of   4 at (3, 4);",
    ]


def test_print_of_all_types(capsys: Any) -> None:
    @tec.kernel
    def types(a, b, c, d, e, f):
        print(a[0], b[0], c[0], d[0], e[0], f, tec.vload(a, 0, 2))

    args = [
        np.array([-3, 4], np.int8),
        np.array([2**40]),
        np.array([2**63 + 5], np.uint64),
        np.array([0.1], np.float16),
        np.array([True]),
    ]
    types[1, 1](*args, 0.1)
    assert (
        capsys.readouterr().out.partition("] ")[2]
        == f"-3 {2**40} {2**63 + 5} {float(np.float16(0.1))} True 0.1 (-3, 4)\n"
    )


def test_more_is_printed_than_fits(capsys: Any) -> None:
    @tec.kernel
    def shout(n):
        for k in range(n):
            print(k)

    shout[1, 1](70000)
    said = capsys.readouterr()
    assert "is lost" in said.err and 50_000 < said.out.count("\n") < 70_000
    shout[1, 1](1)
    assert capsys.readouterr().out.count("\n") == 1


@pytest.mark.parametrize("dev", devices(), ids=str)
def test_assert(dev: Any) -> None:
    @tec.kernel
    def check(x, y):
        i = tec.grid_idx(1)
        assert x[i] >= 0, f"x[{i}] is {x[i]}"  # asserts
        y[i] = 1

    x, y = np.ones(64, np.int32), tec.nd.array(np.zeros(64, np.int32), dev)
    check[2, 32](tec.nd.array(x, dev), y)
    assert (y.numpy() == 1).all()
    x[40] = x[50] = -7
    y = tec.nd.array(np.zeros(64, np.int32), dev)
    with pytest.raises(
        tec.KernelError, match=r"x\[40\] is -7\n  in block \(1, 0, 0\), thread \(8, 0, 0\); 1 more thread"
    ) as e:
        check[2, 32](tec.nd.array(x, dev), y)
    assert e.value.where is not None and e.value.where.line == line_of("asserts")
    want = np.ones(64, np.int32)
    want[40] = want[50] = 0  # a thread that fails ends; the others go on
    np.testing.assert_array_equal(y.numpy(), want)


def at(x, i):
    assert 0 <= i < len(x), f"index {i} of {len(x)}"  # asserts in a helper
    return x[i]


def through(x, i):
    v = at(x, i)
    return v + 1


@pytest.mark.parametrize("dev", devices(), ids=str)
def test_an_assertion_in_a_helper_ends_the_thread(dev: Any) -> None:
    @tec.kernel
    def gather(x, index, y):
        i = tec.grid_idx(1)
        for k in range(2):
            y[k, i] = through(x, index[i] + k)
        if at(x, index[i]) > 0:
            y[2, i] = 1

    x, index = np.arange(1, 9, dtype=np.int32), np.array([0, 7, 3, 900, 5], np.int32)
    y = tec.nd.array(np.zeros((3, 5), np.int32), dev)
    with pytest.raises(
        tec.KernelError, match=r"index 8 of 8\n  in block \(0, 0, 0\), thread \(1, 0, 0\); 1 more thread failed"
    ) as e:
        gather[1, 5](tec.nd.array(x, dev), tec.nd.array(index, dev), y)
    assert e.value.where is not None and e.value.where.line == line_of("asserts in a helper")
    got = y.numpy()
    np.testing.assert_array_equal(got[:, [0, 2, 4]], [[2, 5, 7], [3, 6, 8], [1, 1, 1]])
    assert got[0, 1] == 9 and got[2, 1] == got[2, 3] == 0


def test_checks_of_the_software_gpu_name_the_line() -> None:
    @tec.kernel
    def beyond(x, y):
        i = tec.grid_idx(1)
        v = x[i + 1000000]  # reads beyond
        y[i] = v

    @tec.kernel
    def races(x):
        s = tec.shared(128, np.float32)
        t = tec.thread_idx.x
        s[t] = x[t]
        x[t] = s[127 - t]  # races

    @tec.kernel
    def undefined(x):
        s = tec.shared(128, np.float32)
        if tec.thread_idx.x < 64:
            s[tec.thread_idx.x] = 1
        tec.barrier()
        x[tec.thread_idx.x] = s[tec.thread_idx.x]  # reads nothing

    dev = tec.rocm_emu("gfx942", check={"bounds", "race", "init"})
    x, y = (tec.nd.array(np.zeros(128, F32), dev) for _ in range(2))
    here = __file__.rpartition("/")[2]
    for kernel, args, mark in (
        (beyond, (x, y), "reads beyond"),
        (races, (x,), "races"),
        (undefined, (x,), "reads nothing"),
    ):
        with pytest.raises(tec.TecError) as e:
            kernel[1, 128](*args)
            x.numpy()
        assert f"{here}:{line_of(mark)}" in str(e.value), e.value


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_an_index_that_runs_into_the_next_shared_array(chip: str) -> None:
    """LLVM's layout of a kernel's arrays is in its assembly, so the software GPU tells one from the other."""

    @tec.kernel
    def shift(x, y, by):
        a = tec.shared(64, np.float32)
        b = tec.shared(32, np.float32)
        t = tec.thread_idx.x
        a[t] = x[t]
        if t < 32:
            b[t] = x[t] * 2.0
        tec.barrier()
        y[t] = a[t + by] + b[t % 32]  # runs into b

    dev = tec.rocm_emu(chip, check="all")
    values = np.arange(64, dtype=F32)
    x, y = (tec.nd.array(values, dev) for _ in range(2))
    shift[1, 64](x, y, 0)
    np.testing.assert_array_equal(y.numpy(), values + 2 * (values % 32))
    with pytest.raises(tec.TecError, match="LDS access across arrays") as e:
        shift[1, 64](x, y, 1)
    assert f":{line_of('runs into b')}" in str(e.value), e.value


def test_bounds_on_a_cpu(monkeypatch: Any) -> None:
    @tec.kernel
    def beyond(x, n):
        x[n] = 1  # writes beyond

    monkeypatch.setenv("TEC_CHECK", "bounds")
    with pytest.raises(tec.TecError) as e:
        beyond[1, 1](np.zeros(4, F32), 5)
    assert f":{line_of('writes beyond')}" in str(e.value)


def test_reflection() -> None:
    types = ("float32[:]", "float")
    loops = scale.loop_ir(*types)
    verify(loops)
    assert 'thread("threadIdx.x", 256)' in str(loops)
    assert "fmul" in scale.llvm_raw(*types, target="rocm -mcpu=gfx942")
    assert "amdgpu_kernel" in scale.llvm(*types, target="rocm -mcpu=gfx942")
    assert "v_mul_f32" in scale.asm(*types, target="rocm -mcpu=gfx942")
    assert ".visible .entry" in scale.asm(*types, target="cuda -arch=sm_90")
    assert "mulps" in scale.asm(*types, target="llvm")
    found = scale.resources(*types, target="rocm -mcpu=gfx942", block=512)
    assert (
        found["threads"] == (512, 1, 1)
        and found["occupancy"] == 8
        and found["limited_by"] == "waves"
        and found["vgprs"] < 32
    )
    assert scale.resources(np.zeros(4, F32), 2.0)["code_bytes"] > 100
    with pytest.raises(tec.KernelError, match="takes 2 arguments"):
        scale.asm("float32[:]")
    with pytest.raises(tec.TecError, match="float33"):
        scale.asm("float33[:]", "float")


def test_device_code_of_kernels_te_and_networks() -> None:
    @tec.kernel
    def own(x):
        x[tec.grid_idx(1)] = 3

    a = tec.placeholder((8,), name="A")
    b = tec.compute((8,), lambda i: a[i] * 2.0, name="doubled")
    text = io.StringIO()
    with tec.device_code("loop_ir", "llvm_raw", "asm", "resources", file=text) as met:
        own[1, 8](np.zeros(8, F32))
        own[1, 8](np.zeros(8, F32))  # compiled before
        tec.build(tec.create_schedule(b.op), [a, b], "llvm", name="doubling")
    assert len(met) == 2
    for word in ("own for llvm: loop_ir", "doubling for llvm: asm", "define i32 @doubling", "code_bytes"):
        assert word in text.getvalue(), word
    own[1, 4](np.zeros(8, F32))
    assert len(met) == 2
    with pytest.raises(tec.KernelError, match="no form of code"), tec.device_code("sass"):
        pass


def test_device_code_of_a_network() -> None:
    from tec.graph import Graph
    from tec.graph.builders import Builder

    graph = Graph("main")
    x = graph.input("x", "float32", (4, 8))
    graph.set_outputs([Builder(graph, "t").op("exp", x)])
    with tec.device_code("resources", file=io.StringIO()) as met:
        tec.compile(graph, target="llvm")
    assert met


def test_every_program_becomes_ptx() -> None:
    """What no machine here runs is compiled at least."""
    from tec.jit.launching import _configuration
    from tec.jit.specialise import argument_type
    from tests.conformance import kernels  # noqa: F401
    from tests.conformance.harness import CASES, KernelProgram

    target, seen = tec.Target("cuda -arch=sm_80"), 0
    rng = np.random.default_rng(0)
    for case in CASES.values():
        program = case.make() if case.name.startswith("kernel_") else None
        if not isinstance(program, KernelProgram):
            continue
        inputs = case.inputs(rng)
        want = case.reference(*inputs)
        outs = [np.zeros(np.shape(w), np.asarray(w).dtype) for w in (want if isinstance(want, tuple) else (want,))]
        for step in program.steps(*inputs, *outs):
            launch, _, _ = _configuration("k", step.config)
            types = [argument_type(a, "x") for a in step.args]
            assert ".entry" in step.kernel.compiled(types, launch, target).module.get_source("ptx")
            seen += 1
    assert seen >= 20


def test_meetings_that_not_all_threads_reach_on_a_cpu() -> None:
    """On a CPU a barrier parts a thread's program, whoever comes there."""

    @tec.kernel
    def odd(x, y):
        t = tec.thread_idx.x
        s = tec.shared(64, np.int32)
        v = x[t]
        if t % 2:
            s[t] = v
            tec.barrier()
            v += s[(t + 2) % 64]
        for k in range(t % 3):
            tec.barrier()
            v += k + 1
        while v > 100:
            tec.barrier()
            v -= 50
        y[t] = v

    x, y = np.arange(64, dtype=np.int32) * 3, np.zeros(64, np.int32)
    odd[1, 64](x, y)
    t = np.arange(64)
    v = np.where(t % 2 == 1, x + x[(t + 2) % 64], x) + np.array([0, 1, 3])[t % 3]
    while (v > 100).any():
        v = np.where(v > 100, v - 50, v)
    np.testing.assert_array_equal(y, v)


def test_named_arguments_and_defaults() -> None:
    @tec.kernel
    def put(x, value=3, *, at=1):
        x[at] = value

    x = np.zeros(4, np.int32)
    put[1, 1](x)
    put[1, 1](x, at=2, value=5)
    put[1, 1](value=7, x=x, at=3)
    assert x.tolist() == [0, 3, 5, 7]
    with pytest.raises(tec.KernelError, match="missing a required argument"):
        put[1, 1](value=3)
    with pytest.raises(tec.KernelError, match="unexpected keyword"):
        scale[1, 1](x, 1.0, n=3)
    with pytest.raises(tec.KernelError, match="and a stream of"):
        put[1, 1, tec.rocm_emu("gfx942").stream()](x)


def test_ranges_of_any_step() -> None:
    """Steps that are known at run time, of either sign; loops of no steps, in vectors or not."""

    @tec.kernel
    def ranges(out, first, last, step):
        total = 0
        for k in range(first, last, step):
            total += k
        out[0] = total
        turns = 0
        for k in range(first, last, step):
            if k == 7:
                break
            turns += 1
        out[1] = turns
        below = 0
        for k in range(first, last):
            below += 1 if k < 0 else 0
        for k in range(-3, 2):
            below += 10 if k < 0 else 0
        out[2] = below

    for bounds in (
        (10, 0, -3),
        (10, 0, 3),
        (0, 10, 3),
        (0, 100, 1),
        (5, 5, 1),
        (0, 10, -1),
        (7, 8, 1),
        (100, 0, -1),
        (-5, 6, 2),
    ):
        out = np.zeros(3, np.int32)
        ranges[1, 1](out, *bounds)
        want = list(range(*bounds))
        below = sum(k < 0 for k in range(bounds[0], bounds[1])) + 30  # a variable below 0 is not thought to be above
        assert out.tolist() == [sum(want), want.index(7) if 7 in want else len(want), below], bounds


def test_a_launch_costs_little() -> None:
    """A cached launch on a CPU: some ten microseconds; a bound that a busy machine keeps as well."""
    x = tec.nd.array(np.zeros(8, F32))
    launch = scale[1, 8]
    launch(x, 1.0)
    best = min(timeit.repeat(lambda: launch(x, 1.0), number=500, repeat=9)) / 500
    assert best < 100e-6, f"{best * 1e6:.1f} us"


def test_a_launch_on_numpy_arrays_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted: later launches take the arrays' addresses and pack the numbers, which are new objects each time."""
    x = np.zeros(8, F32)

    def again() -> None:
        scale[1, 8](x, F32(2.0))

    again()
    quick = counting.cost(again)
    monkeypatch.setattr(scale[1, 8], "quick", {})
    monkeypatch.setattr(type(scale[1, 8]), "_learn", lambda *given: None)
    assert quick.calls < counting.cost(again).calls / 2, quick


def test_later_launches_are_as_the_first() -> None:
    @tec.kernel
    def shifted(x, y, a, k):
        i = tec.grid_idx(1)
        if i < y.size and 0 <= i - k < x.size:
            y[i] = a * x[i - k]

    def check(x: Any, a: Any, k: int, out: Any) -> None:
        shifted[3, 8](x, out, a, k)
        want = np.zeros(20, F32)
        want[k:] = F32(a) * x[: 20 - k]
        np.testing.assert_array_equal(out, want)

    x = np.arange(20, dtype=F32)
    for a, k in ((2.0, 1), (3.0, 2), (F32(4.0), 3), (np.float64(0.5), 1), (5.0, np.int32(2)), (2, 4)):
        for _ in range(3):
            check(x, a, int(k), np.zeros(20, F32))
    check(np.arange(41, dtype=F32)[1:21], 2.0, 1, np.zeros(20, F32))  # elsewhere in its line of the cache
    check(np.arange(40, dtype=F32)[::2], 2.0, 1, np.zeros(20, F32))
    with np.errstate(over="ignore", invalid="ignore"):
        check(x[1:].repeat(2)[:20], 1e300, 1, np.zeros(20, F32))
    whole = np.arange(40, dtype=F32)
    shifted[3, 8](whole[:20], whole[20:], 2.0, 1)
    shifted[3, 8](whole[:20], whole[4:24], 2.0, 0)  # the same layout, and memory that both have
    shifted[3, 8](x, whole[20:], 2.0, 2**31 + 5)  # beyond what an int takes: no thread is within
    with pytest.raises(tec.TecError, match="read-only"):
        fixed = np.zeros(20, F32)
        fixed.flags.writeable = False
        shifted[3, 8](x, fixed, 2.0, 1)
    with pytest.raises(tec.KernelError, match="takes 4 arguments"):
        shifted[3, 8](x, whole[20:], 2.0)


@pytest.mark.parametrize(("options", "says"), [
    ({"max_threads": 128}, "fits the registers"), ({"fastmath": True}, "leave it out"), ({"fastmat": True}, "only option"),
])  # fmt: skip
def test_options_of_other_decorators_get_a_hint(options: dict[str, Any], says: str) -> None:
    with pytest.raises(tec.KernelError, match=says):
        tec.kernel(**options)


def test_a_signature_above_a_kernel_gets_a_hint() -> None:
    with pytest.raises(tec.KernelError, match="types are those of a launch"):
        tec.kernel("void(float32[:])")


@tec.kernel
def _doubled(x, y):
    i = tec.grid_idx(1)
    if i < tec.cdiv(len(x), 1):
        y[i] = x[i] * 2


@pytest.mark.parametrize("dev", [tec.cpu(), tec.rocm_emu("gfx942")], ids=str)
def test_arrays_of_the_namespace_are_arguments_and_what_is_written_shows_in_one(dev: Any) -> None:
    x = tec.array.arange(8, dtype="float32", device=dev)
    y = tec.array.zeros_like(x)
    other = tec.array.asarray(y, copy=True)
    _doubled[tec.cdiv(8, 4), 4](x, y)
    assert y.tolist() == [2.0 * k for k in range(8)]
    assert other.tolist() == [0.0] * 8


def test_arrays_of_one_number_and_like_others() -> None:
    dev = tec.rocm_emu("gfx942")
    a = tec.nd.full((2, 3), 7, "int32", dev)
    b, c = tec.nd.ones_like(a), tec.nd.zeros_like(a, "float64")
    assert a.numpy().tolist() == [[7] * 3] * 2 and b.numpy().sum() == 6 and (b.dtype, b.device) == ("int32", dev)
    assert (c.dtype, c.device, c.numpy().sum()) == ("float64", dev, 0.0)
    assert tec.nd.empty_like(np.zeros(3)).shape == (3,)
    with pytest.raises(AttributeError, match="it has NDArray"):
        tec.nd.eye  # noqa: B018
