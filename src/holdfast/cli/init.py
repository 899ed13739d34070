"""`holdfast init`: a configuration file in which every setting stands, commented, with its default."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.output import Answer, answers
from holdfast.kernel.config import PROJECT_FILE
from holdfast.kernel.problems import Problem

TEMPLATE = """\
# holdfast.toml: the settings of this project. What is commented out shows its default.
# A flag beats the environment (HOLDFAST_HTTP_PORT is http.port), that beats this file, and that the user's own file.

[data]
# dir = ".holdfast"                      # the ledger, the keys' hashes and the host's secret: back this folder up

[http]
# host = "127.0.0.1"                     # another address needs a TLS proxy in front
# port = 8787

[models]
# default = "local"                      # offline; or "openai:MODEL[@BASE_URL]", "anthropic:MODEL", "scripted:FILE"

[models.classes]                         # another model for a class of work
# reasoning = "openai:MODEL"

[agents]
# paths = []                             # agent manifests: files, or folders of *.json and *.toml
# context = ["**/*.md", "**/*.txt"]      # the texts that `holdfast ask` may quote from
# mode = "prompt"                        # tools that change something: strict, prompt or permissive
# allow = []                             # tools that need no approval: "write", "ext:NAME/*", "workflow:*"
# deny = []                              # tools that nobody may call

[workflows]
# paths = []                             # folders of workflow documents

[extensions]
# paths = []                             # extensions, or folders of them; each is loaded when a person trusts it

[extensions.policy]
# mode = "prompt"                        # what nobody decided: strict denies, prompt asks, permissive allows
# max_memory_mb = 256
# default_caps = []                      # what every extension may do: "read:docs/**"
# deny_caps = []                         # what none may do, whatever it was granted: "exec"

# [extensions.overrides."ext.name"]      # what one extension may do
# allow = ["read:src/**", "http:api.example.com"]
# deny = ["env"]
# mode = "strict"

[output]
# format = "json"                        # "human" or "json"; default: by the terminal
"""


@answers("init")
def init(
    folder: Annotated[Path, typer.Argument(help="The project's folder.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> Answer:
    """Write a commented holdfast.toml."""
    file = folder / PROJECT_FILE
    if file.exists() and not force:
        raise Problem(
            "already_exists", f"There is a {PROJECT_FILE} already.", at=str(file), fix="Use --force to write over it."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(TEMPLATE, "utf-8")
    except OSError as error:
        raise Problem("io_failed", f"{file} cannot be written.", reason=error.strerror or "") from error
    return Answer({"file": str(file)}, human=lambda console: console.print(_NEXT.format(file=file), markup=False))


_NEXT = """\
wrote {file}: every setting, commented, with its default
Next: put a text into the folder and ask about it (`holdfast ask "…"`), or serve it (`holdfast up`).\
"""
