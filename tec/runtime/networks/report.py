"""What a compiler says of a network that it made: by function, and as a whole.

`to_json` and `from_json` as for plans. A network runs without one: tools show what is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import Any, TypeAlias

from ...errors import PackageError
from ...records import dataclass
from ..modules import exprs
from ..modules.package import damaged
from ..plans.plan import Size, number

# An int once sizes are bound, before that a `Size`. Programs calculate with counts of bound networks, so it is left open here.
Count: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Report:
    """Counts of operations are `Size`s: numbers once the sizes they depend on are bound."""

    functions: dict[str, list[str]] = field(default_factory=dict)  # the operators of each
    sources: dict[str, str] = field(default_factory=dict)  # the graph's nodes that it was made of
    origins: dict[str, list[str]] = field(default_factory=dict)  # the model's nodes, one for each step that calls it
    function_flops: dict[str, Count] = field(default_factory=dict)
    choices: dict[str, dict[str, Any]] = field(default_factory=dict)  # {"signature", "choice"}: how each is computed
    # Choices that could not be made, by function, in the order they were tried: {"template", "choice", "rank", "stage", "error", "reason", "slower"}.
    # stage: where it ended ("match", "choice", "build", "loops", "lowering", "code"); slower: how many times longer what serves should take, or None.
    refused: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    lower_seconds: float = 0.0  # until all are loops
    compile_seconds: float = 0.0  # in all
    arena_bytes: Count | None = None  # working memory, where sizes are numbers
    arena_lower_bound: Count | None = None  # what no plan could do without
    flops: Count = 0

    def bind(self, env: Mapping[str, int], arena_bytes: Size | None) -> Report:
        """For given sizes. PackageError for a count that cannot be worked out."""
        try:
            counts: dict[str, Size] = {f: number(e, env) for f, e in self.function_flops.items()}
            flops = number(self.flops, env)
        except (ArithmeticError, ValueError, TypeError, KeyError) as error:
            raise damaged(f"a count of its report cannot be worked out: {type(error).__name__}: {error}") from None
        return replace(self, function_flops=counts, flops=flops, arena_bytes=arena_bytes)

    def to_json(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_json(cls, data: Any) -> Report:
        """The report of plain data; PackageError for what is none."""
        if not isinstance(data, dict):
            raise damaged("it has no report")
        out: dict[str, Any] = {}
        for f in fields(cls):
            value = data.get(f.name)
            if not _CHECKS[f.name](value):
                raise damaged(f"{f.name} of its report is {repr(value)[:60]}")
            out[f.name] = {} if value is None and f.name in _LATER else value
        return cls(**out)


_LATER = ("choices", "refused")  # packages from before have none


def _is_size(e: Any) -> bool:
    try:
        exprs.compile_expr(e)
    except PackageError:
        return False
    return not isinstance(e, bool)


def _by_function(of: Any) -> Any:
    return lambda x: isinstance(x, dict) and all(isinstance(k, str) and of(v) for k, v in x.items())


def _is_text(x: Any) -> bool:
    return isinstance(x, str)


def _is_texts(x: Any) -> bool:
    return isinstance(x, list) and all(map(_is_text, x))


def _is_chosen(x: Any) -> bool:
    return isinstance(x, dict) and _is_text(x.get("signature")) and isinstance(x.get("choice"), dict)


def _is_refused(x: Any) -> bool:
    return isinstance(x, list) and all(
        isinstance(r, dict) and all(map(_is_text, map(r.get, ("template", "rank", "stage", "error", "reason"))))
        for r in x
    )


def _is_seconds(x: Any) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool)


_CHECKS = {
    "functions": _by_function(_is_texts), "sources": _by_function(_is_text), "origins": _by_function(_is_texts),
    "function_flops": _by_function(_is_size), "choices": lambda x: x is None or _by_function(_is_chosen)(x), "lower_seconds": _is_seconds, "compile_seconds": _is_seconds,
    "refused": lambda x: x is None or _by_function(_is_refused)(x),
    "arena_bytes": lambda x: x is None or _is_size(x), "arena_lower_bound": lambda x: x is None or _is_size(x),
    "flops": _is_size,
}  # fmt: skip
