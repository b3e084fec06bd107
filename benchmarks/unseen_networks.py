"""Networks that nobody named: drawn by a seed from timm, torchvision, transformers, diffusers and torch_geometric, at random weights.

`draw(seed, count)` gives names such as "timm/focalnet_tiny_srf" and "transformers/roformer". `build(name, seed)` gives the module, which takes tensors and gives a
tuple of tensors, and example arguments. Depth and vocabulary are cut where the configuration says them, so that a case takes seconds; widths and
pictures stay as they come as far as `MOST_PARAMETERS` allows, so that a time means something.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

MOST_PARAMETERS = int(os.environ.get("TEC_UNSEEN_PARAMETERS", "30_000_000"))
MOST_LAYERS = 2
TOKENS = 64
PICTURES = (64, 96, 128, 160, 224)  # the first that a network of timm or torchvision takes


class NotDrawable(Exception):
    """A name that gives no network here: too large, or inputs that nothing says."""


class Plain(nn.Module):
    """A network with tensors for arguments and a tuple of tensors for a result, as every exporter takes it."""

    def __init__(self, module: nn.Module, names: list[str], fixed: Mapping[str, Any]):
        super().__init__()
        self.module, self.names, self.fixed = module, names, dict(fixed)

    def forward(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out = self.module(**dict(zip(self.names, values)), **self.fixed)
        leaves = pytree.tree_leaves(dict(out) if isinstance(out, Mapping) else out)
        return tuple(t for t in leaves if isinstance(t, torch.Tensor))


# ---- the libraries


def torchvision() -> Any:
    """The package. A wheel for another build of torch lacks its C++ operators, which are declared in their place."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for op in ("nms", "qnms"):
            library.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _DECLARED.append(library)  # the declarations last as long as it
        return importlib.import_module("torchvision")


_DECLARED: list[Any] = []


def timm_names(rng: random.Random) -> Iterator[str]:
    """One network of each file of timm, files in drawn order."""
    torchvision()
    timm = importlib.import_module("timm")
    modules = sorted(timm.list_modules())
    rng.shuffle(modules)
    for m in modules:
        names = sorted(timm.list_models(module=m))
        small = [
            n
            for n in names
            if re.search(r"nano|pico|femto|atto|tiny|small|_s\b|_xs|_xxs|_t\d?\b|_b0|_0|18|26|34|50|x_5|base", n)
        ]
        if names:
            yield f"timm/{rng.choice(small or names)}"


def torchvision_names(rng: random.Random) -> Iterator[str]:
    names = [n for n in torchvision().models.list_models() if not re.search("rcnn|retina|fcos|ssd|quantized|raft", n)]
    rng.shuffle(names)
    return (f"torchvision/{n}" for n in names)


def transformers_names(rng: random.Random) -> Iterator[str]:
    torchvision()
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    names = sorted(auto.MODEL_MAPPING_NAMES)
    rng.shuffle(names)
    return (f"transformers/{n}" for n in names)


def other_names(rng: random.Random) -> Iterator[str]:
    names = [f"diffusers/{n}" for n in DIFFUSERS] + [f"graph/{n}" for n in GRAPHS] + [f"tabular/{n}" for n in TABULAR]
    rng.shuffle(names)
    return iter(names)


SOURCES: tuple[tuple[Callable[[random.Random], Iterator[str]], int], ...] = (
    (timm_names, 4), (transformers_names, 5), (torchvision_names, 1), (other_names, 2),
)  # fmt: skip


def draw(seed: int) -> Iterator[str]:
    """Names without end of each library, dealt out in turn by its share."""
    rng = random.Random(seed)
    dealt = [(names(random.Random(rng.random())), share) for names, share in SOURCES]
    while dealt:
        for entry in list(dealt):
            for _ in range(entry[1]):
                name = next(entry[0], None)
                if name is None:
                    dealt.remove(entry)
                    break
                yield name


# ---- building


