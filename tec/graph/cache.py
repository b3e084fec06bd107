"""The disk cache of compiled networks, by content: the model, the target, the options, and the compiler's own sources.

In: what `tec.compile` was given. Out: a key, the network kept under it, and a folder that stays within a limit.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

import numpy as np

from ..disk_cache import trim
from ..errors import TecError
from ..folders import cache_part, cache_root, is_own
from ..late_assembly import offer_assembly
from ..runtime.files import open_regular
from ..runtime.networks.network import Network, load
from ..source_stamp import llvm_stamp, source_stamp
from ..target import Target, host_features
from . import frontends

_PART = "networks"
NETWORK_CACHE_BYTES = 4 << 30


def cache_key(
    model: Any,
    target: Target,
    shapes: Any,
    dtype: str | None,
    freeze: Any = None,
    choices: Any = None,
    tuned: str = "",
    state: Any = True,
) -> str | None:
    """The name of what `tec.compile` would make of these; None where it is not kept. tuned: names the records that are used."""
    if os.environ.get("TEC_CACHE_DISABLE") or cache_root() is None:
        return None
    h = hashlib.sha256()
    if isinstance(model, (str, os.PathLike)):
        try:
            with open_regular(model) as f:
                content = f.read()
            h.update(content)
        except OSError:
            return None
        folder = os.path.dirname(os.path.abspath(model))
        h.update(folder.encode())
        if b"location" in content:  # weights may lie in files beside it
            for where, _, files in sorted(os.walk(folder)):
                for name in sorted(files):
                    st = os.stat(os.path.join(where, name))
                    h.update(f"{where} {name} {st.st_size} {st.st_mtime_ns};".encode())
    elif hasattr(model, "SerializeToString"):
        h.update(model.SerializeToString())
    else:
        return None
    h.update(
        repr(
            (
                str(target),
                (host_features(), target.machine) if target.is_host else "",
                sorted((shapes or {}).items()),
                sorted(
                    # `str` has the byte order, `name` tells the 8-bit floats apart: their `str` is the same.
                    (k, a.dtype.str, a.dtype.name, a.shape, a.tobytes())
                    for k, a in ((k, np.asarray(v)) for k, v in (freeze or {}).items())
                ),
                dtype,
                sorted((k, sorted(v.items())) for k, v in (choices or {}).items()),
                tuned,
                state if isinstance(state, bool) else sorted(state.items()),
                _source_stamp(),
                llvm_stamp(),
            )
        ).encode()
    )
    return h.hexdigest()


def _source_stamp() -> str:
    """The stamp of tec's sources and of all frontends'."""
    return source_stamp(frontends.modules())


def from_cache(key: str) -> Network | None:
    """The network kept under a key. What cannot be read, one of another version of tec among it, is dropped."""
    folder = cache_part(_PART)
    if folder is None:
        return None
    path = folder / f"{key}.tec"
    try:
        if not is_own(os.stat(path)):
            return None
    except OSError:
        return None
    try:
        net = load(path)
        os.utime(path)
        offer_assembly(net.module)
        return net
    except TecError:
        try:
            os.unlink(path)
        except OSError:
            pass
        return None


def to_cache(key: str, net: Network) -> None:
    """Keep a network; those used least recently make room."""
    folder = cache_part(_PART, make=True)
    if folder is None:
        return
    path = folder / f"{key}.tec"
    try:
        net._save(path, unmade=False, durable=False)
        path.chmod(0o600)
    except (OSError, TecError):
        return  # a cache that cannot be written costs time, not the result
    trim(folder, NETWORK_CACHE_BYTES)
