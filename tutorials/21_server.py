# %% [markdown]
# # A server
#
# `tec serve` serves a language model by OpenAI's API. Programs written for that API then run with
# a model of your own:
#
#     pip install "tec-compiler[serve]"
#     tec serve gemma-3-270m-q4_k_m.gguf --port 8000
#
# This page does the same in Python, with a model that is small enough for a page: one layer,
# random weights, and bytes as its tokens. Its texts have no meaning, but the server works as with
# any other model.

# %%
import json
import socket
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import openai
import safetensors.numpy
import tokenizers
import uvicorn

import tec.lm
from tec.lm.serve.app import application
from tec.lm.serve.compiled import served_of
from tec.lm.serve.served import Limits

folder = Path(tempfile.mkdtemp()) / "tiny"
folder.mkdir()
hidden, wide, tokens = 64, 128, 258
config = {
    "model_type": "llama", "hidden_size": hidden, "intermediate_size": wide, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": tokens, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 512, "tie_word_embeddings": True, "eos_token_id": 257,
}  # fmt: skip
template = "{% for m in messages %}<|start|>{{ m.role }}: {{ m.content }}<|end|>{% endfor %}<|start|>assistant:"
(folder / "config.json").write_text(json.dumps(config))
(folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))

letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({c: k for k, c in enumerate(letters)}, []))
tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = tokenizers.decoders.ByteLevel()
tokenizer.add_special_tokens(["<|start|>", "<|end|>"])
tokenizer.save(str(folder / "tokenizer.json"))

rng = np.random.default_rng(0)
shapes = {"model.embed_tokens": (tokens, hidden)}
layer = {
    "self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (hidden // 2, hidden), "self_attn.v_proj": (hidden // 2, hidden),
    "self_attn.o_proj": (hidden, hidden), "mlp.gate_proj": (wide, hidden), "mlp.up_proj": (wide, hidden), "mlp.down_proj": (hidden, wide),
}  # fmt: skip
shapes |= {f"model.layers.0.{n}": s for n, s in layer.items()}
weights = {f"{n}.weight": rng.standard_normal(s).astype(np.float32) / 8 for n, s in shapes.items()}
norms = ("model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm")
weights |= {f"{n}.weight": np.ones(hidden, np.float32) for n in norms}
safetensors.numpy.save_file(weights, folder / "model.safetensors")

# %% [markdown]
# ## Serving
#
# `tec.lm.load` compiles the model. `served_of` gives it an engine: two texts go on together here,
# in one run of the network for each token of both, over a cache in blocks of 16 tokens.
# `application` is an ASGI application, which uvicorn serves here on a port of this host.

# %%
lm = tec.lm.load(folder)
served = served_of(lm, "tiny", slots=2, queue=4, block=16, limits=Limits(keys=("secret",)))

listening = socket.socket()
listening.bind(("127.0.0.1", 0))
server = uvicorn.Server(uvicorn.Config(application(served), log_level="warning", lifespan="off"))
thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
thread.start()
while not server.started:
    time.sleep(0.01)

address = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
client = openai.OpenAI(base_url=address, api_key="secret")
print([m.id for m in client.models.list()])

# %% [markdown]
# ## A conversation
#
# The chat template of the model makes a prompt from the messages. With temperature 0 the answer is
# the most likely one. With another temperature, the same seed gives the same answer again.

# %%
messages = [{"role": "user", "content": "Hello!"}]
answer = client.chat.completions.create(model="tiny", messages=messages, temperature=0, max_tokens=12)
print(repr(answer.choices[0].message.content), answer.choices[0].finish_reason, answer.usage.completion_tokens)

again = client.chat.completions.create(model="tiny", messages=messages, temperature=0, max_tokens=12)
assert again.choices[0].message.content == answer.choices[0].message.content
drawn = [client.chat.completions.create(model="tiny", messages=messages, seed=7, max_tokens=12, n=2) for _ in range(2)]
assert [c.message.content for c in drawn[0].choices] == [c.message.content for c in drawn[1].choices]

# %% [markdown]
# The second request processed only the end of its prompt. The whole blocks before it were in the
# cache. The last token is always processed, since its logits are needed again.

# %%
print(
    answer.usage.prompt_tokens_details.cached_tokens,
    again.usage.prompt_tokens_details.cached_tokens,
    again.usage.prompt_tokens,
)
assert again.usage.prompt_tokens_details.cached_tokens == (again.usage.prompt_tokens - 1) // 16 * 16 > 0

# %% [markdown]
# ## Streaming
#
# A stream delivers the text while it is generated. If a client closes it, the text ends at its
# next token, and the slot serves others.

# %%
stream = client.chat.completions.create(model="tiny", messages=messages, temperature=0, max_tokens=400, stream=True)
pieces = []
for chunk in stream:
    pieces.append(chunk.choices[0].delta.content or "")
    if len(pieces) == 6:
        stream.close()
        break
assert answer.choices[0].message.content.startswith("".join(pieces)[:3])

until = time.monotonic() + 20
while served.engine.state()["running"] and time.monotonic() < until:
    time.sleep(0.01)
print(served.engine.state())

# %% [markdown]
# ## Errors
#
# Errors have the form of the API. A wrong key is 401, a value out of range is 400 with the name of
# the parameter, a full queue is 429 with `retry-after`, and a request that is too long is 413.

# %%
try:
    openai.OpenAI(base_url=address, api_key="guess", max_retries=0).models.list()
except openai.AuthenticationError as error:
    print(error.status_code, error.body["message"])
try:
    client.chat.completions.create(model="tiny", messages=messages, top_p=2)
except openai.BadRequestError as error:
    print(error.status_code, error.body["param"], error.body["message"])

# %% [markdown]
# ## Metrics
#
# `/metrics` has metrics for Prometheus: requests by status, tokens, times to the first token, and
# the texts that run and wait.

# %%
import httpx

counts = httpx.get(address.removesuffix("/v1") + "/metrics", headers={"authorization": "Bearer secret"}).text
print(
    "\n".join(
        line
        for line in counts.splitlines()
        if line.startswith(("tec_generated_tokens_total", "tec_cancelled_total", "tec_texts"))
    )
)

# %%
server.should_exit = True
thread.join()
served.engine.close()
