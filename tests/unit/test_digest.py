"""`tec.digest`: the same hash as hashlib's, which is loaded for what is large alone."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from tec.digest import sha256


@pytest.mark.parametrize("data", [b"", b"abc", bytes(4 << 20), np.arange(12.0).reshape(3, 4)], ids=["none", "bytes", "large", "array"])  # fmt: skip
def test_it_is_hashlibs(data: object) -> None:
    assert sha256(data).hexdigest() == hashlib.sha256(data).hexdigest()  # type: ignore[arg-type]


def test_little_loads_no_openssl_and_weights_are_hashed_by_it() -> None:
    program = "import sys; from tec.digest import sha256; sha256(bytes({})); print('hashlib' in sys.modules)"
    for size, loaded in ((1000, "False"), (4 << 20, "True")):
        done = subprocess.run([sys.executable, "-c", program.format(size)], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == loaded
