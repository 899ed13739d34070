"""Opening a model by its name: `local`, `scripted:FILE`, `openai:MODEL[@BASE_URL]`, `anthropic:MODEL[@BASE_URL]`."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from holdfast.kernel.clock import Clock, SystemClock
from holdfast.kernel.problems import Problem
from holdfast.models.limits import ModelLimits, limits_of
from holdfast.models.protocol import Model
from holdfast.models.resend import DEFAULT_RETRIES, Retries
from holdfast.models.tokens import Estimator, counter_for

KNOWN = ("local", "scripted:FILE", "openai:MODEL[@BASE_URL]", "anthropic:MODEL[@BASE_URL]")


class OpenModel(Model, Protocol):
    """A model that was opened here and is closed by whoever opened it."""

    async def aclose(self) -> None: ...


class Options(msgspec.Struct, frozen=True):
    """What a specification does not say; None takes what is known of the model, or the environment's key."""

    api_key: str | None = None
    context_window: int | None = None
    max_output_tokens: int | None = None
    retries: Retries = DEFAULT_RETRIES
    clock: Clock = SystemClock()
    environ: Mapping[str, str] = os.environ
    folder: Path = Path()


def open(spec: str, **options: Any) -> OpenModel:
    """The model that `spec` names; `options` are the fields of `Options`. Nothing is sent yet."""
    kind, _, rest = spec.partition(":")
    opener = _OPENERS.get(kind)
    if opener is None:
        raise Problem(
            "model_unknown",
            f"There is no model provider {kind!r}.",
            spec=spec,
            known=list(KNOWN),
            fix=f"Use one of: {', '.join(KNOWN)}.",
        )
    return opener(rest, Options(**options))


def _local(rest: str, options: Options) -> OpenModel:
    from holdfast.models.local import Local

    if rest:
        raise Problem("model_unknown", "The local model has no variants.", spec=f"local:{rest}", known=list(KNOWN))
    return Local()


def _scripted(rest: str, options: Options) -> OpenModel:
    from holdfast.models.scripted import Scripted, load_script

    if not rest:
        raise _incomplete("scripted:FILE", "the file to play")
    return Scripted(load_script(options.folder / rest))


def _openai(rest: str, options: Options) -> OpenModel:
    from holdfast.models.openai_chat import OpenAIChat
    from holdfast.models.remote import Remote

    model, address = _model_and_address(rest, "openai:MODEL[@BASE_URL]")
    sdk = _package("openai")
    key = _key("OpenAI", "OPENAI_API_KEY", address, options)
    client = sdk.AsyncOpenAI(api_key=key, base_url=address, max_retries=0, timeout=None)
    return Remote(
        OpenAIChat(model, client, compatible=address is not None),
        limits=_limits(model, options),
        counter=counter_for(model, options.environ),
        clock=options.clock,
        retries=options.retries,
    )


def _anthropic(rest: str, options: Options) -> OpenModel:
    from holdfast.models.anthropic_messages import AnthropicMessages
    from holdfast.models.remote import Remote

    model, address = _model_and_address(rest, "anthropic:MODEL[@BASE_URL]")
    sdk = _package("anthropic")
    key = _key("Anthropic", "ANTHROPIC_API_KEY", address, options)
    client = sdk.AsyncAnthropic(api_key=key, base_url=address, max_retries=0, timeout=None)
    limits = _limits(model, options)
    return Remote(
        AnthropicMessages(model, client, max_output_tokens=limits.max_output_tokens),
        limits=limits,
        counter=Estimator(),
        clock=options.clock,
        retries=options.retries,
    )


_OPENERS: dict[str, Callable[[str, Options], OpenModel]] = {
    "local": _local,
    "scripted": _scripted,
    "openai": _openai,
    "anthropic": _anthropic,
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
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Problem(
            "model_unknown", f"{address!r} is no address of a model server.", at="base_url", form=form,
            fix="Write an address such as http://127.0.0.1:8000/v1 behind the @.", known=list(KNOWN),
        )  # fmt: skip
    return model, address


def _incomplete(form: str, what: str) -> Problem:
    return Problem("model_unknown", f"The model specification lacks {what}.", fix=f"Write {form}.", known=list(KNOWN))


def _key(provider: str, variable: str, address: str | None, options: Options) -> str:
    """The key to send. The environment's is the provider's own: another server never sees it."""
    if options.api_key is not None:
        return options.api_key
    if address is not None:
        return "unused"  # most servers of one's own take none, and the packages insist on a text
    key = options.environ.get(variable)
    if not key:
        raise Problem(
            "provider_unauthenticated",
            f"There is no key for {provider}.",
            variable=variable,
            fix=f"Set {variable}, or use the model `local`, which needs none.",
        )
    return key


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Problem(
            "package_missing",
            f"The package `{name}` is not installed.",
            extra=name,
            fix=f"Run `pip install {name}` where holdfast is installed.",
        ) from error
