"""A tenant walks through the whole console and asks for everything: nothing of anybody else's is there."""

from __future__ import annotations

from pathlib import Path

import httpx

from forestay.surface import Serving
from tests.host.furnishing import MARK as ACME
from tests.host.furnishing import furnish
from tests.security.test_xss import crawl
from tests.security.world import MARK, run


def test_a_tenant_that_follows_every_link_sees_nothing_of_the_others(tmp_path: Path) -> None:
    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        names = {"acme": "", "other": ""}
        for tenant in names:
            _, names[tenant] = await serving.services.keys.create(tenant, tenant=tenant)
        key = {"Authorization": f"Bearer {names['acme']}"}
        async with httpx.AsyncClient(base_url=serving.url, headers=key, trust_env=False, timeout=30) as acme:
            await furnish(acme)
            assert (await acme.post("/login", data={"key": names["acme"]})).status_code == 303
            own = "".join(page.text for page in (await crawl(acme, refused=(403,))).values())
            assert ACME in own, "acme sees its own"
            assert MARK not in own, "and nothing of the operator's"
        async with httpx.AsyncClient(base_url=serving.url, trust_env=False, timeout=30) as other:
            assert (await other.post("/login", data={"key": names["other"]})).status_code == 303
            pages = await crawl(other, refused=(403,))
            assert {"/", "/runs", "/inbox"} <= set(pages)
            for path, page in pages.items():
                assert ACME not in page.text and MARK not in page.text, path
        everything = "".join(page.text for page in (await crawl(http)).values())
        assert ACME in everything, "the operator reads the ledger of all"

    run(tmp_path, story)


def test_a_tenant_that_knows_an_address_is_told_that_there_is_nothing(tmp_path: Path) -> None:
    """Every page that the operator can reach, asked for with another tenant's session."""

    async def story(serving: Serving, http: httpx.AsyncClient) -> None:
        paths = sorted(await crawl(http))
        _, key = await serving.services.keys.create("k", tenant="other")
        async with httpx.AsyncClient(base_url=serving.url, trust_env=False, timeout=30) as other:
            assert (await other.post("/login", data={"key": key})).status_code == 303
            for path in dict.fromkeys(map(_unasked, paths)):
                answer = await other.get(path)
                assert MARK not in answer.text, path
                assert answer.status_code in (200, 403, 404), path

    run(tmp_path, story)


def _unasked(path: str) -> str:
    """The address without a query that holds the mark: a page may repeat what its visitor asked."""
    page, _, query = path.partition("?")
    return page if MARK in query else path
