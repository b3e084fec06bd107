"""Copies between plain images and blocks of channels, by squares: against te's own meaning, by the interpreter for each width of vectors and as code of this host."""

from __future__ import annotations

import numpy as np

import tec
from tec import te
from tec.choices import spaces
from tec.ir.interp import run
from tec.ops.layouts import Layout, plain
from tec.ops.registry import TensorType, get_op
from tests.thinned import thinned

LEVELS = {4: "llvm -mcpu=x86-64-v2", 8: "llvm -mcpu=x86-64-v3", 16: "llvm -mcpu=x86-64-v4"}
# Batch, channels and pixels: whole squares, cut off ones, blocks that channels do not fill, a signal and a volume.
SHAPES = [(1, 16, 4, 8), (2, 32, 5, 7), (2, 20, 3, 6), (1, 3, 5, 5), (3, 17, 19), (1, 18, 2, 3, 5)]


def copy(
    shape: tuple[int, ...], block: int, into: bool, dtype: str = "float32", read: str = ""
) -> tuple[te.Tensor, te.Tensor]:
    """A copy's operand and result; where a type is to be `read`, of what lies in that type, less a zero point of 3."""
    nchw = plain(len(shape))
    lies = Layout(f"{nchw}{block}c")
    sizes = dict(zip(nchw.name, shape))
    source, made = (nchw, lies) if into else (lies, nchw)
    attrs = {"layouts": (source, made), "sizes": tuple(sizes.items())}
    definition = get_op("transform_layout")
    x = te.placeholder(source.shape(sizes), dtype, name="x")
    copied = x
    if read:
        x = te.placeholder(source.shape(sizes), read, name="x")
        copied = te.compute(x.shape, lambda *i: x(*i).astype(dtype) - te.const(3, dtype), name="shifted")
    (y,) = definition.compute(attrs, [copied], definition.infer([TensorType(dtype, source.shape(sizes))], attrs))
    return x, y


@thinned(
    1, ("into", [True, False]), ("shape", SHAPES[:3]), ("dtype, block", [("int16", 8), ("float16", 4), ("uint8", 8), ("uint8", 16), ("int16", 16)]),
)  # fmt: skip
def test_copies_of_narrow_elements(dtype: str, block: int, shape: tuple[int, ...], into: bool) -> None:
    x, y = copy(shape, block, into, dtype)
    data = np.random.default_rng(1).integers(0, 200, [d.value for d in x.shape]).astype(dtype)
    (want,) = te.evaluate([y], {x: data})
    space = spaces([y], LEVELS[8])[0]
    assert space.template == "cpu relayout" or (not into and shape[1] % block)
    made = space.apply()
    out = tec.nd.array(np.full(want.shape, 99, dtype))
    tec.build(made.schedule, [x, *made.outputs], "llvm", name="f")(tec.nd.array(data), out)
    np.testing.assert_array_equal(out.numpy(), want)


@thinned(
    1, ("shape", SHAPES), ("dtype, read, block", [("int16", "uint8", 8), ("float32", "uint8", 8), ("int32", "int8", 8), ("float32", "int16", 16)]),
)  # fmt: skip
def test_copies_of_what_is_converted_before(dtype: str, read: str, shape: tuple[int, ...], block: int) -> None:
    """Elements that lie in another type are no reason to gather them; of channels that fill up a block 0 is what was converted."""
    x, y = copy(shape, block, True, dtype, read)
    data = np.random.default_rng(1).integers(0, 100, [d.value for d in x.shape]).astype(read)
    (want,) = te.evaluate([y], {x: data})
    for space in spaces([y], LEVELS[block]):
        made = space.apply()
        out = tec.nd.array(np.full(want.shape, 99, dtype))
        tec.build(made.schedule, [x, *made.outputs], "llvm", name="f")(tec.nd.array(data), out)
        np.testing.assert_array_equal(out.numpy(), want)
    assert spaces([y], LEVELS[block])[0].template == "cpu relayout" or np.prod(shape[2:]) < block
    assert spaces([copy(shape, block, False, dtype, read)[1]], LEVELS[block])[0].template == "cpu stages"


