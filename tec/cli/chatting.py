"""`tec chat`: a conversation with a language model on the terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from ..errors import TecError, printable
from . import common
from .errors import MODEL, Refused, say
from .generating import adapted, place_of, sampling_of, sampling_options, state_option, summary


@click.command(
    epilog="""\b
Examples:
  tec chat model.gguf                                   # an empty line ends it, and so does Ctrl-D
  tec chat model.gguf --system "Answer in one sentence." --temperature 0.7 --top-p 0.9
  tec chat model.gguf --message "Why is the sky blue?"     # one answer
  tec chat folder --target cuda --context 8192
  tec chat model.gguf --state talk.state                # the next one goes on where this one ends""",
)
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--system", metavar="TEXT", help="What the model is told before the conversation.")
@click.option(
    "--message", "-m", multiple=True, metavar="TEXT", help="What to say, in place of asking; several are turns."
)
@state_option
@sampling_options
def command(model: Path, system: str | None, message: tuple[str, ...], state: Path | None, **said: Any) -> None:
    """Talk with a model: a GGUF file, or a folder as Hugging Face has it. Answers come as they are written; tokens a second, memory and the time to the first
    token go to standard error. Ctrl-C ends an answer."""
    if not model.exists():
        raise Refused(f"{model}: no such file or folder")
    settings = sampling_of(said)
    from ..lm import load

    checkpoint = adapted(model, said["adapter"])
    lm = load(checkpoint, context=said["context"], cache_type=said["cache_type"], **place_of(said))
    common.echo(f"{lm!r}: loaded in {common.duration(lm.report['load_seconds'])}, context {lm.context}", err=True)
    if lm.template is None:
        raise Refused(f"{model}: its files have no chat template", "tec generate MODEL TEXT continues a text", MODEL)
    messages = _taken_up(lm, state, system)
    given = list(message)
    while (text := given.pop(0) if given else None if message else _asked()) is not None:
        messages.append({"role": "user", "content": text})
        answer = _answer(lm, messages, settings)
        if answer is None:
            messages.pop()
        else:
            messages.append({"role": "assistant", "content": answer})
            if state is not None:
                lm.save_state(state, messages)


def _taken_up(lm: Any, state: Path | None, system: str | None) -> list[dict[str, str]]:
    """The conversation of a file, or the beginning of a new one."""
    if state is None or not state.exists():
        return [{"role": "system", "content": system}] if system else []
    if system:
        raise Refused(f"{state} has a conversation, and --system begins one", "without --system, or another file")
    messages: list[dict[str, str]] = lm.load_state(state)
    common.echo(f"{state}: {len(messages)} messages", err=True)
    return messages


def _asked() -> str | None:
    """A line of the user; None at the end."""
    if sys.stdin.isatty():
        click.echo("> ", err=True, nl=False)
    line = sys.stdin.readline()
    return line.strip() or None


def _answer(lm: Any, messages: list[dict[str, str]], settings: dict[str, Any]) -> str | None:
    """The model's answer, shown as it comes; None where the conversation has no room for one."""
    try:
        run = lm.generate(messages, **settings)
    except TecError as error:
        say(error.summary)
        return None
    shown = sys.stdout.isatty()
    try:
        for piece in run:
            sys.stdout.write(printable(piece) if shown else piece)
            sys.stdout.flush()
    except KeyboardInterrupt:
        if not shown:
            raise
    common.echo()
    common.echo(f"({summary(run)}; {lm.memory_bytes / 1e6:.0f} MB)", err=True)
    return str(run.text)
