"""A real authorization server, and an MCP server that takes its tokens: two addresses on loopback.

The protocol side of both (metadata, registration, PKCE, bearer checks) is the `mcp` package's own. The memory behind
the authorization server is here.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl, AnyUrl
from starlette.applications import Starlette
from starlette.types import ASGIApp


class Authority:
    """Clients, codes and tokens. Everybody who comes with a browser is signed in and agrees."""

    def __init__(self) -> None:
        self.lifetime = 3600
        self.grace = False
        """Whether a refresh token that was used may be used again, as after an answer that was lost."""
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.given: list[str] = []
        """How each token was come by: `code` or `refresh`."""

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = AuthorizationCode(
            code=secrets.token_urlsafe(16),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]  # a code is good once
        return self._token("code", client.client_id, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if refresh_token.token not in self.refresh:
            raise TokenError("invalid_grant")
        if not self.grace:
            del self.refresh[refresh_token.token]
        return self._token("refresh", client.client_id, scopes, refresh_token.resource)

    def _token(self, how: str, client: str, scopes: list[str], resource: str | None) -> OAuthToken:
        self.given.append(how)
        until = int(time.time()) + self.lifetime
        access, refresh = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        about: dict[str, Any] = {"client_id": client, "scopes": scopes, "resource": resource}
        self.access[access] = AccessToken(token=access, expires_at=until, **about)
        self.refresh[refresh] = RefreshToken(token=refresh, **about)
        return OAuthToken(access_token=access, refresh_token=refresh, expires_in=self.lifetime, scope=" ".join(scopes))

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def verify_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)

    def forget_everybody(self) -> None:
        self.access.clear()
        self.refresh.clear()


@contextlib.contextmanager
def guarded() -> Iterator[tuple[str, Authority]]:
    """An MCP server that asks who uses it, and the authority that says so."""
    authority = Authority()
    with _bound() as (keeper, issuer), _bound() as (server, address):
        options = ClientRegistrationOptions(enabled=True, valid_scopes=["use"], default_scopes=["use"])
        routes = create_auth_routes(authority, AnyHttpUrl(issuer), client_registration_options=options)
        url = f"{address}/mcp"
        auth = AuthSettings(
            issuer_url=AnyHttpUrl(issuer),
            resource_server_url=AnyHttpUrl(url),
            required_scopes=["use"],
            validate_token_resource=True,
        )
        tools = MCPServer("guarded", token_verifier=authority, auth=auth)

        @tools.tool(structured_output=False)
        def echo(text: str) -> str:
            """Says it again."""
            return text

        app = tools.streamable_http_app(json_response=True, stateless_http=True)
        with _running(Starlette(routes=routes), keeper), _running(app, server):
            yield url, authority


@contextlib.contextmanager
def standing(redirect: str) -> Iterator[tuple[str, Authority]]:
    """An authorization server alone, which knows the public client `forestay`."""
    authority = Authority()
    authority.clients["forestay"] = OAuthClientInformationFull(
        client_id="forestay",
        redirect_uris=[AnyUrl(redirect)],
        token_endpoint_auth_method="none",
        scope="use",
    )
    with _bound() as (keeper, issuer):
        options = ClientRegistrationOptions(enabled=False, valid_scopes=["use"])
        routes = create_auth_routes(authority, AnyHttpUrl(issuer), client_registration_options=options)
        with _running(Starlette(routes=routes), keeper):
            yield issuer, authority


def consent(question: str) -> str:
    """What a person with a browser does: opens the address, agrees, and copies where the browser ends."""
    answer = httpx.get(question, follow_redirects=False)
    assert answer.status_code == 302, answer.text
    return answer.headers["location"]


@contextlib.contextmanager
def _bound() -> Iterator[tuple[socket.socket, str]]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        yield found, f"http://127.0.0.1:{found.getsockname()[1]}"


@contextlib.contextmanager
def _running(app: ASGIApp, bound: socket.socket) -> Iterator[None]:
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, log_level="critical"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()
