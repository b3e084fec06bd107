"""Few very long rows on GPUs: reductions by parts, a kernel each, and the result by all units. Many short ones: several by a wavefront."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import schedule, spaces
from tec.emulator.profile import emulator_profile
from tec.graph import Graph
from tec.ops.registry import TensorType, get_op
from tests import seeds

AMD = "rocm -mcpu=gfx942"


def rows(op: str, shape: tuple[int, int], dtype: str) -> Graph:
    g = Graph()
    x = g.input("x", dtype, shape)
    y = g.add("layer_norm", [x], {"axis": 1, "epsilon": 1e-5}) if op == "layer_norm" else g.add(op, [x], {"axes": (1,)})
    g.set_outputs([y[0]], ["y"])
    return g


def wanted(op: str, x: Any) -> Any:
    if op == "layer_norm":
        return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def choice(net: Any) -> Any:
    (made,) = net.report.choices.values()
    return made["choice"]


@pytest.mark.parametrize("seed", seeds.some(3))
def test_drawn_rows(seed: int) -> None:
    rng = random.Random(seed)
    op, dtype = rng.choice(("layer_norm", "softmax")), rng.choice(("float32", "float16"))
    shape = rng.choice((1, 2, 3)), rng.choice((90001, 90090, 131072))
    net = tec.compile(rows(op, shape, dtype), target=AMD)
    assert choice(net)["template"] == "gpu rows" and choice(net)["parts"] > 1
    x = np.random.default_rng(seed).standard_normal(shape).astype(dtype) * 2 + 1
    (y,) = net.run([x], device=tec.rocm_emu("gfx942"))
    want = wanted(op, x.astype("f8"))
    assert abs(y - want).max() <= (2e-3 if dtype == "float16" else 1e-6) * abs(want).max()


def test_many_or_short_rows_stay_whole() -> None:
    """A work-group a row, where these are enough for the units, or where another launch takes longer than a row."""
    for shape in ((2000, 32768), (2, 1024)):
        assert choice(tec.compile(rows("softmax", shape, "float16"), target=AMD))["parts"] == 1


def test_one_row_on_other_gpus() -> None:
    for target in ("cuda -arch=sm_90a", "rocm -mcpu=gfx1100"):
        net = tec.compile(rows("layer_norm", (1, 1 << 22), "float32"), target=target)
        assert choice(net)["parts"] >= 16


def softmax(shape: tuple[int, int], dtype: str) -> tuple[Any, Any]:
    x = te.placeholder(shape, dtype, name="x")
    types = [TensorType(dtype, shape)]
    (y,) = get_op("softmax").compute({"axes": (1,)}, [x], get_op("softmax").infer(types, {"axes": (1,)}))
    return x, y


@pytest.mark.parametrize("seed", seeds.some(3))
def test_rows_that_share_a_wavefront(seed: int) -> None:
    """Right by any number of threads that a row may have, with rows that some of these have no element of."""
    rng = random.Random(seed)
    chip, dtype, threads = rng.choice(("gfx942", "gfx1100")), rng.choice(("float32", "float16")), rng.choice((8, 16))
    shape = 8 * rng.randint(1, 5), rng.choice((7, 24, 77, 120))
    x, y = softmax(shape, dtype)
    made = schedule([y], f"rocm -mcpu={chip}", {"template": "gpu rows", "threads": threads, "piece": 0, "rows": rng.choice((2, 4, 8)), "parts": 1})  # fmt: skip
    f, dev = tec.build(made.schedule, [x, *made.outputs], f"rocm -mcpu={chip}"), tec.rocm_emu(chip, check="all")
    a, out = np.random.default_rng(seed).standard_normal(shape).astype(dtype), tec.nd.empty(shape, dtype, dev)
    f(tec.nd.array(a, dev), out)
    assert abs(out.numpy() - wanted("softmax", a.astype("f8"))).max() <= (2e-3 if dtype == "float16" else 1e-6)


def test_many_short_rows_share_wavefronts() -> None:
    """Whatever their number; on chips of which no figure says so, each has a wavefront."""
    for target, count, want in ((AMD, 40000, (8, 8)), (AMD, 40001, (8, 8)), ("cuda -arch=sm_90a", 40000, (32, 1))):
        chosen = spaces([softmax((count, 24), "float32")[1]], target)[0].default
        assert (chosen["threads"], chosen["rows"]) == want


def test_many_parts_of_column_sums_are_joined_by_work_groups():
    """A thread that adds up hundreds of parts waits for each eight of them: 41 us of 9,000 x 1,000 by the time model of an MI300X, 11 so."""
    shape, op, target = (4000, 136), get_op("reduce_sum"), tec.Target("rocm -mcpu=gfx942")
    x, attrs = tec.te.placeholder(shape, "float32", name="x"), {"axes": (0,), "keepdims": False}
    made = schedule(op.compute(attrs, [x], op.infer([TensorType("float32", shape)], attrs)), target)
    assert made.choice["parts"] >= 32
    f, dev = tec.build(made.schedule, [x, *made.outputs], target, name="sums"), tec.rocm_emu("gfx942", check="all")
    values = np.random.default_rng(1).standard_normal(shape).astype("float32")
    out = tec.nd.empty(shape[1:], "float32", dev)
    with emulator_profile(dev.driver) as p:
        f(tec.nd.array(values, dev), out)
    assert np.abs(out.numpy() - values.astype("f8").sum(0)).max() < 1e-3
    assert p.launches[-1].estimate.microseconds < 5


@pytest.mark.parametrize("dtype, shape", [("float32", (1438, 31240)), ("float16", (816, 42432))])
def test_rows_that_threads_can_keep_are_kept_on_hopper(dtype, shape):
    """The loops of fewer threads, which read the row again, are priced below these: on an H200 they take 1.9 times as long."""
    made = choice(tec.compile(rows("softmax", shape, dtype), "cuda -arch=sm_90a"))
    assert made["template"] == "gpu rows" and made["threads"] == 1024


@pytest.mark.parametrize("chip", ["gfx90a", "gfx1100"])
def test_rows_of_64_elements_a_thread_are_read_once_on_amd(chip: str) -> None:
    """160 layer norms of 45,718 in float32 took 94 us by the time model of an MI210 where each pass read the row, and 71 so."""
    net = tec.compile(rows("layer_norm", (160, 45718), "float32"), target=f"rocm -mcpu={chip}", cache=False)
    assert choice(net)["threads"] == 1024
    # 22 turns of 1,024 pieces of 8 bytes, and what is left: each pass would have its own.
    assert sum("_load_" in line for line in net.get_source("asm").splitlines() if "s_load" not in line) <= 2 * 23
