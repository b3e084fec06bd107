"""tvm.target: `Target("cuda")`, `Target("llvm -mcpu=...")`, `Target.current()`, and targets by function."""

from __future__ import annotations

import shlex
import types
from typing import Any

from tec.errors import TargetError
from tec.target import Target as _Target
from tec.target import as_target

from .devices import emulated_chip, stands_for_cuda
from .names import absent

# TVM's options that say what tec finds out by itself, or has no use for.
_UNUSED = (
    "libs",
    "device",
    "model",
    "keys",
    "tag",
    "link-params",
    "system-lib",
    "runtime",
    "opt-level",
    "jit",
    "unpacked-api",
    "interface-api",
)
_AMONG_OURS = {
    "stackvm": "llvm",
    "c": "llvm",
    "ext_dev": "llvm",
    "hybrid": "llvm",
    "nvptx": "cuda",
    "composite": "llvm",
}


class Kind(str):
    """A target's kind. TVM's programs ask for its `name`."""

    name: str

    def __new__(cls, kind: str, name: str = "") -> Kind:
        made = super().__new__(cls, kind)
        made.name = name or kind
        return made


class Target(_Target):
    """A target by TVM's text or dict. "cuda" stands for the AMD GPU in software where `devices` says so."""

    def __init__(self, target: Any = "llvm", host: Any = None):
        if isinstance(target, _Target):
            text, said = target.text, target.kind
        elif isinstance(target, dict):
            text, said = as_target({k: v for k, v in target.items() if k not in _UNUSED}).text, target.get("kind", "")
        else:
            text, said = _ours(str(target)), (str(target).split() or ["llvm"])[0]
        super().__init__(text, None if host is None else as_target(_plain(host)))
        object.__setattr__(self, "kind", Kind(self.kind, said))

    @staticmethod
    def current(allow_none: bool = True) -> Any:
        """The target of the `with` block around."""
        found = _Target.current()
        if found is None and not allow_none:
            raise TargetError("no target is entered", hint="with tvm.target.Target(...):")
        return found

    @property
    def max_num_threads(self) -> int:
        """Threads of a work-group; 1 on a CPU."""
        return self.max_threads if self.is_gpu else 1

    @property
    def thread_warp_size(self) -> int:
        """Lanes of a wavefront; 1 on a CPU."""
        return self.wavefront_size if self.is_gpu else 1

    @property
    def attrs(self) -> dict[str, str]:
        """Its options."""
        return dict(self.options)

    @property
    def model(self) -> str:
        """Its chip."""
        return self.mcpu


def _plain(target: Any) -> Any:
    return target if isinstance(target, _Target) else Target(target)


def _ours(text: str) -> str:
    words = shlex.split(text) or ["llvm"]
    kind, options = words[0], [w for w in words[1:] if w.lstrip("-").partition("=")[0] not in _UNUSED]
    kind = _AMONG_OURS.get(kind, kind)
    if kind == "cuda" and (chip := stands_for_cuda()):
        return f"rocm -mcpu={chip}"
    if kind == "rocm" and not any(w.startswith("-mcpu") for w in options) and (chip := emulated_chip()):
        options.append(f"-mcpu={chip}")
    return " ".join([kind, *options])


def plain(target: Any) -> Any:
    """A Target from what a TVM program gives: text, a dict, a Target, or None (the current one)."""
    return target if target is None or isinstance(target, _Target) else Target(target)


def create(target: Any) -> Target:
    """`Target(target)`, as it was called before TVM 0.8."""
    return Target(target)


def _by_name(kind: str) -> Any:
    def make(model: str = "", options: Any = None) -> Target:
        words = options.split() if isinstance(options, str) else list(options or [])
        return Target(" ".join([kind, *words]))

    make.__name__ = make.__qualname__ = kind
    make.__doc__ = (
        f'`Target("{kind}")`; the model\'s name is not needed: -mcpu (rocm, llvm) or -arch (cuda) names a chip.'
    )
    return make


cuda, rocm, llvm = _by_name("cuda"), _by_name("rocm"), _by_name("llvm")


def _intrinsic_id(name: str) -> str:
    return name


# LLVM's intrinsics are called by name here, so that a name is its own number.
codegen = types.SimpleNamespace(
    llvm_version_major=lambda allow_none=False: 22, llvm_lookup_intrinsic_id=_intrinsic_id, llvm_get_intrinsic_name=_intrinsic_id,
)  # fmt: skip

__path__: list[str] = []  # what stands below is found by `install`
__getattr__ = absent(__name__)
