"""Headers that are kept: the same as those that are read, and only of files that are the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tec_gguf import heads, reader

from tec.errors import ImportModelError

from .files import LLAMA, llama_tensors, write

TEXTS = [f"t{k}é\n" for k in range(heads.LEAST_TEXTS)]
MORE = {**LLAMA, "tokenizer.ggml.tokens": TEXTS, "tokenizer.ggml.scores": [0.5 * k for k in range(len(TEXTS))], "x.flags": [True, False], "x.few": ["a", "b\0"]}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TEC_CACHE_DIR", str(tmp_path / "cache"))
    return write(tmp_path / "m.gguf", "llama", MORE, llama_tensors())


def test_a_kept_header_is_the_one_that_was_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    want = heads.read(file)
    monkeypatch.setattr(reader, "read", None)  # nobody asks it again
    found = heads.read(file)
    assert found.entries == want.entries and list(found.metadata) == list(want.metadata)
    for key, value in want.metadata.items():
        if isinstance(value, np.ndarray):
            assert found.metadata[key].dtype == value.dtype
        np.testing.assert_array_equal(found.metadata[key], value)
    np.testing.assert_array_equal(found.data(found.entries[3]), want.data(want.entries[3]))


def test_a_file_that_changed_is_read_again(file: Path) -> None:
    heads.read(file)
    raw = file.read_bytes()
    file.write_bytes(raw.replace(b"general.architecture", b"general.Architecture"))
    assert "general.Architecture" in heads.read(file).metadata
    file.write_bytes(raw[:-64])
    with pytest.raises(ImportModelError, match="lie beyond"):
        heads.read(file)
