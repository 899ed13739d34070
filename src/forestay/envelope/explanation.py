"""Explains an envelope in plain words, with the next step for an agent."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from forestay.envelope.errors import next_step
from forestay.envelope.types import Envelope, Error, Page
from forestay.kernel import LAFS_CODES


class Explanation(msgspec.Struct, frozen=True):
    """Sentences for a person, and the next step for an agent."""

    summary: str
    sentences: list[str]
    action: str
    automatic: bool
    next: str


def explain(envelope: Envelope) -> Explanation:
    """Explain `envelope`."""
    meta = envelope.meta
    outcome = "worked" if envelope.success else "failed"
    summary = f"{meta.operation} {outcome}."
    sentences = [
        f"The operation {meta.operation} {outcome} over {meta.transport} at {meta.timestamp}.",
        f"Quote the request id {meta.request_id} when you ask about it.",
    ]
    sentences += _result(envelope.result, envelope.success) + _page(envelope.page)
    sentences += [f"Warning {item.code}: {item.message}" for item in (meta.warnings or [])]
    if meta.context_version:
        sentences.append(f"It was made with version {meta.context_version} of its context.")
    if not isinstance(envelope.error, Error):
        more = isinstance(envelope.page, Page) and envelope.page.has_more is True
        follow = "Fetch the next page if you need more." if more else "Use the result; nothing else is needed."
        return Explanation(summary, sentences, "proceed", True, follow)
    sentences += _error(envelope.error)
    step = next_step(envelope.error)
    return Explanation(f"{summary} {envelope.error.message}", sentences, step.action, step.automatic, step.sentence)


def _result(result: Any, success: bool) -> list[str]:
    if result is None:
        return ["There is no result."] if success else []
    kept = "" if success else " What it got done before it failed is kept:"
    if isinstance(result, list):
        return [f"The result is a list of {len(result)}.{kept}".rstrip(":")]
    names = ", ".join(list(result)[:8]) or "nothing"
    more = " and more" if len(result) > 8 else ""
    return [f"The result has {names}{more}.{kept}".rstrip(":")]


def _page(page: object) -> list[str]:
    if not isinstance(page, Page) or page.mode == "none":
        return []
    total = f" of {page.total}" if isinstance(page.total, int) else ""
    if page.mode == "offset":
        said = f"This is a page of at most {page.limit}{total}, from position {page.offset}."
    else:
        said = f"This is a page{total}, by cursor."
    return [said, "More follows." if page.has_more else "It is the last page."]


def _error(error: Error) -> list[str]:
    row = LAFS_CODES.get(error.code)
    known = f"a {error.category} error of the registry" if row else f"a {error.category} error, not in the registry"
    said = [f"{error.code} is {known}: {error.message}"]
    said.append(
        "The same request may succeed later." if error.retryable else "The same request will fail again as it is."
    )
    if isinstance(error.suggested_action, str) and error.suggested_action:
        said.append(f"Suggested: {error.suggested_action}")
    if error.escalation_required is True:
        said.append("A person must decide; an agent must not try to recover by itself.")
    at = error.details.get("at")
    if isinstance(at, str):
        said.append(f"Look at {at}.")
    if error.doc_url is not UNSET:
        said.append(f"More: {error.doc_url}")
    return said
