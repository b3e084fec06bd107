"""What other packages for language models call things, and what they are here: hints of errors alone. Names are those of transformers, llama-cpp-python, vLLM and OpenAI's API."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..likeness import near

SETTINGS: Mapping[str, str] = {
    "max_new_tokens": "max_tokens=", "max_length": "max_tokens=, which counts new tokens alone", "num_predict": "max_tokens=",
    "do_sample": "temperature= above 0 draws tokens, and 0 takes the likeliest", "repeat_penalty": "repetition_penalty=",
    "num_beams": "lm.beams(prompt, count)", "length_penalty": "lm.beams takes it", "best_of": "lm.beams(prompt, count)", "early_stopping": "lm.beams ends as soon as nothing better can come",
    "n": "lm.samples(prompt, count)", "num_return_sequences": "lm.samples(prompt, count)",
    "stop_sequences": "stop=", "stop_strings": "stop=", "stop_token_ids": "lm.ends, a set of tokens", "eos_token_id": "lm.ends, a set of tokens", "ignore_eos": "lm.ends = set()",
    "messages": "the first argument: generate([{'role': 'user', 'content': ...}])", "system": "a message with the role system", "stream": "the result is an iterator: its pieces come as they are written",
    "grammar": "schema=", "json_schema": "schema=", "response_format": "schema=", "tools": "tec serve passes tools to the template", "draft_model": "draft=", "assistant_model": "draft=",
    "streamer": "the result is an iterator: its pieces come as they are written", "echo": "the prompt is not repeated", "suffix": "nothing is written between two texts",
}  # fmt: skip
METHODS: Mapping[str, str] = {
    "chat": "lm.generate(messages)", "create_chat_completion": "lm.generate(messages)", "create_completion": "lm.generate(text)", "complete": "lm.generate(text)", "stream": "lm.generate(text)",
    "tokenize": "lm.encode(text)", "detokenize": "lm.tokenizer.decode(ids)", "decode": "lm.tokenizer.decode(ids)", "batch_decode": "lm.tokenizer.decode(ids)",
    "forward": "lm.begin(ids), then lm.next(id), give logits", "eval": "lm.begin(ids), then lm.next(id), give logits", "logits": "lm.begin(ids), then lm.next(id), give logits",
    "embed": "tec.lm.embedder(path)", "create_embedding": "tec.lm.embedder(path)", "reset": "nothing: a new text begins by itself", "n_ctx": "lm.context", "to": "tec.lm.load(path, device=...)",
    "cuda": "tec.lm.load(path, device='cuda')", "half": "tec.lm.load(path, dtype='float16')", "eos_token_id": "lm.ends", "token_eos": "lm.ends", "parameters": "lm.checkpoint.tensors",
    "named_parameters": "lm.checkpoint.tensors", "state_dict": "lm.checkpoint.tensors", "generation_config": "lm.checkpoint.generation", "beam_search": "lm.beams(prompt, count)",
    "save_pretrained": "nothing: the model stays in its files; save_state keeps a text",
}  # fmt: skip
FUNCTIONS: Mapping[str, str] = {
    **dict.fromkeys(("from_pretrained", "Llama", "LLM", "AutoModel", "AutoModelForCausalLM", "pipeline", "model", "Model"), "tec.lm.load(path)"),
    "AutoTokenizer": "tec.lm.open(path).tokenizer", "SamplingParams": "tec.lm.Sampling, or settings of lm.generate", "GenerationConfig": "tec.lm.Sampling, or settings of lm.generate",
    "SentenceTransformer": "tec.lm.embedder(path)", "CrossEncoder": "tec.lm.reranker(path)", "whisper": "tec.lm.transcriber(path)", "chat": "tec.lm.load(path).generate(messages)",
    "save_pretrained": "nothing: a model stays in its files",
}  # fmt: skip


def hint(name: str, table: Mapping[str, str], known: Collection[str]) -> str:
    """What a name is here, or names that are like it; "" where there is neither."""
    if name in table:
        return table[name]
    return ", ".join(near(name, known, 2))
