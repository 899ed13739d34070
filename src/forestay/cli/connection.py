"""How a command reaches a host: the one at `--url`, the one that has the data folder open, or one opened for it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from forestay.cli.files import STDIN, read_text
from forestay.cli.notes import announced
from forestay.client import answer_of
from forestay.kernel import Problem, config
from forestay.runs import TERMINAL, TERMINAL_EVENTS

if TYPE_CHECKING:
    import httpx

    from forestay.surface import Serving

Url = Annotated[str | None, typer.Option("--url", help="The host's address; default: FORESTAY_URL.")]
Key = Annotated[str | None, typer.Option("--key", help="The API key; default: FORESTAY_API_KEY.")]
Data = Annotated[Path | None, typer.Option("--data", help="The data folder, when no host is named; default: data.dir.")]

_PATIENCE = 12  # tries to reach a host that went away: three quarters of a minute
_LAFS = "application/vnd.lafs.envelope+json"


class Connection:
    """A host, asked in its own contract; a refusal comes back as the Problem it was."""

    def __init__(self, http: httpx.AsyncClient, *, local: bool) -> None:
        self.http = http
        self.local = local

    async def ask(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        import httpx

        headers = {"Accept": _LAFS, **options.pop("headers", {})}
        if body is not None:
            options["content"] = msgspec.json.encode(body)
            headers["Content-Type"] = "application/json"
        try:
            response = await self.http.request(method, path, headers=headers, **options)
        except httpx.HTTPError as error:
            raise _unreachable(self.http, error) from error
        try:
            return answer_of(response.status_code, response.content, response.headers.get("retry-after"))
        except Problem as problem:
            if problem.key == "not_found" and "runId" in problem.details:
                problem.details.setdefault("fix", "`forestay run list` names the runs of this host.")
            raise

    async def get(self, path: str, **params: Any) -> Any:
        return await self.ask("GET", path, params={name: value for name, value in params.items() if value is not None})

    async def post(self, path: str, body: Any = None, **options: Any) -> Any:
        return await self.ask("POST", path, body, **options)

    async def events(
        self, run_id: str, *, mode: str = "updates", after: int = -1, away: Callable[[bool], None] = lambda lost: None
    ) -> AsyncIterator[dict[str, Any]]:
        """The events of a run as they come; a connection that breaks is taken up where it was.

        A host that is started again is waited for; `away` is told when it is lost and when it is there again.
        """
        import asyncio

        import httpx

        failures = 0
        while True:
            headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
            path = f"/v1/runs/{run_id}/events"
            try:
                async with self.http.stream("GET", path, params={"streamMode": mode}, headers=headers) as response:
                    if response.status_code != 200:
                        answer_of(response.status_code, await response.aread(), None)
                    away(False)
                    async for event in _frames(response):
                        failures = 0
                        after = event["sequence"]
                        yield event
                        if event["type"] in TERMINAL_EVENTS:
                            return
            except httpx.HTTPError as error:
                failures += 1
                if failures > _PATIENCE or self.local:
                    raise _unreachable(self.http, error) from error
                away(True)
                await asyncio.sleep(min(0.2 * 2**failures, 5))
                continue
            standing = await self.get(f"/v1/runs/{run_id}")
            if standing["status"] in TERMINAL and standing.get("lastSequence", 0) <= after:
                return
            await asyncio.sleep(0.2)


async def _frames(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            yield msgspec.json.decode(line[6:])


def _unreachable(http: httpx.AsyncClient, error: Exception) -> Problem:
    return Problem(
        "unavailable",
        f"The host at {http.base_url} does not answer.",
        reason=type(error).__name__,
        fix="Start it with `forestay up`, or give --url.",
    )


@asynccontextmanager
async def connected(url: str | None, key: str | None, data: Path | None) -> AsyncIterator[Connection]:
    """A connection to the host that the options and the environment mean."""
    import httpx

    folder = Path(data or config.load().config.data.dir)
    address = url or (os.environ.get("FORESTAY_URL") if data is None else None) or announced(folder)
    if address is None:
        async with _opened(folder) as connection:
            yield connection
        return
    text = key or os.environ.get("FORESTAY_API_KEY")
    if not text:
        raise Problem(
            "unauthenticated",
            f"A host is running at {address}, and no key was given.",
            fix="Give --key or set FORESTAY_API_KEY.",
        )
    async with httpx.AsyncClient(base_url=address, headers={"Authorization": f"Bearer {text}"}, timeout=90) as http:
        yield Connection(http, local=False)


@asynccontextmanager
async def _opened(folder: Path) -> AsyncIterator[Connection]:
    """Open the data folder in this process, and talk to it as to any host."""
    import logging

    from forestay.host import Options
    from forestay.surface import serve

    logging.getLogger("forestay.nodes").propagate = False  # what a node failed with is in the command's own answer
    logging.getLogger("forestay.nodes").addHandler(logging.NullHandler())
    async with serve(Options(config=config.load().config, data=folder)) as serving, lent(serving) as connection:
        yield connection


@asynccontextmanager
async def lent(serving: Serving) -> AsyncIterator[Connection]:
    """A connection to a host of this process, with a key that lives as long as it does."""
    import httpx

    headers = {"Authorization": f"Bearer {serving.services.keys.lend()}"}
    async with httpx.AsyncClient(base_url=serving.url, headers=headers, timeout=90) as http:
        yield Connection(http, local=True)


def json_argument(text: str | None, name: str) -> Any:
    """JSON given as text, as `@file`, or as `-` for standard input."""
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


def names_file(text: str) -> bool:
    """Whether a text that was meant as something else is the name of a file."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long, or nothing that a name may hold
        return False
