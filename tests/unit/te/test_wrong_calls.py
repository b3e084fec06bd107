"""Calls that do not fit: an error of tec that names the call's form and the user's line, whatever the arguments are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tec
from tec import te
from tec.array.arguments import checked
from tec.errors import InternalError, kind_of

A = te.placeholder((8, 8), name="A")
C = te.compute((8, 8), lambda i, j: A[i, j] + 1.0, name="C")


def stage() -> Any:
    return te.create_schedule(C.op)[C]


CALLS: dict[str, tuple[Callable[[], Any], type, str]] = {
    "split": (lambda: stage().split(), tec.ScheduleError, "split: missing a required argument: 'parent'"),
    "split's names": (lambda: stage().split(C.op.axis[0], facto=4), tec.ScheduleError, "is factor meant?"),
    "vectorize": (lambda: stage().vectorize(*C.op.axis), tec.ScheduleError, "vectorize: too many positional"),
    "cache_read": (lambda: te.create_schedule(C.op).cache_read(A), tec.ScheduleError, "'scope'"),
    "placeholder": (lambda: te.placeholder(), tec.ExprError, "te.placeholder: missing a required argument: 'shape'"),
    "thread_axis": (lambda: te.thread_axis(2.5, lambda: 0), tec.ExprError, "te.thread_axis: the arguments do not fit"),
    "evaluate": (lambda: te.evaluate(C, 3), tec.ExprError, "te.evaluate: the arguments do not fit"),
    "lower": (lambda: tec.lower(), tec.LoweringError, "tec.lower: missing a required argument: 'sch'"),
    "build": (lambda: tec.build(3, trials=2), tec.ArgumentError, "tec.build: got an unexpected keyword"),
    "compile": (lambda: tec.compile(), tec.ArgumentError, "'model'"),
    "load_module": (lambda: tec.load_module(2.5), tec.ArgumentError, "tec.load_module: the arguments do not fit"),
    "load": (lambda: tec.load(), tec.ArgumentError, "tec.load: missing a required argument: 'path'"),
    "nd.empty": (lambda: tec.nd.empty(None), tec.ArgumentError, "tec.nd.empty: the arguments do not fit"),
    "occupancy": (lambda: tec.kernel.occupancy("k"), tec.ArgumentError, "tec.kernel.occupancy"),
    "cdiv": (lambda: tec.tile.cdiv("a", 2), tec.ArgumentError, "cdiv: the arguments do not fit"),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_does_not_fit(call: str) -> None:
    made, kind, says = CALLS[call]
    with pytest.raises(kind) as e:
        made()
    assert says in str(e.value) and "test_wrong_calls.py" in str(e.value) and "(self" not in str(e.value)


def test_a_users_exception_goes_on() -> None:
    def wrong(i: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        te.compute((4,), wrong)


def test_a_fault_inside_an_array_function_is_told_as_one() -> None:
    def lost(x: int) -> Any:
        return {}["axis"]

    function = checked("tec.array.lost", _as_tecs(lost))
    with pytest.raises(InternalError, match=r"a fault inside tec: tec\.array\.lost: KeyError"):
        function(3)
    with pytest.raises(tec.TecError, match="x is 'a', not an integer"):
        function("a")


def _as_tecs(function: Any) -> Any:
    """The function as if one of tec's files had it."""
    place = tec.array.__file__
    made = type(function)(function.__code__.replace(co_filename=place), function.__globals__, function.__name__)
    made.__annotations__ = function.__annotations__
    return made


def test_a_repr_that_raises_hides_no_error() -> None:
    class Bad:
        def __repr__(self) -> str:
            raise RuntimeError("no text")

    with pytest.raises(tec.TecError, match="a Bad"):
        tec.array.sum(Bad(), axis=Bad(), keepdims=3)


def test_the_article() -> None:
    assert kind_of(3) == "an int" and kind_of([]) == "a list"
