"""Makes a command from a function: opens what it works on, prints its result, reports its Problems.

    app = Group("run")

    @app.command("show", using=connected)
    async def show(host: Connection, run: RunId) -> Answer: ...

`using` is an async context manager. Its parameters become options of the command, and what it opens is the function's
first argument. A function that declares one of these parameters itself gets the value too.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar, get_type_hints

import typer

from forestay.cli.output import Answer, fail, say
from forestay.kernel import Problem

F = TypeVar("F", bound=Callable[..., Any])
Opener = Callable[..., AbstractAsyncContextManager[Any]]


class Group:
    """The commands behind one word, as `forestay run …`; the program includes its `typer`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.typer = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

    def command(self, name: str, using: Opener | None = None) -> Callable[[F], F]:
        """Add a command; the decorated function stays unchanged."""

        def decorate(function: F) -> F:
            self.typer.command(name)(answers(f"{self.name}.{name}", using)(function))
            return function

        return decorate

    def group(self, name: str, help: str) -> Group:
        """Add a group inside this one and return it."""
        inner = Group(f"{self.name}.{name}")
        self.typer.add_typer(inner.typer, name=name, help=help)
        return inner

    def include(self, other: Group) -> None:
        """Add the commands of another file's group."""
        self.typer.registered_commands += other.typer.registered_commands
        self.typer.registered_groups += other.typer.registered_groups


def answers(operation: str, using: Opener | None = None) -> Callable[[Callable[..., Any]], Callable[..., int]]:
    """Make a command from a function that returns a result or an Answer, or raises a Problem.

    A coroutine function is run. A function that returns None has printed its answer itself.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., int]:
        opening = function if using is None else _opening(function, using)

        @functools.wraps(opening)
        def command(*arguments: Any, **options: Any) -> int:
            try:
                value = opening(*arguments, **options)
                if inspect.iscoroutine(value):
                    import asyncio

                    value = asyncio.run(value)
            except Problem as problem:
                return fail(operation, problem)
            except (typer.Exit, typer.Abort, KeyboardInterrupt, BrokenPipeError):
                raise
            except Exception as error:  # noqa: BLE001 - the outermost boundary of a command
                return fail(operation, Problem.unexpected(error))
            if value is None:
                return 0
            return say(operation, value if isinstance(value, Answer) else Answer(value))

        return command

    return decorate


def _opening(function: Callable[..., Any], using: Opener) -> Callable[..., Any]:
    """Return `function` without its first parameter and with the parameters of `using`."""
    own, options = _parameters(function, skip=1), _parameters(using)

    async def opening(**given: Any) -> Any:
        async with using(**{name: given[name] for name in options}) as opened:
            return await function(opened, **{name: given[name] for name in own})

    together = {**{name: item for name, item in options.items() if name not in own}, **own}
    ordered = sorted(together.values(), key=lambda item: (item.name in options, item.default is not item.empty))
    opening.__doc__, opening.__name__ = function.__doc__, function.__name__
    opening.__annotations__ = {item.name: item.annotation for item in ordered}
    opening.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [item.replace(kind=item.KEYWORD_ONLY) for item in ordered]
    )
    return opening


def _parameters(function: Callable[..., Any], skip: int = 0) -> dict[str, inspect.Parameter]:
    """Return the parameters by name with resolved annotations; a skipped one may name a type that is not imported."""
    found = list(inspect.signature(function).parameters.values())[skip:]
    inner = inspect.unwrap(function)
    hints = get_type_hints(
        type(function.__name__, (), {"__annotations__": {item.name: item.annotation for item in found}}),
        globalns=inner.__globals__,
        include_extras=True,
    )
    return {item.name: item.replace(annotation=hints[item.name]) for item in found}
