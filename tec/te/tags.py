"""Tag scopes: computes made inside `with tag_scope("injective"):` carry the tag."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from ..errors import ExprError

_TAG: ContextVar[str] = ContextVar("tec_tag", default="")


class TagScope:
    """A context manager and a decorator; see `tag_scope`."""

    def __init__(self, tag: str):
        if not isinstance(tag, str) or not tag:
            raise ExprError(f"a tag is text, not {tag!r}", hint='with tec.tag_scope("conv2d"): ...')
        self.tag = tag

    def __enter__(self) -> TagScope:
        if _TAG.get():
            raise ExprError(f"tag_scope {self.tag!r} inside of tag_scope {_TAG.get()!r}", hint="tag scopes do not nest")
        _TAG.set(self.tag)
        return self

    def __exit__(self, *exc: Any) -> None:
        _TAG.set("")  # scopes do not nest

    def __call__(self, f: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(f)
        def tagged(*args: Any, **kwargs: Any) -> Any:
            with TagScope(self.tag):
                return f(*args, **kwargs)

        return tagged


def tag_scope(tag: str) -> TagScope:
    """Gives `tag` to every compute, scan and extern made inside.

    >>> A = tec.placeholder((64,), name="A")
    >>> with tec.tag_scope("injective"):
    ...     B = tec.compute(A.shape, lambda i: A[i] * 2)
    >>> B.op.tag
    'injective'
    """
    return TagScope(tag)


def current_tag() -> str:
    """The tag of the innermost scope, or ""."""
    return _TAG.get()