def build(name: str, seed: int) -> tuple[Plain, tuple[torch.Tensor, ...]]:
    """The network of a name. Raises NotDrawable."""
    torch.manual_seed(seed)
    library, _, rest = name.partition("/")
    make = {
        "timm": of_timm, "torchvision": of_torchvision, "transformers": of_transformers, "diffusers": of_diffusers,
        "graph": of_graph, "tabular": of_tabular,
    }[library]  # fmt: skip
    module, args, fixed = make(rest)
    if sum(p.numel() for p in module.parameters()) > 2 * MOST_PARAMETERS:
        raise NotDrawable("too many parameters")
    module = module.eval().float()
    liven(module)
    return Plain(module, list(args), fixed).eval(), tuple(args.values())


def liven(module: nn.Module) -> None:
    """Statistics that matter, and numbers in place of what is zero as it comes: heads, gates and scales of layers would hide all else."""
    with torch.no_grad():
        for part in module.modules():
            mean, var = getattr(part, "running_mean", None), getattr(part, "running_var", None)
            if isinstance(mean, torch.Tensor) and isinstance(var, torch.Tensor):
                mean.normal_(0, 0.1)
                var.uniform_(0.5, 1.5)
        for p in module.parameters():
            if p.is_floating_point() and p.numel() and float(p.abs().max()) < 1e-3:
                p.normal_(0, 0.02)


def of_pictures(make: Callable[..., nn.Module], sizes: tuple[int, ...]) -> tuple[nn.Module, torch.Tensor]:
    """A network at the least size that it takes."""
    error: Exception = NotDrawable("no size of pictures")
    for size in sizes:
        for more in ({"img_size": size}, {"image_size": size}, {}):
            try:
                with torch.device("meta"):
                    module = make(**more).eval()
            except (TypeError, AssertionError, ValueError, RuntimeError) as e:
                error = e
                continue
            if sum(p.numel() for p in module.parameters()) > MOST_PARAMETERS:
                raise NotDrawable("too many parameters")
            module, x = make(**more).eval(), torch.randn(1, 3, size, size)
            try:
                with torch.no_grad():
                    module(x)
                return module, x
            except Exception as e:
                error = e
    raise NotDrawable(f"{type(error).__name__}: {str(error)[:200]}")


def of_timm(name: str) -> Any:
    torchvision()
    timm = importlib.import_module("timm")
    module, x = of_pictures(lambda **more: timm.create_model(name, pretrained=False, num_classes=100, **more), PICTURES)
    return module, {first_argument(module): x}, {}


def of_torchvision(name: str) -> Any:
    models = torchvision().models
    more: dict[str, Any] = {"weights": None}
    if "weights_backbone" in inspect.signature(models.get_model_builder(name)).parameters:
        more["weights_backbone"] = None
    if name in ("googlenet", "inception_v3"):
        more |= {"init_weights": False, "aux_logits": False}
    if name in ("r3d_18", "mc3_18", "r2plus1d_18", "s3d") or name.startswith(("mvit", "swin3d")):
        module = models.get_model(name, **more).eval()
        return module, {first_argument(module): torch.randn(1, 3, 16, 64 if name[0] in "rm" and name[1] != "v" else 224, 64 if name[0] in "rm" and name[1] != "v" else 224)}, {}  # fmt: skip
    module, x = of_pictures(lambda **sized: models.get_model(name, **more, **sized), PICTURES)
    return module, {first_argument(module): x}, {}


def first_argument(module: nn.Module) -> str:
    return next(iter(inspect.signature(module.forward).parameters))


# ---- transformers

_DEPTH = re.compile(r"^(num_|n_)?(\w+_)?(layers?|blocks|n_layer|num_layers)$")
_WIDTHS = {
    "hidden_size": 512, "d_model": 512, "n_embd": 512, "intermediate_size": 1024, "ffn_dim": 1024, "d_ff": 1024, "n_inner": 1024,
    "num_attention_heads": 8, "num_heads": 8, "n_head": 8, "num_key_value_heads": 2, "head_dim": 64, "moe_intermediate_size": 128,
    "shared_expert_intermediate_size": 128, "encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024, "encoder_attention_heads": 8,
    "decoder_attention_heads": 8, "q_lora_rank": 128, "kv_lora_rank": 64,
}  # fmt: skip
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


