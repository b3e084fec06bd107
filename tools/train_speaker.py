"""A small language model that says sense, byte by byte: trained once with PyTorch, kept as tests/networks/data/speaker.onnx.

    python -m venv /tmp/torch && /tmp/torch/bin/pip install torch==2.13.0 onnx onnxscript numpy
    /tmp/torch/bin/python tools/train_speaker.py [--steps 3000]

Llama's layers (RMS norm, rotary positions, grouped queries, SwiGLU), two of them, 106,000 weights; its text is sums in words, days, opposites. The file is
what torch.onnx.export writes, with inputs and outputs as optimum names them. Each weight is an initializer under its own name, [inputs, outputs], so that a
test builds the same model as onnxruntime-genai does.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

LAYERS, HIDDEN, HEADS, KV_HEADS, FEED, VOCABULARY, THETA, EPS = 2, 64, 4, 2, 128, 256, 10000.0, 1e-5
SIZE = HIDDEN // HEADS
NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve".split()
DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
OPPOSITES = {"hot": "cold", "big": "small", "day": "night", "up": "down", "fast": "slow", "old": "new", "full": "empty"}


def sentences() -> list[str]:
    """All that there is to say."""
    out = []
    for a in range(13):
        for b in range(13):
            if a + b <= 12:
                out.append(f"{NUMBERS[a]} plus {NUMBERS[b]} is {NUMBERS[a + b]}.")
            if a >= b:
                out.append(f"{NUMBERS[a]} minus {NUMBERS[b]} is {NUMBERS[a - b]}.")
    for k, day in enumerate(DAYS):
        out += [f"after {day} comes {DAYS[(k + 1) % 7]}.", f"before {day} comes {DAYS[k - 1]}."]
    for a, b in OPPOSITES.items():
        out += [f"the opposite of {a} is {b}.", f"the opposite of {b} is {a}."]
    return out


class Speaker(nn.Module):
    """Logits and caches of token ids, from caches of those before."""

    def __init__(self) -> None:
        super().__init__()

        def weight(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.ones(shape) if len(shape) == 1 else torch.randn(shape) / shape[0] ** 0.5)

        self.embed = weight(VOCABULARY, HIDDEN)
        self.lm_head = weight(HIDDEN, VOCABULARY)
        self.norm = weight(HIDDEN)
        self.layers = nn.ModuleList()
        for _ in range(LAYERS):
            layer = nn.Module()
            for name, *shape in (
                ("norm1", HIDDEN), ("q_proj", HIDDEN, HIDDEN), ("k_proj", HIDDEN, KV_HEADS * SIZE), ("v_proj", HIDDEN, KV_HEADS * SIZE),
                ("o_proj", HIDDEN, HIDDEN), ("norm2", HIDDEN), ("gate_proj", HIDDEN, FEED), ("up_proj", HIDDEN, FEED), ("down_proj", FEED, HIDDEN),
            ):  # fmt: skip
                setattr(layer, name, weight(*shape))
            self.layers.append(layer)

    def forward(self, input_ids: Any, attention_mask: Any, position_ids: Any, *past: Any) -> tuple[Any, ...]:
        x = self.embed[input_ids]
        b, s, total = input_ids.shape[0], input_ids.shape[1], attention_mask.shape[1]
        angles = position_ids[..., None].float() * THETA ** (-torch.arange(0, SIZE, 2).float() / SIZE)
        angles = torch.cat([angles, angles], -1)[:, None]
        cos, sin = angles.cos(), angles.sin()
        seen = torch.arange(total)[None, None, None] <= position_ids[:, None, :, None]
        mask = torch.where(seen & (attention_mask[:, None, None] > 0), 0.0, -1e9)
        presents: list[Any] = []
        for k, layer in enumerate(self.layers):
            h = rms(x, layer.norm1)
            q, key, value = (
                (h @ w).view(b, s, -1, SIZE).transpose(1, 2) for w in (layer.q_proj, layer.k_proj, layer.v_proj)
            )
            q, key = (t * cos + turned(t) * sin for t in (q, key))
            if past:
                key, value = torch.cat([past[2 * k], key], 2), torch.cat([past[2 * k + 1], value], 2)
            presents += [key, value]
            keys, values = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (key, value))
            scores = (q @ keys.transpose(2, 3)) * SIZE**-0.5 + mask
            x = x + (scores.softmax(-1) @ values).transpose(1, 2).reshape(b, s, HIDDEN) @ layer.o_proj
            h = rms(x, layer.norm2)
            x = x + (nn.functional.silu(h @ layer.gate_proj) * (h @ layer.up_proj)) @ layer.down_proj
        return (rms(x, self.norm) @ self.lm_head, *presents)


def rms(x: Any, weight: Any) -> Any:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight


def turned(x: Any) -> Any:
    low, high = x.chunk(2, -1)
    return torch.cat([-high, low], -1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "tests/networks/data/speaker.onnx")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng, known, length, batch = random.Random(0), sentences(), 96, 16
    model = Speaker()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    mask, places = torch.ones(batch, length, dtype=torch.int64), torch.arange(length).expand(batch, length)
    start = time.time()
    for step in range(args.steps):
        rows = []
        for _ in range(batch):
            text = "\n".join(rng.sample(known, 6)).encode()
            rows.append([10, *text][: length + 1])
        rows = [r + [10] * (length + 1 - len(r)) for r in rows]
        ids = torch.tensor(rows)
        logits = model(ids[:, :-1], mask, places)[0]
        loss = nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 250 == 0:
            print(step, f"{loss.item():.3f}", f"{time.time() - start:.0f} s", flush=True)
    model.eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.half().float())
    past = [torch.zeros(1, KV_HEADS, 3, SIZE) for _ in range(2 * LAYERS)]
    ids = torch.zeros(1, 2, dtype=torch.int64)
    names = [f"{k}.{w}" for k in range(LAYERS) for w in ("key", "value")]
    shapes = [{0: "batch_size", 1: "sequence_length"}, {0: "batch_size", 1: "total_sequence_length"}, {0: "batch_size", 1: "sequence_length"}]  # fmt: skip
    torch.onnx.export(
        model, (ids.repeat(2, 1), torch.ones(2, 5, dtype=torch.int64), torch.tensor([[3, 4]] * 2), *[x.repeat(2, 1, 1, 1) for x in past]),
        str(args.out), dynamo=True, external_data=False, opset_version=18,
        input_names=["input_ids", "attention_mask", "position_ids", *(f"past_key_values.{n}" for n in names)],
        output_names=["logits", *(f"present.{n}" for n in names)],
        dynamic_shapes=(*shapes, tuple({0: "batch_size", 2: "past_sequence_length"} for _ in past)),
    )  # fmt: skip
    print(args.out, args.out.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
