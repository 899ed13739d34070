"""Runs the command `forestay` for `python -m forestay`."""

import os
import sys

if not sys.flags.safe_path and sys.path and os.path.realpath(sys.path[0]) == os.path.realpath(os.getcwd()):  # noqa: PTH109
    del sys.path[0]  # `python -m` puts the project's folder first; the host imports nothing from it

from forestay.cli.main import main

if __name__ == "__main__":
    main()