def cut(config: Any, narrow: bool, changed: dict[str, Any] | None = None) -> None:
    """Few layers, few words and experts, in a configuration and those inside it; `narrow`: widths too."""
    for key, value in list(vars(config).items()):
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            cut(value, narrow)
            continue
        small: Any = value
        if isinstance(value, bool) or value is None:
            continue
        if key in ("use_cache", "_attn_implementation"):
            continue
        if isinstance(value, int):
            if _DEPTH.match(key) and value > MOST_LAYERS:
                small = MOST_LAYERS
            elif "vocab_size" in key and value > 1000:
                small = 1000
            elif key.endswith("_token_id") and value >= 1000:
                small = 999 - len(key) % 7
            elif key in _EXPERTS and value > 4:
                small = 4
            elif key in ("num_experts_per_tok", "moe_topk", "num_experts_per_token") and value > 2:
                small = 2
            elif key in ("n_group", "topk_group"):
                small = 1
            elif narrow and key in _WIDTHS and value > _WIDTHS[key]:
                small = _WIDTHS[key]
        elif isinstance(value, list) and value and key == "layer_types":
            small = value[:MOST_LAYERS]
        elif (
            isinstance(value, (list, tuple))
            and key in ("depths", "num_blocks", "layers_per_stage")
            and all(isinstance(v, int) for v in value)
        ):
            small = type(value)(min(v, MOST_LAYERS) for v in value)
        if small is not value:
            try:
                setattr(config, key, small)
            except Exception:
                continue
    for key in ("use_cache",):
        if hasattr(config, key):
            setattr(config, key, False)


def of_transformers(name: str) -> Any:
    torchvision()
    hf = importlib.import_module("transformers")
    try:
        make_config = hf.CONFIG_MAPPING[name]
    except KeyError as e:
        raise NotDrawable(str(e)) from None
    error: Exception | None = None
    for narrow in (False, True):
        try:
            config = make_config()
            cut(config, narrow)
            with torch.device("meta"):
                count = sum(p.numel() for p in hf.AutoModel.from_config(config).parameters())
            if count > MOST_PARAMETERS * (2 if narrow else 1):
                error = NotDrawable(f"{count / 1e6:.0f} million parameters")
                continue
            config = make_config()
            cut(config, narrow)
            module = hf.AutoModel.from_config(config).eval()
            args = inputs_of(module, config)
            with torch.no_grad():
                module(**args)
            return module, args, {}
        except NotDrawable as e:
            error = e
        except Exception as e:
            error = NotDrawable(f"{type(e).__name__}: {str(e)[:200]}")
    assert error is not None
    raise error


def said(config: Any, *keys: str, default: Any) -> Any:
    """The first of some attributes that a configuration, or one of those inside it, has."""
    inside = [v for v in vars(config).values() if hasattr(v, "model_type")]
    for key in keys:
        for c in (config, *inside):
            value = getattr(c, key, None)
            if value is not None:
                return value
    return default


