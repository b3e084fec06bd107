"""Requests of OpenAI's API as what they ask for, checked value by value. What is wrong raises `Wrong`, which names the parameter."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import TecError
from ..sampling import Sampling

MOST_CHOICES = 16  # texts that one request may ask for
MOST_STOPS = 16
MOST_TOP = 20  # tokens whose probabilities are told: OpenAI's limit
# What the API has, and what is done here in no case.
_NEVER = {
    "suffix": None,
    "audio": None,
    "modalities": ["text"],
    "web_search_options": None,
    "functions": None,
    "function_call": None,
}


# What is asked for in another way now, as OpenAI's own documents say.
_TODAY = {"functions": "tools", "function_call": "tool_choice"}


class Wrong(TecError):
    """A request that cannot be served. `parameter`: which value it is; `code`: a word for programs; `status`: HTTP's number."""

    def __init__(self, message: str, parameter: str | None = None, *, code: str | None = None, status: int = 400):
        super().__init__(message, locate=False)
        self.parameter, self.code, self.status = parameter, code, status


@dataclass
class Wanted:
    """What a request for text asks for. most: None where it does not say. usual: which values of sampling it leaves to the model."""

    stream: bool = False
    usage_at_end: bool = False
    choices: int = 1
    most: int | None = None
    stop: list[str] = field(default_factory=list)
    logprobs: int | None = None
    sampling: Sampling = field(default_factory=Sampling)
    tools: list[dict[str, Any]] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)  # for the template
    ignore_end: bool = False
    echo: bool = False
    schema: Any = None  # of the JSON that the text must be
    forced: bool = False  # whether the answer must be a call of one of the tools


class Values:
    """The values of a request by name."""

    def __init__(self, raw: bytes):
        try:
            read = json.loads(raw)
        except (ValueError, RecursionError):
            raise Wrong("the request's body is no JSON") from None
        if not isinstance(read, dict):
            raise Wrong("the request's body is no JSON object")
        self.of: dict[str, Any] = read
        for name, allowed in _NEVER.items():
            if read.get(name) not in (None, allowed):
                instead = f"; {_TODAY[name]} is" if name in _TODAY else ""
                raise Wrong(f"{name} is not supported{instead}", name, code="unsupported_parameter")

    def changed(self, of: dict[str, Any]) -> Values:
        """Other values of the same request."""
        made = object.__new__(Values)
        made.of = of
        return made

    def number(self, name: str, default: float, least: float, most: float) -> float:
        value = self.of.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise Wrong(f"{name} is {_shown(value)}; a number from {least:g} to {most:g}", name)
        return float(value)

    def whole(self, name: str, default: int | None, least: int, most: int = 1 << 62) -> int | None:
        value = self.of.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise Wrong(
                f"{name} is {_shown(value)}; a whole number of at least {least}"
                + (f" and at most {most}" if most < 1 << 62 else ""),
                name,
            )
        return value

    def flag(self, name: str) -> bool:
        value = self.of.get(name)
        if value is not None and not isinstance(value, bool):
            raise Wrong(f"{name} is {_shown(value)}; true or false", name)
        return bool(value)

    def texts(self, name: str, most: int) -> list[str]:
        value = self.of.get(name)
        if value is None:
            return []
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or len(listed) > most or not all(isinstance(t, str) for t in listed):
            raise Wrong(f"{name} is a text or a list of up to {most} texts", name)
        return [t for t in listed if t]


def wanted_of(values: Values, usual: Mapping[str, Any], vocabulary: int, least: int = 1) -> Wanted:
    """What a request asks for. usual: the model's own values of sampling, for those that are not said. least: tokens that it may ask for."""
    options = values.of.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise Wrong("stream_options is no object", "stream_options")
    most = values.whole("max_completion_tokens", values.whole("max_tokens", None, least), least)
    return Wanted(
        stream=values.flag("stream"), usage_at_end=bool((options or {}).get("include_usage")),
        choices=values.whole("n", 1, 1, MOST_CHOICES) or 1, most=most, stop=values.texts("stop", MOST_STOPS),
        sampling=sampling_of(values, usual, vocabulary), ignore_end=values.flag("ignore_eos"), schema=_schema(values.of.get("response_format")),
    )  # fmt: skip


def _schema(form: Any) -> Any:
    """The schema that a `response_format` asks for; None for any text."""
    kind = form.get("type") if isinstance(form, dict) else None
    if form is None or kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    own = form.get("json_schema") if kind == "json_schema" else None
    if not isinstance(own, dict) or not isinstance(own.get("schema"), dict):
        raise Wrong('response_format is {"type": "text"}, {"type": "json_object"}, or {"type": "json_schema", "json_schema": {"name": ..., "schema": {...}}}', "response_format")  # fmt: skip
    return own["schema"]


