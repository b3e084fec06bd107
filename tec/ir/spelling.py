"""What fields of the compiler's nodes are called elsewhere.

`names` holds, by class, the names that users of TVM know and the path of the same value here (`For.loop_var` is `For.var`). A node that is asked for
a name it has not says so with tec's spelling. Once `tec.compat.tvm` is imported (`accept`), it answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ..likeness import meant

# class -> {a name elsewhere: the path here}
NAMES: dict[str, dict[str, str]] = {
    "For": {"loop_var": "var", "thread_binding": "thread"},
    "Alloc": {"buffer_var": "buffer.data", "extents": "buffer.shape", "dtype": "buffer.dtype"},
    "Attr": {"attr_key": "note.word"},
    "IfThenElse": {"condition": "cond", "then_case": "then", "else_case": "orelse"},
    "While": {"condition": "cond"},
    "Assert": {"condition": "cond"},
    "Seq": {"seq": "stmts"},
    "Select": {"condition": "cond", "true_value": "a", "false_value": "b"},
    "Call": {"name": "op"},
    "TensorRead": {"producer": "tensor"},
    "Func": {"buffer_map": "params"},
}

# What stands elsewhere, and how it is written here: class -> {a name: the call here}.
PLACES: dict[str, dict[str, str]] = {
    "Stage": {
        "cache_read": "s.cache_read(A, scope, [B])", "cache_write": "s.cache_write(B, scope)", "rfactor": "s.rfactor(B, axis)",
        "axis": "s[B].op.axis", "reduce_axis": "s[B].op.reduce_axis", "compute_with": "s[B].compute_at(s[C], axis)",
        "reverse_compute_at": "s[A].compute_at(s[B], axis), of the stage that is read", "unroll_explicit": 's[B].pragma(axis, "unroll_explicit", True)',
        "set_storage_scope": "s[B].set_scope(scope)", "annotate": "s[B].pragma(axis, name, value)",
    },
    "Schedule": {
        **dict.fromkeys(
            "split tile fuse reorder bind vectorize unroll parallel tensorize pragma compute_at compute_inline compute_root set_scope double_buffer "
            "storage_align prefetch software_pipeline".split(), "s[B]"),
        "get_block": "the stage of a tensor is s[B]", "get_loops": "s[B].op.axis", "mod": "tec.lower(s, args)",
        "normalize": "tec.lower(s, args) does it",
    },
}  # fmt: skip

_READ: dict[tuple[type, str], Callable[[Any], Any]] = {}


def accept(cls: type, names: Mapping[str, str | Callable[[Any], Any]]) -> None:
    """From here on nodes of `cls` (and of what derives from it) answer to `names`, each by a path of theirs or a function of the node."""
    for name, what in names.items():
        _READ[cls, name] = attrgetter(what) if isinstance(what, str) else what


class Spelled:
    """Base of what users hold: a name that it has not is looked up among those of elsewhere."""

    __slots__ = ()

    if not TYPE_CHECKING:  # what a checker does not see here stays a mistake to it

        def __getattr__(self, name: str) -> Any:
            for cls in type(self).__mro__:
                read = _READ.get((cls, name))
                if read is not None:
                    return read(self)
            raise AttributeError(_missing(type(self), name))


@lru_cache(1024)  # programs ask again and again whether a node has this or that
def _missing(cls: type, name: str) -> str:
    said = f"{cls.__name__!r} object has no attribute {name!r}"
    if name.startswith("__"):
        return said
    for base in cls.__mro__:
        known = NAMES.get(base.__name__, {}).get(name)
        if known is not None:
            return f"{said}: tec calls it {known!r}"
        place = PLACES.get(base.__name__, {}).get(name)
        if place is not None:
            return f"{said}: {place}.{name} of a stage" if place == "s[B]" else f"{said}: {place}"
    question = meant(name, dir(cls))
    return f"{said}; {question}" if question else said
