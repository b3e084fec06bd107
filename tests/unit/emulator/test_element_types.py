"""Types that NumPy itself confuses: 8-bit floats and 4-bit integers have one hash and one `str`, and what is kept by type must not."""

from __future__ import annotations

import copy

import ml_dtypes
import numpy as np
import pytest

from tec.emulator.triton import ElementType, NumpyTensor
from tec.graph.cache import cache_key
from tec.target import Target

NAMES = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "int4", "uint4", "int8", "uint8"]
DTYPES = [np.dtype(getattr(ml_dtypes, n, n)) for n in NAMES]


class _Model:
    def SerializeToString(self) -> bytes:
        return b"one model"


def test_the_types_of_triton_arguments_hash_apart() -> None:
    """Triton keeps a type by the hash of the argument's dtype."""
    types = [NumpyTensor(np.zeros(4, d)).dtype for d in DTYPES]
    assert (
        len({hash(t) for t in types})
        == len({hash(NumpyTensor(np.ones((2, 2), d)).dtype) for d in DTYPES})
        == len(NAMES)
    )
    assert [hash(t) for t in types] == [hash(ElementType(d)) for d in DTYPES]
    for t, d in zip(types, DTYPES):
        assert t == d and str(t) == str(d) and t.itemsize == d.itemsize and copy.copy(t) == t
        assert [t == x for x in DTYPES] == [d == x for x in DTYPES]


def test_frozen_inputs_of_equal_bytes_are_kept_apart_by_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEC_CACHE_DISABLE", raising=False)
    raw = np.arange(8, dtype=np.uint8)
    dtypes = [*DTYPES, np.dtype(np.int16), np.dtype(">i2"), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)]
    keys = {cache_key(_Model(), Target("llvm"), {}, None, {"x": raw.view(d)}) for d in dtypes}
    assert len(keys) == len(dtypes) and None not in keys
