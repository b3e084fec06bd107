"""Quantized products as matrix units take them: int8, the zero points in a constant for each output channel; exact."""

import numpy as np
import pytest

import tec
from tec.choices.layouts import convolution
from tec.codegen.static_report import report
from tec.graph import Graph, run_graph
from tec.graph.passes.byte_products import byte_products
from tec.ops.layouts import Layout
from tec.ops.registry import TensorType
from tec.target.cpus import host_features
from tests.thinned import thinned
from tests.unit.graph.random_graphs import conv_attrs

GFX942 = tec.Target("rocm -mcpu=gfx942")
rng = np.random.default_rng(3)


def some(dtype, shape):
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def centred(g, x, zero):
    """x - zero in int32, as an importer writes it."""
    (wide,) = g.add("cast", [x], {"dtype": "int32"})
    if zero is None:
        return wide
    z = (
        g.add("cast", [zero], {"dtype": "int32"})[0]
        if not zero.is_const
        else g.constant(np.asarray(zero.data).astype("int32"))
    )
    return g.add("subtract", [wide, z])[0]


def matmul_graph(dtype, zero, m=24, k=40, n=32, weights="int8"):
    """zero: "none", "one" (constant), "computed" or "rows"; "raw" leaves the bytes as they are."""
    g = Graph()
    x = g.input("x", dtype, (m, k))
    w = some("int8", (k, n))
    if zero == "raw":
        g.set_outputs(g.add("matmul", [x, g.constant(w)], {"out_dtype": "int32"}))
        return g
    z = {
        "none": lambda: None, "one": lambda: g.constant(some(dtype, ())), "computed": lambda: g.input("z", dtype, ()),
        "rows": lambda: g.constant(some(dtype, (m, 1))),
    }[zero]()  # fmt: skip
    g.set_outputs(g.add("matmul", [centred(g, x, z), g.constant(w.astype("int32"))]))
    return g


