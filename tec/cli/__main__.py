"""`python -m tec.cli`: the same as `tec`."""

from . import main

main()
