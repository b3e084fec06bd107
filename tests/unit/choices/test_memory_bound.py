"""Kernels that move data, on the software GPU with every check: right, and no more lines of memory touched than they must."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tec
from tec import te, topi
from tec.choices import Scheduled, schedule, spaces
from tec.choices.parts.threads import bind_all
from tec.codegen.static_report import report
from tec.emulator.profile import emulator_profile
from tec.ops.registry import TensorType, get_op
from tests.thinned import thinned

CHIPS = ("gfx942", "gfx1100")
# operator, attributes, shapes, touched lines over bytes that must move
CASES: dict[str, tuple[str, dict[str, Any], list[tuple[int, ...]], float]] = {
    "softmax": ("softmax", {"axes": (-1,)}, [(8, 2048)], 1.05),
    "softmax of long rows": ("softmax", {"axes": (-1,)}, [(2, 16384)], 1.05),
    "softmax of odd rows": ("softmax", {"axes": (-1,)}, [(5, 333)], 3.2),
    "layer norm": ("layer_norm", {"axis": -1, "epsilon": 1e-5}, [(8, 768)], 1.05),
    "transpose": ("transpose", {"perm": (1, 0)}, [(128, 192)], 1.05),
    "odd transpose": ("transpose", {"perm": (0, 2, 1)}, [(17, 3, 70)], 4.7),
    "odd images": ("transpose", {"perm": (0, 2, 1)}, [(16, 100, 130)], 3.5),
    "channels last": ("transpose", {"perm": (0, 2, 3, 1)}, [(2, 64, 8, 16)], 2.6),
    "column sums": (
        "reduce_sum",
        {"axes": (0,), "keepdims": False},
        [(512, 256)],
        4.1,
    ),  # few columns: parts of lines for more units
    "odd column sums": (
        "reduce_sum",
        {"axes": (0,), "keepdims": False},
        [(513, 77)],
        4.1,
    ),  # by work-groups of neighbours, which overlap: 3.3 us by the time model of an MI300X, 5.0 in 19 parts
    "row sums": ("reduce_sum", {"axes": (1,), "keepdims": False}, [(64, 4096)], 1.1),
    "one sum": ("reduce_sum", {"axes": (0, 1), "keepdims": False}, [(256, 1024)], 1.1),
    "a matrix times a vector": (
        "matmul",
        {"transpose_b": True},
        [(1, 1024), (5120, 1024)],
        2.1,
    ),  # the vector again for each row, from a cache
    "a vector times a matrix": (
        "matmul",
        {},
        [(1, 512), (512, 2048)],
        5.1,
    ),  # the vector is read again by each column's threads
    "argmax": ("argmax", {"axis": -1}, [(40, 2048)], 1.1),
    "argmax of columns": ("argmax", {"axis": 0}, [(512, 256)], 4.1),
    "argmin of an odd row": ("argmin", {"axis": -1, "last": True}, [(7, 3, 1000)], 3.0),
}
# What comes from beyond the L2 over the bytes that must, where that is more than once: work-groups on different dies have parts of one line.
MOVED = {
    "odd images": 1.5,  # of an RX 7900 XTX, whose last cache gives whole lines; on several dies once
    "softmax of odd rows": 1.65, "odd transpose": 1.35, "channels last": 2.55, "odd column sums": 3.1, "argmin of an odd row": 1.07,
    "column sums": 2.05, "argmax of columns": 2.05,
}  # fmt: skip


# Tiles that touch whole lines: the default of so few elements has smaller ones, for more units.
WHOLE = {name: {"tile": 64, "threads": 256, "piece": 4} for name in ("transpose", "channels last")}


def scheduled(name: str, dtype: str, target: str, choice: Any = None) -> tuple[list[te.Tensor], Scheduled, Any]:
    op, attrs, shapes, _ = CASES[name]
    types = [TensorType(dtype, s) for s in shapes]
    xs = [te.placeholder(s, dtype, name=f"x{k}") for k, s in enumerate(shapes)]
    known = get_op(op)
    outs = known.compute(attrs, list(xs), known.infer(types, attrs))[:1]
    return xs, schedule(outs, target, choice), outs


@thinned(1, ("name", CASES), ("dtype", ["float32", "float16"]), ("chip", CHIPS))
def test_lines_touched(name: str, dtype: str, chip: str) -> None:
    target = f"rocm -mcpu={chip}"
    xs, chosen, outs = scheduled(name, dtype, target, WHOLE.get(name))
    f = tec.build(chosen.schedule, [*xs, *chosen.outputs], target, name="kernel")
    rng = np.random.default_rng(3)
    values = [rng.integers(-2, 3, [int(d.value) for d in x.shape]).astype(dtype) for x in xs]
    (want,) = te.evaluate(outs, dict(zip(xs, values)))
    got = np.zeros(want.shape, want.dtype)
    checked = tec.rocm_emu(chip, check={"bounds", "race", "init", "wait"})
    on = [tec.nd.array(v, checked) for v in (*values, got)]
    f(*on)
    np.testing.assert_allclose(on[-1].numpy(), want, rtol=2e-3, atol=1e-3)
    plain = tec.rocm_emu(chip)
    on = [tec.nd.array(v, plain) for v in (*values, got)]
    with emulator_profile(plain.driver) as p:
        f(*on)
    moved = sum(r.estimate.traffic.get("MALL", r.estimate.traffic.get("memory", 0.0)) for r in p.launches)
    touched = sum(r.counts.global_line_bytes for r in p.launches)
    must = sum(v.nbytes for v in (*values, got))
    assert touched <= CASES[name][3] * must
    assert moved <= MOVED.get(name, 1.02) * must
    assert all(r.spills == 0 for m in f.imported_modules for r in report(m.get_source("asm")))


@pytest.mark.parametrize("name", CASES)
def test_ptx_is_made(name: str) -> None:
    xs, chosen, _ = scheduled(name, "float16", "cuda -arch=sm_90")
    assert "ld.global" in tec.build(chosen.schedule, [*xs, *chosen.outputs], "cuda -arch=sm_90").imported_modules[
        0
    ].get_source("ptx")


def test_rows_on_nvidia_come_once_and_in_vectors() -> None:
    """Neighbours of an unrolled row are seen as such whatever form their indices have, and the last pass takes what the first has loaded."""
    for name, dtype, loads in (("softmax of long rows", "float32", 4), ("layer norm", "float16", 3)):
        asked = None if dtype == "float32" else {"threads": 32, "piece": 16, "rows": 4}
        xs, chosen, _ = scheduled(name, dtype, "cuda -arch=sm_90", asked)
        module = tec.build(chosen.schedule, [*xs, *chosen.outputs], "cuda -arch=sm_90").imported_modules[0]
        moved = re.findall(r"(ld|st)\.global(\S*)", module.get_source("ptx"))
        assert len(moved) == 2 * loads and all(".v4.b32" in form for _, form in moved), moved


@pytest.mark.parametrize("chip", CHIPS)
def test_several_rows_a_work_group(chip: str) -> None:
    target = f"rocm -mcpu={chip}"
    xs, chosen, outs = scheduled("layer norm", "float16", target, {"threads": 32, "piece": 16, "rows": 4})
    f = tec.build(chosen.schedule, [*xs, *chosen.outputs], target)
    x = np.random.default_rng(4).standard_normal((8, 768)).astype("float16")
    (want,) = te.evaluate(outs, {xs[0]: x})
    device = tec.rocm_emu(chip, check={"bounds", "race", "init", "wait"})
    on = [tec.nd.array(v, device) for v in (x, np.zeros_like(x))]
    f(*on)
    np.testing.assert_allclose(on[1].numpy(), want, rtol=2e-3, atol=1e-3)
    for wrong in ({"threads": 128, "rows": 2}, {"threads": 32, "rows": 16}):
        with pytest.raises(tec.TecError):
            schedule(outs, target, wrong)


@pytest.mark.parametrize("chip", CHIPS)
def test_the_last_work_group_may_have_fewer_sums(chip: str) -> None:
    """91 rows, a wavefront each, four a work-group."""
    target = tec.Target(f"rocm -mcpu={chip}")
    x = te.placeholder((7, 13, 192), "float16", "x")
    attrs = {"axes": (2,), "keepdims": False}
    outs = get_op("reduce_max").compute(
        attrs, [x], get_op("reduce_max").infer([TensorType("float16", (7, 13, 192))], attrs)
    )
    choice = {"shared": True, "threads": target.wavefront_size, "rows": 4, "parts": 1, "piece": 0, "wide": 0}
    chosen = schedule(outs, target, choice)
    f = tec.build(chosen.schedule, [x, *chosen.outputs], target)
    values = np.random.default_rng(4).standard_normal((7, 13, 192)).astype("float16")
    device = tec.rocm_emu(chip, check={"bounds", "race", "init", "wait"})
    on = [tec.nd.array(v, device) for v in (values, np.zeros((7, 13), "float16"))]
    f(*on)
    np.testing.assert_array_equal(on[1].numpy(), values.max(2))


def test_choices_of_a_sum_that_are_not_legal() -> None:
    xs, _, outs = scheduled("column sums", "float32", "rocm -mcpu=gfx942")
    space = spaces(outs, "rocm -mcpu=gfx942")[0]
    assert space.default["wide"] and not space.default["shared"]
    for wrong in (
        {"wide": 64, "threads": 64},
        {"wide": 32, "parts": 4},
        {"wide": 32, "shared": True},
        {"parts": 1, "piece": 16, "shared": False},
    ):
        with pytest.raises(tec.TecError):
            space.check({**space.default, "wide": 0, **wrong})
    quarter = {**space.default, "wide": 8, "piece": 0}  # of a line: where one die's L2 puts the parts together
    assert space.check(quarter)
    with pytest.raises(tec.TecError, match="more than two parts"):
        spaces(outs, "rocm -mcpu=gfx90a")[0].check(quarter)


@pytest.mark.parametrize(
    ("shape", "axis", "target", "reads"),
    [
        ((1000, 768), 0, "rocm -mcpu=gfx942", "global_load_dwordx4"),
        ((64, 50, 16), 1, "rocm -mcpu=gfx942", "global_load_dwordx4"),
        ((1000, 768), 0, "llvm -mcpu=x86-64-v4", r"vmovups\t\([^)]*\), %zmm"),
        ((64, 1000), 1, "llvm -mcpu=x86-64-v4", "vgatherdps"),
    ],
)
def test_gathers_read_rows_in_vectors(shape: tuple[int, ...], axis: int, target: str, reads: str) -> None:
    """A gather is elementwise work to a template: rows come in vectors, columns by gather instructions."""
    x, index = te.placeholder(shape, name="x"), te.placeholder((128,), "int64", name="i")
    known = get_op("gather")
    types = [TensorType("float32", shape), TensorType("int64", (128,))]
    outs = known.compute({"axis": axis}, [x, index], known.infer(types, {"axis": axis}))
    with tec.Target(target):
        s = schedule(outs, tec.Target(target))
        module = tec.build(s.schedule, [x, index, *s.outputs], target, name="gather")
    assert re.search(reads, module.get_source("asm"))


@pytest.mark.parametrize(
    ("shape", "target", "parts"),
    [
        ((1 << 28,), "cuda -arch=sm_90a", 4096),
        ((1 << 24,), "cuda -arch=sm_90a", 1024),
        ((1 << 16,), "cuda -arch=sm_90a", 16),
        (
            (38_810_016,),
            "cuda -arch=sm_90a",
            567,
        ),  # 1,056 of 1,104 work-groups have room at once, and all wait for the rest
        ((8192, 8192), "cuda -arch=sm_90a", 1),
        ((1 << 28,), "rocm -mcpu=gfx942", 256),
    ],
)
def test_sums_come_in_parts_enough_for_all_loads_that_a_chip_can_have_under_way(
    shape: tuple[int, ...], target: str, parts: int
) -> None:
    a = te.placeholder(shape, name="A")
    k = te.reduce_axis((0, shape[-1]), "k")
    out = te.compute(shape[:-1] or (1,), lambda i: te.sum(a[k] if len(shape) == 1 else a[i, k], axis=k), name="sum")
    assert spaces([out], target)[0].default["parts"] == parts


def test_a_few_short_sums_of_far_elements_are_shared() -> None:
    """A mean over 13 by 13 places for 1,000 channels that lie side by side: one thread's loads one after another take five times as long."""
    target = tec.Target("rocm -mcpu=gfx942")
    us = {}
    for shared in (None, False):
        known, types = get_op("reduce_mean"), [TensorType("float32", (1, 169, 1, 1000))]
        x = te.placeholder((1, 169, 1, 1000), "float32", name="x")
        attrs = {"axes": (1, 2), "keepdims": False}
        outs = known.compute(attrs, [x], known.infer(types, attrs))[:1]
        chosen = schedule(
            outs, target, None if shared is None else {**spaces(outs, target)[0].default, "shared": shared}
        )
        f = tec.build(chosen.schedule, [x, *chosen.outputs], target, name="mean")
        (launch,) = tec.model(f, [((1, 169, 1, 1000), "float32"), ((1, 1000), "float32")]).launches
        us[shared] = launch.estimate.kernel_us
    assert us[None] < 0.35 * us[False]


