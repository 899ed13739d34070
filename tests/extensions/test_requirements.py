"""The install gate of node packs (Q1, Q2): every set of requirements against every grant."""

from __future__ import annotations

import itertools

import pytest

from forestay.extensions import check_requirements
from forestay.extensions.node_packs.requirements import PRIMITIVES
from forestay.kernel import Problem

SETS = [set(names) for count in (0, 1, 2, len(PRIMITIVES)) for names in itertools.combinations(PRIMITIVES, count)]


def test_q1_q2_what_is_not_granted_is_named_and_what_nobody_knows_is_a_mistake() -> None:
    for wanted, granted in itertools.product(SETS, repeat=2):
        manifest = {"name": "vendor.a.b", "version": "1.0.0", "runtime": {"requires": sorted(wanted)}}
        if wanted <= granted:
            assert check_requirements(manifest, granted) == sorted(wanted)
            continue
        with pytest.raises(Problem) as refused:
            check_requirements(manifest, granted)
        assert refused.value.row.openwop == "pack_runtime_requirement_unmet"
        assert refused.value.details["unmet"] == sorted(wanted - granted)
    for wrong in (["telepathy"], ["clock", "clock"], "clock", None, [7]):
        with pytest.raises(Problem) as caught:
            check_requirements({"runtime": {"requires": wrong}}, PRIMITIVES)
        assert caught.value.row.openwop == "invalid_manifest"
    assert check_requirements({}) == check_requirements({"runtime": {}}) == []
