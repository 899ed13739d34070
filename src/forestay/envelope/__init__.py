"""How anything is said: one machine-readable envelope for every answer (LAFS 1.8)."""

from forestay.envelope.build import encode, error_of, failure, success
from forestay.envelope.disclosure import project, select_field, select_fields
from forestay.envelope.flags import OutputChoice, resolve
from forestay.envelope.types import MEDIA_TYPE, SCHEMA_URL, Envelope, Error, Meta, Mvi, Page, Warning
from forestay.envelope.validate import decode, parse

__all__ = [
    "MEDIA_TYPE",
    "SCHEMA_URL",
    "Envelope",
    "Error",
    "Meta",
    "Mvi",
    "OutputChoice",
    "Page",
    "Warning",
    "decode",
    "encode",
    "error_of",
    "failure",
    "parse",
    "project",
    "resolve",
    "select_field",
    "select_fields",
    "success",
]
