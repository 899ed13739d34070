"""What a page makes of a session's entries."""

from __future__ import annotations

from typing import Any

import pytest

from forestay.console.conversation_view import conversation_of
from forestay.kernel import Ids, ManualClock
from forestay.sessions import SessionTree


@pytest.mark.parametrize(
    ("ended", "failed"), [({"exitCode": 0}, False), ({"exitCode": 2}, True), ({}, False), ({"cancelled": True}, True)]
)
def test_a_shell_line_that_failed_or_was_ended_is_shown_as_failed(
    ended: dict[str, Any], failed: bool, clock: ManualClock, ids: Ids
) -> None:
    tree = SessionTree.new(".", clock=clock, ids=ids)
    tree.append("message", message={"role": "bashExecution", "command": "ls", "output": "notes.md", **ended})
    (line,) = conversation_of(tree, {}).lines
    assert (line.by, line.text, line.is_error) == ("! ls", "notes.md", failed)
