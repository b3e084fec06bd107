"""What layouts a target's templates like: the graph's layout pass asks here, for one operator at a time.

CPU: channels in blocks of a vector, so that a register tile is some columns by a block. GPUs with a matrix unit for the type: images as matrices of
pixels by channels, weights along the sum; so no operand is turned round in shared memory, 16-byte accesses never leave a tap, and the threads of what
follows, a vector of channels each, touch whole cache lines. Other GPUs: products of weights with the windows of the image, flat in its pixels.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from ..ir.dtype import dtype_info
from ..ir.shared_layout import PIECE_BYTES
from ..ops.conv import has_runs
from ..ops.dims import is_zero
from ..ops.layouts import Layout, plain, space
from ..ops.matmul import accumulator
from ..ops.registry import TensorType
from ..ops.typical import typical
from ..records import dataclass
from ..target import Target
from ..te import intrin
from .families import plain_windows
from .families.products import tile_clocks, tilings
from .parts.counts import lanes_for
from .rules import figures

FEW_CHANNELS = 4  # inputs with so few channels stay NCHW: a block would be mostly padding
_WIDEST_MERGED = 128  # channels of groups computed as one on a matrix unit: a cache line of float16 twice
# Channels of a step of a product or less, so that a first cache keeps their lines for the window's other places.
_BLOCKS = (8, 16, 32)
_MOST_MERGED = 8  # groups that are computed as one, mostly zeros, so that they fill a block: vectors are worth as much
_FILL = 4  # channels that come from NCHW are filled up to a multiple: 8- and 16-byte accesses stay within a tap
_LEAST_PACKED = 1 << 14  # elements of B from which on panels pay
_NARROW_GROUP, _AVX2_BYTES = 4, 32  # bytes that make a number of 32 bits; of a vector
FEW_ROWS = 8  # products with fewer rows or columns are sums, an output a thread or a work-group
_FLOATS = ("float32", "float16", "bfloat16", "float64")


@dataclass(frozen=True)
class Convolution:
    """Layouts of input, weights and output. `merged`: groups computed as one; `fill`: a group's channels are filled up to a multiple; `dtype`: operands are
    widened to it. block: of flat weights of a plain image, channels that follow each other along the sum for each place of the window (`tec.ops.conv`); 0: the order of the weights."""

    x: Layout
    weights: Layout
    y: Layout
    merged: int = 1
    fill: int = 1
    dtype: str | None = None
    block: int = 0


def convolution(
    target: Target, x: TensorType, w: TensorType, attrs: dict[str, Any], lies: Collection[Layout]
) -> Convolution | None:
    """The layouts for a convolution (NCHW, constant OIHW weights) whose input `lies` in some already; None: as it is."""
    if not target.is_gpu:
        return _blocked(target, x, w, attrs, lies)
    groups, axes = attrs["groups"], space(x.ndim)
    flat_weights = math.prod(w.shape[2:]) > 1
    if x.dtype != w.dtype:
        return None
    if x.dtype in {i.in_dtype for i in intrin.shapes(target)}:
        pixels = Layout(f"(N{axes})C")
        if groups == 1:
            is_filled = pixels not in lies and flat_weights and not has_runs(attrs, w.shape[1])
            fill = filled_multiple(target, w.shape[1], x.dtype) if is_filled else 1
            return Convolution(pixels, Layout(f"O({axes}I)"), pixels, fill=fill)
        if groups == w.shape[0] and w.shape[1] == 1 and x.dtype != "int8":
            if plain_windows.are_worth(target, x, w, pixels, lies):
                return None
            return Convolution(pixels, Layout(f"({axes})O" if len(axes) > 1 else f"{axes}O"), pixels)
        together = _merged(target, x, w, attrs, pixels not in lies and flat_weights)
        if together is not None:
            merged, fill = together
            return Convolution(pixels, Layout(f"O({axes}I)"), pixels, merged=merged, fill=fill)
    if groups == 1 and x.dtype in _FLOATS and not attrs.get("fill"):
        weights, flat = Layout(f"O(I{axes})"), Layout(f"NC({axes})" if len(axes) > 1 else f"NC{axes}")
        as_matrices = bool(target.chip.warpgroup) and is_pointwise(w, attrs)  # bulk copies take a matrix as it lies
        if target.chip.warpgroup and isinstance(x.shape[0], int) and x.shape[0] > 1:
            # Pixels of all images are one side of one product: images of 14 x 14 or 7 x 7 fill no tiles of 64 or 128 pixels one by one, and rows of 49 pixels begin
            # where no bulk copy can.
            images, rows = Layout(f"C(N{axes})"), Layout(f"CN{axes}")
            if as_matrices or images in lies:
                return Convolution(images if as_matrices else rows, weights, images)
        block = channel_block(target, w, x.dtype)
        block = block if block and w.shape[1] % block == 0 else 0
        return Convolution(flat if as_matrices else plain(x.ndim), weights, flat, block=block)
    return None


def filled_multiple(target: Target, channels: int, dtype: str) -> int:
    """The multiple that channels from NCHW are filled up to."""
    piece = PIECE_BYTES // dtype_info(dtype).bytes
    few, whole = (-(-channels // n) * n for n in (_FILL, piece))
    if not target.machine.priced_by_model:
        return _FILL
    return piece if whole <= figures.of("convolution layout", target)["filled"] * few else _FILL


def channel_block(target: Target, w: TensorType, dtype: str) -> int:
    """Channels that the sums of a plain image's windows take for each place of the window, so that threads of an AMD GPU find the place and its condition once for a piece of neighbouring
    channels, and what the next places share stays in the first cache; 0 where a window has one place, or filling pieces up would be a third of the work. On NVIDIA nobody measured it."""
    channels, piece = w.shape[1], PIECE_BYTES // dtype_info(dtype).bytes
    if not target.is_gpu or not target.machine.priced_by_model or math.prod(w.shape[2:]) == 1:
        return 0
    whole = -(-channels // piece) * piece
    if 3 * whole > 4 * channels:
        return 0
    return max(b for b in (piece, *_BLOCKS) if b >= piece and -(-channels // b) * b == whole)


def _merged(
    target: Target, x: TensorType, w: TensorType, attrs: dict[str, Any], is_copied: bool
) -> tuple[int, int] | None:
    """How many groups of a convolution are best computed as one on matrix units, zeros between them: a few channels fill no fragment, and read parts of
    cache lines alone; and to what multiple their channels are filled up where the image is copied anyway. None where no unit takes them."""
    groups, taps = attrs["groups"], math.prod(w.shape[2:])
    pixels = max(1, typical(x.shape[0]) * math.prod(typical(n) // s for n, s in zip(x.shape[2:], attrs["strides"])))
    best: tuple[float, tuple[int, int]] | None = None
    piece = PIECE_BYTES // dtype_info(x.dtype).bytes
    by_model = target.machine.priced_by_model  # whose prices tell short loads from long ones
    for merged in (m for m in range(1, groups + 1) if groups % m == 0):
        own_in, own_out = merged * w.shape[1], merged * w.shape[0] // groups
        if own_in == 1 or (merged > 1 and max(own_in, own_out) > _WIDEST_MERGED):
            continue
        fills = {-(-own_in // f) * f: f for f in (piece, _FILL, 1)} if is_copied and by_model else {own_in: 1}
        for filled, fill in fills.items():
            run = math.gcd(filled, piece) if by_model else 0
            shape = tilings.Shape(
                pixels, own_out, taps * filled, groups // merged, x.dtype, accumulator(x.dtype), padded=True, guarded=True,
                fixed=not x.is_symbolic, runs=(run if run < piece else 0, 0),
            )  # fmt: skip
            found = tilings.cheapest(shape, target)
            seconds = tilings.seconds(found, shape, target)[0] if found is not None else math.inf
            if found is not None and (best is None or seconds < best[0]):
                best = seconds, (merged, fill)
    return best[1] if best is not None else None


def is_pointwise(w: TensorType, attrs: dict[str, Any]) -> bool:
    """Whether a convolution is a product of its weights with each image, a matrix of channels by pixels as it lies."""
    return (
        math.prod(w.shape[2:]) == 1
        and all(s == 1 for s in attrs["strides"])
        and all(map(is_zero, (*attrs["before"], *attrs["after"])))
    )


def _blocked(
    target: Target, x: TensorType, w: TensorType, attrs: dict[str, Any], lies: Collection[Layout]
) -> Convolution | None:
    block, groups, axes, acc = max(8, target.vector_bytes // 4), attrs["groups"], space(x.ndim), accumulator(x.dtype)
    blocked = Layout(f"NC{axes}{block}c")
    dot = dot_of(target, x.dtype, w.dtype)
    if dot is not None and groups == 1:
        unit = intrin.tiles(target, x.dtype)
        if unit is not None and _fills(unit.steps * unit.group, w):  # channels that fill a tile's row
            block = unit.steps * unit.group
            blocked = Layout(f"NC{axes}{block}c")
            if x.dtype == "bfloat16" and w.shape[1] <= FEW_CHANNELS and blocked not in lies:
                # Too few for a tile's row; and such a core's dot products of vectors multiply no more a clock than float32 does: a ResNet-50's
                # first layer took 3.9 ms by them and 1.4 in float32.
                return Convolution(plain(x.ndim), Layout(f"OI{axes}{block}o"), blocked, dtype=acc)
        most = figures.of("dot convolution", target)["most_filled"] if unit is None else math.inf
        return _dotted(dot, x.ndim, w.shape[1], block, blocked in lies, most)
    if attrs.get("fill"):
        return None
    if groups == w.shape[0] and w.shape[1] == 1 and groups > 1:
        return Convolution(blocked, Layout(f"O{axes}{block}o"), blocked, dtype=acc)
    merged = 1
    if groups > 1:
        merged = math.lcm(*(block // math.gcd(block, n) for n in (w.shape[1], w.shape[0] // groups)))
        if merged > _MOST_MERGED or groups % merged:
            return None
    if groups == 1 and w.shape[1] <= FEW_CHANNELS and blocked not in lies:
        return Convolution(plain(x.ndim), Layout(f"OI{axes}{block}o"), blocked, dtype=acc)
    return Convolution(blocked, Layout(f"OI{axes}{block}i{block}o"), blocked, merged=merged, dtype=acc)


def _fills(row: int, w: TensorType) -> bool:
    """Whether channels lie in blocks of a tile's row: 32 of bfloat16 always, 64 bytes where input and output are whole blocks of them."""
    return row <= 32 or (w.shape[0] % row == 0 and (w.shape[1] % row == 0 or w.shape[1] <= FEW_CHANNELS))


