"""tvm.te.tensor: tensors, and the operations under the names that TVM keeps here."""

from tec.te.operation import ComputeOp, ExternOp, Operation, PlaceholderOp, ScanOp
from tec.te.tensor import Tensor, TensorSlice

from ..names import absent

TensorComputeOp = ComputeOp
HybridOp = ExternOp

__getattr__ = absent(__name__)