def conv_graph(dtype, zero, stride=1, groups=1):
    g = Graph()
    x = g.input("x", dtype, (2, 6, 9, 9))
    z = None if zero == "none" else g.constant(some(dtype, ())) if zero == "one" else g.input("z", dtype, ())
    w = some("int8", (8 if groups == 1 else 6, 6 // groups, 3, 3)).astype("int32")
    g.set_outputs(g.add("conv", [centred(g, x, z), g.constant(w)], conv_attrs(stride, 1, 1, 1, groups)))
    return g


def feeds_of(g):
    return {v.name: some(v.dtype, v.shape) for v in g.inputs}


def kinds(g):
    return {n.inputs[0].dtype for n in g.nodes if n.op in ("matmul", "conv")}


@thinned(1, ("dtype", ["int8", "uint8"]), ("zero", ["none", "one", "computed", "rows"]))
def test_products(dtype, zero):
    g = matmul_graph(dtype, zero)
    after = byte_products(g, GFX942)
    after.check()
    assert kinds(after) == {"int8"}
    feeds = feeds_of(g)
    np.testing.assert_array_equal(run_graph(after, feeds)[0], run_graph(g, feeds)[0])


@thinned(2, ("dtype", ["int8", "uint8"]), ("zero", ["none", "one"]), ("stride", [1, 2]))
def test_convolutions(dtype, zero, stride):
    g = conv_graph(dtype, zero, stride)
    after = byte_products(g, GFX942)
    after.check()
    assert kinds(after) == {"int8"}
    feeds = feeds_of(g)
    np.testing.assert_array_equal(run_graph(after, feeds)[0], run_graph(g, feeds)[0])


def test_what_has_no_such_form_stays():
    for g in (conv_graph("uint8", "computed"), conv_graph("uint8", "one", groups=6)):
        assert kinds(byte_products(g, GFX942)) == {"int32"}
    wide = Graph()
    x = wide.input("x", "uint8", (4, 8))
    wide.set_outputs(wide.add("matmul", [centred(wide, x, None), wide.constant(np.full((8, 8), 200, "int32"))]))
    assert kinds(byte_products(wide, GFX942)) == {"int32"}  # weights less their zero point that are no bytes
    g = matmul_graph("uint8", "one")
    assert byte_products(g, tec.Target("llvm -mtriple=riscv64-unknown-linux-gnu")) is g


@pytest.mark.parametrize("zero", ["raw", "one", "computed"])
def test_products_run_on_the_matrix_unit(zero):
    net = tec.compile(matmul_graph("uint8", zero, 1024, 512, 2048), target=GFX942, cache=False)
    r = max(report(net.get_source("asm")), key=lambda r: r.matrix)
    assert r.matrix_kind == "mfma_i32_16x16x32_i8" and r.matrix >= 16 and min(r.lds_reads) == 128 and r.spills == 0


@thinned(
    1,
    ("dtype, zero", [("uint8", "one"), ("int8", "none"), ("int8", "computed"), ("uint8", "rows")]),
    (
        "target, wanted",
        [
            ("llvm -mcpu=znver4", "uint8"),
            ("llvm -mcpu=alderlake", "uint8"),
            ("llvm -mcpu=znver3", "int16"),
            ("llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1", "int8"),
        ],
    ),
)
def test_products_for_a_cpu(target, wanted, dtype, zero):
    """As the CPU's dot product takes them: unsigned by signed on x86, signed on Arm."""
    g = matmul_graph(dtype, zero)
    after = byte_products(g, tec.Target(target))
    after.check()
    assert kinds(after) == {wanted}
    feeds = feeds_of(g)
    np.testing.assert_array_equal(run_graph(after, feeds)[0], run_graph(g, feeds)[0])


@pytest.mark.parametrize("zero", ["none", "one", "computed"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions_by_pairs_of_16_bits(rank, zero):
    """Of a core without a dot product of bytes: any zero point, any rank, exact; of several groups in 32 bits as before."""
    haswell, g = tec.Target("llvm -mcpu=haswell"), Graph()
    x = g.input("x", "uint8", (1, 5, *(9, 7, 6)[:rank]))
    z = None if zero == "none" else g.constant(some("uint8", ())) if zero == "one" else g.input("z", "uint8", ())
    attrs = {k: (v,) * rank for k, v in (("strides", 2), ("dilations", 1), ("before", 1), ("after", 1))}
    w = g.constant(some("int8", (20, 5, *(3,) * rank)).astype("int32"))
    g.set_outputs(g.add("conv", [centred(g, x, z), w], {**attrs, "groups": 1}))
    after = byte_products(g, haswell)
    after.check()
    assert kinds(after) == {"int16"} and kinds(byte_products(conv_graph("uint8", "one", groups=6), haswell)) == {
        "int32"
    }
    feeds = feeds_of(g)
    (want,) = run_graph(g, feeds)
    np.testing.assert_array_equal(run_graph(after, feeds)[0], want)
    net = tec.compile(g, "llvm -mcpu=haswell", cache=False)
    assert "vpmaddwd" in net.module.get_source("asm")
    if "avx2" in host_features():
        np.testing.assert_array_equal(net.run(feeds)[0], want)


@pytest.mark.parametrize(("m", "k", "n"), [(9, 6, 24), (3, 33, 20), (5, 7, 40)])
def test_products_by_pairs_of_16_bits(m, k, n):
    g = matmul_graph("uint8", "computed", m, k, n)
    net = tec.compile(g, "llvm -mcpu=haswell", cache=False)
    assert "vpmaddwd" in net.module.get_source("asm")
    feeds = feeds_of(g)
    if "avx2" in host_features():
        np.testing.assert_array_equal(net.run(feeds)[0], run_graph(g, feeds)[0])


@pytest.mark.parametrize("graph", [
    lambda: matmul_graph("uint8", "raw", 13, 260, 80), lambda: matmul_graph("uint8", "computed", 16, 256, 96),
    lambda: matmul_graph("int8", "rows", 9, 512, 50), lambda: conv_graph("uint8", "one"), lambda: conv_graph("int8", "one", 2),
    lambda: conv_graph("uint8", "none", groups=6),
])  # fmt: skip
def test_on_this_cpu(graph):
    """Exact, whether or not this host has a dot product for bytes."""
    g = graph()
    feeds = feeds_of(g)
    net = tec.compile(g, target="llvm", cache=False)
    np.testing.assert_array_equal(net.run(feeds)[0], run_graph(g, feeds)[0])


@thinned(1, ("mcpu", ["gfx942", "gfx1100"]), ("graph", [
    lambda: matmul_graph("uint8", "raw"), lambda: matmul_graph("uint8", "computed"), lambda: matmul_graph("int8", "rows"),
    lambda: conv_graph("uint8", "one"), lambda: conv_graph("int8", "one", 2),
]))  # fmt: skip
def test_on_the_software_gpu(mcpu, graph):
    g = graph()
    feeds = feeds_of(g)
    (got,) = tec.compile(g, target=f"rocm -mcpu={mcpu}", cache=False).run(feeds, device=tec.rocm_emu(mcpu))
    np.testing.assert_array_equal(got, run_graph(g, feeds)[0])


@pytest.mark.parametrize(("m", "k", "n"), [(9, 6, 5), (3, 33, 20), (20, 64, 1), (5, 7, 40)])
@pytest.mark.parametrize("zero", ["raw", "one"])
def test_products_of_few_columns_and_of_terms_beside_whole_groups(m, k, n, zero):
    """On a CPU with a dot product of bytes: sums are filled up to whole groups, columns to whole vectors."""
    g = matmul_graph("uint8", zero, m, k, n)
    assert "vpdpbusd" in tec.compile(g, "llvm -mcpu=icelake-server", cache=False).module.get_source("asm")
    feeds = feeds_of(g)
    np.testing.assert_array_equal(tec.compile(g, "llvm", cache=False).run(feeds)[0], run_graph(g, feeds)[0])


def test_blocks_of_channels_are_no_larger_than_they_fill():
    """Of 17 channels in blocks of 8 a third of the sums would be zeros; an image that lies in blocks already is read as it lies."""
    haswell, attrs = tec.Target("llvm -mcpu=haswell"), conv_attrs(1, 1, 1, 1, 1)
    for channels, lies, block in ((17, (), 2), (64, (), 8), (15, (), 8), (17, (Layout("NCHW8c"),), 8), (3, (), 2)):
        x, w = TensorType("int16", (1, channels, 20, 20)), TensorType("int16", (32, channels, 3, 3))
        found = convolution(haswell, x, w, attrs, lies)
        assert found is not None and found.x == Layout(f"NCHW{block}c") and found.y == Layout("NCHW8c")
