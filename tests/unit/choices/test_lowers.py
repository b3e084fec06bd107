"""Every choice that is legal is lowered: drawn layers of networks in small and odd sizes, for every kind of target, to the last pass before LLVM. For each
tenth a small one is drawn too, which the interpreter computes.

Fixed seeds here, of which the gate lowers those that differ by kind, backend or target. `TEC_LOWER_DRAWS=20000 TEC_SEED=7 pytest tests/unit/choices/test_lowers.py` draws other ones, and as many as asked; a failure names the draw.
"""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable

import pytest

from tests import seeds
from tests.thinned import thinned

from . import lowering
from .draws import KINDS, Case, Net, draw
from .lowering import MOST_WORK, TARGETS, lower, target_of, work

SEED = seeds.number()
DRAWS = int(os.environ.get("TEC_LOWER_DRAWS", "120"))
_BATCHES = 10  # tests that share the draws, so that cores do too


@functools.cache
def numbers() -> list[int]:
    """The draws to lower: all of a night's; of the gate's so few that each kind meets each backend that it is drawn with, and each target comes."""
    if SEED:
        return list(range(DRAWS))
    has: dict[int, set[tuple[str, ...]]] = {}
    for number in range(DRAWS):
        rng = random.Random(f"{SEED} {number}")
        target = target_of(rng)
        has[number] = {(target,), (draw(rng).kind, target.split()[0])}
    left, kept = set[tuple[str, ...]]().union(*has.values()), []
    while left:
        best = max(has, key=lambda n: len(has[n] & left))
        left -= has[best]
        kept.append(best)
    return sorted(kept)


@pytest.mark.parametrize("batch", range(_BATCHES))
def test_what_is_drawn_is_lowered(batch: int) -> None:
    died = []
    for number in numbers()[batch::_BATCHES]:
        rng = random.Random(f"{SEED} {number}")
        target = target_of(rng)
        case = draw(rng)
        death = lower(case, target, rng)
        if death is not None:
            died.append(f"draw {number} of seed {SEED}: {case.kind} {case.words} for {target}: {death}")
    assert not died, "\n".join(died)


@pytest.mark.parametrize("batch", range(4))
def test_what_is_drawn_computes_what_the_definitions_say(batch: int) -> None:
    died, computed = [], 0
    for number in range(batch, DRAWS // 10, 4):
        for attempt in range(8):  # until a small one comes
            rng = random.Random(f"{SEED} computed {number} {attempt}")
            target, case = target_of(rng), draw(rng)
            if work(case, target) <= MOST_WORK:
                computed += 1
                death = lower(case, target, rng, compute=True)
                if death is not None:
                    died.append(
                        f"computed draw {number} {attempt} of seed {SEED}: {case.kind} {case.words} for {target}: {death}"
                    )
                break
    assert not died, "\n".join(died)
    assert computed


def test_a_wrong_result_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops that compute something else die as those that do not lower do."""
    evaluate = lowering.te.evaluate
    monkeypatch.setattr(lowering.te, "evaluate", lambda outputs, feeds: [x + 1 for x in evaluate(outputs, feeds)])
    n = Net(random.Random(0), "float32")
    n.op("Mul", n.input(3, 5), n.input(5))
    death = lower(Case("elementwise", "", n.model(n.nodes[-1].output[0])), "llvm", random.Random(1), compute=True)
    assert death is not None and death.kind == "default" and "Mismatched elements" in death.message


def _open_product() -> Net:
    """Rows of any number, by dot products of bfloat16: a tile's last rows are ragged."""
    n = Net(random.Random(0), "bfloat16")
    n.op("Add", n.op("MatMul", n.input("rows", 112), n.weight(112, 504)), n.weight(504))
    return n


def _one_channel() -> Net:
    """A pointwise convolution to one channel: its bias is a number."""
    n = Net(random.Random(0), "bfloat16")
    x = n.input(1, 1, 14, 14)
    y = n.op("Relu", n.op("Conv", x, n.weight(37, 1, 1, 1), n.weight(37)))
    n.op("Add", n.op("Conv", y, n.weight(1, 37, 1, 1), n.weight(1)), x)
    return n


def _strip() -> Net:
    """A 1-D convolution in groups (SqueezeBERT): an image of one row, stored folded."""
    n = Net(random.Random(0), "float16")
    n.op("Gelu", n.op("Conv", n.input(1, 96, 13), n.weight(96, 24, 1), n.weight(96), group=4))
    return n


@thinned(
    1,
    ("layer", [_open_product, _one_channel, _strip]),
    ("target", ["llvm -mcpu=sapphirerapids", "cuda -arch=sm_90a", "rocm -mcpu=gfx90a", "rocm -mcpu=gfx1201"]),
)
def test_layers_that_were_refused(layer: Callable[[], Net], target: str) -> None:
    net = layer()
    model = net.model(net.nodes[-1].output[0])
    assert lower(Case(layer.__name__, "", model), target, random.Random(1)) is None


def test_a_weight_that_no_file_holds_is_an_input() -> None:
    """25,088 by 25,088 numbers are more than protobuf's 2 GB."""
    n = Net(random.Random(0), "float32")
    n.op("MatMul", n.input(1, 25088), n.weight(25088, 25088))
    assert len(n.inputs) == 2 and not n.weights


def test_every_kind_and_target_is_drawn() -> None:
    assert len(numbers()) > 40
    some = [random.Random(f"0 {number}") for number in range(300)]
    drawn = [(target_of(r), draw(r).kind) for r in some]
    assert {t for t, _ in drawn} == set(TARGETS) and {k for _, k in drawn} == set(KINDS)
