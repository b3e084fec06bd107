"""The programs of the page about PyTorch run as they stand."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "pytorch.md"


def test_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(programs) == 4
    exec("\n".join(programs), {"__name__": "page"})
