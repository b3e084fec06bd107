"""Decoders as onnxruntime-genai builds them: GroupQueryAttention over caches that grow in place or are buffers, weights of 4 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tec
from tests.networks.decoder import decoder
from tests.networks.decoder import feeds as plain_feeds
from tests.networks.genai import feeds, genai_decoder
from tests.networks.test_decoder import Reference

IDS = np.random.default_rng(4).integers(0, 96, (2, 24))


def decode(
    model: Any, parts: tuple[int, ...], batch: int = 1, target: str = "llvm", shapes: Any = None, net: Any = None
) -> Any:
    """The executor, whose logits are as ONNX Runtime's for tokens in these parts."""
    net = net or tec.compile(model, target=target, shapes=shapes, cache=False)
    ex = net.executor(tec.rocm_emu("gfx942") if target.startswith("rocm") else None)
    reference = Reference(model)
    reference.start(batch)
    at = 0
    for n in parts:
        f = feeds(IDS[:batch, at : at + n], at)
        want, got = reference.run(f), ex.run(f)[0].numpy()
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-5 * np.abs(want).max())
        at += n
    return ex


@pytest.fixture(scope="module")
def grown() -> Any:
    return decode(genai_decoder(), (7, 1, 1, 4, 1))


def test_the_cache_grows_and_nothing_is_compiled_for_a_length(grown: Any) -> None:
    assert grown.length == 14
    weights = 2 * 64 * (64 * 2 + 32 * 2 + 128 * 3) + 64 * 96
    others = 4 * (96 * 64 + 2 * 512 * 8 + 5 * 64)  # the embedding, angles, norms
    assert sum(v.nbytes for v in grown.network.params.values()) <= weights * 5 // 8 + others


def test_entries_of_other_lengths_are_refused_and_lose_nothing(grown: Any) -> None:
    length = grown.length
    f = feeds(IDS[:1, :2], length)
    f["attention_mask"][0, 0] = 0
    with pytest.raises(tec.ArgumentError, match="shorter than the cache"):
        grown.run(f)
    with pytest.raises(tec.TecError, match="total_sequence_length"):
        grown.run(feeds(IDS[:1, :2], length + 1))
    assert grown.length == length
    grown.run(feeds(IDS[:1, :2], length))
    grown.truncate(length)


def test_batches(grown: Any) -> None:
    decode(genai_decoder(), (6, 1, 1), batch=2, net=grown.network)


@pytest.mark.parametrize(
    "options",
    [{"packed_qkv": True, "zeros": True, "packed_embedding": True}, {"window": 4, "bits": 8, "block": 16}, {"softcap": 8.0, "bits": 0}],
    ids=str,
)  # fmt: skip
def test_forms(options: dict[str, Any]) -> None:
    decode(genai_decoder(layers=1, **options), (9, 1, 2))


@pytest.mark.slow
@pytest.mark.parametrize("shapes", [None, {"sequence_length": 1, "batch_size": 1}])
def test_on_a_gpu(shapes: Any) -> None:
    decode(genai_decoder(layers=1), (1, 1, 1) if shapes else (5, 1, 1), target="rocm -mcpu=gfx942", shapes=shapes)


@pytest.fixture(scope="module")
def buffered() -> tuple[Any, Any]:
    """A decoder whose caches are buffers of 16 tokens, and its network."""
    model = genai_decoder(layers=1)
    return model, tec.compile(model, target="llvm", shapes={"past_sequence_length": 16}, state=False, cache=False)


def test_a_cache_of_fixed_length_is_a_buffer(buffered: tuple[Any, Any]) -> None:
    model, net = buffered
    reference = Reference(model)
    reference.start(1)
    caches = {f"past_key_values.0.{w}": np.zeros((1, 2, 16, 16), np.float32) for w in ("key", "value")}
    at = 0
    for n in (5, 1, 1):
        f = feeds(IDS[:1, at : at + n], at)
        want = reference.run(f)
        logits, *new = net.run({**f, **caches})
        np.testing.assert_allclose(logits, want, rtol=0, atol=2e-5 * np.abs(want).max())
        caches = dict(zip(caches, new))
        at += n
    with pytest.raises(tec.TecError, match="no room for more"):
        net.run({**feeds(IDS[:1, :1], 16), **caches})


def test_prompts_of_several_lengths_in_buffers(buffered: tuple[Any, Any]) -> None:
    """Filled up on the right; the tokens behind an entry's end change nothing that counts."""
    model, net = buffered
    caches = {f"past_key_values.0.{w}": np.zeros((2, 2, 16, 16), np.float32) for w in ("key", "value")}
    f = feeds(IDS[:, :6], 0)
    f["attention_mask"][1, 4:] = 0
    logits, *new = net.run({**f, **caches})
    step = {"input_ids": IDS[:, 6:7], "attention_mask": np.ones((2, 7), np.int64)}
    step["attention_mask"][1, 5:] = 0
    after, *_ = net.run({**step, **dict(zip(caches, new))})
    for row, length in ((0, 6), (1, 4)):
        reference = Reference(model)
        reference.start(1)
        want = reference.run(feeds(IDS[row : row + 1, :length], 0))
        np.testing.assert_allclose(logits[row, :length], want[0], rtol=0, atol=2e-5 * np.abs(want).max())
        want = reference.run(feeds(IDS[row : row + 1, 6:7], length))
        np.testing.assert_allclose(after[row], want[0], rtol=0, atol=2e-5 * np.abs(want).max())


@pytest.mark.parametrize("plain", [pytest.param(True, marks=pytest.mark.slow), False], ids=["plain", "gqa"])
def test_launches_of_a_layer(plain: bool) -> None:
    """A token of a batch of one on a GPU: norm and queries, keys, values; keys turned into their cache; the values' cache; attention, which turns the queries, over
    parts of the keys and their join; projection and sum; norm, gate and product; projection and sum."""
    counts = []
    for layers in (1, 2):
        model = decoder(layers=layers) if plain else genai_decoder(layers=layers)
        net = tec.compile(
            model,
            target="rocm -mcpu=gfx942",
            shapes={"sequence_length": 1, "batch" if plain else "batch_size": 1},
            cache=False,
        )
        device = tec.rocm_emu("gfx942")
        ex = net.executor(device)
        reference = Reference(model)
        reference.start(1)
        for at in range(2):
            f = (plain_feeds if plain else feeds)(IDS[:1, at : at + 1], at)
            want = reference.run(f)
            with tec.profile(device) as p:
                got = ex.run(f)[0].numpy()
            np.testing.assert_allclose(got, want, rtol=0, atol=2e-5 * np.abs(want).max())
        counts.append(len(p.launches))
    assert counts[1] - counts[0] <= 8


def test_a_package_is_less_than_a_quarter(tmp_path: Path) -> None:
    model = genai_decoder(layers=1, hidden=128, vocabulary=6000, positions=64, packed_embedding=True)
    floats = 4 * (2 * 6000 * 128 + 128 * (128 * 2 + 64 * 2 + 256 * 3))
    net = tec.compile(model, target="llvm", cache=False)
    net.save(tmp_path / "net.tec")
    # Machine code, which differs from host to host, does not grow with the weights.
    assert (tmp_path / "net.tec").stat().st_size - len(net.get_binary()) < floats / 4
    assert sum(a.nbytes for a in net.params.values()) < floats / 4
