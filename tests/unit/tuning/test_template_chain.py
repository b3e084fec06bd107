"""A template of one's own whose default does not lower ends no compilation: other fillings serve, or tec's own schedule, and a warning says so."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import tec
from tec import te
from tec.choices import strictly
from tec.choices.store import database
from tec.errors import ScheduleError, TecError, TecWarning

GPU = "rocm -mcpu=gfx942"
N = 8192


def double(*threads: int) -> Any:
    """A template that doubles a vector by so many threads a work-group; gfx942 has 1,024 at most, which only lowering asks."""

    @tec.template
    def double(c: Any, n: int) -> Any:
        x = te.placeholder((n,), name="x")
        y = te.compute((n,), lambda i: x[i] * 2.0, name="y")
        s = tec.create_schedule(y.op)
        outer, inner = s[y].split(y.op.axis[0], c.choose("threads", list(threads)))
        s[y].bind(outer, te.thread_axis("blockIdx.x"))
        s[y].bind(inner, te.thread_axis("threadIdx.x"))
        return s, [x, y]

    return double


def built(template: Any) -> int:
    """The template built and run; the threads of a work-group."""
    with strictly(False):
        f = tec.build(template, [N], GPU, name="double")
    x, device = np.arange(N, dtype=np.float32), tec.rocm_emu("gfx942")
    on = [tec.nd.array(v, device) for v in (x, np.zeros_like(x))]
    f(*on)
    np.testing.assert_array_equal(on[1].numpy(), 2 * x)
    (launch,) = [step for step in f.program if step["op"] == "launch"]
    return int(launch["block"][0])


def test_a_default_that_lowers_serves_without_a_word() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert built(double(256, 512)) == 256


def test_another_filling_serves() -> None:
    with pytest.warns(
        TecWarning, match=r"template double: its default does not lower, and the filling threads 128 serves"
    ):
        assert built(double(4096, 2048, 128)) == 128


def test_tecs_own_schedule_serves_where_no_filling_lowers() -> None:
    with pytest.warns(
        TecWarning, match=r"its default does not lower, and tec's own schedule \(gpu .*\) serves: .*threads"
    ):
        assert built(double(4096, 2048)) <= 1024


def test_under_strictness_the_default_is_an_error() -> None:
    with strictly(), pytest.raises(TecError, match="threads"):
        tec.build(double(4096, 128), [N], GPU)


def test_the_default_is_told_where_nothing_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*args: Any, **more: Any) -> Any:
        raise ScheduleError("nothing schedules this", locate=False)

    monkeypatch.setattr("tec.tuning.templates.schedule", none)
    with strictly(False), pytest.raises(TecError, match="threads") as error:
        tec.build(double(4096, 2048), [N], GPU)
    assert "nothing schedules" not in str(error.value)


def test_a_record_that_does_not_lower_gives_way_to_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    template = double(256, 4096)

    def recorded(signature: str, *machine: Any) -> dict[str, Any]:
        assert signature == template.signature([N])
        return {"template": "template double", "threads": 4096}

    monkeypatch.setattr(database, "tuned", lambda tuned, on, version: recorded)
    with pytest.warns(
        UserWarning, match="the choice recorded for double does not fit, and the default stands in: .*threads"
    ):
        assert built(template) == 256
