"""tvm.te.hybrid.runtime: the words of a hybrid script as Python's."""

from tec.te.hybrid import python_words as _words

HYBRID_GLOBALS = _words()
