"""A conversation that fills the model's window is compacted, by the host's model where no extension does it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forestay.host import Host
from forestay.kernel import Agents, Config, Models
from forestay.models import Deltas, Message, Script, Scripted, Turn
from forestay.sessions import SessionTree

LONG = "The log of the Aurora. " * 420


class Summing(Scripted):
    """Plays its turns; asked for a summary, it gives one and remembers what it was shown."""

    def __init__(self, *turns: Turn) -> None:
        super().__init__(Script(turns, position="conversation"))
        self.summed: list[str] = []
        self.shown: list[list[Message]] = []
        self._summary = Scripted(Script((Turn("The Aurora lies at berth 7."),), position="conversation"))

    def stream(self, messages: Sequence[Message], **more: Any) -> Deltas:
        if "<conversation>" in messages[-1].content:
            self.summed.append(messages[-1].content)
            return self._summary.stream(messages[:1], **more)
        self.shown.append(list(messages))
        return super().stream(messages, **more)


async def turn(host: Host, tree: SessionTree, text: str) -> Any:
    return await host.runs.wait(await host.turns.start(tree, text), "default")


def test_a_full_session_is_compacted_before_the_next_turn(tmp_path: Path) -> None:
    async def story() -> None:
        model = Summing(*(Turn(f"Noted {number}.") for number in range(9)))
        config = Config(models=Models(default="summing"), agents=Agents(allow=["*"]))
        async with Host.open(config, root=tmp_path, data=tmp_path / ".forestay", models={"summing": model}) as host:
            tree = host.sessions.new()
            while not model.summed and len(tree.entries) < 16:
                assert (await turn(host, tree, f"{len(tree.entries)} {LONG}")).status == "completed"
            (made,) = [entry for entry in tree.entries if entry["type"] == "compaction"]
            assert (made["summary"], made["fromHook"]) == ("The Aurora lies at berth 7.", False)
            assert made["tokensBefore"] > 5_000 and "[user]" in model.summed[0] and "Noted 0." in model.summed[0]
            last = [message.content for message in model.shown[-1]]
            assert any("compacted into this summary" in text and "berth 7" in text for text in last)
            assert sum(LONG[:200] in text for text in last) == 2, "the last message before, and the new one"
            assert len(model.summed) == 1, "a session is compacted once, not at every turn"
            await turn(host, tree, "And now?")
            assert len(model.summed) == 1

    asyncio.run(story())
