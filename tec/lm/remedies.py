"""Remedies that errors of several parts share."""

# Of a configuration and weights that do not fit each other: tec reads both as they are.
FETCH_AGAIN = (
    "the configuration and the weights of one model: fetch its folder or its GGUF file again from where it comes"
)

# Of a key of a configuration that changes what is computed, and that tec does not read.
ANOTHER_MODEL = "a model without it; docs/language-models.md lists the architectures and what is read of them"

# Of a model whose texts cannot share blocks.
IN_TURN = "texts that run in turn, each with caches of its own: tec serve --block 0"

# Of a tokenizer whose parts are damaged.
CONVERT_AGAIN = "write the GGUF file again with llama.cpp's convert_hf_to_gguf.py, or fetch it again"
