"""Chat templates: what jinja2 gives without a sandbox, and templates that do harm."""

from __future__ import annotations

import json
import re
import time

import jinja2
import pytest

from tec.errors import ArgumentError, ImportModelError
from tec.lm.text.template import ChatTemplate, TemplateFault

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nBe kind<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TOOLS = (
    "{%- set ns = namespace(n=0) %}{%- if tools %}{%- for tool in tools %}\n{{ tool | tojson }}{%- endfor %}\n{%- endif %}"
    "{%- for m in messages %}{%- set ns.n = ns.n + 1 %}{%- if m.tool_calls %}{%- for c in m.tool_calls %}"
    "<call>{{ c.function.name }}:{{ c.function.arguments.city }}</call>{%- endfor %}{%- elif m.role == 'tool' %}<result>{{ m.content }}</result>"
    "{%- else %}[{{ m.role|upper }}]{{ m.content.strip()[:5] }}{%- endif %}{%- endfor %}{{ ns.n }}"
)
MESSAGES = [{"role": "user", "content": "Hé <you> & {{ 7 * 7 }}"}, {"role": "assistant", "content": "Hi"}]


def test_a_conversation():
    expected = (
        jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
        .from_string(CHATML)
        .render(messages=MESSAGES, add_generation_prompt=True)
    )
    assert ChatTemplate(CHATML).render(MESSAGES) == expected
    assert "{{ 7 * 7 }}" in expected and "<you>" in expected, "what people write is not looked at"
    assert ChatTemplate(CHATML).render(MESSAGES, add_generation_prompt=False) == expected.removesuffix(
        "<|im_start|>assistant\n"
    )


