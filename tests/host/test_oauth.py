"""O1 to O5: sign-ins at a real authorization server, tokens kept, renewed and ended; nothing of them in any record."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from forestay.governance import Authorizations, Credential, Credentials, Provider, Secret, read_return
from forestay.host import Host
from forestay.host.egress import Egress
from forestay.kernel import Config, Ids, Ledger, Problem, SystemClock, SystemRandomness
from forestay.runs import HttpRequest, RunSnapshot
from tests.extensions.mcp.oauth_server import Authority, consent, standing
from tests.host.test_outbound import Echo, echoing, ended, started
from tests.runs.events import check_events

REDIRECT = "http://127.0.0.1:8787/host/v1/oauth/callback"


class Late(SystemClock):
    """A clock that can be put forward."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class World:
    """A host, an authorization server and an API that wants its tokens."""

    def __init__(self, folder: Path, issuer: str, authority: Authority, echo: Echo) -> None:
        self.folder, self.issuer, self.authority, self.echo = folder, issuer, authority, echo
        self.clock = Late()
        provider = {
            "auth_url": f"{issuer}/authorize",
            "token_url": f"{issuer}/token",
            "client_id": "forestay",
            "audiences": [echo.place],
            "scopes": ["use"],
        }
        self.config = msgspec.convert({"oauth": {"providers": {"ports": provider}}}, Config)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Host]:
        reachable = (self.echo.place, self.issuer.removeprefix("http://"))
        async with Host.open(self.config, root=self.folder, allow_egress=reachable, clock=self.clock) as host:
            yield host

    async def begun(self, host: Host, tenant: str = "default") -> str:
        """A sign-in that a person agreed to: the address that the browser ended at."""
        about = Credential(credential_id="ports", issuer="ports", audiences=(self.echo.place,), scopes=("use",))
        begun = await host.authorizations.begin(tenant, about, REDIRECT, principal="alice")
        return await asyncio.to_thread(consent, begun.open)

    async def signed_in(self, host: Host) -> tuple[str, str]:
        """The address that was brought back, and the run that kept the token."""
        address = await self.begun(host)
        _, run = await host.authorizations.finish(read_return(urlsplit(address).query))
        assert (await host.runs.wait(run.run_id, "default")).status == "completed"
        return address, run.run_id

    async def called(self, host: Host) -> tuple[RunSnapshot, list[str]]:
        return await ended(host, await started(host, f"http://{self.echo.place}/", credential="ports"))

    @property
    def bearers(self) -> list[str]:
        """The tokens that arrived at the API."""
        found = [line for head in self.echo.heads for line in head.splitlines()]
        return [line.split()[-1] for line in found if line.lower().startswith("authorization: bearer")]


@pytest.fixture
def server() -> Iterator[tuple[str, Authority]]:
    with standing(REDIRECT) as found:
        yield found


def play(folder: Path, server: tuple[str, Authority], story: Callable[[World], Awaitable[None]]) -> World:
    async def whole() -> World:
        async with echoing() as echo:
            world = World(folder, *server, echo)
            await story(world)
            return world

    return asyncio.run(whole())


def test_o1_o3_a_person_agrees_and_requests_carry_the_token(tmp_path: Path, server: tuple[str, Authority]) -> None:
    secrets: list[str] = []

    async def story(world: World) -> None:
        async with world.opened() as host:
            address, run_id = await world.signed_in(host)
            events = await host.runs.events(run_id, "default")
            check_events(events)
            (told,) = [event.payload for event in events if event.type == "connector.authorized"]
            assert told == {"provider": "ports", "credentialRef": "ports", "scopes": ["use"]}
            run, decided = await world.called(host)
            assert (run.status, decided) == ("completed", ["allowed"])
            assert world.bearers == list(world.authority.access)
            for tenant in (None, "default", "other"):  # a state that was used, whoever brings it
                with pytest.raises(Problem) as caught:
                    await host.authorizations.finish(read_return(urlsplit(address).query), tenant)
                assert caught.value.key == "not_found"
            came = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
            secrets.extend((came["state"], came["code"], *world.authority.access, *world.authority.refresh))
            told_all = b"".join([line async for line in host.ledger.export()]).decode()
            assert not [secret for secret in secrets if secret in told_all]
        async with world.opened() as host:  # another life has the token too
            assert (await world.called(host))[0].status == "completed"
            assert world.authority.given == ["code"]

    play(tmp_path, server, story)
    held = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert len(secrets) == 4 and not [secret for secret in secrets for data in held if secret.encode() in data]


def test_o1_what_is_forged_over_or_anothers_gets_nothing(tmp_path: Path, server: tuple[str, Authority]) -> None:
    async def refused(host: Host, query: str, key: str = "not_found", tenant: str | None = None) -> None:
        with pytest.raises(Problem) as caught:
            await host.authorizations.finish(read_return(query), tenant)
        assert caught.value.key == key

    async def story(world: World) -> None:
        async with world.opened() as host:
            query = urlsplit(await world.begun(host)).query
            for forged in ("", "code=x", "state=x&code=x", f"{query}&state=again", query.replace("state=", "state=x")):
                await refused(host, forged)
            await refused(host, query, tenant="other")
            world.clock.ahead_ms = 600_001
            await refused(host, query)
            world.clock.ahead_ms = 0
            state = read_return(query).state
            await refused(host, f"state={state}&error=access_denied", "credential_forbidden")
            await refused(host, query)  # the person said no: it is over
            assert world.authority.given == [] and await host.credentials.listed("default") == []

    play(tmp_path, server, story)


