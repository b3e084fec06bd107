"""The networks of a language model, made when one of them is first needed: of a server's model another one may be all that runs (`joint`)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import TecError
from .kept import key_of
from .starting import code_of, loaded

if TYPE_CHECKING:
    from .model import LanguageModel

# What a model has from `make` on.
MADE = ("network", "executor", "report", "_weights", "_recipes", "_whole", "_step")
_FIRST_ROWS = 256  # that caches have room for at first


def make(lm: LanguageModel, begun: float) -> None:
    """Compile a model, or find its code, and give its weights a place. begun: when loading did. Raises ImportModelError, LoweringError, CodegenError."""
    checkpoint, device, progress = lm.checkpoint, lm.device, lm.progress
    form = lm.form()
    made, weights = loaded(checkpoint, form, key_of(checkpoint, form) if lm.cached else None, progress)
    lm.network = made.network(weights)
    lm._weights, lm._recipes = weights, made.recipes
    lm._whole = lm.executor = lm.network.executor(device, capacity=min(lm.context, _FIRST_ROWS))
    lm.report = {
        "compile_seconds": made.seconds, "load_seconds": time.perf_counter() - begun, "from_cache": made.from_cache,
        "weight_bytes": sum(w.nbytes for w in weights.values()), "slow_formats": made.slow,
    }  # fmt: skip
    lm._step = _step_of(lm, weights, made.missing) if lm.target.is_gpu else None


def _step_of(lm: LanguageModel, weights: Mapping[str, Any], missing: Any) -> Any:
    """An executor for one token at a time, of the same weights and caches: its sizes are known, so what belongs together is one kernel, and its launches
    are one table. Where all states are rows, the device is told in which one the token stands, and no size changes until they are full. None where the model
    cannot be compiled so: then tokens go through the network for any number of them."""
    form = lm.form(tokens=1, placed=lm.has_rows_alone)
    try:
        made = code_of(lm.checkpoint, form, key_of(lm.checkpoint, form) if lm.cached else None, lm.progress)
    except TecError as error:
        lm.report["step"] = str(error)
        return None
    if made.missing != missing:
        lm.report["step"] = "its weights lie in another way"
        return None
    network, whole = made.network(weights), lm._whole
    network.share(lm.network)
    return network.executor(whole.device, capacity=min(lm.context, _FIRST_ROWS), stream=whole.stream)
