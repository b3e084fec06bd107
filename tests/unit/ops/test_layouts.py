"""Layouts: storage's shape, places and constants agree, whatever the notation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tec.ops.layouts import Blocked, Layout, is_same_memory, plain, space, whole

SIZES = {"N": 2, "C": 5, "D": 2, "H": 3, "W": 4}


@pytest.mark.parametrize("name", ["NCHW", "NCHW4c", "(NHW)C", "NC(HW)", "NHWC", "NCDHW8c", "(NDHW)C", "CN(HW)"])
def test_every_element_is_where_its_place_says(name: str) -> None:
    layout = Layout(name)
    letters = "NC" + "".join(x for x in "DHW" if x in name)
    data = np.arange(np.prod([SIZES[x] for x in letters])).reshape([SIZES[x] for x in letters])
    stored = layout.store(data, letters)
    assert stored.shape == layout.shape(SIZES)
    filled = layout.sizes(stored.shape, {x: n for x, n in SIZES.items() if x != "C"})
    assert filled["C"] == 5 + -5 % layout.blocks.get("c", 1)
    for at in itertools.product(*(range(SIZES[x]) for x in letters)):
        index = layout.index(dict(zip(letters, at)), SIZES)
        assert stored[tuple(index)] == data[at]
        back = layout.place(index, SIZES)
        assert [whole(back[x]) for x in letters] == list(at)
        assert list(layout.index(back, SIZES)) == list(index)


def test_weights() -> None:
    data = np.arange(6 * 3 * 2 * 2).reshape(6, 3, 2, 2)
    packed = Layout("OIHW4i4o").store(data, "OIHW")
    assert (
        packed.shape == (2, 1, 2, 2, 4, 4)
        and packed[1, 0, 1, 0, 2, 1] == data[5, 2, 1, 0]
        and packed[1, 0, 0, 0, 3, 3] == 0
    )
    np.testing.assert_array_equal(Layout("O(HWI)").store(data, "OIHW"), data.transpose(0, 2, 3, 1).reshape(6, -1))
    np.testing.assert_array_equal(Layout("(HW)O").store(data[:, :1], "OIHW"), data[:, 0].reshape(6, -1).T)
    assert Layout("NK4n").store(data.reshape(6, 12)[:, :7], "KN").shape == (2, 6, 4)
    assert Layout("NCHW4c").store(np.arange(5).reshape(1, 5, 1, 1), "NCHW", "edge").reshape(-1)[-1] == 4


def test_layouts_of_one_memory() -> None:
    one = {"N": 2, "C": 8, "H": 1, "W": 1}
    assert is_same_memory(Layout("NCHW"), Layout("(NHW)C"), one) and is_same_memory(
        Layout("NCHW4c"), Layout("NCHW"), one
    )
    assert not is_same_memory(Layout("NCHW"), Layout("(NHW)C"), {**one, "W": 3})
    assert not is_same_memory(Layout("NCHW4c"), Layout("NCHW"), {**one, "C": 7})
    assert not is_same_memory(Layout("NCHW16c"), Layout("NCHW8c"), {**one, "W": 3, "C": 32})
    assert not is_same_memory(Layout("NCHW16c"), Layout("NCHW8c"), {**one, "W": 3, "C": 24})
    assert not is_same_memory(Layout("NCHW4c"), Layout("NCHW"), {**one, "W": 3})
    assert is_same_memory(Layout("NC(HW)"), plain(4), {**one, "W": 3}) and space(5) == "DHW"
    assert is_same_memory(Layout("NCHW8c"), Layout("NHWC"), {**one, "W": 3})


@pytest.mark.parametrize("name", ["NCH W", "NNHW", "NHW4c", "(NH"])
def test_what_is_no_layout(name: str) -> None:
    with pytest.raises(ValueError, match="layout"):
        _ = Layout(name).dims


def test_places_in_blocks() -> None:
    assert whole(Blocked(3, 2, 8)) == 26 and whole(7) == 7
