"""The collector's settings while the compiler runs, and after it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

import tec
from tec.collector import YOUNG_OBJECTS, looks_rarely


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_the_settings_come_back() -> None:
    gc.set_threshold(700, 10, 10)
    with looks_rarely():
        assert gc.get_threshold() == (YOUNG_OBJECTS, 10, 10)
        with pytest.raises(ZeroDivisionError), looks_rarely():
            raise ZeroDivisionError
        assert gc.get_threshold() == (YOUNG_OBJECTS, 10, 10), "the outer block goes on"
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("own", [(0, 10, 10), (50_000, 5, 5)])
def test_a_program_that_looks_more_rarely_keeps_its_choice(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    with looks_rarely():
        assert gc.get_threshold() == own
    assert gc.get_threshold() == own


@pytest.mark.parametrize("found, own", [(700, 900), (0, YOUNG_OBJECTS), (50_000, YOUNG_OBJECTS)])
def test_settings_that_were_changed_meanwhile_stay(found: int, own: int) -> None:
    gc.set_threshold(found, 10, 10)
    with looks_rarely():
        gc.set_threshold(own, 10, 10)
    assert gc.get_threshold() == (own, 10, 10)


def test_the_last_thread_out_puts_them_back() -> None:
    gc.set_threshold(700, 10, 10)
    other, at_work, done = looks_rarely(), threading.Event(), threading.Event()

    def work() -> None:
        with other:
            at_work.set()
            assert done.wait(10)

    thread = threading.Thread(target=work)
    with looks_rarely():
        thread.start()
        assert at_work.wait(10)
    assert gc.get_threshold() == (YOUNG_OBJECTS, 10, 10), "the other thread goes on"
    done.set()
    thread.join(10)
    assert gc.get_threshold() == (700, 10, 10)


def test_compilation_looks_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.set_threshold(700, 10, 10)
    seen: list[int] = []
    a = tec.placeholder((8,), name="A")

    def one_more(i: tec.Var) -> object:
        return a[i] + 1.0

    b = tec.compute((8,), one_more, name="B")
    from tec.codegen.cpu import build as cpu

    original = cpu.emit_cpu
    monkeypatch.setattr(cpu, "emit_cpu", lambda *args: (seen.append(gc.get_threshold()[0]), original(*args))[1])
    tec.build(tec.create_schedule(b.op), [a, b], "llvm")
    assert seen == [YOUNG_OBJECTS] and gc.get_threshold() == (700, 10, 10)
