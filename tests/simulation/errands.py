"""Things that clients have made, each under an `Idempotency-Key`: whatever happens on the way, each is made once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from forestay.client import Call


class Made(NamedTuple):
    """A kind of thing: where and how it is asked for, and the family of streams that it begins one of."""

    path: str
    body: Callable[[str], dict[str, Any]]
    family: str


_HOOK = "https://{}.hooks.example/{}"
KINDS = {
    "key": Made("/host/v1/keys", lambda mark: {"name": mark, "scopes": ["runs:read"]}, "key/"),
    "session": Made("/host/v1/sessions", lambda mark: {"name": mark}, "session/"),
    "context": Made("/host/v1/contexts", lambda mark: {"objective": mark}, "context/"),
    "relay": Made("/crp/sessions", lambda mark: {"app_id": mark}, "relay/"),
    "memory": Made("/host/v1/memory", lambda mark: {"memoryRef": mark, "content": "x"}, "memory/"),
    "webhook": Made(
        "/v1/webhooks",
        lambda mark: {"url": _HOOK.format(mark.partition("-")[0], mark), "events": ["never.happens"]},
        "webhook/",
    ),
    "schedule": Made(
        "/v1/schedules",
        lambda mark: {"workflowId": "quick", "cron": "0 0 1 1 *", "inputs": {"mark": mark}},
        "schedule/",
    ),
    "event": Made(
        "/host/v1/trigger-subscriptions/sub_{tenant}:deliver",
        lambda mark: {"eventId": mark, "inputs": {"mark": mark}},
        "run/",
    ),
}


_STREAMS = """
    SELECT count(DISTINCT r.stream) FROM records r JOIN streams s ON s.id = r.stream
    WHERE s.name LIKE ? AND instr(r.payload || coalesce(r.attrs, ''), ?)
"""
_LIVING_KEYS = "SELECT count(*) FROM api_keys WHERE 'key/' || key_id LIKE ? AND instr(doc, ?) AND revoked_ms IS NULL"


class Errand(NamedTuple):
    kind: str
    mark: str

    def call(self, tenant: str) -> Call[dict[str, Any]]:
        made = KINDS[self.kind]
        headers = {"Idempotency-Key": f"make-{self.mark}"}
        body = made.body(self.mark)
        path = made.path.format(tenant=tenant)
        return Call(name=self.kind, method="POST", path=path, answer=dict[str, Any], body=body, headers=headers)


def check(db: sqlite3.Connection, errands: Sequence[Errand]) -> Iterator[str]:
    """V2: each is there, and there once."""
    for kind, mark in errands:
        family = KINDS[kind].family if kind in KINDS else "run/"
        (count,) = db.execute(_LIVING_KEYS if kind == "key" else _STREAMS, (family + "%", mark)).fetchone()
        if count != 1:
            yield f"V2 one request made {count} of the kind {kind}: {mark}"
