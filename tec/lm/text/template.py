"""Chat templates: a conversation as the text that a model was trained on.

    template = ChatTemplate(checkpoint.chat_template, bos="<s>")
    template.render([{"role": "user", "content": "Hi"}])          # "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"

A template is a program in jinja2 that comes with a model, so it is not trusted: see `sandbox`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from ...errors import ArgumentError
from ..checkpoint import Checkpoint
from .sandbox import Compiled, TemplateFault

__all__ = ["ChatTemplate", "TemplateFault", "template_of"]

_TURN = "{% for m in messages %}"
# Templates of models whose files lost theirs, by a token that only they have.
_KNOWN = {
    "<|im_start|>": _TURN
    + "{{ '<|im_start|>' + m['role'] + '\n' + (m['content'] or '') + '<|im_end|>\n' }}{% endfor %}"
    + "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "<start_of_turn>": "{{ bos_token }}"
    + _TURN
    + "{{ '<start_of_turn>' + ('model' if m['role'] == 'assistant' else 'user') + '\n' + (m['content'] or '') | trim + '<end_of_turn>\n' }}{% endfor %}"
    + "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
    "<|start_header_id|>": "{{ bos_token }}"
    + _TURN
    + "{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + (m['content'] or '') | trim + '<|eot_id|>' }}{% endfor %}"
    + "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    "<|assistant|>": _TURN
    + "{{ '<|' + m['role'] + '|>\n' + (m['content'] or '') + '<|end|>\n' }}{% endfor %}"
    + "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
}  # fmt: skip


class ChatTemplate:
    """A template. source: jinja2. bos, eos: the texts of the tokens that begin and end. tool_source: in place of the source where there are tools. Raises
    ImportModelError for a source that is none."""

    def __init__(self, source: str, bos: str = "", eos: str = "", tool_source: str | None = None):
        self.source, self.tool_source = source, source if tool_source is None else tool_source
        self._compiled = Compiled(source)
        self._for_tools = self._compiled if tool_source is None else Compiled(tool_source)
        self._fixed = {"bos_token": bos, "eos_token": eos}
        self._lock = Lock()  # a rendering counts its steps in its environment

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **more: Any,
    ) -> str:
        """The text of a conversation.

        messages: each with "role" and "content" (a text, or OpenAI's list of parts of which all are texts), maybe "tool_calls". tools: functions as OpenAI's API
        describes them. add_generation_prompt: with the beginning of the assistant's answer. more: what else the template asks for (enable_thinking).
        Raises ArgumentError for messages that are none; TemplateFault where the template fails or is stopped.
        """
        values = {
            **self._fixed, **more, "messages": [_message(m, k) for k, m in enumerate(messages)], "tools": list(tools) if tools else None,
            "add_generation_prompt": add_generation_prompt,
        }  # fmt: skip
        with self._lock:
            return (self._for_tools if tools else self._compiled).render(values)


def template_of(checkpoint: Checkpoint) -> ChatTemplate | None:
    """A model's template; one that is known by its special tokens where the file has none; None where there is no such token either."""
    tokenizer = checkpoint.tokenizer

    def text(said: str, name: str) -> str:
        if said in checkpoint.generation:
            return str(checkpoint.generation[said])
        ids = checkpoint.generation.get(name)
        k = ids[0] if isinstance(ids, list) and ids else ids
        return tokenizer.decode([k], special=True) if tokenizer is not None and isinstance(k, int) else ""

    bos, eos = text("bos_token", "bos_token_id"), text("eos_token", "eos_token_ids")
    if checkpoint.chat_template is not None:
        return ChatTemplate(checkpoint.chat_template, bos, eos, checkpoint.tool_template)
    if tokenizer is None:
        return None
    found = next((source for token, source in _KNOWN.items() if tokenizer.id_of(token) is not None), None)
    return None if found is None else ChatTemplate(found, bos, eos)


def _message(message: Any, index: int) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise ArgumentError(f"message {index} has no role", hint='{"role": "user", "content": "Hello"}')
    made = dict(message)
    content = made.get("content")
    if content is None:
        made["content"] = ""
    elif isinstance(content, (list, tuple)):
        made["content"] = "".join(_part(part, index) for part in content)
    elif not isinstance(content, str):
        raise ArgumentError(
            f"the content of message {index} is {type(content).__name__}", hint="a text, or a list of parts"
        )
    if made.get("tool_calls"):
        made["tool_calls"] = [_call(call, index) for call in made["tool_calls"]]
    return made


def _part(part: Any, index: int) -> str:
    if (
        isinstance(part, Mapping)
        and part.get("type") in ("text", "input_text", "output_text")
        and isinstance(part.get("text"), str)
    ):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    raise ArgumentError(f"message {index} holds a part of the type {kind!r}", hint="models here read texts alone")


def _call(call: Any, index: int) -> dict[str, Any]:
    """A call of a tool, its arguments as values: the API writes them as JSON, templates want what they are."""
    if not isinstance(call, Mapping) or not isinstance(call.get("function"), Mapping):
        raise ArgumentError(
            f"message {index} holds a call of a tool without a function",
            hint='{"type": "function", "function": {"name": ..., "arguments": "{...}"}}',
        )
    function = dict(call["function"])
    if isinstance(function.get("arguments"), str):
        try:
            function["arguments"] = json.loads(function["arguments"] or "{}")
        except ValueError:
            raise ArgumentError(
                f"message {index} holds a call of a tool whose arguments are no JSON",
                hint="arguments is the text of a JSON object",
            ) from None
    return {**call, "function": function}
