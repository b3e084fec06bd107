"""What a space finds of its choices is found once, and is that of the sizes that are supposed where it is asked for."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tec import te
from tec.choices import Space, spaces
from tec.ops.registry import TensorType, get_op, static_shape
from tec.ops.size_vars import variable
from tec.ops.typical import typically
from tec.target import as_target

TARGETS = ("llvm -mcpu=x86-64-v3", "rocm -mcpu=gfx942", "cuda -arch=sm_90a")
_LOOKED_AT = 40  # choices of a space


def _product(rows: Any, target: str) -> list[Space]:
    x, w = te.placeholder((rows, 512), "float32", name="x"), te.placeholder((512, 512), "float32", name="w")
    types = [TensorType("float32", static_shape(t)) for t in (x, w)]
    op = get_op("matmul")
    with as_target(target):
        return spaces(op.compute({}, [x, w], op.infer(types, {})), target)


def _told(space: Space) -> tuple[object, ...]:
    some = list(itertools.islice(space.all, _LOOKED_AT))
    return space.template, space.default, some, [space.cost(c) for c in some]


@pytest.mark.parametrize("target", TARGETS)
def test_prices_are_of_the_sizes_that_are_supposed(target: str) -> None:
    """Asked in one block of sizes, in another, in none, and in the first again: the same as of spaces that were never asked before."""
    asked = _product(variable("rows"), target)
    told = []
    for sizes in ({"rows": 4}, {"rows": 1 << 16}, {}, {"rows": 4}):
        with typically(sizes):
            told.append([_told(space) for space in asked])
            assert told[-1] == [_told(space) for space in asked] == [_told(_unasked(space)) for space in asked]
    assert told[0] == told[3]
    if target.startswith("cuda"):  # the others' templates have counted rows when they were made
        assert any(few[3] != many[3] for few, many in zip(*told[:2]))


def _unasked(space: Space) -> Space:
    """The same space, of which nothing is known."""
    bare: Space = type(space).__new__(type(space))
    bare.__dict__.update(vars(space), _told=None)
    return bare


def test_names_are_noted_in_every_block_that_asks() -> None:
    """What depends on a size is found by the names that were asked for: an answer that is known must note them too."""
    (space, *_) = _product(variable("rows"), "cuda -arch=sm_90a")
    for _ in range(2):
        with typically({"rows": 64}) as asked:
            space.cost(space.default)
            assert asked == {"rows"}


def test_an_answer_is_the_callers_own() -> None:
    (space, *_) = _product(96, "cuda -arch=sm_90a")
    default, first = dict(space.default), dict(next(iter(space.all)))
    space.default.clear()
    next(iter(space.all)).clear()
    assert space.default == default and next(iter(space.all)) == first


def test_choices_are_found_when_they_are_asked_for() -> None:
    (space, *_) = _product(96, "cuda -arch=sm_90a")
    found, why_not = [], space.why_not
    space.why_not = lambda choice: found.append(1) or why_not(choice)  # type: ignore[method-assign, func-returns-value]
    space._told = None
    some = list(itertools.islice(space.all, 3))
    few = len(found)
    assert list(itertools.islice(space.all, 3)) == some and len(found) == few
    assert list(itertools.islice(space.all, 9))[:3] == some and len(found) > few
