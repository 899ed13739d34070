"""The identity of an effect (F1)."""

from __future__ import annotations

import base64
import hashlib

from forestay.runs.effects import invocation_id, ordinal_of


def test_f1_the_identity_of_an_effect_is_the_contracts() -> None:
    parts = (b"openwop:activity:v2", b"acme", b"run_1", b"pay", b"0:charge", b"bank")
    expected = base64.urlsafe_b64encode(hashlib.sha256(b"\0".join(parts)).digest()).rstrip(b"=").decode()
    assert invocation_id("acme", "run_1", "pay", ordinal_of(0, "charge"), "bank") == expected
