"""Logits of small models of every architecture by transformers, for a gate without PyTorch: `python -m tools.lm_references`.

Writes tests/unit/lm/data/families.json.gz. Weights are made of the tensors' names (`tests.unit.lm.families.filled`), so that only configurations, shapes and logits are kept.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.unit.lm import heard
from tests.unit.lm.families import CASES, DATA, EMBEDDERS, KEPT, RERANKERS, SECOND, SIZES, TOKENS, filled


def model_of(kind: str, more: dict[str, Any], headless: bool = False) -> Any:
    """A model of transformers with weights of its tensors' names. headless: without what makes logits."""
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(kind, **{**SIZES, **more})
    maker = transformers.AutoModel if headless else transformers.AutoModelForCausalLM
    # Falcon's eager attention adds what falls with distance twice (transformers 5.24).
    how = "sdpa" if more.get("alibi") else "eager"
    model = maker.from_config(config, attn_implementation=how).eval().float()
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if value.dtype.is_floating_point and not (name == "lm_head.weight" and config.tie_word_embeddings):
                value.copy_(torch.from_numpy(filled(name, tuple(value.shape))))
    return model


def reference(kind: str, more: dict[str, Any], headless: bool = False) -> dict[str, Any]:
    """What is kept of a case: logits, or of a model without a head features."""
    import torch

    model = model_of(kind, more, headless)
    with torch.no_grad():
        made = model(torch.tensor([TOKENS]))
        logits = (made.last_hidden_state if headless else made.logits)[0, -KEPT:].double().numpy()
    tied = model.config.tie_word_embeddings
    shapes = {
        n: list(v.shape)
        for n, v in model.state_dict().items()
        if not (tied and n in ("lm_head.weight", "embed_out.weight"))
    }
    with tempfile.TemporaryDirectory() as folder:
        model.config.save_pretrained(folder)
        config = json.loads((Path(folder) / "config.json").read_text())
    return {"config": config, "shapes": shapes, "logits": [[float(f"{x:.6g}") for x in row] for row in logits]}


def score(kind: str, more: dict[str, Any]) -> dict[str, Any]:
    """The same of a reranker, whose logit is one number."""
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(kind, **{**SIZES, **more, "num_labels": 1})
    model = (
        transformers.AutoModelForSequenceClassification.from_config(config, attn_implementation="eager").eval().float()
    )
    types = {"token_type_ids": torch.tensor([[int(k >= SECOND) for k in range(len(TOKENS))]])} if kind == "bert" else {}
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if value.dtype.is_floating_point:
                value.copy_(torch.from_numpy(filled(name, tuple(value.shape))))
        logits = model(torch.tensor([TOKENS]), **types).logits.double().numpy()
    shapes = {n: list(v.shape) for n, v in model.state_dict().items() if v.dtype.is_floating_point}
    with tempfile.TemporaryDirectory() as folder:
        model.config.save_pretrained(folder)
        made = json.loads((Path(folder) / "config.json").read_text())
    return {"config": made, "shapes": shapes, "logits": logits.tolist()}


def speech() -> dict[str, Any]:
    """What is kept of a small Whisper: logits, the tokens that it writes, and features of a sound."""
    import torch
    from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

    model = WhisperForConditionalGeneration(WhisperConfig(**heard.SIZES)).eval().float()
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if name != "proj_out.weight":
                value.copy_(torch.from_numpy(filled(name, tuple(value.shape))))
        x = torch.from_numpy(heard.features())[None]
        logits = model(input_features=x, decoder_input_ids=torch.tensor([heard.TOKENS])).logits[0].double().numpy()
        written = model.generate(x, max_new_tokens=heard.WRITTEN, do_sample=False)[0].tolist()
        timed = with_times(model, x)
        found = [beams(model, x, *case) for case in heard.BEAMS]
        aligned = with_words(model, x)
    sounds = {}
    for bins in (16, 80):
        extractor = WhisperFeatureExtractor(feature_size=bins, chunk_length=1)
        made = extractor(heard.waveform(), sampling_rate=16_000, return_tensors="np").input_features[0]
        sounds[str(bins)] = [[float(f"{v:.6g}") for v in column] for column in made[:, :: heard.EACH].T.tolist()]
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        read = {n: json.loads((Path(folder) / f"{n}.json").read_text()) for n in ("config", "generation_config")}
    shapes = {n: list(v.shape) for n, v in model.state_dict().items() if n != "proj_out.weight"}
    rows = [[float(f"{v:.7g}") for v in row] for row in logits.tolist()]
    return {
        **read,
        "shapes": shapes,
        "logits": rows,
        "written": written,
        "sounds": sounds,
        "timed": timed,
        "beams": found,
        "aligned": aligned,
        "segments": segments(),
    }


