"""tvm.transform: the context of lowering. tec's passes are one list (`tec.driver.PIPELINE`) that needs no configuration."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

from tec.errors import TecWarning

from .names import absent

__all__ = ["PassContext", "Sequential"]

# Options that say what tec does anyway, or that choose between ways to the same values.
_NO_EFFECT = ("tir.", "relay.", "te.")


class PassContext:
    """`with tvm.transform.PassContext(opt_level=3, config={...}):`. The options are kept and have no effect; one that is not TVM's warns."""

    _entered: ClassVar[list[PassContext]] = []

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Any = None,
        disabled_pass: Any = None,
        instruments: Any = None,
        config: dict[str, Any] | None = None,
        trace: Any = None,
    ):
        self.opt_level = opt_level
        self.config = dict(config or {})
        self.required_pass = list(required_pass or [])
        self.disabled_pass = list(disabled_pass or [])
        for key in self.config:
            if not key.startswith(_NO_EFFECT):
                warnings.warn(f"PassContext: the option {key!r} has no effect", TecWarning, stacklevel=2)

    def __enter__(self) -> PassContext:
        self._entered.append(self)
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered.pop()

    @staticmethod
    def current() -> PassContext:
        """The innermost context."""
        return PassContext._entered[-1] if PassContext._entered else PassContext()


class Sequential:
    """Passes one after another, as one."""

    def __init__(
        self, passes: Any, opt_level: int = 0, name: str = "sequential", required: Any = None, traceable: bool = False
    ):
        self.passes, self.name = list(passes), name

    def __call__(self, mod: Any) -> Any:
        """The module after all of them."""
        for change in self.passes:
            mod = change(mod)
        return mod


__getattr__ = absent(__name__)
