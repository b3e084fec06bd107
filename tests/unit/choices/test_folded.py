"""Products whose results stand folded in another tensor: convolutions in groups, and of images that stay NCHW."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tec
from tec import te, topi
from tec.choices import schedule, spaces
from tec.codegen.static_report import report
from tec.graph import Graph, run_graph
from tec.ops.layouts import Layout
from tec.ops.registry import TensorType, get_op
from tests.thinned import thinned_rows

PIXELS, FLAT = Layout("(NHW)C"), Layout("O(HWI)")
# images (n, c, h, w), output channels, groups, window, stride, whether the image lies as pixels by channels
CASES: dict[str, tuple[tuple[int, int, int, int], int, int, int, int, bool]] = {
    "groups of whole tiles, pixels": ((1, 128, 5, 6), 64, 2, 3, 1, True),
    "groups of 24, pixels": ((2, 48, 5, 7), 48, 2, 3, 2, True),
    "more outputs than inputs, pixels": ((1, 32, 5, 5), 80, 2, 1, 1, True),
    "a plain image": ((2, 16, 6, 7), 24, 1, 3, 1, False),
    "plain, pointwise": ((1, 32, 4, 8), 32, 1, 1, 1, False),
    "plain, in groups": ((1, 64, 7, 7), 40, 2, 3, 2, False),
    "plain, groups of few": ((1, 64, 5, 5), 64, 8, 3, 1, False),
    "plain, a pixel an image": ((32, 16, 3, 3), 24, 1, 3, 3, False),
}  # fmt: skip


def convolved(name: str, dtype: str) -> tuple[list[te.Tensor], te.Tensor]:
    """A convolution, a bias, another image added, a relu."""
    (n, c, h, w), out, groups, k, stride, as_pixels = CASES[name]
    x_shape = (n * h * w, c) if as_pixels else (n, c, h, w)
    w_shape = (out, k * k * c // groups) if as_pixels else (out, c // groups, k, k)
    attrs: dict[str, Any] = {
        "kernel": (k, k), "strides": (stride,) * 2, "dilations": (1, 1), "before": (k // 2,) * 2, "after": (k // 2,) * 2, "groups": groups,
        **({"layouts": (PIXELS, FLAT, PIXELS), "space": (n, h, w)} if as_pixels else {}),
    }  # fmt: skip
    x, weights = te.placeholder(x_shape, dtype, name="x"), te.placeholder(w_shape, dtype, name="w")
    op = get_op("conv")
    types = [TensorType(dtype, s) for s in (x_shape, w_shape)]
    (y,) = op.compute(attrs, [x, weights], op.infer(types, attrs))
    bias, other = te.placeholder((out,), dtype, name="b"), te.placeholder(y.shape, dtype, name="o")
    at = 1
    z = te.compute(y.shape, lambda *i: y(*i) + bias[i[at]], name="biased")
    return [x, weights, bias, other], te.compute(
        y.shape, lambda *i: te.max(z(*i) + other(*i), te.const(0, dtype)), name="relu"
    )


def run(xs: list[te.Tensor], y: te.Tensor, target: str, choice: Any = None) -> tuple[Any, Any]:
    """The function by a choice, and the chosen one; results are compared with the definition's."""
    chosen = schedule([y], target, choice)
    f = tec.build(chosen.schedule, [*xs, *chosen.outputs], target, name="kernel")
    rng = np.random.default_rng(7)
    # Sums are exact in any order.
    values = [(rng.integers(-4, 5, [int(d.value) for d in x.shape]) / 4).astype(x.dtype) for x in xs]
    (want,) = te.evaluate([y], dict(zip(xs, values)))
    dev = tec.rocm_emu(target.rpartition("=")[2], check="race,init,wait")
    on = [tec.nd.array(v, dev) for v in (*values, np.full_like(want, np.nan))]
    f(*on)
    np.testing.assert_allclose(on[-1].numpy(), want, rtol=2e-3 if y.dtype == "float16" else 1e-6)
    return f, chosen.choice


@thinned_rows(
    4,
    "name,chip,unit",
    [(name, "gfx942", "v_mfma_f32") for name in CASES if "a pixel" not in name]
    + [(name, "gfx1100", "v_wmma_f32") for name in ("groups of 24, pixels", "plain, groups of few")],
)
def test_on_matrix_units(name: str, chip: str, unit: str) -> None:
    xs, y = convolved(name, "float16")
    f, _ = run(xs, y, f"rocm -mcpu={chip}", {"template": "matrix product"})
    (code,) = f.imported_modules
    assert unit in code.get_source("asm")
    assert all(r.spills == 0 for r in report(code.get_source("asm")))


@pytest.mark.parametrize("name", ["groups of 24, pixels", "plain, groups of few"])
def test_without_matrix_units(name: str) -> None:
    xs, y = convolved(name, "float32")
    run(xs, y, "rocm -mcpu=gfx1100", {"template": "blocked product"})


