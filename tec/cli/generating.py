"""`tec generate`: a model that writes, its text on the terminal as it comes."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ..errors import ArgumentError, printable
from . import common
from .errors import Refused


def sampling_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of drawing tokens, and of where the model runs."""
    for option in reversed(
        (
            click.option("--max-tokens", "-n", type=click.IntRange(1), default=128, show_default=True, help="The most to write."),
            click.option("--temperature", type=float, default=None, help="0: always the likeliest token. Default: 0, or what the model's files say for a chat."),
            click.option("--top-k", type=click.IntRange(0), default=None, help="Draw from so many of the likeliest tokens (0: all)."),
            click.option("--top-p", type=float, default=None, help="Draw from the fewest that are together so likely."),
            click.option("--min-p", type=float, default=0.0, help="Draw from those that are so likely beside the likeliest."),
            click.option("--repetition-penalty", type=float, default=1.0, help="Above 1: against what was written already."),
            click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of drawing."),
            click.option("--stop", multiple=True, metavar="TEXT", help="End before this text."),
            click.option("--context", type=click.IntRange(1), default=None, metavar="N", help="The most tokens of a text."),
            click.option("--target", "-t", metavar="TARGET", shell_complete=common.complete_target, help="As of tec compile."),
            common.device_option,
            click.option("--emulate", is_flag=True, help="Run on the AMD GPU in software: as --device emu."),
            click.option("--dtype", type=click.Choice(("float32", "float16", "bfloat16")), help="Of activations."),
            cache_type_option,
            adapter_option,
            click.option("--no-cache", is_flag=True, help="Compile anew, and keep nothing."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


cache_type_option = click.option(
    "--cache-type", metavar="TYPE", help="Of the caches of keys and values: int8, fp8, float16, ... Default: --dtype."
)
_BETWEEN = "\n---\n"  # of two texts: a line that a text seldom has alone
adapter_option = click.option(
    "--adapter",
    multiple=True,
    type=click.Path(path_type=Path),
    help="LoRA: a folder of PEFT's, or a GGUF file; several are added up.",
)


def _in_a_folder(context: click.Context, option: click.Parameter, value: Path | None) -> Path | None:
    """The file, whose folder is there: said before a text is written that could not be kept."""
    if value is not None and not value.absolute().parent.is_dir():
        raise Refused(f"{value}: there is no folder {value.parent}")
    return value


state_option = click.option(
    "--state",
    callback=_in_a_folder,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Take up the text in FILE, if it is there, and keep this one in it.",
)


@click.command(
    epilog="""\b
Examples:
  tec generate model.gguf "Once upon a time"
  tec generate qwen3-folder "The capital of France is" --target cuda       # config.json and .safetensors
  tec generate model.gguf "Once" --target "rocm -mcpu=gfx942" --emulate --max-tokens 4
  tec generate phi-3-folder --prompt "The capital of France is"     # genai_config.json, or optimum's names
  tec generate decoder.onnx --tokenizer bytes --prompt "one plus " --stop "."
  tec generate encoder.onnx decoder.onnx --prompt "summarize: ..."
  tec generate model.gguf --prompt "A book, as JSON:" --schema book.json
  tec generate model.gguf "Names of a cat:" --samples 4 --temperature 0.9
  tec generate model.gguf --prompt "$(cat long.txt) In short:" --state long.state    # the second time reads what is new
  echo "Once" | tec generate folder --prompt - --temperature 0.8 --top-p 0.9 --seed 7""",
)
@click.argument("models", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="MODEL... [PROMPT]")
@click.option("--prompt", "-p", help="The text to go on with, or to answer; - reads standard input.")
@click.option("--tokenizer", metavar="FILE|bytes", help="A tokenizer.json; the one beside the model by default.")
@sampling_options
@click.option("--end-token", "end", multiple=True, type=int, metavar="ID", help="A token that ends the text.")
@click.option("--start-token", "start", type=int, metavar="ID", help="What an answer begins with, behind an encoder.")
@click.option("--recompute", is_flag=True, help="ONNX: without caches, the decoder reads all tokens anew for each.")
@click.option("--ngrams", is_flag=True, help="Guess tokens from what the text repeats; it is the same text, sooner.")
@click.option(
    "--draft", type=click.Path(exists=True, path_type=Path), metavar="MODEL", help="Guess tokens by a smaller model."
)
@click.option(
    "--schema",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A JSON schema; the text is JSON of it.",
)
@click.option("--beams", type=click.IntRange(2), metavar="N", help="The likeliest text that N beams find.")
@click.option("--length-penalty", type=float, default=1.0, show_default=True, help="Of beams: above 1 for long texts.")
@click.option(
    "--samples", type=click.IntRange(2), metavar="N", help="N texts, drawn side by side; --- stands between them."
)
@state_option
@common.json_option
def command(models: tuple[Path, ...], prompt: str | None, as_json: bool, **said: Any) -> None:
    """Write text with a model: a GGUF file, a folder (Hugging Face's, onnxruntime-genai's or optimum's), or .onnx files. The text goes to standard output as it
    comes, tokens a second to standard error."""
    if prompt is None and len(models) > 1 and not os.path.exists(models[-1]):  # a long text is no name of a file
        models, prompt = models[:-1], str(models[-1])
    if prompt is None:
        raise Refused("there is no prompt", 'tec generate MODEL "Once upon a time"; --prompt - reads standard input')
    if prompt == "-":
        prompt = sys.stdin.read()
    if not prompt:
        raise Refused("the prompt is empty")
    for path in models:
        if not path.exists():
            raise Refused(f"{path}: no such file or folder")
    settings = sampling_of(said)
    from ..lm.writing import is_exported

    run = (_exported if is_exported(models) else _native)(models, prompt, said, settings)
    _shown(run, as_json)


def sampling_of(said: dict[str, Any]) -> dict[str, Any]:
    """What of the options says how tokens are drawn; a mistake there is told before minutes of compiling."""
    from ..lm import Sampling

    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
    settings = {n: said[n] for n in names if said[n] is not None}
    Sampling(**settings)
    return {**settings, "max_tokens": said["max_tokens"], "stop": said["stop"]}


def place_of(said: dict[str, Any]) -> dict[str, Any]:
    """Target and device of the options."""
    from ..target import Target

    device = said["device"] or ("emu" if said["emulate"] else None)
    wanted = common.target_of(said["target"], device)
    kind = Target(wanted)
    found = common.find_device(device, "cpu" if kind.kind == "llvm" else kind.kind, kind.mcpu)
    return {"target": wanted, "device": found, "dtype": said["dtype"], "cache": not said["no_cache"]}


def adapted(model: Path, adapters: Sequence[Path]) -> Any:
    """What `tec.lm.load` takes: a model's path, or its checkpoint with adapters."""
    if not adapters:
        return model
    from ..lm.adapters import applied
    from ..lm.opening import open, open_adapter

    return applied(open(model), [open_adapter(a) for a in adapters])


def _exported(models: tuple[Path, ...], prompt: str, said: dict[str, Any], settings: dict[str, Any]) -> Any:
    from ..lm import Generator

    native = ("ngrams", "draft", "schema", "beams", "samples", "cache_type", "state", "adapter")
    if any(said[n] for n in native):
        *first, last = (f"--{n.replace('_', '-')}" for n in native)
        raise ArgumentError(
            f"{', '.join(first)} and {last} are for GGUF files and Hugging Face folders, not for ONNX models",
            hint="without them",
        )
    made = Generator(
        list(models), tokenizer=said["tokenizer"], cached=not said["recompute"], end=said["end"] or None, start=said["start"], **place_of(said)
    )  # fmt: skip
    return made.generate(prompt, **settings)


def _native(models: tuple[Path, ...], prompt: str, said: dict[str, Any], settings: dict[str, Any]) -> Any:
    from ..lm import load

    schema = None if said["schema"] is None else _schema_of(said["schema"])
    checkpoint = adapted(models[0], said["adapter"])
    model = load(checkpoint, context=said["context"], cache_type=said["cache_type"], **place_of(said))
    model.ends |= set(said["end"])
    if said["beams"] is not None:
        return _by_beams(model, prompt, said, settings)
    if said["samples"] is not None:
        return _samples(model, prompt, said, {**settings, "schema": schema})
    state = said["state"]
    if state is not None and state.exists():
        model.load_state(state)
    draft = None if said["draft"] is None else load(said["draft"], context=model.context, **place_of(said))
    run = model.generate(prompt, ngrams=said["ngrams"], draft=draft, schema=schema, **settings)
    return run if state is None else _Kept(run, model, state)


class _Kept:
    """A run whose text is kept in a file when it has ended."""

    def __init__(self, run: Any, model: Any, path: Path):
        self._run, self._model, self._path = run, model, path

    def __iter__(self) -> Iterator[str]:
        yield from self._run
        self._model.save_state(self._path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)


@dataclass
class _BestBeam:
    """The best of some beams as a run: its text comes at once."""

    text: str
    ids: list[int]
    reason: str
    prompt_tokens: int
    prompt_seconds: float
    tokens_per_second: float

    def __iter__(self) -> Iterator[str]:
        yield self.text


def _by_beams(model: Any, prompt: str, said: dict[str, Any], settings: dict[str, Any]) -> _BestBeam:
    chosen = [n for n in ("temperature", "top_k", "top_p", "seed", "stop") if settings.get(n)]
    chosen += [n for n in ("ngrams", "draft", "schema", "samples", "state") if said[n]]
    if chosen:
        raise ArgumentError(f"--beams go without --{chosen[0].replace('_', '-')}", hint="beams draw no tokens")
    start = time.perf_counter()
    ids = model.encode(prompt)
    best = model.beams(ids, said["beams"], max_tokens=settings["max_tokens"], length_penalty=said["length_penalty"])[0]
    seconds = time.perf_counter() - start
    return _BestBeam(best.text, [*best.ids], best.reason, len(ids), seconds, len(best.ids) / seconds)


@dataclass
class _Samples:
    """Several texts as a run: they come at once, when all have ended."""

    texts: list[str]
    ids: list[int]  # of all, one text behind the other
    reason: str
    prompt_tokens: int
    prompt_seconds: float
    tokens_per_second: float

    @property
    def text(self) -> str:
        """The texts, with a line between them."""
        return _BETWEEN.join(self.texts)

    def __iter__(self) -> Iterator[str]:
        yield self.text


def _samples(model: Any, prompt: str, said: dict[str, Any], settings: dict[str, Any]) -> _Samples:
    chosen = [n for n in ("ngrams", "draft", "state") if said[n]]
    if chosen:
        raise ArgumentError(f"--samples go without --{chosen[0]}", hint="one text at a time")
    start = time.perf_counter()
    ids = model.encode(prompt)
    made = model.samples(ids, said["samples"], **settings)
    seconds = time.perf_counter() - start
    written = [t for s in made for t in s.ids]
    reasons = ", ".join(dict.fromkeys(s.reason for s in made))
    return _Samples([s.text for s in made], written, reasons, len(ids), seconds, len(written) / seconds)


def _schema_of(path: Path) -> Any:
    """A file's JSON schema, whose mistakes are told before minutes of compiling."""
    from ..lm.forms.json_schema import grammar_of

    try:
        read = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Refused(f"{path} is no JSON: {error}") from None
    grammar_of(read)
    return read


def _shown(run: Any, as_json: bool) -> None:
    """The text as it comes, and what it took."""
    shown = sys.stdout.isatty()  # a model may write what a terminal would obey
    for piece in run:
        if not as_json:
            sys.stdout.write(printable(piece) if shown else piece)
            sys.stdout.flush()
    if as_json:
        common.print_json(
            {
                "text": run.text, "tokens": run.ids, "reason": run.reason, "prompt_tokens": run.prompt_tokens,
                "prompt_seconds": run.prompt_seconds, "tokens_per_second": run.tokens_per_second, **({"texts": run.texts} if hasattr(run, "texts") else {}),
            }
        )  # fmt: skip
        return
    common.echo()
    common.echo(summary(run), err=True)


def summary(run: Any) -> str:
    """How long reading and writing took, in a line."""
    rate = f"{run.tokens_per_second:.1f} tokens a second" if run.tokens_per_second else "one token"
    first = common.duration(run.prompt_seconds)
    return f"{run.prompt_tokens} tokens read in {first}, {len(run.ids)} written, {rate} ({run.reason})"
