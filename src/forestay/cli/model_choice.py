"""Completes an entry for a model: from options, from this machine, or by questions on a terminal."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from forestay.cli.output import note
from forestay.cli.terminal import attended, told
from forestay.kernel import ModelEntry, ModelService, Problem, canonical, one_line

if TYPE_CHECKING:
    from forestay.models import LocalServer, ServedModel

_SHOWN = 30
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


async def chosen_entry(name: str, said: dict[str, Any]) -> dict[str, Any]:
    """Return the entry `name` for the settings; a Problem when something is missing or wrong."""
    from forestay import models

    if said.get("provider", "openai") not in get_args(ModelService):
        known = list(get_args(ModelService))
        raise Problem("invalid_usage", f"There is no provider {said['provider']!r}.", at="--provider", known=known)
    offered: list[ServedModel] | None = None
    if "provider" not in said and "base_url" not in said:
        server = await _chosen_server()
        if isinstance(server, str):
            said = {**said, **_place(server)}
        else:
            said, offered = {**said, "provider": server.service}, list(server.models)
            if server.address != models.SERVICES[server.service].address:
                said["base_url"] = server.address
    if not said.get("api_key_file") and not said.get("api_key_command"):
        said = await _with_variable(said)
    if "model" not in said:
        said["model"] = await _chosen_model(said, offered)
    said = await _with_window(said, offered)
    entry = _checked(said)
    models.check_entry(name, entry)
    return {field: said[field] for field in ModelEntry.__struct_fields__ if field in said}


async def _chosen_server() -> LocalServer | str:
    """Return a server of this machine, or the provider or address that the person types instead."""
    from forestay import models

    found = await models.find_servers(os.environ)
    lines = [f"{models.SERVICES[item.service].title} at {item.address}, {len(item.models)} models" for item in found]
    if not attended():
        if len(found) == 1:
            note(f"found  {lines[0]}")
            return found[0]
        raise Problem(
            "invalid_usage",
            "Several model servers run here: which one?" if found else "No model server runs on this machine.",
            at="--provider",
            found=lines,
            fix="Give --provider or --base-url.",
        )
    services = [item for item in get_args(ModelService) if item not in {server.service for server in found}]
    for number, line in enumerate([*lines, *(f"{item}" for item in services)], 1):
        note(f"  {number}  {line}")
    reply = await told("Where is the model? A number, a provider, or an address: ")
    if reply.isdecimal() and 0 < int(reply) <= len(found) + len(services):
        place = int(reply) - 1
        return found[place] if place < len(found) else services[place - len(found)]
    return reply


def _place(reply: str) -> dict[str, str]:
    if reply in get_args(ModelService):
        return {"provider": reply}
    if reply.startswith(("http://", "https://")):
        return {"base_url": reply}
    raise Problem("invalid_usage", f"{one_line(reply)[:80]!r} is neither a provider nor an address.", at="--provider")


async def _with_variable(said: dict[str, Any]) -> dict[str, Any]:
    """Add the key's variable for a remote server; only a person can name it."""
    if "base_url" not in said or "api_key_env" in said or said["base_url"].startswith("http://") or not attended():
        return said
    reply = await told("Which environment variable holds its key? Enter: it wants none: ")
    if reply and not _VARIABLE.fullmatch(reply):
        fix = "Write the variable's name, not the key: the settings hold no secrets."
        raise Problem("invalid_usage", "That is no name of a variable.", at="--api-key-env", fix=fix)
    return {**said, "api_key_env": reply} if reply else said


async def _chosen_model(said: dict[str, Any], offered: list[ServedModel] | None) -> str:
    """Return the server's only model, or the one that the person picks."""
    if offered is None:
        offered = await _offered(said) if attended() or _listed(said) else []
    if len(offered) == 1:
        note(f"found  {offered[0].name}")
        return offered[0].name
    names = [item.name for item in offered]
    if not attended():
        told_ = "Which model? The server has several." if names else "The model has no name."
        raise Problem("invalid_usage", told_, at="--model", known=names[:_SHOWN], fix="Give --model.")
    for number, item in enumerate(names[:_SHOWN], 1):
        note(f"  {number}  {item}")
    if len(names) > _SHOWN:
        note(f"  … and {len(names) - _SHOWN} more")
    reply = await told("Which model? A number or a name: " if names else "Which model, as its server calls it? ")
    if reply.isdecimal() and 0 < int(reply) <= len(names):
        return names[int(reply) - 1]
    if not reply:
        raise Problem("cancelled", "Nothing was changed.")
    return reply


async def _with_window(said: dict[str, Any], offered: list[ServedModel] | None) -> dict[str, Any]:
    """Add the window that the server reports, unless one was given."""
    if "context_window" in said:
        return said
    if offered is None and _listed(said):
        try:
            offered = await _offered(said)
        except Problem as problem:  # the model can be added before its server runs
            note(f"note   {problem.message}")
    window = next((item.context_window for item in offered or () if item.name == said["model"]), None)
    if window is not None:
        return {**said, "context_window": window}
    return said


def _listed(said: dict[str, Any]) -> bool:
    """Whether the server lists its models without a key: a known service, or one on this machine."""
    from forestay import models

    return said.get("provider") in models.SERVICES or said.get("base_url", "").startswith("http://127.0.0.1")


async def _offered(said: dict[str, Any]) -> list[ServedModel]:
    from forestay import models

    service = said.get("provider", "openai")
    if service == "anthropic" or (service == "openai" and "base_url" not in said):
        return []
    address = said.get("base_url") or models.address_of(service, os.environ)
    if service in models.SERVICES and (found := await models.find_servers(os.environ, {service: address})):
        return list(found[0].models)
    key = os.environ.get(said.get("api_key_env", ""), "").strip() or None
    return await models.served_models(address, key, said.get("headers"))


def _checked(said: dict[str, Any]) -> ModelEntry:
    try:
        return msgspec.convert(said, ModelEntry)
    except msgspec.ValidationError as error:
        message, at = canonical.located(error, "")
        raise Problem("invalid_usage", message, at=at) from error