def test_tools():
    tools = [{"type": "function", "function": {"name": "weather", "description": "Wie ist's in 東京? <b>"}}]
    messages = [
        {"role": "user", "content": [{"type": "text", "text": " What"}, {"type": "text", "text": " now?"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Wien"}'}}]},
        {"role": "tool", "content": "rain", "tool_call_id": "1"},
    ]  # fmt: skip
    text = ChatTemplate(TOOLS).render(messages, tools=tools)
    shown = json.dumps(tools[0], ensure_ascii=False)
    assert text == shown + "[USER]What <call>weather:Wien</call><result>rain</result>3"


def test_what_templates_use():
    source = (
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}{% generation %}{{ m.content }}{% endgeneration %}"
        "{% endfor %}{{ enable_thinking }}{{ 'a,b'.split(',') | join('+') }}{{ strftime_now('%Y') }}{{ messages | selectattr('role', 'eq', 'user') | list | length }}"
        "{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(1) }}{{ {'a': 1} | items | list }}{{ messages is sequence }}{{ messages[0].none is defined }}"
    )
    found = ChatTemplate(source, bos="<s>").render(
        [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], enable_thinking=False
    )
    assert re.fullmatch(r"<s>uFalsea\+b20\d\d1<1>\[\('a', 1\)\]TrueFalse", found)


def test_filters():
    """Those of jinja2 that public templates use, beside the ones that a sandbox bounds."""
    source = (
        "{{ 'a\nb' | indent(2, true) }}|{{ 'x' | center(5) }}|{{ '%s-%03d' | format('n', 7) }}|{{ [1, 2, 3] | batch(2, 0) | list }}"
        "|{{ [1, 2, 3] | slice(2) | list }}|{{ '<b>t</b>' | striptags }}|{{ 'a b' | urlencode }}|{{ 'one two three' | truncate(9) }}"
    )
    expected = jinja2.Environment().from_string(source).render()
    assert ChatTemplate(source).render([]) == expected and "n-007" in expected


def test_a_template_refuses_its_messages():
    source = "{% if messages[0].role != 'user' %}{{ raise_exception('the first one speaks as a user') }}{% endif %}"
    with pytest.raises(TemplateFault, match="the first one speaks as a user"):
        ChatTemplate(source).render([{"role": "system", "content": ""}])


HOSTILE = {
    "Python's classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals of a function": "{{ raise_exception.__globals__ }}",
    "globals by a filter": "{{ raise_exception | attr('__globals__') }}",
    "the environment": "{{ self.__init__.__globals__ }}",
    "builtins of a macro": "{% macro f() %}{% endmacro %}{{ f.__call__.__globals__ }}",
    "a format that looks into objects": "{{ '{0.__class__.__init__.__globals__}'.format(strftime_now) }}",
    "a file": "{% include '/etc/passwd' %}",
    "another template": "{% import 'x' as y %}",
    "a message that is changed": "{{ messages.append(1) }}",
    "a message's role that is changed": "{{ messages[0].update({'role': 'system'}) }}",
    "a loop of 10^15": "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
    "a range of 10^12": "{% for a in range(10 ** 12) %}{% endfor %}",
    "macros that call themselves twice": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "macros without an end": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a text that is doubled": "{% set ns = namespace(x='aaaaaaaa') %}{% for k in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "a text that is added to itself": "{% set ns = namespace(x='aaaaaaaa') %}{% for k in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
    "a text 10^11 times": "{{ 'a' * 10 ** 11 }}",
    "a list 10^11 times": "{{ [1] * 10 ** 11 }}",
    "a large power": "{{ 10 ** 99999999 }}",
    "a format with a width among its values": "{{ '{:>{w}}'.format('x', w=9999999999) }}",
    "powers of powers": "{% set x = 9 ** 64 %}{% set y = x ** 65 %}",
    "a format of 10^10 letters": "{{ '%9999999999d' % 1 }}",
    "a format by an argument": "{{ '%*d' % (9999999999, 1) }}",
    "a format with braces": "{{ '{:>9999999999}'.format('x') }}",
    "a text that is filled": "{{ 'x'.ljust(9999999999) }}",
    "a text that is centred": "{{ 'x' | center(9999999999) }}",
    "letters that become texts": "{% set x = 'a' * 9000000 %}{{ x.replace('a', x) }}",
    "letters that become texts by a filter": "{% set x = 'a' * 9000000 %}{{ x | replace('a', x) }}",
    "lines that are indented": "{{ messages | tojson(indent=9999999999) }}",
    "a batch that is filled": "{{ [1] | batch(9999999999, 0) | list }}",
    "a list that is cut into many": "{{ [1] | slice(9999999999) | list }}",
    "a text that is indented": "{{ 'x\n' | indent(9999999999, true) }}",
    "a format by a filter": "{{ '%9999999999d' | format(1) }}",
    "text without an end": "{% for a in range(99999) %}{{ 'a' * 10000 }}{% endfor %}",
}


NOTHING = ("Python's classes", "the environment", "globals of a function", "globals by a filter")


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile(what):
    start = time.process_time()
    with pytest.raises((TemplateFault, ImportModelError), match="chat template"):
        text = ChatTemplate(HOSTILE[what]).render([{"role": "user", "content": "x"}])
        if what in NOTHING:  # the sandbox gives an undefined value, which is nothing
            assert text == ""
            raise TemplateFault("chat template")
    assert time.process_time() - start < 20


MISTAKES = {
    "no end": ("{% for m in messages %}", None, ImportModelError, "the chat template is wrong: .*line 1"),
    "no filter": ("{{ 1 | nonesuch }}", None, ImportModelError, "No filter named 'nonesuch'"),
    "an undefined value": ("{{ a.b.c }}", None, TemplateFault, "'a' is undefined"),
    "two kinds": ("{{ 1 + 'a' }}", None, TemplateFault, "TypeError"),
    "too long": ("x" * (1 << 21), None, ImportModelError, "2097152 characters"),
    "no role": ("", [{"content": "x"}], ArgumentError, "message 0 has no role"),
    "no message": ("", ["x"], ArgumentError, "message 0 has no role"),
    "a number": ("", [{"role": "user", "content": 7}], ArgumentError, "the content of message 0 is int"),
    "a picture": (
        "",
        [{"role": "user", "content": [{"type": "image_url"}]}],
        ArgumentError,
        "a part of the type 'image_url'",
    ),
    "a call of nothing": ("", [{"role": "assistant", "tool_calls": [{}]}], ArgumentError, "without a function"),
    "a call without JSON": (
        "",
        [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]}],
        ArgumentError,
        "are no JSON",
    ),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_mistakes(what):
    source, messages, kind, match = MISTAKES[what]
    with pytest.raises(kind, match=match):
        ChatTemplate(source).render(messages or [])
