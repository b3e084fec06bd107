"""Whisper from a folder: features, logits and tokens as transformers has them, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tec.lm
from tec.lm import speech
from tec.lm.audio import HOP, filters, log_mel
from tec.lm.timestamps import Times
from tec.lm.words import words_of

from . import heard
from .families import filled


@pytest.fixture(scope="module")
def known() -> Any:
    return heard.references()


@pytest.fixture(scope="module")
def folder(known: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from safetensors.numpy import save_file

    made = tmp_path_factory.mktemp("whisper")
    for name in ("config", "generation_config"):
        (made / f"{name}.json").write_text(json.dumps(known[name]))
    save_file({n: filled(n, tuple(s)) for n, s in known["shapes"].items()}, made / "model.safetensors")
    return made


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return tec.lm.transcriber(folder, target="llvm", cache=False)


@pytest.mark.parametrize("bins", [16, 80])
def test_features_are_those_of_transformers(known: Any, bins: int) -> None:
    made = log_mel(heard.waveform(), bins, 100)
    assert made.shape == (100, bins) and made.dtype == np.float32
    assert np.abs(made[:: heard.EACH] - np.array(known["sounds"][str(bins)])).max() < 1e-4


def test_a_tone_is_loudest_in_its_band() -> None:
    t = np.arange(16_000) / 16_000
    for hertz in (440.0, 2_500.0, 6_000.0):
        made = log_mel(np.sin(2 * np.pi * hertz * t), 80, 100)
        band = int(filters(80)[round(hertz / 40)].argmax())
        assert abs(int(made[50].argmax()) - band) <= 1


def test_logits_and_tokens_are_those_of_transformers(known: Any, model: Any) -> None:
    x, want = heard.features(), np.array(known["logits"])
    near = 1e-4 * max(1.0, np.abs(want).max())
    for k in range(len(heard.TOKENS)):
        assert np.abs(model.logits(x, heard.TOKENS[: k + 1]) - want[k]).max() < near
    written = [t for t in known["written"] if t != heard.SIZES["decoder_start_token_id"]]
    assert model.transcribe(x, max_tokens=heard.WRITTEN).ids == written[: heard.WRITTEN]


def test_a_long_sound_is_heard_in_pieces(model: Any) -> None:
    sound, size = heard.waveform(30_000), 100 * HOP
    parts = [model.transcribe(sound[k : k + size], max_tokens=4).ids for k in (0, size)]
    assert model.transcribe(sound, max_tokens=4).ids == parts[0] + parts[1]
    assert len(model.transcribe(sound[:size]).ids) <= 23  # as many as have places


def test_languages_tasks_and_tokens_that_are_never_written(folder: Path, tmp_path: Path, model: Any) -> None:
    x = heard.features()
    plain = model.transcribe(x, max_tokens=2).ids
    more = {
        "lang_to_id": {"<|en|>": 60, "<|de|>": 61}, "task_to_id": {"transcribe": 62, "translate": 63}, "no_timestamps_token_id": 64,
        "suppress_tokens": [plain[0]],
    }  # fmt: skip
    made = tec.lm.open(folder)
    made.generation = {**made.generation, **more}  # type: ignore[misc]
    other = tec.lm.transcriber(made, target="llvm", cache=False)
    found = other.transcribe(x, max_tokens=6)
    logits = model.logits(x, [3])
    assert found.language == ("<|en|>" if logits[60] >= logits[61] else "<|de|>") and plain[0] not in found.ids
    said = other.transcribe(x, language="de", task="translate", max_tokens=1)
    behind = model.logits(x, [3, 61, 63, 64])
    behind[[plain[0], 5, 2]] = -np.inf
    assert said.language == "<|de|>" and said.ids == [int(behind.argmax())]
    with pytest.raises(tec.ArgumentError, match="no language 'xx'"):
        other.transcribe(x, language="xx")
    with pytest.raises(tec.ArgumentError, match="no task 'sing'"):
        other.transcribe(x, task="sing")


@pytest.mark.parametrize(
    "sound, rate, said",
    [
        (np.zeros((2, 3, 4)), 16_000, "sound of shape"),
        (np.zeros((16, 99), "f4"), 16_000, "features of shape"),
        (np.zeros(0, "f4"), 16_000, "sound of shape"),
        (np.zeros(50, "i2"), 16_000, "type int16"),
        (np.full(50, np.nan, "f4"), 16_000, "no numbers"),
        (np.zeros(50, "f4"), 44_100, "44100 samples a second"),
    ],
)
def test_what_is_no_sound(model: Any, sound: Any, rate: int, said: str) -> None:
    with pytest.raises(tec.ArgumentError, match=said):
        model.transcribe(sound, rate=rate)


def test_other_kinds_of_models(folder: Path) -> None:
    with pytest.raises(tec.ArgumentError, match=r"whisper writes what it hears"):
        tec.lm.load(folder)
    from .tiny import llama

    with pytest.raises(tec.ArgumentError, match="llama hears nothing"):
        tec.lm.transcriber(llama())


def with_times(folder: Path) -> Any:
    made = tec.lm.open(folder)
    made.generation = {**made.generation, **heard.TIMES}  # type: ignore[misc]
    return tec.lm.transcriber(made, target="llvm", cache=False)


def test_times_are_written_by_the_rules_of_transformers(known: Any, folder: Path) -> None:
    timed, begin = with_times(folder), heard.TIMES["no_timestamps_token_id"] + 1
    found = timed.transcribe(heard.features(), max_tokens=heard.TIMED, timestamps=True)
    kept = [t for part in found.segments for t in part.ids]
    assert kept == known["timed"][: len(kept)] and found.ids == kept and len(kept) > 2
    assert found.segments[0].start == pytest.approx(
        0.02 * (known["timed"][0] - begin) if len(found.segments) > 1 else 0
    )
    plain = timed.transcribe(heard.features(), max_tokens=4)
    assert plain.segments == ()


def test_segments_are_those_of_transformers(known: Any) -> None:
    times = Times(heard.TIMES["no_timestamps_token_id"] + 1, {2})
    for ids, (want, frames) in zip(heard.timed_texts(), known["segments"], strict=True):
        parts, understood = times.segments(ids, 1.5, 1.0)
        # transformers leaves the time that begins the next part with the last one, where that is cut off.
        more = [0] * (len(want) - 1) + [int(frames != 100)]
        assert [[round(a, 4), round(b, 4), len(p) + n] for (a, b, p), n in zip(parts, more, strict=True)] == want
        assert round(understood * 100) == frames


def test_a_part_that_is_cut_off_is_heard_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next piece begins where the last whole part ends."""
    timed, size, begin = with_times(folder), 100 * HOP, heard.TIMES["no_timestamps_token_id"] + 1
    said = [[begin, 9, begin + 20, begin + 20, 9], [begin, 8, begin + 30], [begin + 1, 7, begin + 9]]
    began, sound = [], heard.waveform(2 * size + 300)
    piece = timed._piece
    monkeypatch.setattr(timed, "_piece", lambda x, at: (began.append(at), piece(x, at))[1])
    monkeypatch.setattr(timed, "_write", lambda *a: said[len(began) - 1])
    found = timed.transcribe(sound, timestamps=True)
    again = round(0.4 * 16_000)
    assert began == [0, again, again + size]
    want = [(0.0, 0.4), (0.4, 1.0), (1.4, 1.58)]  # a part alone in its piece begins with it
    assert [(round(s.start, 4), round(s.end, 4)) for s in found.segments] == want


