"""Verifies the audit log against its signed checkpoints (OpenWOP auth profiles, `openwop-audit-log-integrity`)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from starlette.responses import Response

from forestay.host import Host
from forestay.kernel import AuditVerdict
from forestay.surface.operations import Call, Operations, Query

KEY_PATH = "/.well-known/forestay-audit-key"
_PEM = "application/x-pem-file"
_MOST = 1_000_000
Sequence = Annotated[int, Meta(ge=0, le=2**53)]
api = Operations[Host](tag="audit")


class AuditQuery(Query, frozen=True):
    from_seq: Sequence = 0
    to_seq: Sequence | None = None


@api.get(
    "/v1/audit/verify",
    "audit.verify",
    AuditVerdict,
    scopes=("audit:read",),
    operator=True,
)
async def verify(host: Host, call: Call, query: AuditQuery) -> AuditVerdict:
    """Walk the audit log from `fromSeq` to `toSeq` again, with every signed checkpoint in between.

    One entry at least and a million at most: the answer's `toSeq` says how far it went.
    """
    first, last = query.from_seq, query.to_seq
    return await host.audit.verify(first, None if last is None else min(max(last, first), first + _MOST))


@api.get(KEY_PATH, "audit.key", str, auth="none", media=_PEM)
async def key(host: Host, call: Call) -> Response:
    """The public key of the checkpoints, as PEM."""
    return Response(host.audit.key.pem, media_type=_PEM, headers={"Cache-Control": "public, max-age=300"})
