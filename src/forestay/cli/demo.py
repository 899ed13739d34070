"""`forestay demo`: the whole story once, offline: an agent turn through every part, and a process killed in its middle.

Nothing here is staged: a real host runs as a child process in a folder of its own. The demo calls it over HTTP, kills
it with SIGKILL and starts another one, which continues the run. The story comes from its answers and its ledger.
"""

from __future__ import annotations

import shutil
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay import assets
from forestay.cli.command import answers
from forestay.cli.output import Answer, choice, console
from forestay.kernel import Problem

if TYPE_CHECKING:
    from forestay.kernel import Record
    from forestay.runs import RunEvent

QUESTION = 'At which berth does the Aurora lie? Use tally, then write "The Aurora lies at berth 7." to report.md'


@answers("demo")
async def demo(
    keep: Annotated[
        Path | None, typer.Option(help="Play in this folder and keep it; default: a temporary one.")
    ] = None,
) -> Answer:
    """Play the story: notes, a quote, a tool, a refusal, an approval, a SIGKILL, a resumption, a verification."""
    if (problem := assets.missing()) is not None:
        raise problem  # the story is about an extension
    folder = keep or Path(tempfile.mkdtemp(prefix="forestay-demo-"))
    story = Story(live=choice().format == "human")
    try:
        _prepare(folder)
        await _play(story, folder)
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    return Answer({"steps": story.steps, **story.facts}, human=lambda console: None)


class Story:
    """The steps of the story: each has a title, why it matters, and what was seen."""

    def __init__(self, *, live: bool) -> None:
        self.steps: list[dict[str, Any]] = []
        self.facts: dict[str, Any] = {}
        self._console = console() if live else None

    def tell(self, title: str, why: str, *seen: str) -> None:
        self.steps.append({"title": title, "why": why, "seen": list(seen)})
        if self._console is None:
            return
        self._console.print(f"\n[bold]{len(self.steps)}. {title}[/bold]")
        for line in self._wrapped(why, "   ", "   "):
            self._console.print(line, markup=False, highlight=False)
        for text in seen:
            for line in self._wrapped(text, "   | ", "     "):
                self._console.print(line, markup=False, highlight=False)

    def _wrapped(self, text: str, first: str, others: str) -> list[str]:
        """Wrap the text to the terminal's width; without a terminal, return one line."""
        if self._console is None or not self._console.is_terminal:
            return [first + text]
        width = max(30, min(self._console.width, 120))
        return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=others, break_long_words=False)


def examples() -> Path:
    """Return the folder of the example projects that come with forestay."""
    import forestay

    package = Path(forestay.__file__).parent
    for place in (package / "examples", package.parents[1] / "examples"):
        if (place / "harbour").is_dir():
            return place
    raise Problem("not_found", "The example project is not installed.", fix="Install forestay again.")


def _prepare(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise Problem("already_exists", f"The folder {folder.name} is not empty.", at="--keep")
    shutil.copytree(examples() / "harbour", folder, dirs_exist_ok=True)


async def _play(story: Story, folder: Path) -> None:
    from forestay.cli.demo_host import child_host

    notes = sorted(path.name for path in (folder / "notes").iterdir())
    async with child_host(folder) as first:
        story.tell(
            "A host opens on a folder of notes",
            "One process, one ledger, no network. The model is `local`: it quotes and calls tools; it does not reason.",
            f"model {first.model}; notes {', '.join(notes)}; extension tally, granted read:notes/**",
        )
        run_id = (await first.client.start("harbour", {"question": QUESTION})).run_id
        story.facts["runId"] = run_id
        seen = await first.until(run_id, "agent.toolReturned")
        story.tell(
            "An agent is asked",
            "A run carries the turn. The model's call goes through the relay, which adds the notes that fit.",
            f"question: {QUESTION}",
            f"the model answered with a tool call: {_called(seen)}",
        )
        first.kill()
    story.tell(
        "The process is killed in the middle (SIGKILL)",
        "No goodbye, no clean-up. What was recorded is on disk; what was not is decided by the tool's effect class.",
        "the tool had returned; the host is gone",
    )
    async with child_host(folder) as second:
        seen = await second.until(run_id, "interrupt.requested")
        question = (await second.client.questions(run_id))[0]
        arguments = question.data["artifactData"]["arguments"]
        story.tell(
            "Another process takes the run up, and asks for an approval",
            "Reading needs no approval, writing does: policy says prompt, and nobody sits at that process's terminal.",
            f"{question.data['title']} path {arguments['path']}, content {arguments['content']!r}",
            "the demo says yes, over HTTP, as a person would in the console",
        )
        await second.client.answer(run_id, question.node_id, {"action": "accept"})
        await second.until(run_id, "run.completed")
        answer = str(((await second.client.get(run_id)).outputs or {})["output"])
        story.tell(
            "The answer", "A quote from the notes, and what the tools returned.", *filter(None, answer.splitlines())
        )
        story.facts["answer"] = answer
        await second.stop()
    await _look_back(story, folder, run_id)


async def _look_back(story: Story, folder: Path, run_id: str) -> None:
    """Tell what the ledger file holds afterwards."""
    from forestay.kernel import Ledger

    async with Ledger.open(folder / ".forestay" / "ledger.db") as ledger:
        run = await ledger.read(f"run/{run_id}")
        host_calls = [record for _, record in await ledger.read_all("ext/")]
        verified = await ledger.verify()
    story.tell(
        "What the extension tried",
        "It may read the notes. It also tried the network, which nobody granted: refused before anything was sent.",
        *_denied(host_calls),
    )
    asked = sum(record.payload.get("provider", "").startswith("model:") for record in run)
    returned = [record.payload["toolName"] for record in run if record.type == "agent.toolReturned"]
    story.tell(
        "What happened twice: nothing",
        "The second process read the model's recorded answers; it asked only for those that were missing.",
        f"model answers on record: {asked}; tool calls: {', '.join(returned)}; "
        f"report.md: {(folder / 'report.md').read_text()!r}",
    )
    if not verified.ok:
        raise Problem("chain_verification_failed", "The ledger does not verify.", faults=len(verified.faults))
    story.facts["verified"] = {"streams": verified.streams, "records": verified.records}
    story.tell(
        "The ledger is verified",
        "Every record is chained to the one before it; a changed byte would be found here.",
        f"{verified.records} records in {verified.streams} streams, no fault",
    )


def _called(events: list[RunEvent]) -> str:
    return ", ".join(event.payload["toolName"] for event in events if event.type == "agent.toolCalled")


def _denied(records: list[Record]) -> list[str]:
    """Return the reasons of policy's refusals, each once."""
    decisions = [record.payload for record in records if record.type == "policy.decision"]
    return list(dict.fromkeys(item["reason"] for item in decisions if item["effect"] == "deny"))
