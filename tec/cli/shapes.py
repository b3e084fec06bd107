"""The shapes of a model's inputs: from --input-dim, from the files of --inputs, and 1 for a batch that nobody gave.

In: an ONNX file and the words of the command line. Out: what `tec.compile(shapes=...)` takes, or one line that says which sizes
are open and how to give them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ..errors import ImportModelError
from .errors import Refused, say

_DIM = re.compile(r"\d+$")
_NUMBER = re.compile(r"-?\d+$")
_WORD = re.compile(r"[A-Za-z_]\w*$")  # without a dot, which names of files have
_NAME = re.compile(r"[A-Za-z_][\w.]*$")

Dim = int | str | None
Known = Mapping[str, tuple[str, list[Dim]] | None]


def open_option(f: Any) -> Any:
    """--open NAME."""
    return click.option(
        "--open", "keep", multiple=True, metavar="NAME", help="A named dimension whose size stays open: one package for any."
    )(f)  # fmt: skip


def join_dims(args: Sequence[str]) -> list[str]:
    """`--input-dim x 1 3 8` and `--input-dim x batch 3 8` as `--input-dim=x=1,3,8` and `--input-dim=x=batch,3,8`; other words stay as they are.

    A word is a dimension's name only where a size follows behind it: the last word of a command is its model.
    """
    out: list[str] = []
    k = 0
    while k < len(args):
        word = args[k]
        k += 1
        if word == "--":
            return [*out, word, *args[k:]]
        if word != "--input-dim" or k == len(args) or args[k].startswith("-"):
            out.append(word)
            continue
        name = args[k].removeprefix("@")
        k += 1
        dims: list[str] = []
        end = k
        while end < len(args) and (number := _NUMBER.match(args[end]) or _WORD.match(args[end])):
            end += 1
            if number.re is _NUMBER:
                dims, k = [*dims, *args[k:end]], end
        out.append(f"--input-dim={name}{'=' + ','.join(dims) if dims else ''}")
    return out


def parse_dims(values: Sequence[str]) -> dict[str, tuple[int | str, ...]]:
    """`x=1,3,8`, `x=1x3x8` or `x=batch,3,8` to shapes; names stay open. Refused where it is neither."""
    shapes: dict[str, tuple[int | str, ...]] = {}
    for text in values:
        name, eq, rest = text.rpartition("=")
        words = [w for w in re.split("," if re.search("[A-Za-wyz_]", rest) else "[,x ]", rest) if w] if eq else []
        if (
            not name
            or not all(_DIM.match(w) or (_NAME.match(w) and "," in rest) for w in words)
            or (eq and rest and not words)
        ):
            raise Refused(
                f"--input-dim {text.replace('=', ' ').replace(',', ' ')}: a name and its sizes are wanted",
                f"as in --input-dim input 1 3 224 224{'; tec compile --open NAME leaves a dimension open' if _may_open() else ''}",
            )
        shapes[name] = tuple(int(w) if _DIM.match(w) else w for w in words)
    return shapes


def shapes_for(
    front: Any, path: Path, dims: Sequence[str], arrays: Mapping[str, Any] | None = None, keep: Sequence[str] = ()
) -> dict[str, Any] | None:
    """Shapes of the inputs whose sizes the model leaves open; None where it leaves none.

    A single size under no input's name is that of a named dimension. Sizes that --input-dim does not give are those of
    `arrays`, the files of --inputs; a first dimension that is still open, the batch, is 1, and a line on stderr says so.
    Dimensions named in `keep`, or by a name among the sizes, stay open. Refused where another does, or does not fit.
    """
    shapes: dict[str, Any] = dict(parse_dims(dims))
    model = front.load_model(str(path))
    known: Known = front.input_info(model)
    for name, shape in shapes.items():
        if name in known:
            continue
        if len(shape) != 1 or not any(e and name in e[1] for e in known.values()):
            raise Refused(f"the model has no input {name!r}", f"inputs: {', '.join(known)}")
        shapes[name] = shape[0]
    for name, array in (arrays or {}).items():
        entry = known.get(name)
        if entry is None or name in shapes or all(isinstance(d, int) for d in entry[1]):
            continue
        if len(entry[1]) != array.ndim:
            raise Refused(f"input {name!r} has shape {_text(entry)}, the array given for it shape {array.shape}")
        shapes[name] = tuple(array.shape)
    missing = [n for n in keep if not any(e and n in e[1] for e in known.values())]
    if missing:
        named = sorted({str(d) for e in known.values() if e for d in e[1] if _named(d)})
        raise Refused(
            f"the model has no dimension {missing[0]!r}", f"dimensions with a name: {', '.join(named) or 'none'}"
        )
    kept = {*keep, *(d for s in shapes.values() if isinstance(s, tuple) for d in s if isinstance(d, str))}
    note = _close(known, shapes, kept)
    try:
        front.bind_shapes(model, shapes)
    except ImportModelError as error:  # a wrong shape is a wrong argument, whatever part finds it out
        raise Refused(error.message, error.hint or "") from error
    if note:
        _note(note)
    return shapes or None


def _close(known: Known, shapes: dict[str, Any], kept: Collection[str] = ()) -> str:
    """Put 1 for first dimensions that are open, in `shapes`; the line that says so. Refused where others than `kept` are open."""

    def settled(d: Dim) -> bool:
        return isinstance(d, int) or d in kept

    sizes: dict[str, Any] = {name: d for name, d in shapes.items() if isinstance(d, int)}
    for name, given in shapes.items():
        entry = known.get(name)
        if entry is not None and not isinstance(given, int):
            sizes |= {d: n for d, n in zip(entry[1], given) if isinstance(d, str) and _named(d)}
    assumed: dict[str, str] = {}
    still: dict[str, list[Dim]] = {}
    for name, entry in known.items():
        if entry is None or name in shapes:
            continue
        now: list[Dim] = [sizes.get(str(d), d) if _named(d) else d if isinstance(d, int) else None for d in entry[1]]
        if now and not settled(now[0]):
            if _named(now[0]):
                sizes[str(now[0])] = 1
            assumed[name] = repr(now[0]) if _named(now[0]) else "the first size"
            now[0] = 1
        still[name] = now
    # A size that one input's batch has settled is settled for all.
    still = {n: [sizes.get(d, d) if isinstance(d, str) else d for d in dims] for n, dims in still.items()}
    opened = {n: dims for n, dims in still.items() if not all(map(settled, dims))}
    if opened:
        letters = iter("NMKHWDLPQRST" * 8)
        named: dict[str, str] = {}
        words = []
        for name, dims in opened.items():
            shown = [str(d) if isinstance(d, int) else named.setdefault(d, next(letters)) if d else next(letters) for d in dims]  # fmt: skip
            words.append(f"--input-dim {name} {' '.join(shown)}")
        letter = next((d for dims in opened.values() for d in dims if isinstance(d, str)), None)
        shapes_text = ", ".join(f"{n} {_text(known[n])}" for n in opened)
        raise Refused(
            f"the model leaves sizes of {'an input' if len(opened) == 1 else 'inputs'} open: {shapes_text}",
            f"give them: {' '.join(words)}, or arrays with --inputs"
            + (f"; --open {letter} leaves one open" if letter else ""),
        )
    shapes.update({n: tuple(dims) for n, dims in still.items() if n in assumed})
    if not assumed:
        return ""
    parts = [f"{n} {_text(known[n])}: {d} is 1" for n, d in assumed.items()]
    names = [d.strip("'") for d in assumed.values() if d.startswith("'")]
    leave = f"; --open {names[0]} leaves it open" if names and _may_open() else ""
    return f"note: {'; '.join(parts)} (--input-dim NAME D... gives another{leave})"


def _may_open() -> bool:
    """Whether the command that runs has --open."""
    context = click.get_current_context(silent=True)
    return context is not None and any("--open" in p.opts for p in context.command.params)


def settle(net: Any, dims: Sequence[str], arrays: Mapping[str, Any]) -> Any:
    """A compiled network with open sizes at those of --input-dim and of `arrays`; 1 for the rest, and a line says so."""
    names = net.open_sizes
    if not names:
        return net
    sizes: dict[str, Any] = {}
    shapes = {i["name"]: i["shape"] for i in net.inputs}
    given = [
        *((n, s, "--input-dim") for n, s in parse_dims(dims).items()),
        *((n, a.shape, "--inputs") for n, a in arrays.items()),
    ]
    for name, shape, option in given:
        own = shapes.get(name, [name] if name in names else None)
        if own is None or len(own) != len(shape) or any(isinstance(d, str) for d in shape):
            raise Refused(
                f"{option} {name}: {tuple(shape)} does not fit",
                "; ".join(f"{n} ({', '.join(map(str, s))})" for n, s in shapes.items()),
            )
        for d, n in zip(own, shape):
            if isinstance(d, str) and sizes.setdefault(d, n) != n:
                raise Refused(f"size {d} is {sizes[d]} and {n}")
    assumed = [n for n in names if n not in sizes]
    if assumed:
        _note(f"note: {', '.join(f'{n} is 1' for n in assumed)} (--input-dim NAME SIZE gives another)")
    return net.bind({**dict.fromkeys(assumed, 1), **sizes})


def _note(text: str) -> None:
    """A line on stderr, once a command."""
    context = click.get_current_context(silent=True)
    said = context.meta.setdefault("tec.notes", set()) if context is not None else set()
    if text not in said:
        said.add(text)
        say(text)


def _named(d: Dim) -> bool:
    """Whether it is a dimension with a name of its own: exporters write "?" for one without."""
    return isinstance(d, str) and bool(d.strip("?"))


def _text(entry: tuple[str, list[Dim]] | None) -> str:
    dims = entry[1] if entry else []
    return "(" + ", ".join(str(d) if d is not None else "?" for d in dims) + ("," if len(dims) == 1 else "") + ")"
