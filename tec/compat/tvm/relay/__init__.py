"""tvm.relay: networks from ONNX. `relay.frontend.from_onnx`, `relay.build`, `relay.create_executor`; what lies between is tec.compile's."""

from ..modules import Factory
from ..names import absent
from . import build as _build
from . import frontend
from .build import RelayModule, build_module, create_executor

build = _build.build

__getattr__ = absent(__name__)
