"""Other compilers' surfaces over tec's own: programs written for them run with their import changed.

They stand on top of the compiler, beside the command line: nothing in tec imports them.
"""
