"""Stores the results of signing in at a server, encrypted on disk: tokens, and the client registered for them.

T1  They cannot be read without the key in the data folder. A file of one server cannot be decrypted for another.
T2  A file that cannot be decrypted counts as missing: the person is asked again.
T3  A host without a data folder keeps them in memory.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from forestay.extensions.mcp.server_config import ServerConfig
from forestay.kernel import Randomness, SystemRandomness, derive, kept_secret, write_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

FOLDER, KEY = "mcp-tokens", "mcp.key"
_NONCE = 12


class Tokens(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that a later start needs to continue as the same person."""

    token: dict[str, Any] | None = None
    expires_at: float | None = None
    """When the access token expires, in seconds since 1970."""
    client: dict[str, Any] | None = None
    authorization_server: dict[str, Any] | None = None
    """The authorization server's metadata: a refresh goes to the server that issued the token."""
    resource: dict[str, Any] | None = None
    """The server's metadata as a protected resource."""


class TokenFiles:
    """The tokens of the servers of one project."""

    def __init__(self, data: Path | None, root: Path, randomness: Randomness | None = None) -> None:
        self._data = data
        self._root = os.path.realpath(root)
        self._randomness = randomness or SystemRandomness()
        self._unwritten: dict[str, Tokens] = {}

    def read(self, config: ServerConfig) -> Tokens:
        """Return the tokens of this server in its current configuration; empty when nobody signed in."""
        from cryptography.exceptions import InvalidTag  # a large package, loaded only for a sign-in

        name = self._name(config)
        if self._data is None:
            return self._unwritten.get(name, Tokens())
        try:
            sealed = (self._data / FOLDER / name).read_bytes()
            plain = self._cipher().decrypt(sealed[:_NONCE], sealed[_NONCE:], name.encode())
            return msgspec.json.decode(plain, type=Tokens)
        except (FileNotFoundError, InvalidTag, ValueError):  # T2
            return Tokens()

    def write(self, config: ServerConfig, tokens: Tokens) -> None:
        name = self._name(config)
        if self._data is None:
            self._unwritten[name] = tokens
            return
        nonce = self._randomness.bytes(_NONCE)
        sealed = self._cipher().encrypt(nonce, msgspec.json.encode(tokens), name.encode())
        write_file(self._data / FOLDER / name, nonce + sealed)

    def forget(self, config: ServerConfig) -> None:
        """Delete the tokens of this server."""
        name = self._name(config)
        self._unwritten.pop(name, None)
        if self._data is not None:
            (self._data / FOLDER / name).unlink(missing_ok=True)

    def _name(self, config: ServerConfig) -> str:
        return hashlib.sha256(f"{self._root}\0{config.fingerprint}".encode()).hexdigest()

    def _cipher(self) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        assert self._data is not None, "tokens in memory are not encrypted"
        self._data.mkdir(parents=True, exist_ok=True)
        return AESGCM(derive(kept_secret(self._data / KEY, self._randomness), "mcp-tokens"))
