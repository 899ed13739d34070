"""Runs first in every Python process that a test starts while the tests run on PostgreSQL (`at_path.py`)."""

import os

if "FORESTAY_TEST_SERVER" in os.environ:
    from forestay.kernel.ledger.ledger import BACKENDS

    BACKENDS["file"] = "tests.kernel.ledger.at_path:LedgerAtPath"
