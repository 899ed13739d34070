"""The conformance kit: tries any host from outside, by its address, against the contract."""

from typing import TYPE_CHECKING

from forestay.face import face

if TYPE_CHECKING:
    from forestay.conformance.documents import from_variable, node, variable, workflow
    from forestay.conformance.junit_xml import junit
    from forestay.conformance.kit import conform, scenarios
    from forestay.conformance.profile import PROFILES, agent_platform, profiles
    from forestay.conformance.report import Report, Result, Trial
    from forestay.conformance.sidecar_kit import conform_sidecar

__getattr__, __dir__ = face(__name__, __file__)
