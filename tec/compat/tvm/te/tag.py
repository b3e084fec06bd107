"""tvm.te.tag."""

from tec.te.tags import tag_scope

from ..names import absent

__all__ = ["tag_scope"]

__getattr__ = absent(__name__)
