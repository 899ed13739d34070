"""Writes a report as JUnit XML, which build servers read."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement, tostring

from forestay.conformance.report import Trial

_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd]")  # characters that XML 1.0 does not allow


def junit(report: Trial) -> bytes:
    """Return the report as one suite with a case for each scenario."""
    outcomes = [item.outcome for item in report.results]
    suite = Element(
        "testsuite",
        name=f"forestay conform {report.contract}",
        tests=str(len(outcomes)),
        failures=str(outcomes.count("fail")),
        skipped=str(outcomes.count("not-applicable")),
        errors="0",
        time=f"{sum(item.seconds for item in report.results):.3f}",
    )
    for item in report.results:
        case = SubElement(
            suite, "testcase", classname=f"{report.contract}.{item.family}", name=item.name, time=f"{item.seconds:.3f}"
        )
        if item.outcome != "pass":
            tag = "failure" if item.outcome == "fail" else "skipped"
            SubElement(case, tag, message=_FORBIDDEN.sub("?", item.reason or ""))
    found: bytes = tostring(suite, encoding="utf-8", xml_declaration=True)
    return found