def dot_of(target: Target, a: str, b: str) -> intrin.VectorDot | None:
    """The dot product of a CPU's vector units for operands of two types."""
    dot = intrin.vector_dot(target, a)
    return dot if dot is not None and dot.other == b else None


def _dotted(dot: intrin.VectorDot, rank: int, channels: int, block: int, is_blocked: bool, most_filled: float) -> Convolution:  # fmt: skip
    """A convolution by dot products: groups of channels lie side by side in the image and in the weights. Blocks of the image are no larger than a group where channels
    are few, or would be filled up by more than `most_filled` of them."""
    axes = space(rank)
    is_filled = -channels % block > most_filled * channels + -channels % dot.group
    few = not is_blocked and (channels <= FEW_CHANNELS or is_filled)
    x = Layout(f"NC{axes}{dot.group if few else block}c")
    return Convolution(x, Layout(f"O{axes}I{block}o{dot.group}i"), Layout(f"NC{axes}{block}c"))


@dataclass(frozen=True)
class ProductLayouts:
    """Layouts of a product's constant operands; None: as they are."""

    a: Layout | None
    b: Layout | None


def product(target: Target, a: TensorType, b: TensorType, out: TensorType, attrs: dict[str, Any]) -> ProductLayouts:
    """The layouts that a product's operands are best read in, were they constant.

    GPU: a matrix unit takes its elements along the sum; so an operand passes through shared memory in 16-byte pieces, and a product of few rows reads
    whole cache lines, unless a sum is cut within a piece: an AMD GPU's few rows are then read across it. Without a matrix unit for the type, large products stay as they are: their columns are read side by side. CPU: B of a large
    product in panels, each of which is one stream of memory for a register tile, where a row-major B has a page of its own for every k (one row times
    256 x 1024 takes a third of the time); B of a small one as rows. Of types that vector units multiply in groups (`te.intrin.vector_dot`), those groups side
    by side.
    """
    if target.is_gpu:
        rows, columns = map(typical, out.shape[-2:])
        is_on_units = a.dtype in {i.in_dtype for i in intrin.shapes(target)}
        if target.machine.priced_by_model and 2 <= rows < FEW_ROWS <= columns and _is_cut(a, b, attrs):
            return ProductLayouts(Layout("MK"), Layout("KN"))
        along = is_on_units or min(rows, columns) < FEW_ROWS
        return ProductLayouts(Layout("MK"), Layout("NK")) if along else ProductLayouts(None, None)
    lanes, n = lanes_for("float32", target), out.shape[-1]
    small = b.ndim != 2 or b.size < _LEAST_PACKED or n < lanes
    dot = dot_of(target, a.dtype, b.dtype)
    k = b.shape[-1 if attrs.get("transpose_b") else -2]
    # Small ones of bytes too, which else are widened one by one.
    is_dotted = dot is not None and (not small or (b.ndim == 2 and dot.acc == "int32"))
    if dot is not None and is_dotted and not attrs.get("transpose_a") and isinstance(k, int) and k % dot.group == 0:
        return ProductLayouts(None, Layout(f"NK{2 * lanes if n % (2 * lanes) == 0 else lanes}n{dot.group}k"))
    if a.dtype != "float32" or small or attrs.get("transpose_a"):
        return ProductLayouts(None, Layout("KN"))
    return ProductLayouts(None, Layout(f"NK{lanes * tile_clocks.panel_vectors(target, lanes, out.shape[-2], n)}n"))