def test_in_parts() -> None:
    xs, y = convolved("groups of whole tiles, pixels", "float16")
    small = {
        "template": "matrix product",
        "rows": 16,
        "columns": 16,
        "step": 32,
        "waves_m": 1,
        "waves_n": 1,
        "ahead": 1,
        "splits": 2,
    }
    f, _ = run(xs, y, "rocm -mcpu=gfx942", small)
    assert len(re.findall(r"\.end_amdhsa_kernel", f.imported_modules[0].get_source("asm"))) == 2


def test_a_reader_of_other_places_is_no_epilogue() -> None:
    xs, y = convolved("a plain image", "float16")
    n, c, h, w = (int(d.value) for d in y.shape)
    turned = te.compute((n, c, h, w), lambda i, k, p, q: y[i, k, h - 1 - p, q], name="turned")
    _, choice = run(xs, turned, "rocm -mcpu=gfx942")
    assert choice["template"] != "matrix product"


def test_recorded_choices_and_cpus() -> None:
    xs, y = convolved("plain, in groups", "float32")
    assert spaces([y], "llvm")[0].template.startswith("cpu")
    space = spaces([y], "rocm -mcpu=gfx942")[0]
    with tec.choices.records.using({space.group.signature: {"template": "matrix product", "rows": 16, "columns": 16}}):
        found = schedule([y], "rocm -mcpu=gfx942").choice
    assert (found["rows"], found["columns"]) == (16, 16)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_ptx_is_made(arch: str) -> None:
    for name in ("groups of 24, pixels", "plain, groups of few"):
        xs, y = convolved(name, "float16")
        chosen = schedule([y], f"cuda -arch={arch}")
        f = tec.build(chosen.schedule, [*xs, *chosen.outputs], f"cuda -arch={arch}")
        units = "wgmma.mma_async|mma.sync" if arch == "sm_90a" else "mma.sync"
        assert re.search(units, f.imported_modules[0].get_source("ptx"))


@thinned_rows(2, "own", [4, 8, 24])
def test_a_network_takes_groups_as_products(own: int) -> None:
    """Groups of few channels are computed as one, with zeros between them; nothing is relaid between the two convolutions."""
    rng = np.random.default_rng(own)
    groups = 96 // own if own == 24 else 8
    g = Graph()
    x = g.input("x", "float16", (1, own * groups, 14, 14))
    y = x
    for _ in range(2):
        w = g.constant((rng.integers(-2, 3, (own * groups, own, 3, 3)) / 8).astype("float16"))
        attrs = {"strides": (1, 1), "dilations": (1, 1), "before": (1, 1), "after": (1, 1), "groups": groups}
        (y,) = g.add("conv", [y, w], attrs)
        (y,) = g.add("relu", [y])
    g.set_outputs([y])
    value = (rng.integers(-2, 3, x.shape) / 2).astype("float16")
    (want,) = run_graph(g, {"x": value})
    net = tec.compile(g, "rocm -mcpu=gfx942")
    (got,) = net.run({"x": value}, tec.rocm_emu("gfx942", check="race,init,wait"))
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3)
    used = [c["choice"]["template"] for c in net.report.choices.values()]
    assert used.count("matrix product") >= 1 and "gpu reduction" not in used


def test_layout_of_scheduled_loops() -> None:
    a = te.placeholder((4, 6, 5), "int32", name="a")
    b = te.compute((4, 6, 5), lambda g, i, j: a[g, i, j] * 2, name="b")
    s = te.create_schedule(b.op)
    _, inner = s[b].split(b.op.axis[2], factor=4)
    s[b].unroll(inner)
    assert s[b].transform_layout(lambda g, i, j: [i, g * 5 + j], keep_loops=True) == []
    assert str(s.trace).endswith("keep_loops=True)")
    f = tec.build(s, [a, b], "llvm")
    x, out = np.arange(120, dtype=np.int32).reshape(4, 6, 5), np.zeros((6, 20), np.int32)
    f(tec.nd.array(x), y := tec.nd.array(out))
    np.testing.assert_array_equal(y.numpy(), 2 * x.transpose(1, 0, 2).reshape(6, 20))


def test_topi_group_convolution_is_a_product() -> None:
    x, w = te.placeholder((1, 32, 28, 28), "float16", name="x"), te.placeholder((32, 16, 3, 3), "float16", name="w")
    y = topi.nn.group_conv2d_nchw(x, w, 1, 1, 1, 2)
    assert spaces([y], "rocm -mcpu=gfx942")[0].template == "matrix product"


def test_images_of_one_pixel() -> None:
    """An index of the image is always 0."""
    run(*convolved("plain, a pixel an image", "float32"), "rocm -mcpu=gfx90a")
