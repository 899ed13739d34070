"""`python -m forestay` is the command `forestay`."""

import os
import sys

if not sys.flags.safe_path and sys.path and os.path.realpath(sys.path[0]) == os.path.realpath(os.getcwd()):  # noqa: PTH109
    del sys.path[0]  # `python -m` puts this folder first; it is the project's, and the host imports nothing from it

from forestay.cli.main import main

if __name__ == "__main__":
    main()
