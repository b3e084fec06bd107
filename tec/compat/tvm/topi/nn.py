"""tvm.topi.nn: tec's, under its names and TVM's."""

from tec.topi.nn import *  # noqa: F403

from ..names import absent

__path__: list[str] = []
__getattr__ = absent(__name__)
