"""What programs written for Triton ask of a kernel besides launching it: its text, its parameters one by one, and what all that is launched has."""

from __future__ import annotations

import hashlib
import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any

from ..records import dataclass


@dataclass(frozen=True, slots=True)
class Parameter:
    """A kernel's parameter as Triton tells of it. `default` is `inspect.Parameter.empty` where it has none."""

    num: int
    name: str
    is_constexpr: bool
    default: Any
    annotation: Any
    do_not_specialize: bool = False
    do_not_specialize_on_alignment: bool = False


class KernelInterface:
    """What is launched as `kernel[grid](*arguments)`: a class of one has a method `run`, which takes the grid by name."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return lambda *args, **named: self.run(*args, grid=grid, **named)

    def run(self, *args: Any, grid: Any = None, warmup: bool = False, **named: Any) -> Any:
        """Launch."""
        raise NotImplementedError


class KernelText(KernelInterface):
    """A kernel's text and parameters."""

    fn: Any
    _text: str | None
    _alike: tuple[Any, ...]  # names or numbers of parameters that compiled code is not specialised for

    @property
    def constants(self) -> list[str]:
        """The parameters that are `tl.constexpr`."""
        raise NotImplementedError

    @property
    def src(self) -> str:
        """The function's text from its def on, as Triton has it: programs paste it into others under decorators of their own."""
        text = self._text if self._text is not None else textwrap.dedent(inspect.getsource(self.fn))
        found = re.search(r"^def\s+\w+\s*\(", text, re.MULTILINE)
        return text if found is None else text[found.start() :]

    @src.setter
    def src(self, text: str) -> None:
        self._unsafe_update_src(text)

    def _unsafe_update_src(self, text: str) -> None:
        """Take another text for the function's, as Triton's tests do."""
        raise NotImplementedError

    @property
    def cache_key(self) -> str:
        """A name for the function's text, which files that are kept for it may go by."""
        return hashlib.sha256(f"{self.fn.__module__}.{self.fn.__name__}\n{self.src}".encode()).hexdigest()

    @property
    def signature(self) -> inspect.Signature:
        """The function's signature."""
        return inspect.signature(self.fn)

    @property
    def params(self) -> list[Parameter]:
        """The parameters one by one, as Triton's programs ask for them."""
        constants, found = set(self.constants), []
        for k, p in enumerate(self.signature.parameters.values()):
            alike = [p.name in names or k in names for names in self._alike]
            found.append(Parameter(k, p.name, p.name in constants, p.default, p.annotation, *alike))
        return found
