"""The tensors of a Hugging Face folder by the names that `tec.lm.checkpoint` has: experts stacked, quantized weights put together."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tec.errors import ImportModelError, one_line
from tec.lm.checkpoint import PackedTensor, stacked
from tec.lm.remedies import FETCH_AGAIN

from . import namesakes, quantized
from .safetensors import read
from .settings import load

INDEX = "model.safetensors.index.json"
# Before the names of a text model within one for more: what transformers 4 and 5, and older converters, wrote.
_PREFIXES = (
    ("model.language_model.", "model."),
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
    ("model.text_model.", "model."),
)
_OTHER_PARTS = (
    "vision_tower.",
    "model.vision_tower.",
    "model.visual.",
    "visual.",
    "multi_modal_projector.",
    "model.multi_modal_projector.",
    "vision_model.",
    "model.vision_model.",
    "model.connector.",
    "model.audio_tower.",
    "model.embed_audio.",
    "model.embed_vision.",
    "mtp.",
)
_EXPERT = re.compile(
    r"(.*)\.(mlp|block_sparse_moe|feed_forward|mixer)\.experts\.(\d{1,6})\.(gate_proj|up_proj|down_proj|w1|w2|w3)\.weight",
    re.DOTALL,
)
_PARTS_OF_MIXTRAL = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}
_QUANTIZED = re.compile(r"(.*)\.(qweight|qzeros|scales|g_idx)", re.DOTALL)
_SCALE = re.compile(r"(.*)\.(weight_scale_inv|weight_scale)", re.DOTALL)


def files_of(folder: Path) -> list[Path]:
    """The folder's files of weights. Raises ImportModelError where there are none, or one that the index names is missing."""
    index = load(folder / INDEX)
    listed = index.get("weight_map")
    if index and not isinstance(listed, dict):
        raise ImportModelError(f"{folder / INDEX} has no weight_map", hint="download the file again")
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
            raise ImportModelError(
                f"{folder / n} is missing, which {INDEX} names",
                hint="download the folder again, with all of its .safetensors files",
            )
    return [folder / n for n in names]


def tensors_of(folder: Path, config: Mapping[str, Any]) -> dict[str, PackedTensor]:
    """All tensors. Raises ImportModelError for damaged files, and for ways of quantizing that are not read."""
    raw: dict[str, PackedTensor] = {}
    for path in files_of(folder):
        for entry in read(path).values():
            name = plain_name(entry.name)
            if name is None:
                continue
            if name in raw:
                raise ImportModelError(
                    f"{path} holds {one_line(name)} a second time",
                    hint="one set of shards: remove those of another export from the folder",
                )
            raw[name] = PackedTensor(name, entry.shape, entry.format, entry.data)
    settings = config.get("quantization_config", config.get("compression_config"))
    raw = _of_family(namesakes.tensors(raw, config), str(config.get("model_type")))
    found = _dequantizable(raw, settings if isinstance(settings, dict) else {})
    return _experts(_joined_experts(found, str(config.get("model_type"))))


def dense_of(folders: Sequence[Path]) -> dict[str, PackedTensor]:
    """The layers behind a model's pooling by the names that GGUF files have: dense_2, dense_3, ... Raises ImportModelError."""
    found: dict[str, PackedTensor] = {}
    for k, folder in enumerate(folders):
        path = folder / "model.safetensors"
        if not path.is_file():
            raise ImportModelError(
                f"{path} is missing, which a vector goes through behind the pooling",
                hint="download the folder again, with all of its .safetensors files",
            )
        for entry in read(path).values():
            name = f"dense_{k + 2}.{entry.name.removeprefix('linear.')}"
            found[name] = PackedTensor(name, entry.shape, entry.format, entry.data)
    return found


def _of_family(raw: dict[str, PackedTensor], kind: str) -> dict[str, PackedTensor]:
    """Tensors of families that have names, or an order of rows and columns, of their own."""
    if kind in ("gpt2", "gpt_bigcode"):
        made = {n if n.startswith(("transformer.", "lm_head.")) else f"transformer.{n}": t for n, t in raw.items()}
        return {n: _transposed(n, t) if kind == "gpt2" and n.endswith(_CONV1D) else t for n, t in made.items()}
    if kind in ("bert", "roberta", "xlm-roberta"):
        return {n.removeprefix("bert.").removeprefix("roberta."): t for n, t in raw.items()}
    if kind == "whisper":
        return {n.replace("proj_out.", "lm_head."): _matrix(t) if ".conv" in n else t for n, t in raw.items()}
    if "embed_tokens.weight" in raw:  # a model without its head, as those for embeddings have it
        return {n if n.startswith("lm_head.") else f"model.{n}": t for n, t in raw.items()}
    known = "granitemoe" if kind.startswith("granitemoe") else kind
    if known in _NAMES_OF:
        return {_renamed(n, known): t for n, t in raw.items()}
    return raw


