"""Every scenario of the kit (`forestay conform openwop`), against the host of this suite: ours passes each of them."""

from __future__ import annotations

import os
from typing import Any

import pytest

from forestay.conformance import conform, scenarios


@pytest.mark.parametrize("name", [item.name for item in scenarios()])
def test_the_host_does_what_the_scenario_asks(target: tuple[str, dict[str, Any]], name: str) -> None:
    url, keys = target
    (result,) = conform(url, keys["full"], other_key=keys.get("other"), names=[name]).results
    if result.outcome == "not-applicable" and "FORESTAY_CONTRACT_URL" in os.environ:
        pytest.skip(f"{result.reason}")
    assert result.outcome == "pass", result.reason
