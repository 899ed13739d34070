"""Builds every connector of a host and wires it to its neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from forestay.extensions.connectors.compute import ComputeConnector
from forestay.extensions.connectors.contract import Connector, Waiting
from forestay.extensions.connectors.environment import EnvConnector, Environment
from forestay.extensions.connectors.events import EventsConnector
from forestay.extensions.connectors.exec import ExecConnector
from forestay.extensions.connectors.fs import FsConnector
from forestay.extensions.connectors.http import HttpConnector
from forestay.extensions.connectors.log import LogConnector
from forestay.extensions.connectors.model import ModelConnector
from forestay.extensions.connectors.search_tools import find, grep
from forestay.extensions.connectors.session import SessionAccess, SessionConnector
from forestay.extensions.connectors.tool import ToolConnector
from forestay.extensions.connectors.ui import UiConnector


class Neighbours(msgspec.Struct, frozen=True):
    """What connectors need beyond the machine: people, a model, the session, other extensions."""

    ui: UiConnector = msgspec.field(default_factory=UiConnector)
    model: ModelConnector = msgspec.field(default_factory=ModelConnector)
    session: SessionAccess | None = None
    log: Callable[[str, str, str, str, Any], None] | None = None
    events: Callable[[str, str, Any], None] | None = None


def standard(
    environment: Environment,
    programs: ExecConnector,
    neighbours: Neighbours,
    *,
    files: FsConnector | None = None,
    http: Connector | None = None,
    temp: str | None = None,
) -> list[Connector | Waiting]:
    """Return one connector for each method; `programs` runs commands for `exec` and for the tool `bash`."""
    files = files or FsConnector()
    return [
        files,
        programs,
        ToolConnector(files, programs, {"grep": grep, "find": find}),
        http or HttpConnector(),
        EnvConnector(environment, temp=temp),
        ComputeConnector(),
        LogConnector(neighbours.log),
        EventsConnector(neighbours.events),
        neighbours.ui,
        neighbours.model,
        SessionConnector(neighbours.session),
    ]
