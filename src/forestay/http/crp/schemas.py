"""The schemas of the CRP contract: the library's objects and the sidecar's OpenAPI description."""

from __future__ import annotations

from typing import Any

from forestay.http.crp.openapi import document
from forestay.relay import schemas as library


def schemas() -> dict[str, dict[str, Any]]:
    return {**library.schemas(), "openapi": document("/crp")}
