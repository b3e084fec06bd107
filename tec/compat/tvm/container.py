"""tvm.container: TVM's containers are Python's here."""

from .names import absent

Array = list
Map = dict
String = str

__getattr__ = absent(__name__)
