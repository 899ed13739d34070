"""Opens a model by its name: `local`, `scripted:FILE`, `openai:MODEL[@BASE_URL]`, `anthropic:MODEL[@BASE_URL]`, or a
service with a short name: `ollama:MODEL`.

A name may also be an entry of the settings, which gives the address, the key's variable and the window.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from forestay.kernel import Clock, ModelEntry, Problem, Randomness, SystemClock, SystemRandomness, UntrustedEntry
from forestay.models.faults import Endpoint, shown
from forestay.models.keys import KeySource, LaterKey
from forestay.models.limits import ModelLimits, limits_of
from forestay.models.protocol import Model
from forestay.models.remote import DEFAULT_RETRIES, Provider, Remote, Retries
from forestay.models.services import SERVICES, address_of
from forestay.models.tokens import counter_for

REMOTE = {"openai": "forestay.models.openai_chat", "anthropic": "forestay.models.anthropic_messages"}
"""The module of each remote provider; it has a `PROVIDER`."""
KNOWN = (
    "local",
    "scripted:FILE",
    *(f"{kind}:MODEL[@BASE_URL]" for kind in REMOTE),
    *(f"{name}:MODEL" for name in SERVICES),
)
_RESERVED = ("local", "scripted", *REMOTE)
_ENTRY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class OpenModel(Model, Protocol):
    """A model that its opener closes."""

    async def aclose(self) -> None: ...


class Options(msgspec.Struct, frozen=True):
    """What a specification does not say; None takes the model's known value, or the key of the environment.

    `key_source` says where the key is; `headers` are sent with every request; `entries` are the models in the
    settings.
    """

    api_key: str | None = None
    key_source: KeySource = KeySource()
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
    """Open the model that `spec` names; `options` are the fields of `Options`. This sends nothing."""
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


def check_entry(name: str, entry: ModelEntry) -> None:
    """Raise a Problem when the entry `name` has a mistake that shows without a request."""
    at = f"models.entries.{name}"
    if not _ENTRY_NAME.fullmatch(name) or name in _RESERVED:
        raise Problem(
            "config_invalid",
            f"{name[:80]!r} cannot name a model.",
            at=at,
            fix=f"Use letters, digits, `.`, `_` and `-`, and none of {', '.join(_RESERVED)}.",
        )
    if not entry.model:
        raise Problem("config_invalid", "The entry needs the name of its model.", at=f"{at}.model")
    if entry.base_url and "@" in urlsplit(_checked(entry.base_url, f"{at}.base_url")).netloc:
        fix = "Put the key into a variable of the environment, and name that in `api_key_env`."
        raise Problem("config_invalid", "The settings must not hold a password.", at=f"{at}.base_url", fix=fix)
    if sum(map(bool, (entry.api_key_env, entry.api_key_file, entry.api_key_command))) > 1:
        fix = "Keep one of the api_key settings."
        raise Problem("config_invalid", "The entry has more than one source for its key.", at=at, fix=fix)
    _headers(entry.headers, f"{at}.headers")


def key_source(entry: ModelEntry) -> KeySource:
    """Return the source of an entry's key."""
    said = KeySource(entry.api_key_env, entry.api_key_file, tuple(entry.api_key_command))
    return _source(entry.provider, entry.base_url or None, said)


def _entry(name: str, entry: ModelEntry, options: Options) -> OpenModel:
    """Open an entry's model under the entry's name: two servers may have a model of the same name."""
    check_entry(name, entry)
    if isinstance(entry, UntrustedEntry) and options.environ.get(entry.api_key_env, "").strip():
        raise untrusted(name, entry)
    chosen = msgspec.structs.replace(
        options,
        key_source=key_source(entry),
        context_window=entry.context_window,
        max_output_tokens=entry.max_output_tokens,
        headers=entry.headers,
    )
    return _remote(entry.provider, f"{name}:{entry.model}", entry.model, entry.base_url or None, chosen)


def sends(entry: ModelEntry) -> str:
    """Say in words what an entry sends, and where to."""
    address = shown(entry.base_url) if entry.base_url else f"{entry.provider}'s own address"
    return f"the environment's {entry.api_key_env} to {address}"


