"""Models of the settings: add, list, test, trust, use and remove them."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from forestay.cli.command import Group
from forestay.cli.model_choice import chosen_entry
from forestay.cli.model_trust import keep, keep_own, take_back, with_trusted_keys
from forestay.cli.output import Answer, note
from forestay.cli.settings_file import SettingsFile, project_file, user_file
from forestay.kernel import ModelEntry, Problem, UntrustedEntry, config, key_use, one_line

if TYPE_CHECKING:
    from forestay.models import Completion

app = Group("model")
QUESTION = "Answer with one short sentence: are you ready to work?"

Name = Annotated[str, typer.Argument(help="The model's name in this project.")]
User = Annotated[bool, typer.Option("--user", help="Your own settings, for every project; default: this project's.")]


@app.command("add")
async def add(
    name: Name,
    provider: Annotated[
        str | None, typer.Option(help="openai, anthropic, ollama, lmstudio, llamacpp or openrouter.")
    ] = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", help="The address of a server that speaks chat completions.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="The model, as its server calls it.")] = None,
    api_key_env: Annotated[str | None, typer.Option(help="The variable that holds the key.")] = None,
    api_key_file: Annotated[str | None, typer.Option(help="A file with the key; goes to your own settings.")] = None,
    api_key_command: Annotated[
        str | None, typer.Option(help="A command that prints the key; goes to your own settings.")
    ] = None,
    context_window: Annotated[int | None, typer.Option(min=256, help="Tokens that it reads at once.")] = None,
    max_output_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of its longest answer.")] = None,
    input_price: Annotated[float | None, typer.Option(min=0, help="USD for a million tokens of questions.")] = None,
    output_price: Annotated[float | None, typer.Option(min=0, help="USD for a million tokens of answers.")] = None,
    header: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, sent with every request.")] = None,
    default: Annotated[
        bool | None, typer.Option("--default/--no-default", help="Use it where no model is named; default: if none is.")
    ] = None,
    user: User = False,
    replace: Annotated[bool, typer.Option("--replace", help="Write over an entry of this name.")] = False,
) -> Answer:
    """Write a model into the settings. What is missing is found on this machine, or asked on a terminal."""
    target = user_file() if user or api_key_file or api_key_command else project_file()
    if target.get("models", "entries", name) is not None and not replace:
        told = f"There is a model {name} already."
        raise Problem("already_exists", told, at=str(target.path), fix="Use --replace to write over it.")
    said: dict[str, Any] = {
        "model": model,
        "provider": provider,
        "base_url": base_url,
        "api_key_env": api_key_env,
        "api_key_file": api_key_file,
        "api_key_command": shlex.split(api_key_command) if api_key_command else None,
        "context_window": context_window,
        "max_output_tokens": max_output_tokens,
        "headers": _headers(header),
        "price": _price(input_price, output_price),
    }
    entry = await chosen_entry(name, {field: value for field, value in said.items() if value})
    changes: dict[tuple[str, ...], Any] = {("models", "entries", name): entry}
    if default or (default is None and "models.default" not in config.load().sources):
        changes["models", "default"] = name
    target.change(changes)
    if target.path == project_file().path:
        keep_own(msgspec.convert(entry, ModelEntry))
    return _added(name, entry, target, ("models", "default") in changes)


@app.command("list")
def list_() -> Answer:
    """The models of the settings: where each is, and whether its key is there."""
    settings = config.load().config.models
    found = [
        {
            **_shown(name, entry),
            "default": name == settings.default,
            "classes": [kind for kind, used in settings.classes.items() if used == name],
            "agents": [agent for agent, used in settings.agents.items() if used == name],
        }
        for name, entry in settings.entries.items()
    ]
    result = {"default": settings.default, "models": found}
    return Answer(result, human=_listing(settings.default, found))


@app.command("test")
async def test(
    name: Annotated[str, typer.Argument(help="A model of the settings, or a specification such as ollama:MODEL.")],
    timeout: Annotated[float, typer.Option(min=1, help="The longest silence, in seconds.")] = 60.0,
) -> Answer:
    """Send one question, and say what came."""
    from forestay import models
    from forestay.models import Message, Params

    settings = (await with_trusted_keys(config.load().config, only=name)).models
    opened = models.open(name, entries=settings.entries, retries=models.Retries(attempts=1))
    began = time.perf_counter()
    try:
        stream = opened.stream([Message("user", QUESTION)], params=Params(timeout=timeout))
        answer = await models.fold(stream)
    finally:
        await opened.aclose()
    took = time.perf_counter() - began
    if not answer.text.strip():
        told = f"{opened.name} answered with nothing (it ended with {answer.finish_reason})."
        fix = "It may have spent its answer on thinking: raise max_output_tokens, or try another model."
        raise Problem("provider_error", told, fix=fix)
    result = {"name": name, "model": opened.name, "answer": answer.text, "finishReason": answer.finish_reason}
    counted = {"contextWindow": opened.context_window, "seconds": round(took, 3)}
    used = None if answer.usage is None else msgspec.to_builtins(answer.usage)
    return Answer({**result, **counted, "usage": used}, human=_heard(opened.name, answer, took, opened.context_window))


@app.command("trust")
def trust(
    name: Name,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Take it back.")] = False,
) -> Answer:
    """Let a model of this project send its key. A yes is for the variable, the address and the folder."""
    from forestay import models

    entry = config.load().config.models.entries.get(name)
    if entry is None or project_file().get("models", "entries", name) is None:
        known = sorted(project_file().get("models", "entries") or {})
        raise Problem("not_found", f"This project names no model {one_line(name)[:80]}.", known=known)
    if not (use := key_use(entry, Path())):
        return Answer({"name": name, "trusted": True, "sends": None}, human=[f"{name} sends no variable"])
    if withdraw:
        take_back(use)
    else:
        keep(use)
    told = f"{name} may {'not ' if withdraw else ''}send {models.sends(entry)}"
    return Answer({"name": name, "trusted": not withdraw, "sends": use}, human=[told])


@app.command("use")
def use(
    name: Annotated[str, typer.Argument(help="A model of the settings, or a specification such as ollama:MODEL.")],
    agent: Annotated[str | None, typer.Option(help="Only for this agent.")] = None,
    work: Annotated[str | None, typer.Option("--class", help="Only for this class of work, e.g. reasoning.")] = None,
    user: User = False,
) -> Answer:
    """Use a model where no other is named, or for one agent or class of work only."""
    if agent and work:
        raise Problem("invalid_usage", "Give --agent or --class, not both.", at="--class")
    models = config.load().config.models
    if name not in models.entries and name != "local" and ":" not in name:
        raise Problem("not_found", f"The settings name no model {one_line(name)[:80]}.", known=sorted(models.entries))
    target = user_file() if user else project_file()
    place = ("models", "agents", agent) if agent else ("models", "classes", work) if work else ("models", "default")
    target.change({place: name})
    about = f"for {agent or work}" if agent or work else "where no model is named"
    return Answer(
        {"model": name, "setting": ".".join(place), "file": str(target.path)},
        human=[f"{name} answers {about} (in {target.path})"],
    )


@app.command("remove")
def remove(name: Name, user: User = False) -> Answer:
    """Take a model out of the settings, and out of where they use it."""
    places = [user_file()] if user else [project_file(), user_file()]
    target = next((file for file in places if file.get("models", "entries", name) is not None), None)
    if target is None:
        known = sorted({entry for file in places for entry in file.get("models", "entries") or {}})
        told = f"The settings name no model {one_line(name)[:80]}."
        raise Problem("not_found", told, known=known)
    changes: dict[tuple[str, ...], Any] = {("models", "entries", name): None}
    if target.get("models", "default") == name:
        changes["models", "default"] = None
    for table in ("classes", "agents"):
        for kind, used in (target.get("models", table) or {}).items():
            if used == name:
                changes["models", table, kind] = None
    target.change(changes)
    lines = [f"{name} is out of {target.path}"]
    if ("models", "default") in changes:
        lines.append(f"models are asked from `{config.load().config.models.default}` again")
    return Answer(
        {"removed": name, "file": str(target.path), "settings": [".".join(names) for names in changes]}, lines
    )


def _added(name: str, entry: dict[str, Any], target: SettingsFile, default: bool) -> Answer:
    from forestay import models

    lines = [f"wrote {name} to {target.path}" + (": it answers where no model is named" if default else "")]
    shown = _shown(name, msgspec.convert(entry, ModelEntry))
    lines.append(_line(shown))
    if shown["key"]["state"] == "missing":
        note(f"{shown['key']['from']} is not set yet: set it before you use the model.")
    package = models.lacks(msgspec.convert(entry, ModelEntry))
    first = f"`pip install {package}` into the same environment, then " if package else ""
    lines.append(f"Next: {first}forestay model test {name}")
    return Answer({"file": str(target.path), "name": name, "entry": entry, "default": default}, human=lines)


def _shown(name: str, entry: ModelEntry) -> dict[str, Any]:
    from forestay import models

    known = models.SERVICES.get(entry.provider)
    address = entry.base_url or (known.address if known is not None else f"{entry.provider}'s own address")
    found = {"name": name, "model": entry.model, "provider": entry.provider, "address": address, "key": _key(entry)}
    window = {} if entry.context_window is None else {"contextWindow": entry.context_window}
    price = {} if entry.price is None else {"price": msgspec.to_builtins(entry.price)}
    return {**found, **window, **price}


def _key(entry: ModelEntry) -> dict[str, str]:
    """Return where the key comes from and whether it is set, without running a command for it."""
    from forestay import models

    source = models.key_source(entry)
    if source.command:
        return {"from": source.label, "state": "asked for"}
    if source.file:
        return {"from": source.label, "state": "set" if Path(source.file).expanduser().is_file() else "missing"}
    if not source.variable:
        return {"from": "", "state": "none"}
    if isinstance(entry, UntrustedEntry):
        return {"from": source.variable, "state": "not trusted"}
    return {"from": source.variable, "state": "set" if os.environ.get(source.variable, "").strip() else "missing"}


def _listing(default: str, found: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield f"default  {default}"
    for item in found:
        yield ("* " if item["default"] else "  ") + _line(item)
    if not found:
        yield "The settings name no model of their own. Add one: forestay model add NAME"


def _line(item: dict[str, Any]) -> str:
    key = item["key"]
    keyed = "no key" if key["state"] == "none" else f"key: {key['from']} ({key['state']})"
    window = f", {item['contextWindow']:,} tokens" if "contextWindow" in item else ""
    return f"{item['name']:<12} {item['model']} at {item['address']}, {keyed}{window}"


def _heard(model: str, answer: Completion, took: float, window: int) -> list[str]:
    used = answer.usage
    counted = "it did not say what it counted"
    if used is not None:
        counted = f"it counted {used.input_tokens} tokens of question and {used.output_tokens} of answer"
    heard = f"{model} answered after {took:.1f} s: {one_line(answer.text)[:300]}"
    return [heard, f"{counted}; window: {window:,} tokens"]


def _headers(texts: list[str] | None) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts or ()]
    if any(not name or not equals for name, equals, _ in pairs):
        raise Problem("invalid_usage", "--header takes NAME=VALUE.", at="--header")
    return {name: value for name, _, value in pairs}


def _price(question: float | None, answer: float | None) -> dict[str, float] | None:
    if question is None and answer is None:
        return None
    if question is None or answer is None:
        raise Problem(
            "invalid_usage", "A price has two parts: give --input-price and --output-price.", at="--input-price"
        )
    return {"input": question, "output": answer}
