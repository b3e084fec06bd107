"""`model`: the time of a built AMD GPU function by the software GPU's time model (docs/emulator.md), without running it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .emulator import emulator_profile
from .errors import DeviceError
from .runtime import nd, rocm_emu
from .target import Target

if TYPE_CHECKING:
    from .emulator.driver import EmuDriver


def model(module: Any, args: Any, product: str = "", warm: bool = False) -> Any:
    """The time of a built GPU function on its chip, by the software GPU's model; nothing is run.

    Returns the software GPU's profile: `launches`, each with an `estimate`.

    module: what `tec.build` gave for "rocm"; args: its arguments, each an array, a (shape, dtype) pair, or a number. product and warm: see
    `tec.emulator.profile.emulator_profile`. Kernels whose addresses depend on data need arrays. Raises DeviceError for another target or an unknown product.

        f = tec.build(s, [A, B, C], "rocm -mcpu=gfx942")
        print(tec.model(f, [((4096, 4096), "float16")] * 2 + [((4096, 4096), "float32")]))
    """
    target = Target(module.target)
    if target.kind != "rocm":
        raise DeviceError(f"the time model is of AMD GPUs, not of {module.target}")
    dev = rocm_emu(target.mcpu)

    def on_device(a: Any) -> Any:
        if isinstance(a, tuple):
            return nd.empty(a[0], a[1], dev)
        return nd.array(a, dev) if isinstance(a, np.ndarray) else a

    given = [on_device(a) for a in args]
    with emulator_profile(cast("EmuDriver", dev.driver), False, product, warm) as p:
        module(*given)
    return p