def lacks(entry: ModelEntry) -> str:
    """Return the package that an entry's provider needs and that is not installed; empty when none is missing."""
    kind = SERVICES[entry.provider].wire if entry.provider in SERVICES else entry.provider
    package = _provider(kind).package
    return "" if find_spec(package) is not None else package


def untrusted(name: str, entry: UntrustedEntry) -> Problem:
    """Return the Problem for an entry that nobody trusts to send this variable to this address."""
    return Problem(
        "key_untrusted",
        f"The model {name} of this project would send {sends(entry)}, and nobody has trusted it to.",
        variable=entry.api_key_env,
        address=shown(entry.base_url) if entry.base_url else entry.provider,
        fix=f"Look at the address, then run: forestay model trust {name}",
    )


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


def _source(kind: str, address: str | None, said: KeySource) -> KeySource:
    """Return the key's source. A provider's default variable counts only for that provider: no other server gets it."""
    if said != KeySource() or address is not None:
        return said
    return KeySource(SERVICES[kind].variable if kind in SERVICES else _provider(kind).variable)


def _provider(kind: str) -> Provider:
    provider: Provider = importlib.import_module(REMOTE[kind]).PROVIDER
    return provider


def _remote(kind: str, name: str, model: str, address: str | None, options: Options) -> OpenModel:
    """Open the model of a remote provider, or of a service with a short name, under `name`."""
    source = _source(kind, address, options.key_source)
    title = ""
    if kind in SERVICES:
        service, title = SERVICES[kind], SERVICES[kind].title
        kind, address = service.wire, address or address_of(kind, options.environ)
    provider = _provider(kind)
    sdk = _package(provider.package)
    server = provider.title if address is None else shown(address)
    key = options.api_key if options.api_key is not None else source.given(options.environ, server)
    later = LaterKey(source, options.clock) if source.later and options.api_key is None else None
    unsent = provider.unsent(address is not None, key is not None or later is not None)
    client = provider.client(
        sdk,
        api_key=key or "none",
        base_url=address,
        max_retries=0,
        timeout=None,
        default_headers={**dict.fromkeys(unsent, sdk.Omit()), **options.headers},
    )
    named = "" if options.api_key is not None else source.label
    endpoint = Endpoint(title or provider.title, shown(str(client.base_url)), address is not None, key, named)
    limits = _limits(model, options)
    return Remote(
        provider.wire(name, model, client, endpoint, limits.max_output_tokens),
        limits=limits,
        counter=counter_for(model, options.environ),
        clock=options.clock,
        retries=options.retries,
        randomness=options.randomness,
        key=later,
    )


def _specified(kind: str) -> Callable[[str, Options], OpenModel]:
    """Return the opener for `kind:MODEL[@BASE_URL]`."""

    def opener(rest: str, options: Options) -> OpenModel:
        model, address = _model_and_address(rest, f"{kind}:MODEL[@BASE_URL]")
        return _remote(kind, f"{kind}:{model}", model, address, options)

    return opener


_OPENERS: dict[str, Callable[[str, Options], OpenModel]] = {
    "local": _local,
    "scripted": _scripted,
    **{kind: _specified(kind) for kind in (*REMOTE, *SERVICES)},
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
    """Return the address of a model server, or raise a Problem."""
    try:
        parts = urlsplit(address)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good:
        raise Problem(
            "model_unknown" if details else "config_invalid",
            f"{address.rpartition('@')[2]!r} is not the address of a model server.",
            at=at,
            fix="Write an address such as http://127.0.0.1:8000/v1.",
            **details,
        )
    return address


def _headers(headers: Mapping[str, str], at: str) -> None:
    """Raise a Problem for a header that cannot be sent, or that carries a key: the settings hold none."""
    for name, value in headers.items():
        if name.lower() in ("authorization", "x-api-key"):
            fix = "Put the key into a variable of the environment, and name that in `api_key_env`."
            raise Problem("config_invalid", f"The settings must not hold {name}.", at=f"{at}.{name}", fix=fix)
        if not _HEADER_NAME.fullmatch(name) or not (value.isascii() and value.isprintable()):
            raise Problem("config_invalid", f"{name[:80]!r} cannot be sent as a header.", at=f"{at}.{name[:80]}")


def _incomplete(form: str, what: str) -> Problem:
    return Problem("model_unknown", f"The model specification lacks {what}.", fix=f"Write {form}.", known=list(KNOWN))


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