def test_a_mean_of_a_few_places_is_one_load_each() -> None:
    """7 by 7 places: fewer than a wavefront's threads, which have one each (some had eight, one after another, and the others none)."""
    target = tec.Target("rocm -mcpu=gfx942")
    known, types, attrs = get_op("reduce_mean"), [TensorType("float16", (1, 49, 1, 2048))], {"axes": (1, 2), "keepdims": False}  # fmt: skip
    x = te.placeholder((1, 49, 1, 2048), "float16", name="x")
    chosen = schedule(known.compute(attrs, [x], known.infer(types, attrs))[:1], target)
    f = tec.build(chosen.schedule, [x, *chosen.outputs], target, name="mean")
    (launch,) = tec.model(f, [((1, 49, 1, 2048), "float16"), ((1, 2048), "float16")]).launches
    assert launch.estimate.kernel_us < 1.5  # 4.0 before
    dev, rng = tec.rocm_emu("gfx942", check="all"), np.random.default_rng(3)
    value, got = rng.standard_normal((1, 49, 1, 2048)).astype("float16"), tec.nd.empty((1, 2048), "float16", dev)
    f(tec.nd.array(value, dev), got)
    np.testing.assert_allclose(got.numpy()[0], value.astype("f8").mean((0, 1, 2)), atol=2e-3)


