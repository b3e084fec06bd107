"""Networks that are made when they are first needed: once, whoever asks."""

from __future__ import annotations

import threading
import time

import pytest

import tec.lm.model as model
from tec.errors import ImportModelError
from tec.lm import LanguageModel
from tec.lm.networks import MADE
from tests.unit.lm.tiny import llama


def made(lm, begun):
    for name in MADE:
        setattr(lm, name, name)
        time.sleep(0.01)  # others ask meanwhile


def test_threads_that_ask_at_once(monkeypatch):
    calls = []
    monkeypatch.setattr(model, "make", lambda lm, begun: (calls.append(begun), made(lm, begun)))
    later, found = LanguageModel(llama(), target="llvm", later=True), []
    asks = [threading.Thread(target=lambda name=name: found.append(getattr(later, name))) for name in 3 * MADE]
    before = time.perf_counter()
    for t in asks:
        t.start()
    for t in asks:
        t.join(10)
    assert sorted(found) == sorted(3 * MADE) and len(calls) == 1
    assert calls[0] >= before  # what loading took begins where it did


def test_a_failure_is_told_each_time(monkeypatch):
    def fails(lm, begun):
        lm.network = None
        raise ImportModelError("no weights", hint="none")

    monkeypatch.setattr(model, "make", fails)
    later = LanguageModel(llama(), target="llvm", later=True)
    for name in ("network", "executor", "_step"):
        with pytest.raises(ImportModelError, match="no weights"):
            getattr(later, name)
