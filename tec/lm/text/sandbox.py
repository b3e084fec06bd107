"""Jinja2 for templates that strangers wrote: its sandbox, and limits on what the sandbox lets through: loops, calls, and sizes of texts.

jinja2's `ImmutableSandboxedEnvironment` keeps a template from Python's own attributes and from changing what it is given. It does not keep it from running for
ever or from filling the memory, so here every loop and call takes from a budget, and what can make a text long asks for its length first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import wraps
from typing import Any

from ...errors import ImportModelError, MissingPackageError, TecError, install

STEPS = 300_000  # of one rendering: a round of a loop is one; a conversation of 1,000 messages takes some 50,000
CALL = 5  # steps of a call, which may be a macro: 20 us
LENGTH = 16 << 20  # characters that a text may have while a template is rendered
SOURCE = 1 << 20  # characters of a template; the longest known one has 30,000
_FILTERS = (
    "abs attr bool capitalize count d default dictsort e escape first float forceescape groupby int items join last length list lower map max min "
    "reject rejectattr replace reverse round safe select selectattr sort string striptags sum title trim truncate unique upper urlencode wordcount"
).split()
_MOST_PARTS = 10_000  # of a list that is cut up
_WIDTH = re.compile(r"\d{4,}")
_GIVEN_WIDTH = re.compile(r"%[-+ #0-9.]*\*|\{[^}]*\{")


class TemplateFault(TecError):
    """A chat template that is wrong, breaks a limit, or refuses its messages."""


class _Stop(Exception):
    """A limit that is reached."""


def package() -> Any:
    """jinja2 with its parts. Raises MissingPackageError."""
    try:
        import jinja2
        import jinja2.ext
        import jinja2.nodes
        import jinja2.sandbox
        import jinja2.visitor
    except ImportError:
        raise MissingPackageError("a chat template", "jinja2", install("lm")) from None
    return jinja2


class Compiled:
    """A template, ready to be rendered. Raises ImportModelError for what is no template of jinja2."""

    def __init__(self, source: str):
        j = package()
        if len(source) > SOURCE:
            raise ImportModelError(f"the chat template has {len(source)} characters", hint=f"{SOURCE} at most")
        self._errors = (j.exceptions.TemplateError, j.exceptions.SecurityError)
        self.environment = _environment(j)
        try:
            tree = _Limits(j).visit(self.environment.parse(source))
            self._code = self.environment.compile(tree)
        except (*self._errors, RecursionError) as error:
            raise ImportModelError(
                f"the chat template is wrong: {_said(error)}",
                hint="a template of your own: the file chat_template.jinja in the model's folder",
            ) from None
        self._template = j.Template.from_code(self.environment, self._code, self.environment.make_globals(None))

    def render(self, values: dict[str, Any]) -> str:
        """The text. Raises TemplateFault where the template breaks a limit, does what the sandbox forbids, or calls `raise_exception`."""
        self.environment.left = STEPS
        try:
            parts, length = [], 0
            for part in self._template.generate(values):
                length += len(part)
                if length > LENGTH:
                    raise _Stop(f"it writes more than {LENGTH} characters")
                parts.append(part)
            return "".join(parts)
        except _Stop as stop:
            raise TemplateFault(
                f"the chat template is stopped: {stop}", hint="the file's template is broken or hostile"
            ) from None
        except RecursionError:
            raise TemplateFault("the chat template is stopped: its macros call each other without an end") from None
        except self._errors as error:
            raise TemplateFault(f"the chat template fails: {_said(error)}") from None
        except (TypeError, ValueError, KeyError, IndexError, ArithmeticError, AttributeError, MemoryError) as error:
            raise TemplateFault(f"the chat template fails: {type(error).__name__}: {_said(error)}") from None


def _said(error: BaseException) -> str:
    text, line = str(error), getattr(error, "lineno", None)
    return (text[:500] or type(error).__name__) + (f" (line {line})" if line else "")


def _sized(value: Any) -> Any:
    """A value, unless it is longer than a text may be."""
    if isinstance(value, (str, list, tuple)) and len(value) > LENGTH:
        raise _Stop(f"it makes a text or a list of {len(value)}")
    return value


def _check_product(a: Any, b: Any) -> None:
    for text, times in ((a, b), (b, a)):
        if isinstance(text, (str, list, tuple)) and isinstance(times, int) and len(text) * max(times, 0) > LENGTH:
            raise _Stop(f"it makes a text of {len(text)} times {times}")


def _check_power(a: Any, b: Any) -> None:
    if isinstance(b, (int, float)) and abs(b) > 64:
        raise _Stop(f"it raises to the power of {b}")


def _check_format(a: Any, b: Any) -> None:
    if isinstance(a, str) and (_WIDTH.search(a) or _GIVEN_WIDTH.search(a)):
        raise _Stop("it formats a text with a width of thousands, or one that is given with the values")


_OPERATORS: dict[str, Callable[[Any, Any], None]] = {"*": _check_product, "**": _check_power, "%": _check_format}


def _check_call(f: Any, args: tuple[Any, ...]) -> None:
    """Methods of texts that can make them long."""
    text, name = getattr(f, "__self__", None), getattr(f, "__name__", "")
    if not isinstance(text, str):
        return
    if name in ("ljust", "rjust", "center", "zfill", "expandtabs"):
        if any(isinstance(a, int) and a * (text.count("\t") + 1) > LENGTH for a in args):
            raise _Stop(f"it makes a text of {args[0]} characters")
    elif name == "replace" and len(args) > 1:
        _check_replace(text, args[0], args[1])
    elif name == "join" and args:
        _check_join(text, args[0])


def _check_replace(text: Any, old: Any, new: Any) -> None:
    if all(isinstance(x, str) for x in (text, old, new)) and (text.count(old) + 1) * len(new) > LENGTH:
        raise _Stop("it replaces letters by long texts")


def _check_join(between: Any, items: Any) -> None:
    if hasattr(items, "__len__") and isinstance(between, str) and len(items) * len(between) > LENGTH:
        raise _Stop("it joins texts by long ones")


def _replace(value: Any, old: Any, new: Any, count: int | None = None) -> Any:
    _check_replace(str(value), old, new)
    return str(value).replace(str(old), str(new), -1 if count is None else count)


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """JSON as it stands in prompts: letters of all scripts as they are, and no sign escaped for HTML."""
    if isinstance(indent, int) and indent > 16:
        raise _Stop(f"it indents JSON by {indent}")
    return json.dumps(
        value, ensure_ascii=bool(ensure_ascii), indent=indent, separators=separators, sort_keys=bool(sort_keys)
    )


def _guarded(known: Callable[..., Any], check: Callable[..., None]) -> Callable[..., Any]:
    """A filter of jinja2 behind a check of what it is given."""

    @wraps(known)
    def checked(*args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return _sized(known(*args, **kwargs))

    return checked


def _check_indent(text: Any, width: Any = 4, *_: Any, **__: Any) -> None:
    each = len(width) if isinstance(width, str) else width
    if isinstance(each, int) and each * (str(text).count("\n") + 1) > LENGTH:
        raise _Stop(f"it indents a text by {each}")


def _check_width(text: Any, width: Any = 80, *_: Any, **__: Any) -> None:
    if isinstance(width, int) and width > LENGTH:
        raise _Stop(f"it makes a text of {width} characters")


def _check_parts(*args: Any, **kwargs: Any) -> None:
    """Of `batch` and `slice`, before whose arguments jinja2 may put a context."""
    if any(isinstance(n, int) and n > _MOST_PARTS for n in (*args, *kwargs.values())):
        raise _Stop(f"it cuts a list into more than {_MOST_PARTS} parts")


_CHECKED: dict[str, Callable[..., None]] = {
    "indent": _check_indent, "center": _check_width, "batch": _check_parts, "slice": _check_parts,
    "format": lambda text, *args, **kwargs: _check_format(text, None),
}  # fmt: skip


def _environment(j: Any) -> Any:
    """Jinja's sandbox with a limit of steps, so that no template runs without end or makes a text without bound."""

    class Environment(j.sandbox.ImmutableSandboxedEnvironment):  # type: ignore[misc]
        intercepted_binops = frozenset(_OPERATORS)
        left = STEPS

        def step(self, count: int = 1) -> None:
            self.left -= count
            if self.left < 0:
                raise _Stop(f"it takes more than {STEPS} steps")

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            _OPERATORS[operator](left, right)
            return super().call_binop(context, operator, left, right)

        def call(self, context: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            self.step(CALL)
            _check_call(f, (*args, *kwargs.values()))
            return _sized(super().call(context, f, *args, **kwargs))

        def wrap_str_format(self, value: Any) -> Any:
            """`str.format`, by jinja2's formatter that looks into no objects."""
            wrapped = super().wrap_str_format(value)
            if wrapped is None:
                return None

            def checked(*args: Any, **kwargs: Any) -> Any:
                _check_format(value.__self__, None)
                return wrapped(*args, **kwargs)

            return checked

        def rounds(self, items: Iterable[Any]) -> Iterator[Any]:
            for item in items:
                self.step()
                yield item

    made = Environment(trim_blocks=True, lstrip_blocks=True, extensions=[j.ext.loopcontrols, _generation(j)])
    known = made.filters
    made.filters = {name: known[name] for name in _FILTERS if name in known}
    made.filters |= {name: _guarded(known[name], check) for name, check in _CHECKED.items()}
    made.filters |= {"tojson": _tojson, "replace": _replace, "_sized": _sized, "_rounds": made.rounds}
    made.globals = {k: v for k, v in made.globals.items() if k in ("range", "dict", "namespace", "cycler", "joiner")}
    made.globals |= {
        "raise_exception": _raiser(j),
        "strftime_now": lambda form: datetime.now().strftime(str(form)[:100]),
    }
    return made


def _raiser(j: Any) -> Any:
    def raise_exception(message: Any) -> None:
        raise j.exceptions.TemplateError(str(message))

    return raise_exception


def _generation(j: Any) -> Any:
    class Generation(j.ext.Extension):  # type: ignore[misc]
        """{% generation %} marks what an assistant wrote, which only matters for training."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(["name:endgeneration"], drop_needle=True)

    return Generation


def _Limits(j: Any) -> Any:
    nodes = j.nodes

    class Limits(j.visitor.NodeTransformer):  # type: ignore[misc]
        """Puts budgets into a template: its loops go over `_rounds`, and texts that grow pass `_sized`."""

        def visit_For(self, node: Any) -> Any:
            self.generic_visit(node)
            node.iter = nodes.Filter(node.iter, "_rounds", [], [], None, None, lineno=node.lineno)
            return node

        def sized(self, node: Any) -> Any:
            self.generic_visit(node)
            return nodes.Filter(node, "_sized", [], [], None, None, lineno=node.lineno)

        visit_Concat = visit_Add = sized

    return Limits()
