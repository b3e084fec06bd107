"""`model`: the time of a built AMD GPU function by the software GPU's time model (docs/emulator.md), without running it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .emulator import emulator_profile
from .errors import ArgumentError, DeviceError, kind_of
from .runtime import Module, nd, rocm_emu
from .target import Target

if TYPE_CHECKING:
    from .emulator.driver import EmuDriver


def model(module: Any, args: Any, product: str = "", warm: bool = False) -> Any:
    """The time of a built AMD GPU function on its product, by the software GPU's time model. Nothing runs.

    module: what `tec.build` gave. args: its arguments, each an array, a (shape, dtype) pair, or a number; kernels whose
    addresses depend on data need arrays. product: by default the one that the function was built for. warm: its operands
    are in the last cache. Returns a profile: `launches`, each with an `estimate` (`microseconds`, `limit`, ...). Raises
    DeviceError for another target or an unknown product.

        f = tec.build(s, [A, B, C], "rocm -mcpu=mi325x")
        print(tec.model(f, [((4096, 4096), "float16")] * 2 + [((4096, 4096), "float32")]))
    """
    if not isinstance(module, Module):
        raise ArgumentError(
            f"model takes what tec.build gives, not {kind_of(module)}",
            hint="with tec.profile(dev) as p: a launch on dev = tec.rocm_emu(...) models kernels, tiles and networks",
        )
    target = Target(module.target)
    if target.kind != "rocm":
        raise DeviceError(
            f"the time model is of AMD GPUs, not of {module.target}",
            hint='build it for an AMD chip: target="rocm -mcpu=gfx942"',
        )
    dev = rocm_emu(target.mcpu)

    def on_device(a: Any) -> Any:
        if isinstance(a, tuple):
            return nd.empty(a[0], a[1], dev)
        return nd.array(a, dev) if isinstance(a, np.ndarray) else a

    given = [on_device(a) for a in args]
    with emulator_profile(cast("EmuDriver", dev.driver), False, product or target.machine.name, warm) as p:
        module(*given)
    return p