def test_o4_a_token_that_ends_is_renewed_once_for_all_who_need_it(
    tmp_path: Path, server: tuple[str, Authority]
) -> None:
    async def story(world: World) -> None:
        async with world.opened() as host:
            await world.signed_in(host)
            (first,) = world.authority.access
            world.clock.ahead_ms = 3_600_000
            runs = await asyncio.gather(*(world.called(host) for _ in range(5)))
            assert {run.status for run, _ in runs} == {"completed"}
            assert world.authority.given == ["code", "refresh"]
            assert len(world.bearers) == 5 and first not in world.bearers and len(set(world.bearers)) == 1

    play(tmp_path, server, story)


def test_o5_a_server_that_refuses_for_good_ends_the_credential(tmp_path: Path, server: tuple[str, Authority]) -> None:
    async def story(world: World) -> None:
        async with world.opened() as host:
            await world.signed_in(host)
            world.authority.forget_everybody()
            world.clock.ahead_ms = 3_600_000
            run_id = await started(host, f"http://{world.echo.place}/", credential="ports")
            run, decided = await ended(host, run_id)
            assert (run.status, decided, world.bearers) == ("failed", ["allowed", "denied"], [])
            events = await host.runs.events(run_id, "default")
            check_events(events)
            (told,) = [event.payload for event in events if event.type == "connector.auth_expired"]
            assert told == {"provider": "ports", "credentialRef": "ports", "reason": "refresh_refused"}
            assert (await world.called(host))[1] == ["denied"]
            (left,) = await host.credentials.listed("default")
            assert left.expires_ms is not None and await host.credentials.secret("default", "ports") is None
            await world.signed_in(host)
            assert (await world.called(host))[0].status == "completed"

    play(tmp_path, server, story)


class Killed(BaseException):
    """The process dies."""


class Over:
    """Something that dies before the write with a given number, to the ledger or to the vault."""

    writes = ("commit", "keep", "destroy")

    def __init__(self, real: Any, cut: Cut) -> None:
        self._real, self._cut = real, cut

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        return self._cut.before(found) if name in self.writes else found

    def vault(self) -> Any:
        return Over(self._real.vault(), self._cut)


class Cut:
    def __init__(self, boundary: int | None) -> None:
        self.made, self.boundary = 0, boundary

    @property
    def died(self) -> bool:
        return self.boundary is not None and self.made >= self.boundary

    def before(self, write: Any) -> Any:
        async def writes(*given: Any, **more: Any) -> Any:
            self.made += 1
            if self.died:
                raise Killed
            return await write(*given, **more)

        return writes


@asynccontextmanager
async def life(folder: Path, issuer: str, clock: Late, cut: Cut) -> AsyncIterator[Credentials]:
    """Credentials that renew themselves, over a ledger that may die."""
    provider = Provider(id="ports", auth_url=issuer, token_url=f"{issuer}/token", client_id="forestay")
    egress = Egress([issuer.removeprefix("http://")])
    async with Ledger.open(folder / "l.db", clock=clock) as ledger:
        dying: Any = Over(ledger, cut)
        kept = Credentials(dying, clock=clock, randomness=SystemRandomness())
        Authorizations(
            dying, kept, egress, {"ports": provider}, runs=lambda: pytest.fail("no run is needed"), key=b"k" * 32,
            clock=clock, ids=Ids(clock), randomness=SystemRandomness(),
        )  # fmt: skip
        await kept.start()
        try:
            yield kept
        finally:
            await egress.close()


@pytest.mark.parametrize("grace", [True, False])
def test_o4_a_renewal_that_is_killed_at_any_write_is_safe(
    tmp_path: Path, server: tuple[str, Authority], grace: bool
) -> None:
    """Nobody ever sends a token that is not on disk, or one that the server did not give. A server that lets a refresh
    token be used again loses nothing; with a strict one, whose answer was lost, the credential has expired."""
    issuer, authority = server
    authority.grace = grace
    asyncio.run(killed_at_every_write(tmp_path, issuer, authority))


async def killed_at_every_write(folder: Path, issuer: str, authority: Authority) -> None:
    about = Credential(credential_id="ports", issuer="ports", audiences=("api.example.com",))
    request = HttpRequest(method="GET", url="https://api.example.com/", credential="ports")
    clock, died, boundary = Late(), True, 0
    while died:
        boundary += 1
        given = authority._token("code", "forestay", ["use"], None)
        async with life(folder, issuer, clock, Cut(None)) as kept:
            secret = Secret(given.access_token, given.refresh_token, clock.now_ms() + 3_600_000)
            await kept.put("acme", about, secret)
        clock.ahead_ms += 3_600_000
        cut = Cut(boundary)
        with contextlib.suppress(Killed):
            async with life(folder, issuer, clock, cut) as kept:
                await kept.attach("acme", request, "w")
        died = cut.died
        async with life(folder, issuer, clock, Cut(None)) as kept:  # another life
            (named,) = await kept.listed("acme")
            recorded = authority.grace or boundary > 2  # the new key, the record, the old key
            if recorded:
                headers = (await kept.attach("acme", request, "w")).request.headers
                assert headers["Authorization"].removeprefix("Bearer ") in authority.access
                assert headers["Authorization"] != f"Bearer {given.access_token}" and named.expires_ms is None
            else:
                with pytest.raises(Problem) as caught:
                    await kept.attach("acme", request, "w")
                assert (caught.value.key, caught.value.details["reason"]) == ("credential_forbidden", "expired")
            assert len(await kept._vault.names("cred_")) == recorded  # no key that nobody has
    assert boundary == 4
