"""The layout for matrix units: images as (pixels, channels) matrices, weights along the sum; and what the kernels become."""

import numpy as np
import pytest

import tec
from tec.choices.families.products import tilings
from tec.codegen.static_report import report
from tec.graph import Graph, run_graph
from tec.graph.optimize import optimize
from tec.graph.passes import layout
from tec.graph.passes.fuse import fuse
from tec.graph.passes.layout import choose_layouts
from tec.graph.passes.mixed_precision import mixed_precision
from tec.graph.passes.weights import order_weights
from tests import seeds
from tests.thinned import thinned, thinned_rows
from tests.unit.graph.random_graphs import conv_attrs, feed, random_graph

GFX942 = tec.Target("rocm -mcpu=gfx942")
GFX1100 = tec.Target("rocm -mcpu=gfx1100")
rng = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def _within_a_network(monkeypatch):
    """Convolutions alone, as they are in a network of many: with pixels before and after them."""
    monkeypatch.setattr(layout, "lone_convolution", lambda *a: None)


def ops(g):
    return [n.op for n in g.nodes]


def const(g, shape, dtype="float32"):
    return g.constant((rng.standard_normal(shape) / 4).astype(dtype))


def conv(g, x, out, kernel=3, **attrs):
    w = const(g, (out, x.shape[1] // attrs.get("groups", 1), kernel, kernel), x.dtype)
    return g.add("conv", [x, w], conv_attrs(**attrs))[0]


def same(before, after, rtol=1e-4):
    after.check()
    feeds = feed(before)
    for a, b in zip(run_graph(after, feeds), run_graph(before, feeds), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * max(1.0, float(np.abs(b).max(initial=0))))


@pytest.mark.parametrize("seed", seeds.some(12))
def test_random_graphs_mean_the_same(seed):
    same(random_graph(seed), choose_layouts(random_graph(seed), GFX942))
    same(random_graph(seed), order_weights(random_graph(seed), GFX942))


SHAPES = [
    (cin, cout, groups, stride, dilation)
    for cin, cout, groups in [(3, 5, 1), (8, 16, 1), (17, 1, 1), (7, 7, 7), (16, 16, 16), (6, 4, 2), (1, 3, 1)]
    for stride, dilation in [(1, 1), (2, 1), (1, 2)]
]  # fmt: skip


@pytest.mark.parametrize("cin,cout,groups,stride,dilation", SHAPES)
def test_convolutions(cin, cout, groups, stride, dilation):
    g = Graph()
    x = g.input("x", "float32", (2, cin, 9, 8))
    y = conv(g, x, cout, stride=stride, dilation=dilation, before=1, after=2, groups=groups)
    (y,) = g.add("add", [y, const(g, (cout, 1, 1))])
    (y,) = g.add("relu", [y])
    z = conv(g, y, 5, 1)
    (p,) = g.add("reduce_mean", [z], {"axes": (2, 3), "keepdims": True})
    (q,) = g.add("reduce_mean", [z], {"axes": (2, 3), "keepdims": False})
    g.set_outputs([y, p, q])
    after = choose_layouts(g, GFX942)
    assert any("layouts" in n.attrs for n in after.nodes if n.op == "conv")
    same(g, after)


def test_a_network_is_converted_at_its_edges_alone():
    """Pooling, gates of one value a channel and an image, concatenation, slices and sums stay in the layout."""
    g = Graph()
    x = g.input("x", "float32", (2, 3, 12, 12))
    (a,) = g.add("relu", [conv(g, x, 8, before=1, after=1)])
    window = {
        "kernel": (2, 2),
        "strides": (2, 2),
        "dilations": (1, 1),
        "before": (0, 0),
        "after": (0, 0),
        "out_space": (6, 6),
    }
    (a,) = g.add("max_pool", [a], window)
    (m,) = g.add("reduce_mean", [a], {"axes": (2, 3), "keepdims": True})
    (m,) = g.add("sigmoid", [conv(g, m, 8, 1)])
    (b,) = g.add("multiply", [a, m])
    (c,) = g.add("concat", [b, conv(g, a, 4, 1)], {"axis": 1})
    (d,) = g.add("slice", [c], {"starts": (0, 2, 0, 0), "steps": (1, 2, 1, 1), "sizes": (2, 4, 6, 6)})
    (e,) = g.add("add", [d, conv(g, b, 4, 3, before=1, after=1)])
    g.set_outputs([e])
    after = choose_layouts(g, GFX942)
    assert ops(after).count("transform_layout") == 2
    assert all(n.outputs[0].layout.name == "(NHW)C" for n in after.nodes if n.op in ("conv", "max_pool"))
    same(g, after)


def test_no_matrix_unit_for_the_type_leaves_the_graph():
    g = Graph()
    g.set_outputs([conv(g, g.input("x", "float32", (1, 8, 9, 9)), 8)])
    made = [choose_layouts(g, t).nodes[0].outputs[0].layout for t in (GFX1100, GFX942)]
    assert [str(x) for x in made] == ["NC(HW)", "(NHW)C"]


@pytest.mark.parametrize("batch,layout", [(3, "C(NHW)"), (1, "NC(HW)")])
def test_float32_on_hopper_has_the_pixels_of_all_images_beside_each_other(batch, layout):
    """Bulk copies bring rows of pixels, which 49 of one image are not; concatenation, gates, sums and means stay in the layout."""
    g = Graph()
    x = g.input("x", "float32", (batch, 3, 14, 14))
    (a,) = g.add("relu", [conv(g, x, 8, before=1, after=1, stride=2)])
    (b,) = g.add("relu", [conv(g, a, 16, 1)])
    (m,) = g.add("reduce_mean", [b], {"axes": (2, 3), "keepdims": True})
    (m,) = g.add("sigmoid", [conv(g, m, 16, 1)])
    (b,) = g.add("multiply", [b, m])
    (c,) = g.add("concat", [b, conv(g, b, 4, before=1, after=1)], {"axis": 1})
    (d,) = g.add("slice", [c], {"starts": (0, 2, 0, 0), "steps": (1, 1, 1, 1), "sizes": (batch, 16, 7, 7)})
    (e,) = g.add("add", [d, conv(g, b, 16, 1)])
    (p,) = g.add("reduce_mean", [conv(g, e, 5, 1, stride=2)], {"axes": (2, 3), "keepdims": True})
    g.set_outputs([p])
    after = choose_layouts(g, tec.Target("cuda -arch=sm_90a"))
    made = [n.outputs[0].layout.name for n in after.nodes if n.op == "conv"]
    assert made[1:] == [layout] * 5 and made[0] == "NC(HW)"
    assert ops(after).count("transform_layout") == (2 if batch > 1 else 0), (
        "behind the first convolution, and at the end"
    )
    same(g, after)


# ---- weights


def product(dtype, m, k, n, const_b=True, **attrs):
    g = Graph()
    x = g.input("x", dtype, (m, k))
    shape = (n, k) if attrs.get("transpose_b") else (k, n)
    y = const(g, shape, dtype) if const_b else g.input("y", dtype, shape)
    g.set_outputs(g.add("matmul", [x, y], attrs))
    return g


@pytest.mark.parametrize("target,dtype,m,turned", [
    (GFX942, "float32", 64, True), (GFX942, "float16", 64, True), (GFX1100, "float16", 64, True),
    (GFX1100, "float32", 64, False), (GFX1100, "float32", 1, True),
])  # fmt: skip
def test_constant_weights_are_stored_along_the_sum(target, dtype, m, turned):
    g = product(dtype, m, 40, 24)
    after = order_weights(g, target)
    (node,) = after.nodes
    assert bool(node.attrs.get("transpose_b")) == turned
    assert node.inputs[1].shape == ((24, 40) if turned else (40, 24))
    same(g, after, 1e-2 if dtype == "float16" else 1e-4)
    again = product(dtype, m, 40, 24, transpose_b=True)
    assert order_weights(again, target).nodes[0].inputs[1].shape == (24, 40)
    assert order_weights(product(dtype, m, 40, 24, const_b=False), target).nodes[0].attrs == {}


def test_one_weight_of_two_products_is_turned_once():
    g = Graph()
    w = const(g, (40, 24))
    a, b = (g.add("matmul", [g.input(n, "float32", (32, 40)), w])[0] for n in "xy")
    g.set_outputs([a, b])
    after = order_weights(g, GFX942)
    assert len(after.constants()) == 1


# ---- what the kernels become


def main_loop(graph, target, dtype=None):
    """The report of the kernel with the most matrix instructions."""
    net = tec.compile(graph, target=target, dtype=dtype, cache=False)
    return max(report(net.get_source("asm")), key=lambda r: r.matrix)


def check_loop(r, mfma, vgprs=256):
    assert r.spills == 0 and r.scratch_bytes == 0 and r.vgprs + r.agprs <= vgprs
    assert r.matrix >= mfma
    # Of seven or eight loads each; two a turn where loads are two steps ahead.
    steps = -(-r.global_loads.get(128, 0) // 8)
    assert r.barriers <= 2 * steps
    assert set(r.global_loads) == {128}
    assert min(r.lds_reads) >= 64 and min(r.lds_writes) >= 64


# A BERT-base's products over 1,024 tokens, as a graph makes them: weights of [k, n], a bias behind.
@thinned(1, ("dtype", ["float16", "bfloat16"]), ("k,n", [(768, 3072), (3072, 3072)]))
def test_a_transformers_product_on_gfx942(dtype, k, n):
    g = Graph()
    (y,) = g.add("matmul", [g.input("x", "float32", (1024, k)), const(g, (k, n))])
    g.set_outputs(g.add("add", [y, const(g, (n,))]))
    r = main_loop(g, GFX942, dtype)
    check_loop(r, 32)
    assert r.matrix_kind.startswith("mfma_f32_16x16x16_")


def test_bytes_on_gfx942():
    r = main_loop(product("int8", 1024, 1024, 4096), GFX942)
    check_loop(r, 16)
    assert r.matrix_kind == "mfma_i32_16x16x32_i8"


def test_a_transformers_product_on_gfx1100():
    r = main_loop(product("float16", 1024, 768, 3072), GFX1100)
    assert r.spills == 0 and r.scratch_bytes == 0 and min(r.lds_reads) >= 64 and set(r.global_loads) == {128}


@thinned(
    1,
    ("cin,cout,size,kernel,stride", [(64, 256, 56, 1, 1), (64, 64, 56, 3, 1), (256, 512, 28, 1, 2)]),
    ("batch", [1, 16]),
)
def test_resnets_convolutions_on_gfx942(cin, cout, size, kernel, stride, batch):
    g = Graph()
    x = g.input("x", "float32", (batch, cin, size, size))
    y = conv(g, x, cout, kernel, stride=stride, before=kernel // 2, after=kernel // 2)
    (y,) = g.add("add", [y, const(g, (cout, 1, 1))])
    g.set_outputs(g.add("relu", [y]))
    r = main_loop(g, GFX942, "float16")
    # 64 terms are one step.
    assert r.spills == 0 and r.vgprs <= 256 and r.matrix >= (4 if batch == 1 or cin * kernel == 64 else 16)
    assert min(r.lds_reads) >= 64 and min(r.lds_writes) >= 64 and max(r.global_loads) == 128
    if r.has_loop and batch > 1:  # a loop of one step keeps the epilogue's loads
        assert set(r.global_loads) == {128}


def test_large_weights_with_tiny_values_are_16_bits_wide():
    g = Graph()
    w = np.ones((8, 8, 3, 3), np.float32)
    w[0, 0, 0, 0] = 1e-9  # nothing beside the others
    (y,) = g.add("conv", [g.input("x", "float32", (1, 8, 9, 9)), g.constant(w)], conv_attrs())
    g.set_outputs([y])
    assert next(n for n in mixed_precision(g).nodes if n.op == "conv").outputs[0].dtype == "float16"
    tiny = Graph()
    (y,) = tiny.add(
        "multiply", [conv(tiny, tiny.input("x", "float32", (1, 8, 9, 9)), 8), tiny.constant(np.float32(1e-9))]
    )
    tiny.set_outputs([y])
    assert next(n for n in mixed_precision(tiny).nodes if n.op == "multiply").outputs[0].dtype == "float32"


# ---- on the software GPU


def test_wmma_does_not_slip_under_the_guard_of_a_ragged_end_of_the_pixels():
    test_convolutions_on_the_software_gpu("gfx1100", "float16", 1, 32, 128, 27, 3, 1, 1)


@thinned(1, ("mcpu, dtype", [("gfx942", "float32"), ("gfx942", "float16"), ("gfx1100", "float16")]), ("batch, cin, cout, size, kernel, stride, groups", [
    (1, 32, 128, 27, 3, 1, 1), (2, 3, 40, 17, 7, 2, 1), (2, 20, 24, 9, 3, 1, 1), (1, 24, 24, 14, 3, 2, 24), (1, 6, 6, 5, 3, 1, 6),
]))  # fmt: skip
def test_convolutions_on_the_software_gpu(mcpu, dtype, batch, cin, cout, size, kernel, stride, groups):
    g = Graph()
    x = g.input("x", dtype, (batch, cin, size, size))
    w = rng.integers(-2, 3, (cout, cin // groups, kernel, kernel)).astype(dtype)
    pad = kernel // 2
    (y,) = g.add("conv", [x, g.constant(w)], conv_attrs(stride=stride, before=pad, after=pad, groups=groups))
    (y,) = g.add("relu", [y])
    g.set_outputs([y])
    a = rng.integers(-2, 3, x.shape).astype(dtype)
    net = tec.compile(g, target=f"rocm -mcpu={mcpu}", cache=False)
    (got,) = net.run({"x": a}, device=tec.rocm_emu(mcpu))
    np.testing.assert_array_equal(got, run_graph(g, {"x": a})[0])


@thinned_rows(
    3,
    ("dtype", "channels", "filled"),
    [("float16", 41, 48), ("float16", 36, 36), ("float16", 17, 20), ("float16", 3, 4), ("float32", 41, 44)],
)
def test_channels_are_filled_up_to_whole_pieces_where_that_adds_little(dtype, channels, filled):
    g = Graph()
    x = g.input("x", dtype, (1, channels, 9, 9))
    w = rng.integers(-2, 3, (16, channels, 3, 3)).astype(dtype)
    g.set_outputs([g.add("conv", [x, g.constant(w)], conv_attrs(before=1, after=1))[0]])
    (node,) = (n for n in choose_layouts(g, GFX942).nodes if n.op == "conv")
    assert node.inputs[0].shape[-1] == filled
    a = rng.integers(-2, 3, x.shape).astype(dtype)
    net = tec.compile(g, target=GFX942, cache=False)
    (got,) = net.run({"x": a}, device=tec.rocm_emu("gfx942", check="all"))
    np.testing.assert_array_equal(got, run_graph(g, {"x": a})[0])


def test_a_sum_for_each_element_is_no_row():
    """Outputs of many elements with short sums are spread over work-groups, not shared by the threads of one."""
    g = Graph()
    x = g.input("x", "float16", (1, 2048, 49))
    (y,) = g.add("reduce_mean", [x], {"axes": (2,), "keepdims": False})
    g.set_outputs([y])
    (group,) = fuse(optimize(g, GFX942))
    assert group
    net = tec.compile(g, target=GFX942, cache=False)
    launch = next(s for s in net.module.program if s["op"] == "launch")
    assert launch["grid"][0] >= 8


# ---- tiles


def tiles(m, n, k, dtype="float16", target=GFX942, **more):
    t = tilings.cheapest(tilings.Shape(m, n, k, 1, dtype, "float32", padded=True, **more), target)
    return t and (t.m, t.n)


def test_large_products_have_large_tiles_and_small_ones_fill_the_gpu():
    assert tiles(4096, 4096, 4096) == (128, 128)
    assert tiles(1024, 3072, 768) == (128, 96)  # 256 of them on 304 units, 192 of 128 by 128
    m, n = tiles(49, 512, 4608)
    assert -(-49 // m) * -(-512 // n) >= 56  # work-groups
    assert tiles(8, 512, 64) is None
    # With guards, a large tile does not fit RDNA's registers.
    assert tiles(4096, 4096, 4096, target=GFX1100) == (128, 128)
    assert tiles(4096, 4096, 4096, target=GFX1100, guarded=True) != (128, 128)
    assert tiles(4000, 4096, 4096, target=GFX1100) != (128, 128)


@pytest.mark.parametrize("m,n,k,stride", [(28, 512, 256, 2), (56, 256, 64, 1)])
def test_no_spills_at_ragged_ends_on_gfx1100(m, n, k, stride):
    """A short loop that LLVM unrolls has all its loads under way at once."""
    g = Graph()
    x = g.input("x", "float16", (1, k, m * stride, m * stride))
    g.set_outputs(g.add("relu", [conv(g, x, n, 1, stride=stride)]))
    assert main_loop(g, GFX1100).spills == 0


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_product_of_one_row_reads_whole_lines(dtype):
    g = product(dtype, 1, 2048, 1000)
    net = tec.compile(g, target=GFX942, cache=False)
    (r,) = report(net.get_source("asm"))
    assert r.global_loads[128] >= 8 and sum(r.global_loads.values()) - r.global_loads[128] <= 1
    assert next(s for s in net.module.program if s["op"] == "launch")["grid"][0] == 1000


# ---- products of two computed operands, neither along the sum


def nn(dtype, batch, m, n, k, transpose_a=False):
    g = Graph()
    x = g.input("x", dtype, (*batch, *((k, m) if transpose_a else (m, k))))
    y = g.input("y", dtype, (*batch, k, n))
    g.set_outputs(g.add("matmul", [x, y], {"transpose_a": transpose_a}))
    return g


@thinned(
    1,
    (
        "target,dtype",
        [(GFX942, "float16"), (GFX942, "bfloat16"), (GFX942, "int8"), (GFX942, "float32"), (GFX1100, "float16")],
    ),
    ("transpose_a", [False, True]),
)
def test_operands_are_turned_on_their_way(target, dtype, transpose_a):
    r = main_loop(nn(dtype, (), 2048, 2048, 512, transpose_a), target)
    assert r.spills == 0 and min(r.lds_reads) == 128 and min(r.lds_writes) >= 64
    assert r.matrix >= 16 and min(r.global_loads) >= (32 if dtype == "int8" else 64)  # a tile of 64 columns of bytes


@thinned(
    1,
    ("mcpu, dtype", [("gfx942", "float16"), ("gfx942", "int8"), ("gfx942", "float32"), ("gfx1100", "float16")]),
    (
        "shape, transpose_a",
        [((128, 64, 128), False), ((64, 64, 64), True), ((32, 32, 32), False), ((33, 40, 70), True)],
    ),
)
def test_turned_operands_on_the_software_gpu(mcpu, dtype, shape, transpose_a):
    m, n, k = shape
    g = nn(dtype, (2,), m, n, k, transpose_a)
    a, b = (rng.integers(-3, 4, v.shape).astype(dtype) for v in g.inputs)
    (got,) = tec.compile(g, target=f"rocm -mcpu={mcpu}", cache=False).run({"x": a, "y": b}, device=tec.rocm_emu(mcpu))
    np.testing.assert_array_equal(got.astype("f"), (a.swapaxes(1, 2) if transpose_a else a).astype("f") @ b.astype("f"))


def test_pipelined_sums_without_matrix_units():
    """f32 on a chip without a unit for it: the next step waits in registers, two barriers a step, nothing spills."""
    g = Graph()
    g.set_outputs([conv(g, g.input("x", "float32", (1, 64, 28, 28)), 128, 3, before=1, after=1)])
    net = tec.compile(g, target=GFX1100, cache=False)
    r = next(r for r in report(net.get_source("asm")) if "conv" in r.name)
    assert r.has_loop and r.spills == 0 and r.barriers == 2
    feeds = {"x": rng.standard_normal((1, 64, 28, 28)).astype("f")}
    (got,) = net.run(feeds, device=tec.rocm_emu("gfx1100"))
    np.testing.assert_allclose(got, run_graph(g, feeds)[0], rtol=1e-3, atol=1e-3)


def test_a_constant_of_every_element_beside_a_convolution():
    """A table of positions that is added to an image in blocks of channels, and multiplies it."""
    g = Graph()
    table = const(g, (1, 64, 9, 9))
    (y,) = g.add("add", [conv(g, g.input("x", "float32", (1, 32, 9, 9)), 64, before=1, after=1), table])
    g.set_outputs(g.add("multiply", [y, table]))
    same(g, choose_layouts(g, tec.Target("llvm")))
