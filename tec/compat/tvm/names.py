"""What a TVM user may ask for that is not here, and what tec has in its place.

Each module of this package hands its `__getattr__` to `absent`, so that a name that is missing says where to look.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any, NoReturn

from tec.errors import TecError

# A name of TVM's, from below `tvm.`, and what to use here; a name stands for all below it.
ELSEWHERE = {
    "relax": "tec.compile takes ONNX models and torch modules; tec.graph holds networks",
    "relay.build": "relay.frontend.from_onnx(model) then relay.build(mod, target): networks from other sources go through tec.compile",
    "relay.quantize": "quantize the ONNX model (QDQ); tec.compile takes it",
    "relay.frontend": "tec.compile takes ONNX files and torch modules; other formats are exported to ONNX first",
    "relay": "tec.compile takes ONNX files and torch modules; tec.graph.builders puts networks together",
    "meta_schedule": "tec.tune(...) searches schedules",
    "auto_scheduler": "tec.tune(...) searches schedules",
    "micro": "tec.compile(...).save(path) makes packages; there is no code for bare metal",
    "rpc": "tec.tune(..., executor=...) takes workers of other machines; code for another machine is saved by f.save(path) and loaded there by tec.load_module",
    "contrib.cc": "f.save(path) writes a module, tec.load_module reads it: no compiler is needed",
    "contrib.debugger": "net.profile() shows each step's time; tec.profile(device) each launch's",
    "contrib": "tec.topi and tec.ops have the operators; tec.te.extern calls outside code",
    "script": "TVMScript is read as far as functions beside te write it; te.hybrid.script and tec.kernel are loops in Python too",
    "tir.schedule": "schedules are te's: tec.create_schedule(C.op)",
    "tir.Schedule": "schedules are te's: tec.create_schedule(C.op)",
    "tir.Block": "loop IR has no blocks: te.compute declares what a block would",
    "tir.BlockRealize": "loop IR has no blocks: te.compute declares what a block would",
    "tir.IndexMap": "s[C].transform_layout(lambda i, j: [...]) takes the map",
    "tir.transform": "tec.driver.PIPELINE lists the passes; tec.driver.run_passes(func, target, passes) runs them",
    "tir.tensor_intrin": "te.intrin has tensor intrinsics of matrix and dot units; te.decl_tensor_intrin declares others",
    "tir.usmp": "memory is planned by the pass plan_storage, and for networks by tec.compile",
    "tir.analysis": "tec.ir.verify and tec.ir.effects ask of loop IR",
    "te.SpecializedCondition": "tec.compile and topi.schedule pick a schedule by the sizes",
    "te.trace": "f.get_source('ir') shows the code; the emulator's checks and `print` in tec.kernel show values",
    "transform": "tec.driver.PIPELINE lists the passes",
    "topi": "tec.topi has the operators, tec.ops more",
    "opencl": "tec.rocm(i), tec.cuda(i), tec.cpu()", "vulkan": "tec.rocm(i), tec.cuda(i), tec.cpu()",
    "metal": "tec.rocm(i), tec.cuda(i), tec.cpu()", "hexagon": "tec.rocm(i), tec.cuda(i), tec.cpu()",
    "parser": "tec.ir.parse reads tec's text of loop IR",
    "support": "`tec doctor` shows what this installation has",
    "driver.tvmc": "`tec compile`, `tec run`, `tec bench`, `tec tune`",
}  # fmt: skip


def hint(name: str) -> str:
    """What tec has in place of `name` ("relay.quantize.qconfig"), "" where there is no word on it."""
    parts = name.split(".")
    while parts:
        if found := ELSEWHERE.get(".".join(parts)):
            return found
        parts.pop()
    return ""


def absent(module: str) -> Callable[[str], Any]:
    """A `__getattr__` for `module`: an AttributeError that says what tec has, or which name is near."""

    def find(name: str) -> Any:
        own = module.partition("tec.compat.tvm")[2].lstrip(".")
        whole = f"{own}.{name}".lstrip(".")
        said = f"tvm.{whole} is not here"
        if name.startswith("__"):
            raise AttributeError(said)
        here = [n for n in vars(sys.modules[module]) if not n.startswith("_")]
        near = difflib.get_close_matches(name, here, 1, 0.8)
        word = hint(whole)
        made = part(whole)
        if made is not None and not near:
            return made
        if near:
            said += f"; did you mean {near[0]}?"
        raise AttributeError(f"{said}{': ' + word if word else ''}")

    return find


class NotHere(TecError, AttributeError, NotImplementedError):
    """A part of TVM that tec has not, used."""


class Missing:
    """A name below a part of TVM that is not here. It may be imported; using it raises NotHere with what tec has in its place."""

    def __init__(self, whole: str):
        self._whole = whole

    def _raise(self) -> NoReturn:
        raise NotHere(f"tvm.{self._whole} is not here", hint=hint(self._whole) or None)

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self._whole}.{name}")

    def __call__(self, *args: Any, **named: Any) -> Missing:
        if len(args) == 1 and not named and isinstance(args[0], (FunctionType, type)):
            return self  # a decorator: what it made is missing, and says so where it is used
        return self._raise()

    def __getitem__(self, key: Any) -> NoReturn:
        self._raise()

    def __enter__(self) -> NoReturn:
        self._raise()

    def __exit__(self, *error: Any) -> None:
        pass

    def __mro_entries__(self, bases: Any) -> NoReturn:
        self._raise()


class Part(ModuleType):
    """A module of TVM's that is not here: it may be imported, its names raise NotHere where they are used."""

    def __init__(self, whole: str):
        super().__init__(f"tec.compat.tvm.{whole}")
        self._whole = whole
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self._whole}.{name}")


# Parts of TVM that programs import beside te, often without use.
PARTS = (
    "auto_scheduler", "contrib.cublas", "contrib.cudnn", "contrib.debugger", "contrib.ndk",
    "contrib.popen_pool", "contrib.xcode", "contrib.rocm", "contrib.tar", "ir.instrument", "meta_schedule", "micro", "parser", "relax", "relay.analysis", "relay.backend", "relay.backend.name_transforms",
    "relay.dataflow_pattern", "relay.op", "relay.quantize", "relay.scope_builder", "relay.testing", "relay.transform", "rpc", "rpc.server", "rpc.tracker", "script.ir_builder", "support", "tir.analysis", "tir.schedule", "tir.tensor_intrin", "tir.usmp", "driver.tvmc",
)  # fmt: skip


def part(whole: str) -> Part | None:
    """The module that stands for a part of TVM that is not here."""
    known = whole in PARTS or any(whole.startswith(p + ".") for p in PARTS)
    return Part(whole) if known else None
