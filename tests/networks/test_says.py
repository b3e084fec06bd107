"""What networks say when they are used as their users do: text from text, names, letters on pictures, faces, speech.

The same loop runs over ONNX Runtime and over tec; both must say the same, and the right thing. On the CPU, some on a software GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tec
from tec.lm import Generator
from tests.networks.test_networks import TITLE, face, ocr_line, resized, title_ids
from tools import texts, zoo, zoo_faces, zoo_sound
from tools.archives import archive, member

ort = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow

Run = Callable[..., list[Any]]


def of_ort(name: str) -> Run:
    session = ort.InferenceSession(str(zoo.get(name)))
    names = [i.name for i in session.get_inputs()]
    return lambda *arrays: list(session.run(None, dict(zip(names, arrays))))


def of_tec(name: str, target: str = "llvm", freeze: dict[str, Any] | None = None) -> Run:
    """Compiled for the shapes of each first call; the software GPU where the target has a chip."""
    path = str(zoo.get(name))
    names = [i.name for i in ort.InferenceSession(path).get_inputs()]
    device = tec.rocm_emu(target.split("=")[1]) if "mcpu" in target else None
    nets: dict[Any, Any] = {}

    def run(*arrays: Any) -> list[Any]:
        feeds = {k: np.asarray(v) for k, v in zip(names, arrays) if k not in (freeze or {})}
        key = tuple(v.shape for v in feeds.values())
        if key not in nets:
            shapes = {k: v.shape for k, v in feeds.items()}
            nets[key] = tec.compile(path, target=target, shapes=shapes, freeze=freeze)
        return list(nets[key].run(feeds, device=device))

    return run


# ---- a title from text


def title(encoder: Run, decoder: Run, length: int = 24) -> str:
    """Greedy decoding; the decoder sees a prefix of fixed length, filled with padding."""
    ids = title_ids()
    mask = np.ones_like(ids)
    (hidden,) = encoder(ids, mask)
    out = np.zeros((1, length), np.int64)
    for k in range(length - 1):
        (logits,) = decoder(out, hidden, mask)
        best = int(logits[0, k].argmax())
        if best == 1:
            return texts.title_tokenizer(zoo.TITLE_PACKAGE).decode(out[0, 1 : k + 1])
        out[0, k + 1] = best
    return ""


def test_a_title_from_text() -> None:
    want = title(of_ort("t5_encoder"), of_ort("t5_decoder"))
    assert want == "Add a dark mode switch to settings page"
    assert title(of_tec("t5_encoder"), of_tec("t5_decoder")) == want


@pytest.mark.parametrize(("target", "count"), [("llvm", 24), ("rocm -mcpu=gfx942", 3)])
def test_a_title_through_generate(target: str, count: int, tmp_path: Path) -> None:
    """The decoder reads all tokens anew for each; its sizes stay open. The tokens are ONNX Runtime's."""
    (tmp_path / "tokenizer.json").write_bytes(
        member(archive(zoo.TITLE_PACKAGE), "traceforge_title_model/data/span/tokenizer.json")
    )
    device = tec.rocm_emu("gfx942") if target.startswith("rocm") else None
    paths = [zoo.get("t5_encoder"), zoo.get("t5_decoder")]
    made = Generator(paths, tokenizer=tmp_path, target=target, device=device)
    run = made.generate(TITLE, max_tokens=count)
    text = "".join(run)
    encoder, decoder = of_ort("t5_encoder"), of_ort("t5_decoder")
    ids, out = title_ids(), [0]
    assert made.tokenizer.encode(TITLE) == ids[0].tolist()
    (hidden,) = encoder(ids, np.ones_like(ids))
    while len(out) <= len(run.ids):
        out.append(int(decoder(np.array([out]), hidden, np.ones_like(ids))[0][0, -1].argmax()))
    assert run.ids == out[1:]
    assert count < 24 or text == "Add a dark mode switch to settings page"


# ---- names


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx942"])
def test_a_name_in_latin_letters(target: str) -> None:
    romanizer = texts.Romanizer(zoo.NAMES_PACKAGE)

    def spell(encoder: Run, decoder: Run, name: str) -> str:
        source = romanizer.source(name)
        memory, mask, hidden = encoder(source, source == 0)

        def step(prefix: Any, state: list[Any]) -> tuple[Any, list[Any]]:
            scores, *state = decoder(prefix, memory, mask, *state)
            return scores, state

        return romanizer.decode(step, [hidden])

    names = {"محمد": "Mohamed", "فاطمة": "Fatma", "يوسف": "Youssef"} if target == "llvm" else {"فاطمة": "Fatma"}
    theirs = of_ort("romanizer_encoder"), of_ort("romanizer_decoder")
    ours = of_tec("romanizer_encoder", target), of_tec("romanizer_decoder", target)
    for name, latin in names.items():
        assert spell(*theirs, name) == latin
        assert spell(*ours, name) == latin


# ---- letters on a picture


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx942"])
def test_reads_a_line_of_text(target: str) -> None:
    characters = texts.ocr_characters(zoo.get("ppocr_rec"))
    read = of_tec("ppocr_rec", target)
    lines = ["tensor 42", "Hello, world 2026", "wavefront", "gfx942"] if target == "llvm" else ["Hello, world 2026"]
    for line in lines:
        text, sure = texts.ctc_text(read(ocr_line(line))[0][0], characters)
        assert text == line and sure > 0.85


