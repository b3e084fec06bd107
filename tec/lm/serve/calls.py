"""Calls of tools in what a model writes, by the forms that chat templates teach.

<tool_call>{"name": ..., "arguments": {...}}</tool_call>      Qwen, Hermes, SmolLM, Granite
[TOOL_CALLS] [{"name": ..., "arguments": {...}}]              Mistral
{"name": ..., "parameters": {...}}                            Llama 3.1 and on, maybe behind <|python_tag|>
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Any

_TAGGED = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_LIST = "[TOOL_CALLS]"
_PYTHON = "<|python_tag|>"
_BEGINNINGS = ("<tool_call>", _LIST, _PYTHON)


def calls_of(text: str, names: Collection[str]) -> tuple[str, list[dict[str, Any]]]:
    """A text without its calls, and the calls as the API has them. names: of the tools that there are; what names another one stays text."""
    found: list[dict[str, Any]] = []
    if "<tool_call>" in text:
        for match in _TAGGED.finditer(text):
            found += _calls(match[1], names)
        return (_TAGGED.sub("", text).strip() if found else text), found
    if _LIST in text:
        before, _, rest = text.partition(_LIST)
        found = _calls(rest, names)
        return (before.strip() if found else text), found
    found = _calls(text.replace(_PYTHON, "", 1), names)
    return ("" if found else text), found


def form_of_call(tools: Sequence[Mapping[str, Any]], template: str) -> tuple[dict[str, Any], str, str]:
    """The schema of a call of one of some tools, and what stands before and behind it in the form that a chat template teaches."""
    tagged, listed = "<tool_call>" in template, _LIST in template
    given = "arguments" if tagged or listed else "parameters"

    def call(function: Mapping[str, Any]) -> dict[str, Any]:
        own = {"name": {"const": function["name"]}, given: function.get("parameters") or {"type": "object"}}
        return {"type": "object", "properties": own, "required": list(own), "additionalProperties": False}

    one = {"anyOf": [call(t["function"]) for t in tools]}
    if tagged:
        return one, "<tool_call>\n", "\n</tool_call>"
    return one, f"{_LIST} [" if listed else "", "]" if listed else ""


def held_back(text: str) -> int:
    """From where on a text that is still written may be a call, and must not be shown as text yet."""
    if text.lstrip()[:1] in ("{", "["):
        return 0
    at = min((k for b in _BEGINNINGS if (k := text.find(b)) >= 0), default=len(text))
    partial = max((k for b in _BEGINNINGS for k in range(1, len(b)) if text.endswith(b[:k])), default=0)
    return min(at, len(text) - partial)


def _calls(text: str, names: Collection[str]) -> list[dict[str, Any]]:
    try:
        read = json.loads(text.strip())
    except (ValueError, RecursionError):
        return []
    found = []
    for one in read if isinstance(read, list) else [read]:
        arguments = one.get("arguments", one.get("parameters", {})) if isinstance(one, dict) else None
        if not isinstance(one, dict) or one.get("name") not in names:
            return []
        written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        found.append(
            {
                "id": f"call_{secrets.token_hex(12)}",
                "type": "function",
                "function": {"name": one["name"], "arguments": written},
            }
        )
    return found
