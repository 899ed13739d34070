"""Opening a model by its name: `local`, `scripted:FILE`, `openai:MODEL[@BASE_URL]`, `anthropic:MODEL[@BASE_URL]`.

A name may also be one of the settings' own, where an entry says the address, the key's variable and the window.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from forestay.kernel import Clock, ModelEntry, Problem, Randomness, SystemClock, SystemRandomness
from forestay.models.faults import Endpoint, shown
from forestay.models.limits import ModelLimits, limits_of
from forestay.models.protocol import Model
from forestay.models.remote import DEFAULT_RETRIES, Provider, Remote, Retries
from forestay.models.tokens import counter_for

REMOTE = {"openai": "forestay.models.openai_chat", "anthropic": "forestay.models.anthropic_messages"}
"""Remote providers: the module of each, which has a `PROVIDER`."""
KNOWN = ("local", "scripted:FILE", *(f"{kind}:MODEL[@BASE_URL]" for kind in REMOTE))
_ENTRY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class OpenModel(Model, Protocol):
    """A model that its opener closes."""

    async def aclose(self) -> None: ...


class Options(msgspec.Struct, frozen=True):
    """What a specification does not say; None takes what is known of the model, or the environment's key.

    `api_key_env` names the variable that holds the key; `headers` are sent with every request; `entries` are the
    models that the settings name.
    """

    api_key: str | None = None
    api_key_env: str = ""
    headers: Mapping[str, str] = {}
    entries: Mapping[str, ModelEntry] = {}
    context_window: int | None = None
    max_output_tokens: int | None = None
    retries: Retries = DEFAULT_RETRIES
    clock: Clock = SystemClock()
    randomness: Randomness = SystemRandomness()
    environ: Mapping[str, str] = os.environ
    folder: Path = Path()


def open(spec: str, **options: Any) -> OpenModel:
    """The model that `spec` names; `options` are the fields of `Options`. Nothing is sent yet."""
    given = Options(**options)
    if spec in given.entries:
        return _entry(spec, given.entries[spec], given)
    kind, _, rest = spec.partition(":")
    opener = _OPENERS.get(kind)
    if opener is None:
        known = [*given.entries, *KNOWN]
        raise Problem(
            "model_unknown",
            f"There is no model {spec!r}.",
            spec=spec,
            known=known,
            fix=f"Use one of: {', '.join(known)}; or add [models.entries.{spec}]."
            if _ENTRY_NAME.fullmatch(spec)
            else f"Use one of: {', '.join(known)}.",
        )
    return opener(rest, given)


def _entry(name: str, entry: ModelEntry, options: Options) -> OpenModel:
    """The model of one entry, under the entry's own name: two servers may have a model of the same name."""
    at = f"models.entries.{name}"
    if not _ENTRY_NAME.fullmatch(name) or name in _OPENERS:
        raise Problem(
            "config_invalid",
            f"{name[:80]!r} cannot name a model.",
            at=at,
            fix=f"Use letters, digits, `.`, `_` and `-`, and none of {', '.join(_OPENERS)}.",
        )
    if not entry.model:
        raise Problem("config_invalid", "The entry names no model.", at=f"{at}.model")
    address = _checked(entry.base_url, f"{at}.base_url") if entry.base_url else None
    if address is not None and "@" in urlsplit(address).netloc:
        fix = "Put the key into a variable of the environment, and name that in `api_key_env`."
        raise Problem("config_invalid", "A password is not written into the settings.", at=f"{at}.base_url", fix=fix)
    chosen = msgspec.structs.replace(
        options,
        api_key_env=entry.api_key_env,
        context_window=entry.context_window,
        max_output_tokens=entry.max_output_tokens,
        headers=_headers(entry.headers, f"{at}.headers"),
    )
    return _remote(entry.provider, f"{name}:{entry.model}", entry.model, address, chosen)


def _local(rest: str, options: Options) -> OpenModel:
    from forestay.models.local import Local

    if rest:
        raise Problem("model_unknown", "The local model has no variants.", spec=f"local:{rest}", known=list(KNOWN))
    return Local()


def _scripted(rest: str, options: Options) -> OpenModel:
    from forestay.models.scripted import Scripted, load_script

    if not rest:
        raise _incomplete("scripted:FILE", "the file to play")
    return Scripted(load_script(options.folder / rest))


