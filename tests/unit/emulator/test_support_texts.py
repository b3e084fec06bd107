"""Texts of the emulator's library name constants of Python modules, which no search for names in Python files finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tec.emulator.support import template

FILES = sorted(Path(template.__file__).parent.glob("*.ll"))


@pytest.mark.parametrize("file", [f.stem for f in FILES])
def test_every_constant_of_a_text_is_there(file: str) -> None:
    sections = template._sections(file)
    assert sections
    for section in sections:
        pieces, names = template._pieces(f"{file}.{section}")
        assert len(pieces) % 2 and set(pieces[1::2]) == names
        assert not any(template._FIELD.search(text) for text in pieces[::2])
