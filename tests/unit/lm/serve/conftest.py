"""What several files here take."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def openai() -> Any:
    """The client, whose import takes seconds: collecting, which each worker does, leaves it to the tests."""
    return pytest.importorskip("openai")
