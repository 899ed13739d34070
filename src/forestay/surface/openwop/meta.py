"""What the host says of itself: discovery, OpenAPI, health."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from forestay.surface.openapi import document
from forestay.surface.openwop.discovery import capabilities
from forestay.surface.operations import Call, Operation, Result
from forestay.surface.services import Services

_CACHE = {"Cache-Control": "public, max-age=300"}


class Health(Result, frozen=True, omit_defaults=False):
    status: str


class NotStored(Result, frozen=True):
    file: str
    problem: str
    reason: str


class Readiness(Result, frozen=True):
    """`left_out` names the workflow files that the host was given and cannot run."""

    status: str
    left_out: tuple[NotStored, ...] = ()


def operations(services: Services, all_of_them: Callable[[], Sequence[Operation]]) -> list[Operation]:
    described: dict[str, Any] = {}

    async def discovery(call: Call) -> Response:
        found = await capabilities(services, {item.name for item in all_of_them()})
        return _cacheable(call, found, {"Capabilities-Etag": _etag(found)})

    async def openapi(call: Call) -> Response:
        if not described:
            described.update(document([item for item in all_of_them() if item.contract != "crp"]))
        return _cacheable(call, described, {})

    async def alive(call: Call) -> Response:
        return call.answer(Health(status="healthy"))

    async def ready(call: Call) -> Response:
        draining = services.load.draining or services.runs.load().draining
        left_out = tuple(
            NotStored(file=item.file, problem=item.problem, reason=item.reason) for item in services.left_out
        )
        status = "draining" if draining else "ready"
        return call.answer(Readiness(status=status, left_out=left_out), 503 if draining else 200)

    return [
        Operation(
            name="discovery",
            method="GET",
            path="/.well-known/openwop",
            perform=discovery,
            summary="What this host can do, computed from what is wired.",
            auth="none",
            answers={200: dict[str, Any], 304: None},
            tag="meta",
        ),
        Operation(
            name="openapi",
            method="GET",
            path="/v1/openapi.json",
            perform=openapi,
            summary="This document.",
            auth="none",
            answers={200: dict[str, Any], 304: None},
            tag="meta",
        ),
        Operation(
            name="health.live",
            method="GET",
            path="/healthz",
            perform=alive,
            summary="Whether the process answers.",
            auth="none",
            answers={200: Health},
            tag="meta",
        ),
        Operation(
            name="health.ready",
            method="GET",
            path="/readyz",
            perform=ready,
            summary="Whether it takes work, and which workflow files it was given in vain.",
            auth="none",
            answers={200: Readiness},
            tag="meta",
        ),
    ]


def _etag(value: Any) -> str:
    return '"' + hashlib.sha256(msgspec.json.encode(value)).hexdigest()[:32] + '"'


def _cacheable(call: Call, body: Any, headers: dict[str, str]) -> Response:
    tag = _etag(body)
    known = call.request.headers.get("if-none-match", "")
    status = 304 if tag in known else 200
    return call.answer(body, status, {**_CACHE, "ETag": tag, **headers})
