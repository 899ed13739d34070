"""Signs in at a server that requires it: OAuth 2.1 with PKCE, with a person's consent on first use.

O1  Nobody is asked before the server answers 401. Then the host asks: its dialog shows the authorization server, and
    takes the address at which the browser ends.
O2  An answer to another question is not used, and the person is asked again. The code in an answer is useless without
    the verifier, which never leaves this process.
O3  Every request of the flow uses the server's checked transport. Tokens go only to the server's own URL and to the
    authorization server that issued them. They are encrypted on disk (`tokens.py`).
O4  Waiting for a person does not count as the server's time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel, ValidationError

from forestay.extensions.mcp.hidden_text import spelled
from forestay.extensions.mcp.new_pins import Ask
from forestay.extensions.mcp.server_config import ServerConfig
from forestay.extensions.mcp.tokens import TokenFiles, Tokens
from forestay.kernel import Problem

MOST_QUESTIONS = 5
M = TypeVar("M", bound=BaseModel)
_ADDRESS = {"type": "string", "minLength": 1, "maxLength": 8192, "description": "the address that the browser ends at"}
_SCHEMA = {"type": "object", "properties": {"address": _ADDRESS}, "required": ["address"]}
logging.getLogger("mcp.client.auth.oauth2").addHandler(logging.NullHandler())  # failures become the call's Problem


class SignIn(OAuthClientProvider):
    """Signs the requests to one server. `redirect` is the URL to which the authorization server sends the browser."""

    def __init__(self, config: ServerConfig, files: TokenFiles, ask: Ask, redirect: str) -> None:
        self.failure: Problem | None = None
        """Why signing in failed; the layers between only learn that the request failed."""
        self._config = config
        self._ask = ask
        self._question = ""
        about = OAuthClientMetadata(client_name="forestay", redirect_uris=[AnyUrl(redirect)])
        kept = _Kept(config, files, redirect)
        super().__init__(config.entry.url, about, kept, self._remember, self._consented)
        kept.context = self.context

    async def _remember(self, url: str) -> None:
        self._question = url

    async def _consented(self) -> AuthorizationCodeResult:
        """Ask the person to sign in; return the code of the authorization server (O1, O2)."""
        state = _single(urlsplit(self._question).query, "state")
        for _ in range(MOST_QUESTIONS):
            answer = await self._ask("sign_in", self._dialog())
            if not isinstance(answer, dict) or answer.get("action") != "accept":
                raise self._unsigned("Nobody signed in.")
            came = urlsplit(str(answer.get("content", {}).get("address", ""))).query
            if _single(came, "state") != state:
                continue
            if error := _single(came, "error"):
                raise self._unsigned(f"The authorization server refused: {spelled(error)[:200]}.")
            code = _single(came, "code") or ""
            return AuthorizationCodeResult(code=code, state=state, iss=_single(came, "iss"))
        raise self._unsigned("None of the answers belongs to this sign-in.")

    def _dialog(self) -> dict[str, Any]:
        name, host = self._config.name, urlsplit(self._question).hostname or ""
        message = (
            f"Open this address and sign in. Then copy the address at which the browser ends, even if that page "
            f"does not load. {name} can then act in your name.\n\n{spelled(self._question)}"
        )
        title = f"Sign in at {spelled(host)} for the MCP server {name}"
        facts = {"server": name, "authorizationServer": host, "open": self._question}
        return {"title": title, "message": message, "schema": _SCHEMA, "facts": facts}

    def _unsigned(self, why: str) -> Problem:
        name = self._config.name
        told = f"The MCP server {name} requires a sign-in. {why}"
        fix = f"Sign in at a terminal: forestay mcp trust {name}{self._config.named_by}"
        return Problem("consent_required", told, server=name, fix=fix)

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Run the package's flow, and remember why it failed."""
        async with contextlib.aclosing(super().async_auth_flow(request)) as flow:
            try:
                sent = await flow.__anext__()
                while True:
                    response = yield sent
                    sent = await flow.asend(response)
            except StopAsyncIteration:
                return
            except Problem as problem:
                self.failure = problem
                raise
            except (OAuthFlowError, OAuthTokenError, OAuthRegistrationError, ValidationError) as error:
                words = f"Signing in at the MCP server {self._config.name} failed: {spelled(str(error))[:500]}"
                self.failure = Problem("server_failed", words, server=self._config.name)
                raise


class _Kept:
    """Implements the package's token storage with `TokenFiles`. It stores the whole context: a refresh needs it."""

    def __init__(self, config: ServerConfig, files: TokenFiles, redirect: str) -> None:
        self._config = config
        self._files = files
        self._redirect = redirect
        self.context: Any = None

    async def get_tokens(self) -> OAuthToken | None:
        kept = await asyncio.to_thread(self._files.read, self._config)
        context = self.context
        context.oauth_metadata = _model(OAuthMetadata, kept.authorization_server)
        context.protected_resource_metadata = resource = _model(ProtectedResourceMetadata, kept.resource)
        if resource is not None:
            context.auth_server_url = str(resource.authorization_servers[0])
        context.token_expiry_time = kept.expires_at
        context.client_info = self._known(_model(OAuthClientInformationFull, kept.client))
        return _model(OAuthToken, kept.token)

    def _known(self, client: OAuthClientInformationFull | None) -> OAuthClientInformationFull | None:
        """Return the registered client; None, so that a new one is registered, when the redirect URL has changed."""
        places = client.redirect_uris if client is not None else None
        return client if not places or self._redirect in map(str, places) else None

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        found: OAuthClientInformationFull | None = self.context.client_info
        return found

    async def set_tokens(self, tokens: OAuthToken) -> None:
        await self._keep(tokens)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.context.client_info = client_info
        await self._keep(self.context.current_tokens)

    async def _keep(self, tokens: OAuthToken | None) -> None:
        context = self.context
        kept = Tokens(
            _plain(tokens),
            context.token_expiry_time if tokens is not None else None,
            _plain(context.client_info),
            _plain(context.oauth_metadata),
            _plain(context.protected_resource_metadata),
        )
        await asyncio.to_thread(self._files.write, self._config, kept)


def _plain(model: BaseModel | None) -> dict[str, Any] | None:
    return None if model is None else model.model_dump(mode="json", exclude_none=True)


def _model(kind: type[M], plain: dict[str, Any] | None) -> M | None:
    return None if plain is None else kind.model_validate(plain)


def _single(query: str, name: str) -> str | None:
    """Return the value of a name that occurs exactly once in a query, else None."""
    found = parse_qs(query).get(name, [])
    return found[0] if len(found) == 1 else None
