"""tvm.contrib.graph_executor: runs what relay.build made."""

from ..names import absent

__getattr__ = absent(__name__)
