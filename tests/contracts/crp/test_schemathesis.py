"""`schemathesis` finds nothing: requests made from the served description, and answers held against it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Sidecar


@pytest.mark.sweep
def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    class Roomy(Sidecar):
        _limit = 100_000

    sidecar = Roomy(tmp_path / "relay.db")
    try:
        session = sidecar.open(role="ADMIN", config={"dispatches_per_minute": 10**6, "ingest_bytes_per_minute": 10**10})
        config = tmp_path / "schemathesis.toml"
        # Only what a query finds can be explained: the two parameters belong together, which no schema says.
        explained = 'checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "401", "403", "404", "409"]'
        operation = f'[[operations]]\ninclude-operation-id = "getFacts"\n{explained}\n'
        config.write_text(f'[parameters]\nsessionId = "{session}"\n{operation}', "utf-8")
        run = subprocess.run(
            [
                *(str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(config)),
                *("run", sidecar.url + "/openapi.json", "--max-examples", "10", "--suppress-health-check", "all"),
            ],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=600,
        )
        assert run.returncode == 0, run.stdout[-6000:]
    finally:
        sidecar.close()