def beams(model: Any, x: Any, count: int, penalty: float, suppressed: list[int]) -> dict[str, Any]:
    """The tokens that a beam search finds, and their score."""
    made = model.generate(
        x, max_new_tokens=heard.WRITTEN, do_sample=False, num_beams=count, length_penalty=penalty, suppress_tokens=suppressed or None,
        return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    start = heard.SIZES["decoder_start_token_id"]
    ids = [t for k, t in enumerate(made.sequences[0].tolist()) if k or t != start]
    return {"ids": ids, "score": float(f"{float(made.sequences_scores[0]):.6g}")}


def with_words(model: Any, x: Any) -> dict[str, Any]:
    """Tokens that are written, and when each is said; the last one has no time of its own."""
    model.set_attn_implementation("eager")
    model.generation_config.alignment_heads = heard.ALIGNMENT_HEADS
    made = model.generate(x, max_new_tokens=heard.WRITTEN, do_sample=False, return_token_timestamps=True)
    model.generation_config.alignment_heads = None
    start = heard.SIZES["decoder_start_token_id"]
    pairs = list(zip(made["sequences"][0].tolist(), made["token_timestamps"][0].tolist()))
    pairs = pairs[pairs[0][0] == start :]
    return {"ids": [t for t, _ in pairs[:-1]], "times": [round(s, 4) for _, s in pairs[:-1]]}


def with_times(model: Any, x: Any) -> list[int]:
    """Greedy tokens under transformers' rules for times."""
    import torch
    from transformers import GenerationConfig
    from transformers.generation.logits_process import SuppressTokensLogitsProcessor, WhisperTimeStampLogitsProcessor

    said = GenerationConfig(eos_token_id=heard.SIZES["eos_token_id"], **heard.TIMES)
    ids, head = [heard.SIZES["decoder_start_token_id"]], 1
    rules = WhisperTimeStampLogitsProcessor(said, head)
    while len(ids) < heard.TIMED + head:
        logits = model(input_features=x, decoder_input_ids=torch.tensor([ids])).logits[:, -1]
        if len(ids) == head:
            logits = SuppressTokensLogitsProcessor(heard.SIZES["begin_suppress_tokens"])(None, logits)
        ids.append(int(rules(torch.tensor([ids]), logits)[0].argmax()))
        if ids[-1] == heard.SIZES["eos_token_id"]:
            break
    return ids[head:]


def segments() -> list[Any]:
    """Drawn texts with times, and the parts that transformers makes of them: begin and end in seconds, the number of tokens, and the frames that it goes on behind."""
    import torch
    from transformers.models.whisper.generation_whisper import WhisperGenerationMixin

    made = []
    for ids in heard.timed_texts():
        found, offset = WhisperGenerationMixin._retrieve_segment(
            seek_sequence=torch.tensor(ids), seek_outputs=[{}], time_offset=torch.tensor([1.5], dtype=torch.float64), timestamp_begin=heard.TIMES["no_timestamps_token_id"] + 1,
            seek_num_frames=torch.tensor([100]), time_precision=0.02, time_precision_features=0.01, input_stride=2, prev_idx=0, idx=0, return_token_timestamps=False,
            decoder_input_ids=torch.zeros(1, 1),
        )  # fmt: skip
        parts = [[round(float(s["start"]), 4), round(float(s["end"]), 4), len(s["tokens"])] for s in found]
        made.append([parts, int(offset)])
    return made


def kept(path: Path, found: dict[str, Any]) -> None:
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as f:
        f.write(json.dumps(found, sort_keys=True).encode())


def main() -> None:
    kept(heard.DATA, speech())
    found = {name: reference(kind, more) for name, (kind, more) in CASES.items()}
    found |= {f"embedder {name}": reference(kind, more, True) for name, (kind, more) in EMBEDDERS.items()}
    found |= {f"reranker {name}": score(kind, more) for name, (kind, more) in RERANKERS.items()}
    assert all(np.isfinite(c["logits"]).all() for c in found.values())
    DATA.parent.mkdir(exist_ok=True)
    kept(DATA, found)


if __name__ == "__main__":
    main()
