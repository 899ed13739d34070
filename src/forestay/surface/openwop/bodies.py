"""Constraints of bodies that the types cannot express, as JSON Schema."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from forestay.kernel import MAX_URL, URL_PATTERN
from forestay.runs import CONFIGURABLE, MAX_NAME, CreateRun, ForkRequest, ScheduleSpec

_OBJECT = {"type": "object"}
_URL = {"pattern": URL_PATTERN, "maxLength": MAX_URL}
_TAGS = {"maxItems": 100, "items": {"type": "string", "minLength": 1, "maxLength": MAX_NAME}}
Tag = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
Url = Annotated[str, Meta(extra_json_schema=_URL)]
NewRun = Annotated[
    CreateRun,
    Meta(
        extra_json_schema={
            "anyOf": [
                {"properties": {"workflowId": {"type": "string", "minLength": 1}}, "required": ["workflowId"]},
                {"properties": {"agentId": {"type": "string", "minLength": 1}}, "required": ["agentId"]},
                {"properties": {"mode": {"const": "eval"}}, "required": ["mode"]},
            ],
            "properties": {
                "mode": {"enum": ["eval", None]},
                "scopeId": {"type": ["string", "null"], "maxLength": MAX_NAME},
                "callbackUrl": {**_URL, "type": ["string", "null"]},
                "tags": _TAGS,
                "configurable": CONFIGURABLE,
            },
        }
    ),
]
NewFork = Annotated[
    ForkRequest,
    Meta(
        extra_json_schema={
            "anyOf": [
                {"properties": {"mode": {"const": "replay"}, "runOptionsOverlay": {"maxProperties": 0}}},
                {"properties": {"mode": {"const": "branch"}, "fromSeq": {"type": "integer"}}, "required": ["fromSeq"]},
            ],
            "properties": {
                "fromSeq": {"minimum": 0},
                "runOptionsOverlay": {
                    "properties": {
                        "inputs": _OBJECT,
                        "variables": _OBJECT,
                        "configurable": CONFIGURABLE,
                        "metadata": _OBJECT,
                        "tags": {**_TAGS, "type": "array"},
                    },
                    "additionalProperties": False,
                },
            },
        }
    ),
]
NewSchedule = Annotated[
    ScheduleSpec,
    Meta(
        extra_json_schema={"properties": {"workflowId": {"minLength": 1}, "tags": _TAGS, "configurable": CONFIGURABLE}}
    ),
]
