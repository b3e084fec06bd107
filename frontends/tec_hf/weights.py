"""The tensors of a Hugging Face folder by the names that `tec.lm.checkpoint` has: experts stacked, quantized weights put together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tec.errors import ImportModelError, one_line
from tec.lm.checkpoint import PackedTensor, stacked

from . import quantized
from .safetensors import read
from .settings import load

INDEX = "model.safetensors.index.json"
# Before the names of a text model within one for more: what transformers 4 and 5, and older converters, wrote.
_PREFIXES = (
    ("model.language_model.", "model."),
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
)
_OTHER_PARTS = (
    "vision_tower.",
    "model.vision_tower.",
    "model.visual.",
    "visual.",
    "multi_modal_projector.",
    "model.multi_modal_projector.",
    "mtp.",
)
_EXPERT = re.compile(
    r"(.*)\.(?:mlp|block_sparse_moe)\.experts\.(\d{1,6})\.(gate_proj|up_proj|down_proj|w1|w2|w3)\.weight", re.DOTALL
)
_PARTS_OF_MIXTRAL = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}
_QUANTIZED = re.compile(r"(.*)\.(qweight|qzeros|scales|g_idx)", re.DOTALL)
_SCALE = re.compile(r"(.*)\.(weight_scale_inv|weight_scale)", re.DOTALL)


def files_of(folder: Path) -> list[Path]:
    """The folder's files of weights. Raises ImportModelError where there are none, or one that the index names is missing."""
    index = load(folder / INDEX)
    listed = index.get("weight_map")
    if index and not isinstance(listed, dict):
        raise ImportModelError(f"{folder / INDEX} has no weight_map")
    if isinstance(listed, dict):
        names = sorted({str(n) for n in listed.values()})
        for n in names:
            if n != Path(n).name or n in (".", "..") or not n.endswith(".safetensors"):
                raise ImportModelError(
                    f"{folder / INDEX} names the file {one_line(n)!r}", hint="files lie in the folder itself"
                )
    else:
        names = (
            ["model.safetensors"]
            if (folder / "model.safetensors").is_file()
            else sorted(p.name for p in folder.glob("*.safetensors"))
        )
    if not names:
        raise ImportModelError(
            f"no weights in {folder}",
            hint="files of .safetensors; pytorch_model.bin is not read, since it can run programs",
        )
    for n in names:
        if not (folder / n).is_file():
            raise ImportModelError(f"{folder / n} is missing, which {INDEX} names")
    return [folder / n for n in names]


def tensors_of(folder: Path, config: Mapping[str, Any]) -> dict[str, PackedTensor]:
    """All tensors. Raises ImportModelError for damaged files, and for ways of quantizing that are not read."""
    raw: dict[str, PackedTensor] = {}
    for path in files_of(folder):
        for entry in read(path).values():
            name = _plain(entry.name)
            if name is None:
                continue
            if name in raw:
                raise ImportModelError(f"{path} holds {one_line(name)} a second time")
            raw[name] = PackedTensor(name, entry.shape, entry.format, entry.data)
    settings = config.get("quantization_config", config.get("compression_config"))
    found = _dequantizable(raw, settings if isinstance(settings, dict) else {})
    return _experts(_gpt_oss(found))


def _plain(name: str) -> str | None:
    """A name within the text model; None for tensors of other parts."""
    if name.startswith(_OTHER_PARTS):
        return None
    for before, after in _PREFIXES:
        if name.startswith(before):
            return after + name[len(before) :]
    return name


def _dequantizable(raw: dict[str, PackedTensor], settings: Mapping[str, Any]) -> dict[str, PackedTensor]:
    method = settings.get("quant_method")
    if method is None:
        return raw
    if method in ("gptq", "awq"):
        return _packed(raw, quantized.gptq if method == "gptq" else quantized.awq, settings)
    if method in ("fp8", "fbgemm_fp8") or (
        method == "compressed-tensors" and not any(n.endswith(".weight_packed") for n in raw)
    ):
        return _floats(raw, settings)
    if method == "mxfp4":
        return raw
    raise ImportModelError(
        f"weights quantized by {one_line(str(method))}",
        hint="gptq, awq, fp8 and mxfp4 are read; or take the model's GGUF file",
    )