def inputs_of(module: nn.Module, config: Any) -> dict[str, torch.Tensor]:
    """Arguments that the signature and the configuration call for."""
    takes = inspect.signature(module.forward).parameters
    words = min(int(said(config, "vocab_size", default=1000)), 1000)
    args: dict[str, torch.Tensor] = {}

    def ids(length: int) -> torch.Tensor:
        return torch.randint(5, words - 10, (1, length))

    main = getattr(module, "main_input_name", "input_ids")
    if "input_ids" in takes and main in ("input_ids", "pixel_values"):
        args["input_ids"] = ids(TOKENS)
        if "attention_mask" in takes:
            args["attention_mask"] = torch.ones(1, TOKENS, dtype=torch.int64)
    size = said(config, "image_size", "input_size", default=224)
    h, w = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    channels = int(said(config, "num_channels", "in_channels", "in_chans", default=3))
    if "pixel_values" in takes:
        args["pixel_values"] = torch.randn(1, channels, h, w)
    elif "pixel_values_videos" in takes and main == "pixel_values_videos":
        args["pixel_values_videos"] = torch.randn(1, said(config, "frames_per_clip", default=16), channels, h, w)
    if "input_features" in takes:
        bins = said(config, "num_mel_bins", "feature_size", "n_mels", "input_dim", default=80)
        frames = said(config, "max_source_positions", default=None)
        length = 2 * int(frames) if frames and "whisper" in config.model_type else 100
        args["input_features"] = (
            torch.randn(1, bins, length) if "whisper" in config.model_type else torch.randn(1, length, bins)
        )
    if main == "input_values" or ("input_values" in takes and main not in takes):
        bins = getattr(config, "num_mel_bins", None)
        audio = (
            torch.randn(1, int(getattr(config, "max_length", 1024)), bins)
            if bins and "max_length" in vars(config)
            else torch.randn(1, 8000)
        )
        args["input_values"] = (
            audio if getattr(config, "model_type", "") not in ("encodec", "dac", "mimi") else audio[:, None]
        )
    if "decoder_input_ids" in takes:
        args["decoder_input_ids"] = ids(TOKENS // 4)
    if main == "past_values":
        c = int(said(config, "num_input_channels", "input_size", default=1))
        length = int(said(config, "context_length", default=32))
        args["past_values"] = torch.randn(1, length, c)
    if not args:
        raise NotDrawable(f"inputs of {config.model_type}: {main}")
    return args


# ---- diffusion, graphs, tables

_STEP = torch.tensor([7])
DIFFUSERS: dict[str, tuple[dict[str, Any], Callable[[], dict[str, torch.Tensor]]]] = {
    "UNet2DModel": (
        {"sample_size": 32, "block_out_channels": (32, 64, 64), "layers_per_block": 1, "norm_num_groups": 8,
         "down_block_types": ("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"), "up_block_types": ("UpBlock2D", "AttnUpBlock2D", "UpBlock2D")},
        lambda: {"sample": torch.randn(1, 3, 32, 32), "timestep": _STEP},
    ),
    "UNet2DConditionModel": (
        {"sample_size": 32, "block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8, "cross_attention_dim": 64,
         "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"), "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"), "attention_head_dim": 8},
        lambda: {"sample": torch.randn(1, 4, 32, 32), "timestep": _STEP, "encoder_hidden_states": torch.randn(1, 16, 64)},
    ),
    "UNet1DModel": ({"sample_size": 256, "in_channels": 2, "out_channels": 2}, lambda: {"sample": torch.randn(1, 2, 256), "timestep": _STEP}),
    "UNet3DConditionModel": (
        {"sample_size": 16, "block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8, "cross_attention_dim": 64,
         "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"), "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"), "attention_head_dim": 8},
        lambda: {"sample": torch.randn(1, 4, 4, 16, 16), "timestep": _STEP, "encoder_hidden_states": torch.randn(1, 16, 64)},
    ),
    "AutoencoderKL": (
        {"block_out_channels": (32, 64), "down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2, "norm_num_groups": 8},
        lambda: {"sample": torch.randn(1, 3, 64, 64)},
    ),
    "VQModel": (
        {"block_out_channels": (32, 64), "down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2, "norm_num_groups": 8},
        lambda: {"sample": torch.randn(1, 3, 64, 64)},
    ),
    "AutoencoderTiny": ({}, lambda: {"sample": torch.randn(1, 3, 64, 64)}),
    "DiTTransformer2DModel": (
        {"num_attention_heads": 4, "attention_head_dim": 32, "num_layers": 2, "sample_size": 16},
        lambda: {"hidden_states": torch.randn(1, 4, 16, 16), "timestep": _STEP, "class_labels": torch.tensor([3])},
    ),
    "PixArtTransformer2DModel": (
        {"num_attention_heads": 4, "attention_head_dim": 32, "num_layers": 2, "sample_size": 16, "cross_attention_dim": 128, "caption_channels": 64,
         "use_additional_conditions": False},
        lambda: {"hidden_states": torch.randn(1, 4, 16, 16), "timestep": _STEP, "encoder_hidden_states": torch.randn(1, 8, 64)},
    ),
    "SD3Transformer2DModel": (
        {"sample_size": 16, "num_layers": 2, "attention_head_dim": 32, "num_attention_heads": 4, "joint_attention_dim": 64, "caption_projection_dim": 128,
         "pooled_projection_dim": 64, "in_channels": 4, "out_channels": 4, "pos_embed_max_size": 32},
        lambda: {"hidden_states": torch.randn(1, 4, 16, 16), "timestep": _STEP, "encoder_hidden_states": torch.randn(1, 8, 64), "pooled_projections": torch.randn(1, 64)},
    ),
    "FluxTransformer2DModel": (
        {"num_layers": 1, "num_single_layers": 1, "attention_head_dim": 32, "num_attention_heads": 4, "joint_attention_dim": 64,
         "pooled_projection_dim": 64, "in_channels": 16, "axes_dims_rope": (8, 12, 12)},
        lambda: {"hidden_states": torch.randn(1, 64, 16), "timestep": torch.tensor([0.5]), "encoder_hidden_states": torch.randn(1, 8, 64),
                 "pooled_projections": torch.randn(1, 64), "img_ids": torch.rand(64, 3).round(), "txt_ids": torch.zeros(8, 3)},
    ),
    "T2IAdapter": ({"channels": [32, 64], "num_res_blocks": 1, "downscale_factor": 8}, lambda: {"x": torch.randn(1, 3, 64, 64)}),
}  # fmt: skip


def of_diffusers(name: str) -> Any:
    torchvision()
    library = importlib.import_module("diffusers")
    settings, args = DIFFUSERS[name]
    return getattr(library, name)(**settings), args(), {}


GRAPHS = ("GCN", "GraphSAGE", "GIN", "GAT", "PNA", "EdgeCNN", "LINKX", "DeepGraphInfomax")


def of_graph(name: str) -> Any:
    """Message passing over 200 nodes and 900 edges."""
    models = importlib.import_module("torch_geometric.nn.models")
    edges = torch.randint(0, 200, (2, 900))
    more: dict[str, Any] = {"PNA": {"aggregators": ["mean", "max", "std"], "scalers": ["identity", "amplification"], "deg": torch.ones(20, dtype=torch.int64)}}.get(name, {})  # fmt: skip
    if not hasattr(models, name) or name in ("LINKX", "DeepGraphInfomax"):
        raise NotDrawable(f"no {name}")
    module = getattr(models, name)(32, 64, 2, out_channels=16, **more)
    return module, {"x": torch.randn(200, 32), "edge_index": edges}, {}


@dataclasses.dataclass(frozen=True)
class Table:
    package: str
    cls: str
    settings: dict[str, Any]
    args: Callable[[], dict[str, torch.Tensor]]


TABULAR = {
    "TabNet": Table("pytorch_tabnet.tab_network", "TabNetNoEmbeddings", {"input_dim": 24, "output_dim": 3, "group_attention_matrix": torch.eye(24)}, lambda: {"x": torch.randn(32, 24)}),
    "FTTransformer": Table(
        "rtdl_revisiting_models", "FTTransformer",
        {"n_cont_features": 12, "cat_cardinalities": [5, 9], "d_out": 3, "n_blocks": 2, "d_block": 64, "attention_n_heads": 4, "attention_dropout": 0.0,
         "ffn_d_hidden_multiplier": 2.0, "ffn_dropout": 0.0, "residual_dropout": 0.0},
        lambda: {"x_cont": torch.randn(32, 12), "x_cat": torch.randint(0, 5, (32, 2))},
    ),
}  # fmt: skip


def of_tabular(name: str) -> Any:
    t = TABULAR[name]
    try:
        cls = getattr(importlib.import_module(t.package), t.cls)
    except ImportError as e:
        raise NotDrawable(str(e)) from None
    return cls(**t.settings), t.args(), {}
