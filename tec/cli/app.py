"""The group of commands. Each lives in a module of its own that is imported when it runs; the table below is all that
`tec --help` needs."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import click

from .errors import PIPE, guarded, quit_quietly

# command -> (module, the line that `tec --help` shows)
COMMANDS: dict[str, tuple[str, str]] = {
    "compile": ("compiling", "Compile an ONNX model to one package, or to a library for C, for a target."),
    "header": ("heading", "Print the C header of a model's or a module's native library."),
    "convert": ("converting", "Rewrite a package of the format version before."),
    "run": ("running", "Run a model or a compiled package."),
    "generate": ("generating", "Write text with a language model: GGUF files, folders, ONNX files."),
    "chat": ("chatting", "Talk with a language model."),
    "serve": (
        "serving",
        "Serve networks over HTTP by the open inference protocol, and language models with OpenAI's API.",
    ),
    "bench": ("bench", "Time a model: percentiles, and each kernel."),
    "tune": ("tune", "Search for quicker schedules of a model; keep them for every compilation after it."),
    "quantize": ("quantizing", "Quantize an ONNX model to 8-bit integers after training."),
    "verify": ("verify", "Hold a model's results against a reference; name the first node that differs."),
    "show": ("show", "Operators, graph, loop IR, LLVM, assembly, resources; or all of it as one HTML page."),
    "explore": (
        "exploring",
        "Type a program and see its loops, LLVM IR, assembly, footprint and modelled time.",
    ),
    "ops": ("ops", "Which ONNX operators are supported, and what a model lacks."),
    "emu": ("emu", "Kernels of any compiler on the AMD GPU in software: list them, run one under checks."),
    "doctor": ("doctor", "What is installed, which devices are there, and whether compiling works."),
    "cache": ("cache", "Size and place of the compile cache; clear it."),
    "completion": ("completion", "Print the completion script of a shell."),
}

# Commands that begin often and have NumPy multiply no matrices: its BLAS takes 25 ms of processor time to start a thread a core.
_WRITERS = ("generate", "chat")

EPILOG = """\b
Examples:
  tec doctor
  tec compile model.onnx -o model.tec --target "rocm -mcpu=gfx942" --input-dim input 1 3 224 224
  tec run model.tec --inputs x.npy --device emu
  tec verify model.onnx --target "rocm -mcpu=gfx942" --device emu
  tec show model.onnx asm --kernel f0 --target "rocm -mcpu=gfx1100"
  tec show model.onnx --html report.html --target "rocm -mcpu=gfx942"

\b
Exit codes: 0 yes; 1 no (verify, ops, doctor); 2 wrong arguments; 3 model; 4 compiler; 5 device; 130 Ctrl-C."""


def _is_language_model(word: str) -> bool:
    """Whether a word of the command line is a GGUF file, or a folder as Hugging Face has it."""
    return word.endswith(".gguf") or (
        ((folder := Path(word)) / "config.json").is_file() and any(folder.glob("*.safetensors"))
    )


class TecGroup(click.Group):
    """Commands by name from `COMMANDS`; every error is one line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        if cmd_name in _WRITERS:  # before NumPy is imported
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        found: click.Command = importlib.import_module(f"tec.cli.{entry[0]}").command
        return found

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            close = difflib.get_close_matches(args[0], COMMANDS, 1)
            hint = f"did you mean {close[0]}?" if close else f"commands: {', '.join(COMMANDS)}"
            raise click.UsageError(f"no command {args[0]!r}; {hint}", ctx)
        name, command, rest = super().resolve_command(ctx, args)
        if name == "serve" and any(map(_is_language_model, rest)):  # these have a server, and options, of their own
            command = importlib.import_module("tec.cli.serving_texts").command
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would exit with 1
            quit_quietly(PIPE)

    def main(self, args: Any = None, prog_name: str | None = None, **extra: Any) -> Any:  # type: ignore[override]
        extra.pop("standalone_mode", None)

        def run() -> Any:
            return super(TecGroup, self).main(args=args, prog_name=prog_name or "tec", standalone_mode=False, **extra)

        guarded(run)


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from .. import __version__

        click.echo(f"tec {__version__}")
        ctx.exit()


@click.group(
    cls=TecGroup,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="tec: tensor programs and ONNX networks to AMD GPUs, CPUs and NVIDIA GPUs; and an AMD GPU in software.",
)
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Show the version.")
def app() -> None:
    """The `tec` command."""