def sampling_of(values: Values, usual: Mapping[str, Any], vocabulary: int) -> Sampling:
    """How tokens are drawn. A request that says no seed draws others each time: `seed` 0 stands for the one that the server draws."""
    return Sampling(
        temperature=values.number("temperature", float(usual.get("temperature", 1.0)), 0, 100),
        top_p=max(values.number("top_p", float(usual.get("top_p", 1.0)), 0, 1), 1e-9),
        top_k=max(values.whole("top_k", int(usual.get("top_k", 0)), -1) or 0, 0),
        min_p=min(values.number("min_p", float(usual.get("min_p", 0.0)), 0, 1), 1 - 1e-9),
        repetition_penalty=values.number("repetition_penalty", float(usual.get("repetition_penalty", 1.0)), 1e-6, 100),
        presence_penalty=values.number("presence_penalty", 0, -2, 2), frequency_penalty=values.number("frequency_penalty", 0, -2, 2),
        seed=(values.whole("seed", 0, -(1 << 63)) or 0) % (1 << 63), logit_bias=_bias(values.of.get("logit_bias"), vocabulary),
    )  # fmt: skip


def _bias(value: Any, vocabulary: int) -> dict[int, float]:
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > 1024:
        raise Wrong("logit_bias is an object of at most 1024 tokens", "logit_bias")
    found = {}
    for token, bias in value.items():
        if not token.isascii() or not token.isdigit() or len(token) > 12 or int(token) >= vocabulary:
            raise Wrong(f"logit_bias names the token {_shown(token)}, and there are {vocabulary}", "logit_bias")
        if isinstance(bias, bool) or not isinstance(bias, (int, float)) or not -100 <= bias <= 100:
            raise Wrong(f"logit_bias has {_shown(bias)}; a number from -100 to 100", "logit_bias")
        found[int(token)] = float(bias)
    return found


def chat_of(values: Values, usual: Mapping[str, Any], vocabulary: int) -> tuple[Wanted, list[Any]]:
    """A request for an answer in a conversation, and its messages."""
    wanted = wanted_of(values, usual, vocabulary)
    messages = values.of.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Wrong("messages is a list of at least one message", "messages")
    if values.flag("logprobs"):
        wanted.logprobs = values.whole("top_logprobs", 0, 0, MOST_TOP)
    elif values.of.get("top_logprobs"):
        raise Wrong("top_logprobs is for requests with logprobs", "top_logprobs")
    choice = values.of.get("tool_choice")
    wanted.tools = [] if choice == "none" else _tools(values.of.get("tools"))
    if choice not in (None, "auto", "none"):
        wanted.forced, wanted.tools = True, _chosen_tools(choice, wanted.tools)
    more = values.of.get("chat_template_kwargs")
    if more is not None:
        if not isinstance(more, dict) or set(more) & {
            "messages",
            "tools",
            "add_generation_prompt",
            "bos_token",
            "eos_token",
        }:
            raise Wrong(
                "chat_template_kwargs is an object of other values than those that the server gives",
                "chat_template_kwargs",
            )
        wanted.more = more
    return wanted, messages


def _tools(value: Any) -> list[dict[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > 128:
        raise Wrong("tools is a list of at most 128 functions", "tools")
    for tool in value:
        function = tool.get("function") if isinstance(tool, dict) else None
        if (
            not isinstance(function, dict)
            or not isinstance(function.get("name"), str)
            or tool.get("type") != "function"
        ):
            raise Wrong('a tool is {"type": "function", "function": {"name": ...}}', "tools")
    return value


def _chosen_tools(choice: Any, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tools of which one must be called."""
    function = choice.get("function") if isinstance(choice, dict) and choice.get("type") == "function" else None
    name = function.get("name") if isinstance(function, dict) else None
    found = [t for t in tools if choice == "required" or (name is not None and t["function"]["name"] == name)]
    if not found:
        raise Wrong('tool_choice is "auto", "none", "required", or {"type": "function", "function": {"name": ...}} of one of tools', "tool_choice")  # fmt: skip
    return found


def completion_of(values: Values, usual: Mapping[str, Any], vocabulary: int) -> tuple[Wanted, list[str | list[int]]]:
    """A request for a text that goes on, and its prompts."""
    wanted = wanted_of(values, usual, vocabulary, 0)
    wanted.most = 16 if wanted.most is None else wanted.most  # the API's default
    wanted.logprobs = values.whole("logprobs", None, 0, MOST_TOP)
    wanted.echo = values.flag("echo")
    best = values.whole("best_of", wanted.choices, 1)
    if best != wanted.choices:
        raise Wrong("best_of other than n is not supported", "best_of", code="unsupported_parameter")
    return wanted, prompts_of(values.of.get("prompt"), "prompt", vocabulary)


def prompts_of(value: Any, name: str, vocabulary: int) -> list[str | list[int]]:
    """A text, texts, tokens, or lists of tokens."""
    listed = value if isinstance(value, list) and value and not isinstance(value[0], int) else [value]
    if not listed or len(listed) > 128:
        raise Wrong(f"{name} has {len(listed)} texts; 1 to 128", name)
    for one in listed:
        whole = isinstance(one, list) and one and all(type(t) is int and 0 <= t < vocabulary for t in one)
        if not whole and not (isinstance(one, str) and one):
            raise Wrong(f"{name} is a text, a list of texts, or a list of the model's {vocabulary} tokens", name)
    return listed


def _shown(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return repr(value)[:60]


def seeds_of(wanted: Wanted, said: bool, draw: Any, count: int) -> Sequence[Sampling]:
    """The sampling of each of `count` texts: with seeds behind the one that was said, or with drawn ones."""
    first = wanted.sampling.seed if said else int(draw(63))
    return [replace(wanted.sampling, seed=(first + k) % (1 << 63)) for k in range(count)]
