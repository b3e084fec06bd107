"""`python -m tec`: the same as `tec`."""

from .cli import main

main()
