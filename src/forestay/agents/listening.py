"""What an agent hears while it works: between a turn and the next, and before its end.

H1  What it heard is on record before the model is asked again, and in the conversation once. Until then it waits there.
H2  Where the answer that followed is on record, nothing more is heard: a replay hears what the first life heard.
H3  Extensions are told the end of the turn first, so that what they say to it is heard in time.
"""

from __future__ import annotations

import msgspec

from forestay.agents.decide import AgentState
from forestay.agents.stage import Stage
from forestay.agents.steps import Interjected, Interjection, Listen


async def listen(stage: Stage, state: AgentState, step: Listen) -> Interjected:
    transcript = stage.transcript
    assert transcript is not None, "an agent hears in a conversation"
    turn = f"agent/turn-{state.turns}"
    if not transcript.is_recorded(f"{turn}/heard"):
        if transcript.is_recorded(f"{turn}/model", "agent/end"):
            return Interjected()
        is_told = bool(state.turns) and stage.hooks.listens("turn_end")
        if not is_told and not (step.takes and await transcript.waiting()):
            return Interjected()  # nothing happened that a replay would have to know

    async def body() -> Interjected:
        await stage.tell_turn_end(state)
        said = await transcript.waiting() if step.takes else ()
        heard = [item for item in [await _taken(stage, item) for item in said] if item is not None]
        return Interjected(tuple(heard), tuple(item.id for item in said))

    return await stage.step(f"{turn}/heard", body, Interjected)


async def _taken(stage: Stage, item: Interjection) -> Interjection | None:
    """What extensions make of a message in the user's name (`input`); None when one handled it."""
    if item.sent is not None:
        return item
    answer = await stage.tell("input", text=item.text, source="extension", streamingBehavior="steer") or {}
    if answer.get("action") == "handled":
        return None
    if answer.get("action") == "transform" and isinstance(answer.get("text"), str):
        return msgspec.structs.replace(item, text=answer["text"])
    return item
