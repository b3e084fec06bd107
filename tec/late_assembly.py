"""The assembly of modules that come from a cache, which does not keep it: LLVM would make most of it for nobody."""

from __future__ import annotations

from functools import partial

from .runtime.modules.module import Module
from .target import Target


def offer_assembly(module: Module) -> None:
    """Let a module's functions, and those of the modules in it, have their assembly made when it is asked for. Only then is the compiler imported."""

    def made(name: str) -> str:
        from .codegen import assembly_of

        return assembly_of(module.get_source("llvm", name), Target(module.target), name)

    for name, texts in module.texts.items():
        if "asm" not in texts and "llvm" in texts:
            texts["asm"] = partial(made, name)
    for other in module.imported_modules:
        offer_assembly(other)
