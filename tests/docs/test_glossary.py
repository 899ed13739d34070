"""The glossary has every term of the contracts, and the pages link to it where a reader meets one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Pages that a generator writes, or that list a contract's rules for readers who know it.
FOR_EXPERTS = {"commands.md", "problems.md", "operations.md", "openwop-rules.md", "crp-rules.md", "glossary.md"}
CONTRACTS = ("LAFS", "CRP", "OpenWOP", "MVI")
TERMS = (
    *CONTRACTS, "Pi", "Conformance tier", "Runtime tier", "Quality tier", "Agent", "Agent turn", "Approval", "Budget",
    "Capability", "Contract", "Dispatch", "Effect", "Envelope", "Extension", "Fact", "Fork", "Grant", "Host",
    "Host call", "Interrupt", "Ledger", "Manifest", "Node", "Policy", "Problem", "Project", "Relay", "Run", "Sandbox",
    "Scope", "Session", "Tenant", "Tool", "Trust", "Window", "Workflow",
)  # fmt: skip
_LINK = re.compile(r"\]\(([^)#\s]*)#([\w-]+)\)")


def headings() -> list[str]:
    return re.findall(r"^## (.+)$", GLOSSARY.read_text("utf-8"), re.MULTILINE)


def anchors() -> set[str]:
    return {re.sub(r"[^\w -]", "", name).strip().lower().replace(" ", "-") for name in headings()}


def prose(page: Path) -> str:
    """The text without code, and without the words and targets of links."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`]*`|\[[^\]]*\]\([^)]*\)", "", text)


def test_the_glossary_explains_every_term_and_no_other_in_alphabetical_order() -> None:
    assert sorted(headings()) == sorted(TERMS)
    assert headings() == sorted(headings(), key=str.lower)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_to_the_glossary_resolves(page: Path) -> None:
    for target, anchor in _LINK.findall(page.read_text("utf-8")):
        if (page.parent / target).resolve() == GLOSSARY or (not target and page == GLOSSARY):
            assert anchor in anchors(), anchor


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_that_names_a_contract_links_to_its_explanation(page: Path) -> None:
    if page.name in FOR_EXPERTS:
        return
    linked = {anchor for target, anchor in _LINK.findall(page.read_text("utf-8")) if target.endswith("glossary.md")}
    named = {term for term in CONTRACTS if re.search(rf"\b{term}\b", prose(page))}
    assert {term.lower() for term in named} <= linked