@pytest.mark.parametrize("chip", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
def test_windows_at_an_edge_wait_for_no_branch(chip: str) -> None:
    """The largest of 3 by 3 with padding: places outside are -infinity, read without a branch; so all loads are under way at once."""
    target = tec.Target(f"rocm -mcpu={chip}")
    shape, out_shape = (1, 9, 10, 64), (1, 5, 5, 64)
    a = te.placeholder((90, 64), "float16", name="a")
    kh, kw = te.reduce_axis((0, 3), "kh"), te.reduce_axis((0, 3), "kw")

    def at(p: Any, c: Any) -> Any:
        y, x = p // 5 * 2 + kh - 1, p % 5 * 2 + kw - 1
        inside = te.all(y >= 0, y < 9, x >= 0, x < 10)
        return te.max(te.if_then_else(inside, a[y * 10 + x, c], te.min_value("float16")), axis=[kh, kw])

    out = te.compute((25, 64), at, name="pool", tag="pixels")
    chosen = schedule([out], target)
    f = tec.build(chosen.schedule, [a, *chosen.outputs], target, name="pool")
    code = f.imported_modules[0].get_source("asm")
    assert "buffer_load" in code and code.count("_cbranch_") <= 1
    dev, rng = tec.rocm_emu(chip, check="all"), np.random.default_rng(3)
    value, got = rng.standard_normal((90, 64)).astype("float16"), tec.nd.empty((25, 64), "float16", dev)
    f(tec.nd.array(value, dev), got)
    padded = np.pad(value.reshape(shape)[0], ((1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    want = np.stack([padded[2 * y : 2 * y + 3, 2 * x : 2 * x + 3].max((0, 1)) for y in range(5) for x in range(5)])
    np.testing.assert_array_equal(got.numpy(), want.reshape(out_shape[1] * out_shape[2], 64))


@pytest.mark.parametrize(("chip", "dtype", "fill"), [("gfx942", "float16", 0), ("gfx1100", "int8", -7)])
def test_guarded_loads_of_less_than_a_word_have_no_branch(chip: str, dtype: str, fill: int) -> None:
    n, before = 70, 3
    a = te.placeholder((n,), dtype, name="a")

    def padded(i: Any) -> Any:
        return te.if_then_else(te.all(i >= before, i < n + before), a[i - before], te.const(fill, dtype))

    out = te.compute((n + 9,), padded, name="out")
    s = te.create_schedule(out.op)
    block, thread = s[out].split(out.op.axis[0], factor=64)
    s[out].bind(block, te.thread_axis("blockIdx.x"))
    s[out].bind(thread, te.thread_axis("threadIdx.x"))
    f = tec.build(s, [a, out], f"rocm -mcpu={chip}")
    code = f.imported_modules[0].get_source("asm")
    assert "buffer_load_u" in code and "global_load" not in code
    dev = tec.rocm_emu(chip, check="all")
    value, got = np.arange(1, n + 1).astype(dtype), tec.nd.empty((n + 9,), dtype, dev)
    f(tec.nd.array(value, dev), got)
    np.testing.assert_array_equal(got.numpy(), np.pad(value, (before, 9 - before), constant_values=fill))


@pytest.mark.parametrize(("chip", "rows"), [("gfx942", 4), ("gfx1100", 8)])
def test_rows_by_threads_along_them(chip: str, rows: int) -> None:
    """Seven rows by four, 15 by eight: the last begin earlier, and repeat others."""
    target = tec.Target(f"rocm -mcpu={chip}")
    shape, before, after = (2, 6 if rows == 4 else 14, 100), (1, 0, 2), (0, 1, 3)
    x = te.placeholder(shape, "float16", name="x")
    op = get_op("pad")
    attrs = {"before": before, "after": after, "mode": "constant", "value": -2.0}
    (y,) = op.compute(attrs, [x], op.infer([TensorType("float16", shape)], attrs))
    space = next(s for s in spaces([y], target) if s.template == "gpu stages")
    assert space.is_legal(space.default) and space.default["rows"] == 1  # few rows: a work-group of its own for each
    assert space.is_legal({**space.default, "rows": 8}) == (rows == 8)
    chosen = schedule([y], target, {"template": "gpu stages", "threads": 64, "vector": 16, "rows": rows})
    f = tec.build(chosen.schedule, [x, *chosen.outputs], target)
    dev, value = tec.rocm_emu(chip, check="all"), np.random.default_rng(rows).standard_normal(shape).astype("float16")
    got = tec.nd.empty([n + b + a for n, b, a in zip(shape, before, after)], "float16", dev)
    f(tec.nd.array(value, dev), got)
    np.testing.assert_array_equal(got.numpy(), np.pad(value, list(zip(before, after)), constant_values=-2))


def test_threads_do_not_repeat_most_of_a_few_rows() -> None:
    """Nine rows by eight a thread are sixteen: on an H200 a pad to rows of 1,293 took 1.4 times as long so as by two."""
    x = te.placeholder((423, 2, 1288), "float32", name="x")
    op, attrs = get_op("pad"), {"before": (1, 5, 5), "after": (1, 2, 0), "mode": "constant", "value": 0.0}
    (y,) = op.compute(attrs, [x], op.infer([TensorType("float32", (423, 2, 1288))], attrs))
    space = next(s for s in spaces([y], tec.Target("cuda -arch=sm_90a")) if s.template == "gpu stages")
    few = {**space.default, "vector": 16}
    assert [space.why_not({**few, "rows": rows}) for rows in (1, 2)] == [None, None]
    assert all("repeat" in str(space.why_not({**few, "rows": rows})) for rows in (4, 8))


def test_the_last_vector_may_be_a_part_of_one() -> None:
    """Nothing is read or written beyond the arrays, and all but the last are whole: two bytes a store would be a half more time on an H200."""
    n = 8 * 300 + 5
    x = te.placeholder((n,), "float16", name="x")
    y = te.compute((n,), lambda i: x[i] + x[i], name="y")
    s = te.create_schedule(y.op)
    bind_all(s, y.op, 64, 16, ragged=0)
    f = tec.build(s, [x, y], "rocm -mcpu=gfx942")
    dev, value = tec.rocm_emu("gfx942", check="all"), np.arange(n).astype("float16")
    got = tec.nd.empty((n,), "float16", dev)
    f(tec.nd.array(value, dev), got)
    np.testing.assert_array_equal(got.numpy(), value + value)
    many = te.placeholder((699_999, 3), "float16", name="x")
    total = te.compute(many.shape, lambda *i: many[i] + many[i], name="y")
    for chip, stores in (("cuda -arch=sm_90a", "st.global.v4.b32"), ("cuda -arch=sm_80", "st.global.v4.b32")):
        made = schedule([total], tec.Target(chip), {"template": "gpu stages", "threads": 256, "vector": 16, "rows": 0})
        assert stores in tec.build(made.schedule, [many, *made.outputs], chip).get_source("ptx")


@pytest.mark.parametrize(("sums", "length", "kernels"), [(1280, 8192, 1), (256, 16384, 1), (8, 1 << 20, 2)])
def test_more_threads_share_a_sum_before_a_second_kernel_does(sums: int, length: int, kernels: int) -> None:
    """By the time model 4.3 us where four parts of each sum took 6.7, and 2.3 for 4.5, on an MI355X; few long sums do want the other units."""
    known = get_op("matmul")
    types = [TensorType("bfloat16", (1, length)), TensorType("bfloat16", (sums, length))]
    xs = [te.placeholder(t.shape, t.dtype, name=f"x{k}") for k, t in enumerate(types)]
    attrs = {"transpose_b": True}
    outs = known.compute(attrs, list(xs), known.infer(types, attrs))[:1]
    space = next(s for s in spaces(outs, tec.Target("rocm -mcpu=gfx950")) if s.template == "gpu reduction")
    assert 1 + (space.default["parts"] > 1) == kernels
    assert kernels > 1 or space.default["threads"] > 64


@pytest.mark.parametrize(
    ("chip", "shape", "threads"),
    [("gfx942", (32, 64, 28, 28), 1024), ("gfx942", (128, 300, 5, 5), 256), ("gfx1100", (64, 128, 14, 14), 512), ("gfx942", (32, 4000, 7, 7), 64)],
)  # fmt: skip
def test_few_sums_have_threads_enough_that_no_load_waits_for_another(
    chip: str, shape: tuple[int, ...], threads: int
) -> None:
    """A channel's mean over a batch: by 256 threads each the time model says three times as long. Of many sums one's loads are under way while another's wait."""
    x = te.placeholder(shape, "float16" if chip == "gfx1100" else "float32", name="x")
    y = topi.sum(x, axis=(0, 2, 3))
    space = next(s for s in spaces([y], tec.Target(f"rocm -mcpu={chip}")) if s.template == "gpu reduction")
    assert space.default["shared"] and space.default["parts"] == 1 and space.default["threads"] == threads


@pytest.mark.parametrize("shape", [(3001, 33), (5, 4, 9000), (17, 40000)])
def test_rows_beyond_the_caches_of_a_core_are_read_from_several_places(shape: tuple[int, ...]) -> None:
    """Sums along all axes but the last, of whole parts and of others; NumPy's values."""
    axes = tuple(range(len(shape) - 1))
    x, known = te.placeholder(shape, name="x"), get_op("reduce_sum")
    attrs = {"axes": axes, "keepdims": False}
    outs = known.compute(attrs, [x], known.infer([TensorType("float32", shape)], attrs))
    s = schedule(outs, tec.Target("llvm -mcpu=haswell"))
    f = tec.build(s.schedule, [x, *s.outputs], "llvm -mcpu=haswell", name="sums")
    value = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    got = tec.nd.empty((shape[-1],))
    f(tec.nd.array(value), got)
    np.testing.assert_allclose(got.numpy(), value.astype("f8").sum(axes), rtol=1e-5, atol=1e-4)
    text = str(tec.lower(s.schedule, [x, *s.outputs]))
    vector = next(line for line in text.splitlines() if " + x[" in line).split(" = ")[0] + " = "
    assert text.count(vector) > 4  # so many rows are added to it in one turn


def test_a_triangle_divides_by_no_row() -> None:
    """Its condition asks for row and column, which a loop over all elements would find by a division a vector."""
    known, shape = get_op("trilu"), TensorType("float32", (8, 40, 72))
    x = te.placeholder(shape.shape, "float32", name="x")
    chosen = schedule(known.compute({"k": 1, "upper": True}, [x], [shape]), "llvm")
    f = tec.build(chosen.schedule, [x, *chosen.outputs], "llvm", name="group")
    assert "//" not in f.get_source("ir")
    a, out = np.random.default_rng(0).standard_normal(shape.shape, "f4"), tec.nd.empty(shape.shape)
    f(tec.nd.array(a), out)
    np.testing.assert_array_equal(out.numpy(), np.triu(a, 1))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8", "bool"])
@pytest.mark.parametrize("line", [2, 3])
def test_lines_of_few_elements_are_copied_as_they_lie(dtype: str, line: int) -> None:
    """Of a vector over all elements each lane would divide to find its place, also where lines are shorter than a vector is worth for arithmetic."""
    known, shape, attrs = get_op("transpose"), TensorType(dtype, (8, 5, 16, line)), {"perm": (0, 2, 1, 3)}
    x = te.placeholder(shape.shape, dtype, name="x")
    out_types = known.infer([shape], attrs)
    chosen = schedule(known.compute(attrs, [x], out_types), "llvm")
    f = tec.build(chosen.schedule, [x, *chosen.outputs], "llvm", name="group")
    assert "//" not in f.get_source("ir") and f"1, {line})" in f.get_source("ir")
    a = (np.random.default_rng(0).random(shape.shape) * 3).astype(dtype)
    out = tec.nd.empty(tuple(int(n) for n in out_types[0].shape), dtype)
    f(tec.nd.array(a), out)
    np.testing.assert_array_equal(out.numpy(), a.transpose(0, 2, 1, 3))


@pytest.mark.parametrize(
    ("shape", "dtype", "threads"), [((7216, 848), "float32", 32), ((11_360, 1528), "float16", 128)]
)
def test_nvidias_rows_of_whole_pieces_are_read_by_them(shape: tuple[int, ...], dtype: str, threads: int) -> None:
    """848 elements are 212 pieces of 16 bytes, of which 32 threads have six or seven each."""
    known, kinds = get_op("softmax"), [TensorType(dtype, shape)]
    outs = known.compute({"axes": (-1,)}, [te.placeholder(shape, dtype, name="x")], known.infer(kinds, {"axes": (-1,)}))
    choice = spaces(list(outs), "cuda -arch=sm_90a")[0].default
    assert (choice["piece"], choice["threads"]) == (16, threads)


def test_large_work_groups_are_no_rivals_on_nvidia() -> None:
    x = te.placeholder((4096, 513), name="x")
    out = te.compute(x.shape, lambda i, j: x[i, j] + 1, name="y")
    for target, most in (("cuda -arch=sm_90a", 256), ("rocm -mcpu=gfx942", 1024)):
        assert max(c["threads"] for c in spaces([out], target)[0].drafts()) == most


def test_an_operand_that_is_turned_round_lies_swizzled() -> None:
    """Of an RX 7900 XTX lanes store four rows each: of padded rows all of them met in two banks (16 products of 512 x 512 x 256 in float16 35 us by the time model, 29 swizzled)."""
    x, w = te.placeholder((2, 128, 256), "float16", name="x"), te.placeholder((2, 256, 192), "float16", name="w")
    made = get_op("matmul").compute({}, [x, w], [TensorType("float16", (2, 128, 192))])
    target = "rocm -mcpu=gfx1100"
    chosen = schedule(made, target)
    assert (chosen.choice["template"], chosen.choice["swizzle"]) == ("matrix product", True)
    f, dev = tec.build(chosen.schedule, [x, w, *chosen.outputs], target), tec.rocm_emu("gfx1100", check="race")
    rng = np.random.default_rng(2)
    values = [rng.integers(-2, 3, s).astype("float16") for s in ((2, 128, 256), (2, 256, 192))]
    on = [tec.nd.array(v, dev) for v in (*values, np.zeros((2, 128, 192), "float16"))]
    f(*on)
    np.testing.assert_array_equal(on[-1].numpy(), values[0] @ values[1])
