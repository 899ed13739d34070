"""Connects a command to a host: at `--url`, the one that has the data folder open, or one opened for the command."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from forestay.cli.data_folder import announced, data_folder
from forestay.cli.files import STDIN, read_text
from forestay.cli.model_trust import with_trusted_keys
from forestay.client import AsyncClient, Call
from forestay.kernel import Problem, config

if TYPE_CHECKING:
    from forestay.surface import Serving

Url = Annotated[str | None, typer.Option("--url", help="The host's address; default: FORESTAY_URL.")]
Key = Annotated[str | None, typer.Option("--key", help="The API key; default: FORESTAY_API_KEY.")]
Data = Annotated[Path | None, typer.Option("--data", help="The data folder, when no host is named; default: data.dir.")]


class Connection:
    """A host, called by path; answers are plain JSON. `local`: this process opened the host for the command."""

    def __init__(self, client: AsyncClient, *, local: bool = False) -> None:
        self.local = local
        self.events = client.events
        self.client = client

    async def ask(
        self,
        method: Literal["GET", "POST", "PUT", "DELETE"],
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        query: dict[str, Any] | None = None,
    ) -> Any:
        call = Call(
            name=path, method=method, path=path, answer=object, body=body, headers=headers or {}, query=query or {}
        )
        try:
            return await self.client.send(call)
        except Problem as problem:
            if problem.key == "not_found" and "runId" in problem.details:
                problem.details.setdefault("fix", "`forestay run list` names the runs of this host.")
            raise

    async def get(self, path: str, **query: Any) -> Any:
        return await self.ask("GET", path, query=query)

    async def post(self, path: str, body: Any = None, *, headers: dict[str, str] | None = None) -> Any:
        return await self.ask("POST", path, body, headers=headers)

    async def open_questions(self, run_id: str) -> list[dict[str, Any]]:
        """Return the open questions of a run's nodes."""
        found = await self.get(f"/v1/runs/{run_id}/interrupts")
        return list(found["interrupts"])

    async def resolve(self, run_id: str, node_id: str, value: Any) -> Any:
        """Answer the question of a node."""
        return await self.post(f"/v1/runs/{run_id}/interrupts/{node_id}", {"resumeValue": value})


@asynccontextmanager
async def connected(url: Url = None, key: Key = None, data: Data = None) -> AsyncIterator[Connection]:
    """Connect to the host that the options and the environment name."""
    async with _connected(url, key, data, read_only=False) as connection:
        yield connection


@asynccontextmanager
async def reading(url: Url = None, key: Key = None, data: Data = None) -> AsyncIterator[Connection]:
    """Connect a command that only reads: a host that is opened for it continues no runs."""
    async with _connected(url, key, data, read_only=True) as connection:
        yield connection


@asynccontextmanager
async def _connected(
    url: str | None, key: str | None, data: Path | None, *, read_only: bool
) -> AsyncIterator[Connection]:
    folder = data_folder(data)
    address = url or (os.environ.get("FORESTAY_URL") if data is None else None) or announced(folder)
    if address is None:
        async with _opened(folder, read_only) as connection:
            yield connection
        return
    if not (key or os.environ.get("FORESTAY_API_KEY")):
        kept = folder / "first-key"
        where = f" Its first key is in {kept}." if kept.is_file() else ""
        raise Problem(
            "unauthenticated",
            f"A host is running at {address}, and no key was given.",
            fix=f"Give --key or set FORESTAY_API_KEY.{where}",
        )
    async with AsyncClient(address, key) as client:
        yield Connection(client)


@asynccontextmanager
async def _opened(folder: Path, read_only: bool) -> AsyncIterator[Connection]:
    """Open the data folder in this process, and talk to it as to any host."""
    import logging

    from forestay.host import Options
    from forestay.surface import serve_here

    logging.getLogger("forestay.nodes").propagate = False  # the command's own answer tells why a node failed
    logging.getLogger("forestay.nodes").addHandler(logging.NullHandler())
    settings = config.load().config
    if not read_only:
        settings = await with_trusted_keys(settings)
    async with (
        serve_here(Options(config=settings, data=folder, read_only=read_only)) as serving,
        lent(serving) as connection,
    ):
        yield connection


@asynccontextmanager
async def lent(serving: Serving) -> AsyncIterator[Connection]:
    """Connect to a host of this process, with a key that is valid as long as the process."""
    from forestay.surface import InnerTransport

    key, door = serving.services.keys.lend(), InnerTransport(serving.door)
    async with AsyncClient(serving.url, key, patience=0, transport=door) as client:
        yield Connection(client, local=True)


def json_argument(text: str | None, name: str) -> Any:
    """Decode JSON given as text, as `@file`, or as `-` for standard input."""
    from forestay.kernel import canonical

    if text is None:
        return None
    if text == STDIN or text.startswith("@"):
        text = read_text(Path(text.removeprefix("@")))
    try:
        return canonical.decode(text)
    except Problem as problem:
        details = {**problem.details, "at": name}
        if names_file(text):
            details["fix"] = f"Write {name} @{text} to read that file."
        raise Problem(problem.key, f"{name} is not valid JSON.", **details) from problem


def json_object(text: str | None, name: str) -> dict[str, Any] | None:
    """Decode JSON as `json_argument` does; refuse anything but an object."""
    value = json_argument(text, name)
    if value is None or isinstance(value, dict):
        return value
    raise Problem("invalid_usage", f"{name} is no JSON object.", at=name, fix='Give one: {"name": "value"}.')


def names_file(text: str) -> bool:
    """Whether a text names an existing file."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long, or not allowed in a name
        return False