def test_the_detector_marks_the_line() -> None:
    """A picture with one line of text: what the detector marks covers the letters, and leaves the rest."""
    from PIL import Image, ImageDraw, ImageFont

    im = Image.new("RGB", (320, 160), "white")
    ImageDraw.Draw(im).text((30, 60), "tensor 42", fill="black", font=ImageFont.load_default(28))
    x = ((np.asarray(im, np.float32) / 255 - 0.5) / 0.5).transpose(2, 0, 1)[None].copy()
    got, want = of_tec("ppocr_det")(x)[0], of_ort("ppocr_det")(x)[0]
    marked = got[0, 0] > 0.3
    assert marked.any() and not marked[:45].any() and not marked[105:].any() and marked[75, 60:130].mean() > 0.8
    assert np.abs(got - want).max() < 2e-3


def test_the_detector_is_as_exact_as_onnxruntime() -> None:
    """On noise the two differ by up to some thousandths; the same graph in 64 bits says that neither is worse."""
    import tec_onnx

    from tec.graph import run_graph
    from tests.networks.exact import in_float64

    x = np.random.default_rng(0).standard_normal((1, 3, 160, 160)).astype(np.float32)
    graph, _ = tec_onnx.from_onnx(str(zoo.get("ppocr_det")), {"x": x.shape})
    exact = run_graph(in_float64(graph), {"x": x.astype(np.float64)})[0]
    ours = float(np.abs(of_tec("ppocr_det")(x)[0] - exact).max())
    theirs = float(np.abs(of_ort("ppocr_det")(x)[0] - exact).max())
    print(f"ppocr_det on noise: tec {ours:.1e}, ONNX Runtime {theirs:.1e} from 64 bits")
    assert ours <= 2 * theirs + 1e-5


# ---- faces


def test_a_face_and_no_face() -> None:
    """P finds the place, R and O say that it is a face; of the shuttle, the flag and the suit they say that they are none."""
    picture = zoo.image("astronaut")
    first, second, third = of_tec("mtcnn_p"), of_tec("mtcnn_r"), of_tec("mtcnn_o")
    scale = 52 / 512
    places = first(zoo_faces.face_input(resized(picture, 52)))[1][0, 1]
    row, column = (int(v) for v in np.unravel_index(places.argmax(), places.shape))
    y, x, side = int(2 * row / scale), int(2 * column / scale), int(12 / scale)
    found = picture[y : y + side, x : x + side]
    for net, size in ((second, 24), (third, 48)):
        assert net(zoo_faces.face_input(resized(found, size)))[-1][0, 1] > 0.9
        assert net(zoo_faces.face_input(resized(face(), size)))[-1][0, 1] > 0.9
        for none in (picture[0:110, 0:110], picture[380:480, 20:120], picture[200:310, 350:460]):
            assert net(zoo_faces.face_input(resized(none, size)))[-1][0, 1] < 0.2


# ---- sound


@pytest.mark.parametrize("frequency", [110.0, 440.0, 1000.0])
def test_the_pitch_of_a_tone(frequency: float) -> None:
    x = zoo_sound.tone(frequency, 1024, 16000)
    (bins,) = of_tec("crepe_tiny")(((x - x.mean()) / x.std())[None])
    assert abs(1200 * np.log2(zoo_sound.crepe_frequency(bins[0]) / frequency)) < 30  # cents


def test_one_voice_is_nearer_to_itself_than_to_another() -> None:
    listen = of_tec("d_vector")

    def vector(pitch: float, seed: int, tract: float) -> Any:
        return listen(zoo_sound.mel_frames(zoo_sound.voice(1.7, pitch=pitch, seed=seed, tract=tract))[None, :160])[0][0]

    one, again, other = vector(120, 0, 1.0), vector(120, 5, 1.0), vector(220, 1, 1.18)
    assert np.allclose([one @ one, other @ other], 1, atol=1e-5)
    assert one @ again > max(one @ other, again @ other) + 0.1


@pytest.mark.parametrize("target", ["llvm", "rocm -mcpu=gfx942"])
def test_speech_against_noise(target: str) -> None:
    rate = np.array(16000, np.int64)
    net = of_tec("silero_vad", target, freeze={"sr": rate})

    def speech(wave: np.ndarray) -> np.ndarray:
        state, context, out = np.zeros((2, 1, 128), np.float32), np.zeros(64, np.float32), []
        for k in range(0, len(wave) - 511, 512):
            p, state = net(np.concatenate([context, wave[k : k + 512]])[None], state, rate)
            context = wave[k + 448 : k + 512]
            out.append(float(p[0, 0]))
        return np.array(out)

    seconds = 3 if target == "llvm" else 2
    voice = speech(zoo_sound.voice(seconds, pitch=220, seed=3))
    noise = speech((np.random.default_rng(0).standard_normal(int(16000 * seconds)) * 0.05).astype(np.float32))
    assert voice.mean() > 0.4 and voice.max() > 0.9 and noise.max() < 0.2


# ---- the networks that ship with the onnx package


@pytest.mark.parametrize("name", ["resnet50", "squeezenet", "shufflenet"])
def test_light_networks_on_the_software_gpu(name: str) -> None:
    from tec_onnx.backend import runner_for

    from tests.conformance import onnx_suite

    case = next(c for c in onnx_suite.load_cases(["real"]) if c.name == f"test_{name}")
    onnx_suite.run_case(case, runner_for("ROCM_EMU:gfx942"))
