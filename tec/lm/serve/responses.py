"""OpenAI's Responses API over chat completions: what a request asks for as values of a chat, and an answer or its chunks as a response or its events.

Nothing of a conversation is kept: `previous_response_id` and `conversation` are refused.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from .wanted import Values, Wrong

_NEVER = ("previous_response_id", "conversation", "background", "prompt")
_TEXTS = ("input_text", "output_text", "text")
_SAME = ("model", "stream", "temperature", "top_p", "top_k", "min_p", "seed", "parallel_tool_calls")


class Response:
    """One response. `chat`: its request as that of a chat. Raises Wrong."""

    def __init__(self, values: Values, name: str):
        self._of, self._name, self._number = values.of, name, 0
        self._id, self._created = f"resp_{secrets.token_hex(16)}", time.time()
        wrong = next((n for n in _NEVER if self._of.get(n)), None)
        if wrong is not None:
            raise Wrong(f"{wrong} is not supported: give the whole conversation as input", wrong, code="unsupported_parameter")  # fmt: skip
        self.chat = values.changed(self._chat())

    # ---- the request

    def _chat(self) -> dict[str, Any]:
        of = self._of
        made = {n: of[n] for n in _SAME if n in of}
        made["messages"] = self._messages()
        if of.get("max_output_tokens") is not None:
            made["max_completion_tokens"] = of["max_output_tokens"]
        if of.get("tools"):
            made["tools"] = [self._tool(t) for t in self._listed("tools")]
        choice = of.get("tool_choice")
        if choice is not None:
            named = isinstance(choice, Mapping) and choice.get("type") == "function"
            made["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}} if named else choice
        form = of["text"].get("format") if isinstance(of.get("text"), Mapping) else None
        if form is not None:
            is_schema = isinstance(form, Mapping) and form.get("type") == "json_schema"
            made["response_format"] = {"type": "json_schema", "json_schema": form} if is_schema else form
        if of.get("top_logprobs"):
            made |= {"logprobs": True, "top_logprobs": of["top_logprobs"]}
        return made

    def _listed(self, name: str) -> list[Any]:
        found = self._of.get(name)
        if not isinstance(found, list) or not all(isinstance(x, Mapping) for x in found):
            raise Wrong(f"{name} is a list of objects", name)
        return found

    @staticmethod
    def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
        if tool.get("type") != "function":
            raise Wrong(f"a tool of type {str(tool.get('type'))[:60]!r}: functions alone are called", "tools", code="unsupported_parameter")  # fmt: skip
        return {"type": "function", "function": {k: v for k, v in tool.items() if k not in ("type", "strict")}}

    def _messages(self) -> list[dict[str, Any]]:
        instructions, given = self._of.get("instructions"), self._of.get("input")
        if instructions is not None and not isinstance(instructions, str):
            raise Wrong("instructions is a text", "instructions")
        first = [{"role": "system", "content": instructions}] if instructions else []
        if isinstance(given, str) and given:
            return [*first, {"role": "user", "content": given}]
        if not given:
            raise Wrong("input is a text or a list of messages", "input")
        return [*first, *(self._message(item) for item in self._listed("input"))]

    @staticmethod
    def _message(item: Mapping[str, Any]) -> dict[str, Any]:
        kind = item.get("type", "message")
        if kind == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments", "{}")}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            return {"role": "assistant", "content": "", "tool_calls": [call]}
        if kind == "function_call_output":
            output = item.get("output")
            text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
            return {"role": "tool", "tool_call_id": item.get("call_id"), "content": text}
        content = item.get("content")
        if kind != "message" or not isinstance(item.get("role"), str):
            raise Wrong(f"an item of type {str(kind)[:60]!r} is not supported", "input", code="unsupported_parameter")
        if isinstance(content, list):
            parts = [p for p in content if isinstance(p, Mapping) and p.get("type") in _TEXTS and isinstance(p.get("text"), str)]  # fmt: skip
            if len(parts) < len(content):
                raise Wrong("input has parts other than texts", "input", code="unsupported_parameter")
            content = "".join(p["text"] for p in parts)
        if not isinstance(content, str):
            raise Wrong("a message's content is a text, or a list of its parts", "input")
        role = {"developer": "system"}.get(item["role"], item["role"])
        return {"role": role, "content": content}

    # ---- the answer

    def whole(self, completion: Mapping[str, Any]) -> dict[str, Any]:
        """A chat completion as a response."""
        choice = completion["choices"][0]
        message = choice["message"]
        output = [self._text(message["content"])] if message["content"] else []
        output += [self._call(c) for c in message.get("tool_calls", ())]
        return self._response(output, choice["finish_reason"], completion["usage"])

    async def events(self, chunks: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[dict[str, Any]]:
        """A chat's chunks as events."""
        yield self._event("response.created", response=self._response([], None, None))
        yield self._event("response.in_progress", response=self._response([], None, None))
        text, reason, usage = "", None, None
        item = self._text("")
        output: list[dict[str, Any]] = []
        at = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        async for chunk in chunks:
            usage = chunk.get("usage") or usage
            for choice in chunk["choices"]:
                reason = choice["finish_reason"] or reason
                piece = choice["delta"].get("content") or ""
                if piece and not text:
                    yield self._event("response.output_item.added", output_index=0, item={**item, "content": [], "status": "in_progress"})  # fmt: skip
                    yield self._event("response.content_part.added", **at, part=item["content"][0])
                if piece:
                    text += piece
                    yield self._event("response.output_text.delta", **at, delta=piece, logprobs=[])
                output += [self._call(c) for c in choice["delta"].get("tool_calls", ())]
        if text:
            item["content"][0]["text"] = text
            yield self._event("response.output_text.done", **at, text=text, logprobs=[])
            yield self._event("response.content_part.done", **at, part=item["content"][0])
            yield self._event("response.output_item.done", output_index=0, item=item)
        for k, call in enumerate(output, bool(text)):
            place = {"item_id": call["id"], "output_index": k}
            yield self._event("response.output_item.added", output_index=k, item={**call, "arguments": "", "status": "in_progress"})  # fmt: skip
            yield self._event("response.function_call_arguments.delta", **place, delta=call["arguments"])
            yield self._event("response.function_call_arguments.done", **place, arguments=call["arguments"], name=call["name"])  # fmt: skip
            yield self._event("response.output_item.done", output_index=k, item=call)
        done = self._response([*([item] if text else []), *output], reason, usage)
        yield self._event(f"response.{done['status']}", response=done)

    def _event(self, kind: str, **what: Any) -> dict[str, Any]:
        self._number += 1
        return {"type": kind, "sequence_number": self._number - 1, **what}

    @staticmethod
    def _text(text: str) -> dict[str, Any]:
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        return {"type": "message", "id": f"msg_{secrets.token_hex(16)}", "status": "completed", "role": "assistant", "content": [part]}  # fmt: skip

    @staticmethod
    def _call(call: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "type": "function_call", "id": f"fc_{secrets.token_hex(16)}", "call_id": call["id"], "status": "completed", "name": call["function"]["name"],
            "arguments": call["function"]["arguments"],
        }  # fmt: skip

    def _response(self, output: list[Any], reason: str | None, usage: Mapping[str, Any] | None) -> dict[str, Any]:
        """reason: why the text ended; None while it does not."""
        of = self._of
        status = "in_progress" if reason is None else "incomplete" if reason == "length" else "completed"
        return {
            "id": self._id, "object": "response", "created_at": int(self._created), "status": status, "model": self._name, "output": output, "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None, "instructions": of.get("instructions"),
            "max_output_tokens": of.get("max_output_tokens"), "metadata": of.get("metadata") or {}, "parallel_tool_calls": of.get("parallel_tool_calls", True),
            "previous_response_id": None, "store": False, "temperature": of.get("temperature", 1.0), "top_p": of.get("top_p", 1.0),
            "text": of.get("text") or {"format": {"type": "text"}}, "tool_choice": of.get("tool_choice", "auto"), "tools": of.get("tools") or [],
            "truncation": "disabled", "usage": None if usage is None else _usage(usage),
        }  # fmt: skip


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "input_tokens": usage["prompt_tokens"], "input_tokens_details": {"cached_tokens": usage["prompt_tokens_details"]["cached_tokens"]},
        "output_tokens": usage["completion_tokens"], "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": usage["total_tokens"],
    }  # fmt: skip
