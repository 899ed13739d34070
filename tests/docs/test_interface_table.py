"""The table of the interface stands on the tests: a name has a proof, or says why it is absent."""

from __future__ import annotations

from scripts.interface import ABSENT, GROUPS, faults, names, proofs

from forestay.extensions import EVENTS, OLDER_EVENTS


def test_every_name_has_a_proof_or_a_reason() -> None:
    assert faults(proofs()) == []


def test_a_name_without_a_proof_and_a_proof_of_nothing_are_found() -> None:
    proved = {**proofs(), "pi.nowhere": ["test"], "event.project_trust": ["test"]}
    del proved["pi.on"]
    assert faults(proved) == [
        "no test proves pi.on",
        "a test proves event.project_trust, which is absent",
        "pi.nowhere is not a name of the interface",
    ]


def test_the_events_of_the_table_are_those_of_the_host() -> None:
    told = {name for name in GROUPS["event"][1].split() if f"event.{name}" not in ABSENT}
    assert told == {*EVENTS, *OLDER_EVENTS} and len(set(names())) == len(names())
