"""A decoder as ONNX models are exported, with caches of all layers: steps of a library and of tec's executor give the same."""

from __future__ import annotations

import numpy as np
import pytest

import tec
from tests.networks.decoder import decoder
from tests.unit.native.harness import Net


@pytest.mark.slow
def test_steps_of_a_decoder(tmp_path):
    network = tec.compile(decoder(layers=2, hidden=64, heads=4, kv_heads=2, vocabulary=96), target="llvm")
    assert network.plan.growing
    network.export_library(tmp_path / "decoder.so")
    net, ex = Net(tmp_path / "decoder.so", capacity=4), network.executor(capacity=4)
    rng, past = np.random.default_rng(0), 0
    for n in (5, 1, 1, 3, 1):
        given = {}
        for name, dtype, sizes in net.ports():
            shape = [2, past + n] if "mask" in name else [2, n]
            assert len(sizes) == 2
            given[name] = np.ones(shape, dtype) if "mask" in name else rng.integers(0, 96, shape).astype(dtype)
            if "position" in name:
                given[name] = np.tile(np.arange(past, past + n, dtype=dtype), (2, 1))
        for a, b in zip(net.run(given), ex.run(given), strict=True):
            np.testing.assert_array_equal(a, b.numpy())
        past += n
        assert net.lib.tec_net_rows(net.net) == ex.length == past
    net.close()
