"""tvm.error: every error of tec is a RuntimeError, which TVMError is then a name of."""

from .names import absent

TVMError = RuntimeError
InternalError = RuntimeError
DiagnosticError = RuntimeError
OpError = RuntimeError
OpNotImplemented = RuntimeError
RPCError = RuntimeError

__getattr__ = absent(__name__)