@thinned(1, ("into", [True, False]), ("shape", SHAPES), ("block", LEVELS))
def test_copies(block: int, shape: tuple[int, ...], into: bool) -> None:
    x, y = copy(shape, block, into)
    data = np.random.default_rng(1).standard_normal([d.value for d in x.shape]).astype("float32")
    (want,) = te.evaluate([y], {x: data})
    found = spaces([y], LEVELS[block])
    whole = into or shape[1] % block == 0
    assert [s.template for s in found] == ["cpu relayout", "cpu stages"] or not whole
    for space in found:
        for choice in space.all:
            made = space.apply(choice)
            args = [x, *made.outputs]
            func = next(iter(tec.lower(made.schedule, args, name="f", target=LEVELS[block])))
            got = np.full(want.size, np.nan, "float32")
            run(func, dict(zip([p.name for p in func.params], [data.reshape(-1).copy(), got])), {}, check=True)
            np.testing.assert_array_equal(got.reshape(want.shape), want)
            out = tec.nd.array(np.full(want.shape, np.nan, "float32"))
            tec.build(made.schedule, args, "llvm", name="f")(tec.nd.array(data), out)
            np.testing.assert_array_equal(out.numpy(), want)


def test_few_pixels_and_other_targets_take_elements() -> None:
    for shape, target in (((1, 16, 2, 3), LEVELS[8]), ((1, 16, 8, 8), "rocm -mcpu=gfx942"), ((1, 16, 8, 8), "llvm -mcpu=x86-64-v2")):  # fmt: skip
        x, y = copy(shape, 8, True)
        assert all(s.template != "cpu relayout" for s in spaces([y], target))


def test_squares_are_shuffles_and_not_gathers() -> None:
    x, y = copy((1, 32, 8, 8), 16, True)
    made = spaces([y], LEVELS[16])[0].apply()
    asm = tec.build(made.schedule, [x, *made.outputs], LEVELS[16], name="f").get_source("asm")
    assert "gather" not in asm and "vinsertps" not in asm


@thinned(
    1,
    ("chip", ["gfx942", "gfx1100"]),
    (
        "shape, dtype, tile",
        [
            ((2, 18, 13, 13), "float32", {}),
            ((1, 21, 6, 65), "float16", {}),
            ((1, 40, 9, 130), "float16", {"tile": 64}),
            ((1, 64, 7, 7), "float16", {"tile": 32}),
        ],
    ),
)
def test_pixels_become_an_image_by_tiles(shape: tuple[int, ...], dtype: str, tile: dict[str, int], chip: str) -> None:
    """Channels last to [n, c, h, w] on a GPU: through shared memory, tiles cut off at the edges, rows of pixels together where they are short."""
    sizes = dict(zip("NCHW", shape))
    source, definition = Layout("(NHW)C"), get_op("transform_layout")
    attrs = {"layouts": (source, plain(4)), "sizes": tuple(sizes.items())}
    x = te.placeholder(source.shape(sizes), dtype, name="x")
    outs = definition.compute(attrs, [x], definition.infer([TensorType(dtype, source.shape(sizes))], attrs))
    target = tec.Target(f"rocm -mcpu={chip}")
    space = spaces(outs, target)[0]
    assert space.template == "gpu transpose"
    chosen = space.apply({**space.default, **tile})
    f = tec.build(chosen.schedule, [x, *chosen.outputs], target, name="image")
    n, c, h, w = shape
    data = np.random.default_rng(1).standard_normal((n * h * w, c)).astype(dtype)
    dev = tec.rocm_emu(chip, check="all")
    got = tec.nd.empty(shape, dtype, dev)
    f(tec.nd.array(data, dev), got)
    np.testing.assert_array_equal(got.numpy(), data.reshape(n, h, w, c).transpose(0, 3, 1, 2))
