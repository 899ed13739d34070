"""The schemas of the CRP contract: the library's objects and the sidecar's OpenAPI description."""

from __future__ import annotations

from typing import Any

from forestay.relay import schemas as library
from forestay.surface.crp.operations import description, operations
from forestay.surface.crp.service import Service


def schemas() -> dict[str, dict[str, Any]]:
    return {**library.schemas(), "openapi": description(operations(_nobody), "/crp")}


def _nobody(tenant: str) -> Service:
    raise NotImplementedError  # a description performs nothing
