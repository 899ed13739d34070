"""The contract's own schema files, where they are at hand; tests that compare with them skip where they are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def reference() -> Path:
    folder = Path(os.environ.get("FORESTAY_REFERENCE", Path(__file__).parents[3] / "shared" / "reference")) / "openwop"
    if not folder.is_dir():
        pytest.skip("the contract's schema files are not here")
    return folder