def _remote(kind: str, name: str, model: str, address: str | None, options: Options) -> OpenModel:
    """The model of a remote provider, under `name`."""
    provider: Provider = importlib.import_module(REMOTE[kind]).PROVIDER
    sdk = _package(provider.package)
    key = _key(provider.title, provider.variable, address, options)
    unsent = dict.fromkeys(provider.unsent(address is not None, key is not None), sdk.Omit())
    client = provider.client(
        sdk,
        api_key=key or "none",
        base_url=address,
        max_retries=0,
        timeout=None,
        default_headers={**unsent, **options.headers},
    )
    variable = provider.variable if address is None else ""
    named = "" if options.api_key is not None else options.api_key_env or variable
    endpoint = Endpoint(provider.title, shown(str(client.base_url)), address is not None, key, named)
    limits = _limits(model, options)
    return Remote(
        provider.wire(name, model, client, endpoint, limits.max_output_tokens),
        limits=limits,
        counter=counter_for(model, options.environ),
        clock=options.clock,
        retries=options.retries,
        randomness=options.randomness,
    )


def _specified(kind: str) -> Callable[[str, Options], OpenModel]:
    """Opens what `kind:MODEL[@BASE_URL]` says."""

    def opener(rest: str, options: Options) -> OpenModel:
        model, address = _model_and_address(rest, f"{kind}:MODEL[@BASE_URL]")
        return _remote(kind, f"{kind}:{model}", model, address, options)

    return opener


_OPENERS: dict[str, Callable[[str, Options], OpenModel]] = {
    "local": _local,
    "scripted": _scripted,
    **{kind: _specified(kind) for kind in REMOTE},
}


def _limits(model: str, options: Options) -> ModelLimits:
    known = limits_of(model)
    return ModelLimits(
        options.context_window or known.context_window, options.max_output_tokens or known.max_output_tokens
    )


def _model_and_address(rest: str, form: str) -> tuple[str, str | None]:
    model, _, address = rest.partition("@")
    if not model:
        raise _incomplete(form, "the model's name")
    if "@" not in rest:
        return model, None
    return model, _checked(address, "base_url", form=form, known=list(KNOWN))


def _checked(address: str, at: str, **details: Any) -> str:
    """An address of a model server, or a Problem."""
    try:
        parts = urlsplit(address)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good:
        raise Problem(
            "model_unknown" if details else "config_invalid",
            f"{address.rpartition('@')[2]!r} is no address of a model server.",
            at=at,
            fix="Write an address such as http://127.0.0.1:8000/v1.",
            **details,
        )
    return address


def _headers(headers: Mapping[str, str], at: str) -> Mapping[str, str]:
    """Headers that can be sent; a key is not written into the settings."""
    for name, value in headers.items():
        if name.lower() in ("authorization", "x-api-key"):
            fix = "Put the key into a variable of the environment, and name that in `api_key_env`."
            raise Problem("config_invalid", f"{name} is not set here.", at=f"{at}.{name}", fix=fix)
        if not _HEADER_NAME.fullmatch(name) or not (value.isascii() and value.isprintable()):
            raise Problem("config_invalid", f"{name[:80]!r} cannot be sent as a header.", at=f"{at}.{name[:80]}")
    return headers


def _incomplete(form: str, what: str) -> Problem:
    return Problem("model_unknown", f"The model specification lacks {what}.", fix=f"Write {form}.", known=list(KNOWN))


def _key(provider: str, variable: str, address: str | None, options: Options) -> str | None:
    """The key to send; None for a server of one's own that was given none. The environment's key of a provider is for
    that provider: another server never sees it."""
    if options.api_key is not None:
        return options.api_key
    named = options.api_key_env or (variable if address is None else "")
    if not named:
        return None
    key = options.environ.get(named, "").strip()
    if not key:
        raise Problem(
            "provider_unauthenticated",
            f"There is no key for {shown(address) if address is not None else provider}: {named} is not set.",
            variable=named,
            fix=f"Set {named}, or use the model `local`, which needs none.",
        )
    if not (key.isascii() and key.isprintable()):
        raise Problem("provider_unauthenticated", f"What {named} holds cannot be sent as a key.", variable=named)
    return key


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Problem(
            "package_missing",
            f"The package `{name}` is not installed.",
            extra=name,
            fix=f"Run `pip install {name}` where forestay is installed.",
        ) from error
