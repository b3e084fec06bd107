"""Networks and functions as native libraries: shared objects and archives with a C interface, and their headers.

`library.export_network` and `library.export_module` put together the code, the constant data that `tables` and `kernels` lay out, the weights, and a
small runtime in C (`c/`, compiled ahead of time: `objects.zip`). `linking` makes a shared object of it, `archive` a static library; neither needs a
compiler. How a plan becomes data: docs/decisions/c-libraries.md.
"""
