"""Exit codes of `tec`, and the one line that each mistake gives.

0    done, and the answer is yes
1    done, and the answer is no: verify found a difference, ops an operator that is missing, doctor a fault
2    wrong arguments: a missing file, an unknown option or target, a shape that does not fit
3    the model or package cannot be taken in
4    the compiler refused
5    no such device, or the device failed
70   a fault of tec itself (`tec doctor --report` collects what a report needs)
130  Ctrl-C
141  what read the output went away
"""

from __future__ import annotations

import os
import shlex
import sys
import traceback
from typing import Any, NoReturn

import click

from ..errors import (
    ArgumentError,
    DeviceError,
    ImportModelError,
    InternalError,
    MissingPackageError,
    PackageError,
    TargetError,
    TecError,
    install,
    joined,
    one_line,
)

OK, NO, USAGE, MODEL, COMPILER, DEVICE, FAULT, INTERRUPTED, PIPE = 0, 1, 2, 3, 4, 5, 70, 130, 141

_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (ArgumentError, USAGE),
    (MissingPackageError, USAGE),
    (TargetError, USAGE),
    (ImportModelError, MODEL),
    (PackageError, MODEL),
    (DeviceError, DEVICE),
    (InternalError, FAULT),
    (TecError, COMPILER),
)


class Refused(click.ClickException):
    """A mistake in the arguments; the line says what and how to mend it."""

    exit_code = USAGE

    def __init__(self, message: str, hint: str = "", code: int = USAGE):
        super().__init__(f"{joined(message)} ({hint})" if hint else joined(message))
        self.exit_code = code  # type: ignore[misc]  # click reads it from the instance


def code_of(error: TecError) -> int:
    """The exit code of an error."""
    return next(code for kind, code in _CODES if isinstance(error, kind))


def say(text: str) -> None:
    """A line on stderr."""
    try:
        click.echo(f"tec: {one_line(text)}", err=True)
    except OSError:
        return  # nobody listens


def quit_quietly(code: int) -> NoReturn:
    """Exit where stdout is gone: it must not be flushed again at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass
    sys.exit(code)


# Options of TensorRT's, ONNX Runtime's, IREE's, LLVM's, Ollama's and llama.cpp's commands, and what they are here.
_MEANT = {
    **dict.fromkeys(("shape", "shapes", "input-shape", "input-shapes", "dims", "batch", "batch-size"), "--input-dim"),
    **dict.fromkeys(("input", "data", "load-inputs"), "--inputs"),
    **dict.fromkeys(("arch", "mcpu", "march", "gpu", "backend", "offload-arch", "gpu-arch", "hal-target-backends"), "--target"),
    **dict.fromkeys(("fp16", "bf16", "precision", "half", "type"), "--dtype"),
    **dict.fromkeys(("iterations", "iters", "runs", "loops"), "--repeat"),
    **dict.fromkeys(("export-profile", "trace", "dump-profile"), "--profile"),
    **dict.fromkeys(("n-predict", "max-new-tokens", "num-predict", "tokens"), "--max-tokens"),
    **dict.fromkeys(("ctx-size", "ctx", "num-ctx", "max-model-len", "n-ctx"), "--context"),
    **dict.fromkeys(("cache-type-k", "cache-type-v", "kv-cache-dtype", "kv-cache-type", "ctk", "ctv"), "--cache-type"),
    **dict.fromkeys(("temp",), "--temperature"), **dict.fromkeys(("repeat-penalty",), "--repetition-penalty"),
    **dict.fromkeys(("num-beams", "beam-size"), "--beams"), **dict.fromkeys(("n", "num-return-sequences", "num-samples"), "--samples"), **dict.fromkeys(("prompt-cache", "session"), "--state"),
    **dict.fromkeys(("json-schema", "grammar"), "--schema"), **dict.fromkeys(("draft-model", "model-draft"), "--draft"),
}  # fmt: skip


def _meant(error: click.UsageError) -> str | None:
    """What to say of another tool's option that the command has under its own name; None of anything else."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return None
    ours = _MEANT.get(error.option_name.lstrip("-").replace("_", "-"))
    has = any(ours in p.opts for p in error.ctx.command.params)
    return f"No such option {error.option_name!r}: {ours}" if has else None


def guarded(run: Any) -> NoReturn:
    """Run `run()`, turn what it raises into one line and an exit code, and exit."""
    try:
        result = run()
        sys.stdout.flush()
        sys.exit(result if isinstance(result, int) else OK)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        quit_quietly(PIPE)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(USAGE)
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx is not None else "tec"
        text = (_meant(error) or error.format_message()).replace("\n", " ").rstrip(".")
        say(f"{text} (see {where} --help)")
        sys.exit(USAGE)
    except click.ClickException as error:
        say(error.format_message())
        sys.exit(error.exit_code)
    except TecError as error:
        if os.environ.get("TEC_TRACEBACK"):
            traceback.print_exc()
        say(error.summary)
        sys.exit(code_of(error))
    except MemoryError:
        say("out of memory")
        sys.exit(FAULT)
    except ImportError as error:
        name = (error.name or str(error)).partition(".")[0]
        extra = {"onnx": "onnx", "rich": "cli", "distributed": "tune"}.get(name)
        if extra is None and name != "onnxruntime":
            _fault(error)
        say(f"this needs the package {name} ({install(extra) if extra else 'pip install ' + name})")
        sys.exit(USAGE)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        say(f"{name}{error.strerror or error}")
        sys.exit(USAGE)
    except Exception as error:
        _fault(error)


def _fault(error: Exception) -> NoReturn:
    if os.environ.get("TEC_TRACEBACK"):
        traceback.print_exc()
    text = " ".join(str(error).split())[:300]
    command = shlex.join(sys.argv[1:]) or "COMMAND"
    say(
        f"a fault inside tec: {type(error).__name__}: {text} (please report it: tec doctor --report fault.json -- {command}; "
        "TEC_TRACEBACK=1 shows where)"
    )
    sys.exit(FAULT)
