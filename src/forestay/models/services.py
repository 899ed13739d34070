"""Services with a short name (`ollama:MODEL`), and the model servers that run on this machine.

A server is found at the default address of its program: a server that answers there with a list of models is taken for
that program.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from forestay.kernel import Problem
from forestay.models.faults import shown

_PROBE_SECONDS = 1.0
_LIST_SECONDS = 8.0
_MOST_BYTES = 8 * 1024 * 1024
OLLAMA_WINDOW = 4_096
"""Ollama's context window unless `num_ctx` or OLLAMA_CONTEXT_LENGTH sets it; it silently cuts longer prompts."""


class NamedService(msgspec.Struct, frozen=True):
    """The service behind a short name: `wire` is the protocol, `variable` holds the key. Without it no key is sent."""

    title: str
    wire: str
    address: str
    variable: str = ""


SERVICES = {
    "ollama": NamedService("Ollama", "openai", "http://127.0.0.1:11434/v1"),
    "lmstudio": NamedService("LM Studio", "openai", "http://127.0.0.1:1234/v1"),
    "llamacpp": NamedService("llama.cpp", "openai", "http://127.0.0.1:8080/v1"),
    "openrouter": NamedService("OpenRouter", "openai", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
}
LOCAL = ("ollama", "lmstudio", "llamacpp")


class ServedModel(msgspec.Struct, frozen=True):
    """A model that a server offers; `context_window` is None when the server does not tell it."""

    name: str
    context_window: int | None = None


class LocalServer(msgspec.Struct, frozen=True):
    """A model server that answered: its service, its address, and what it offers."""

    service: str
    address: str
    models: tuple[ServedModel, ...]


def address_of(service: str, environ: Mapping[str, str]) -> str:
    """Return the address of a service; OLLAMA_HOST changes Ollama's."""
    host = environ.get("OLLAMA_HOST", "").strip() if service == "ollama" else ""
    if not host:
        return SERVICES[service].address
    parts = urlsplit(host if "://" in host else f"http://{host}")
    name = parts.hostname or "127.0.0.1"
    name = "127.0.0.1" if name in ("0.0.0.0", "::") else f"[{name}]" if ":" in name else name  # noqa: S104 - read, not bound
    return f"{parts.scheme}://{name}:{parts.port or 11434}/v1"


async def find_servers(environ: Mapping[str, str], addresses: Mapping[str, str] | None = None) -> list[LocalServer]:
    """Return the model servers of this machine that answer now; `addresses` are the addresses to try, by service."""
    places = addresses or {service: address_of(service, environ) for service in LOCAL}
    found = await asyncio.gather(*(_probe(service, address) for service, address in places.items()))
    return [server for server in found if server is not None]


async def served_models(
    address: str, key: str | None = None, headers: Mapping[str, str] | None = None
) -> list[ServedModel]:
    """Return the models that the server at `address` lists in `/models`; raise a Problem when none answers."""
    import httpx

    sent = {**(headers or {}), **({"Authorization": f"Bearer {key}"} if key else {})}
    try:
        async with httpx.AsyncClient(timeout=_LIST_SECONDS, trust_env=not _loopback(address)) as client:
            listed = _models(await _json(client, f"{address.rstrip('/')}/models", sent))
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise Problem(
            "provider_error",
            f"The model server at {shown(address)} does not list its models.",
            reason=f"{type(error).__name__}: {error}"[:200],
            fix="Check the address, or name the model with --model.",
        ) from error
    if listed is None:
        told = f"The server at {shown(address)} is not a model server."
        raise Problem("provider_error", told, fix="Check the address; many end in /v1.")
    return listed


async def _probe(service: str, address: str) -> LocalServer | None:
    """Return the server at `address` if it answers and is the `service`."""
    import httpx

    root = address.removesuffix("/v1")
    try:
        async with httpx.AsyncClient(timeout=_PROBE_SECONDS, trust_env=False) as client:
            body = await _json(client, f"{address}/models")
            listed = _models(body)
            if listed is None or not _is(service, body):
                return None
            windows = await _windows(service, client, root)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return None
    everywhere = windows.get("*")
    known = [
        msgspec.structs.replace(item, context_window=windows.get(item.name) or everywhere or item.context_window)
        for item in listed
    ]
    return LocalServer(service, address, tuple(known))


def _is(service: str, listed: Any) -> bool:
    """Check that a list comes from the service. Many programs use port 8080, so llama.cpp must name itself."""
    return service != "llamacpp" or any(item.get("owned_by") == "llamacpp" for item in listed["data"])


async def _windows(service: str, client: Any, root: str) -> dict[str, int]:
    """Return each model's context window as the running server has it; `*` stands for all models."""
    if service == "ollama":
        return {"*": OLLAMA_WINDOW}
    if service == "llamacpp":
        settings = (await _json(client, f"{root}/props")).get("default_generation_settings") or {}
        return {"*": count} if isinstance(count := settings.get("n_ctx"), int) and count >= 256 else {}
    found = (await _json(client, f"{root}/api/v0/models")).get("data") or []
    counts = {
        item["id"]: item.get("loaded_context_length") for item in found if isinstance(item, dict) and "id" in item
    }
    return {name: count for name, count in counts.items() if isinstance(count, int) and count >= 256}


async def _json(client: Any, url: str, headers: Mapping[str, str] | None = None) -> Any:
    answer = await client.get(url, headers=dict(headers or {}))
    if answer.status_code != 200:
        raise ValueError(f"status {answer.status_code}")
    if len(answer.content) > _MOST_BYTES:
        raise ValueError("the answer is too long")
    found = msgspec.json.decode(answer.content)
    return found if isinstance(found, dict) else {}


def _models(body: Any) -> list[ServedModel] | None:
    """Return the models of a `/models` answer; None when it is not such a list."""
    data = body.get("data") if isinstance(body, dict) else None
    if not isinstance(data, list) or not all(
        isinstance(item, dict) and isinstance(item.get("id"), str) for item in data
    ):
        return None
    return [ServedModel(item["id"], _window(item)) for item in data]


def _window(item: Mapping[str, Any]) -> int | None:
    """Return the context window if the list has it: OpenRouter and vLLM each use their own key."""
    found: Sequence[Any] = [item.get("context_length"), item.get("max_model_len")]
    return next((count for count in found if isinstance(count, int) and count >= 256), None)


def _loopback(address: str) -> bool:
    return (urlsplit(address).hostname or "") in ("127.0.0.1", "localhost", "::1")