def _packed(raw: dict[str, PackedTensor], make: Any, settings: Mapping[str, Any]) -> dict[str, PackedTensor]:
    found: dict[str, PackedTensor] = {}
    parts: dict[str, dict[str, PackedTensor]] = {}
    for name, t in raw.items():
        match = _QUANTIZED.fullmatch(name)
        if match is None:
            found[name] = t
        else:
            parts.setdefault(match[1], {})[match[2]] = t
    for stem, of in parts.items():
        found[f"{stem}.weight"] = make(f"{stem}.weight", of, settings)
    return found


def _floats(raw: dict[str, PackedTensor], settings: Mapping[str, Any]) -> dict[str, PackedTensor]:
    found = {
        n: t
        for n, t in raw.items()
        if not n.endswith((".weight_scale_inv", ".weight_scale", ".input_scale", ".activation_scale"))
    }
    for name, scale in raw.items():
        match = _SCALE.fullmatch(name)
        if match is not None and (weight := found.get(f"{match[1]}.weight")) is not None:
            found[weight.name] = quantized.fp8(weight.name, weight, scale, settings.get("weight_block_size"))
    return found


def _gpt_oss(found: dict[str, PackedTensor]) -> dict[str, PackedTensor]:
    """Experts of gpt-oss: the rows of gate and up lie in turn, weights in MXFP4 or plain; biases too."""
    made: dict[str, PackedTensor] = {}
    for name, t in found.items():
        stem, _, kind = name.rpartition(".")
        if not stem.endswith(".experts"):
            made[name] = t
        elif kind in ("gate_up_proj_blocks", "down_proj_blocks"):
            scales = found.get(name.removesuffix("blocks") + "scales")
            if scales is None:
                raise ImportModelError(f"{name} has no scales")
            for part, every in _in_turn(kind.removesuffix("_blocks")):
                made[f"{stem}.{part}.weight"] = quantized.mxfp4(f"{stem}.{part}.weight", t, scales, every)
        elif kind in ("gate_up_proj_bias", "down_proj_bias"):
            for part, every in _in_turn(kind.removesuffix("_bias")):
                made[f"{stem}.{part}.bias"] = _columns(f"{stem}.{part}.bias", t, every)
        elif kind in ("gate_up_proj", "down_proj"):
            made[f"{name}.weight"] = PackedTensor(f"{name}.weight", t.shape, t.format, t.raw)
        elif not kind.endswith("_scales"):
            made[name] = t
    return made


def _in_turn(kind: str) -> list[tuple[str, slice]]:
    return (
        [("gate_proj", slice(0, None, 2)), ("up_proj", slice(1, None, 2))]
        if kind == "gate_up_proj"
        else [(kind, slice(None))]
    )


def _columns(name: str, t: PackedTensor, every: slice) -> PackedTensor:
    if len(t.shape) != 2:
        raise ImportModelError(f"{name} has the shape {list(t.shape)}")
    rows, columns = t.shape
    count = len(range(*every.indices(columns)))

    def take() -> Any:
        return t.data.reshape(rows, columns, t.format.nbytes)[:, every].reshape(-1)

    return PackedTensor(name, (rows, count), t.format, t.raw if count == columns else take)


def _experts(found: dict[str, PackedTensor]) -> dict[str, PackedTensor]:
    """Experts that lie apart as one tensor of all. Raises ImportModelError where one is missing."""
    made: dict[str, PackedTensor] = {}
    groups: dict[str, dict[int, PackedTensor]] = {}
    for name, t in found.items():
        match = _EXPERT.fullmatch(name)
        if match is not None:
            part = _PARTS_OF_MIXTRAL.get(match[3], match[3])
            groups.setdefault(f"{match[1]}.mlp.experts.{part}.weight", {})[int(match[2])] = t
        else:
            made[name.replace(".block_sparse_moe.gate.", ".mlp.gate.")] = t
    for name, experts in groups.items():
        missing = next((k for k in range(len(experts)) if k not in experts), None)
        if missing is not None:
            raise ImportModelError(f"{name}: expert {missing} is missing")
        made[name] = stacked(name, [experts[k] for k in range(len(experts))])
    return made
