"""`python -m tec.compat.tvm program.py [arguments]`: run a program of TVM's with tec under `import tvm`."""

import runpy
import sys

from .install import install


def main() -> None:
    """Run the program that the command line names."""
    if len(sys.argv) < 2:
        raise SystemExit("usage: python -m tec.compat.tvm program.py [arguments]")
    install()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
