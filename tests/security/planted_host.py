"""`forestay` with everything that its modules and libraries log, down to the last detail, on standard error."""

from __future__ import annotations

import logging
import runpy

if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG, format="%(name)s %(levelname)s %(message)s")
    runpy.run_module("forestay", run_name="__main__")