def test_a_sound_in_which_nothing_is_said_ends(folder: Path, monkeypatch: pytest.MonkeyPatch, model: Any) -> None:
    monkeypatch.setattr(model, "_write", lambda *a: [])
    assert model.transcribe(heard.waveform(40_000)).ids == []
    timed = with_times(folder)
    monkeypatch.setattr(timed, "_write", lambda *a: [])
    assert timed.transcribe(heard.waveform(40_000), timestamps=True).ids == []
    with pytest.raises(tec.ArgumentError, match="tells no times"):
        model.transcribe(heard.features(), timestamps=True)


def test_beams_are_those_of_transformers(known: Any, folder: Path, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[Any] = []

    class Told(speech.BeamSearch):
        def run(self, *args: Any) -> None:
            searches.append(self)
            super().run(*args)

    monkeypatch.setattr(speech, "BeamSearch", Told)
    for (count, penalty, never), want in zip(heard.BEAMS, known["beams"], strict=True):
        made = tec.lm.open(folder)
        made.generation = {**made.generation, "suppress_tokens": never}  # type: ignore[misc]
        model.checkpoint = made
        found = model.transcribe(heard.features(), beams=count, length_penalty=penalty, max_tokens=heard.WRITTEN)
        assert found.ids == [t for t in want["ids"] if t != 2], (count, penalty)
        assert searches[-1].found[0][0] == pytest.approx(want["score"], rel=1e-4)
    model.checkpoint = tec.lm.open(folder)
    one = model.transcribe(heard.features(), beams=1, max_tokens=6).ids
    assert one == model.transcribe(heard.features(), max_tokens=6).ids
    with pytest.raises(tec.ArgumentError, match="beams is 0"):
        model.transcribe(heard.features(), beams=0)


def test_times_of_tokens_are_those_of_transformers(known: Any, folder: Path) -> None:
    made = tec.lm.open(folder)
    made.generation = {**made.generation, "alignment_heads": heard.ALIGNMENT_HEADS}  # type: ignore[misc]
    timed = tec.lm.transcriber(made, target="llvm", cache=False)
    want = known["aligned"]
    np.testing.assert_allclose(timed.token_times(heard.features(), [3], want["ids"]), want["times"], atol=1e-3)
    assert len(set(want["times"])) > 3
    half = timed.token_times(heard.features(), [3], want["ids"], 0.5)
    assert max(half) < 0.5 and half == sorted(half)
    made.generation = {**made.generation, "alignment_heads": [[9, 0]]}  # type: ignore[misc]
    with pytest.raises(tec.ImportModelError, match="alignment_heads"):
        tec.lm.transcriber(made, target="llvm", cache=False).token_times(heard.features(), [3], [7])


class Syllables:
    """Tokens that are texts of their own."""

    texts = (" Grü".encode(), b"\xc3", b"\x9f", b" dich", b",", b' "', b"Welt", b"!", b" ja")

    def token_bytes(self, id: int) -> bytes:
        return self.texts[id]


def test_words_are_made_of_tokens() -> None:
    """Characters that tokens share, punctuation of the word before and of the word behind, and languages without spaces."""
    ids, times = list(range(9)), [0.1 * k for k in range(9)]
    found = words_of(Syllables(), ids, times, 1.2, "de")  # type: ignore[arg-type]
    assert [w.text for w in found] == [" Grüß", " dich,", ' "Welt!', " ja"]
    assert [(round(w.start, 2), round(w.end, 2)) for w in found] == [(0.0, 0.3), (0.3, 0.5), (0.5, 0.8), (0.8, 1.2)]
    assert [w.ids for w in found] == [(0, 1, 2), (3, 4), (5, 6, 7), (8,)]
    assert [w.text for w in words_of(Syllables(), ids[1:5], times[1:5], 1.2, "ja")] == ["ß", " dich,"]  # type: ignore[arg-type]
    assert words_of(Syllables(), [], [], 1.0, "en") == []  # type: ignore[arg-type]


def test_words_of_a_sound(folder: Path, tmp_path: Path) -> None:
    made = tec.lm.open(folder)
    made.__dict__["tokenizer"] = Letters()
    timed = tec.lm.transcriber(made, target="llvm", cache=False)
    found = timed.transcribe(heard.waveform(30_000), words=True, max_tokens=6)
    assert "".join(w.text for w in found.words) == found.text
    assert all(a.start <= a.end and a.start <= b.start for a, b in zip(found.words, found.words[1:]))
    assert found.words[-1].end <= 30_000 / 16_000 + 0.02 and [t for w in found.words for t in w.ids] == found.ids
    with pytest.raises(tec.ArgumentError, match="no tokenizer"):
        tec.lm.transcriber(folder, target="llvm", cache=False).transcribe(heard.waveform(), words=True, max_tokens=2)


class Letters:
    def token_bytes(self, id: int) -> bytes:
        return (" " if id % 3 == 0 else "").encode() + bytes([97 + id % 26])

    def decode(self, ids: Any, *, special: bool = False) -> str:
        return b"".join(map(self.token_bytes, ids)).decode()