def _matrix(t: PackedTensor) -> PackedTensor:
    """A convolution's weights [out, in, taps] as a matrix [out, in * taps] of the same bytes."""
    if len(t.shape) < 3:
        return t
    return PackedTensor(t.name, (t.shape[0], math.prod(t.shape[1:])), t.format, t.raw)


# Of GPT-2, inputs by outputs.
_CONV1D = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")


def _transposed(name: str, t: PackedTensor) -> PackedTensor:
    if len(t.shape) != 2 or t.format.block != 1:
        raise ImportModelError(f"{name} is {t.format.name} {list(t.shape)}", hint=FETCH_AGAIN)

    def turn() -> Any:
        return np.ascontiguousarray(t.data.reshape(*t.shape, t.format.nbytes).swapaxes(0, 1)).reshape(-1)

    return PackedTensor(name, t.shape[::-1], t.format, turn)


# Of experts of Granite, and what is shared beside them; of the vocabulary of GPT-NeoX; of routers; of Nemotron-H, whose older name is Mamba's.
_NAMES_OF = {
    "granitemoe": (
        (".block_sparse_moe.input_linear.weight", ".mlp.experts.gate_up_proj"), (".block_sparse_moe.output_linear.weight", ".mlp.experts.down_proj"),
        (".block_sparse_moe.experts.", ".mlp.experts."), (".block_sparse_moe.router.layer.", ".mlp.router."), (".block_sparse_moe.router.", ".mlp.router."),
        (".shared_mlp.input_linear.", ".shared_mlp.gate_up_proj."), (".shared_mlp.output_linear.", ".shared_mlp.down_proj."),
    ),
    "gpt_neox": (("embed_out.", "lm_head."),),
    "hunyuan_v1_moe": ((".mlp.gate.wg.", ".mlp.gate."),), "exaone_moe": ((".mlp.e_score_correction_bias", ".mlp.gate.e_score_correction_bias"),),
    "nemotron_h": (("model.", "backbone."),), "minimax_m2": ((".block_sparse_moe.e_score_", ".mlp.e_score_"),),
}  # fmt: skip


def _renamed(name: str, kind: str) -> str:
    for before, after in _NAMES_OF[kind]:
        name = name.replace(before, after)
    return name


def plain_name(name: str) -> str | None:
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


def _joined_experts(found: dict[str, PackedTensor], family: str) -> dict[str, PackedTensor]:
    """Experts that are one tensor in the files: gate and up one below the other; of gpt-oss in turn, in MXFP4 or, transposed, plain; biases too. Those of Llama 4 lie
    transposed."""
    made: dict[str, PackedTensor] = {}
    for name, t in found.items():
        stem, _, kind = name.rpartition(".")
        if not stem.endswith(".experts"):
            made[name] = t
        elif kind in ("gate_up_proj_blocks", "down_proj_blocks"):
            scales = found.get(name.removesuffix("blocks") + "scales")
            if scales is None:
                raise ImportModelError(f"{name} has no scales", hint=FETCH_AGAIN)
            for part, every in _in_turn(kind.removesuffix("_blocks")):
                made[f"{stem}.{part}.weight"] = quantized.mxfp4(f"{stem}.{part}.weight", t, scales, every)
        elif kind in ("gate_up_proj_bias", "down_proj_bias"):
            for part, every in _in_turn(kind.removesuffix("_bias")):
                made[f"{stem}.{part}.bias"] = _columns(f"{stem}.{part}.bias", t, every)
        elif kind == "up_proj":  # of experts without gates
            made[f"{name}.weight"] = PackedTensor(f"{name}.weight", t.shape, t.format, t.raw)
        elif kind in ("gate_up_proj", "down_proj"):
            turned = family in ("gpt_oss", "llama4_text")
            made |= _turned(stem, kind, t, family == "gpt_oss") if turned else _halves(stem, kind, t)
        elif not kind.endswith("_scales"):
            made[name] = t
    return made


