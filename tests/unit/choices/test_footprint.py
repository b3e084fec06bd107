"""What a choice asks of a machine, as read from its loops: against figures worked out by hand, and against what templates say in advance."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tec_onnx

import tec
from tec import te, topi
from tec.choices import Space, footprint, proof, spaces
from tec.choices.cost import Footprint, Kernel, price
from tec.graph.optimize import optimize
from tec.graph.parts import part_of
from tec.graph.programs import program_of
from tec.graph.sizes import sizes_of_group
from tec.ir import Var
from tec.ir import expr as E
from tec.ir.index_values import evaluated
from tec.ir.visit import deep_recursion
from tests import seeds

from .draws import draw
from .lowering import drawn, target_of

SEED = seeds.number()
DRAWS = int(os.environ.get("TEC_LOWER_DRAWS", "100")) // 4
_BATCHES = 5  # tests that share the draws, so that cores do too
GPU = "rocm -mcpu=gfx942"


def of(made_of: list[Any], target: str, template: str, **choice: Any) -> Footprint:
    """The footprint of a template's choice, the default's but for what is said."""
    space = next(s for s in spaces(made_of, target) if s.template == template)
    made = proof.lower(space, space.check(choice), proof.alone)
    assert isinstance(made, proof.Made), made
    return footprint.read(made)


def test_elementwise_work() -> None:
    """Two operands of 2**20 float32 and their sum: each thread has 16 bytes of each, and waits once."""
    a, b = (te.placeholder((1 << 20,), "float32", name=n) for n in "ab")
    (kernel,) = of([topi.add(a, b)], GPU, "gpu stages").kernels
    assert (kernel.groups, kernel.threads, kernel.shared_bytes) == (1024, 256, 0)
    assert kernel.memory_bytes == kernel.asked_bytes == 3 * 4 << 20
    assert (kernel.waits, kernel.barriers, kernel.issued) == (1, 0, 4)


def test_a_transpose_passes_through_shared_memory() -> None:
    """1024 by 1024 in float32, tiles of 64 by 64 in rows a word apart: whole segments on both sides, one barrier."""
    a = te.placeholder((1024, 1024), "float32", name="a")
    turned = [te.compute((1024, 1024), lambda i, j: a[j, i], name="t")]
    (kernel,) = of(turned, GPU, "gpu transpose", tile=64, threads=256, piece=4).kernels
    assert (kernel.groups, kernel.threads, kernel.barriers) == (256, 256, 1)
    assert kernel.shared_bytes in range(64 * 64 * 4, 64 * 65 * 4 + 1)
    assert kernel.memory_bytes == kernel.asked_bytes == kernel.scratch_bytes == 2 * 4 << 20
    by_elements = of(turned, GPU, "gpu stages", vector=1).kernels[0]
    assert by_elements.asked_bytes > 4 * kernel.asked_bytes  # a segment for each element that is read
    assert by_elements.narrow_bytes == kernel.narrow_bytes == 0  # what is stored are whole segments


def test_elements_of_a_vector_may_lie_anywhere() -> None:
    """24 channels of 2,401 pixels that lay channels last: eight neighbours of the result stand 48 bytes apart each, in rows that vectors do not divide. So each
    element asks for a segment of 32 bytes of its own, and the result is written once."""
    x = te.placeholder((2, 2401, 24), "float16")
    y = te.compute((2, 24, 2401), lambda n, c, p: x[n, p, c])
    (kernel,) = of([y], GPU, "gpu stages", vector=16, rows=0).kernels
    assert kernel.asked_bytes == pytest.approx(2 * 2401 * 24 * (32 + 2), rel=0.05)


def test_long_sums_in_parts_are_two_kernels() -> None:
    a = te.placeholder((8, 1 << 16), "float32", name="a")
    found = of([topi.sum(a, axis=1)], GPU, "gpu reduction", shared=True, threads=256, parts=8, piece=0, wide=0)
    first, second = found.kernels
    assert (first.groups, first.threads) == (64, 256)
    assert first.memory_bytes == pytest.approx(4 * 8 * (1 << 16), rel=0.01)
    assert first.issued >= (1 << 16) / 8 / 256  # additions of a thread
    assert second.memory_bytes < 1000


def test_a_caller_deep_in_calls_of_its_own_gets_one() -> None:
    """torch.compile under pytest leaves some 500 frames, and statements nest as deep as a kernel is long."""
    a = te.placeholder((64, 64), "float32", name="a")
    space = next(s for s in spaces([topi.sum(a, axis=1)], GPU) if s.template == "gpu reduction")
    made = proof.lower(space, space.check(space.default), proof.alone)
    assert isinstance(made, proof.Made)

    def below(frames: int) -> Footprint:
        return below(frames - 1) if frames else footprint.read(made)

    frame, used = sys._getframe(), 0
    while (frame := frame.f_back) is not None:  # type: ignore[assignment]
        used += 1
    assert below(sys.getrecursionlimit() - used - 20) == footprint.read(made)


def test_matrix_units_are_counted_in_multiply_adds() -> None:
    a, b = (te.placeholder((512, 512), "float16", name=n) for n in "ab")
    (kernel,) = of([topi.matmul(a, b)], GPU, "matrix product").kernels
    assert kernel.matrix == 512**3 and kernel.dtype == "float16"
    assert kernel.shared_bytes > 0 and kernel.registers > 0


def test_a_function_of_a_cpu_is_one_kernel() -> None:
    a, b = (te.placeholder((1 << 20,), "float32", name=n) for n in "ab")
    found = of([topi.add(a, b)], "llvm -mcpu=x86-64-v3", "cpu stages")
    (kernel,) = found.kernels
    assert found.parallel and kernel.memory_bytes == 3 * 4 << 20
    assert kernel.issued == pytest.approx((1 << 20) / 8 * 2.5, rel=0.1)  # two loads, a store and an addition a vector


def test_parts_of_loops_add_up_where_a_clock_judged_them() -> None:
    """What issues beside what comes from the caches costs more than either; a chip without a clock prices loops as it does sketches."""
    near, issued = Kernel(1320, 256, asked_bytes=4e8), Kernel(1320, 256, issued=2000)
    both = Kernel(1320, 256, asked_bytes=4e8, issued=2000)
    judged, modelled = tec.Target("cuda -arch=sm_90a"), tec.Target(GPU)
    alone, other, together = (price(Footprint((k,), is_read=True), judged).seconds for k in (near, issued, both))
    start = price(Footprint((Kernel(1, 32),), is_read=True), judged).seconds
    assert max(alone, other) + 0.4 * (min(alone, other) - start) < together < alone + other
    assert price(Footprint((both,), is_read=True), modelled) == price(Footprint((both,)), modelled)
    two = price(Footprint((both, both), is_read=True), judged).seconds
    assert together < two < 2 * together  # a graph begins once


def test_conditions_that_no_loop_changes_are_counted_once() -> None:
    """A thread's sum of 512 products, of terms that its own place says to leave out: fewer than four operations a term. Where the term's place says it, more."""

    def counted(by_term: bool) -> float:
        a, b = (te.placeholder((512, 64), "float32", name=n) for n in "ab")
        k = te.reduce_axis((0, 512), "k")

        def value(i: Any) -> Any:
            place = k if by_term else i
            return te.sum(tec.if_then_else(place * 3 % 7 < 5, a[k, i], 0.0) * b[k, i], axis=k)

        found = of([te.compute((64,), value, name="c")], "cuda -arch=sm_90a", "gpu stages")
        return found.kernels[0].issued

    assert counted(False) < 512 * 4 < counted(True)


def test_index_expressions_have_values() -> None:
    x, y = Var("x", "int32"), Var("y", "int32")
    assert evaluated((x * 3 + 5) // 2, {x: 4}) == 8
    assert evaluated(te.max(x, 7), {x: 4}) == 7
    vector = E.Ramp(x, E.IntImm(1), 4)
    for chosen in (E.Select(x < 2, vector, vector + 8), E.Call("if_then_else", (x < 2, vector, vector + 8), "int32x4")):
        lanes = evaluated(chosen, {x: np.arange(4)})
        np.testing.assert_array_equal(lanes, np.add.outer([0, 1, 10, 11], np.arange(4)))
    doubled: E.Expr = x
    for _ in range(50):  # a term that stands in 2 ** 50 places is evaluated once
        doubled = E.Add(doubled, doubled)
    assert evaluated(doubled, {x: np.int64(1)}) == 1 << 50
    assert evaluated(x + y, {x: 4}) is None and evaluated(te.indexdiv(x, y), {x: 4, y: 0}) is None


# ---- over drawn choices


def cases(batch: int) -> Iterator[tuple[str, Space, dict[str, Any], Footprint]]:
    """Drawn choices that lower, with their footprints."""
    for number in range(batch, DRAWS, _BATCHES):
        rng = random.Random(f"footprint {SEED} {number}")
        case, target = draw(rng), tec.Target(target_of(rng))
        with target, deep_recursion():
            graph, *_ = tec_onnx.from_onnx(case.model)
            graph = optimize(graph, target, None)
            for k, group in enumerate(part_of(graph, (), ()).groups):
                if group.is_alias:
                    continue
                program = program_of(group, k, sizes_of_group(group), list(graph.guards))
                space = rng.choice(spaces(program.outputs, target))
                choice = drawn(space, rng)
                made = proof.lower(space, dict(choice), program.loops) if choice is not None else None
                if isinstance(made, proof.Made):
                    words = f"draw {number} of seed {SEED}: {case.kind} {case.words} for {target}: {made.choice}"
                    yield words, space, made.choice, footprint.read(made)


# What a sketch may be off by, each way: seconds of the same price over what was read, and bytes of memory. A sketch ranks choices of one template; it need not know what a
# pass makes of an edge, nor of copies that a schedule makes first; a transpose's bytes are whole lines. Templates whose work depends on values (a heap's path, a list of updates) and
# those that take any computation (stages, sums on a CPU) have no band.
BANDS = {
    "gpu rows": (2.5, 1.1), "gpu transpose": (3.0, 10.0), "gpu gather": (2.5, 4.0), "cpu rows": (8.0, 1.1), "cpu convolution": (32.0, 2.5),
}  # fmt: skip


LEAST_SECONDS = 3e-6  # as long as starting threads takes; of what is over sooner it does not count how much

# What says threads and shared memory exactly; a launch for each step of a recurrence is one kernel of several.
EXACT = ("gpu rows", "gpu transpose", "gpu gather", "gpu recurrence")


def wrong(space: Space, choice: dict[str, Any], found: Footprint) -> Iterator[str]:
    """What is impossible in a footprint, and where the sketch of its choice is another."""
    for k in found.kernels:
        if not 1 <= k.threads <= space.target.max_threads or k.shared_bytes > space.target.lds_bytes:
            yield f"{k.threads} threads, {k.shared_bytes} bytes of shared memory"
        if min(k.groups, k.launches, k.memory_bytes, k.asked_bytes, k.issued, k.waits, k.barriers) < 0:
            yield f"a count below 0: {k}"
    sketch = space.sketch(choice)
    if sketch is None or not found.kernels:
        return
    if space.template in EXACT:
        if sketch.threads != found.threads:
            yield f"{found.threads} threads, not {sketch.threads}"
        # Of an operand that is filled up with zeros a tile has fewer elements than of the result.
        if sketch.shared_bytes and not sketch.shared_bytes / 2 <= found.shared_bytes <= sketch.shared_bytes:
            yield f"{found.shared_bytes} bytes of shared memory, not {sketch.shared_bytes}"
    if space.template in BANDS and all(k.memory_bytes for k in found.kernels):  # a count has one element of open sizes
        read, said = (LEAST_SECONDS + price(f, space.target).seconds for f in (found, sketch))
        times = read / said, found.memory_bytes / sketch.memory_bytes
        for t, most, what in zip(times, BANDS[space.template], ("seconds", "bytes")):
            if not 1 / most <= t <= most:
                yield f"{t:.3g} of {what}"


@pytest.mark.parametrize("batch", range(_BATCHES))
def test_sketches_and_footprints_agree(batch: int) -> None:
    """Every choice that lowers has a footprint, in its sketch's threads and shared memory, and seconds and bytes within the band of its template."""
    off = [f"{words}: {why}" for words, space, choice, found in cases(batch) for why in wrong(space, choice, found)]
    assert not off, "\n".join(off)
