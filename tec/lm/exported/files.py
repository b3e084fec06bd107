"""Which files make a model that writes, and what they are for, by the layouts of exporters.

onnxruntime-genai   a folder with genai_config.json, which names the decoder (and the encoder)
optimum             model.onnx or decoder_model(_merged).onnx, decoder_with_past_model.onnx, encoder_model.onnx, config.json, generation_config.json
any                 files of any name: what writes logits is a decoder, one with inputs past... goes on from caches, the other is the encoder
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import ArgumentError, ImportModelError
from ...graph.frontends import Interface, interface_of

BRANCH = "use_cache_branch"  # the input of a merged decoder that says whether caches are given
_DECODERS = ("model.onnx", "decoder_model_merged.onnx", "decoder_with_past_model.onnx", "decoder_model.onnx")
_ENCODERS = ("encoder_model.onnx",)


@dataclass
class ModelFile:
    """A model file and its inputs and outputs."""

    path: Path
    interface: Interface

    @property
    def caches(self) -> list[str]:
        """Inputs that are caches of keys and values."""
        return [n for n in self.interface.inputs if n.startswith("past")]

    @property
    def is_merged(self) -> bool:
        return BRANCH in self.interface.inputs


@dataclass
class Files:
    """A model: `step` goes on from caches (or has none), `first` begins where `step` cannot, `encoder` reads what is answered."""

    step: ModelFile
    first: ModelFile | None = None
    encoder: ModelFile | None = None
    ends: set[int] = field(default_factory=set)
    start: int | None = None  # the token that an answer begins with, behind an encoder
    most: int | None = None  # tokens that the model can hold
    folders: list[Path] = field(default_factory=list)


def find(paths: Sequence[str | Path], cached: bool = True) -> Files:
    """The model in a folder, or of files. `cached` False: rather the decoder without caches. Raises ImportModelError."""
    given = [Path(p) for p in paths]
    if not given:
        raise ArgumentError("no model is given", hint="a folder, or its .onnx files")
    for p in given:
        if not os.path.exists(p):
            raise ArgumentError(f"{p}: no such file or folder", hint="a folder with .onnx files, or the files")
    folders = list(dict.fromkeys(p if p.is_dir() else p.parent for p in given))
    facts = _facts(folders)
    listed = [f for p in given for f in (_of_folder(p) if p.is_dir() else [p])]
    parts = [ModelFile(f, interface_of(str(f))) for f in dict.fromkeys(listed)]
    decoders = [p for p in parts if "logits" in p.interface.outputs]
    others = [p for p in parts if p not in decoders]
    if not decoders or len(others) > 1:
        names = ", ".join(p.path.name for p in parts) or "none"
        raise ImportModelError(f"no model that writes in {', '.join(map(str, given))}: files {names}", hint="one decoder at least, whose output is called logits, and one encoder at most")  # fmt: skip
    with_past = [p for p in decoders if p.caches]
    without = [p for p in decoders if not p.caches]
    step = with_past[0] if with_past and (cached or not without) else without[0]
    first = without[0] if step in with_past and without and not step.is_merged else None
    encoder = others[0] if others else None
    if encoder is not None and "encoder_hidden_states" not in {n for p in decoders for n in p.interface.inputs}:
        raise ImportModelError(
            f"{encoder.path.name} gives no logits, and the decoder asks for no encoder_hidden_states",
            hint="the encoder and the decoder of one export; for a decoder alone leave the other file out",
        )
    if encoder is None and "encoder_hidden_states" in step.interface.inputs:
        raise ImportModelError(f"{step.path.name} asks for encoder_hidden_states", hint="give the encoder's file too")
    return Files(step, first, encoder, folders=folders, **facts)


def _of_folder(folder: Path) -> list[Path]:
    config = folder / "genai_config.json"
    if config.is_file():
        model = _json(config).get("model", {})
        names = [part.get("filename") for k in ("encoder", "decoder") if isinstance(part := model.get(k), dict)]
        found = [folder / n for n in names if isinstance(n, str)]
        missing = [str(f) for f in found if not f.is_file()]
        if missing or not found:
            raise ImportModelError(
                f"{config} names {', '.join(missing) or 'no model'}, which is not there",
                hint="fetch the files that the configuration names into its folder",
            )
        return found
    for place in (folder, folder / "onnx"):
        decoder = [place / n for n in _DECODERS if (place / n).is_file()]
        if decoder:
            merged = [f for f in decoder if f.name in _DECODERS[:2]]
            return [*(place / n for n in _ENCODERS if (place / n).is_file()), *(merged[:1] or decoder)]
    found = sorted(folder.glob("*.onnx"))
    if not found:
        raise ImportModelError(f"no model in {folder}", hint="genai_config.json, or .onnx files")
    return found


def _json(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ImportModelError(
            f"cannot read {path}: {error}", hint="a JSON file that can be read; without one, its settings are defaults"
        ) from None
    if not isinstance(read, dict):
        raise ImportModelError(f"{path} holds no settings", hint='a JSON object: {"eos_token_id": 2}')
    return read


def _facts(folders: Sequence[Path]) -> dict[str, Any]:
    """Ends, start and length from the settings that lie beside a model."""
    ends: set[int] = set()
    start = most = None
    for folder in folders:
        for name in ("genai_config.json", "generation_config.json", "config.json"):
            if not (folder / name).is_file():
                continue
            read = _json(folder / name)
            own = read.get("model", read) if name == "genai_config.json" else read
            end = own.get("eos_token_id")
            ends |= {k for k in (end if isinstance(end, list) else [end]) if isinstance(k, int)}
            start = own.get("decoder_start_token_id") if start is None else start
            most = own.get("context_length", own.get("max_position_embeddings")) if most is None else most
    return {
        "ends": ends, "start": start if isinstance(start, int) else None, "most": most if isinstance(most, int) else None
    }  # fmt: skip