def _turned(stem: str, kind: str, t: PackedTensor, in_turn: bool) -> dict[str, PackedTensor]:
    """Plain experts [experts, inputs, outputs], whose gates and ups are in turn, or gates first."""
    if len(t.shape) != 3:
        raise ImportModelError(f"{t.name} has the shape {list(t.shape)}", hint=FETCH_AGAIN)
    experts, inputs, outputs = t.shape
    made, half = {}, outputs // 2
    behind = [("gate_proj", slice(0, half)), ("up_proj", slice(half, outputs))]
    for part, every in behind if not in_turn and kind == "gate_up_proj" else _in_turn(kind):
        count = len(range(*every.indices(outputs)))

        def take(every: slice = every) -> Any:
            whole = t.data.reshape(experts, inputs, outputs, t.format.nbytes)[:, :, every]
            return np.ascontiguousarray(whole.swapaxes(1, 2)).reshape(-1)

        name = f"{stem}.{part}.weight"
        made[name] = PackedTensor(name, (experts, count, inputs), t.format, take)
    return made


def _halves(stem: str, kind: str, t: PackedTensor) -> dict[str, PackedTensor]:
    """Experts [experts, outputs, inputs], of whose outputs the first half may be gates and the second ups."""
    if kind == "down_proj":
        return {f"{stem}.down_proj.weight": PackedTensor(f"{stem}.down_proj.weight", t.shape, t.format, t.raw)}
    if len(t.shape) != 3 or t.shape[1] % 2:
        raise ImportModelError(f"{t.name} has the shape {list(t.shape)}", hint=FETCH_AGAIN)
    experts, outputs, inputs = t.shape
    made = {}
    for half, part in enumerate(("gate_proj", "up_proj")):

        def take(half: int = half) -> Any:
            return np.ascontiguousarray(t.data.reshape(experts, 2, -1)[:, half]).reshape(-1)

        name = f"{stem}.{part}.weight"
        made[name] = PackedTensor(name, (experts, outputs // 2, inputs), t.format, take)
    return made


def _in_turn(kind: str) -> list[tuple[str, slice]]:
    return (
        [("gate_proj", slice(0, None, 2)), ("up_proj", slice(1, None, 2))]
        if kind == "gate_up_proj"
        else [(kind, slice(None))]
    )


def _columns(name: str, t: PackedTensor, every: slice) -> PackedTensor:
    if len(t.shape) != 2:
        raise ImportModelError(f"{name} has the shape {list(t.shape)}", hint=FETCH_AGAIN)
    rows, columns = t.shape
    count = len(range(*every.indices(columns)))

    def take() -> Any:
        return t.data.reshape(rows, columns, t.format.nbytes)[:, every].reshape(-1)

    return PackedTensor(name, (rows, count), t.format, t.raw if count == columns else take)


def expert_of(name: str) -> tuple[str, int] | None:
    """The name of the weight of all experts, and the number of one, for a name of one expert's; None for others."""
    match = _EXPERT.fullmatch(name)
    if match is None:
        return None
    part = _PARTS_OF_MIXTRAL.get(match[4], match[4])
    at = "mlp" if match[2] == "block_sparse_moe" else match[2]
    return f"{match[1]}.{at}.experts.{part}.weight", int(match[3])


def _experts(found: dict[str, PackedTensor]) -> dict[str, PackedTensor]:
    """Experts that lie apart as one tensor of all. Raises ImportModelError where one is missing."""
    made: dict[str, PackedTensor] = {}
    groups: dict[str, dict[int, PackedTensor]] = {}
    for name, t in found.items():
        at = expert_of(name)
        if at is not None:
            groups.setdefault(at[0], {})[at[1]] = t
        else:
            made[name.replace(".block_sparse_moe.gate.", ".mlp.gate.")] = t
    for name, experts in groups.items():
        missing = next((k for k in range(len(experts)) if k not in experts), None)
        if missing is not None:
            raise ImportModelError(
                f"{name}: expert {missing} is missing", hint="all shards of the index: fetch the missing ones"
            )
        made[name] = stacked(name, [experts[k] for k in range(len(experts))])
    return made
