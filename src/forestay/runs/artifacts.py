"""The artifacts of a run: where their data is in the ledger, and how callers see them."""

from __future__ import annotations

from typing import Any

from forestay.kernel import Ledger, Problem, iso
from forestay.runs.log import FORK, stream_of
from forestay.runs.secrets import cover
from forestay.runs.state import RunState
from forestay.runs.types import Artifact


def artifact_stream(run_id: str, artifact_id: str) -> str:
    return f"artifact/{run_id}/{artifact_id.replace('_', '-')}"


def listed(state: RunState) -> list[Artifact]:
    """Return the artifacts of a run, without their data."""
    return [_shown(state.run_id, item) for item in state.artifacts.values()]


async def fetch(ledger: Ledger, state: RunState, artifact_id: str) -> Artifact:
    """Return one artifact with its data; a fork finds earlier artifacts in its source, and in that run's source."""
    known = state.artifacts.get(artifact_id)
    owner: str | None = state.run_id
    while known and owner:
        records = await ledger.read(artifact_stream(owner, artifact_id), 0, 1)
        if records:
            return _shown(state.run_id, known, cover(state, records[0].payload))
        first = await ledger.read(stream_of(owner), 0, 1)
        owner = first[0].attrs.get(FORK, {}).get("source") if first else None
    raise Problem("not_found", "There is no such artifact.", artifactId=artifact_id[:128])


def _shown(run_id: str, known: dict[str, Any], stored: dict[str, Any] | None = None) -> Artifact:
    return Artifact(
        artifact_id=known["artifactId"],
        run_id=run_id,
        artifact_type=known["artifactType"],
        created_at=iso(known["createdAt"]),
        node_id=known.get("nodeId"),
        data=stored["data"] if stored else None,
        media_type=stored["mediaType"] if stored else "application/json",
    )