def _is_cut(a: TensorType, b: TensorType, attrs: dict[str, Any]) -> bool:
    """Whether a sum is no whole number of pieces, which a few rows' loops along it want: the matrix would be read again for each row. Across it a thread has all rows
    (`families.products.thin`)."""
    k = b.shape[-1 if attrs.get("transpose_b") else -2]
    return a.dtype in _FLOATS and isinstance(k, int) and k * dtype_info(a.dtype).bytes % PIECE_BYTES != 0


def packed_group(target: Target) -> int:
    """Bytes of x that a CPU multiplies with packed codes at once, where a model lets x be rounded to bytes; 1 where it multiplies floats. Cores without
    such an instruction do it in two (`dot4_narrow`)."""
    if target.is_gpu:
        return 1
    dot = dot_of(target, "uint8", "int8")
    return dot.group if dot is not None else _NARROW_GROUP if is_narrow(target) else 1


def is_narrow(target: Target) -> bool:
    """Whether bytes are multiplied by way of 16 bits: on x86 with AVX2 and without a dot product of bytes."""
    return not target.is_gpu and target.vector_bytes == _AVX2_BYTES and "uint8" not in target.core.dots


def packed(target: Target) -> int:
    """Columns of a panel of packed weights (`tec.ops.packed.Weights`): two vectors of sums on a CPU; 0, rows along the sum, on a GPU, whose threads read
    words of them side by side."""
    return 0 if target.is_gpu else 2 * lanes_for("float32", target)
