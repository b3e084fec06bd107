from __future__ import annotations

import pytest

from .devices import DEVICES, On


@pytest.fixture(params=DEVICES)
def on(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> On:
    return On(request.param, monkeypatch)
