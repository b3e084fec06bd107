"""What tests of pages share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser import Browser, executable


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One headless Chromium for all tests of a process; a test that needs it is skipped where none is installed."""
    path = executable()
    if path is None:
        pytest.skip("no Chromium is installed")
    with Browser(path, tmp_path_factory.mktemp("profile")) as running:
        yield running
